//===- CommOps.td - collectives on named mesh axes ---------------------------------------------------------------===//
//
// Never pure: no pass may merge, hoist, clone or drop them (phases-by-example D15); the order of collectives of an axis is the
// order of the program on every rank. From `scheduled` on each is a `start` and an `await` of one future.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_COMM_OPS
#define BRAID_COMM_OPS

include "dialects/braid/BraidDialect.td"
include "dialects/braid/BraidEnums.td"
include "dialects/braid/BraidInterfaces.td"
include "dialects/braid/BraidTypes.td"

// `axis` names one axis of the mesh or a product of axes of one view ("dp*sp"), whose ranks are numbered as the mesh numbers them.
class Braid_Collective<string kind, list<Trait> traits = []> :
    Braid_Op<"comm." # kind, !listconcat([Braid_CollectiveOpInterface], traits)> {
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let extraClassDeclaration = "static ::braid::CollectiveKind getKind() { return ::braid::CollectiveKind::" # kind # "; }";
}

def Braid_CommAllReduceOp : Braid_Collective<"all_reduce"> {
  let summary = "sum over the ranks of `axis`, in rank order";
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$axis);
}
def Braid_CommAllGatherOp : Braid_Collective<"all_gather"> {
  let summary = "the x of all ranks of `axis`, one after the other along dimension `dim`, in rank order";
  let description = [{
    ```mlir
    %w = braid.comm.all_gather %shard {axis = "dp*sp", dim = 0 : i64} : (tensor<16x64xf32>) -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$axis, I64Attr:$dim);
}
def Braid_CommReduceScatterOp : Braid_Collective<"reduce_scatter"> {
  let summary = "this rank's part, along dimension `dim`, of the sum over the ranks of `axis`, in rank order";
  let description = [{
    ```mlir
    %shard = braid.comm.reduce_scatter %gradient {axis = "dp*sp", dim = 0 : i64} : (tensor<64x64xf32>) -> tensor<16x64xf32>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$axis, I64Attr:$dim);
}
def Braid_CommAllToAllOp : Braid_Collective<"all_to_all", [AttrSizedOperandSegments]> {
  let summary = "block p of x goes to peer p; block p of the result came from peer p";
  let description = [{
    x is cut into `peers` equal blocks along its rows ([1, peers * peer_rows, M]) or its first dimension ([peers, ...]).
    With counts ([peers, c] i32; live rows of a block = sum of its c counts) only live rows need travel; the rest is undefined.
  }];
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$send_counts, Optional<AnyRankedTensor>:$recv_counts,
                   StrAttr:$axis, I64Attr:$peers);
  let assemblyFormat = "$x (`send_counts` `(` $send_counts^ `)`)? (`recv_counts` `(` $recv_counts^ `)`)? attr-dict `:` functional-type(operands, results)";
}
def Braid_CommShiftOp : Braid_Collective<"shift"> {
  let summary = "x goes `distance` ranks on along `axis`; the result came from the rank as far before";
  let description = [{
    The first ranks get zeros, and what the last ones send is dropped, unless `cyclic`. `reverse` sends to ranks before and
    receives from those behind: the last ones get zeros.
  }];
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$axis, DefaultValuedAttr<I64Attr, "1">:$distance, UnitAttr:$cyclic,
                   UnitAttr:$reverse);
}
def Braid_CommStartOp : Braid_Op<"comm.start"> {
  let summary = "begin a collective; operands and attributes of `kind`'s op";
  let description = [{
    A shift that is not cyclic, between the two ranks of a pair of stages (axis "pp[i,j]"), may lack its input where this rank sends nothing, or its
    result where it gets nothing: `%f = braid.comm.start shift %x {axis = "pp[0,1]"} : (tensor<4x8xf32>) -> !braid.future` on the first.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, Braid_CollectiveKind:$kind, StrAttr:$axis,
                   DefaultValuedAttr<I64Attr, "1">:$peers, DefaultValuedAttr<I64Attr, "0">:$dim,
                   DefaultValuedAttr<I64Attr, "1">:$distance, UnitAttr:$cyclic, UnitAttr:$reverse, OptionalAttr<StrAttr>:$label);
  let results = (outs Braid_Future:$future);
  let hasVerifier = 1;
  let assemblyFormat = "$kind $inputs attr-dict `:` functional-type(operands, results)";
}
def Braid_CommAwaitOp : Braid_Op<"comm.await"> {
  let summary = "the tensors of a collective, when it has ended";
  let arguments = (ins Braid_Future:$future);
  let results = (outs Variadic<AnyRankedTensor>:$results);
  let hasVerifier = 1;
}

#endif // BRAID_COMM_OPS
