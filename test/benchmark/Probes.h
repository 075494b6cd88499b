// What the machine reaches when it does one thing only, measured in the process that trains, on the same threads and
// through the same code: matrix products of given shapes, copies, and starting the threads.
#pragma once

#include "runtime/ThreadPool.h"
#include "runtime/cpu/Gemm.h"
#include "runtime/cpu/GroupedGemm.h"
#include "test/benchmark/Machine.h"

#include <optional>

namespace braid::benchmark {

// One library call of a program. `flops` counts a grouped product with all its rows in use.
struct Product {
  std::optional<runtime::GemmDesc> gemm;
  std::optional<runtime::GroupedGemmDesc> grouped;

  std::string text() const; // "gemm 1024 x 64 x 128 a^T"; equal texts are equal work
  double flops() const;
  bool isLibraryCall() const { return gemm || grouped; }
};

struct Rate {
  double median = 0, fastest = 0; // seconds of one call
};

// Each product alone: its operands stay where the caches hold them. Rows of a grouped product are spread evenly.
Expected<std::vector<Rate>> probeProducts(const std::vector<Product> &products, runtime::ThreadPool &pool);
// One copy of `bytes`, split over all threads: read + written bytes are twice that.
Rate probeCopy(size_t bytes, runtime::ThreadPool &pool);
// One pass that reads `bytes`, split over all threads.
Rate probeRead(size_t bytes, runtime::ThreadPool &pool);
// Seconds to start all threads on nothing and wait for them.
Rate probeForkJoin(runtime::ThreadPool &pool);

} // namespace braid::benchmark
