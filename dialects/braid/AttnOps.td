//===- AttnOps.td - causal softmax attention ---------------------------------------------------------------------===//
#ifndef BRAID_ATTN_OPS
#define BRAID_ATTN_OPS

include "dialects/braid/BraidDialect.td"
include "dialects/braid/BraidInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Braid_AttnCausalOp : Braid_Op<"attn.causal", [Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<Braid_TokenOpInterface>,
    DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>]> {
  let summary = "softmax(scale q k^T) v over the keys of the token's own document up to itself; never T x T in memory";
  let description = [{
    q [B, T, H, D], o [B, T, H, V]; k [B, S, G, D], v [B, S, G, V], head h reads group h G / H; documents [B, T]; residual lse [B, H, T] f32.
    `shared` (q_shared [B, T, H, R], k_shared [B, S, 1, R]): features of keys that all heads share; scores are q k^T + q_shared k_shared^T (the
    decoupled rotary positions of multi-head latent attention, DeepSeek-V2, arXiv:2405.04434, equations 14 to 19).
    Key s of token t: without `cache`, keys documents[t] + prefix <= s <= t + prefix (S = prefix + T: the K/V prefix of
    earlier slices); with `cache`, k and v are caches whose row 0 is the document's first token: 0 <= s <= t - documents[t].
    `window` w > 0 keeps the last w keys only. Online softmax in f32 (FlashAttention-2).
    Scores are scaled in f32; where the operands of products are rounded and nothing keeps scores in registers, q is scaled before it is rounded.
    `ring` (with `cache` and a window): row p mod S holds the key at position p of the document. The rows of these T tokens
    have been appended, so S >= w + T - 1 keeps every key that the first of them still sees.
    `past` (with `cache`): only what earlier calls appended, 0 <= s < -documents[t], along `sp` -documents[t] less the tokens of ranks before. A token without such keys has o = 0 and lse = -1e30 (attn.merge).
    Along `sp` a `coordinate` [1] i32 says that the row begins coordinate * T tokens before these. With the keys of all ranks
    (S = prefix + T ranks) the prefix is moved by as many; with those of neighbours (S = prefix + T) or with a block that lies
    before the tokens (S <= prefix) keys before the row do not exist.
    `keys`: k and v have room for the whole row, of which the first `keys` tokens are there, as if S were their number.
    `sinks` [H]: of each head one more score that no key has and no value belongs to (gpt-oss): the online softmax begins with m = sink, l = 1 instead of
    -inf and 0, and lse = log(exp(sink) + sum exp(scores)). A `softcap` c bounds scaled scores s: c tanh(s / c) (Gemma 2, arXiv:2408.00118), not sinks. Where attention over several sets of keys is merged, one of them has the sinks; no past has.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$documents,
                   Optional<AnyRankedTensor>:$coordinate, Variadic<AnyRankedTensor>:$shared, Optional<AnyRankedTensor>:$sinks,
                   F64Attr:$scale, DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<I64Attr, "0">:$prefix,
                   OptionalAttr<I64Attr>:$keys, UnitAttr:$cache, UnitAttr:$ring, UnitAttr:$past, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$o, AnyRankedTensor:$lse);
  let assemblyFormat = "$q `,` $k `,` $v `,` $documents (`,` $coordinate^)? (`shared` `(` $shared^ `)`)? (`sinks` `(` $sinks^ `)`)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Tokens of k and v that are there.
    int64_t keyCount();
  }];
}
def Braid_AttnCausalGradOp : Braid_Op<"attn.causal_grad", [Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "cotangents of q, k, v and shared (those of keys and values + sums); scores are recomputed from lse";
  let description = [{
    `sums`: what later tokens gave, shaped as dk, dv and, where keys have shared features, their cotangent, which adds up those of all heads; written over
    where nothing else reads it.
  }];
  let arguments = (ins AnyRankedTensor:$q, AnyRankedTensor:$k, AnyRankedTensor:$v, AnyRankedTensor:$documents, AnyRankedTensor:$o,
                   AnyRankedTensor:$lse, AnyRankedTensor:$d_o, Optional<AnyRankedTensor>:$coordinate, Variadic<AnyRankedTensor>:$shared,
                   Variadic<AnyRankedTensor>:$sums, F64Attr:$scale, DefaultValuedAttr<I64Attr, "0">:$window, DefaultValuedAttr<I64Attr, "0">:$prefix,
                   OptionalAttr<I64Attr>:$keys, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$dq, AnyRankedTensor:$dk, AnyRankedTensor:$dv, Variadic<AnyRankedTensor>:$dshared);
  let assemblyFormat = "$q `,` $k `,` $v `,` $documents `,` $o `,` $lse `,` $d_o (`,` $coordinate^)? (`shared` `(` $shared^ `)`)? (`sums` `(` $sums^ `)`)? attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Tokens of k and v that are there.
    int64_t keyCount();
  }];
}
def Braid_AttnSinkGradOp : Braid_Op<"attn.sink_grad", [Pure, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "dsinks [H] (piece): - sum over tokens of exp(sink - lse) <o, d_o>, in a fixed order";
  let description = [{ lse and o are those with the sinks. attn.causal_grad knows nothing of them: exp(scores - lse) and <o, d_o> are right as they stand. }];
  let arguments = (ins AnyRankedTensor:$sinks, AnyRankedTensor:$o, AnyRankedTensor:$lse, AnyRankedTensor:$d_o);
  let results = (outs AnyRankedTensor:$dsinks);
  let hasVerifier = 1;
}
def Braid_AttnMergeOp : Braid_Op<"attn.merge", [Pure]> {
  let summary = "attention over two sets of keys from that over each: o [B, T, H, D] weighted by exp(lse), and their lse [B, H, T]";
  let description = [{
    w_i = exp(lse_i - max(lse_1, lse_2)); o = (w_1 o_1 + w_2 o_2) / (w_1 + w_2). A block without keys has o = 0 and lse = -1e30.
  }];
  let arguments = (ins AnyRankedTensor:$o, AnyRankedTensor:$lse, AnyRankedTensor:$o_block, AnyRankedTensor:$lse_block);
  let results = (outs AnyRankedTensor:$o_both, AnyRankedTensor:$lse_both);
  let hasVerifier = 1;
}
def Braid_AttnAppendOp : Braid_Op<"attn.append", [Pure]> {
  let summary = "cache [B, S, G, D] with rows t - documents[t] (`ring`: modulo S, T <= S) replaced by x [B, T, G, D]; works in place";
  let arguments = (ins AnyRankedTensor:$cache, AnyRankedTensor:$x, AnyRankedTensor:$documents, UnitAttr:$ring);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

#endif // BRAID_ATTN_OPS
