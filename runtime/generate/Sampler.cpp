#include "runtime/generate/Sampler.h"

#include "runtime/train/Random.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace braid::runtime {

Expected<Sampler> Sampler::create(const SamplerOptions &options, size_t vocabulary, size_t limit) {
  if (!(options.temperature >= 0 && options.temperature <= maxTemperature))
    return Status::error("temperature: {}; valid: 0 (greedy) to {}", options.temperature, maxTemperature);
  if (options.topK < 0)
    return Status::error("top-k: {}; valid: 0 (all tokens) or above", options.topK);
  if (!(options.topP > 0 && options.topP <= 1))
    return Status::error("top-p: {}; valid: above 0, up to 1", options.topP);
  if (!(options.minP >= 0 && options.minP <= 1))
    return Status::error("min-p: {}; valid: 0 (all tokens) to 1", options.minP);
  BRAID_ASSIGN(Penalties penalties, Penalties::create(options.penalties, vocabulary));
  return Sampler(options, std::min(limit, vocabulary), std::move(penalties));
}

// Whole blocks of lanes and no branches, so that this is vector code.
static constexpr size_t lanes = 16;
template <class Look> static void overLanes(std::span<const float> values, Look &&look) {
  size_t whole = values.size() / lanes * lanes;
  for (size_t i = 0; i < whole; i += lanes)
    for (size_t lane = 0; lane < lanes; ++lane)
      look(values[i + lane], lane);
  for (size_t i = whole; i < values.size(); ++i)
    look(values[i], i - whole);
}

// The first of the largest; -1 where there are NaN or +inf. Leaves the largest of each block.
int32_t Sampler::firstLargest(std::span<const float> logits) {
  maxima.clear();
  int32_t broken[lanes] = {};
  for (std::span<const float> rest = logits; !rest.empty();) {
    std::span<const float> block = rest.first(std::min(blockLength, rest.size()));
    rest = rest.subspan(block.size());
    float best[lanes];
    std::fill_n(best, lanes, -INFINITY);
    overLanes(block, [&](float logit, size_t lane) {
      best[lane] = logit > best[lane] ? logit : best[lane];
      broken[lane] |= !(logit < INFINITY);
    });
    maxima.push_back(*std::max_element(best, best + lanes));
  }
  if (std::any_of(broken, broken + lanes, [](int32_t any) { return any != 0; }))
    return -1;
  auto block = static_cast<size_t>(std::max_element(maxima.begin(), maxima.end()) - maxima.begin());
  std::span<const float> of = logits.subspan(block * blockLength);
  return static_cast<int32_t>(std::ranges::find(of, maxima[block]) - logits.begin());
}

// exp(x) for x <= 0, to 2 units in the last place; below -86 zero. x = n ln 2 + r, exp(r) by its series. Products and
// sums only, none fused: unlike the library's it does not depend on the C library or the CPU.
static float exponential(float x) {
  float bounded = x > -86.0f ? x : -86.0f;
  constexpr float magic = 12582912.0f; // 1.5 * 2^23: what is added to it is rounded to a whole number
  float shifted = bounded * 1.44269504f + magic;
  float n = shifted - magic;
  float r = (bounded - n * 0.693359375f) + n * 2.12194440e-4f; // ln 2 in two parts (Cody, Waite 1980)
  float p = 1.0f / 5040;
  for (float c : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    p = p * r + c;
  auto bits = std::bit_cast<uint32_t>(p) + (std::bit_cast<uint32_t>(shifted) << 23);
  return x > -86.0f ? std::bit_cast<float>(bits) : 0.0f;
}

static constexpr size_t groupCount = 2048;

// What is less likely by exp(-32) is in the last group.
static float groupsPerLogit(std::span<const float> logits, float highest, float scale) {
  float lowest[lanes];
  std::fill_n(lowest, lanes, highest);
  overLanes(logits, [&](float logit, size_t lane) {
    lowest[lane] = logit < lowest[lane] && logit > -INFINITY ? logit : lowest[lane];
  });
  float range = std::min((highest - *std::min_element(lowest, lowest + lanes)) * scale, 32.0f);
  return static_cast<float>(groupCount) / std::max(range, 1e-30f);
}

// Of a block of tokens, or what is left of it.
void Sampler::weigh(std::span<const float> block, const Weighing &weighing, Weighed &out) {
  for (size_t i = 0; i < block.size(); ++i) {
    float x = (block[i] - weighing.highest) * weighing.scale, group = x * -weighing.perGroup;
    out.weights[i] = exponential(x);
    out.groups[i] = static_cast<int32_t>(group < static_cast<float>(groupCount) ? group : groupCount - 1);
  }
}

// The tokens of a group, in their order, until `use` says that it has seen enough.
template <class Use>
void Sampler::walk(size_t group, std::span<const float> logits, const Weighing &weighing, Use &&use) const {
  Weighed weighed;
  for (size_t block = 0; block < maxima.size(); ++block) {
    weigh({&maxima[block], 1}, weighing, weighed);
    if (weighed.groups[0] > static_cast<int32_t>(group)) // all are less likely
      continue;
    size_t begin = block * blockLength;
    std::span<const float> tokens = logits.subspan(begin, std::min(blockLength, logits.size() - begin));
    weigh(tokens, weighing, weighed);
    for (size_t i = 0; i < tokens.size(); ++i)
      if (weighed.groups[i] == static_cast<int32_t>(group) &&
          !use(Candidate{tokens[i], weighed.weights[i], static_cast<int32_t>(begin + i)}))
        return;
  }
}

// Of equal logits the lower token comes first.
static constexpr auto likelier = [](const auto &a, const auto &b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
};

// The first candidates that together weigh so much, in order, and their weight. Mostly they are few: not all are put in
// order.
std::pair<size_t, double> Sampler::nucleus(double weight) {
  double kept = 0;
  size_t count = 0;
  for (size_t ordered = 0; count < candidates.size() && kept < weight;) {
    if (count == ordered) {
      auto first = candidates.begin() + static_cast<std::ptrdiff_t>(count);
      ordered = std::min(std::max<size_t>(256, 4 * ordered), candidates.size());
      auto last = candidates.begin() + static_cast<std::ptrdiff_t>(ordered);
      std::nth_element(first, last, candidates.end(), likelier);
      std::sort(first, last, likelier);
    }
    kept += candidates[count++].weight;
  }
  return {count, kept};
}

// The topK likeliest, and of those the nucleus.
Sampler::Kept Sampler::keepLikeliest(std::span<const float> logits, const Weighing &weighing) {
  auto count = static_cast<size_t>(options.topK);
  // So many blocks hold a logit that is as large as the bound: those below it are not among the likeliest.
  float bound = -INFINITY;
  if (count <= maxima.size()) {
    auto last = maxima.begin() + options.topK - 1;
    std::nth_element(maxima.begin(), last, maxima.end(), std::greater());
    bound = *last;
  }
  candidates.clear();
  for (size_t token = 0; token < logits.size(); ++token)
    if (logits[token] >= bound)
      candidates.push_back({logits[token], 0, static_cast<int32_t>(token)});
  auto end = candidates.begin() + static_cast<std::ptrdiff_t>(count);
  std::nth_element(candidates.begin(), end, candidates.end(), likelier);
  candidates.erase(end, candidates.end());
  std::sort(candidates.begin(), candidates.end(), likelier);
  double sum = 0;
  for (Candidate &candidate : candidates)
    sum += candidate.weight = exponential((candidate.logit - weighing.highest) * weighing.scale);
  if (options.topP == 1)
    return {0, candidates.size(), sum};
  auto [first, kept] = nucleus(options.topP * sum);
  return {0, first, kept};
}

// All tokens, or their nucleus: whole groups, and a part of one.
Sampler::Kept Sampler::keepGroups(std::span<const float> logits, Weighing &weighing) {
  weighing.perGroup = groupsPerLogit(logits, weighing.highest, weighing.scale);
  sums.assign(groupCount, 0);
  Weighed weighed;
  for (size_t begin = 0; begin < logits.size(); begin += blockLength) {
    std::span<const float> block = logits.subspan(begin, std::min(blockLength, logits.size() - begin));
    weigh(block, weighing, weighed);
    for (size_t i = 0; i < block.size(); ++i)
      sums[static_cast<size_t>(weighed.groups[i])] += weighed.weights[i];
  }
  double sum = std::accumulate(sums.begin(), sums.end(), 0.0), before = 0;
  if (options.topP == 1)
    return {groupCount, 0, sum};
  size_t group = 0;
  for (; group < groupCount - 1 && before + sums[group] < options.topP * sum; ++group)
    before += sums[group];
  candidates.clear();
  walk(group, logits, weighing, [&](const Candidate &candidate) {
    candidates.push_back(candidate);
    return true;
  });
  auto [first, kept] = nucleus(options.topP * sum - before);
  return {group, first, before + kept};
}

Expected<int32_t> Sampler::sample(std::span<const float> logits, uint64_t position) {
  logits = logits.first(std::min(limit, logits.size()));
  if (!penalties.areNone()) {
    adjusted.assign(logits.begin(), logits.end());
    penalties.apply(adjusted);
    logits = adjusted;
  }
  Expected<int32_t> token = choose(logits, position);
  if (token)
    penalties.drawn(*token);
  return token;
}

Expected<int32_t> Sampler::choose(std::span<const float> logits, uint64_t position) {
  if (logits.empty())
    return Status::error("there are no logits to choose from");
  int32_t likeliest = firstLargest(logits);
  if (likeliest < 0) {
    // -inf is a token that cannot follow; NaN and +inf are a broken model.
    auto broken = std::ranges::find_if(logits, [](float logit) { return std::isnan(logit) || logit == INFINITY; });
    return Status::error("the logit of token {} at generated position {} is {}", broken - logits.begin(), position,
                         *broken);
  }
  if (options.temperature == 0)
    return likeliest;
  float highest = logits[static_cast<size_t>(likeliest)];
  if (highest == -INFINITY)
    return Status::error("every token is impossible at generated position {}", position);

  float scale = 1 / std::max(static_cast<float>(options.temperature), std::numeric_limits<float>::min());
  Weighing weighing{highest, scale, 0};
  if (options.minP > 0) {
    if (logits.data() != adjusted.data())
      adjusted.assign(logits.begin(), logits.end());
    auto least = static_cast<float>(options.minP);
    for (float &logit : adjusted)
      logit = exponential((logit - highest) * scale) < least ? -INFINITY : logit;
    logits = adjusted;
    firstLargest(logits);
  }
  bool some = options.topK > 0 && static_cast<size_t>(options.topK) < logits.size();
  Kept kept = some ? keepLikeliest(logits, weighing) : keepGroups(logits, weighing);
  double threshold = randomUnit(options.seed, RandomStream::sampling, position) * kept.weight;
  int32_t drawn = likeliest; // where rounding leaves something, the last one that is possible
  auto falls = [&](const Candidate &candidate) {
    drawn = candidate.weight > 0 ? candidate.token : drawn;
    threshold -= candidate.weight;
    return threshold < 0;
  };
  for (size_t group = 0; group < kept.groups; threshold -= sums[group++])
    if (threshold < sums[group]) {
      walk(group, logits, weighing, [&](const Candidate &candidate) { return !falls(candidate); });
      return drawn;
    }
  for (size_t i = 0; i < kept.candidates && !falls(candidates[i]); ++i)
    continue;
  return drawn;
}

} // namespace braid::runtime
