//===- PassAttributes.h - attributes that passes hand to each other -----------------------------------------------===//
#ifndef DIALECTS_BRAID_PASSATTRIBUTES_H
#define DIALECTS_BRAID_PASSATTRIBUTES_H

#include "llvm/ADT/StringRef.h"

namespace braid::attrs {

/// Of an op: {axis, coordinate}, how its tokens are divided (passes/shard/Sequence.h). Of a module: rates and times of a
/// rank (passes/analysis/Machine.h).
inline constexpr llvm::StringLiteral sequence = "braid.sequence", machine = "braid.machine";

} // namespace braid::attrs

#endif // DIALECTS_BRAID_PASSATTRIBUTES_H
