//===- Passes.td - every pass, in pipeline order ------------------------------------------------------------------===//
#ifndef BRAID_PASSES
#define BRAID_PASSES

include "mlir/Pass/PassBase.td"

//===- train: differentiation on logical tensors -------------------------------------------------------------------===//

def ClassifyScansPass : Pass<"braid-classify-scans", "::mlir::ModuleOp"> {
  let summary = "gives every scan the cheapest transition class that holds";
  let description = [{
    Before: `%o, %m1 = braid.lsm.scan VH %q, %k, %v log_decay(%g) beta(%beta) ..`
    where `%g = braid.mul %half, %s`, a constant times one decay per head
    After:  `%h = braid.scale %s {value = 0.5}; %o, %m1 = braid.lsm.scan GH %q, %k, %v log_decay(%h) beta(%beta) ..`
    A log_decay of 0 goes, one that a constant times a gate of one rank less repeats over channels becomes that gate (V to S, VH to
    GH, E to V), an a, b or value_decay of 0 goes. An element_decay of class E becomes its factors: log_decay [H, K, V] and value_decay. Before differentiation, so that gradients of what is written follow.
    An inner_step of mini-batch 1 without norm, momentum, read_rate and weights becomes a scan: H with beta = rate, or where it forgets D.
    Metadata scans.<function>: what the remarks say, for --explain and braid-run info --all.
    Invariant: every scan computes what it did.
  }];
  let options = [Option<"explain", "explain", "bool", "false", "remark: the class of every scan, the rules used, and why it is not smaller">];
  let dependentDialects = ["::braid::BraidDialect"];
}

def WeightExpertRowsPass : Pass<"braid-weight-expert-rows", "::mlir::ModuleOp"> {
  let summary = "experts' rows are weighted before their last product, not where they are combined";
  let description = [{
    In the functions of training steps, where a row-wise op makes what that product alone reads.
    Before: `%h = braid.mul %silu, %up; %out = braid.moe.grouped_linear %h ..; %y, %r = braid.moe.combine %out weights(%w) ..`
    After:  `%n = braid.moe.row_weights %w ..; %wh = braid.mul %h, %n; %out = braid.moe.grouped_linear %wh ..; %y, %r = braid.moe.combine %out ..`
    The backward then reads nothing of what experts put out. For GPUs, which make %wh in the kernel of the product before it, and where rows do not travel between ranks.
    Invariant: the same sums, of products that are rounded elsewhere; functions that no training step calls are what they were.
  }];
}

def DecideRecomputePass : Pass<"braid-decide-recompute", "::mlir::ModuleOp"> {
  let summary = "marks the ops of layer functions that the backward executes again instead of keeping their results";
  let description = [{
    Pointwise results that only row-wise ops read are marked where their operands are kept anyway: they cost nothing. With `convolutions` neither does a convolution
    with a bias, an activation or a norm over heads behind it: `%y = braid.short_conv %x, .. {braid.recompute}   %q = braid.activation %y`, of which %x and %q are kept.
    With `sequence`, keys and values that ranks make of latents they gather (shard/GatherLatents: `%k, %v = braid.linear %kv, %wk, %wv {braid.recompute}`) are made again.
    A layer function with `braid.recompute` keeps its inputs and its routes only; with `activation_budget` (bytes per rank)
    in braid.train ops are marked until what all layers keep on a rank of the mesh fits, those first that free most bytes for
    their time, or until no more can be; where the mesh makes rows of experts travel, they count as what buffers hold.
    Before: `func private @layer_L(..) attributes {braid.recompute}`. After: the same without it, and
    `%norm1 = braid.rms_norm %x, %w {braid.recompute, ..}`. Written by hand, the marks are the decision.
    Invariant: no route, plan or exchange between ranks is marked; no layer function and no entry carries the wish any more.
  }];
  let options = [Option<"exchanges", "exchanges", "bool", "false", "rows of experts will travel between ranks: not executed again">,
                 Option<"sequence", "sequence", "bool", "false", "keys and values will travel between ranks: attention is not executed again">,
                 Option<"mesh", "mesh", "std::string", "\"\"", "ranks that share the activations, e.g. dp=2,ep=2">,
                 Option<"sliced", "sliced", "bool", "false", "tokens will be sliced, as in braid-apply-sharding">,
                 Option<"convolutions", "convolutions", "bool", "false", "kernels of convolutions' gradients make the convolutions, and what alone reads them, again">,
                 Option<"explain", "explain", "bool", "false", "remark: bytes kept, share of the forward executed again">];
}

def DifferentiatePass : Pass<"braid-differentiate", "::mlir::ModuleOp"> {
  let summary = "an entry function with braid.train gains backward, clipping and AdamW";
  let description = [{
    Reverse mode over the op interface DifferentiableOpInterface. A repeat's gradient is a second repeat that walks the
    layers the other way; a layer function `@f` becomes `@f_train` (also returns what the backward reads) and `@f_grad`.
    Marked ops (DecideRecompute) stand in `@f_grad` once more, right before what reads them.
    Weight gradients are ops of their own; a value used several times gets its cotangents in one sum, in order of use;
    of what an entry reads in several layers (weights that they share) a sum of f32 grows in place, the last use first.
    Before: `func @train_step(params.., tokens, labels) -> (loss_sum, loss_count, aux_loss) attributes {braid.train = {..}}`
    After:  `func @train_step(params.., tokens, labels, moments.., learning_rate, step) -> (loss, aux_loss, grad_norm,
             params (in place), moments (in place), gradients)`.
    With `accumulate` in braid.train the optimizer is an entry of its own, `@update_step`; this one takes `loss_scale` and `aux_scale`
    instead of counting labels, and adds its gradients to those it is given.
    Invariant: everything the backward reads is an explicit value; nothing depends on a mesh.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::braid::BraidDialect"];
}

//===- sharded: logical tensors -> local tensors and collectives -----------------------------------------------------===//

def ApplyShardingPass : Pass<"braid-apply-sharding", "::mlir::ModuleOp"> {
  let summary = "logical tensors to what one rank has of them; what crosses ranks becomes braid.comm ops";
  let description = [{
    The logical names of dimensions (`braid.dims`) say which axis of the mesh cuts parameters and inputs: batch dp; vocab, heads,
    hidden tp; experts ep; expert_hidden etp. The rules of ops (dialects/braid/ShardingRules.h) carry that through the program,
    forward and backward alike; sums over a cut index are pending until somebody needs them (passes/shard/Placement.h).
    Optimizer states are cut by dp and edp, too (ZeRO-1).
    Before: `%y = braid.linear %o, %wo : (2x8x4x8, 32x16) -> 2x8x16`
    After:  `%p = braid.linear %o, %wo : (2x8x2x8, 16x16) -> 2x8x16;  %y = braid.comm.all_reduce %p {axis = "tp"}`
    Along sp keys and values that are made of a latent are gathered as that, where sending takes longer than multiplying: `%c = braid.comm.all_gather %kv {axis = "sp", label = "attn.latent"}`.
    Dispatch and combine become permute and all_to_all over ep (the plan's `exchange` value carries counts and order to both).
    Invariant: every shape is local; a value is cut or replicated; every cross-rank dependence is a braid.comm op.
  }];
  let options = [Option<"meshText", "mesh", "std::string", "\"\"", "axes and sizes, e.g. dp=2,tp=2,ep=2">,
                 Option<"sliced", "sliced", "bool", "false", "tokens will be sliced: no bound of expert rows by capacity">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::braid::BraidDialect"];
}

def DropIdleCollectivesPass : Pass<"braid-drop-idle-collectives", "::mlir::ModuleOp"> {
  let summary = "a collective over one rank is its operand";
  let description = [{
    What writes collectives need not ask whether an axis, or a product of axes, of the mesh has more than one rank.
    Before: `%y = braid.comm.all_reduce %x {axis = "tp"}`, tp = 1.   After: `%x`.
    A shift that is not cyclic becomes zeros: its only rank is the first.
    Invariant: every collective has at least two ranks.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

//===- scheduled: token slices, tasks, futures -----------------------------------------------------------------------===//

def JoinLayersPass : Pass<"braid-join-layers", "::mlir::ModuleOp"> {
  let summary = "neighbouring layers whose experts exchange rows become one function, so that their slices can be woven";
  let description = [{
    A repeat of more layers than `most` walks groups of them (a divisor of its count that is more than half of `most`, else `most` and
    the layers that are left stand behind them); one of few layers is written out; then up to `most` calls that stand one after the
    other become one call. Layers that say another number of slices, and repeats whose iterations do not meet in such calls, stay apart.
    Before: `repeat (count = 8) { call @layer(%x, %w) }`. After, most = 4: `repeat (count = 2) { call @layer_x4(%x, %w[0], .. %w[3]) }`.
    Invariant: nothing is computed in another order; what the commands of each layer belong to is kept in their locations.
  }];
  let options = [Option<"most", "most", "int64_t", "4", "layers in one function at most, 2 or more">];
  let dependentDialects = ["::braid::BraidDialect"];
}

def DecideSchedulePass : Pass<"braid-decide-schedule", "::mlir::ModuleOp"> {
  let summary = "writes braid.schedule on layers whose experts exchange rows: pipeline, direction, slice bounds, order of tasks";
  let description = [{
    Before: `func private @layer_L_train(..)`. After: the same with
    `braid.schedule = {direction = "forward", pipeline = "1A1M", token_slices = array<i64: 0, 64, 128>,
    order = ["A0.0", "D0.0", "A0.1", "D0.1", "M0.0", "C0.0", "M0.1", "C0.1"]}`, the names of schedule/Stages.
    Layers with softmax attention over all keys may be cut where `slicing` says (schedules.md section 4); their expert slices stay
    uniform (`moe_slices`: a token buffer). Others cost the same for every token and are cut uniformly. Forward and gradient of a layer
    have the same bounds. The times that orders are chosen by come from the ops (analysis/Work) and the module's `braid.machine`.
    A layer with `braid.overlap_degree` has that many slices instead of the option's; one with 1 is not cut.
    Where ranks share tokens (`braid.sequence`) the mixers of all layers have the same bounds, the fastest for all of them together;
    they are written into `braid.metadata` (`sequence_slices`).
    Nothing else changes: the decision is data that ExpandSlices and Weave consume.
  }];
  let options = [Option<"pipeline", "pipeline", "std::string", "\"none\"", "none, moe, aAaM, 1A1M, cross-block or best (schedule/README.md)">,
                 Option<"overlapDegree", "overlap-degree", "int64_t", "1", "token slices of a layer, 1 to 16">,
                 Option<"slicing", "slicing", "std::string", "\"uniform\"", "uniform, time_uniform, balanced or simulated">];
}

def AddIntoProductsPass : Pass<"braid-add-into-products", "::mlir::ModuleOp"> {
  let summary = "a product adds what an add behind it would have added";
  let description = [{
    Where an add of two is the only reader of a product and its sum is read by more than one row-wise op (whose kernel would keep it to itself), the product adds the
    other operand: the result of a mixer and the residual stream. The product's own result is then never written, and the kernel behind it
    reads one matrix instead of two. Sums that one kernel would make and use take as many bytes either way, and products of few rows are
    kernels of their own: they stay.
    ```mlir
    Before: %y = braid.linear %o, %wo   %r = braid.add %x, %y   %n = braid.rms_norm %r, %w   return %n, %r
    After:  %r = braid.linear_add %o, %wo, %x   %n = braid.rms_norm %r, %w   return %n, %r
    ```
    Invariant: the same values but for bf16, where a sum is rounded once instead of twice; whether two ops are one does not depend on slices.
  }];
}

def AddIntoRepeatsPass : Pass<"braid-add-into-repeats", "::mlir::ModuleOp"> {
  let summary = "gradients of repeated layers are added to the sums of earlier batches as each layer makes its own";
  let description = [{
    Where the stacked result of a repeat is only read by an addition in place (`braid.in_place`), the sum becomes a stacked input, and
    the body adds to its part: no stack of gradients stands beside the sums until the repeat ends. Also in repeats of repeats. A part of fewer than
    `min-elements` stays: one kernel behind the repeat is cheaper than one in each iteration.
    ```mlir
    Before: %d:2 = braid.repeat %dy, %w {..} { ..  braid.yield %dx, %dw }   %s = braid.add %sum, %d#1 {braid.in_place}
    After:  %d:2 = braid.repeat %dy, %w, %sum {..} { ..  %a = braid.add %sum_i, %dw {braid.in_place}  braid.yield %dx, %a }
    ```
    Invariant: the same values, bit for bit.
  }];
  let options = [Option<"minElements", "min-elements", "int64_t", "16384", "of a layer's part that is added in the repeat">];
}

def AddIntoGradientsPass : Pass<"braid-add-into-gradients", "::mlir::ModuleOp"> {
  let summary = "gradients of weights are made on top of the sums of earlier batches";
  let description = [{
    Where an addition in place (`braid.in_place`) is the only reader of a gradient that a product, the head's loss or a table's words make, that op takes the sum and
    adds to it: the gradient alone is never written. Through calls the function gets one more argument for each sum (`_sums`); of slices, which add
    one product to the other, the first one takes it. Sums in bf16 stay: a product would round parts of them.
    A table of words that is the head, too, has two gradients: that of the words is made on top of the head's.
    ```mlir
    Before: %dw = braid.linear_grad_weight %x cotangents(%dy)   %s = braid.add %sum, %dw {braid.in_place}
    After:  %s = braid.linear_grad_weight %x cotangents(%dy) sums(%sum)
    ```
    Invariant: the same values but for rounding: a sum of products begins with what was there, and is rounded once.
  }];
}

def DescribeSchedulePass : Pass<"braid-describe-schedule", "::mlir::ModuleOp"> {
  let summary = "the program's metadata say how each layer is sliced, which order was taken and the order itself";
  let description = [{
    Before: `func private @layer_L_train(..) attributes {braid.schedule = {..}}`. After: the same, and in braid.metadata
    `schedule.layer_L_train = "2 slices of 6, 6 tokens; 1A1M: A0.0 D0.0 A0.1 .."`; layers that exchange rows and were left whole
    say "not sliced, " and what `braid.whole` (DecideSchedule) says of the reason; that attribute goes. With `remarks` it is said at once, without the order.
    Invariant: nothing but metadata changes.
  }];
  let options = [Option<"remarks", "remarks", "bool", "false", "remark on every layer that exchanges expert rows">];
}

def ExpandSlicesPass : Pass<"braid-expand-slices", "::mlir::ModuleOp"> {
  let summary = "every op of a scheduled layer that touches tokens, once per slice";
  let description = [{
    States and convolution tails chain from slice to slice (backwards in gradients), attention reads the keys of the slices
    before it, sums over tokens are added up, values that cross the function's border are packed slice after slice. Where
    `moe_slices` differ from `token_slices`, what reads plans and expert rows has slices of its own (the token buffer).
    Before: `%y = braid.rms_norm %x, %w : 2x128x64`. After: two rms_norm on 2x64x64, attribute braid.slice = 0 and 1.
    Attention's keys and values fill one buffer of the row, slice after slice (`braid.insert`), which each reads as far as it is
    filled; their cotangents add up in one buffer, the last slice first.
    Invariant: kernels depend on no slice (lengths are launch arguments) but those that sum its last up to four parts; the bodies exist once per layer signature.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::braid::BraidDialect"];
}

def WeavePass : Pass<"braid-weave", "::mlir::ModuleOp"> {
  let summary = "slices in pipeline order; each collective a start and an await of one future";
  let description = [{
    Degree 2, 1A1M, forward: A0 start D0, A1 start D1, await D0 M0 start C0, await D1 M1 start C1, shared expert, await C0, C1,
    combine. Backward: every stream reversed, weight gradients where nothing waits. `order` says it task by task; without one it is that
    of the named pipeline for equal times. Along sp, what stands in front of an exchange and is read behind it is computed
    while it is under way: q of a scan under the states of k and v. Ops move only within SSA dependences.
    Invariant: no braid.schedule, no synchronous collective; the order of starts of an axis is the order of the program.
  }];
  let dependentDialects = ["::braid::BraidDialect"];
}

def SplitBackwardPass : Pass<"braid-split-backward", "::mlir::ModuleOp"> {
  let summary = "gradients of weights, and what only they need, in calls and repeats of their own";
  let description = [{
    In entries of braid.stage_order = "ZB-H1" that send a cotangent to the stage before them. A product that makes a gradient of weights waits, with what
    reads it, unless a cotangent, a carried value or the next stage needs it; its layer function becomes two, `.._data` and `.._weight`, its repeat two,
    the second of which carries nothing. What both read is a result of the first; what only the second reads is made there where that
    hands on no more bytes. A layer of which nothing can wait stays whole.
    ```mlir
    Before: %d:2 = call @layer_grad(%dy, %x, %w)    // dx, dw
    After:  %e:2 = call @layer_grad_data(%dy, %x, %w)    // dx, and the cotangent that dw is a product of
            %f = call @layer_grad_weight(%x, %e#1)
    ```
    Invariant: the same values, bit for bit; no future begins in one half and ends in the other.
  }];
  let dependentDialects = ["::braid::BraidDialect"];
}

def PipelineStagesPass : Pass<"braid-pipeline-stages", "::mlir::ModuleOp"> {
  let summary = "one micro-batch of a stage becomes a step of all of them, in the order of one forward, one backward, or ZB-H1";
  let description = [{
    An entry with braid.micro_batches = M has the shapes of one; afterwards it has M times the rows, and the ops of each micro-batch in the order in
    which its stage (braid.stage, of the axis pp) comes to them: forward ops, which the next stage waits for, and the rest; with braid.stage_order =
    "ZB-H1" what the stage before waits for, and stage s does the rest of micro-batch m behind that of m + s. Arguments and results of
    the roles stage_input, stage_output and stage_cotangent become exchanges with the stages beside it; gradients add up in place, outputs are
    sums over micro-batches and stages. What is stage_broadcast goes from the last stage to all others, in all of which ops that read it (words of
    the head) have places of their own between ticks. Of an update the norm is that of all stages, and a weight that several have whole has the sum of their gradients.
    Before: `func @accumulate_step.stage0(%tokens: 1x16, %cotangent: 1x16x8 {stage_cotangent}) -> (%x {stage_output}, ..)`, braid.micro_batches = 4
    After:  `func @accumulate_step.stage0(%tokens: 4x16) -> (..)`: `%sent = braid.comm.start shift %x0 {axis = "pp[0,1]"}`, ..
    Invariant: no value of an entry goes from stage to stage but by braid.comm ops; all stages start those of a pair in one order.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::braid::BraidDialect"];
}

//===- chunked: scans -> chunk-parallel matrix forms ---------------------------------------------------------------===//

def DecideChunkSizePass : Pass<"braid-decide-chunk-size", "::mlir::ModuleOp"> {
  let summary = "writes chunk_size on lsm.scan and lsm.scan_grad that have none";
  let description = [{
    A size is chosen by what it costs: for 16, 32, 64, 128 or the whole row the kernels of one chunk, forward and gradient, are made, lowered
    for the target and counted, operation by operation, with the bytes that they touch. A size whose tiles do not fit the target is
    out. Never above the number of tokens rounded up to 16. Scans of equal class, widths, types and lengths of rows are cut alike.
    Before: `lsm.scan V .. {scale = 1.0}`. After: `lsm.scan V .. {braid.chunk_costs = "16: 3310, 32: 2720, 64: 2790", chunk_size = 32, scale = 1.0}`
    (cycles of a token and head). Where decays per channel may be strong, so are the rows of the tiles that scores are then made in
    (8, 16 or 32): `braid.score_rows = 16`, `braid.score_costs = "8: 5200, 16: 4900, 32: 5600"`.
    The module says for which target sizes were chosen: `braid.chunk_target = "a CPU with vectors of 64 bytes"`.
    Invariant: every scan says how it will be cut.
  }];
  let options = [Option<"chunkSize", "chunk-size", "int64_t", "0", "tokens per chunk, a multiple of 16; 0: choose">,
                 Option<"vectorBytes", "vector-bytes", "int64_t", "64", "target CPU: bytes of a vector register: 64 (AVX-512), 32 or 16">,
                 Option<"bf16Dots", "bf16-dots", "bool", "false", "target CPU: products of bf16 pairs (AVX512-BF16)">,
                 Option<"sharedBytes", "shared-bytes", "int64_t", "0", "target GPU: shared memory that a block may use; 0: the target is a CPU">];
  let dependentDialects = ["::braid::tile::TileDialect", "::mlir::LLVM::LLVMDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::arith::ArithDialect", "::mlir::vector::VectorDialect", "::mlir::math::MathDialect", "::mlir::gpu::GPUDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def ExpandUpdatesPass : Pass<"braid-expand-updates", "::mlir::ModuleOp"> {
  let summary = "scans of several updates per token become scans over as many places of a row; stack and pick become copies";
  let description = [{
    Before: `%o, %final = lsm.scan H %q, %k, %v beta(%b) ..` with q [B, T, H, K] and k [B, T, 2, H, K]
    After:  `%o2, %final = lsm.scan H %q2, %k2, %v2 beta(%b2) ..` with q2, k2 [B, 2 T, H, K]: k2 is k under another shape, q2 has every query
            twice, o is every second row of o2. Of one token (decoding): two scans of one place each.
    A cotangent of o is one of every second row, and 0 of the others.
    Invariant: k of every scan and segment has a row for each token; no stack and no pick is left.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ChunkTilingPass : Pass<"braid-chunk-tiling", "::mlir::ModuleOp"> {
  let summary = "lsm.scan, lsm.scan_grad -> chunk table, chunk ops and state scans; one token -> lsm.step";
  let description = [{
    Before: `%o, %final = lsm.scan %q, %k, %v, %g, %initial, %documents {chunk_size = 64}`
    After:  `%chunks = lsm.chunk_table %documents;  %x, %p = lsm.chunk_state %k, %v, %g, %chunks`
            `%m, %final = lsm.state_scan %x, %p, %initial, %chunks;  %o = lsm.chunk_output %q, %k, %v, %g, %m, %chunks`
    The table has ceil(T / chunk_size) + max_documents rows (module attribute braid.max_documents, default 1).
    `gpu`: where tokens are bf16, so is what only products read of chunks: in-states, their cotangents and dense
    transitions. What is added up (X, dM and the state that walks over the chunks) is not rounded.
    Invariant: no lsm.scan and no lsm.scan_grad is left; the work between two states is a matrix form.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "kernels are for a GPU, whose products read bf16">,
                 Option<"wgmma", "wgmma", "bool", "false", "warpgroups multiply from shared memory (Hopper)">];
}

//===- kernels: every op -> a launch, a library call or a view ------------------------------------------------------===//

def UnwidenProductsPass : Pass<"braid-unwiden-products", "::mlir::ModuleOp"> {
  let summary = "products of f32 read the bf16 tensor that their operand was widened from";
  let description = [{
    For GPUs, where a product of such an operand is three of bf16 (outline/SplitProducts): a router's input, twice as many bytes, need not be written. What else reads the
    widened tensor still does.
    ```mlir
    Before: %i = braid.cast %n : (tensor<1x16384x1024xbf16>) -> tensor<1x16384x1024xf32>   %l = braid.linear %i, %w
    After:  %l = braid.linear %n, %w : (tensor<1x16384x1024xbf16>, tensor<1024x64xf32>) -> tensor<1x16384x64xf32>
    ```
    Invariant: the same products of the same numbers.
  }];
}

def UngroupNormsPass : Pass<"braid-ungroup-norms", "::mlir::ModuleOp"> {
  let summary = "norms in groups become norms of heads";
  let description = [{
    A group is a row of its own in a kernel that then needs no other shape inside, and shares that kernel with what has heads beside it. Gradients alike; weights are [groups, features].
    ```mlir
    Before: %y = braid.add %o, %s : 8x2048x8x128   %f = braid.reshape %y : 8x2048x1024   %n = braid.gated_norm %f, %g, %w {groups = 8}
    After:  %y = braid.add %o, %s   %n = braid.gated_norm %y, %h, %v : 8x2048x8x128, 8x128   %m = braid.reshape %n : 8x2048x1024
    ```
    Invariant: no norm has groups.
  }];
}

def FuseRowsPass : Pass<"braid-fuse-rows", "::mlir::ModuleOp"> {
  let summary = "decides which row-wise ops share a kernel";
  let description = [{
    Ops that share a value with the same rows, and whose order allows it, get the same number in `braid.cluster` and stand
    next to each other.
    Before: `%s = braid.add %x, %h   ..   %n = braid.rms_norm %s, %w {eps = 1.0e-6}`
    After:  `%s = braid.add %x, %h {braid.cluster = 0}   %n = braid.rms_norm %s, %w {braid.cluster = 0, eps = 1.0e-6}   ..`
    With `gpu` ops that together sum over rows of more than 1536 features do not join: a block's threads have these sums in registers. And a convolution and what alone reads it, element by element or over the channels of a head that a warp has, have such a number, and so have a convolution's gradient and what stands between
    the convolution, made again, and its cotangent: `%d = braid.rows_grad "braid.activation"(%c) ..  braid.short_conv_grad %x, .., %d {braid.cluster = 1}`.
    Invariant: the members of a cluster are adjacent; nothing between them belongs to another.
  }];
  let options = [Option<"maxOps", "max-ops", "int64_t", "12", "ops per cluster">,
                 Option<"maxValues", "max-values", "int64_t", "32", "operands and results per cluster">,
                 Option<"maxBytes", "max-bytes", "int64_t", "33554432", "of one row of each of them, if all were as wide as the widest: tiles must fit a stack">,
                 Option<"gpu", "gpu", "bool", "false", "the target is a GPU: convolutions with what is behind them, few sums over rows">];
}

def CountWorkPass : Pass<"braid-count-work", "::mlir::ModuleOp"> {
  let summary = "writes on every op what it must do at least: FLOPs and bytes, from its shapes";
  let description = [{
    A cluster of row-wise ops is counted as one op: values between its members cost nothing. Also says in words why the op is
    done the way it is. Outline shares the numbers among the launches and library calls that the op becomes.
    Before: `%y = braid.linear %x, %w`
    After:  `%y = braid.linear %x, %w {cmd.work = #cmd.work<"linear", flops = 65536, bytes = 12288, "library: a dense matrix product">}`
    Invariant: no kernel is asked, so a floor made of these numbers does not depend on how good the kernels are.
  }];
  let options = [Option<"gpu", "gpu", "bool", "false", "the target is a GPU">,
                 Option<"library", "library", "bool", "true", "dense products are a library's">,
                 Option<"f32Parts", "f32-parts", "bool", "true", "those of f32 may be products of their parts in bf16, on a GPU">];
  let dependentDialects = ["::braid::cmd::CmdDialect"];
}

def OutlinePass : Pass<"braid-outline", "::mlir::ModuleOp"> {
  let summary = "model ops -> kernels and launches, library calls and views";
  let description = [{
    Kernels are `func.func`s with `tile.kernel`, unique by name, named by what they compute; they depend on feature sizes
    and element types, never on the number of tokens or layers.
    Before: `%y = braid.softmax %x : (tensor<2x8x16xf32>) -> tensor<2x8x16xf32>`
    After:  `%0 = braid.reshape %x;  %1 = tile.launch @rows_softmax_.. grid [1] (%0) {..};  %y = braid.reshape %1`
    Invariant: what is left is tile.launch, tile.gemm, tile.grouped_gemm, views, zero constants, repeat, calls, braid.comm.
    An op without a kernel is an error that names it.

    bf16 products that are added up (the gradient of what several projections read) stay in f32 until the last, which adds the others and rounds
    once: `%dx = tile.gemm %dv, %wv, %sum {apart, ..}`. With `cublaslt` a
    product that is not one of groups leaves a sum in f32 that a kernel rounds, for that library
    adds only what has the type of its result.

    With `gpu` work is cut for hundreds of programs at a time: sums over rows have more parts, added up many at a time, each row of logits has a program and
    blocks of the loss four times as many rows as the projection has features. Products of bf16 that are added up are one kernel, whose sum is in no
    memory before it is complete (`tile.launch @gemm_sum4_..`), and a gradient of a weight, a long sum for few results, is computed in parts
    (`@gemm_parts_..`, `@sum_rows_f32`); with `cublaslt` only what is a product of groups.
    With `warpgroups` too row-wise ops that read nothing but products of bf16, of one matrix, and what is there before them become the end of one kernel: `hidden =
    silu(x w1) * (x w3)` is `tile.launch @gemm_end_.._activation_mul_..`, whose tiles have columns of both products beside each other, in the same thread.
    With `boxes` too a program of attention owns two tiles of rows, by which those of the other operand pass in boxes, where that leaves 128 programs or
    more (`@attn_causal_.._r128`).
    With `beside` what makes a gradient of a weight is marked `cmd.beside`: only the optimizer needs it.
  }];
  let options = [Option<"cublaslt", "cublaslt", "bool", "false", "matrix products are cuBLASLt's where it has them">,
                 Option<"gpu", "gpu", "bool", "false", "the target runs hundreds of programs at a time">,
                 Option<"f32Parts", "f32-parts", "bool", "true", "products of f32 matrices may be products of their parts in bf16, on a GPU">,
                 Option<"warpgroups", "warpgroups", "bool", "false", "warpgroups of the target multiply what boxes bring">,
                 Option<"boxes", "boxes", "bool", "false", "the target copies tiles in boxes, past its threads, and warpgroups multiply them">,
                 Option<"beside", "beside", "bool", "false", "gradients of weights may be made beside what follows them (cmd.beside)">];
  let dependentDialects = ["::braid::tile::TileDialect", "::braid::cmd::CmdDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect",
                           "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect", "::mlir::vector::VectorDialect"];
}

//===- kernels -> machine code -------------------------------------------------------------------------------------===//

def TileToLoopsPass : Pass<"braid-tile-to-loops", "::mlir::ModuleOp"> {
  let summary = "kernels on tiles -> loops over 1-D vectors, with the ABI of Program.fbs";
  let description = [{
    Every `func.func` with `tile.kernel` becomes `@name(%args: !llvm.ptr, %begin: i64, %end: i64)`: slots are read once,
    a loop walks the linear program numbers. Elementwise chains are evaluated strip by strip inside the loop of the op
    that consumes them; dot and solve become register-blocked loops; what must be kept lives in stack buffers allocated
    once per call and shared by tiles that are not alive together. A dot of bf16 tiles works on f32
    copies of them, not rounded where they are computed; or, with `bf16-dots`, on pairs of elements that are neighbours
    along the dimension summed over.

    Before: `%y = arith.addf %a, %b : vector<4x32xf32>  tile.store %y, %o[%i, %c0] ..`
    After:  one loop over 4 rows and two strips: load, load, add, store.
    Invariant: no `tile` op is left, no vector has more than one dimension, no allocation is inside a loop.
  }];
  let options = [Option<"vectorBytes", "vector-bytes", "int64_t", "64", "bytes of a vector register: 64 (AVX-512), 32 or 16">,
                 Option<"bf16Dots", "bf16-dots", "bool", "false", "the machine adds products of pairs of bf16 to f32 (AVX512-BF16)">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::arith::ArithDialect", "::mlir::vector::VectorDialect", "::mlir::math::MathDialect"];
}

def TileToThreadsPass : Pass<"braid-tile-to-threads", "::mlir::ModuleOp"> {
  let summary = "kernels on tiles -> the program of one thread of a block (gpu, scf, memref)";
  let description = [{
    Every `func.func` with `tile.kernel` becomes `@name(%args: !llvm.ptr)`, run by `threads.block` threads for each program
    of the grid, with `threads.shared_bytes` of shared memory. The elements of a tile are dealt out to the threads; what
    must be kept lies in shared memory, in rows that are padded against bank conflicts. A barrier stands where a thread
    reads or overwrites what another one has touched, nowhere else; every thread reaches every barrier. Reductions and
    scans along the last dimension are shuffles in a warp. A kernel without tiles runs on one thread. A loop that adds up
    products of bf16 tiles from memory is a pipeline: copies some iterations ahead, the sum in registers (ThreadProducts.cpp).

    Machine code for GPUs and the emulation on a CPU (`braid-emulate-threads`) both begin here.

    Before: `%y = arith.addf %a, %b : vector<4x32xf32>  tile.store %y, %o[%i, %c0] ..`
    After:  `%t = gpu.thread_id x`, each thread loads, adds and stores one of 128 elements.
    Invariant: no `tile` op and no vector is left; every scalar of the kernel has the same value in all threads.
  }];
  let options = [Option<"sharedBytes", "shared-bytes", "int64_t", "232448", "shared memory that a block may use">,
                 Option<"wgmma", "wgmma", "bool", "false", "warpgroups multiply from shared memory (Hopper)">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::gpu::GPUDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def EmulateThreadsPass : Pass<"braid-emulate-threads", "::mlir::ModuleOp"> {
  let summary = "the program of one thread -> a kernel for the CPU that runs all threads of its blocks";
  let description = [{
    What threads have in common (their number, barriers, shuffles, shared memory and who touches it) becomes calls of
    `braid_emulate_*` (test/emulator), and `@name` gets the ABI of the other kernels of a CPU: it runs the blocks of its range one after the
    other. So every test of a kernel on the CPU can be a test of what GPUs run.
    Invariant: no `gpu` op is left.
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ExpandMathPass : Pass<"braid-expand-math", "::mlir::ModuleOp"> {
  let summary = "f32 exp, log, log1p, expm1, tanh, ... -> polynomials on vectors, within about 2 ulp";
  let description = [{
    Before: `math.exp %x : vector<16xf32>`. After: range reduction, a polynomial, scaling by a power of two.
    Special values are those of libm: exp(-inf) = 0, log(0) = -inf, NaN stays NaN. f64 is left to libm.
    Without bf16 instructions conversions become integer arithmetic and bf16 values their 16 bits:
    `memref<8xbf16>` is `memref<8xi16>` afterwards.
  }];
  let options = [Option<"hasScale", "has-scale", "bool", "true", "the machine scales by a power of two in one instruction (AVX-512)">,
                 Option<"hasBf16", "has-bf16", "bool", "true", "the machine rounds f32 to bf16 in one instruction">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::LLVM::LLVMDialect"];
}

//===- kernels -> commands -----------------------------------------------------------------------------------------===//

def PlanMemoryPass : Pass<"braid-plan-memory", "::mlir::ModuleOp"> {
  let summary = "decides where every tensor of every entry function lies";
  let description = [{
    Expands calls of layer functions, finds values that can share a buffer (in-place updates, carried and stacked values,
    named results), and packs the rest by life times. Ops stay; the answer is `cmd.results` on each op, and a cmd.program
    with arenas and tensors. Where two buffers could not become one a cmd.materialize says so.

    Before: `%o = tile.launch @f grid [4] (%q) ..`
    After:  `%o = tile.launch @f grid [4] (%q) {cmd.results = [#cmd.buffer<@workspace, 4096, 1024>]} ..`
    What a collective sends while nobody needs its result keeps its bytes until `in-flight` bytes more are under way, in the
    next iteration of a repeat too: sums of gradients travel past their layer.
    Invariant: no two values with different contents lie on the same bytes at the same moment.
  }];
  let options = [Option<"inFlight", "in-flight", "int64_t", "-1", "most bytes that collectives whose results nobody needs yet send at a time; -1: as many as one layer starts">,
                 Option<"explain", "explain", "bool", "false", "remarks: bytes, lower bound and remaining copies per entry">,
                 Option<"naive", "naive", "bool", "false", "no buffer is shared or used twice: shows whether a wrong number comes from the plan">];
  let dependentDialects = ["::braid::cmd::CmdDialect"];
}

def ProveMemoryPlanPass : Pass<"braid-prove-memory-plan", "::mlir::ModuleOp"> {
  let summary = "executes planned entry functions on tags: does every op read what was written for it?";
  let description = [{
    Changes nothing. All iterations of all repeats run; collectives under way must find their buffers as they left them.
    Invariant: no value is overwritten before its last use, results lie apart from operands, named tensors hold their results.
  }];
}

def LowerToCommandsPass : Pass<"braid-lower-to-commands", "::mlir::ModuleOp"> {
  let summary = "entry functions with planned buffers -> cmd.entry";
  let description = [{
    Before: `%o = tile.launch @f grid [4] (%q) {arg_names = ["q"], result_names = ["o"], cmd.results = [..]} ..`
    After:  `cmd.launch @f grid [4, 1, 1] args {q = #cmd.buffer<..>, o = #cmd.buffer<..>}`
    Collectives go to the stream of their axis, with a record/wait pair on either side; so do commands of ops of a layer that are marked `cmd.beside`,
    to the stream `beside`. Kernels stay in the module, those that nobody launches go.
    Invariant: no entry function is left; every op in a cmd.entry is one table of Program.fbs.
  }];
  let dependentDialects = ["::braid::cmd::CmdDialect"];
}

def DelayWaitsPass : Pass<"braid-delay-waits", "::mlir::ModuleOp"> {
  let summary = "what another stream does is waited for in front of the first command that touches its bytes";
  let description = [{
    Before: `cmd.repeat` with the sum of a layer's gradient and, at the end of the body, a `cmd.wait` for it. After: the wait
    stands in front of the command of the next iteration that makes the gradient again, and another behind the repeat, in
    front of the first reader of the sum. The bytes decide, of all streams but the collective's own; where a collective on another
    stream touches them first, that stream waits and `compute` goes on.
    Invariant: the order of all other commands is as it was; the same sums in the same order, the same bits.
  }];
  let dependentDialects = ["::braid::cmd::CmdDialect"];
}

def GemmKernelsPass : Pass<"braid-gemm-kernels", "::mlir::ModuleOp"> {
  let summary = "matrix products of a library -> launches of tile kernels";
  let description = [{
    Before: `cmd.gemm 256 x 64 x 64 a .. b .. c ..`. After: `cmd.launch @gemm_f32_f32_f32_nn_64x64x32 grid [1, 4, 1] ..`, a program
    for each tile of C; grouped products find the rows of a group on the device. One kernel for every tile, element types and
    orientation of operands; sizes and leading dimensions are arguments. With `library`, products that are not grouped stay commands where
    cuBLASLt has their types: bf16 with bf16, f32 with f32, into that type or f32. With `warpgroups` tiles of grouped products have whole warpgroups of
    rows: 128 where 100 would do.
    Invariant: the same products over the same buffers, summed over k in steps of a tile.
  }];
  let options = [Option<"library", "library", "bool", "false", "leave to a library what it can do">,
                 Option<"warpgroups", "warpgroups", "bool", "false", "warpgroups of the target multiply what boxes bring">];
  let dependentDialects = ["::braid::cmd::CmdDialect", "::braid::tile::TileDialect", "::mlir::func::FuncDialect",
                           "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect", "::mlir::arith::ArithDialect"];
}

def JoinLaunchesPass : Pass<"braid-join-launches", "::mlir::ModuleOp"> {
  let summary = "launches of one kind of op that do not depend on each other start together";
  let description = [{
    Before: `cmd.launch @adamw_f32 ..` per tensor. After: the same, all but the first with `cmd.joined`: the runtime
    starts its threads once for all of them. A launch is joined to those right before it that came from the same kind of op
    (`cmd.work`), when it writes nothing that they read or write and reads nothing that they write.
    Invariant: the order of commands is as it was; executed one by one they compute the same bits.
  }];
  let dependentDialects = ["::braid::cmd::CmdDialect"];
}

def ProveSchedulePass : Pass<"braid-prove-schedule", "::mlir::ModuleOp"> {
  let summary = "do records and waits hold the streams together? every two commands that touch the same bytes, in any speed";
  let description = [{
    Changes nothing. Of two commands on different streams that touch the same bytes, one of them writing, the first in the list
    must have ended before the second begins, by FIFO streams and events alone; no stream may wait in a circle.
    Every iteration of every repeat is walked. The judge is schedule/Verify.
    Invariant: what the streams do together is what the list says one by one.
  }];
}

//===- at the end of every phase ------------------------------------------------------------------------------------===//

def VerifyPhasePass : Pass<"braid-verify-phase", "::mlir::ModuleOp"> {
  let summary = "rejects every op that must be gone, or has not come yet, when a phase ends; sets braid.phase";
  let description = [{
    Before: a module that claims to be in a phase. After: the same, with `braid.phase = "chunked"`.
    Invariant: the table of phases in VerifyPhase.cpp.
  }];
  let options = [Option<"phaseText", "phase", "std::string", "\"\"", "model, train, sharded, scheduled, chunked, kernels or commands">];
}

#endif // BRAID_PASSES
