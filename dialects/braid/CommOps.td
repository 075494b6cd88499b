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
include "dialects/braid/BraidTypes.td"

def Braid_CommAllReduceOp : Braid_Op<"comm.all_reduce"> {
  let summary = "sum over the ranks of `axis`, in rank order";
  let arguments = (ins AnyRankedTensor:$x, StrAttr:$axis);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}
def Braid_CommAllToAllOp : Braid_Op<"comm.all_to_all", [AttrSizedOperandSegments]> {
  let summary = "block p of x goes to peer p; block p of the result came from peer p";
  let description = [{
    x is cut into `peers` equal blocks along its rows ([1, peers * peer_rows, M]) or its first dimension ([peers, ...]).
    With counts ([peers, c] i32; live rows of a block = sum of its c counts) only live rows need travel; the rest is undefined.
  }];
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$send_counts, Optional<AnyRankedTensor>:$recv_counts,
                   StrAttr:$axis, I64Attr:$peers);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let assemblyFormat = "$x (`send_counts` `(` $send_counts^ `)`)? (`recv_counts` `(` $recv_counts^ `)`)? attr-dict `:` functional-type(operands, results)";
}
def Braid_CommStartOp : Braid_Op<"comm.start"> {
  let summary = "begin a collective; operands and attributes of `kind`'s op";
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, Braid_CollectiveKind:$kind, StrAttr:$axis,
                   DefaultValuedAttr<I64Attr, "1">:$peers, OptionalAttr<StrAttr>:$label);
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
