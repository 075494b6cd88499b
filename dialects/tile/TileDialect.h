//===- TileDialect.h - the kernel dialect: see TileDialect.td -----------------------------------------------------===//
#ifndef DIALECTS_TILE_TILEDIALECT_H
#define DIALECTS_TILE_TILEDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "dialects/tile/TileDialect.h.inc"
#include "dialects/tile/TileEnums.h.inc"
#define GET_OP_CLASSES
#include "dialects/tile/TileOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/tile/TileLaunchOps.h.inc"

namespace braid::tile {
/// Attributes of a kernel function and of its arguments. Axes, which a buffer may have, say what its dimensions are to a
/// person: row, token, chunk, segment, head, key, value, feature. In a table of chunks, [row, chunk, token], chunk n
/// holds the tokens from element 0 up to element 1.
inline constexpr llvm::StringLiteral kKernelAttr = "tile.kernel", kGridAttr = "tile.grid", kNameAttr = "tile.name",
                                     kAxesAttr = "tile.axes";
/// Of a kernel: every product and every sum is rounded for itself, none of them together (fma).
inline constexpr llvm::StringLiteral kRoundsEachAttr = "tile.rounds_each";
/// Of a kernel, once its launches are commands: pairs of parameters, [new_state, state], which are one buffer in some of them.
/// All others lie apart.
inline constexpr llvm::StringLiteral kInPlaceAttr = "tile.in_place";
/// Of a kernel: the operands of its products are at least as large as the tiles of them that it loads, and they and all of their rows begin on 16
/// bytes: they can be copied in boxes. So can its results, unless the second attribute says that they do not begin so.
inline constexpr llvm::StringLiteral kBoxesAttr = "tile.boxes", kResultsByRowsAttr = "tile.results_by_rows";
/// Of a kernel whose programs 2 i and 2 i + 1 multiply by the same tiles of one operand, in as many steps, whose places along k and limits are the same, too:
/// which operand of the dot that is, kLeft or kRight. The two may bring it once for both.
inline constexpr llvm::StringLiteral kSharedOperandAttr = "tile.shared_operand", kLeft = "left", kRight = "right";
/// Of a kernel in boxes: of its two warpgroups the second one begins a tile some steps behind the first (passes/lower/ThreadBulkCopies.cpp).
inline constexpr llvm::StringLiteral kStaggeredAttr = "tile.staggered";
/// Of an scf.for: how far it walks where it is reached, in the mean, since its bounds come from what is in memory: inside a loop over n rows
/// it walks n times as far over all of them. It changes no result.
inline constexpr llvm::StringLiteral kMeanWalkAttr = "tile.mean_walk";
/// The parameter of a kernel that reads, as the last of offsets [experts + 1] i32, where the rows end that it shall compute.
inline constexpr llvm::StringLiteral kRowsEnd = "ends";
} // namespace braid::tile

#endif // DIALECTS_TILE_TILEDIALECT_H
