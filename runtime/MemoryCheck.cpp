#include "runtime/MemoryCheck.h"

#include "runtime/CommandBuffers.h"

#include <algorithm>

namespace braid::runtime {

MemoryCheck::MemoryCheck(const Program &program, const Arenas &arenas)
    : program(program), arenas(arenas), runs(program.entries().size()), written(program.arenas().size()) {
  for (uint32_t i = 0; i < program.arenas().size(); ++i)
    held.push_back(std::make_unique_for_overwrite<std::byte[]>(arenas.usable(i)));
}

bool MemoryCheck::begin(uint32_t entry) {
  constexpr uint64_t first = 2, every = 64;
  uint64_t run = runs[entry]++;
  if (run >= first && run % every != 0)
    return false;
  std::vector<bool> scratch = scratchArenas(program, /*gradients=*/false);
  for (uint32_t i = 0; i < scratch.size(); ++i) {
    if (scratch[i])
      std::memset(arenas.base(i), 0xff, arenas.usable(i)); // a NaN of every type
    else // what is written behind the end must show
      std::memset(arenas.base(i) + program.arenas()[i].bytes, 0xff, arenas.usable(i) - program.arenas()[i].bytes);
    std::memcpy(held[i].get(), arenas.base(i), arenas.usable(i));
  }
  return true;
}

// Programs of before Param.written do not say what their kernels write.
static bool isSilent(const Program &program, const schema::Command &command) {
  const auto *launch = command.body_as_Launch();
  if (!launch)
    return false;
  const auto *params = program.file().kernels()->Get(launch->kernel())->params();
  return !params || std::none_of(params->begin(), params->end(), [](const auto *param) { return param->written(); });
}

Status MemoryCheck::after(const WatchedCommand &command) {
  bool silent = isSilent(program, command.command);
  for (uint32_t i = 0; i < written.size(); ++i)
    written[i].assign(silent ? 1 : 0, {0, arenas.usable(i)});
  forEachBuffer(program, command.command, [&](const schema::Buffer &buffer, const char *name, DType) {
    uint64_t begin = offsetAt(buffer, command.iterations);
    if (name)
      written[buffer.arena()].push_back({begin, begin + buffer.bytes()});
  });
  for (uint32_t i = 0; i < written.size(); ++i) {
    const std::byte *now = arenas.base(i);
    uint64_t end = arenas.usable(i), at = 0;
    std::sort(written[i].begin(), written[i].end(), [](Range a, Range b) { return a.begin < b.begin; });
    written[i].push_back({end, end});
    for (Range range : written[i]) {
      if (range.begin > at && std::memcmp(now + at, held[i].get() + at, range.begin - at) != 0)
        return Status::error(ErrorCode::internal, "{}", describe(command, i, at));
      std::memcpy(held[i].get() + range.begin, now + range.begin, range.end - range.begin);
      at = std::max(at, range.end);
    }
  }
  return Status::success();
}

// `at`: somewhere before the byte.
std::string MemoryCheck::describe(const WatchedCommand &command, uint32_t arena, uint64_t at) const {
  const ArenaInfo &info = program.arenas()[arena];
  uint64_t end = arenas.usable(arena);
  const std::byte *now = arenas.base(arena);
  at = std::mismatch(now + at, now + end, held[arena].get() + at).first - now;
  std::string text =
      fmt::format("wrote byte {} of arena '{}' ({} bytes), which is not its to write;", at, info.name, info.bytes);
  bool any = false;
  forEachBuffer(program, command.command, [&](const schema::Buffer &buffer, const char *name, DType) {
    if (!name || buffer.arena() != arena)
      return;
    uint64_t begin = offsetAt(buffer, command.iterations);
    text += fmt::format("{} {}{} to {}", any ? "," : " in this arena it writes",
                        *name ? fmt::format("'{}' ", name) : "", begin, begin + buffer.bytes());
    any = true;
  });
  return any ? text : text + " it writes nothing in this arena";
}

} // namespace braid::runtime
