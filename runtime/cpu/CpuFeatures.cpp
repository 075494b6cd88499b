#include "runtime/cpu/CpuFeatures.h"

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace braid::runtime {
namespace {

#if defined(__x86_64__)

enum Register { eax, ebx, ecx, edx };
// State components the operating system must save for a feature to be usable (bits of XCR0).
constexpr uint64_t noState = 0, avxState = 0x6, avx512State = 0xe6, amxState = 0x60006;

struct Feature {
  std::string_view name;
  uint32_t leaf, subleaf;
  Register reg;
  int bit;
  uint64_t state;
};

constexpr Feature features[] = {
    {"sse2", 1, 0, edx, 26, noState},
    {"sse3", 1, 0, ecx, 0, noState},
    {"pclmul", 1, 0, ecx, 1, noState},
    {"ssse3", 1, 0, ecx, 9, noState},
    {"fma", 1, 0, ecx, 12, avxState},
    {"cx16", 1, 0, ecx, 13, noState},
    {"sse4.1", 1, 0, ecx, 19, noState},
    {"sse4.2", 1, 0, ecx, 20, noState},
    {"movbe", 1, 0, ecx, 22, noState},
    {"popcnt", 1, 0, ecx, 23, noState},
    {"aes", 1, 0, ecx, 25, noState},
    {"avx", 1, 0, ecx, 28, avxState},
    {"f16c", 1, 0, ecx, 29, avxState},
    {"bmi", 7, 0, ebx, 3, noState},
    {"avx2", 7, 0, ebx, 5, avxState},
    {"bmi2", 7, 0, ebx, 8, noState},
    {"avx512f", 7, 0, ebx, 16, avx512State},
    {"avx512dq", 7, 0, ebx, 17, avx512State},
    {"avx512ifma", 7, 0, ebx, 21, avx512State},
    {"avx512cd", 7, 0, ebx, 28, avx512State},
    {"avx512bw", 7, 0, ebx, 30, avx512State},
    {"avx512vl", 7, 0, ebx, 31, avx512State},
    {"avx512vbmi", 7, 0, ecx, 1, avx512State},
    {"avx512vbmi2", 7, 0, ecx, 6, avx512State},
    {"gfni", 7, 0, ecx, 8, noState},
    {"vaes", 7, 0, ecx, 9, avxState},
    {"vpclmulqdq", 7, 0, ecx, 10, avxState},
    {"avx512vnni", 7, 0, ecx, 11, avx512State},
    {"avx512bitalg", 7, 0, ecx, 12, avx512State},
    {"avx512vpopcntdq", 7, 0, ecx, 14, avx512State},
    {"amx-bf16", 7, 0, edx, 22, amxState},
    {"avx512fp16", 7, 0, edx, 23, avx512State},
    {"amx-tile", 7, 0, edx, 24, amxState},
    {"amx-int8", 7, 0, edx, 25, amxState},
    {"avxvnni", 7, 1, eax, 4, avxState},
    {"avx512bf16", 7, 1, eax, 5, avx512State},
    {"amx-fp16", 7, 1, eax, 21, amxState},
    {"lzcnt", 0x80000001, 0, ecx, 5, noState},
};

uint64_t savedStates() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !(c >> 27 & 1)) // OSXSAVE
    return 0;
  uint32_t low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t(high) << 32 | low;
}

const Feature *find(std::string_view name) {
  for (const Feature &feature : features)
    if (feature.name == name)
      return &feature;
  return nullptr;
}

bool present(const Feature &feature) {
  unsigned r[4];
  if (!__get_cpuid_count(feature.leaf, feature.subleaf, &r[eax], &r[ebx], &r[ecx], &r[edx]))
    return false;
  return (r[feature.reg] >> feature.bit & 1) && (savedStates() & feature.state) == feature.state;
}

bool known(std::string_view name) { return find(name) != nullptr; }

#else

bool known(std::string_view) { return false; }

#endif

} // namespace

bool hasCpuFeature(std::string_view name) {
#if defined(__x86_64__)
  const Feature *feature = find(name);
  return feature && present(*feature);
#else
  (void)name;
  return false;
#endif
}

Status checkCpuFeatures(std::span<const std::string> names) {
  std::string missing, unknown;
  for (const std::string &name : names) {
    if (hasCpuFeature(name))
      continue;
    std::string &list = known(name) ? missing : unknown;
    list += (list.empty() ? "" : ", ") + name;
  }
  if (!unknown.empty())
    return Status::error(ErrorCode::unsupported, "the program needs CPU features this runtime does not know: {}",
                         unknown);
  if (!missing.empty())
    return Status::error(ErrorCode::unsupported,
                         "the program needs CPU features this machine lacks: {}; compile it with --cpu=native here, or "
                         "for an older core",
                         missing);
  return Status::success();
}

} // namespace braid::runtime
