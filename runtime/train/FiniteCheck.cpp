#include "runtime/train/FiniteCheck.h"

#include "runtime/CommandBuffers.h"
#include "runtime/train/ElementPlace.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>

namespace braid::runtime {

bool UpdateGuard::beforeUpdate() {
  ended = !std::isfinite(earlier) || !std::isfinite(loss.as<float>()[0]) || !std::isfinite(gradNorm.as<float>()[0]);
  return !ended && !always;
}

namespace {

template <class T> T valueAt(std::span<const std::byte> bytes, size_t element) {
  T value;
  std::memcpy(&value, bytes.data() + element * sizeof(T), sizeof(T));
  return value;
}

double elementAt(DType type, std::span<const std::byte> bytes, size_t element) {
  switch (type) {
  case DType::f32: return valueAt<float>(bytes, element);
  case DType::f64: return valueAt<double>(bytes, element);
  case DType::bf16: return std::bit_cast<float>(uint32_t(valueAt<uint16_t>(bytes, element)) << 16);
  case DType::i32:
  case DType::i64:
  case DType::u8:
  case DType::i16: break;
  }
  return 0;
}

// By a clock that the machines of a run have set alike.
uint64_t now() {
  auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(since).count());
}

bool isFloat(DType type) { return type == DType::f32 || type == DType::f64 || type == DType::bf16; }

} // namespace

void FiniteSearch::clearScratch() {
  std::vector<bool> scratch = scratchArenas(session.program(), /*gradients=*/true);
  for (uint32_t i = 0; i < scratch.size(); ++i)
    if (scratch[i])
      session.clearArena(i);
}

void FiniteSearch::collect(const WatchedCommand &watched) {
  outputs.clear();
  forEachBuffer(session.program(), watched.command, [&](const schema::Buffer &buffer, const char *written, DType type) {
    uint64_t offset = offsetAt(buffer, watched.iterations);
    if (written && isFloat(type))
      outputs.push_back({written, type, {session.arena(buffer.arena()) + offset, buffer.bytes()}, {}});
  });
}

FiniteSearch::Found FiniteSearch::found() const {
  if (firstNan.text.empty() || firstInfinity.text.empty() || firstInfinity.order >= firstNan.order)
    return firstNan.text.empty() ? firstInfinity : firstNan;
  return {firstNan.text + "; before it " + firstInfinity.text, firstNan.order, firstNan.at};
}

void FiniteSearch::before(const WatchedCommand &watched) {
  collect(watched);
  for (Written &output : outputs)
    output.old.assign(output.bytes.begin(), output.bytes.end());
}

void FiniteSearch::after(const WatchedCommand &watched) {
  for (const Written &output : outputs) {
    size_t size = sizeOf(output.type), count = output.bytes.size() / size;
    for (size_t i = 0; i < count && firstNan.text.empty(); ++i) {
      double value = elementAt(output.type, output.bytes, i);
      if (std::isfinite(value))
        continue;
      // A buffer may be larger than what the command fills; what it left alone may be anything.
      if (std::memcmp(output.bytes.data() + i * size, output.old.data() + i * size, size) == 0)
        continue;
      Found &first = std::isnan(value) ? firstNan : firstInfinity;
      if (first.text.empty())
        first = {describe(watched, output, i, value), executed, now()};
    }
  }
  ++executed;
}

std::string FiniteSearch::describe(const WatchedCommand &watched, const Written &written, size_t element,
                                   double value) const {
  std::string where = watched.where, inLayer;
  if (watched.layer >= 0) {
    std::string kind = mixerKind(session.program(), watched.layer);
    inLayer = fmt::format("layers.{}{}, ", watched.layer, kind.empty() ? "" : fmt::format(" (mixer {})", kind));
  }
  for (size_t i = 0; i < watched.iterations.size(); ++i)
    where += fmt::format("{}{}", i == 0 ? " (iteration " : ", ", watched.iterations[i]);
  if (!watched.iterations.empty())
    where += ")";
  std::string kernel;
  if (const auto *launch = watched.command.body_as_Launch())
    kernel = fmt::format(", kernel {}", session.program().kernels()[launch->kernel()]);
  std::string tensor = written.name.empty() ? "its result" : fmt::format("'{}'", written.name);
  if (std::string place = elementPlace(session, watched, written.name, element); !place.empty())
    tensor += fmt::format(" ({})", place);
  return fmt::format("the first {} is element {} of {} in {}, {}{}{}", std::isnan(value) ? "NaN" : "infinity", element,
                     written.bytes.size() / sizeOf(written.type), tensor, inLayer, where, kernel);
}

} // namespace braid::runtime
