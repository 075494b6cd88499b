// What `braid-run info` tells about a program beyond its tables: what each entry executes.
#pragma once

#include "runtime/Program.h"

#include <map>

namespace braid::run {

// The collectives of one kind over one axis, or product of axes.
struct Communication {
  uint64_t count = 0;
  // By the rank that sends most. Of an all_to_all with counts at most so many; headers and the like come on top.
  uint64_t sentBytes = 0;
};

struct EntrySummary {
  uint64_t commands = 0; // executed, repeats multiplied
  uint64_t launches = 0;
  uint64_t flops = 0, bytes = 0; // what the model's ops must do at least (Program.fbs, Work)
  std::map<std::string, uint64_t> kernels;      // launches of each kernel
  std::map<std::string, uint64_t> libraryCalls; // gemm, grouped_gemm, all_reduce, ...
  std::map<std::string, uint64_t> others;       // copy, fill, record, wait
  std::map<std::pair<std::string, std::string>, Communication> communication; // by axis and kind
};

EntrySummary summarize(const runtime::Program &program, const runtime::EntryInfo &entry);

// Elements of all parameters, all layers and all ranks' shards.
runtime::Expected<uint64_t> countParameters(const runtime::Program &program);

} // namespace braid::run
