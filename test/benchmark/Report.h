// The measurements as tables that read well in a terminal and as Markdown.
// Input: the JSON that ModelBenchmark writes (times in seconds or as named, rates in tokens/s, GFLOP/s and GB/s). One
// section per model: a step against its floor, every op against its own, memory planned and measured, compilation.
#pragma once

#include "test/benchmark/Machine.h"

namespace braid::benchmark {

std::string toMarkdown(const Json &report);

} // namespace braid::benchmark
