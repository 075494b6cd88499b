// Generation: prefill, decode behind a short prompt with a profile, decode behind 1 K to 128 K tokens.
#pragma once

#include "test/benchmark/Machine.h"

#include "runtime/Session.h"
#include "test/benchmark/EntryProfile.h"

namespace braid::benchmark {

struct DecodeOptions {
  int decoded = 128;
  int64_t positions = 131072; // the last
};

// Describes a profile, as for training: (profile, median seconds, fastest seconds, bytes per second that floors are
// made of).
using Describe = std::function<Expected<Json>(const EntryProfile &, double, double, double)>;

// null for programs without decode_1.
Expected<Json> measureGeneration(const DecodeOptions &options, runtime::Session &session, const Describe &describe);

} // namespace braid::benchmark
