//===- StageCosts.h - what layers cost, before they are shared out among stages -----------------------------------===//
#ifndef COMPILER_STAGECOSTS_H
#define COMPILER_STAGECOSTS_H

#include "frontend/ModelBuilder.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Mesh.h"

namespace braid {

/// Seconds on a rank of such a machine and mesh. Only how they compare matters: exchanges between ranks are left out.
StageCosts stageCosts(const Machine &machine, const Mesh &mesh);

} // namespace braid

#endif // COMPILER_STAGECOSTS_H
