// libFuzzer targets of one executable: braid-fuzz-runtime --target=npy CORPUS -runs=1000. A target takes any bytes and
// may refuse them; it must not crash, hang, or allocate without bound.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string_view>

namespace braid::fuzz {

struct Target {
  std::string_view name;
  void (*run)(std::span<const uint8_t> bytes);
};

extern const std::span<const Target> targets;

inline const Target *&chosen() {
  static const Target *target = nullptr;
  return target;
}

} // namespace braid::fuzz

extern "C" __attribute__((used)) inline int LLVMFuzzerInitialize(int *argc, char ***argv) {
  constexpr std::string_view flag = "--target=";
  int kept = 0;
  for (int i = 0; i < *argc; ++i) {
    std::string_view argument = (*argv)[i];
    if (!argument.starts_with(flag)) {
      (*argv)[kept++] = (*argv)[i];
      continue;
    }
    for (const braid::fuzz::Target &target : braid::fuzz::targets)
      if (target.name == argument.substr(flag.size()))
        braid::fuzz::chosen() = &target;
  }
  *argc = kept;
  if (!braid::fuzz::chosen()) {
    std::fprintf(stderr, "give --target=NAME; there are");
    for (const braid::fuzz::Target &target : braid::fuzz::targets)
      std::fprintf(stderr, " %.*s", static_cast<int>(target.name.size()), target.name.data());
    std::fprintf(stderr, "\n");
    std::exit(2);
  }
  return 0;
}

extern "C" __attribute__((used)) inline int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  braid::fuzz::chosen()->run({data, size});
  return 0;
}
