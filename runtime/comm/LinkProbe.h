// LinkProbe: what a link costs, asked of the communicator that a run will use: its library, its progress, both
// directions at once. What messages take of a core is what a computation on it loses while they travel, whoever they are
// charged to: the library, the kernel on behalf of somebody else, caches that they fill.
#pragma once

#include "runtime/Communicator.h"

#include <chrono>

namespace braid::runtime {

// A link of a cluster file (models/clusters/README.md), in bytes, seconds, and seconds of the core that computes.
struct LinkCosts {
  double bandwidth = 0; // that a rank sends to all others, while as many come
  double latency = 0; // of one of the log2(ranks) steps of an exchange
  double perMessage = 0, perByte = 0; // sent or received
};

// Collective, at least two ranks; takes about `time`. Exchanges of nothing and of 1 MiB with all peers together,
// each by itself and beside a computation.
Expected<LinkCosts> probeLink(Communicator &link, std::chrono::milliseconds time);

} // namespace braid::runtime
