// Trace: an optional report of every executed command. Session::setTrace(nullptr), the default, costs nothing.
#pragma once

#include <cstdint>
#include <span>

namespace braid::runtime {

struct TraceEvent {
  const char *entry;   // "train_step"
  const char *command; // the command's name in the program, or its kernel or kind
  const char *kind;    // launch, gemm, grouped_gemm, collective, copy, fill, wait
  uint32_t stream;     // index into Program::streams()
  int64_t beginNs, endNs;              // steady clock
  std::span<const int64_t> iterations; // of the enclosing repeats, outermost first; valid during the call
  const char *op; // what the model asks for: lsm.chunk_output, linear; empty: nothing (copies, events)
  int32_t layer; // absolute index; -1: of no layer
  int32_t microBatch; // of a pipeline; -1: of none, or of several
  uint64_t sentBytes; // of a collective: bytes of data that this rank handed to others
};

// Called from the thread that executed the command: the caller of run() for stream 0, a progress thread for the others.
class TraceSink {
public:
  virtual ~TraceSink() = default;
  virtual void command(const TraceEvent &event) = 0;
};

} // namespace braid::runtime
