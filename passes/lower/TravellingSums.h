//===- TravellingSums.h - collectives whose results nobody needs yet ----------------------------------------------===//
// The sums of a layer's gradients are awaited where the layer ends, but only the optimizer reads them. They may travel
// on, into the next iteration of a repeat too, as long as what they send stays where it is: that costs memory, so only
// so many bytes may be under way at a time.
#ifndef PASSES_LOWER_TRAVELLINGSUMS_H
#define PASSES_LOWER_TRAVELLINGSUMS_H

#include "passes/analysis/Buffers.h"

namespace braid {

/// Keeps what such collectives of the entry send until `bytes` more than that are under way; negative: as many as the
/// layer (cmd.layers) that starts most. Before buffers are merged.
void keepTravelling(mlir::func::FuncOp entry, const Timeline &timeline, Buffers &buffers, int64_t bytes);

} // namespace braid

#endif // PASSES_LOWER_TRAVELLINGSUMS_H
