#include "runtime/generate/Continuations.h"

#include "runtime/ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <ranges>

namespace braid::runtime {

using Clock = std::chrono::steady_clock;

static double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

Continuations::Continuations(Generator &generator, const ContinuationOptions &options)
    : generator(generator), options(options), places(generator.sequences()) {
  this->options.choices = std::min(options.choices, generator.vocabulary());
  if (!options.reuses || !options.readsBeside || generator.stateBytes() == 0)
    this->options.stateBytes = 0;
}

size_t Continuations::room() const {
  return static_cast<size_t>(std::ranges::count_if(places, [](const Place &place) { return !place.running; }));
}

// Whether a text can go on with what behind `read` follows: something of it must be left to read.
static bool goesOnFrom(std::span<const int32_t> read, std::span<const int32_t> prompt) {
  return !read.empty() && read.size() < prompt.size() && std::ranges::equal(read, prompt.first(read.size()));
}

// The free sequence that has read most of the prompt, all of what it has; else the one that was used longest ago, whose
// text is the least likely to go on.
size_t Continuations::placeFor(std::span<const int32_t> prompt, size_t &reused) const {
  size_t best = places.size();
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &place = places[i];
    if (place.running)
      continue;
    size_t known = goesOnFrom(place.fed, prompt) ? place.fed.size() : 0;
    if (best == places.size() || known > reused || (known == reused && place.used < places[best].used)) {
      best = i;
      reused = known;
    }
  }
  return best;
}

// ---- States ---------------------------------------------------------------------------------------------------------

// Prompts that are compared with new ones, and states; tokens of a state, at least: fewer are soon read again.
static constexpr size_t mostRecent = 64, mostStates = 1024, leastKept = 32;

Continuations::Kept *Continuations::keptFor(std::span<const int32_t> prompt) {
  Kept *best = nullptr;
  for (Kept &kept : states)
    if (goesOnFrom(kept.tokens, prompt) && (!best || kept.tokens.size() > best->tokens.size()))
      best = &kept;
  return best;
}

// Of a prompt, how many tokens another one began with: what two have in common a third one may, too.
size_t Continuations::sharedWith(std::span<const int32_t> prompt) const {
  size_t most = 0;
  for (const std::vector<int32_t> &other : recent) {
    auto differs = std::ranges::mismatch(prompt, other).in1;
    most = std::max(most, static_cast<size_t>(differs - prompt.begin()));
  }
  return most;
}

size_t Continuations::mostKept() const { return std::min(options.stateBytes / generator.stateBytes(), mostStates); }

// A state that was of use outlives those that were not, however many of them come; half of the room is for such, of which
// the one that was not used for longest then has to prove itself again.
void Continuations::use(Kept &kept) {
  kept.used = ++uses;
  kept.hasProven = true;
  auto proven = std::views::filter(states, &Kept::hasProven);
  if (2 * static_cast<size_t>(std::ranges::distance(proven)) > std::max<size_t>(mostKept(), 2))
    std::ranges::min_element(proven, {}, &Kept::used)->hasProven = false;
}

// Keeps what the sequence has read of its prompt, and forgets what was not used for longest.
Status Continuations::keep(size_t at) {
  const Running &running = *places[at].running;
  std::span<const int32_t> read = std::span(running.text.prompt).first(running.read);
  if (read.size() < leastKept || mostKept() == 0)
    return Status::success();
  auto known = std::ranges::find_if(states, [&](const Kept &kept) { return std::ranges::equal(kept.tokens, read); });
  if (known != states.end()) {
    known->used = ++uses;
    return Status::success();
  }
  if (states.size() == mostKept()) {
    auto worst =
        std::ranges::min_element(states, {}, [](const Kept &kept) { return std::pair(kept.hasProven, kept.used); });
    std::swap(*worst, states.back());
    states.pop_back();
  }
  BRAID_ASSIGN(Generator::State state, generator.save(at));
  states.push_back({{read.begin(), read.end()}, std::move(state), ++uses});
  total.states = states.size();
  return Status::success();
}

// ---- Rounds ---------------------------------------------------------------------------------------------------------

Expected<size_t> Continuations::begin(uint64_t id, Text text) {
  BRAID_TRY(checkPrompt(generator, text.prompt, text.maxTokens));
  BRAID_ASSIGN(Sampler sampler, Sampler::create(text.sampler, generator.vocabulary(), options.choices));
  size_t reused = 0, at = placeFor(text.prompt, reused), shared = 0;
  if (at == places.size())
    return Status::error(ErrorCode::overflow, "all {} sequences have a text", places.size());
  ++begun;
  if (options.stateBytes > 0) {
    if (Kept *kept = keptFor(text.prompt); kept && kept->tokens.size() > reused) {
      size_t none = 0;
      at = placeFor({}, none);
      BRAID_TRY(generator.restore(at, kept->state));
      places[at].fed = kept->tokens;
      reused = kept->tokens.size();
      use(*kept);
    }
    shared = sharedWith(text.prompt);
    recent.push_back(text.prompt);
    if (recent.size() > mostRecent)
      recent.pop_front();
  }
  Place &place = places[at];
  if (reused == 0) {
    generator.reset(at);
    place.fed.clear();
  }
  place.used = begun;
  place.running.emplace(Running{id, std::move(text), std::move(sampler), reused, shared});
  total.reusedTokens += reused;
  return reused;
}

void Continuations::end(uint64_t id) {
  for (Place &place : places)
    if (place.running && place.running->id == id)
      place.running.reset();
}

// What is fed in a round.
Status Continuations::gather() {
  pieces.clear();
  auto isRead = [](const Running &running) { return running.read == running.text.prompt.size(); };
  for (size_t i = 0; i < places.size(); ++i) {
    const std::optional<Running> &running = places[i].running;
    if (!running || isRead(*running))
      continue;
    std::span<const int32_t> rest = std::span(running->text.prompt).subspan(running->read);
    size_t count = options.readsBeside ? generator.callLength(rest.size()) : rest.size();
    bool leaves = running->read <= running->shared && running->shared < running->read + count;
    if (options.stateBytes > 0 && (count == rest.size() || leaves))
      BRAID_TRY(keep(i));
    pieces.push_back({i, rest.first(count)});
  }
  if (!pieces.empty() && !options.readsBeside)
    return Status::success();
  for (size_t i = 0; i < places.size(); ++i)
    if (const std::optional<Running> &running = places[i].running; running && isRead(*running))
      pieces.push_back({i, std::span(&running->token, 1)});
  return Status::success();
}

void Continuations::draw(std::span<const size_t> of) {
  generator.pool().parallelFor(0, static_cast<int64_t>(of.size()), 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      size_t at = of[static_cast<size_t>(i)];
      Running &running = *places[at].running;
      Expected<int32_t> token = running.sampler.sample(generator.logits(at), static_cast<uint64_t>(running.drawn));
      running.status = token.status();
      running.token = token ? *token : 0;
    }
  });
}

Expected<bool> Continuations::step(const Emit &emit) {
  Clock::time_point start = Clock::now();
  BRAID_TRY(gather());
  if (pieces.empty())
    return true;
  BRAID_TRY(generator.feed(pieces));
  bool reads = false;
  std::vector<size_t> drawn; // from whose logits
  for (const Generator::Piece &piece : pieces) {
    Place &place = places[piece.sequence];
    Running &running = *place.running;
    if (options.reuses)
      place.fed.insert(place.fed.end(), piece.tokens.begin(), piece.tokens.end());
    if (running.read < running.text.prompt.size()) {
      reads = true;
      running.read += piece.tokens.size();
      total.promptTokens += piece.tokens.size();
    }
    if (running.read < running.text.prompt.size())
      continue;
    if (running.text.maxTokens == 0)
      place.running.reset();
    else
      drawn.push_back(piece.sequence);
  }
  if (reads) {
    total.promptSeconds += since(start);
    start = Clock::now();
  }
  draw(drawn);
  bool goesOn = true;
  for (size_t i = 0; goesOn && i < drawn.size(); ++i) {
    std::optional<Running> &running = places[drawn[i]].running;
    bool failed = !running->status.ok();
    total.drawnTokens += !failed;
    running->drawn += !failed;
    AfterToken after =
        emit(running->id, failed ? Expected<int32_t>(running->status) : running->token, generator.logits(drawn[i]));
    goesOn = after != AfterToken::endAll;
    if (failed || after == AfterToken::endText || running->drawn == running->text.maxTokens)
      running.reset();
  }
  total.decodeSeconds += since(start);
  return goesOn;
}

} // namespace braid::runtime
