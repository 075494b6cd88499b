//===- ProductTiles.cpp - the tiles in which matrix products of a GPU are computed --------------------------------===//
#include "passes/outline/ProductTiles.h"

#include "passes/outline/OutlineContext.h"

using namespace mlir;

namespace braid {

static constexpr int64_t kMostBand = 16; // tiles of rows
static constexpr int64_t kMultiprocessors = 128; // what a product should fill: A100s have 108, H100s and H200s 132
static constexpr int64_t kLeastSum = 1024; // products of a part of a long sum
static constexpr Sides kTensorSides[] = {{128, 256, 64}, {128, 128, 64}, {64, 128, 64}, {64, 64, 64}, {64, 32, 64}};
static constexpr Sides kNarrowSides = {64, kGrain, 64}; // of results that have no more columns, or are few

int64_t sideOf(int64_t length, int64_t most) {
  for (int64_t side = most; side >= kGrain; side -= kGrain)
    if (length % side == 0)
      return side;
  return divisorUpTo(length, most);
}

int64_t guardedSideOf(int64_t length, int64_t most, bool warpgroups) {
  constexpr int64_t ofWarpgroup = 64;
  int64_t grain = warpgroups && length > ofWarpgroup ? ofWarpgroup : kGrain;
  return std::min(most, static_cast<int64_t>(llvm::alignTo(std::max<int64_t>(length, 1), grain)));
}

llvm::SmallVector<Part, 3> partsOf(int64_t length, int64_t most, bool tensorCores) {
  int64_t side = sideOf(length, most);
  bool small = tensorCores && 4 * side < 3 * most && length >= 16 * most;
  if (length <= kGrain || (length % kGrain == 0 && !small) || (!tensorCores && side >= kGrain))
    return {{0, length, side}};
  llvm::SmallVector<Part, 3> parts;
  int64_t first = 0;
  for (int64_t unit : {most, kGrain, int64_t(1)})
    if (int64_t part = (length - first) / unit * unit) {
      parts.push_back({first, part, unit == most ? most : part});
      first += part;
    }
  return parts;
}

int64_t bandOf(int64_t rows, int64_t columns) {
  if (std::min(rows, columns) <= 2 * kMostBand)
    return rows <= columns ? rows : 1;
  return divisorUpTo(rows, kMostBand);
}

/// Whether C is worth tiles of this size.
static bool fills(const Sides &sides, int64_t m, int64_t n) {
  return (m > sides.m / 2 || sides.m == 64) && n > sides.n / 2;
}

/// Tensor cores take what they multiply from shared memory, and that from a cache that all of them share: of the operands of a 128 x 256 tile each
/// byte is multiplied 85 times, of a 64 x 64 tile 32 times. Smaller tiles where the larger ones would leave multiprocessors without any:
/// products of few rows read their weights once, and want many that read.
/// Elsewhere the tile that is added to lies in shared memory itself.
Sides sidesFor(bool tensorCores, int64_t m, int64_t n, int64_t k, int64_t count) {
  // Without asynchronous copies what is under way is one step of k: long ones where a program has few results.
  if (!tensorCores && m <= kGrain)
    return {kGrain, count * ceilDiv(n, 64) >= kMultiprocessors ? 64 : kGrain, 256};
  if (!tensorCores && k >= kLeastSum && count * ceilDiv(m, 64) * ceilDiv(n, 64) < kMultiprocessors / 2)
    return {kGrain, kGrain, 256};
  if (!tensorCores)
    return {64, 64, 32};
  for (Sides sides : kTensorSides)
    if (fills(sides, m, n) && count * ceilDiv(m, sides.m) * ceilDiv(n, sides.n) >= kMultiprocessors)
      return sides;
  return kNarrowSides;
}

/// `share` where blocks share an operand, as they do if `pairs`.
static ProductTeam teamOf(ModuleOp module, bool pairs, ProductTeam share) {
  auto products = module->getAttrOfType<StringAttr>(kProductTeamAttr);
  if (products && products.getValue() == kStaggered)
    return ProductTeam::staggered;
  return products && products.getValue() == kClusters && pairs ? share : ProductTeam::apart;
}

ProductTeam teamAcross(ModuleOp module, int64_t across) {
  return teamOf(module, across % 2 == 0, ProductTeam::shareLeft);
}

ProductTeam teamInGroups(ModuleOp module, int64_t across) {
  return teamOf(module, /*pairs=*/true, across % 2 == 0 ? ProductTeam::shareLeft : ProductTeam::shareRight);
}

ProductTeam teamOf(ModuleOp module, int64_t down, int64_t across) {
  return down == 1 ? teamAcross(module, across) : teamOf(module, down % 2 == 0, ProductTeam::shareRight);
}

std::string teamSuffix(ProductTeam team) {
  switch (team) {
  case ProductTeam::apart: return "";
  case ProductTeam::shareLeft: return "_shared_left";
  case ProductTeam::shareRight: return "_shared_right";
  case ProductTeam::staggered: return "_staggered";
  }
  llvm_unreachable("no such team");
}

void setTeam(ModuleOp module, StringRef kernel, ProductTeam team) {
  Operation *function = module.lookupSymbol(kernel);
  MLIRContext *context = module.getContext();
  if (team == ProductTeam::staggered)
    function->setAttr(tile::kStaggeredAttr, UnitAttr::get(context));
  else if (team != ProductTeam::apart)
    function->setAttr(tile::kSharedOperandAttr,
                      StringAttr::get(context, team == ProductTeam::shareLeft ? tile::kLeft : tile::kRight));
}

int64_t sumsAlongK(bool tensorCores, int64_t m, int64_t n, int64_t k) {
  Sides sides{64, 64, 32};
  if (tensorCores) {
    const Sides *found = llvm::find_if(kTensorSides, [&](const Sides &sides) { return fills(sides, m, n); });
    sides = found == std::end(kTensorSides) ? kNarrowSides : *found;
  }
  int64_t tiles = ceilDiv(m, sides.m) * ceilDiv(n, sides.n);
  return std::max<int64_t>(1, std::min(kMultiprocessors / tiles, k / kLeastSum));
}

bool runsAlone(bool tensorCores, int64_t m, int64_t n) { return tensorCores && m * n >= 128 * 128; }

int64_t shareRows(int64_t rows, int64_t others, int64_t most) {
  auto time = [&](int64_t tiles) { return ceilDiv(rows / tiles * others, kHopper) * tiles; };
  int64_t best = 1;
  for (int64_t tiles = 2; tiles <= most; ++tiles)
    if (rows % tiles == 0 && time(tiles) <= time(best))
      best = tiles;
  return rows / best;
}

int64_t shareGroups(int64_t rows, int64_t groups, int64_t side, int64_t columns, bool alone) {
  constexpr int64_t mostParts = 16, tiles = 4; // of a program, were all groups equal
  int64_t equal = ceilDiv(rows, groups), enough = ceilDiv(2 * kHopper, columns * groups);
  int64_t parts = std::clamp<int64_t>(ceilDiv(2 * equal <= side ? 2 * equal : rows, side), 1, mostParts);
  return alone ? std::min(parts, std::max(enough, ceilDiv(equal, tiles * side))) : parts;
}

void eachTile(KernelBuilder &k, Var part, int64_t side, bool alone, llvm::function_ref<void(Var row)> body) {
  if (!alone)
    return body(part * side);
  Var parts = k.index("parts");
  k.loop(0, k.index("tiles"), 1, [&](Var t) { body((part + t * parts) * side); });
}

void eachTile(KernelBuilder &k, Var begin, Var end, Var part, int64_t side, bool alone,
              llvm::function_ref<void(Var row)> body) {
  Var first = begin + part * side, further = k.index("parts") * side;
  if (!alone)
    return k.loop(first, end, further, body);
  // Counted in 32 bits: a division of 64 takes longer than a memory access.
  Var rows = cast(max(end - first, 0.0), k.i32()), each = cast(further, k.i32());
  Var tiles = (rows + each - 1.0) / each;
  k.loop(0, cast(tiles, k.builder.getIndexType()), 1, [&](Var t) { body(first + t * further); });
}

int64_t workersFor(ModuleOp module, int64_t rows, int64_t groups, int64_t side, int64_t columns) {
  auto multiprocessors = module->getAttrOfType<IntegerAttr>(kWorkersAttr);
  if (!multiprocessors)
    return 0;
  int64_t most = rows / side + std::min(groups, rows); // with the parts of tiles in which groups end
  int64_t workers = std::clamp<int64_t>(most * columns, 1, multiprocessors.getInt());
  return teamInGroups(module, columns) == ProductTeam::apart ? workers : std::max<int64_t>(workers / 2 * 2, 2);
}

/// The tile that is a program's turn in a group follows from that of the group before, so nobody searches for it, and all programs have as many tiles as
/// the others, or one less, whatever the groups. Nobody divides for its row and column either: the next one is `down` rows and `aside` columns further.
void eachGroupTile(KernelBuilder &k, Var offsets, int64_t side, int64_t width, ProductTeam team,
                   llvm::function_ref<void(Var group, Var row, Var end, Var column)> body) {
  // All of 32 bits, of which threads have registers enough.
  auto narrow = [&](Var v) { return cast(v, k.i32()); };
  auto wide = [&](Var v) { return cast(v, k.builder.getIndexType()); };
  Var workers = narrow(k.index(kWorkers)), across = narrow(k.index("across")), groups = narrow(k.size(offsets, 0) - 1);
  Var zero = k.constant(k.i32(), 0), one = zero.like(1), program = narrow(k.program(0)), first = program;
  int64_t pairWidth = width, pairSide = side;
  Var second; // 0 or 1: which of a pair this program is
  bool beside = team == ProductTeam::shareLeft, below = team == ProductTeam::shareRight;
  if (beside || below) {
    workers = workers / 2.0;
    first = program / 2.0;
    second = program - first * 2.0;
    (beside ? pairWidth : pairSide) *= 2;
  }
  if (beside)
    across = across / 2.0;
  Var down = workers / across, aside = workers - down * across, row = first / across;
  Vars begin = {row, first - row * across, k.at(offsets, {0})};
  k.loop(zero, groups, one, begin, [&](Var group, ArrayRef<Var> carried) {
    // Of an end that may be negative, as far as anybody knows, threads would keep both halves, and a second one for limits.
    Var begin = carried[2], end = max(k.at(offsets, {wide(group) + 1}), 0.0);
    Var rows = (max(end - begin, 0.0) + static_cast<double>(pairSide - 1)) / static_cast<double>(pairSide);
    Var number = carried[0] * across + carried[1];
    Vars next = k.loop(number, rows * across, workers, {carried[0], carried[1]}, [&](Var, ArrayRef<Var> place) {
      Var row = begin + place[0] * static_cast<double>(pairSide), column = place[1] * static_cast<double>(pairWidth);
      if (beside)
        column = column + second * static_cast<double>(width);
      if (below)
        row = row + second * static_cast<double>(side);
      body(wide(group), wide(row), wide(end), wide(column));
      Var next = place[1] + aside, wraps = ge(next, across);
      return Vars{place[0] + down + select(wraps, one, zero), select(wraps, next - across, next)};
    });
    return Vars{next[0] - rows, next[1], end};
  });
}

void eachWeightTile(KernelBuilder &k, const Sides &sides, bool alone, Var a, Var b, Var offsets,
                    llvm::function_ref<Var(Indices at)> start,
                    llvm::function_ref<Var(Var left, Var right, Var sum)> multiply,
                    llvm::function_ref<void(Indices at, Var sum)> body) {
  Var column = k.program(0) * sides.n, group = k.program(2);
  auto boundary = [&](Var at) { return cast(k.at(offsets, {at}), k.builder.getIndexType()); };
  AccessOptions inside{.limit = boundary(group + 1)};
  Var first = boundary(group);
  eachTile(k, k.program(1), sides.m, alone, [&](Var row) {
    const Index place[] = {group, row, column};
    Vars sum = k.loop(first, inside.limit, sides.k, {start(place)}, [&](Var at, llvm::ArrayRef<Var> sum) {
      return Vars{multiply(k.load(a, {at, row}, {sides.k, sides.m}, inside),
                           k.load(b, {at, column}, {sides.k, sides.n}, inside), sum[0])};
    });
    body(place, sum[0]);
  });
}

} // namespace braid
