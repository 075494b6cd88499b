// CopiedRanks: one rank of a mesh by itself. Its peers are taken to be like it: what a collective would bring from them is
// copied from this rank's own buffers, and no message is sent. For measuring what a rank computes when its layers are cut
// into slices, on one device; never for training, for what it computes belongs to no batch.
#pragma once

#include "runtime/comm/Processes.h"

#include <memory>

namespace braid::benchmark {

// Rank 0 of `size` ranks that share nothing: it has all cores.
//   all_reduce, reduce_scatter   the others add nothing: this rank's own part
//   all_gather                   everyone brings what this rank does
//   all_to_all                   every peer sends what it gets, as many rows
//   shift                        the neighbour sends what this rank sends; at an end of the axis zeros
std::unique_ptr<runtime::Processes> copiedRanks(int size);

} // namespace braid::benchmark
