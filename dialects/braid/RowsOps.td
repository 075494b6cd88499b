//===- RowsOps.td - row-wise ops: fused, differentiated and sliced through their tile form ------------------------===//
#ifndef BRAID_ROWS_OPS
#define BRAID_ROWS_OPS

include "dialects/braid/BraidBases.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Braid_AddOp : Braid_RowsOp<"add"> {
  let summary = "sum of equal shapes, in operand order, f32 inside";
  let arguments = (ins Variadic<AnyRankedTensor>:$sources);
}
def Braid_MulOp : Braid_RowsOp<"mul"> {
  let summary = "elementwise product; b may lack trailing feature dimensions ([B, T, H] times [B, T, H, K])";
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
}
def Braid_ScaleOp : Braid_RowsOp<"scale"> {
  let summary = "x times a constant";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$value);
}
def Braid_OffsetOp : Braid_RowsOp<"offset"> {
  let summary = "x plus a constant";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$value);
}
def Braid_ClampOp : Braid_RowsOp<"clamp"> {
  let summary = "min(max(x, low), high); no gradient below low and above high";
  let arguments = (ins AnyRankedTensor:$x, OptionalAttr<F64Attr>:$low, OptionalAttr<F64Attr>:$high);
}
def Braid_BiasOp : Braid_RowsOp<"bias"> {
  let summary = "x + bias over the trailing dimensions";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$bias);
}
def Braid_WeightedOp : Braid_RowsOp<"weighted"> {
  let summary = "x times a whole tensor over the trailing dimensions; `per_head`: x [B, T, H, K] times weight [H]";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, UnitAttr:$per_head);
}
def Braid_ActivationOp : Braid_RowsOp<"activation"> {
  let summary = "silu, sigmoid, tanh, relu, relu2, gelu (erf), gelu_tanh, softplus, elu1 (elu + 1), exp, reciprocal, log and sqrt (of 1e-30 below it), cos, sin";
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$kind);
}
def Braid_LogSumExpOp : Braid_RowsOp<"log_sum_exp"> {
  let summary = "log of the sum of exp over the last dimension: [B, T, n] -> [B, T]";
  let arguments = (ins AnyRankedTensor:$x);
}
def Braid_TokenLossOp : Braid_RowsOp<"token_loss"> {
  let summary = "lse - target where label >= 0, else 0; all [B, T], labels i32";
  let arguments = (ins AnyRankedTensor:$lse, AnyRankedTensor:$target, AnyRankedTensor:$labels);
}
def Braid_GreatestOp : Braid_RowsOp<"greatest"> {
  let summary = "the greatest number of the last dimension: [B, T, n] -> [B, T]; no gradient";
  let arguments = (ins AnyRankedTensor:$x);
}
def Braid_GreatestWordOp : Braid_RowsOp<"greatest_word"> {
  let summary = "of words [B, T, n] i32 that with the greatest x [B, T, n], of equal ones the lowest: [B, T] i32";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$words);
}
def Braid_SoftmaxOp : Braid_RowsOp<"softmax"> {
  let summary = "softmax over the last dimension (feature maps)";
  let arguments = (ins AnyRankedTensor:$x);
}
def Braid_LogSigmoidOp : Braid_RowsOp<"log_sigmoid"> {
  let summary = "logsigmoid(x) / divide, f32: min(x, 0) - log1p(exp(-|x|))";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$divide);
}
def Braid_LogDecayOp : Braid_RowsOp<"log_decay"> {
  let summary = "-exp(a_log) * softplus(x + dt_bias), f32; x [B, T, H], a_log and dt_bias [H]; or x [B, T, H, K], dt_bias [H, K]";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$a_log, AnyRankedTensor:$dt_bias);
}
def Braid_RmsNormOp : Braid_RowsOp<"rms_norm"> {
  let summary = "x rsqrt(mean x^2 + eps) weight over the last dimension";
  let description = [{ `groups` (default 1): the last dimension is cut into that many groups normalised apart (weight covers all). }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, F64Attr:$eps, DefaultValuedAttr<I64Attr, "1">:$groups);
}
def Braid_LayerNormOp : Braid_RowsOp<"layer_norm"> {
  let summary = "(x - mean) rsqrt(var + eps) weight + bias over the last dimension; the bias may be absent";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight, Optional<AnyRankedTensor>:$bias, F64Attr:$eps);
}
def Braid_L2NormOp : Braid_RowsOp<"l2_norm"> {
  let summary = "x rsqrt(sum x^2 + eps) over the last dimension";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$eps);
}
def Braid_GatedNormOp : Braid_RowsOp<"gated_norm"> {
  let summary = "norm_first: rms_norm(o) weight act(gate); otherwise rms_norm(o act(gate)) weight; last dimension, eps inside the root";
  let arguments = (ins AnyRankedTensor:$o, AnyRankedTensor:$gate, AnyRankedTensor:$weight, F64Attr:$eps,
                   StrAttr:$activation, DefaultValuedAttr<BoolAttr, "true">:$norm_first, DefaultValuedAttr<I64Attr, "1">:$groups);
}
def Braid_RopeOp : Braid_RowsOp<"rope"> {
  let summary = "rotary embedding of the first `dim` of the last dimension; position = token index - documents";
  let description = [{ layout "half": pairs (i, i + dim/2); "interleaved": pairs (2i, 2i + 1). Angle of pair i: position * theta^(-2i/dim);
    `period`: positions modulo that many tokens. `factors` [dim/2]: of the angles, pair by pair. `scale`: of what turns. }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$documents, F64Attr:$theta, I64Attr:$dim, StrAttr:$layout,
                   OptionalAttr<I64Attr>:$period, OptionalAttr<DenseF64ArrayAttr>:$factors, OptionalAttr<F64Attr>:$scale);
  let extraClassDeclaration = [{
    /// theta^(-2i/dim): the angle of pair i from one token to the next, without factors.
    static double frequency(double theta, int64_t dim, int64_t i);
  }];
}
def Braid_PositionRateOp : Braid_RowsOp<"position_rate"> {
  let summary = "max(1 / (i + 1) + weight_i, 0) with i = position modulo n, weight [n] whole: [B, T, H], one number for all heads";
  let arguments = (ins AnyRankedTensor:$documents, AnyRankedTensor:$weight);
}
def Braid_PositionAngleOp : Braid_RowsOp<"position_angle"> {
  let summary = "position * phase as an angle from -pi to pi, reduced in f64; phase [H, K] whole: [B, T, H, K]";
  let arguments = (ins AnyRankedTensor:$documents, AnyRankedTensor:$phase);
}
def Braid_EveryTokenOp : Braid_RowsOp<"every_token"> {
  let summary = "the same at every token, whole: [H], [H, K] or [H, K, V] -> [B, T, ..]; documents tell the tokens only";
  let arguments = (ins AnyRankedTensor:$documents, AnyRankedTensor:$value);
}
def Braid_RepeatHeadsOp : Braid_RowsOp<"repeat_heads"> {
  let summary = "[B, T, G, K] -> [B, T, H, K]: head j of G serves heads j*H/G .. (grouped heads)";
  let arguments = (ins AnyRankedTensor:$x);
}
def Braid_FeatureMapOp : Braid_RowsOp<"feature_map"> {
  let summary = "products of features in place of the last dimension d, so that phi(q).phi(k) is a polynomial of q.k";
  let description = [{
    "taylor": [1, x d^(-1/4), x_i^2 / sqrt(2 d), x_i x_j / sqrt d for i < j], phi.phi = 1 + s + s^2 / 2 with s = q.k / sqrt d;
    1 + d + d (d + 1) / 2 features. "square": [x_i^2, sqrt 2 x_i x_j for i < j] / sqrt d, phi.phi = (q.k)^2 / d;
    d (d + 1) / 2 features. Products stand row by row: (0,0) (0,1) .. (0,d-1) (1,1) ..
  }];
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$kind);
}
def Braid_AppendOneOp : Braid_RowsOp<"append_one"> {
  let summary = "[.., V] -> [.., V + zeros + 1], the last 1: the value column that a normaliser sums keys in";
  let description = [{ `zeros` columns of 0 in front of it: states are then as wide as kernels like them. }];
  let arguments = (ins AnyRankedTensor:$x, DefaultValuedAttr<I64Attr, "0">:$zeros);
}
def Braid_DivideByLastOp : Braid_RowsOp<"divide_by_last"> {
  let summary = "[.., V + zeros + 1] -> [.., V]: x / (last + eps); with `least` x / (max(|last|, least) + eps)";
  let arguments = (ins AnyRankedTensor:$x, F64Attr:$eps, OptionalAttr<F64Attr>:$least, DefaultValuedAttr<I64Attr, "0">:$zeros);
}
def Braid_DropLastOp : Braid_RowsOp<"drop_last"> {
  let summary = "[.., V + zeros + 1] -> [.., V]: all but the last, and the zeros in front of it";
  let arguments = (ins AnyRankedTensor:$x, DefaultValuedAttr<I64Attr, "0">:$zeros);
}
def Braid_TakeLastOp : Braid_RowsOp<"take_last"> {
  let summary = "[.., V + 1] -> [..]: the last, what a normaliser has summed";
  let arguments = (ins AnyRankedTensor:$x);
}
def Braid_InnerOp : Braid_RowsOp<"inner"> {
  let summary = "[.., K] -> [..]: sum a b over the last dimension";
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b);
}
def Braid_DotOp : Braid_RowsOp<"dot"> {
  let summary = "[.., K] -> [..]: sum x weight over the last dimension; weight [K] whole";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$weight);
}
def Braid_BoundedGateOp : Braid_RowsOp<"bounded_gate"> {
  let summary = "log(l + (1 - l) sigmoid(x)), accurate at both ends; l in [0, 1) whole: [H] or trailing dimensions of x";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$lower_bound);
}
def Braid_ElementDecayOp : Braid_RowsOp<"element_decay"> {
  let summary = "-exp(a_log) * x: x [B, T, H, V], a_log [H, K, V] whole -> [B, T, H, K, V], f32";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$a_log);
}
def Braid_CastOp : Braid_RowsOp<"cast"> {
  let summary = "another element type";
  let arguments = (ins AnyRankedTensor:$x);
}

def Braid_RowsGradOp : Braid_Op<"rows_grad", [Pure, AttrSizedOperandSegments, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "gradient of a row-wise op, derived from its tile form";
  let description = [{
    `op` is the op's name and `op_attributes` its attributes. `inputs` are its operands, `cotangents` one per result. Results:
    one cotangent for each operand index in `wanted`; those of whole operands are sums over all rows (pieces), accumulated
    in f32 in row order. Operands that are one value share one cotangent: the first has the sum, the others zeros.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, Variadic<AnyRankedTensor>:$cotangents, StrAttr:$op,
                   DictionaryAttr:$op_attributes, DenseI64ArrayAttr:$wanted);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let assemblyFormat = "$op `(` $inputs `)` `cotangents` `(` $cotangents `)` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif // BRAID_ROWS_OPS
