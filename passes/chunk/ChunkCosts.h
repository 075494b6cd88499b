//===- ChunkCosts.h - what a scan costs in chunks of a size -------------------------------------------------------===//
// The scan of one chunk is tiled, outlined and lowered like any other, in a module of its own, and its kernels are
// counted (passes/lower/LoopWork.h): products, triangular solves, exponentials, turned tiles, every pass over a tile;
// and the bytes of tokens, states and transitions that its launches read and write.
#ifndef PASSES_CHUNK_CHUNKCOSTS_H
#define PASSES_CHUNK_CHUNKCOSTS_H

#include "mlir/IR/Operation.h"
#include "llvm/ADT/MapVector.h"
#include <map>
#include <optional>
#include <string>

namespace braid {

/// What decides about kernels: those of a CPU, or of a GPU where `sharedBytes` is what a block has.
struct KernelTarget {
  int64_t vectorBytes = 64;
  bool bf16Dots = false;
  int64_t sharedBytes = 0;

  /// "a CPU with vectors of 64 bytes", "a GPU with 166912 bytes of shared memory in a block": equal for targets whose
  /// sizes are chosen alike.
  std::string describe() const;
};

/// How a scan is cut: tokens of a chunk, and rows of the tiles that scores of strong decays per channel are made in.
struct ChunkSizes {
  int64_t tokens, scoreRows;
  bool operator<(const ChunkSizes &other) const {
    return std::pair(tokens, scoreRows) < std::pair(other.tokens, other.scoreRows);
  }
};

/// Cycles of one core, or of one multiprocessor, where the decays of a chunk are mild and where they are strong: the same
/// but for decays per channel.
struct ChunkCycles {
  double mild = 0, strong = 0;
};

/// For one chunk and one head of scans, gradients and segments that stand in one function; nothing where the tiles of one
/// of their kernels fit no block's shared memory (they would lie in scratch) or no kernel. `failure`: the first message,
/// where it is something else that went wrong.
std::optional<ChunkCycles> chunkCycles(llvm::ArrayRef<mlir::Operation *> ops, ChunkSizes sizes,
                                       const KernelTarget &target, std::string &failure);

/// The cheapest of `sizes`, from the shortest on, as far as costs (infinite: none) fall by 1 % or more: whole states weigh on short chunks,
/// pairs of tokens on long ones. What does not fit fits no longer either; a size that only has no kernels is passed over.
/// The first, where none has a cost. Asks for no cost that it does not need.
size_t cheapestSize(llvm::ArrayRef<int64_t> sizes, llvm::function_ref<double(int64_t)> cost,
                    llvm::function_ref<bool(int64_t)> hasNoKernels);

/// Scans of one class and shape, and their gradients: they are cut alike, so that states of one serve the other.
class ChunkCosts {
public:
  /// One op of each kind. In one function they share what they have in common, chunk by chunk; elsewhere it is made
  /// again.
  ChunkCosts(llvm::ArrayRef<mlir::Operation *> kinds, const KernelTarget &target) : target(target) {
    for (mlir::Operation *op : kinds)
      ops[op->getParentOp()].push_back(op);
  }
  /// Cycles of a chunk; infinite where it does not fit, or has no kernels.
  ChunkCycles ofChunk(ChunkSizes sizes);
  /// Why chunks of this size have no kernels; empty where they have, or only do not fit.
  llvm::StringRef failure(int64_t size) const {
    auto it = failures.find(size);
    return it == failures.end() ? llvm::StringRef() : llvm::StringRef(it->second);
  }
  struct Choice {
    int64_t size = 0;
    std::map<int64_t, double> perToken = {}; ///< of the sizes that were compared: cycles of a token and head
    int64_t scoreRows = 0; ///< 0: not chosen
    std::map<int64_t, double> strongPerToken = {}; ///< by the rows of score tiles, where decays are strong
  };
  /// For rows of `tokens`: the cheapest of 16, 32, 64, 128, as far as the costs fall, and the whole row. Rows of 16 and
  /// less have no choice.
  Choice choose(int64_t tokens);
  /// The cheapest score tiles, of 8, 16 or 32 rows, of chunks of choice.size tokens; of those within 2 % the largest.
  void chooseScoreRows(Choice &choice);

  static constexpr int64_t least = 16; ///< rows of the score tiles, hence the granularity of chunks
  static constexpr int64_t most = 128; ///< a chunk's scores are values of one kernel

private:
  llvm::MapVector<mlir::Operation *, llvm::SmallVector<mlir::Operation *>> ops; ///< by the function they stand in
  KernelTarget target;
  std::map<ChunkSizes, ChunkCycles> known;
  std::map<int64_t, std::string> failures;
};

} // namespace braid

#endif // PASSES_CHUNK_CHUNKCOSTS_H
