//===- LsmOps.td - the affine scan and its chunk forms -----------------------------------------------------------===//
//
//   M_t = Theta_t M_{t-1} + k_t^T v_t      o_t = scale q_t M_t      (row-vector convention, lsm-family.md 1, 2, 4)
//
//   class  operands beyond q k v                         Theta_t
//   I      -                                             identity
//   S0     log_decay [H] (whole)                         exp(g_h)
//   S      log_decay [B, T, H] f32                       exp(g_t)
//   V      log_decay [B, T, H, K] f32                    diag(exp g_t)
//   H      beta [B, T, H]                                I - beta_t k_t^T k_t        write: beta_t k_t^T v_t
//   GH     log_decay [B, T, H], beta [B, T, H]           (I - beta_t k_t^T k_t) exp(g_t)
//   VH     log_decay [B, T, H, K] f32, beta [B, T, H]    (I - beta_t k_t^T k_t) diag(exp g_t)
//   D      log_decay [B, T, H, K] f32, a, b [B, T, H, K] diag(exp g_t) + b_t^T a_t
//   R      log_decay [B, T, H, K] f32, value_decay [B, T, H, V] f32:   diag(exp g_t) M diag(exp h_t)
//   E      log_decay [B, T, H, K, V] f32                 exp(G_t) * M, elementwise: no matrix form
//          or log_decay [H, K, V] (whole) f32, value_decay [B, T, H, V] f32:  G_t = log_decay * value_decay_t, in no memory
//
// q, k [B, T, H, K], v, o [B, T, H, V]; states f32 [B, H, K, V]; documents [B, T] (braid.documents): where a document
// begins inside the row the state restarts from zero; a document that began before the row continues initial_state.
//
// Several updates per token: k, v and gates [B, T, n, H, ..] instead of [B, T, H, ..]. The token's state takes them one after the other, q
// reads it behind the last (DeltaProduct, Siems et al. 2025: n Householder factors). Of log_decay [H] and [H, K, V] every update decays.
// braid-expand-updates makes of it the scan over n T places, so that what comes behind knows one update.
//
// lsm.inner_step is the scan whose update is a step of gradient descent (lsm-family.md 5.13, 5.14): below, after the scan.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_LSM_OPS
#define BRAID_LSM_OPS

include "dialects/braid/BraidDialect.td"
include "dialects/braid/BraidEnums.td"
include "dialects/braid/BraidInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Braid_LsmOp<string mnemonic, list<Trait> traits = []> : Braid_Op<"lsm." # mnemonic,
    !listconcat([Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<Braid_TokenOpInterface, ["carryOf", "carryReversed"]>], traits)> {
  let hasVerifier = 1;
}
defvar scanOperands = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, Optional<AnyRankedTensor>:$log_decay,
                       Optional<AnyRankedTensor>:$beta, Optional<AnyRankedTensor>:$a, Optional<AnyRankedTensor>:$b,
                       Optional<AnyRankedTensor>:$value_decay);
defvar scanAttrs = (ins Braid_LsmClass:$class_id, F64Attr:$scale);

// Text form: the class, the tokens, then every other operand under its name.
defvar gatesFormat = "(`log_decay` `(` $log_decay^ `)`)? (`beta` `(` $beta^ `)`)? (`a` `(` $a^ `)`)? (`b` `(` $b^ `)`)? (`value_decay` `(` $value_decay^ `)`)?";
defvar tokensFormat = !strconcat("$class_id $q `,` $k `,` $v ", gatesFormat);
defvar stateFormat = "`initial_state` `(` $initial_state `)` `documents` `(` $documents `)`";
defvar chunksFormat = "`chunks` `(` $chunks `)`";
defvar typesFormat = "attr-dict `:` functional-type(operands, results)";

def Braid_LsmScanOp : Braid_LsmOp<"scan", [DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>]> {
  let summary = "the affine scan over tokens";
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$initial_state, AnyRankedTensor:$documents), scanAttrs,
                       (ins OptionalAttr<I64Attr>:$chunk_size));
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat(tokensFormat, " ", stateFormat, " ", typesFormat);
}
def Braid_LsmScanGradOp : Braid_LsmOp<"scan_grad"> {
  let summary = "adjoint of the scan (lsm-family 3.1, 3.3): cotangents of q, k, v, the gates, initial_state";
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$initial_state, AnyRankedTensor:$documents, AnyRankedTensor:$d_o,
                       AnyRankedTensor:$dfinal_state), scanAttrs, (ins OptionalAttr<I64Attr>:$chunk_size));
  // dgates: of the gates that the class takes and trains (log_decay but for S0, beta, a, b, value_decay), in this order. Of a
  // whole log_decay of class E the sum over all tokens.
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, Variadic<AnyRankedTensor>:$dgates,
                 AnyRankedTensor:$dinitial_state);
  let assemblyFormat = !strconcat(tokensFormat, " ", stateFormat, " `cotangents` `(` $d_o `,` $dfinal_state `)` ", typesFormat);
}
def Braid_LsmStepOp : Braid_LsmOp<"step"> {
  let summary = "one token per sequence (T = 1): the scan without chunks, for decoding";
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$initial_state, AnyRankedTensor:$documents), scanAttrs);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat(tokensFormat, " ", stateFormat, " ", typesFormat);
}

// ---- the inner step: the state is a model that learns while it reads ---------------------------------------------------
//   u_t = dL/dz at z = k_t B:   z - v_t, the gradient of |z - v_t|^2 / 2; with a norm that of |LN(z; w, b) - v_t|^2 / 2
//   S_t = exp(e_t) S_{t-1} - rate_t k_t^T u_t      M_t = exp(g_t) M_{t-1} + S_t                     o_t = q_t M_t
//   S_t = S_{t-1} - rate_t k_t^T u_t               M_t = B + r_t S_t, S = 0 after a mini-batch      with a read_rate r
// B is M as it was when the mini-batch of `mini_batch` tokens began, counted from the beginning of the document: inside
// a mini-batch no step sees another, hence a matrix form. e = log_momentum (none: S_t is the step alone), g = log_decay
// (none: 0), both [B, T, H] as rate and r; norm: w, b [H, V]; weights [H, K, V]: M where a document begins (none: 0).
//
//   class  operands                         M and S over a mini-batch
//   G1     no log_momentum, no norm         affine in M
//   GM     log_momentum, or read_rate       affine in [M; S]
//   N      norm                             nonlinear: states cannot be composed
// A mini-batch of one token without norm, momentum, read_rate and weights is a scan of class H or D: ClassifyScans.
//
// The state [B, H, R, V] holds planes of K rows: M; S where there is log_momentum or read_rate; B where a mini-batch has
// several tokens and there is no read_rate, which keeps B in M until the mini-batch ends.
defvar innerGates = (ins AnyRankedTensor:$rate, Optional<AnyRankedTensor>:$log_decay, Optional<AnyRankedTensor>:$log_momentum,
                     Optional<AnyRankedTensor>:$read_rate);
defvar innerNorm = (ins Optional<AnyRankedTensor>:$norm_weight, Optional<AnyRankedTensor>:$norm_bias);
defvar innerOperands = !con((ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v), innerGates, innerNorm,
                            (ins Optional<AnyRankedTensor>:$weights));
defvar innerAttrs = (ins I64Attr:$mini_batch, DefaultValuedAttr<F64Attr, "1e-6">:$norm_eps);
defvar innerGatesFormat = !strconcat("`rate` `(` $rate `)` (`log_decay` `(` $log_decay^ `)`)? (`log_momentum` `(` $log_momentum^ `)`)? ",
    "(`read_rate` `(` $read_rate^ `)`)? ");
defvar innerNormFormat = "(`norm` `(` $norm_weight^ `,` $norm_bias `)`)? (`weights` `(` $weights^ `)`)? ";
defvar innerFormat = !strconcat("$q `,` $k `,` $v ", innerGatesFormat, innerNormFormat);
defvar insideFormat = "`residuals` `(` $residuals `)` (`initial_state` `(` $initial_state^ `)`)? `in_state` `(` $states `)` ";

def Braid_LsmInnerStepOp : Braid_LsmOp<"inner_step", [DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>]> {
  let summary = "the scan over a state that gradient steps update; of one token also the step of decoding";
  let arguments = !con(innerOperands, (ins AnyRankedTensor:$initial_state, AnyRankedTensor:$documents), innerAttrs);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat(innerFormat, stateFormat, " ", typesFormat);
}
def Braid_LsmInnerStepGradOp : Braid_LsmOp<"inner_step_grad"> {
  let summary = "adjoint of inner_step: cotangents of q, k, v, of what else is given, and of initial_state";
  let arguments = !con(innerOperands, (ins AnyRankedTensor:$initial_state, AnyRankedTensor:$documents, AnyRankedTensor:$d_o,
                       AnyRankedTensor:$dfinal_state), innerAttrs);
  // dothers: rate, log_decay, log_momentum, read_rate, then (sums over tokens) norm_weight, norm_bias, weights, as far as given.
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, Variadic<AnyRankedTensor>:$dothers,
                 AnyRankedTensor:$dinitial_state);
  let assemblyFormat = !strconcat(innerFormat, stateFormat, " `cotangents` `(` $d_o `,` $dfinal_state `)` ", typesFormat);
}

// ---- phase `chunked`: n = ceil(T / C) + max_documents rows in the table; unused rows are empty -----------------------
// chunks [B, n, 4] i32: lo, hi (tokens [lo, hi)), restart (1: the state before lo is zero), phase (tokens of the document
// before lo, modulo chunk_size; 0 unless aligned).
// Per chunk: X = state from a zero state, P = its transition (I: absent; S0, S: [B, n, H] log; V: [B, n, H, K] log;
// R: [B, n, H, K + V] log; E: [B, n, H, K, V] log; H, GH, VH, D: dense [B, n, H, K, K]); in-states M [B, n, H, K, V], all f32. For GPUs M, their
// cotangents D' and dense P are bf16 where tokens are: [B, n, H, K + 3, K] then, P less diag(exp(c_C)) and the decays exp(c_C) as three rows
// whose sum they are exactly: what decays is not rounded.
// Where tokens are bf16 and chunks no longer than keys are wide, dense P and X of a GPU are not made. Kept is what they are products of (factors):
//   P = diag(decay) + write_1^T read,   X = write^T u,   write [B, n, H, R, K], read [B, n, H, C, K], u [B, n, H, R, V], decay exp(c_C): [B, n, H], VH, D: [B, n, H, 1, K]
//   H, GH, VH: R = C, write = beta K exp(c_C - c), read = -(I + A)^-1 (exp(c) K), u = (I + A)^-1 V, A_ij = k_i (beta_j k_j)^T exp(c_i - c_j);   D: R = 2 C, write = [B; K] exp(c_C - c), read = (I - A_ab)^-1 A exp(c^), u = [Z0; V]
//   with write_1 and u_1 their first C rows; of a token, written = u_1 + read M is U less its beta (H, GH, VH) or Z (D): chunk_output and chunk_grad read it.
class Braid_ChunkOp<string mnemonic, list<Trait> traits = [AttrSizedOperandSegments]> : Braid_Op<"lsm." # mnemonic, !listconcat([Pure], traits)> {
  let hasVerifier = 1;
}

def Braid_LsmChunkTableOp : Braid_Op<"lsm.chunk_table", [Pure]> {
  let summary = "chunk edges: every chunk_size tokens within a document, and document edges";
  let description = [{ `aligned`: counted from the beginning of the document, also where that is before the row (one more row then). }];
  let arguments = (ins AnyRankedTensor:$documents, I64Attr:$chunk_size, UnitAttr:$aligned);
  let results = (outs AnyRankedTensor:$chunks);
  let hasVerifier = 1;
}
def Braid_LsmChunkStateOp : Braid_ChunkOp<"chunk_state"> {
  let summary = "X and P of every chunk";
  let arguments = (ins AnyRankedTensor:$k, AnyRankedTensor:$v, Optional<AnyRankedTensor>:$log_decay, Optional<AnyRankedTensor>:$beta,
                   Optional<AnyRankedTensor>:$a, Optional<AnyRankedTensor>:$b, Optional<AnyRankedTensor>:$value_decay,
                   AnyRankedTensor:$chunks, Braid_LsmClass:$class_id, I64Attr:$chunk_size);
  let results = (outs AnyRankedTensor:$x, Optional<AnyRankedTensor>:$p);
  let assemblyFormat = !strconcat("$class_id $k `,` $v ", gatesFormat, " ", chunksFormat, " ", typesFormat);
}
def Braid_LsmStateScanOp : Braid_ChunkOp<"state_scan", []> {
  let summary = "in-state of every chunk, and the state after the last token: M <- P M + X";
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$p, AnyRankedTensor:$initial_state,
                   AnyRankedTensor:$chunks, Braid_LsmClass:$class_id);
  let results = (outs AnyRankedTensor:$m, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat("$class_id $x (`transition` `(` $p^ `)`)? `initial_state` `(` $initial_state `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmStateWalkOp : Braid_ChunkOp<"state_walk", []> {
  let summary = "chunk_state and state_scan in one (S, V): every chunk's in-state, and the state after the last token; no X or P in memory";
  let description = [{
    M <- exp(c_C) M + (K exp(c_C - c))^T V. `adjoint`: chunk_output_grad_state and state_scan_grad, of q and d_o, last chunk first: m is D' of
    every chunk's out-state, D <- exp(c_C) D + scale (Q exp(c))^T dO.
  }];
  let arguments = (ins AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$log_decay, AnyRankedTensor:$state, AnyRankedTensor:$chunks,
                   Braid_LsmClass:$class_id, F64Attr:$scale, I64Attr:$chunk_size, UnitAttr:$adjoint);
  let results = (outs AnyRankedTensor:$m, AnyRankedTensor:$last);
  let assemblyFormat = !strconcat("$class_id $k `,` $v `log_decay` `(` $log_decay `)` `state` `(` $state `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmOutputWalkOp : Braid_ChunkOp<"output_walk"> {
  let summary = "state_walk and chunk_output in one (I, S0, S, V, H, GH): o of every token and the state after the last; no state of a chunk in memory";
  let description = [{
    The chunk form of gated linear attention (Yang et al. 2024, arXiv:2312.06635, equations 3 and 4; lsm-family 4.1), chunk after chunk with M where it is multiplied:
    O = scale ((Q exp(c)) M + S V), S_ij = q_i k_j^T exp(c_i - c_j) for j <= i, then M <- exp(c_C) M + (K exp(c_C - c))^T V. c [C] are log decays, in units of e, added
    up from the chunk's first token; of class V [C, K], each channel its own, where a kernel may take what a token decays by below exp(-10) for that. q, k [B, T, H, K], v, o [B, T, H, V], log_decay as the scan has it, states [B, H, K, V], chunks [B, n, 4] of chunk_size tokens.
    The backward makes what it needs of states itself. H, GH: U = T (V - exp(c) K M) stands for V, T and c the results of lsm.chunk_inverse (lsm-family 4.4).
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, Optional<AnyRankedTensor>:$log_decay, Optional<AnyRankedTensor>:$inverse,
                   Optional<AnyRankedTensor>:$sums, AnyRankedTensor:$initial_state, AnyRankedTensor:$chunks, Braid_LsmClass:$class_id, F64Attr:$scale, I64Attr:$chunk_size);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat("$class_id $q `,` $k `,` $v (`log_decay` `(` $log_decay^ `)`)? (`inverse` `(` $inverse^ (`,` $sums^)? `)`)? ",
                                  "`initial_state` `(` $initial_state `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkInverseOp : Braid_ChunkOp<"chunk_inverse", []> {
  let summary = "what rows of a chunk of H and GH write for what they should: T = (I + A)^-1 diag(beta), A_ij = beta_i k_i k_j^T exp(c_i - c_j) for j < i";
  let description = [{
    The UT transform of delta rules (Yang et al. 2024, arXiv:2406.06484, equation 10), without the products by keys and values: of all that chunk_factors makes it is the
    part that no walk over chunks can wait for, C x C numbers a chunk. inverse [B, n, H, C, C], zero above the diagonal; sums [B, n, H, 3 C] of GH are c, each log
    decay as one of -128 at least, exp(c) and exp(c_C - c). Chunks without tokens have neither.
  }];
  let arguments = (ins AnyRankedTensor:$k, Optional<AnyRankedTensor>:$log_decay, AnyRankedTensor:$beta, AnyRankedTensor:$chunks,
                   Braid_LsmClass:$class_id, I64Attr:$chunk_size);
  let results = (outs AnyRankedTensor:$inverse, Optional<AnyRankedTensor>:$sums);
  let assemblyFormat = !strconcat("$class_id $k (`log_decay` `(` $log_decay^ `)`)? `beta` `(` $beta `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkWalkFactorsOp : Braid_ChunkOp<"chunk_walk_factors", []> {
  let summary = "what a walk over chunks multiplies a state, and what it finds left of V, by (VH)";
  let description = [{
    With X = V - keys M a chunk gives O = queries M + scores X and M <- decay M + write^T X: queries = scale Q exp(c), keys = K exp(c), scores = scale S T,
    write = T^T (beta K exp(c_C - c)), decay = exp(c_C), T = (I + A)^-1 the UT transform (Yang et al. 2024, arXiv:2406.06484, equation 10; under decays of channels:
    Kimi Team 2025, arXiv:2510.26692). T stands in what reads and writes, so a walk multiplies by no triangle. queries, keys, write [B, n, H, C, K], scores [B, n, H, C, C], zero above
    the diagonal, decay [B, n, H, 1, K]. Chunks without tokens have none.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$log_decay, AnyRankedTensor:$beta, AnyRankedTensor:$chunks, Braid_LsmClass:$class_id,
                   F64Attr:$scale, I64Attr:$chunk_size);
  let results = (outs AnyRankedTensor:$queries, AnyRankedTensor:$keys, AnyRankedTensor:$write, AnyRankedTensor:$scores, AnyRankedTensor:$decay);
  let assemblyFormat = !strconcat("$class_id $q `,` $k `log_decay` `(` $log_decay `)` `beta` `(` $beta `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmFactorWalkOp : Braid_ChunkOp<"factor_walk", []> {
  let summary = "factor_scan and chunk_output in one (VH): o of every token and the state after the last; no state of a chunk in memory";
  let description = [{ X = V - keys M, O = queries M + scores X, M <- decay M + write^T X, by the results of lsm.chunk_walk_factors. v, o [B, T, H, V], states [B, H, K, V]. }];
  let arguments = (ins AnyRankedTensor:$queries, AnyRankedTensor:$keys, AnyRankedTensor:$write, AnyRankedTensor:$scores, AnyRankedTensor:$decay, AnyRankedTensor:$v,
                   AnyRankedTensor:$initial_state, AnyRankedTensor:$chunks, Braid_LsmClass:$class_id);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat("$class_id `factors` `(` $queries `,` $keys `,` $write `,` $scores `,` $decay `)` $v `initial_state` `(` $initial_state `)` ",
                                  chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkFactorsOp : Braid_ChunkOp<"chunk_factors"> {
  let summary = "dense P and X of every chunk as products of few rows";
  let arguments = (ins AnyRankedTensor:$k, AnyRankedTensor:$v, Optional<AnyRankedTensor>:$log_decay, Optional<AnyRankedTensor>:$beta,
                   Optional<AnyRankedTensor>:$a, Optional<AnyRankedTensor>:$b, Optional<AnyRankedTensor>:$value_decay,
                   AnyRankedTensor:$chunks, Braid_LsmClass:$class_id, I64Attr:$chunk_size);
  let results = (outs AnyRankedTensor:$u, AnyRankedTensor:$write, AnyRankedTensor:$read, Optional<AnyRankedTensor>:$decay);
  let assemblyFormat = !strconcat("$class_id $k `,` $v ", gatesFormat, " ", chunksFormat, " ", typesFormat);
}
def Braid_LsmFactorScanOp : Braid_ChunkOp<"factor_scan", []> {
  let summary = "state_scan by factors: written = u + read M, M <- decay M + write^T written";
  let arguments = (ins AnyRankedTensor:$u, AnyRankedTensor:$write, AnyRankedTensor:$read, Optional<AnyRankedTensor>:$decay,
                   AnyRankedTensor:$initial_state, AnyRankedTensor:$chunks, Braid_LsmClass:$class_id);
  let results = (outs AnyRankedTensor:$m, AnyRankedTensor:$written, AnyRankedTensor:$final_state);
  let assemblyFormat = !strconcat("$class_id $u `factors` `(` $write `,` $read (`,` $decay^)? `)` `initial_state` `(` $initial_state `)` ",
                                  chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkOutputFactorsOp : Braid_ChunkOp<"chunk_output_factors"> {
  let summary = "factors of the cotangent of every chunk's in-state through its own outputs: dM = g^T d";
  let description = [{ o = g M + what the chunk writes: g [B, n, H, C, K], `read` that of chunk_factors. d [B, n, H, C, V] is d_o, chunk by chunk. }];
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$read, AnyRankedTensor:$d_o, AnyRankedTensor:$chunks), scanAttrs,
                       (ins I64Attr:$chunk_size));
  let results = (outs AnyRankedTensor:$g, AnyRankedTensor:$d);
  let assemblyFormat = !strconcat(tokensFormat, " `factors` `(` $read `)` `cotangents` `(` $d_o `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmFactorScanGradOp : Braid_ChunkOp<"factor_scan_grad", []> {
  let summary = "state_scan_grad by factors: D <- decay D + read^T write_1 D + g^T d, last chunk first";
  let arguments = (ins AnyRankedTensor:$g, AnyRankedTensor:$d, AnyRankedTensor:$write, AnyRankedTensor:$read, Optional<AnyRankedTensor>:$decay,
                   AnyRankedTensor:$dfinal_state, AnyRankedTensor:$chunks, Braid_LsmClass:$class_id);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dinitial_state);
  let assemblyFormat = !strconcat("$class_id `factors` `(` $write `,` $read (`,` $decay^)? `)` `cotangents` `(` $g `,` $d `,` $dfinal_state `)` ",
                                  chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkOutputOp : Braid_ChunkOp<"chunk_output"> {
  let summary = "o of every chunk from its in-state (lsm-family 4.1 to 4.6)";
  let description = [{ `written`: [B, n, H, C, V], where factors are scanned. }];
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$m, Optional<AnyRankedTensor>:$written, AnyRankedTensor:$chunks), scanAttrs,
                       (ins I64Attr:$chunk_size));
  let results = (outs AnyRankedTensor:$o);
  let assemblyFormat = !strconcat(tokensFormat, " `in_state` `(` $m `)` (`written` `(` $written^ `)`)? ", chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkOutputGradStateOp : Braid_ChunkOp<"chunk_output_grad_state"> {
  let summary = "cotangent of every chunk's in-state through its own outputs only";
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$d_o, AnyRankedTensor:$chunks), scanAttrs, (ins I64Attr:$chunk_size));
  let results = (outs AnyRankedTensor:$dm);
  let assemblyFormat = !strconcat(tokensFormat, " `cotangents` `(` $d_o `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmStateScanGradOp : Braid_ChunkOp<"state_scan_grad", []> {
  let summary = "cotangent D' of every chunk's out-state, and of the initial state: D <- P^T D + dM, last chunk first";
  let arguments = (ins AnyRankedTensor:$dm, Optional<AnyRankedTensor>:$p, AnyRankedTensor:$dfinal_state,
                   AnyRankedTensor:$chunks, Braid_LsmClass:$class_id);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dinitial_state);
  let assemblyFormat = !strconcat("$class_id (`transition` `(` $p^ `)`)? `cotangents` `(` $dm `,` $dfinal_state `)` ", chunksFormat, " ", typesFormat);
}
def Braid_LsmChunkGradOp : Braid_ChunkOp<"chunk_grad"> {
  let summary = "all cotangents inside a chunk, given its in-state M and the cotangent dx = D' of its out-state";
  // written: of a delta rule, where factors gave the states.
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$m, Optional<AnyRankedTensor>:$written, AnyRankedTensor:$dx, AnyRankedTensor:$d_o,
                                          AnyRankedTensor:$chunks),
                       scanAttrs, (ins I64Attr:$chunk_size));
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, Variadic<AnyRankedTensor>:$dgates);
  let assemblyFormat = !strconcat(tokensFormat, " `in_state` `(` $m `)` (`written` `(` $written^ `)`)? `cotangents` `(` $dx `,` $d_o `)` ", chunksFormat, " ", typesFormat);
}

// Inner steps: a chunk is a mini-batch or a part of one. States before each chunk [B, n, H, R, V] have planes M and, with
// log_momentum, S: only a row's first chunk may begin inside a mini-batch, and what B (or S with a read_rate) is there says
// initial_state. Of every token [B, T, H, V], in the type that kernels compute in: residuals u, and with a norm
// predictions z = k B.
def Braid_LsmInnerStatesOp : Braid_ChunkOp<"inner_states"> {
  let summary = "the state before every chunk and after the last token, the inner gradient of every token";
  let arguments = !con((ins AnyRankedTensor:$k, AnyRankedTensor:$v), innerGates, innerNorm, (ins Optional<AnyRankedTensor>:$weights,
                       AnyRankedTensor:$initial_state, AnyRankedTensor:$chunks), innerAttrs);
  let results = (outs AnyRankedTensor:$states, AnyRankedTensor:$final_state, AnyRankedTensor:$residuals,
                 Optional<AnyRankedTensor>:$predictions);
  let assemblyFormat = !strconcat("$k `,` $v ", innerGatesFormat, innerNormFormat, "`initial_state` `(` $initial_state `)` ",
                                  chunksFormat, " ", typesFormat);
}
def Braid_LsmInnerOutputOp : Braid_ChunkOp<"inner_output"> {
  let summary = "o of every chunk from the state before it";
  // initial_state: with a read_rate.
  let arguments = !con((ins AnyRankedTensor:$q, AnyRankedTensor:$k), innerGates,
                       (ins AnyRankedTensor:$residuals, Optional<AnyRankedTensor>:$initial_state, AnyRankedTensor:$states,
                        AnyRankedTensor:$chunks, I64Attr:$mini_batch));
  let results = (outs AnyRankedTensor:$o);
  let assemblyFormat = !strconcat("$q `,` $k ", innerGatesFormat, insideFormat, chunksFormat, " ", typesFormat);
}
def Braid_LsmInnerGradOp : Braid_ChunkOp<"inner_grad"> {
  let summary = "all cotangents of inner_step, last chunk first";
  // initial_state: where states have a plane that those of chunks do not have.
  let arguments = !con(innerOperands, (ins Optional<AnyRankedTensor>:$predictions, AnyRankedTensor:$residuals,
                       Optional<AnyRankedTensor>:$initial_state, AnyRankedTensor:$states, AnyRankedTensor:$chunks,
                       AnyRankedTensor:$d_o, AnyRankedTensor:$dfinal_state), innerAttrs);
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, Variadic<AnyRankedTensor>:$dothers,
                 AnyRankedTensor:$dinitial_state);
  let assemblyFormat = !strconcat(innerFormat, "(`predictions` `(` $predictions^ `)`)? ", insideFormat, chunksFormat,
                                  " `cotangents` `(` $d_o `,` $dfinal_state `)` ", typesFormat);
}

def Braid_LsmSegmentScanOp : Braid_ChunkOp<"segment_scan", []> {
  let summary = "P and X of a whole row from those of its chunks (lsm.segment); `adjoint`: dX from dM, last chunk first";
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$p, AnyRankedTensor:$chunks, Braid_LsmClass:$class_id,
                   UnitAttr:$adjoint);
  let results = (outs Optional<AnyRankedTensor>:$transition, AnyRankedTensor:$state);
  let assemblyFormat = !strconcat("$class_id $x (`transition` `(` $p^ `)`)? ", chunksFormat, " ", typesFormat);
}

// ---- segments: what ranks along `sp` exchange ------------------------------------------------------------------------
// A span of tokens is the affine map M -> P M + X (lsm-family 2.2); segments [s, B, H, ..] are s spans in sequence order.
//   X [s, B, H, K, V]: the state after the span from a zero state;
//   P, a factor and no logarithm: [s, B, H] (I, S0, S), [s, B, H, K] (V), [s, B, H, K, K] (H, GH, VH, D); R and E have no segments yet.
// P is 0 where a document begins inside the span, so a fold needs no documents and nothing infinite travels. All f32.
def Braid_LsmSegmentOp : Braid_ChunkOp<"segment"> {
  let summary = "P [1, B, H, ..] and X [1, B, H, K, V] of this rank's tokens";
  let arguments = (ins AnyRankedTensor:$k, AnyRankedTensor:$v, Optional<AnyRankedTensor>:$log_decay, Optional<AnyRankedTensor>:$beta,
                   Optional<AnyRankedTensor>:$a, Optional<AnyRankedTensor>:$b, Optional<AnyRankedTensor>:$value_decay,
                   AnyRankedTensor:$documents, Braid_LsmClass:$class_id, OptionalAttr<I64Attr>:$chunk_size);
  let results = (outs AnyRankedTensor:$p, AnyRankedTensor:$x);
  let assemblyFormat = !strconcat("$class_id $k `,` $v ", gatesFormat, " `documents` `(` $documents `)` ", typesFormat);
}
def Braid_LsmSegmentGradOp : Braid_ChunkOp<"segment_grad"> {
  let summary = "dX [1, B, H, K, V]: cotangent of the state before the span through the span's own outputs";
  let arguments = !con(scanOperands, (ins AnyRankedTensor:$documents, AnyRankedTensor:$d_o), scanAttrs,
                       (ins OptionalAttr<I64Attr>:$chunk_size));
  let results = (outs AnyRankedTensor:$dx);
  let assemblyFormat = !strconcat(tokensFormat, " `documents` `(` $documents `)` `cotangents` `(` $d_o `)` ", typesFormat);
}
def Braid_LsmFoldOp : Braid_ChunkOp<"fold", []> {
  let summary = "M = carry; for each segment: M <- P M + X. `initial`: M before segment coordinate[0]; `next`: M after the last";
  let arguments = (ins AnyRankedTensor:$p, AnyRankedTensor:$x, AnyRankedTensor:$carry, AnyRankedTensor:$coordinate);
  let results = (outs AnyRankedTensor:$initial, AnyRankedTensor:$next);
  let assemblyFormat = !strconcat("$p `,` $x `carry` `(` $carry `)` `coordinate` `(` $coordinate `)` ", typesFormat);
}
def Braid_LsmFoldGradOp : Braid_ChunkOp<"fold_grad", []> {
  let summary = "D = dnext; for each segment, last first: D <- P^T D + dX. `dfinal`: D before segment coordinate[0]; `dcarry`: the last D";
  let arguments = (ins AnyRankedTensor:$p, AnyRankedTensor:$dx, AnyRankedTensor:$dnext, AnyRankedTensor:$coordinate);
  let results = (outs AnyRankedTensor:$dfinal, AnyRankedTensor:$dcarry);
  let assemblyFormat = !strconcat("$p `,` $dx `carry` `(` $dnext `)` `coordinate` `(` $coordinate `)` ", typesFormat);
}
def Braid_LsmComposeOp : Braid_ChunkOp<"compose", []> {
  let summary = "one segment from two neighbours: P P_other, P X_other + X; `adjoint`: P_other P, P^T X_other + X";
  let description = [{
    `other` is the span before (adjoint: after) this one. Without p_other only x results: then x_other is a state.
  }];
  let arguments = (ins AnyRankedTensor:$p, AnyRankedTensor:$x, AnyRankedTensor:$x_other, Optional<AnyRankedTensor>:$p_other,
                   UnitAttr:$adjoint);
  let results = (outs AnyRankedTensor:$result, Optional<AnyRankedTensor>:$transition);
  let assemblyFormat = !strconcat("$p `,` $x `other` `(` $x_other (`,` $p_other^)? `)` ", typesFormat);
}

#endif // BRAID_LSM_OPS
