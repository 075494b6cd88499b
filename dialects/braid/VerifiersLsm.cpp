//===- VerifiersLsm.cpp - the affine scan and its chunk forms -----------------------------------------------------===//
#include "dialects/braid/ScanTraits.h"
#include "dialects/braid/Verifiers.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace braid;

//===- Tokens and gates of a class --------------------------------------------------------------------------------===//

static LogicalResult hasOperand(Operation *op, LsmClass kind, StringRef name, bool wanted, Value value) {
  if (wanted == static_cast<bool>(value))
    return success();
  return op->emitOpError() << "class " << stringifyLsmClass(kind) << (wanted ? " needs " : " takes no ") << name;
}

/// Dimensions [0, rank) of a gate are those of k [B, T, H, K].
static LogicalResult verifyGate(Operation *op, Named k, Named gate, int64_t rank) {
  static constexpr StringLiteral words[] = {"batch", "token", "head", "key dimension"};
  CHECK(isFloat(op, gate));
  for (int64_t i = 0; i < rank; ++i)
    CHECK(sameDim(op, words[i], k, i, gate, i));
  return success();
}

/// A value of every token and update; without updates of every token.
template <typename Op> static Named ofUpdates(Op op, StringRef name, Value value) {
  return {name, value, hasUpdates(op.getK()) ? kUpdatesDim : -1};
}

/// MLIR itself lets operandSegmentSizes give several operands to one that is single or absent.
template <typename Op> static LogicalResult verifySegments(Op op) {
  if constexpr (requires { op.getProperties().operandSegmentSizes; })
    for (int32_t size : op.getProperties().operandSegmentSizes)
      if (size > 1)
        return op.emitOpError() << "has " << size << " operands where one is; valid: an operandSegmentSizes of 0 or 1";
  return success();
}

/// k, v and, where there are, q and d_o [B, T, H, ..], and the gates that the class takes.
template <typename Op> static LogicalResult verifyTokens(Op op, Value q, bool takesUpdates = false) {
  CHECK(verifySegments(op));
  LsmClass kind = op.getClassId();
  ScanTraits takes(kind);
  Value decay = op.getLogDecay(), beta = op.getBeta();
  CHECK(hasRank(op, {"k", op.getK()}, 4, takesUpdates ? 5 : 4));
  Named k = ofUpdates(op, "k", op.getK()), v = ofUpdates(op, "v", op.getV());
  auto sameUpdates = [&](Named x) {
    return hasUpdates(op.getK()) && x.type().getRank() > kUpdatesDim
               ? sameDim(op, "update", {"k", op.getK()}, kUpdatesDim, {x.name, x.value}, kUpdatesDim)
               : success();
  };
  CHECK(isFloat(op, k));
  if (q) {
    CHECK(hasRank(op, {"q", q}, 4));
    CHECK(isFloat(op, {"q", q}));
    CHECK(sameTokens(op, {"q", q}, k));
    CHECK(sameDim(op, "head", {"q", q}, 2, k, 2));
    CHECK(sameDim(op, "key dimension", {"q", q}, 3, k, 3));
  }
  CHECK(hasRank(op, v, 4));
  CHECK(isFloat(op, v));
  CHECK(sameTokens(op, k, v));
  CHECK(sameUpdates(v));
  CHECK(sameDim(op, "head", k, 2, v, 2));
  CHECK(hasOperand(op, kind, "log_decay", takes.decay, decay));
  CHECK(hasOperand(op, kind, "beta", takes.beta, beta));
  CHECK(hasOperand(op, kind, "a", takes.lowRank, op.getA()));
  CHECK(hasOperand(op, kind, "b", takes.lowRank, op.getB()));
  bool product = decaysByProduct(op);
  if (!product)
    CHECK(hasOperand(op, kind, "value_decay", takes.valueDecay, op.getValueDecay()));
  if (decay && product) {
    Named rates{"log_decay", decay};
    CHECK(hasRank(op, rates, 3));
    CHECK(isFloat(op, rates));
    CHECK(sameDim(op, "head", k, 2, rates, 0));
    CHECK(sameDim(op, "key dimension", k, 3, rates, 1));
    CHECK(sameDim(op, "value dimension", v, 3, rates, 2));
  } else if (decay && kind == LsmClass::S0) {
    CHECK(hasRank(op, {"log_decay", decay}, 1));
    CHECK(isFloat(op, {"log_decay", decay}));
    CHECK(sameDim(op, "head", k, 2, {"log_decay", decay}, 0));
  } else if (decay) {
    Named g = ofUpdates(op, "log_decay", decay);
    CHECK(hasRank(op, g, takes.elementDecay ? 5 : takes.vectorDecay ? 4 : 3));
    CHECK(sameUpdates(g));
    CHECK(verifyGate(op, k, g, takes.vectorDecay ? 4 : 3));
    if (takes.elementDecay)
      CHECK(sameDim(op, "value dimension", v, 3, g, 4));
  }
  if (beta) {
    Named rates = ofUpdates(op, "beta", beta);
    CHECK(hasRank(op, rates, 3));
    CHECK(sameUpdates(rates));
    CHECK(verifyGate(op, k, rates, 3));
  }
  for (Named row : {ofUpdates(op, "a", op.getA()), ofUpdates(op, "b", op.getB())})
    if (row.value) {
      CHECK(hasRank(op, row, 4));
      CHECK(sameUpdates(row));
      CHECK(verifyGate(op, k, row, 4));
      CHECK(sameElement(op, k, row));
    }
  if (Named h = ofUpdates(op, "value_decay", op.getValueDecay()); h.value) {
    CHECK(hasRank(op, h, 4));
    CHECK(sameUpdates(h));
    CHECK(verifyGate(op, k, h, 3));
    CHECK(sameElement(op, {"log_decay", decay}, h));
    CHECK(sameDim(op, "value dimension", v, 3, h, 3));
  }
  return success();
}

template <typename Op> static LogicalResult verifyGateCotangents(Op op) {
  auto gates = trainedGates(op);
  if (gates.size() != op.getDgates().size())
    return op.emitOpError() << "class " << stringifyLsmClass(op.getClassId()) << " has " << gates.size()
                            << " gate cotangents but there are " << op.getDgates().size();
  for (auto [gate, dgate] : llvm::zip_equal(gates, op.getDgates())) {
    CHECK(isFloat(op, {"gate cotangent", dgate}));
    CHECK(sameShape(op, {"gate cotangent", dgate}, {gate.first, gate.second}));
  }
  return success();
}

/// d has the shape of `of` and holds numbers.
static LogicalResult isLike(Operation *op, Named d, Named of) {
  CHECK(isFloat(op, d));
  return sameShape(op, d, of);
}

//===- The scan ---------------------------------------------------------------------------------------------------===//

template <typename Op> static LogicalResult verifyScan(Op op, bool takesUpdates) {
  CHECK(verifyTokens(op, op.getQ(), takesUpdates));
  Named k = ofUpdates(op, "k", op.getK()), v = ofUpdates(op, "v", op.getV());
  Named initial{"initial_state", op.getInitialState()};
  CHECK(isDocuments(op, {"documents", op.getDocuments()}, k));
  CHECK(hasRank(op, initial, 4));
  CHECK(isFloat(op, initial));
  CHECK(sameDim(op, "batch", k, 0, initial, 0));
  CHECK(sameDim(op, "head", k, 2, initial, 1));
  CHECK(sameDim(op, "key dimension", k, 3, initial, 2));
  return sameDim(op, "value dimension", v, 3, initial, 3);
}
/// o or its cotangent: like v, one for each token.
template <typename Op> static LogicalResult isOutput(Op op, Named o) {
  CHECK(isFloat(op, o));
  if (!hasUpdates(op.getK()))
    return sameShape(op, o, {"v", op.getV()});
  static constexpr StringLiteral words[] = {"batch", "token", "head", "value dimension"};
  CHECK(hasRank(op, o, 4));
  for (int64_t i = 0; i < 4; ++i)
    CHECK(sameDim(op, words[i], o, i, ofUpdates(op, "v", op.getV()), i));
  return success();
}
template <typename Op> static LogicalResult verifyScanResults(Op op) {
  CHECK(isOutput(op, {"o", op.getO()}));
  return sameType(op, {"final_state", op.getFinalState()}, {"initial_state", op.getInitialState()});
}
/// Absent until the chunk size is decided.
static LogicalResult verifyChunkSize(Operation *op, std::optional<uint64_t> size) {
  return size ? isAtLeast(op, "chunk_size", *size, 1) : success();
}

LogicalResult LsmScanOp::verify() {
  CHECK(verifyScan(*this, /*takesUpdates=*/true));
  CHECK(verifyChunkSize(*this, getChunkSize()));
  return verifyScanResults(*this);
}
LogicalResult LsmStepOp::verify() {
  CHECK(verifyScan(*this, /*takesUpdates=*/false));
  if (int64_t t = Named{"k", getK()}.dim(1); t != 1)
    return emitOpError() << "takes one token but k has " << t;
  return verifyScanResults(*this);
}
LogicalResult LsmScanGradOp::verify() {
  CHECK(verifyScan(*this, /*takesUpdates=*/true));
  CHECK(verifyChunkSize(*this, getChunkSize()));
  Named initial{"initial_state", getInitialState()};
  CHECK(isOutput(*this, {"d_o", getDO()}));
  CHECK(isLike(*this, {"dfinal_state", getDfinalState()}, initial));
  CHECK(isLike(*this, {"dq", getDq()}, {"q", getQ()}));
  CHECK(isLike(*this, {"dk", getDk()}, {"k", getK()}));
  CHECK(isLike(*this, {"dv", getDv()}, {"v", getV()}));
  CHECK(verifyGateCotangents(*this));
  return isLike(*this, {"dinitial_state", getDinitialState()}, initial);
}

//===- Chunk forms ------------------------------------------------------------------------------------------------===//

/// chunks [B, n, 4] i32 for a batch-first value of the same op.
static LogicalResult verifyChunks(Operation *op, Named chunks, Named x) {
  CHECK(hasRank(op, chunks, 3));
  CHECK(isInteger(op, chunks));
  if (chunks.dim(2) != 4)
    return op->emitOpError() << "chunks has " << chunks.dim(2) << " entries per chunk but must have 4";
  return sameDim(op, "batch", x, 0, chunks, 0);
}

/// [B, n, H, K, V] for the tokens of k and v.
static LogicalResult verifyStates(Operation *op, Named m, Named k, Named v, Named chunks) {
  CHECK(hasRank(op, m, 5));
  CHECK(isFloat(op, m));
  CHECK(sameDim(op, "batch", m, 0, k, 0));
  CHECK(sameDim(op, "chunk", m, 1, chunks, 1));
  CHECK(sameDim(op, "head", m, 2, k, 2));
  CHECK(sameDim(op, "key dimension", m, 3, k, 3));
  return sameDim(op, "value dimension", m, 4, v, 3);
}

/// The transition of every chunk as the class stores it, for states x [B, n, H, K, V].
static LogicalResult verifyTransition(Operation *op, LsmClass kind, Value value, Named x) {
  CHECK(hasOperand(op, kind, "p", kind != LsmClass::I, value));
  if (!value)
    return success();
  Named p{"p", value};
  bool rounded = getElementTypeOrSelf(value.getType()).isBF16();
  SmallVector<int64_t> wanted = ScanTraits(kind).transition(x.dim(3), x.dim(4), rounded);
  CHECK(hasRank(op, p, 3 + wanted.size()));
  CHECK(isFloat(op, p));
  static constexpr StringLiteral words[] = {"batch", "chunk", "head"};
  for (int64_t i = 0; i < 3; ++i)
    CHECK(sameDim(op, words[i], p, i, x, i));
  for (auto [i, size] : llvm::enumerate(wanted))
    if (p.dim(3 + i) != size)
      return withNote(op->emitOpError() << "key dimension mismatch: p has " << p.dim(3 + i) << " but x has " << size,
                      x);
  return success();
}

/// x [1, B, H, K, V] of tokens k [B, T, H, K] and v [B, T, H, V], or of chunks [B, n, H, K, V].
static LogicalResult verifySegment(Operation *op, Named x, Named k, Named v) {
  CHECK(hasRank(op, x, 5));
  CHECK(isFloat(op, x));
  if (x.dim(0) != 1)
    return op->emitOpError() << x.name << " holds " << x.dim(0) << " segments but must hold 1";
  CHECK(sameDim(op, "batch", x, 1, k, 0));
  CHECK(sameDim(op, "head", x, 2, k, 2));
  CHECK(sameDim(op, "key dimension", x, 3, k, 3));
  return sameDim(op, "value dimension", x, 4, v, -1);
}

/// Factors p of the segments x [s, B, H, K, V]; `rank`: what the class stores, 0 where any of them may stand.
static LogicalResult verifyFactors(Operation *op, Named p, Named x, int64_t rank = 0) {
  CHECK(hasRank(op, p, rank ? rank : 3, rank ? rank : 5));
  CHECK(sameElement(op, p, x));
  static constexpr StringLiteral words[] = {"segment", "batch", "head", "key dimension"};
  for (int64_t i = 0; i < std::min<int64_t>(p.rank(), 4); ++i)
    CHECK(sameDim(op, words[i], p, i, x, i));
  return p.rank() == 5 ? sameDim(op, "key dimension", p, 4, x, 3) : success();
}
static int64_t factorRank(LsmClass kind) {
  ScanTraits traits(kind);
  return traits.dense ? 5 : traits.vectorDecay ? 4 : 3;
}
/// Factors of a span are a number, a vector or a matrix per head.
static LogicalResult hasSegments(Operation *op, LsmClass kind) {
  if (ScanTraits(kind).valueDecay || ScanTraits(kind).elementDecay)
    return op->emitOpError() << "class " << stringifyLsmClass(kind) << " has no segments";
  return success();
}

LogicalResult LsmChunkTableOp::verify() {
  Named documents{"documents", getDocuments()}, chunks{"chunks", getChunks()};
  CHECK(hasRank(*this, documents, 2));
  CHECK(isInteger(*this, documents));
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  CHECK(verifyChunks(*this, chunks, documents));
  int64_t tokens = documents.dim(1), size = getChunkSize();
  if (int64_t least = llvm::divideCeil(static_cast<uint64_t>(tokens), static_cast<uint64_t>(size));
      chunks.dim(1) < least)
    return withNote(emitOpError() << "chunks has " << chunks.dim(1) << " rows but " << tokens << " tokens in chunks of "
                                  << size << " need " << least,
                    documents);
  return success();
}
LogicalResult LsmChunkStateOp::verify() {
  Named k{"k", getK()}, chunks{"chunks", getChunks()}, x{"x", getX()};
  CHECK(verifyTokens(*this, Value()));
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  CHECK(verifyChunks(*this, chunks, k));
  CHECK(verifyStates(*this, x, k, {"v", getV()}, chunks));
  return verifyTransition(*this, getClassId(), getP(), x);
}

/// Shared by the state scan and its adjoint: per-chunk states in and out, a state in and out.
static LogicalResult verifyStateScan(Operation *op, LsmClass kind, Value p, Named x, Named state, Named chunks, Named m,
                                     Named out) {
  CHECK(hasRank(op, x, 5));
  CHECK(isFloat(op, x));
  CHECK(hasRank(op, state, 4));
  CHECK(isFloat(op, state));
  CHECK(verifyChunks(op, chunks, x));
  CHECK(sameDim(op, "chunk", x, 1, chunks, 1));
  CHECK(sameDim(op, "batch", x, 0, state, 0));
  CHECK(sameDim(op, "head", x, 2, state, 1));
  CHECK(sameDim(op, "key dimension", x, 3, state, 2));
  CHECK(sameDim(op, "value dimension", x, 4, state, 3));
  CHECK(verifyTransition(op, kind, p, x));
  CHECK(isLike(op, m, x));
  return isLike(op, out, state);
}
LogicalResult LsmStateScanOp::verify() {
  return verifyStateScan(*this, getClassId(), getP(), {"x", getX()}, {"initial_state", getInitialState()},
                         {"chunks", getChunks()}, {"m", getM()}, {"final_state", getFinalState()});
}
LogicalResult LsmStateScanGradOp::verify() {
  return verifyStateScan(*this, getClassId(), getP(), {"dm", getDm()}, {"dfinal_state", getDfinalState()},
                         {"chunks", getChunks()}, {"dx", getDx()}, {"dinitial_state", getDinitialState()});
}

LogicalResult LsmStateWalkOp::verify() {
  Named k{"k", getK()}, v{"v", getV()}, decay{"log_decay", getLogDecay()}, m{"m", getM()},
      chunks{"chunks", getChunks()};
  LsmClass kind = getClassId();
  if (kind != LsmClass::S && kind != LsmClass::V)
    return emitOpError() << "class " << stringifyLsmClass(kind) << " has no walk: S and V have";
  CHECK(hasRank(*this, k, 4));
  CHECK(isFloat(*this, k));
  CHECK(hasRank(*this, v, 4));
  CHECK(isFloat(*this, v));
  CHECK(sameTokens(*this, k, v));
  CHECK(sameDim(*this, "head", k, 2, v, 2));
  int64_t rank = kind == LsmClass::V ? 4 : 3;
  CHECK(hasRank(*this, decay, rank));
  CHECK(verifyGate(*this, k, decay, rank));
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  CHECK(verifyChunks(*this, chunks, k));
  CHECK(verifyStates(*this, m, k, v, chunks));
  return verifyStateScan(*this, LsmClass::I, Value(), m, {"state", getState()}, chunks, m, {"last", getLast()});
}

/// T of every chunk, [B, n, H, C, C], and its sums of log decays.
static LogicalResult verifyInverse(Operation *op, LsmClass kind, Value inverse, Value sums, Named k, Named chunks,
                                   int64_t size) {
  CHECK(hasOperand(op, kind, "inverse", ScanTraits(kind).beta, inverse));
  CHECK(hasOperand(op, kind, "sums", ScanTraits(kind).beta && ScanTraits(kind).decay, sums));
  for (auto [of, rank, wanted] :
       {std::tuple(Named{"inverse", inverse}, 5, size), std::tuple(Named{"sums", sums}, 4, 3 * size)}) {
    if (!of.value)
      continue;
    CHECK(hasRank(op, of, rank));
    CHECK(isFloat(op, of));
    CHECK(sameDim(op, "batch", k, 0, of, 0));
    CHECK(sameDim(op, "chunk", chunks, 1, of, 1));
    CHECK(sameDim(op, "head", k, 2, of, 2));
    for (int64_t i = 3; i < rank; ++i)
      if (of.dim(i) != wanted)
        return op->emitOpError() << of.name << " has " << of.dim(i) << " numbers per chunk but must have " << wanted;
  }
  return success();
}

LogicalResult LsmOutputWalkOp::verify() {
  Named q{"q", getQ()}, k{"k", getK()}, v{"v", getV()}, state{"initial_state", getInitialState()},
      chunks{"chunks", getChunks()};
  LsmClass kind = getClassId();
  ScanTraits takes(kind);
  if (takes.lowRank || (takes.vectorDecay && kind != LsmClass::V))
    return emitOpError() << "class " << stringifyLsmClass(kind)
                         << " has no walk that stores outputs: I, S0, S, V, H and GH have";
  for (Named x : {q, k, v}) {
    CHECK(hasRank(*this, x, 4));
    CHECK(isFloat(*this, x));
  }
  CHECK(sameTokens(*this, q, k));
  CHECK(sameDim(*this, "head", q, 2, k, 2));
  CHECK(sameDim(*this, "key dimension", q, 3, k, 3));
  CHECK(sameTokens(*this, k, v));
  CHECK(sameDim(*this, "head", k, 2, v, 2));
  CHECK(hasOperand(*this, kind, "log_decay", takes.decay && !takes.beta, getLogDecay()));
  if (Named decay{"log_decay", getLogDecay()}; decay.value && kind == LsmClass::S0) {
    CHECK(hasRank(*this, decay, 1));
    CHECK(isFloat(*this, decay));
    CHECK(sameDim(*this, "head", k, 2, decay, 0));
  } else if (decay.value) {
    int64_t rank = takes.vectorDecay ? 4 : 3;
    CHECK(hasRank(*this, decay, rank));
    CHECK(verifyGate(*this, k, decay, rank));
  }
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  CHECK(verifyChunks(*this, chunks, k));
  CHECK(verifyInverse(*this, kind, getInverse(), getSums(), k, chunks, static_cast<int64_t>(getChunkSize())));
  CHECK(hasRank(*this, state, 4));
  CHECK(isFloat(*this, state));
  CHECK(sameDim(*this, "batch", k, 0, state, 0));
  CHECK(sameDim(*this, "head", k, 2, state, 1));
  CHECK(sameDim(*this, "key dimension", k, 3, state, 2));
  CHECK(sameDim(*this, "value dimension", v, 3, state, 3));
  CHECK(isLike(*this, {"o", getO()}, v));
  return sameType(*this, {"final_state", getFinalState()}, state);
}

LogicalResult LsmChunkInverseOp::verify() {
  Named k{"k", getK()}, chunks{"chunks", getChunks()};
  LsmClass kind = getClassId();
  ScanTraits takes(kind);
  if (!takes.beta || takes.walksByFactors())
    return emitOpError() << "class " << stringifyLsmClass(kind) << " has no triangle: H and GH have";
  CHECK(hasRank(*this, k, 4));
  CHECK(isFloat(*this, k));
  CHECK(hasOperand(*this, kind, "log_decay", takes.decay, getLogDecay()));
  for (Named gate : {Named{"log_decay", getLogDecay()}, Named{"beta", getBeta()}})
    if (gate.value) {
      CHECK(hasRank(*this, gate, 3));
      CHECK(verifyGate(*this, k, gate, 3));
    }
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  CHECK(verifyChunks(*this, chunks, k));
  return verifyInverse(*this, kind, getInverse(), getSums(), k, chunks, static_cast<int64_t>(getChunkSize()));
}

/// Dimensions [B, n, H, ..] of what every chunk has.
static LogicalResult sameChunks(Operation *op, Named a, Named b) {
  static constexpr StringLiteral words[] = {"batch", "chunk", "head"};
  for (int64_t i = 0; i < 3; ++i)
    CHECK(sameDim(op, words[i], a, i, b, i));
  return success();
}
/// Rows [B, n, H, rows, K or V] of a factor, for states x [B, n, H, K, V] whose dimension `width` they are as wide as.
static LogicalResult verifyFactor(Operation *op, Named factor, LsmClass kind, Named x, int64_t width, int64_t rows) {
  if (!ScanTraits(kind).dense)
    return op->emitOpError() << "class " << stringifyLsmClass(kind) << " has no factors: its transitions are not dense";
  CHECK(hasRank(op, factor, 5));
  CHECK(isFloat(op, factor));
  CHECK(sameChunks(op, x, factor));
  if (factor.dim(3) != rows)
    return op->emitOpError() << factor.name << " has " << factor.dim(3) << " rows per chunk but must have " << rows;
  return sameDim(op, width == 3 ? "key dimension" : "value dimension", x, width, factor, 4);
}

/// What a state decays by in a chunk: a number [B, n, H], or rows [B, n, H, 1, K]; x has K features in dimension `keys`.
static LogicalResult verifyFactorDecay(Operation *op, LsmClass kind, Value decay, Named x, int64_t keys) {
  ScanTraits traits(kind);
  CHECK(hasOperand(op, kind, "decay", traits.decay, decay));
  if (!decay)
    return success();
  Named across{"decay", decay};
  if (traits.vectorDecay) {
    CHECK(verifyFactor(op, across, kind, across, 4, 1));
    CHECK(sameDim(op, "key dimension", x, keys, across, 4));
  } else {
    CHECK(hasRank(op, across, 3));
    CHECK(isFloat(op, across));
  }
  return sameChunks(op, x, across);
}
/// write, read and decay of chunks with states x.
static LogicalResult verifyChunkFactors(Operation *op, LsmClass kind, Named write, Named read, Value decay, Named x) {
  CHECK(hasRank(op, read, 5));
  CHECK(verifyFactor(op, read, kind, x, 3, read.dim(3)));
  CHECK(verifyFactor(op, write, kind, x, 3, ScanTraits(kind).writtenRows(read.dim(3))));
  return verifyFactorDecay(op, kind, decay, x, 3);
}

LogicalResult LsmChunkFactorsOp::verify() {
  LsmClass kind = getClassId();
  Named k{"k", getK()}, v{"v", getV()}, chunks{"chunks", getChunks()}, u{"u", getU()}, write{"write", getWrite()},
      read{"read", getRead()};
  CHECK(verifyTokens(*this, Value()));
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  CHECK(verifyChunks(*this, chunks, k));
  auto chunk = static_cast<int64_t>(getChunkSize());
  CHECK(verifyFactor(*this, read, kind, read, 4, chunk));
  CHECK(sameDim(*this, "batch", k, 0, read, 0));
  CHECK(sameDim(*this, "chunk", chunks, 1, read, 1));
  CHECK(sameDim(*this, "head", k, 2, read, 2));
  CHECK(sameDim(*this, "key dimension", k, 3, read, 4));
  for (Named factor : {u, write}) {
    CHECK(verifyFactor(*this, factor, kind, factor, 4, ScanTraits(kind).writtenRows(chunk)));
    CHECK(sameChunks(*this, read, factor));
  }
  CHECK(sameDim(*this, "value dimension", v, 3, u, 4));
  CHECK(sameDim(*this, "key dimension", k, 3, write, 4));
  return verifyFactorDecay(*this, kind, getDecay(), read, 4);
}
/// What a walk multiplies by: rows [B, n, H, C, K], scores [B, n, H, C, C], decay [B, n, H, 1, K].
static LogicalResult verifyWalkFactors(Operation *op, LsmClass kind, Named chunks, Named queries, Named keys,
                                       Named write, Named scores, Named decay) {
  ScanTraits takes(kind);
  if (!takes.walksByFactors())
    return op->emitOpError() << "class " << stringifyLsmClass(kind) << " has no factors of a walk: VH has";
  CHECK(hasRank(op, queries, 5));
  int64_t tokens = queries.dim(3);
  CHECK(verifyFactor(op, queries, kind, queries, 4, tokens));
  CHECK(verifyChunks(op, chunks, queries));
  CHECK(sameDim(op, "chunk", chunks, 1, queries, 1));
  for (Named rows : {keys, write})
    CHECK(verifyFactor(op, rows, kind, queries, 4, tokens));
  CHECK(verifyFactor(op, decay, kind, queries, 4, 1));
  CHECK(verifyFactor(op, scores, kind, scores, 4, tokens));
  CHECK(sameChunks(op, queries, scores));
  return sameDim(op, "token of the chunk", queries, 3, scores, 4);
}
LogicalResult LsmChunkWalkFactorsOp::verify() {
  Named q{"q", getQ()}, k{"k", getK()}, queries{"queries", getQueries()};
  CHECK(verifyWalkFactors(*this, getClassId(), {"chunks", getChunks()}, queries, {"keys", getKeys()},
                          {"write", getWrite()}, {"scores", getScores()}, {"decay", getDecay()}));
  for (Named x : {q, k}) {
    CHECK(hasRank(*this, x, 4));
    CHECK(isFloat(*this, x));
  }
  CHECK(isLike(*this, q, k));
  for (auto [gate, rank] : {std::pair(Named{"log_decay", getLogDecay()}, 4), {Named{"beta", getBeta()}, 3}}) {
    CHECK(hasRank(*this, gate, rank));
    CHECK(verifyGate(*this, k, gate, rank));
  }
  CHECK(isAtLeast(*this, "chunk_size", getChunkSize(), 1));
  if (queries.dim(3) != static_cast<int64_t>(getChunkSize()))
    return emitOpError() << "queries has " << queries.dim(3) << " rows per chunk but must have " << getChunkSize();
  CHECK(sameDim(*this, "batch", k, 0, queries, 0));
  CHECK(sameDim(*this, "head", k, 2, queries, 2));
  return sameDim(*this, "key dimension", k, 3, queries, 4);
}
LogicalResult LsmFactorWalkOp::verify() {
  Named v{"v", getV()}, state{"initial_state", getInitialState()}, queries{"queries", getQueries()};
  CHECK(verifyWalkFactors(*this, getClassId(), {"chunks", getChunks()}, queries, {"keys", getKeys()},
                          {"write", getWrite()}, {"scores", getScores()}, {"decay", getDecay()}));
  CHECK(hasRank(*this, v, 4));
  CHECK(isFloat(*this, v));
  CHECK(sameDim(*this, "batch", v, 0, queries, 0));
  CHECK(sameDim(*this, "head", v, 2, queries, 2));
  CHECK(hasRank(*this, state, 4));
  CHECK(isFloat(*this, state));
  CHECK(sameDim(*this, "batch", v, 0, state, 0));
  CHECK(sameDim(*this, "head", v, 2, state, 1));
  CHECK(sameDim(*this, "key dimension", queries, 4, state, 2));
  CHECK(sameDim(*this, "value dimension", v, 3, state, 3));
  CHECK(isLike(*this, {"o", getO()}, v));
  return sameType(*this, {"final_state", getFinalState()}, state);
}
LogicalResult LsmFactorScanOp::verify() {
  Named u{"u", getU()}, m{"m", getM()}, write{"write", getWrite()}, read{"read", getRead()},
      chunks{"chunks", getChunks()};
  CHECK(verifyStateScan(*this, LsmClass::I, Value(), m, {"initial_state", getInitialState()}, chunks, m,
                        {"final_state", getFinalState()}));
  CHECK(verifyChunkFactors(*this, getClassId(), write, read, getDecay(), m));
  CHECK(verifyFactor(*this, u, getClassId(), m, 4, write.dim(3)));
  return verifyFactor(*this, {"written", getWritten()}, getClassId(), m, 4, read.dim(3));
}
LogicalResult LsmFactorScanGradOp::verify() {
  Named dx{"dx", getDx()}, read{"read", getRead()};
  CHECK(verifyStateScan(*this, LsmClass::I, Value(), dx, {"dfinal_state", getDfinalState()}, {"chunks", getChunks()},
                        dx, {"dinitial_state", getDinitialState()}));
  CHECK(verifyChunkFactors(*this, getClassId(), {"write", getWrite()}, read, getDecay(), dx));
  CHECK(verifyFactor(*this, {"g", getG()}, getClassId(), dx, 3, read.dim(3)));
  return verifyFactor(*this, {"d", getD()}, getClassId(), dx, 4, read.dim(3));
}

/// Shared by the ops on tokens and per-chunk states.
template <typename Op> static LogicalResult verifyChunkTokens(Op op, ArrayRef<Named> states) {
  Named k{"k", op.getK()}, chunks{"chunks", op.getChunks()};
  CHECK(verifyTokens(op, op.getQ()));
  CHECK(isAtLeast(op, "chunk_size", op.getChunkSize(), 1));
  CHECK(verifyChunks(op, chunks, k));
  for (Named state : states)
    CHECK(verifyStates(op, state, k, {"v", op.getV()}, chunks));
  return success();
}
LogicalResult LsmChunkOutputOp::verify() {
  CHECK(verifyChunkTokens(*this, {{"m", getM()}}));
  if (Named written{"written", getWritten()}; written.value)
    CHECK(verifyFactor(*this, written, getClassId(), {"m", getM()}, 4, static_cast<int64_t>(getChunkSize())));
  return isLike(*this, {"o", getO()}, {"v", getV()});
}
LogicalResult LsmChunkOutputGradStateOp::verify() {
  CHECK(verifyChunkTokens(*this, {{"dm", getDm()}}));
  return isLike(*this, {"d_o", getDO()}, {"v", getV()});
}
LogicalResult LsmChunkOutputFactorsOp::verify() {
  Named read{"read", getRead()}, d{"d", getD()}, chunks{"chunks", getChunks()};
  CHECK(verifyChunkTokens(*this, {}));
  CHECK(isLike(*this, {"d_o", getDO()}, {"v", getV()}));
  auto size = static_cast<int64_t>(getChunkSize());
  CHECK(verifyFactor(*this, read, getClassId(), read, 4, size));
  CHECK(sameDim(*this, "chunk", chunks, 1, read, 1));
  CHECK(sameDim(*this, "key dimension", {"k", getK()}, 3, read, 4));
  CHECK(isLike(*this, {"g", getG()}, read));
  CHECK(verifyFactor(*this, d, getClassId(), d, 4, size));
  CHECK(sameDim(*this, "chunk", chunks, 1, d, 1));
  return sameDim(*this, "value dimension", {"v", getV()}, 3, d, 4);
}
LogicalResult LsmChunkGradOp::verify() {
  CHECK(verifyChunkTokens(*this, {{"m", getM()}, {"dx", getDx()}}));
  if (Named written{"written", getWritten()}; written.value)
    CHECK(verifyFactor(*this, written, getClassId(), {"m", getM()}, 4, static_cast<int64_t>(getChunkSize())));
  CHECK(isLike(*this, {"d_o", getDO()}, {"v", getV()}));
  CHECK(isLike(*this, {"dq", getDq()}, {"q", getQ()}));
  CHECK(isLike(*this, {"dk", getDk()}, {"k", getK()}));
  CHECK(isLike(*this, {"dv", getDv()}, {"v", getV()}));
  return verifyGateCotangents(*this);
}
LogicalResult LsmSegmentScanOp::verify() {
  Named x{"x", getX()}, chunks{"chunks", getChunks()}, state{"state", getState()};
  CHECK(hasRank(*this, x, 5));
  CHECK(isFloat(*this, x));
  CHECK(verifyChunks(*this, chunks, x));
  CHECK(sameDim(*this, "chunk", x, 1, chunks, 1));
  CHECK(hasSegments(*this, getClassId()));
  CHECK(verifyTransition(*this, getClassId(), getP(), x));
  CHECK(verifySegment(*this, state, x, x));
  if (getAdjoint() == static_cast<bool>(getTransition()))
    return emitOpError() << (getAdjoint() ? "is an adjoint and gives no transition" : "must give a transition");
  return getTransition() ? verifyFactors(*this, {"transition", getTransition()}, state, factorRank(getClassId()))
                         : success();
}

//===- Segments ---------------------------------------------------------------------------------------------------===//

LogicalResult LsmSegmentOp::verify() {
  CHECK(verifyTokens(*this, Value(), /*takesUpdates=*/true));
  Named k = ofUpdates(*this, "k", getK()), x{"x", getX()};
  CHECK(hasSegments(*this, getClassId()));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, k));
  CHECK(verifyChunkSize(*this, getChunkSize()));
  CHECK(verifySegment(*this, x, k, {"v", getV()}));
  return verifyFactors(*this, {"p", getP()}, x, factorRank(getClassId()));
}
LogicalResult LsmSegmentGradOp::verify() {
  CHECK(verifyTokens(*this, getQ(), /*takesUpdates=*/true));
  Named k = ofUpdates(*this, "k", getK());
  CHECK(hasSegments(*this, getClassId()));
  CHECK(isDocuments(*this, {"documents", getDocuments()}, k));
  CHECK(verifyChunkSize(*this, getChunkSize()));
  CHECK(isOutput(*this, {"d_o", getDO()}));
  return verifySegment(*this, {"dx", getDx()}, k, {"v", getV()});
}

/// Shared by the fold and its adjoint.
static LogicalResult verifyFold(Operation *op, Named p, Named x, Named carry, Value coordinate, Named at, Named last) {
  CHECK(hasRank(op, x, 5));
  CHECK(isFloat(op, x));
  CHECK(verifyFactors(op, p, x));
  CHECK(hasRank(op, carry, 4));
  CHECK(sameElement(op, carry, x));
  static constexpr StringLiteral words[] = {"batch", "head", "key dimension", "value dimension"};
  for (int64_t i = 0; i < 4; ++i)
    CHECK(sameDim(op, words[i], carry, i, x, i + 1));
  CHECK(isCoordinate(op, coordinate));
  CHECK(sameType(op, at, carry));
  return sameType(op, last, carry);
}
LogicalResult LsmFoldOp::verify() {
  return verifyFold(*this, {"p", getP()}, {"x", getX()}, {"carry", getCarry()}, getCoordinate(),
                    {"initial", getInitial()}, {"next", getNext()});
}
LogicalResult LsmFoldGradOp::verify() {
  return verifyFold(*this, {"p", getP()}, {"dx", getDx()}, {"dnext", getDnext()}, getCoordinate(),
                    {"dfinal", getDfinal()}, {"dcarry", getDcarry()});
}
LogicalResult LsmComposeOp::verify() {
  Named p{"p", getP()}, x{"x", getX()};
  CHECK(hasRank(*this, x, 5));
  CHECK(isFloat(*this, x));
  CHECK(verifyFactors(*this, p, x));
  if (x.dim(0) != 1)
    return emitOpError() << "x holds " << x.dim(0) << " segments but must hold 1";
  CHECK(sameType(*this, {"x_other", getXOther()}, x));
  CHECK(sameType(*this, {"result", getResult()}, x));
  if (static_cast<bool>(getPOther()) != static_cast<bool>(getTransition()))
    return emitOpError() << "gives a transition where p_other is given and only there";
  if (!getPOther())
    return success();
  CHECK(sameType(*this, {"p_other", getPOther()}, p));
  return sameType(*this, {"transition", getTransition()}, p);
}
