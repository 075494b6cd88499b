// Which vector extensions this machine has, by CPUID feature bits (and the operating system's permission to use them).
// Core names are not trusted: virtual machines mask them.
#pragma once

#include "runtime/Status.h"

#include <span>
#include <string>

namespace braid::runtime {

// Success when every feature (LLVM's names: avx2, fma, avx512f, avx512bf16, amx-bf16, ...) is present; the error lists
// the missing ones, and the ones this runtime does not know.
Status checkCpuFeatures(std::span<const std::string> features);
bool hasCpuFeature(std::string_view feature);

} // namespace braid::runtime
