//===- TileOps.td - grid, memory, matrix and row operations on tiles ---------------------------------------------===//
#ifndef BRAID_TILE_OPS
#define BRAID_TILE_OPS

include "dialects/tile/TileDialect.td"
include "dialects/tile/TileEnums.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"

class Tile_Op<string mnemonic, list<Trait> traits = []> : Op<Tile_Dialect, mnemonic, traits>;

def Tile_AnyTile : VectorOfNonZeroRankOf<[AnyType]>;
def Tile_FloatTile : VectorOfNonZeroRankOf<[F32, F64, BF16]>;
def Tile_SumTile : VectorOfNonZeroRankOf<[F32, F64, BF16, I32]>;

def Tile_ProgramOp : Tile_Op<"program", [Pure]> {
  let summary = "this program's grid coordinates, one per name of `tile.grid`";
  let results = (outs Variadic<Index>:$ids);
  let assemblyFormat = "attr-dict `:` type($ids)";
  let hasVerifier = 1;
}

def Tile_LoadOp : Tile_Op<"load", [AttrSizedOperandSegments, MemoryEffects<[MemRead]>]> {
  let summary = "tile <- buffer";
  let description = [{
    `indices` (one per buffer dimension) is the buffer element of the tile's first element; tile dimension j runs along
    buffer dimension `dims[j]` (ascending). With `limit`, rows i of the first tile dimension with
    `indices[dims[0]] + i >= limit` read 0; rows with a negative index read 0 as well. Other dimensions must be in bounds.
    With `rows` (i32 tile of the first tile dimension's length) row i reads buffer row `indices[dims[0]] + rows[i]`
    instead, and a negative `rows[i]` reads 0: a gather. `limit` then bounds the buffer row that is read.
    ```mlir
    %q = tile.load %buf[%b, %lo, %h, %c0] limit %hi {dims = array<i64: 1, 3>} : memref<?x?x2x32xf32>, vector<16x32xf32>
    ```
  }];
  let arguments = (ins Arg<AnyMemRef, "", [MemRead]>:$source, Variadic<Index>:$indices, Optional<Index>:$limit,
                   Optional<VectorOfNonZeroRankOf<[I32]>>:$rows, DenseI64ArrayAttr:$dims);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$source `[` $indices `]` (`limit` $limit^)? (`rows` $rows^ `:` type($rows))? attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
}

def Tile_StoreOp : Tile_Op<"store", [AttrSizedOperandSegments]> {
  let summary = "buffer <- tile";
  let description = [{
    The mirror of load: rows at or past `limit` (and negative rows) are not written. With `rows` row i is written to buffer
    row `indices[dims[0]] + rows[i]` instead, and not at all where `rows[i]` is negative: a scatter. No two rows of a tile
    may be written to the same place; their order is nobody's.
  }];
  let arguments = (ins Tile_AnyTile:$value, Arg<AnyMemRef, "", [MemWrite]>:$target, Variadic<Index>:$indices,
                   Optional<Index>:$limit, Optional<VectorOfNonZeroRankOf<[I32]>>:$rows, DenseI64ArrayAttr:$dims);
  let assemblyFormat = "$value `,` $target `[` $indices `]` (`limit` $limit^)? (`rows` $rows^ `:` type($rows))? attr-dict `:` type($value) `,` type($target)";
  let hasVerifier = 1;
}

def Tile_DotOp : Tile_Op<"dot", [Pure, AllTypesMatch<["acc", "result"]>]> {
  let summary = "acc + op(a) op(b); accumulates in the type of acc (f32, or f64)";
  let description = [{ op(a) is [M, K] (`transpose_a`: a is [K, M]), op(b) is [K, N] (`transpose_b`: b is [N, K]). }];
  let arguments = (ins Tile_FloatTile:$a, Tile_FloatTile:$b, Tile_FloatTile:$acc, UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let results = (outs Tile_FloatTile:$result);
  let assemblyFormat = "$a `,` $b `,` $acc attr-dict `:` type($a) `,` type($b) `,` type($acc)";
  let hasVerifier = 1;
}

def Tile_SolveOp : Tile_Op<"solve", [Pure, AllTypesMatch<["b", "result"]>]> {
  let summary = "(I + L)^-1 b by substitution, L = strictly lower triangle of a";
  let description = [{
    a is [C, C]; entries on and above its diagonal are ignored. `transpose` solves (I + L)^T x = b. Always by blocked
    forward (backward) substitution, never by powers of a (lsm-family 4.4: powers reach 1e14 on equal keys).
  }];
  let arguments = (ins Tile_FloatTile:$a, Tile_FloatTile:$b, UnitAttr:$transpose);
  let results = (outs Tile_FloatTile:$result);
  let assemblyFormat = "$a `,` $b attr-dict `:` type($a) `,` type($b)";
  let hasVerifier = 1;
}

def Tile_CumsumOp : Tile_Op<"cumsum", [Pure, SameOperandsAndResultType]> {
  let summary = "inclusive running sum along `axis`; `reverse`: from the end";
  let arguments = (ins Tile_SumTile:$source, I64Attr:$axis, UnitAttr:$reverse);
  let results = (outs Tile_SumTile:$result);
  let assemblyFormat = "$source attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def Tile_ReduceOp : Tile_Op<"reduce", [Pure]> {
  let summary = "combine along `axis`, which disappears (a rank-1 tile gives a scalar)";
  let arguments = (ins Tile_AnyTile:$source, I64Attr:$axis, Tile_ReduceKind:$kind);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$kind $source attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
}

def Tile_ExpandOp : Tile_Op<"expand", [Pure]> {
  let summary = "insert dimension `axis` and repeat along it; its length is the result's";
  let arguments = (ins Tile_AnyTile:$source, I64Attr:$axis);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
}

def Tile_RowsOp : Tile_Op<"rows", [Pure]> {
  let summary = "rows [offset, offset + n) of a tile (n = first result dimension); result of one rank less: one row";
  let arguments = (ins Tile_AnyTile:$source, Index:$offset);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$source `[` $offset `]` attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Tile_InsertRowsOp : Tile_Op<"insert_rows", [Pure, AllTypesMatch<["target", "result"]>]> {
  let summary = "target with rows [offset, offset + n) replaced by value";
  let arguments = (ins Tile_AnyTile:$value, Tile_AnyTile:$target, Index:$offset);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$value `,` $target `[` $offset `]` attr-dict `:` type($value) `,` type($target)";
  let hasVerifier = 1;
}

def Tile_SliceOp : Tile_Op<"slice", [Pure]> {
  let summary = "columns [offset, offset + n) of the last dimension, n from the result";
  let arguments = (ins Tile_AnyTile:$source, I64Attr:$offset);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Tile_ConcatOp : Tile_Op<"concat", [Pure]> {
  let summary = "tiles side by side along the last dimension";
  let arguments = (ins Variadic<Tile_AnyTile>:$sources);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$sources attr-dict `:` type($sources) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Tile_TransposeOp : Tile_Op<"transpose", [Pure]> {
  let summary = "rank-2 tile with its dimensions exchanged";
  let arguments = (ins Tile_AnyTile:$source);
  let results = (outs Tile_AnyTile:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Tile_IotaOp : Tile_Op<"iota", [Pure]> {
  let summary = "i32 tile whose element is its own index along `axis`";
  let arguments = (ins I64Attr:$axis);
  let results = (outs VectorOfNonZeroRankOf<[I32]>:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Tile_MaskOp : Tile_Op<"mask", [Pure, SameOperandsAndResultType]> {
  let summary = "0 outside the kept triangle of a square tile (the rest is selected, not multiplied: NaN does not leak)";
  let arguments = (ins Tile_FloatTile:$source, Tile_Keep:$keep);
  let results = (outs Tile_FloatTile:$result);
  let assemblyFormat = "$keep $source attr-dict `:` type($source)";
  let hasVerifier = 1;
}

def Tile_DiagonalOp : Tile_Op<"diagonal", [Pure]> {
  let summary = "the diagonal of a square tile";
  let description = [{
    result_i = source_ii. What stands beside the diagonal does not count while it is finite.
    ```mlir
    %own = tile.diagonal %scores : vector<64x64xf32>, vector<64xf32>
    ```
  }];
  let arguments = (ins Tile_FloatTile:$source);
  let results = (outs Tile_FloatTile:$result);
  let assemblyFormat = "$source attr-dict `:` type($source) `,` type($result)";
  let hasVerifier = 1;
}

def Tile_PickOp : Tile_Op<"pick", [Pure]> {
  let summary = "of each row the element in a column of its own; 0 where there is no such column";
  let description = [{
    result_i = source_i,columns[i] (0 <= columns[i] < n), else 0; what is not picked may be anything. For a row that is cut into tiles: the tile that has the column adds its element
    to the zeros of the others.
    ```mlir
    %logit = tile.pick %logits[%labels] : vector<128x256xf32>, vector<128xi32>, vector<128xf32>
    ```
  }];
  let arguments = (ins Tile_FloatTile:$source, VectorOfNonZeroRankOf<[I32]>:$columns);
  let results = (outs Tile_FloatTile:$result);
  let assemblyFormat = "$source `[` $columns `]` attr-dict `:` type($source) `,` type($columns) `,` type($result)";
  let hasVerifier = 1;
}

#endif // BRAID_TILE_OPS
