#include "tools/braid-run/ProgramSummary.h"

#include "runtime/comm/Collectives.h"
#include "runtime/io/Shape.h"
#include "runtime/schema/Program_generated.h"
#include "runtime/train/CheckpointIndex.h"

#include <algorithm>

namespace braid::run {

using namespace braid::runtime;

namespace {

using Commands = flatbuffers::Vector<flatbuffers::Offset<schema::Command>>;

// What the one of `ranks` that sends most sends.
uint64_t mostSent(const CollectiveCall &call, uint32_t ranks) {
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < ranks; ++rank)
    most = std::max(most, sentBytes(call, static_cast<int>(rank), static_cast<int>(ranks)));
  return most;
}

void count(const Program &program, const Commands &commands, uint64_t times, EntrySummary &summary) {
  for (const schema::Command *command : commands) {
    if (const schema::Repeat *repeat = command->body_as_Repeat()) {
      count(program, *repeat->commands(), times * static_cast<uint64_t>(repeat->count()), summary);
      continue;
    }
    summary.commands += times;
    if (const schema::Work *work = command->work()) {
      summary.flops += times * work->flops();
      summary.bytes += times * work->bytes();
    }
    switch (command->body_type()) {
    case schema::Body::Launch:
      summary.launches += times;
      summary.kernels[program.kernels()[command->body_as_Launch()->kernel()]] += times;
      break;
    case schema::Body::Gemm: summary.libraryCalls["gemm"] += times; break;
    case schema::Body::GroupedGemm: summary.libraryCalls["grouped_gemm"] += times; break;
    case schema::Body::Collective: {
      const schema::Collective &collective = *command->body_as_Collective();
      CollectiveCall call = callOf(collective);
      const char *kind = toString(call.kind);
      summary.libraryCalls[kind] += times;
      Communication &communication = summary.communication[{collective.axis()->str(), kind}];
      communication.count += times;
      communication.sentBytes +=
          times *
          mostSent(call, static_cast<uint32_t>(program.mesh().size(collective.axis()->string_view()).value_or(1)));
      break;
    }
    case schema::Body::Copy: summary.others["copy"] += times; break;
    case schema::Body::Fill: summary.others["fill"] += times; break;
    case schema::Body::Record: summary.others["record"] += times; break;
    case schema::Body::Wait: summary.others["wait"] += times; break;
    case schema::Body::Repeat:
    case schema::Body::NONE: break;
    }
  }
}

} // namespace

EntrySummary summarize(const Program &program, const EntryInfo &entry) {
  EntrySummary summary;
  count(program, *program.file().entries()->Get(entry.index)->commands(), 1, summary);
  return summary;
}

Expected<uint64_t> countParameters(const Program &program) {
  BRAID_ASSIGN(std::vector<LogicalTensor> tensors, modelTensors(program, /*moments=*/false));
  uint64_t total = 0;
  for (const LogicalTensor &tensor : tensors)
    total += static_cast<uint64_t>(elementCount(tensor.shape).value_or(0));
  return total;
}

} // namespace braid::run
