//===- TrainOps.td - initialisation and optimizer ----------------------------------------------------------------===//
#ifndef BRAID_TRAIN_OPS
#define BRAID_TRAIN_OPS

include "dialects/braid/BraidDialect.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Braid_InitOp : Braid_Op<"init", [Pure]> {
  let summary = "initial values by a counter-based generator keyed by (seed, key, logical element index)";
  let description = [{
    The same on every mesh, device and thread count. distribution: "normal" (mean 0, standard deviation `scale`), "uniform"
    (in [low, high)), "log_uniform" (log of a uniform in [low, high)), "softplus_inverse" (y with softplus(y) log-uniform in [low, high)),
    "constant" (`low`), "values" (the table, repeated over leading dimensions). For stacked layers `keys` has one key per layer
    (FNV-1a of the logical name), else one. The tensor is one shard of the logical one: cut i is along dimension `shard_dims`[i]
    (without the layer dimension; they ascend) in `shard_counts`[i] parts, of which it is part `coordinates`[i] ([1] i32); two cuts of one
    dimension: the first is the outer one.
    `part`: the values are masters of a bf16 parameter (`adamw`), and this is what stands beside the parameter. "low" (i16): its lower bits; "half" (the
    moments' type, f32 or bf16): a second moment of 0, with its sign.
  }];
  let arguments = (ins AnyRankedTensor:$seed, Variadic<AnyRankedTensor>:$coordinates, StrAttr:$distribution, DenseI64ArrayAttr:$keys,
                   DefaultValuedAttr<F64Attr, "0.0">:$scale, DefaultValuedAttr<F64Attr, "0.0">:$low, DefaultValuedAttr<F64Attr, "0.0">:$high,
                   OptionalAttr<DenseF64ArrayAttr>:$values, UnitAttr:$stacked,
                   OptionalAttr<DenseI64ArrayAttr>:$shard_dims, OptionalAttr<DenseI64ArrayAttr>:$shard_counts, OptionalAttr<StrAttr>:$part);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}
def Braid_SumSquaresOp : Braid_Op<"sum_squares", [Pure]> {
  let summary = "sum of squares over all elements of all operands, f32 [1], fixed order";
  let arguments = (ins Variadic<AnyRankedTensor>:$xs);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}
def Braid_ClipScaleOp : Braid_Op<"clip_scale", [Pure]> {
  let summary = "norm = sqrt(sum_squares); scale = min(1, max_norm / (norm + 1e-6)) (max_norm 0: always 1)";
  let arguments = (ins AnyRankedTensor:$sum_squares, F64Attr:$max_norm);
  let results = (outs AnyRankedTensor:$norm, AnyRankedTensor:$scale);
  let hasVerifier = 1;
}
def Braid_AdamwOp : Braid_Op<"adamw", [Pure]> {
  let summary = "AdamW with decoupled decay (Loshchilov and Hutter 2019, algorithm 2), in place";
  let description = [{
    g = scale * gradient; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr (m^ / (sqrt(v^) + eps) + weight_decay w),
    m^ = m / (1 - b1^step), v^ = v / (1 - b2^step). step [1] i32 from 1; learning_rate, scale [1] f32. Results share
    the buffers of parameter, first, second, low.
    With `low` (i16) the parameter is bf16 and w its master, an f32 that is kept in three places, every bit of it. The parameter is the master rounded to
    nearest even; `low` is bits(master) - bits(parameter) 2^16, at most 2^15 either way. 2^15 itself, a master half way to the next even parameter above it,
    is -2^15 in 16 bits, as from the other side: the sign of the second moment, which is never negative, is set in this one case. So
      bits(master) = bits(parameter) 2^16 + (second has its sign ? 2^15 : low),   v = |second|.
    Moments in bf16 are computed and used in f32 and then rounded at random, up as likely as they are far from the lower neighbour (Gupta et al. 2015,
    section 3), so that what a step adds is not lost where it is less than half of what bf16 can tell apart. The random bits are a hash of the step and of
    both moments, and nothing else: the same wherever an element lies, on every mesh, however tensors are cut (`passes/outline/RandomRounding.h`).
  }];
  let arguments = (ins AnyRankedTensor:$parameter, AnyRankedTensor:$gradient, AnyRankedTensor:$first, AnyRankedTensor:$second,
                   AnyRankedTensor:$learning_rate, AnyRankedTensor:$step, AnyRankedTensor:$scale,
                   Optional<AnyRankedTensor>:$low, F64Attr:$beta1, F64Attr:$beta2, F64Attr:$eps, F64Attr:$weight_decay);
  let results = (outs AnyRankedTensor:$new_parameter, AnyRankedTensor:$new_first, AnyRankedTensor:$new_second,
                 Optional<AnyRankedTensor>:$new_low);
  let hasVerifier = 1;
}

#endif // BRAID_TRAIN_OPS
