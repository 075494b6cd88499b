//===- LsmScores.cpp - scores of pairs of tokens under a decay per channel ----------------------------------------===//
//
// R: the cumulative decay before a row I starts at. Columns J before it are products of decayed rows, both exponents
// <= 0 (lsm-family 4.2):   S_IJ = (L_I exp(c_I - R)) (R_J exp(R - c_J))^T
// for every tile of N rows (16, or as braid-decide-chunk-size chose) and all columns before it, then for the second half
// of a tile's rows and its first N / 2 columns. exp(R - c_J) goes from tile to tile by a factor exp(R' - R). Blocks of
// N / 2 x N / 2 on the diagonal walk their columns from right to left: exp(c_i - c_j) = exp(c_i - c_j+1) exp(g_j+1), so that no pair of tokens takes an exponential.
//
// Where no channel decays by more than exp(-32) over the chunk, all of that is one product:
//   S = (L exp(c)) (R exp(-c))^T
// Every exponent is made of the same sum c, so that its rounding cancels for rows near each other, and exp(-c) is the
// reciprocal of exp(c): one exponential a token and channel. L exp(c) is what the queries read the state with, and
// R exp(-c), times exp(c_C), what the keys write it with. Which of the two it is, every chunk decides by its own decays,
// unless the gates prove it (passes/analysis/DecayRange.h). Where that is settled and no shares are wanted, in which it would
// have to cancel, the diagonal is part of the product: exp(c_i) exp(-c_i) is 1.
//
// A centred table (VH) takes exponents from the middle of what each channel decays by, r = c_C / 2:
//   S = (L exp(c - r)) (R exp(r - c))^T
// so that twice as much is mild: in bf16, whose exponents are those of f32, exp(-144).
//
// Several lefts and rights (class D: q and a, k and b) share the exponentials.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/analysis/DecayRange.h"
#include "passes/outline/LsmChunk.h"

using namespace mlir;

namespace braid {

Var DecayTable::atEntry(Var x) const { return entering ? x * expand(entering, 0, c.dim(0)) : x; }
Var DecayTable::fromStart(Var x) const { return atEntry(x * (start ? start : decayFactor(c))); }
Var DecayTable::toEnd(Var x) const {
  if (entering) // c_C is twice r
    return atEntry(rightOfScores(x));
  if (inverse)
    return x * inverse * expand(exp(last), 0, c.dim(0));
  return x * (end ? end : decayFactor(cumsum(gNext(), 0, /*reverse=*/true)));
}
Var DecayTable::total() const { return last ? last : sum(g(), 0); }

void DecayTable::prepareScores(KernelBuilder &k, bool known) {
  last = row(c, k.number(c.dim(0) - 1));
  if (known) {
    start = exp(c);
    inverse = 1.0 / start;
    return;
  }
  // A NaN is no growth, but makes c_C one.
  Var decays = g(), growth = sum(sum(select(gt(decays, 0.0), decays, 0.0), 0), 0);
  mild = both(gt(minimum(last, 0), -mostSpan), le(growth, 0.0));
  if (!centred) // each way has its own
    start = decayFactor(c);
}

DecayTable DecayTable::ofMild(KernelBuilder &k) const {
  DecayTable table = *this;
  table.mild = {};
  if (centred) {
    Var middle = last * 0.5;
    table.start = exp(c - expand(middle, 0, c.dim(0)));
    table.entering = exp(middle);
  }
  table.inverse = 1.0 / table.start;
  return table;
}

/// A difference of the sums in c would have no digits left.
DecayTable DecayTable::ofStrong() const {
  DecayTable table = *this;
  table.mild = {};
  if (centred)
    table.start = decayFactor(c);
  table.end = decayFactor(cumsum(gNext(), 0, /*reverse=*/true));
  return table;
}

void DecayTable::prepareEnd(KernelBuilder &k) {
  if (!mild)
    return;
  Var one = k.tile(c.shape(), c.element(), 1);
  end = k.when(mild, [&]() -> Vars { return {ofMild(k).toEnd(one)}; }, [&]() -> Vars { return {ofStrong().end}; })[0];
}

Var up(KernelBuilder &k, Var x) {
  return insertRows(rows(x, k.number(1), x.dim(0) - 1), k.tile(x.shape(), x.element()), k.number(0));
}
Var down(KernelBuilder &k, Var x) {
  return insertRows(rows(x, k.number(0), x.dim(0) - 1), k.tile(x.shape(), x.element()), k.number(1));
}

namespace {

/// One call of pairScores.
class Pairs {
public:
  Pairs(KernelBuilder &k, const DecayTable &decay, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights,
        llvm::ArrayRef<Vars> ds, bool scores, llvm::ArrayRef<Var> states)
      : k(k), decay(decay), lefts(lefts), rights(rights), states(states), scores(scores), C(rights[0].dim(0)),
        K(rights[0].dim(1)), N(decay.scoreRows), B(N / 2), element(rights[0].element()) {
    for (llvm::ArrayRef<Var> line : ds)
      given.append(line.begin(), line.end());
  }
  PairScores run();
  /// What the states add to run(), then.
  void addStates(PairScores &out) const {
    for (size_t l = 0; l < states.size(); ++l)
      out.dLeft[l] = out.dLeft[l] + decay.fromStart(states[l]);
  }
  /// What run() gives, for a chunk of mild decays. `diagonal`: the products are of the diagonal, too.
  PairScores runMild(bool diagonal);
  /// Adds the diagonal, and the shares, to what is of the strictly lower triangle.
  void complete(PairScores &out) const { complete(out, lefts, rights); }

private:
  void complete(PairScores &out, llvm::ArrayRef<Var> leftRows, llvm::ArrayRef<Var> rightRows) const;
  bool hasScores(size_t l) const { return scores && lefts[l]; }
  bool gradients() const { return !given.empty(); }
  size_t pair(size_t l, size_t r) const { return l * rights.size() + r; }
  size_t pairs() const { return lefts.size() * rights.size(); }
  Var zeros(Shape tile) { return k.tile(tile, element); }
  Vars zeros(size_t count, Shape tile) { return Vars(count, zeros(tile)); }
  static Vars rowsOf(llvm::ArrayRef<Var> tiles, Var first, int64_t count) {
    return llvm::map_to_vector(tiles, [&](Var x) { return x ? rows(x, first, count) : Var(); });
  }
  /// exp(R - c_j) of rows [first, first + count), R the cumulative decay of the last of them.
  Var toLast(Var first, int64_t count);
  /// What stays inside a tile: of every pair s [C, N], row i for the columns of its own tile, then every dLeft and
  /// dRight.
  Vars near();
  /// Of B tokens: of every pair S^T, then every dLeft and dRight. `ds`: of every pair [B, B].
  Vars block(Var first, llvm::ArrayRef<Var> ds);

  KernelBuilder &k;
  const DecayTable &decay;
  llvm::ArrayRef<Var> lefts, rights, states;
  bool scores; ///< are wanted
  Vars given, masked; ///< ds, pair by pair, and the triangle of it that is multiplied
  Var g, gNext; ///< of run()
  int64_t C, K;
  int64_t N, B; ///< rows of a tile, and of the blocks on its diagonal
  Type element;
};

Var Pairs::toLast(Var first, int64_t count) {
  Var before = decayFactor(cumsum(rows(gNext, first, count - 1), 0, /*reverse=*/true));
  return insertRows(before, k.tile({count, K}, element, 1), k.number(0));
}

PairScores Pairs::run() {
  g = decay.g();
  gNext = decay.gNext();
  masked = llvm::map_to_vector(given, [](Var d) { return mask(d, tile::Keep::strict_lower); });
  Vars inner = near();
  PairScores out;
  out.s.assign(lefts.size(), zeros(rights.size(), {C, C}));
  if (gradients()) {
    out.dLeft.append(inner.begin() + pairs(), inner.begin() + pairs() + lefts.size());
    out.dRight.append(inner.end() - rights.size(), inner.end());
  }
  Var ek = zeros({C, K}), eq; // exp(R - c_j), exp(c_i - R)
  for (int64_t first = 0; first < C; first += N) {
    Var at = k.number(first), eBefore;
    Vars leftDecayed, rightDecayed;
    if (first) {
      Var last = k.number(first - N);
      if (first > N) // eq of the tile before ends with exp(R' - R)
        ek = insertRows(rows(ek, k.number(0), first - N) * expand(row(eq, k.number(N - 1)), 0, first - N), ek,
                        k.number(0));
      ek = insertRows(toLast(last, N), ek, last);
      eq = decayFactor(cumsum(rows(g, at, N)));
      eBefore = rows(ek, k.number(0), first);
      for (Var left : lefts)
        leftDecayed.push_back(left ? rows(left, at, N) * eq : Var());
      for (Var right : rights)
        rightDecayed.push_back(rows(right, k.number(0), first) * eBefore);
    }
    for (size_t l = 0; l < lefts.size(); ++l)
      for (size_t r = 0; r < rights.size(); ++r) {
        if (first && gradients()) {
          Var d = slice(rows(masked[pair(l, r)], at, N), 0, first), &dl = out.dLeft[l], &dr = out.dRight[r];
          dl = insertRows(rows(dl, at, N) + eq * dot(d, rightDecayed[r]), dl, at);
          if (lefts[l]) {
            Var before = rows(dr, k.number(0), first) + eBefore * dotTA(d, leftDecayed[l]);
            dr = insertRows(before, dr, k.number(0));
          }
        }
        if (!hasScores(l))
          continue;
        Vars tiles;
        if (first)
          tiles.push_back(dotTB(leftDecayed[l], rightDecayed[r]));
        tiles.push_back(mask(rows(inner[pair(l, r)], at, N), tile::Keep::lower));
        if (first + N < C)
          tiles.push_back(zeros({N, C - first - N}));
        out.s[l][r] = insertRows(concat(tiles), out.s[l][r], at);
      }
  }
  return out;
}

void Pairs::complete(PairScores &out, llvm::ArrayRef<Var> leftRows, llvm::ArrayRef<Var> rightRows) const {
  for (auto [left, d] : llvm::zip(leftRows, out.dLeft))
    out.leftShare.push_back(left ? left * d : Var());
  for (auto [right, d] : llvm::zip(rightRows, out.dRight))
    out.rightShare.push_back(d ? right * d : Var());
  if (!gradients())
    return;
  for (size_t l = 0; l < lefts.size(); ++l)
    for (size_t r = 0; r < rights.size(); ++r) {
      Var own = expand(diagonal(given[pair(l, r)]), 1, K);
      out.dLeft[l] = out.dLeft[l] + own * rightRows[r];
      if (leftRows[l])
        out.dRight[r] = out.dRight[r] + own * leftRows[l];
    }
}

Vars Pairs::block(Var first, llvm::ArrayRef<Var> ds) {
  Vars left = rowsOf(lefts, first, B), right = rowsOf(rights, first, B), columns;
  for (Var d : ds)
    columns.push_back(transpose(d));
  Var decays = decayFactor(rows(gNext, first, B));
  Vars carried{zeros({B, K})};
  carried.append(zeros(pairs(), {B, B}));
  if (gradients())
    carried.append(zeros(left.size() + right.size(), {B, K}));
  Vars found = k.loop(0, B, 1, carried, [&](Var step, llvm::ArrayRef<Var> now) -> Vars {
    Var j = k.number(B - 1) - step;
    // Rows before j are 0, row j itself meets no decay.
    Var w = insertRows(k.tile({K}, element, 1), now[0] * expand(row(decays, j), 0, B), j);
    Vars next(now.begin(), now.end());
    next[0] = w;
    for (size_t r = 0; r < right.size(); ++r) {
      Var weighted = expand(row(right[r], j), 0, B) * w, dRight;
      for (size_t l = 0; l < left.size(); ++l) {
        size_t p = pair(l, r);
        if (hasScores(l))
          next[1 + p] = insertRows(sum(left[l] * weighted, 1), now[1 + p], j);
        if (!gradients())
          continue;
        Var d = expand(row(columns[p], j), 1, K), &dLeft = next[1 + pairs() + l];
        dLeft = dLeft + d * weighted;
        if (!left[l])
          continue;
        Var part = sum(d * w * left[l], 0);
        dRight = dRight ? dRight + part : part;
      }
      if (gradients()) {
        size_t at = 1 + pairs() + left.size() + r;
        if (dRight)
          next[at] = insertRows(dRight, now[at], j);
      }
    }
    return next;
  });
  found.erase(found.begin());
  return found;
}

Vars Pairs::near() {
  Vars sums = zeros(pairs(), {C, N}), ds; // ds: rows for the columns of their own tile
  if (gradients()) {
    sums.append(zeros(lefts.size() + rights.size(), {C, K}));
    for (Var d : masked) {
      Var own = zeros({C, N});
      for (int64_t first = 0; first < C; first += N)
        own = insertRows(slice(rows(d, k.number(first), N), first, N), own, k.number(first));
      ds.push_back(own);
    }
  }
  return k.loop(0, C, N, sums, [&](Var first, llvm::ArrayRef<Var> now) -> Vars {
    Var middle = first + static_cast<double>(B);
    Var eq = decayFactor(cumsum(rows(g, middle, B))), ek = toLast(first, B);
    Vars leftDecayed, rightDecayed, upper, lower, corner;
    for (Var left : rowsOf(lefts, middle, B))
      leftDecayed.push_back(left ? left * eq : Var());
    for (Var right : rowsOf(rights, first, B))
      rightDecayed.push_back(right * ek);
    for (Var d : ds) {
      upper.push_back(slice(rows(d, first, B), 0, B));
      Var below = rows(d, middle, B);
      lower.push_back(slice(below, B, B));
      corner.push_back(slice(below, 0, B));
    }
    Vars one = block(first, upper), two = block(middle, lower), next;
    for (size_t l = 0; l < lefts.size(); ++l)
      for (size_t r = 0; r < rights.size(); ++r) {
        size_t p = pair(l, r);
        if (!hasScores(l)) {
          next.push_back(now[p]);
          continue;
        }
        Var s = insertRows(concat({transpose(one[p]), zeros({B, B})}), now[p], first);
        next.push_back(insertRows(concat({dotTB(leftDecayed[l], rightDecayed[r]), transpose(two[p])}), s, middle));
      }
    if (!gradients())
      return next;
    size_t at = pairs();
    for (size_t l = 0; l < lefts.size(); ++l, ++at) {
      Var second = two[at];
      for (size_t r = 0; r < rights.size(); ++r)
        second = second + eq * dot(corner[pair(l, r)], rightDecayed[r]);
      next.push_back(insertRows(second, insertRows(one[at], now[at], first), middle));
    }
    for (size_t r = 0; r < rights.size(); ++r, ++at) {
      Var begin = one[at];
      for (size_t l = 0; l < lefts.size(); ++l)
        if (lefts[l])
          begin = begin + ek * dotTA(corner[pair(l, r)], leftDecayed[l]);
      next.push_back(insertRows(begin, insertRows(two[at], now[at], middle), first));
    }
    return next;
  });
}

PairScores Pairs::runMild(bool diagonal) {
  tile::Keep keep = diagonal ? tile::Keep::lower : tile::Keep::strict_lower;
  masked = llvm::map_to_vector(given, [&](Var d) { return mask(d, keep); });
  Var inverse = decay.inverse ? decay.inverse : decay.ofMild(k).inverse;
  Vars leftDecayed, rightDecayed;
  for (Var left : lefts)
    leftDecayed.push_back(left ? decay.leftOfScores(left) : Var());
  for (Var right : rights)
    rightDecayed.push_back(right * inverse);
  PairScores out;
  out.s.assign(lefts.size(), Vars(rights.size()));
  if (gradients()) {
    out.dLeft = zeros(lefts.size(), {C, K});
    for (auto [d, state] : llvm::zip(out.dLeft, states))
      d = decay.atEntry(state);
    out.dRight = zeros(rights.size(), {C, K});
  }
  for (size_t l = 0; l < lefts.size(); ++l)
    for (size_t r = 0; r < rights.size(); ++r) {
      if (hasScores(l))
        out.s[l][r] = mask(dotTB(leftDecayed[l], rightDecayed[r]), tile::Keep::lower);
      if (!gradients())
        continue;
      Var d = masked[pair(l, r)];
      out.dLeft[l] = dot(d, rightDecayed[r], out.dLeft[l]);
      if (lefts[l])
        out.dRight[r] = dotTA(d, leftDecayed[l], out.dRight[r]);
    }
  // Rows that are at hand decayed: nothing else need be.
  if (!decay.mild && !diagonal)
    complete(out, leftDecayed, rightDecayed);
  for (Var &d : out.dLeft)
    d = decay.leftOfScores(d);
  for (Var &d : out.dRight)
    d = d * inverse;
  return out;
}

} // namespace

PairScores pairScores(KernelBuilder &k, const DecayTable &decay, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights,
                      llvm::ArrayRef<Vars> ds, bool scores, llvm::ArrayRef<Var> states, bool shares) {
  Pairs pairs(k, decay, lefts, rights, ds, scores, states);
  assert(decay.start && "prepared");
  if (!decay.mild && decay.inverse)
    return pairs.runMild(/*diagonal=*/!shares);
  if (!decay.mild) {
    PairScores all = pairs.run();
    pairs.addStates(all);
    pairs.complete(all);
    return all;
  }
  // What is wanted, in one list: the branches hand on tiles.
  auto visit = [&](PairScores &all, llvm::function_ref<void(Var &)> each) {
    bool anyLeft = false;
    for (size_t l = 0; l < lefts.size(); ++l) {
      anyLeft |= static_cast<bool>(lefts[l]);
      if (scores && lefts[l])
        llvm::for_each(all.s[l], each);
    }
    llvm::for_each(all.dLeft, each);
    if (anyLeft)
      llvm::for_each(all.dRight, each);
  };
  auto listed = [&](PairScores all) {
    Vars list;
    visit(all, [&](Var &tile) { list.push_back(tile); });
    return list;
  };
  auto mild = [&] { return listed(pairs.runMild(/*diagonal=*/false)); };
  Vars found = k.when(decay.mild, mild, [&] {
    PairScores strong = pairs.run();
    pairs.addStates(strong);
    return listed(strong);
  });
  PairScores all;
  all.s.assign(lefts.size(), Vars(rights.size()));
  if (!ds.empty()) {
    all.dLeft.resize(lefts.size());
    all.dRight.resize(rights.size());
  }
  const Var *next = found.begin();
  visit(all, [&](Var &tile) { tile = *next++; });
  pairs.complete(all);
  return all;
}

PairScores strongPairs(KernelBuilder &k, const DecayTable &decay, llvm::ArrayRef<Var> lefts, llvm::ArrayRef<Var> rights,
                       llvm::ArrayRef<Vars> ds, bool scores) {
  return Pairs(k, decay, lefts, rights, ds, scores, {}).run();
}

} // namespace braid
