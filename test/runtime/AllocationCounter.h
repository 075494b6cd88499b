// Counts the allocations of the process that links it: malloc, calloc, realloc and so operator new, of all threads, but
// for those inside oneDNN's dnnl_primitive_execute, which keeps its arguments in a hash map of its own.
#pragma once

#include <cstdint>

namespace braid::runtime::test {

// False where they cannot be counted: under sanitizers, which have an allocator of their own, and without glibc.
bool countsAllocations();
inline constexpr const char *whyNoAllocationsAreCounted =
    "allocations are counted through glibc's malloc, without sanitizers";

int64_t allocations(); // our own since the start
int64_t libraryAllocations(); // those inside oneDNN

} // namespace braid::runtime::test
