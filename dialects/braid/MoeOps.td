//===- MoeOps.td - routing, plans, rows, experts (moe-family.md) -------------------------------------------------===//
//
//   logits [--scores, correction--> keys] --route--> ids, documents [--drop--> ids] --plan--> perm, inverse, counts, offsets
//   logits --route_weights--> weights [--renormalize--> weights]
//   x --dispatch(perm)--> rows --grouped_linear(offsets)--> rows --combine(weights, inverse)--> y
//
// N = B T tokens, assignment a = n top_k + j. Rows are sorted by (expert, token, slot). From `sharded` on the plan has one
// block of peer_rows rows per peer, and rows travel by all_to_all; an index of -1 is an empty row (0).
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_MOE_OPS
#define BRAID_MOE_OPS

include "dialects/braid/BraidBases.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Braid_MoeOp<string mnemonic, list<Trait> traits = []> : Braid_Op<"moe." # mnemonic, !listconcat([Pure,
    DeclareOpInterfaceMethods<Braid_TokenOpInterface>], traits)> { let hasVerifier = 1; }
class Braid_MoeDiffOp<string mnemonic, list<Trait> traits = []> :
    Braid_MoeOp<mnemonic, !listconcat([DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>], traits)>;

def Braid_MoeRouteOp : Braid_RowsOp<"moe.route"> {
  let summary = "expert_ids [B, T, k] i32: the k largest keys, larger first, ties to the lower index (moe-family 1.3)";
  let description = [{
    keys [B, T, E]: logits, scores, or scores with a correction that only selects (DeepSeek-V3, arXiv 2412.19437, eq. 16).
    `groups` > 1 (a divisor of E): only experts of the `kept_groups` groups of E / groups neighbouring experts with the largest sums of
    their `group_top` largest keys are eligible (DeepSeek-V2: 1, DeepSeek-V3: 2), ties to the lower index; the others count as -inf.
    Eligible keys come before NaN, NaN before what is not eligible; in sums of a group NaN is -inf.
  }];
  let arguments = (ins AnyRankedTensor:$keys, I64Attr:$top_k, DefaultValuedAttr<I64Attr, "1">:$groups,
                   DefaultValuedAttr<I64Attr, "1">:$kept_groups, DefaultValuedAttr<I64Attr, "1">:$group_top);
}
def Braid_MoeRouteWeightsOp : Braid_RowsOp<"moe.route_weights"> {
  let summary = "expert_weights [B, T, k] f32: scores s of the logits at expert_ids, divided by their sum when `normalize`";
  let description = [{ `score`: "softmax" over all experts; "sigmoid" (normalized: s_j / (sum_i s_i + 1e-20), moe-family 2.1). }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$expert_ids, BoolAttr:$normalize,
                   DefaultValuedAttr<StrAttr, "\"softmax\"">:$score);
}
def Braid_MoeRouterLossOp : Braid_RowsOp<"moe.router_loss"> {
  let summary = "per-token share [B, T] of balance and z losses, to be summed over all tokens";
  let description = [{
    balance * E / (k N^2) * sum_i c_i p_ni  +  z / N * lse_n^2, with counts c [E] i32 (whole: totals of the domain before
    anything is dropped, no gradient), N = sum_i c_i / k: the tokens of the whole domain that are no padding (moe-family 5.1, 5.2);
    p = softmax(logits), or with `score` "sigmoid" s_i / (sum_j s_j + 1e-20) of s = sigmoid(logits). 0 for padding (`documents`).
  }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$counts, AnyRankedTensor:$documents, I64Attr:$top_k,
                   F64Attr:$balance, F64Attr:$z, DefaultValuedAttr<StrAttr, "\"softmax\"">:$score);
}
def Braid_MoeCorrectOp : Braid_RowsOp<"moe.correct"> {
  let summary = "correction + rate sign(mean load - load) over the experts [1, layers, E]: once per update (moe-family 5.3)";
  let description = [{
    load: assignments of each expert in all batches of the update, on all ranks, before anything is dropped, as numbers (Wang et al.,
    arXiv 2408.15664, algorithm 1). An expert with the mean load keeps its correction: sign(0) = 0.
  }];
  let arguments = (ins AnyRankedTensor:$correction, AnyRankedTensor:$load, F64Attr:$rate);
}

def Braid_MoeRenormalizeOp : Braid_RowsOp<"moe.renormalize"> {
  let summary = "weights [B, T, k] of what a drop left (kept id >= 0), rescaled to the sum of all k; 0 elsewhere";
  let description = [{ w_j sum_i w_i / sum_{i kept} w_i (moe-family 3.2). A token that keeps nothing has weights 0. }];
  let arguments = (ins AnyRankedTensor:$weights, AnyRankedTensor:$kept);
}

def Braid_MoeDropOp : Braid_Op<"moe.drop", [Pure, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<Braid_TokenOpInterface, ["carryOf"]>]> {
  let hasVerifier = 1;
  let summary = "what the capacity of the experts leaves of the chosen ones (moe-family 3)";
  let description = [{
    ids [B, T, k] i32, documents [B, T] -> kept [B, T, k]: the id, or -1 where the assignment is dropped or the token is
    padding. Each row of the batch gives each of E experts `capacity` slots; who gets them is an order of the row's
    assignments (n, j):  "token"  n, j;  "slot"  j, n;  "score"  -w, n, j;  "bpr"  j, -max_j w, n (batch prioritised);
    "random"  j, u_n, n;  "device"  -w, n, j, where `bucket` neighbouring experts share the slots (else every expert has
    its own: bucket 1), and the documents that draw less than `protect` come first and are never dropped, though they
    occupy slots. `weights` [B, T, k] only where the order reads them. load [E] i32 counts assignments before dropping,
    dropped [E] those without a slot; padding is in neither. taken [B, E / bucket] i32 are the slots in use when these
    tokens begin (token slices: order "token" only), new_taken those in use behind them.

    What is drawn, u of a token and of a document, are the upper 24 bits of mix(mix(r ^ l) + i c), with r = mix(mix(seed +
    c) ^ sample), mix and c those of splitmix64; for a token i is its number in the row and l the layer's number plus 1,
    for a document its first token's number and 0 (the same documents are protected in all layers). draw_keys [B, 3]
    i64 holds sample, seed and layer of each row of the batch, new_draw_keys those of the next op that draws.
    `stripe`: the row was gathered from ranks that hold so many tokens each, and their documents count from the first
    token of their rank; 0: from that of the row.
  }];
  let arguments = (ins AnyRankedTensor:$ids, Optional<AnyRankedTensor>:$weights, AnyRankedTensor:$documents, AnyRankedTensor:$taken,
                   Optional<AnyRankedTensor>:$draw_keys, I64Attr:$capacity, StrAttr:$policy,
                   DefaultValuedAttr<I64Attr, "1">:$bucket, DefaultValuedAttr<F64Attr, "0.0">:$protect,
                   DefaultValuedAttr<I64Attr, "0">:$stripe);
  let results = (outs AnyRankedTensor:$kept, AnyRankedTensor:$load, AnyRankedTensor:$dropped, AnyRankedTensor:$new_taken,
                 Optional<AnyRankedTensor>:$new_draw_keys);
  let assemblyFormat = [{$ids (`weights` `(` $weights^ `)`)? `documents` `(` $documents `)` `taken` `(` $taken `)`
    (`draw_keys` `(` $draw_keys^ `)`)? attr-dict `:` functional-type(operands, results)}];
  let extraClassDeclaration = [{
    /// Whether an order, or what it protects, is drawn.
    bool draws() { return getPolicy() == "random" || getProtect().convertToDouble() > 0; }
  }];
}
def Braid_MoePlanOp : Braid_MoeOp<"plan"> {
  let summary = "integers only: where every assignment's row stands";
  let description = [{
    ids [B, T, k] -> perm [R] i32 (row -> token n k + j, -1: empty), inverse [B, T, k] i32 (assignment -> row, -1: none),
    counts [E] i32, offsets [E + 1] i32. Padding (`documents`) has no rows and is not counted. peers = 1: R = N k, rows
    packed. peers > 1: R = peers * peer_rows; experts of peer p stand packed from row p * peer_rows on, `overflow` [1] i32
    counts rows beyond a block (they get inverse -1).
    `exchange` [1] i32 stands for what the exchange between ranks will need; dispatch and combine hand it on, and ApplySharding
    refines it (send and receive counts, the order of received rows). Without ranks nobody reads it: it may hold anything.
    An id of -1 (dropped) has no row and is not counted. `expert_rows`: every expert has that many rows, filled from the
    front and empty behind (R = E expert_rows, peer_rows = E / peers expert_rows, offsets[e] = e expert_rows), so that the
    sizes of groups are known before anything runs; assignments beyond them are counted in `overflow`.
  }];
  let arguments = (ins AnyRankedTensor:$ids, AnyRankedTensor:$documents, I64Attr:$num_experts,
                   DefaultValuedAttr<I64Attr, "1">:$peers, DefaultValuedAttr<I64Attr, "0">:$peer_rows,
                   OptionalAttr<I64Attr>:$expert_rows);
  let results = (outs AnyRankedTensor:$perm, AnyRankedTensor:$inverse, AnyRankedTensor:$counts, AnyRankedTensor:$offsets,
                 AnyRankedTensor:$overflow, AnyRankedTensor:$exchange);
}
def Braid_MoePlanReceivedOp : Braid_MoeOp<"plan_received"> {
  let summary = "plan of the rows that arrived: blocks (source, local expert) -> sorted by (local expert, source)";
  let description = [{ counts [peers, El] i32 -> perm [R] (sorted row -> received row, -1: none), inverse [R], offsets [El + 1]. R = peers * peer_rows. }];
  let arguments = (ins AnyRankedTensor:$counts, I64Attr:$peer_rows);
  let results = (outs AnyRankedTensor:$perm, AnyRankedTensor:$inverse, AnyRankedTensor:$offsets);
}
def Braid_MoeDispatchOp : Braid_MoeDiffOp<"dispatch"> {
  let summary = "rows [1, R, M]: row r is token perm[r] / k of x (the exchange is explicit from `sharded` on)";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$perm, AnyRankedTensor:$inverse, AnyRankedTensor:$exchange);
  let results = (outs AnyRankedTensor:$rows);
  let assemblyFormat = "$x `plan` `(` $perm `,` $inverse `,` $exchange `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoePermuteOp : Braid_MoeDiffOp<"permute"> {
  let summary = "rows [1, R, M]: row r is row perm[r] of x [1, R', M]; inverse undoes it";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$perm, AnyRankedTensor:$inverse);
  let results = (outs AnyRankedTensor:$rows);
  let assemblyFormat = "$x `plan` `(` $perm `,` $inverse `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeCombineOp : Braid_MoeDiffOp<"combine"> {
  let summary = "y_n = sum_j weights[n, j] rows[inverse[n, j]], f32, slot order; without weights: 1";
  let description = [{
    `returned` (residual, read by combine_grad only): the rows as they came back from the experts; the operand itself until
    `sharded`, where the exchange is explicit.
  }];
  let arguments = (ins AnyRankedTensor:$rows, Optional<AnyRankedTensor>:$weights, AnyRankedTensor:$perm, AnyRankedTensor:$inverse,
                   AnyRankedTensor:$exchange);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$returned);
  let assemblyFormat = "$rows (`weights` `(` $weights^ `)`)? `plan` `(` $perm `,` $inverse `,` $exchange `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeCombineGradOp : Braid_MoeOp<"combine_grad"> {
  let summary = "drows[r] = weights[perm r] dy[perm r / k], dweights[n, j] = <returned[inverse], dy_n>";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$returned, AnyRankedTensor:$weights, AnyRankedTensor:$perm, AnyRankedTensor:$inverse,
                   AnyRankedTensor:$exchange);
  let results = (outs AnyRankedTensor:$drows, AnyRankedTensor:$dweights);
  let assemblyFormat = "`cotangents` `(` $dy `)` `returned` `(` $returned `)` `weights` `(` $weights `)` `plan` `(` $perm `,` $inverse `,` $exchange `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeRowWeightsOp : Braid_MoeDiffOp<"row_weights"> {
  let summary = "rows [1, R]: of row r weights[perm r], of an empty one 0";
  let description = [{ What a product of experts' rows may be weighted by before it is made, w (x W) = (w x) W: their combination is then a plain sum. }];
  let arguments = (ins AnyRankedTensor:$weights, AnyRankedTensor:$perm, AnyRankedTensor:$inverse);
  let results = (outs AnyRankedTensor:$rows);
  let assemblyFormat = "$weights `plan` `(` $perm `,` $inverse `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeRowWeightsGradOp : Braid_MoeOp<"row_weights_grad"> {
  let summary = "dweights[n, j] = drows[inverse[n, j]], 0 where there is no row";
  let arguments = (ins AnyRankedTensor:$drows, AnyRankedTensor:$inverse);
  let results = (outs AnyRankedTensor:$dweights);
  let assemblyFormat = "`cotangents` `(` $drows `)` `plan` `(` $inverse `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeGroupedLinearOp : Braid_MoeDiffOp<"grouped_linear"> {
  let summary = "y_i[r] = x[r] w_i[g] for rows r of group g; weights [E, in, out_i]";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$offsets, Variadic<AnyRankedTensor>:$weights);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$x `offsets` `(` $offsets `)` `weights` `(` $weights `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeGroupedLinearGradDataOp : Braid_MoeOp<"grouped_linear_grad_data", [AttrSizedOperandSegments]> {
  let summary = "dx[r] = sum_i dy_i[r] w_i[g]^T";
  let arguments = (ins Variadic<AnyRankedTensor>:$dys, AnyRankedTensor:$offsets, Variadic<AnyRankedTensor>:$weights);
  let results = (outs AnyRankedTensor:$dx);
  let assemblyFormat = "`cotangents` `(` $dys `)` `offsets` `(` $offsets `)` `weights` `(` $weights `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeGroupedLinearGradWeightOp : Braid_MoeOp<"grouped_linear_grad_weight", [AttrSizedOperandSegments]> {
  let summary = "dw_i[g] = x_g^T dy_i,g (+ sums_i[g]), summed in f32, rounded once; empty groups: 0 (+ sums_i[g])";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$offsets, Variadic<AnyRankedTensor>:$dys, Variadic<AnyRankedTensor>:$sums);
  let results = (outs Variadic<AnyRankedTensor>:$dws);
  let assemblyFormat = "$x `offsets` `(` $offsets `)` `cotangents` `(` $dys `)` (`sums` `(` $sums^ `)`)? attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeGroupBiasOp : Braid_MoeDiffOp<"group_bias"> {
  let summary = "y[r] = x[r] + bias[g] for rows r of group g; bias [E, M]; works in place";
  let description = [{ `coordinate` [1] i32: of ranks whose rows will be summed up; the first adds the bias. Rows behind the last group hold anything. }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$offsets, AnyRankedTensor:$bias, Optional<AnyRankedTensor>:$coordinate);
  let results = (outs AnyRankedTensor:$y);
  let assemblyFormat = "$x `offsets` `(` $offsets `)` `bias` `(` $bias `)` (`,` $coordinate^)? attr-dict `:` functional-type(operands, results)";
}
def Braid_MoeGroupBiasGradOp : Braid_MoeOp<"group_bias_grad"> {
  let summary = "dbias[g] (piece) = sum of dy[r] over the rows r of group g, in their order, in f32; empty groups: 0";
  let arguments = (ins AnyRankedTensor:$dy, AnyRankedTensor:$offsets);
  let results = (outs AnyRankedTensor:$dbias);
  let assemblyFormat = "`cotangents` `(` $dy `)` `offsets` `(` $offsets `)` attr-dict `:` functional-type(operands, results)";
}

#endif // BRAID_MOE_OPS
