//===- StructureOps.td - layers, views, sums ---------------------------------------------------------------------===//
#ifndef BRAID_STRUCTURE_OPS
#define BRAID_STRUCTURE_OPS

include "dialects/braid/BraidDialect.td"
include "dialects/braid/BraidInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/IR/RegionKindInterface.td"

def Braid_RepeatOp : Braid_Op<"repeat", [SingleBlock, DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>]> {
  let summary = "equal layers, one after the other";
  let description = [{
    Operands: `carried` values, then stacked inputs [count, ...]. The body's arguments: the carried values, then layer i's
    part of every stacked input, shape [...]. It yields the carried values for layer i + 1, then per-layer results,
    which the op returns stacked [count, ...]. `reverse` walks from layer count - 1 down to 0 (inputs and results keep
    their index). The body may use values defined outside (they are the same for all layers). Nested repeats stack twice.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, I64Attr:$count, I64Attr:$carried, UnitAttr:$reverse);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results) $body";
  let hasVerifier = 1;
}

def Braid_YieldOp : Braid_Op<"yield", [Pure, Terminator, ReturnLike, HasParent<"RepeatOp">]> {
  let summary = "end of a repeat body: carried values, then per-layer results";
  let arguments = (ins Variadic<AnyType>:$values);
}

def Braid_ReshapeOp : Braid_Op<"reshape", [Pure, DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "the same elements, row-major, under another shape (a view)";
  let arguments = (ins AnyRankedTensor:$source);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Braid_SliceOp : Braid_Op<"slice", [Pure]> {
  let summary = "indices [begin, begin + size) of dimension `dim`, size from the result";
  let arguments = (ins AnyRankedTensor:$source, I64Attr:$dim, I64Attr:$begin);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Braid_ConcatOp : Braid_Op<"concat", [Pure]> {
  let summary = "tensors one after the other along `dim`";
  let arguments = (ins Variadic<AnyRankedTensor>:$sources, I64Attr:$dim);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Braid_StackOp : Braid_Op<"stack", [Pure, DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "n tensors [B, T, ..] as one [B, T, n, ..]: what a token has several of, one after the other";
  let arguments = (ins Variadic<AnyRankedTensor>:$sources);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_PickOp : Braid_Op<"pick", [Pure, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "number `index` of what a token has several of: [B, T, n, ..] -> [B, T, ..]";
  let arguments = (ins AnyRankedTensor:$source, I64Attr:$index);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_InsertOp : Braid_Op<"insert", [Pure]> {
  let summary = "`into` with x at [begin, begin + size) of dimension `dim`, size from x; works in place";
  let description = [{ Without `into` what is not x holds nothing that may be read: the first part of a buffer that others fill. }];
  let arguments = (ins AnyRankedTensor:$x, Optional<AnyRankedTensor>:$into, I64Attr:$dim, I64Attr:$begin);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_ShardOp : Braid_Op<"shard", [Pure]> {
  let summary = "this rank's part of a tensor that it has as a whole: part `coordinate` of `count` along `dim`";
  let description = [{
    ```mlir
    %part = braid.shard %whole, %c {count = 2 : i64, dim = 0 : i64} : (tensor<8x4xf32>, tensor<1xi32>) -> tensor<4x4xf32>
    ```
    `coordinate` [1] i32 is the rank's place on the axes that count the parts: the input `coordinate.<axis>` of the entry.
  }];
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$coordinate, I64Attr:$dim, I64Attr:$count);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_LocalIdsOp : Braid_Op<"local_ids", [Pure, DeclareOpInterfaceMethods<Braid_TokenOpInterface>]> {
  let summary = "ids [B, T, ..] of what this rank has: id - coordinate * size where that is 0 to size - 1, else -1";
  let arguments = (ins AnyRankedTensor:$ids, AnyRankedTensor:$coordinate, I64Attr:$size);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_ScaleDocumentsOp : Braid_Op<"scale_documents", [Pure]> {
  let summary = "documents of a row that has `count` places for each token, counted from place `begin` of the row: x count - begin";
  let arguments = (ins AnyRankedTensor:$documents, I64Attr:$count, DefaultValuedAttr<I64Attr, "0">:$begin);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_DocumentsOp : Braid_Op<"documents", [Pure]> {
  let summary = "per token, the row index at which its document begins";
  let description = [{
    cu_seqlens [B, D + 1] i32, relative to the row, non-decreasing; the largest entry <= 0 is where the current
    document began (negative: that many tokens before this row), the last entry is the number of valid tokens, unused
    entries repeat it. Result [B, T] i32 for tokens [begin, begin + T) of the row, relative to `begin`; a token past the
    last entry gets INT32_MAX: it reads and writes no state and belongs to no document. With a `coordinate` [1] i32 along
    `sp`, `begin` is moved by coordinate * T: the ranks of the axis hold T tokens each, one after the other.
  }];
  let arguments = (ins AnyRankedTensor:$cu_seqlens, Optional<AnyRankedTensor>:$coordinate,
                   DefaultValuedAttr<I64Attr, "0">:$begin);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

def Braid_LastTokenOp : Braid_Op<"last_token", [Pure]> {
  let summary = "the last token of each row that is not padding: x [B, T, M], documents [B, T] -> [B, 1, M]; zeros for a row of padding";
  let arguments = (ins AnyRankedTensor:$x, AnyRankedTensor:$documents);
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

#endif // BRAID_STRUCTURE_OPS
