//===- LowerKernels.h - the kernel passes as functions, for compilers that run them on many threads --------------===//
#ifndef PASSES_LOWER_LOWERKERNELS_H
#define PASSES_LOWER_LOWERKERNELS_H

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

namespace braid {

/// What a block of threads may use.
struct BlockLimits {
  int64_t sharedBytes = 0; ///< shared memory, all of it allocated at launch
  bool wgmma = false; ///< four warps multiply from shared memory by themselves (Hopper)
  bool operator==(const BlockLimits &) const = default;
};

/// How the error begins that says that the tiles of a kernel do not fit.
inline constexpr llvm::StringLiteral kTilesDoNotFit = "the tiles of @";

/// What braid-tile-to-loops does. `vectorBytes`: 64 (AVX-512), 32 (AVX2) or 16; `bf16Dots`: AVX512-BF16.
llvm::LogicalResult lowerTilesToLoops(mlir::ModuleOp module, int64_t vectorBytes, bool bf16Dots);
/// What braid-tile-to-threads does.
llvm::LogicalResult lowerTilesToThreads(mlir::ModuleOp module, const BlockLimits &limits);
/// What braid-emulate-threads does.
llvm::LogicalResult emulateThreads(mlir::ModuleOp module);
/// What braid-expand-math does.
llvm::LogicalResult expandMath(mlir::ModuleOp module, bool hasScale, bool hasBf16);
/// An exponential or quotient of f32 that may be approximate, which a GPU has instructions for.
bool isApproximate(mlir::Operation *op);
/// A function of math that a GPU has no instructions for; what expandMath() leaves of them is called in the device's library.
bool isOfDeviceLibrary(mlir::Operation *op);
/// Whether a kernel computes any of those (as a polynomial of expandMath() too) or an exact quotient, which the assembler has a function for.
bool callsFunctions(mlir::Operation *kernel);

/// Of a function that braid-tile-to-threads made: threads of a block, bytes of shared memory, and of scratch in global
/// memory, whose address kScratchFunction gives.
inline constexpr llvm::StringLiteral kThreadsAttr = "threads.block", kSharedBytesAttr = "threads.shared_bytes",
                                     kScratchBytesAttr = "threads.scratch_bytes",
                                     kTogetherAttr = "threads.blocks_together", ///< on a multiprocessor, by registers
    kBlockClusterAttr = "threads.cluster", ///< blocks that run at a time: clusterOf()
    kScratchFunction = "braid_threads_scratch";
/// How bulk copies of a kernel see a buffer, as the schema's TensorMap has it: a negative number, -1 - i, is the value of parameter i. No
/// strides: row-major.
struct TensorMap {
  int64_t param;
  llvm::SmallVector<int64_t> sizes, strides, box;
  bool operator==(const TensorMap &) const = default;
};
/// Of a function that braid-tile-to-threads made: its maps, which lie behind its slots.
inline constexpr llvm::StringLiteral kMapsAttr = "threads.maps";
inline constexpr int64_t kMapBytes = 128;
/// `slots`: with those of the grid and of scratch.
void setTensorMaps(mlir::Operation *function, llvm::ArrayRef<TensorMap> maps, int64_t slots);
llvm::SmallVector<TensorMap> tensorMapsOf(mlir::Operation *function);
/// Bytes from the first slot of a function with maps to the first of them.
int64_t mapsOffsetOf(mlir::Operation *function);
inline int64_t mapsOffset(int64_t slots) { return static_cast<int64_t>(llvm::alignTo(slots * 8, kMapBytes)); }
/// Blocks of a function that braid-tile-to-threads made which run at a time and see each other's shared memory.
int64_t clusterOf(mlir::Operation *function);
/// Of the inline assembly for bulk copies, which of these it is; operands: addresses of shared memory as i64, i32 numbers.
///   begin B count: barrier B waits for so many arrivals;  begun: all of them can be seen, by the cluster too;  arrive B;
///   arrive_in B rank: at the barrier that lies where B does in this block of the cluster;  cluster: all of its threads meet;
///   copied B: an arrival when what this thread copies by cp.async is there;
///   expect B bytes: an arrival, and so many bytes to come;  await B parity: the phases of that parity are over;
///   copy target map B coordinates, innermost first;  multicast: the same to all blocks of the cluster, and an end of bytes at the barrier of each;
///   store_bf16, store_f32 source map coordinates: the other way; add_f32: added to what is there;  commit: those of this thread so far are a group;
///   read: shared memory of all groups but the last so many, which its text ends with, may be written again
inline constexpr llvm::StringLiteral kBulkAttr = "threads.bulk";
/// How the inline assembly of "read" begins.
inline constexpr llvm::StringLiteral kAwaitRead = "cp.async.bulk.wait_group.read ";
/// The inline assembly that transposes 8 x 8 elements of bf16, two neighbours in each lane.
inline constexpr llvm::StringLiteral kTransposeBlock = "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;";
/// How the inline assembly begins that waits for products by wgmma; behind it, how many of the last may go on. The sums pass through it.
inline constexpr llvm::StringLiteral kAwaitProducts = "wgmma.wait_group.sync.aligned ";
/// A number that the optimizer knows nothing of: what is computed of it is not computed in front of a loop, to be kept in registers through it.
inline constexpr llvm::StringLiteral kForget = "mov.b32 $0, $1;";
/// Two f32, rounded to bf16, as one register, whose halves nobody takes apart to round each by itself.
inline constexpr llvm::StringLiteral kRoundPair = "cvt.rn.bf16x2.f32 $0, $2, $1;";
/// How the inline assembly begins that gives registers to sums of which the first product reads none.
inline constexpr llvm::StringLiteral kBeginSums = "mov.b32 $0, 0;";
/// Of the inline assembly that multiplies 64 rows in registers by wgmma (sums, four registers of a, b): whether b is MN-major.
inline constexpr llvm::StringLiteral kGroupProductAttr = "threads.wgmma_rows";
/// The flat memref<?xi8> over the memory at `pointer`, in the form that conversion to LLVM gives it.
mlir::Value flatMemory(mlir::OpBuilder &b, mlir::Location loc, mlir::Value pointer, mlir::MemRefType type);

} // namespace braid

#endif // PASSES_LOWER_LOWERKERNELS_H
