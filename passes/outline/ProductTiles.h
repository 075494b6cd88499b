//===- ProductTiles.h - the tiles in which matrix products of a GPU are computed ----------------------------------===//
// Lengths in elements. The sides of a tile divide C, so columns need no limit; rows may have one.
#ifndef PASSES_OUTLINE_PRODUCTTILES_H
#define PASSES_OUTLINE_PRODUCTTILES_H

#include "passes/outline/KernelBuilder.h"

namespace braid {

inline constexpr int64_t kGrain = 16; ///< what the tensor cores take

inline constexpr int64_t kHopper = 132; ///< multiprocessors
/// Of a module: how many multiprocessors its GPU is thought to have, where programs of large products stay on them and share out all tiles.
inline constexpr llvm::StringLiteral kWorkersAttr = "braid.workers";
/// Of a module, how large products are computed (--products), a string: "clusters" (Hopper's) or "staggered"; else programs work apart.
inline constexpr llvm::StringLiteral kProductTeamAttr = "braid.product_team";
inline constexpr llvm::StringLiteral kClusters = "clusters", kStaggered = "staggered";
/// What a program of a large product does beside others: nothing; it has an operand in common with its neighbour, rows of A (left) or columns of B (right),
/// of which each brings half to both; or its own second warpgroup follows the first (tile::kStaggeredAttr).
enum class ProductTeam { apart, shareLeft, shareRight, staggered };
/// The parameter of a kernel that is how many programs there are, where any number does all of the work and gives the same bits: a device with fewer
/// multiprocessors starts fewer (runtime/cuda/CudaDevice.cpp).
inline constexpr llvm::StringLiteral kWorkers = "workers";

/// The most that a tile may be.
struct Sides {
  int64_t m, n, k;
};

/// The side of a tile along a dimension of `length` that it must divide: a multiple of the grain where there is one.
int64_t sideOf(int64_t length, int64_t most);
/// The same where rows past the end read 0 and are not written. Warpgroups multiply 64 rows each, or they do not take the tile: with them a side above
/// that is a multiple of it, and some of the tile stays empty.
int64_t guardedSideOf(int64_t length, int64_t most, bool warpgroups = false);
/// Columns, or rows, of a matrix.
struct Part {
  int64_t first, length, side;
};
/// A dimension in parts that their sides divide: whole tiles, one of a multiple of the grain, one below it. One part where tiles of a good
/// size divide it: the tensor cores take multiples of the grain, which others do not need, and of many tiles large ones.
llvm::SmallVector<Part, 3> partsOf(int64_t length, int64_t most, bool tensorCores);
/// For `count` products of m x k and k x n.
Sides sidesFor(bool tensorCores, int64_t m, int64_t n, int64_t k, int64_t count);
/// Programs that run at a time should read the same of A and B, so that both come from memory once: tiles of `rows` x `columns` are
/// walked in bands of so many rows, each column by column. The fewer of both are a band; where both are many, what divides the rows.
int64_t bandOf(int64_t rows, int64_t columns);
/// Into how many sums of equal length a long sum over k is cut, so that all multiprocessors have a part: a gradient of weights has few results of
/// many tokens each.
int64_t sumsAlongK(bool tensorCores, int64_t m, int64_t n, int64_t k);

/// Of a grid of `down` programs below each other, which come first, and `across` beside each other, whose tiles are brought in boxes.
ProductTeam teamOf(mlir::ModuleOp module, int64_t down, int64_t across);
/// The same where those beside each other come first; and of groups, whose tiles programs take in turn.
ProductTeam teamAcross(mlir::ModuleOp module, int64_t across);
ProductTeam teamInGroups(mlir::ModuleOp module, int64_t across);
/// What the name of a kernel says of that; and the kernel itself.
std::string teamSuffix(ProductTeam team);
void setTeam(mlir::ModuleOp module, llvm::StringRef kernel, ProductTeam team);

/// Into how many programs `rows` tiles below each other are shared out evenly, where `others` such columns of them stand side by side: a program that has
/// several copies the first operands of a tile while the one before it is stored. Of a GPU's multiprocessors as few as possible are idle at the end.
/// At most `most` tiles a program: few where some have longer sums than others.
int64_t shareRows(int64_t rows, int64_t others, int64_t most = 8);
/// The same where rows lie in `groups`, as they are found on the device: programs for a group, few of which may have most of the rows.
int64_t shareGroups(int64_t rows, int64_t groups, int64_t side, int64_t columns, bool alone);
/// Whether a multiprocessor has room for one program with tiles of C of this size at a time: nothing else runs while it waits.
bool runsAlone(bool tensorCores, int64_t m, int64_t n);
/// body(row) for so many tiles of `side` rows that are the turn of `part` of `parts`; for one, if the program does not run alone.
void eachTile(KernelBuilder &k, Var part, int64_t side, bool alone, llvm::function_ref<void(Var row)> body);
/// The same of rows [begin, end), however many.
void eachTile(KernelBuilder &k, Var begin, Var end, Var part, int64_t side, bool alone,
              llvm::function_ref<void(Var row)> body);

/// Of programs that stay: how many share out the tiles of `groups` groups with `rows` rows in all, `columns` beside each other. 0: they do not stay.
/// Even where pairs share an operand.
int64_t workersFor(mlir::ModuleOp module, int64_t rows, int64_t groups, int64_t side, int64_t columns);
/// body(group, row, end, column) for the tiles of `side` rows and `width` columns that are this program's turn, of all groups one after the other; `end`:
/// of the rows of the group. Tiles beside each other, which read the same rows of A, and those of a group, which read the same B, are computed at a time.
/// Who shares an operand: programs 2 i and 2 i + 1 take the tiles of a pair, beside each other (of an even number of columns) or below each other
/// (shareRight; where a group has an odd number of rows of tiles, one of the last pair multiplies what nobody stores).
void eachGroupTile(KernelBuilder &k, Var offsets, int64_t side, int64_t width, ProductTeam team,
                   llvm::function_ref<void(Var group, Var row, Var end, Var column)> body);

/// Tiles of C[g] = A_g^T B_g, A [rows, m], B [rows, n], whose rows of group g are [offsets[g], offsets[g + 1]): body(place, sum) for those of a program
/// (column, part, group), from start(place) on.
void eachWeightTile(KernelBuilder &k, const Sides &sides, bool alone, Var a, Var b, Var offsets,
                    llvm::function_ref<Var(Indices at)> start,
                    llvm::function_ref<Var(Var left, Var right, Var sum)> multiply,
                    llvm::function_ref<void(Indices at, Var sum)> body);

} // namespace braid

#endif // PASSES_OUTLINE_PRODUCTTILES_H
