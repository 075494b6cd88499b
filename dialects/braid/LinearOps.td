//===- LinearOps.td - projections, embedding, convolution, loss --------------------------------------------------===//
#ifndef BRAID_LINEAR_OPS
#define BRAID_LINEAR_OPS

include "dialects/braid/BraidBases.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Braid_LinearOp : Braid_DiffOp<"linear"> {
  let summary = "y_i = x w_i for several weights of one input";
  let description = [{
    x [B, T, in] (trailing feature dimensions are flattened: [B, T, H, V] with in = H V), weights [in, out_i]
    (`transposed`: [out_i, in]), results [B, T, ...] whose trailing dimensions multiply to out_i.
  }];
  let arguments = (ins AnyRankedTensor:$x, Variadic<AnyRankedTensor>:$weights, UnitAttr:$transposed);
  let results = (outs Variadic<AnyRankedTensor>:$results);
}
def Braid_LinearAddOp : Braid_TokenOp<"linear_add"> {
  let summary = "y = x w + addend, rounded once";
  let description = [{
    What braid-add-into-products makes of a linear and the add behind it; x, weight and y as of linear with one weight, addend of y's type.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$addend, UnitAttr:$transposed);
  let results = (outs AnyRankedTensor:$y);
}
def Braid_HeadLinearOp : Braid_DiffOp<"head_linear"> {
  let summary = "y_h = x_h w_h: a matrix for each head, of weights [H, R, E], or of one [R, H E] with E neighbouring columns for each head";
  let description = [{
    x [B, T, H, R], y [B, T, H, E]; `transposed`: x [B, T, H, E], y [B, T, H, R], y_h = x_h w_h^T. With one matrix [R, H E] what multi-head latent attention does
    where keys and values stay latent (DeepSeek-V2, arXiv:2405.04434, section 2.1.2): it has no gradient, caches are not trained. With [H, R, E] products of
    heads' blocks (Recurrent Gemma, arXiv:2404.07839).
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, UnitAttr:$transposed);
  let results = (outs AnyRankedTensor:$y);
}

def Braid_HeadLinearGradWeightOp : Braid_TokenOp<"head_linear_grad_weight"> {
  let summary = "dw_h = x_h^T dy_h: [H, R, E] f32 piece, summed in a fixed order";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$dy);
  let results = (outs AnyRankedTensor:$dweight);
}

def Braid_LinearGradDataOp : Braid_TokenOp<"linear_grad_data", [AttrSizedOperandSegments]> {
  let summary = "dx = sum_i dy_i w_i^T, summed in f32 in operand order, rounded once";
  let arguments = (ins Variadic<AnyRankedTensor>:$dys, Variadic<AnyRankedTensor>:$weights, UnitAttr:$transposed);
  let results = (outs AnyRankedTensor:$dx);
  let assemblyFormat = "`cotangents` `(` $dys `)` `weights` `(` $weights `)` attr-dict `:` functional-type(operands, results)";
}
def Braid_LinearGradWeightOp : Braid_TokenOp<"linear_grad_weight", [AttrSizedOperandSegments]> {
  let summary = "dw_i = x^T dy_i (+ sums_i), summed in f32, rounded once (`transposed`: dy_i^T x)";
  let description = [{ `sums`: what other tokens gave, shaped as the results; written over where nothing else reads it. }];
  let arguments = (ins AnyRankedTensor:$x, Variadic<AnyRankedTensor>:$dys, Variadic<AnyRankedTensor>:$sums, UnitAttr:$transposed);
  let results = (outs Variadic<AnyRankedTensor>:$dws);
  let assemblyFormat = "$x `cotangents` `(` $dys `)` (`sums` `(` $sums^ `)`)? attr-dict `:` functional-type(operands, results)";
}

def Braid_EmbedOp : Braid_DiffOp<"embed"> {
  let summary = "rows of the table [V, M] by token id";
  let arguments = (ins AnyRankedTensor:$tokens, AnyRankedTensor:$table);
  let results = (outs AnyRankedTensor:$result);
}
def Braid_EmbedGradOp : Braid_TokenOp<"embed_grad"> {
  let summary = "dtable [V, M] f32: (table_sum +) sum of dy rows per token id, in token order";
  let description = [{ `table_sum`: another gradient of the table, of dtable's type; written over where nothing else reads it. }];
  let arguments = (ins AnyRankedTensor:$tokens, AnyRankedTensor:$dy, Optional<AnyRankedTensor>:$table_sum);
  let results = (outs AnyRankedTensor:$dtable);
}

def Braid_ShortConvOp : Braid_Op<"short_conv", [Pure, DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>,
    DeclareOpInterfaceMethods<Braid_TokenOpInterface, ["carryOf"]>]> {
  let hasVerifier = 1;
  let summary = "causal depthwise convolution of K taps; tap K - 1 multiplies the current token";
  let description = [{
    x [B, T, D], weight [D, K], documents [B, T], tail [B, K - 1, D]: the K - 1 inputs before the row. Taps that reach before
    the token's document read 0. Results: y [B, T, D] (no activation) and the new tail.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$documents, AnyRankedTensor:$tail);
  let results = (outs AnyRankedTensor:$y, AnyRankedTensor:$new_tail);
}
def Braid_ShortConvGradOp : Braid_Op<"short_conv_grad", [Pure,
    DeclareOpInterfaceMethods<Braid_TokenOpInterface, ["carryOf", "carryReversed"]>]> {
  let hasVerifier = 1;
  let summary = "gradient of short_conv: dx, dweight (f32 piece), dtail";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$documents, AnyRankedTensor:$tail,
                   AnyRankedTensor:$dy, AnyRankedTensor:$dnew_tail);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dweight, AnyRankedTensor:$dtail);
}

def Braid_CrossEntropyOp : Braid_DiffOp<"cross_entropy"> {
  let summary = "sum over tokens of lse(logits) - logits[label], and the number of labels >= 0";
  let description = [{ logits [B, T, V]; labels [B, T] i32, negative: ignored. Results: sum f32 [1], count f32 [1], residual lse [B, T] f32. }];
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$labels);
  let results = (outs AnyRankedTensor:$sum, AnyRankedTensor:$count, AnyRankedTensor:$lse);
}
def Braid_CrossEntropyGradOp : Braid_TokenOp<"cross_entropy_grad"> {
  let summary = "(softmax(logits) - onehot(label)) * dsum, 0 for ignored labels";
  let arguments = (ins AnyRankedTensor:$logits, AnyRankedTensor:$labels, AnyRankedTensor:$lse, AnyRankedTensor:$dsum);
  let results = (outs AnyRankedTensor:$dlogits);
}

def Braid_LinearCrossEntropyOp : Braid_DiffOp<"linear_cross_entropy"> {
  let summary = "cross entropy of the logits x w, which never exist as a whole";
  let description = [{
    x [B, T, M], weight [M, V] (`transposed`: [V, M]), labels [B, T] i32, negative: ignored. Results: the sum over tokens of
    lse(logits) - logits[label] and the number of labels >= 0, both [1]. Logits are computed in f32 (f64), a block of
    rows at a time. With a `softcap` c they are c tanh(x w / c) (Gemma 2, arXiv:2408.00118), here and in the three ops below.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$labels, UnitAttr:$transposed,
                   OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$sum, AnyRankedTensor:$count);
}
def Braid_LinearCrossEntropyGradOp : Braid_TokenOp<"linear_cross_entropy_grad"> {
  let summary = "gradient of linear_cross_entropy, and its sum, from one walk over the logits";
  let description = [{
    dlogits = (softmax(x w) - onehot(label)) dsum, 0 for ignored labels; dx = dlogits w^T; dweight = x^T dlogits (f32 piece).
    With `sum` from here a training step computes each logit once. With a `softcap` c, of capped logits l: dlogits (1 - (l / c)^2).
    `weight_sum`, of dweight's type: what x^T dlogits is added to; written over where nothing else reads it.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$labels, AnyRankedTensor:$dsum,
                   Optional<AnyRankedTensor>:$weight_sum, UnitAttr:$transposed, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dweight, AnyRankedTensor:$sum);
}

def Braid_LinearLossPartOp : Braid_TokenOp<"linear_loss_part"> {
  let summary = "of the logits of one part of the vocabulary: their log of the sum of exp, and the label's logit";
  let description = [{
    x [B, T, M], weight [M, V] (`transposed`: [V, M]): words [c V, (c + 1) V), c = `coordinate` [1] i32, labels [B, T] i32 of the whole
    vocabulary. lse [B, T]; target [B, T]: the label's logit, 0 where the label is in another part or negative. The loss of a
    token is log_sum_exp over all parts of lse less the sum of target.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$labels, AnyRankedTensor:$coordinate,
                   UnitAttr:$transposed, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$lse, AnyRankedTensor:$target);
}
def Braid_LinearLossPartGradOp : Braid_TokenOp<"linear_loss_part_grad"> {
  let summary = "what one part of the vocabulary gives to dx, and dweight of that part";
  let description = [{
    dlogits = (exp(x w - lse) - onehot(label)) dsum with lse [B, T] of the whole vocabulary, 0 for ignored labels; dx = dlogits w^T,
    dweight = x^T dlogits (f32 piece). `weight_sum` as above.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$labels, AnyRankedTensor:$coordinate,
                   AnyRankedTensor:$lse, AnyRankedTensor:$dsum, Optional<AnyRankedTensor>:$weight_sum, UnitAttr:$transposed, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$dx, AnyRankedTensor:$dweight);
}

def Braid_LinearScoresOp : Braid_TokenOp<"linear_scores"> {
  let summary = "linear_loss_part, and the greatest logit with its word";
  let description = [{
    Operands, lse and target as linear_loss_part, with `coordinate` [0] of all words. greatest [B, T]: the greatest logit of this part; word
    [B, T] i32: the word that has it, of equal ones the lowest, a number of the whole vocabulary. Of parts, `greatest` and `greatest_word` make
    those of the whole.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, AnyRankedTensor:$labels, AnyRankedTensor:$coordinate,
                   UnitAttr:$transposed, OptionalAttr<F64Attr>:$softcap);
  let results = (outs AnyRankedTensor:$lse, AnyRankedTensor:$target, AnyRankedTensor:$greatest, AnyRankedTensor:$word);
}

def Braid_SumOp : Braid_DiffOp<"sum"> {
  let summary = "sum of all elements, f32 [1], fixed order";
  let arguments = (ins AnyRankedTensor:$x);
  let results = (outs AnyRankedTensor:$result);
}
def Braid_SumGradOp : Braid_TokenOp<"sum_grad"> {
  let summary = "the scalar [1] in every element";
  let arguments = (ins AnyRankedTensor:$dsum);
  let results = (outs AnyRankedTensor:$dx);
}

#endif // BRAID_LINEAR_OPS
