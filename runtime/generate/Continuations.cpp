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
  if (!options.reuses || !options.readsBeside || generator.stateBytes(1) == 0)
    this->options.stateBytes = 0;
}

size_t Continuations::room() const {
  return static_cast<size_t>(std::ranges::count_if(places, [](const Place &place) { return !place.running; }));
}

// Whether a text can go on with what follows: something of it must be left to read, and if it is scored, nothing to score.
bool Continuations::Read::beginsThat(const Text &text) const {
  size_t left = text.scoresPrompt ? 2 : 1;
  return !tokens.empty() && tokens.size() + left <= text.prompt.size() &&
         std::ranges::equal(tokens, std::span(text.prompt).first(tokens.size())) &&
         (!text.scoresPrompt || (scores.size() == tokens.size() && next == text.prompt[tokens.size()]));
}

// The free sequence that has read most of the prompt, all of what it has; else the one that was used longest ago, whose
// text is the least likely to go on.
size_t Continuations::placeFor(const Text *text, size_t &reused) const {
  size_t best = places.size();
  for (size_t i = 0; i < places.size(); ++i) {
    const Place &place = places[i];
    if (place.running)
      continue;
    size_t known = text && place.read.beginsThat(*text) ? place.read.tokens.size() : 0;
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

Continuations::Kept *Continuations::keptFor(const Text &text) {
  Kept *best = nullptr;
  for (Kept &kept : states)
    if (kept.read.beginsThat(text) && (!best || kept.read.tokens.size() > best->read.tokens.size()))
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

// A state that was of use outlives those that were not, however many of them come; half of the room is for such, of which
// the one that was not used for longest then has to prove itself again.
void Continuations::use(Kept &kept) {
  kept.used = ++uses;
  kept.hasProven = true;
  auto proven = std::views::filter(states, &Kept::hasProven);
  size_t bytes = 0, count = 0;
  for (const Kept &other : proven) {
    bytes += other.state.bytes.size();
    ++count;
  }
  if (count > 1 && (2 * bytes > options.stateBytes || 2 * count > mostStates))
    std::ranges::min_element(proven, {}, &Kept::used)->hasProven = false;
}

void Continuations::forget(std::vector<Kept>::iterator state) {
  total.stateBytes -= state->state.bytes.size();
  std::swap(*state, states.back());
  states.pop_back();
}

// Keeps what the sequence has read of its prompt, and forgets what was not used for longest.
Status Continuations::keep(size_t at) {
  const Running &running = *places[at].running;
  std::span<const int32_t> tokens = std::span(running.text.prompt).first(running.read);
  size_t bytes = generator.stateBytes(static_cast<int64_t>(tokens.size()));
  if (tokens.size() < leastKept || bytes > options.stateBytes)
    return Status::success();
  Read read{{tokens.begin(), tokens.end()}, running.scores, running.text.prompt[running.read]};
  auto known = std::ranges::find_if(states, [&](const Kept &kept) { return kept.read.tokens == read.tokens; });
  if (known != states.end()) {
    known->used = ++uses;
    if (!read.scores.empty())
      known->read = std::move(read);
    return Status::success();
  }
  while (states.size() == mostStates || total.stateBytes + bytes > options.stateBytes)
    forget(std::ranges::min_element(states, {}, [](const Kept &kept) { return std::pair(kept.hasProven, kept.used); }));
  BRAID_ASSIGN(Generator::State state, generator.save(at));
  total.stateBytes += state.bytes.size();
  states.push_back({std::move(read), std::move(state), ++uses});
  total.states = states.size();
  return Status::success();
}

// ---- Rounds ---------------------------------------------------------------------------------------------------------

Expected<size_t> Continuations::begin(uint64_t id, Text text) {
  BRAID_TRY(checkPrompt(generator, text.prompt, text.maxTokens));
  BRAID_ASSIGN(Sampler sampler, Sampler::create(text.sampler, generator.vocabulary(), options.choices));
  sampler.read(text.prompt);
  if (text.scoresPrompt)
    BRAID_TRY(generator.checkScores());
  size_t reused = 0, at = placeFor(&text, reused), shared = 0;
  std::vector<TokenScore> scores;
  if (at == places.size())
    return Status::error(ErrorCode::overflow, "all {} sequences have a text", places.size());
  ++begun;
  if (options.stateBytes > 0) {
    if (Kept *kept = keptFor(text); kept && kept->read.tokens.size() > reused) {
      size_t none = 0;
      at = placeFor(nullptr, none);
      BRAID_TRY(generator.restore(at, kept->state));
      places[at].read = kept->read;
      reused = kept->read.tokens.size();
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
    place.read = {};
  }
  if (text.scoresPrompt)
    scores = place.read.scores;
  place.used = begun;
  place.running.emplace(Running{id, std::move(text), std::move(sampler), reused, shared, std::move(scores)});
  total.reusedTokens += reused;
  return reused;
}

void Continuations::end(uint64_t id) {
  for (Place &place : places)
    if (place.running && place.running->id == id)
      place.running.reset();
}

// What is read next of a prompt.
Expected<Generator::Piece> Continuations::nextPiece(size_t at) {
  const Running &running = *places[at].running;
  bool scored = running.isScored();
  size_t rest = (scored ? running.scoredEnd() : running.readEnd()) - running.read;
  size_t count = options.readsBeside ? generator.callLength(rest, scored) : rest;
  std::span<const int32_t> prompt = running.text.prompt;
  Generator::Piece piece{at, prompt.subspan(running.read, count)};
  if (scored)
    piece.labels = prompt.subspan(running.read + 1, count);
  bool leaves = running.read <= running.shared && running.shared < running.read + count;
  if (options.stateBytes > 0 && (count == rest || leaves))
    BRAID_TRY(keep(at));
  return piece;
}

// What is fed in a round.
Status Continuations::gather() {
  pieces.clear();
  auto isRead = [](const Running &running) { return running.read == running.readEnd(); };
  for (size_t i = 0; i < places.size(); ++i) {
    const std::optional<Running> &running = places[i].running;
    if (!running || isRead(*running))
      continue;
    BRAID_ASSIGN(Generator::Piece piece, nextPiece(i));
    pieces.push_back(piece);
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
    std::span<const TokenScore> scores = generator.scores(piece.sequence);
    running.scores.insert(running.scores.end(), scores.begin(), scores.end());
    if (options.reuses) {
      Read &read = place.read;
      read.tokens.insert(read.tokens.end(), piece.tokens.begin(), piece.tokens.end());
      read.scores.insert(read.scores.end(), scores.begin(), scores.end());
      if (!scores.empty())
        read.next = piece.labels.back();
    }
    if (running.read < running.readEnd()) {
      reads = true;
      running.read += piece.tokens.size();
      total.promptTokens += piece.tokens.size();
      if (running.read == running.readEnd() && readSeen)
        readSeen(running.id, running.scores);
    }
    if (!place.running || running.read < running.readEnd())
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
