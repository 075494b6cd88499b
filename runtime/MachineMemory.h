// How much memory this process may hope for: to say what cannot fit before the machine is out of it.
#pragma once

#include <cstdint>
#include <string>

namespace braid::runtime {

// Memory and swap space of the machine, or what its control group allows when that is less.
uint64_t machineMemoryBytes();

// "1.5 GiB"; bytes up to 1023 as they are.
std::string formatBytes(uint64_t bytes);

} // namespace braid::runtime
