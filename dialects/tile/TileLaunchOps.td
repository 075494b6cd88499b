//===- TileLaunchOps.td - what an entry function consists of in phase `kernels` ------------------------------------===//
//
// In phase `kernels` every op of an entry or layer function is one of: tile.launch, tile.gemm, tile.grouped_gemm,
// a view (braid.reshape, braid.slice/concat), a zero constant, braid.repeat/yield, func.call/return, braid.comm.*.
// Values are still tensors; buffers come with LowerToCommands.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_TILE_LAUNCH_OPS
#define BRAID_TILE_LAUNCH_OPS

include "dialects/tile/TileDialect.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Tile_LaunchOp : Op<Tile_Dialect, "launch", [Pure]> {
  let summary = "run a kernel over a grid; reads operands, fills results";
  let description = [{
    `arg_names`: the kernel parameter that each operand feeds, `result_names`: the parameter that receives each result's
    buffer; all by name. `inplace[i]` >= 0: result i shares the buffer of that operand (the kernel reads and writes it).
    A tensor of shape s feeds a memref parameter of the same rank: dynamic sizes and strides come from the tensor's
    shape and its buffer. `scalars`: the remaining parameters (index, f32, f64) as constants.
    ```mlir
    %o = tile.launch @lsm_chunk_output_v grid [8, 2, 2] (%q, %m) {arg_names = ["q", "m"], result_names = ["o"], inplace = array<i64: -1>,
         scalars = {scale = 0.125 : f32}} : (tensor<2x256x2x32xf32>, tensor<2x8x2x32x32xf32>) -> tensor<2x256x2x32xf32>
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs, FlatSymbolRefAttr:$kernel, DenseI64ArrayAttr:$grid,
                   StrArrayAttr:$arg_names, StrArrayAttr:$result_names, DenseI64ArrayAttr:$inplace, DictionaryAttr:$scalars);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let assemblyFormat = "$kernel `grid` $grid `(` $inputs `)` attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Tile_GemmOp : Op<Tile_Dialect, "gemm", [Pure]> {
  let summary = "library GEMM: op(a) op(b) (+ c)";
  let description = [{
    a, b, c are read as matrices: leading dimensions collapse to rows, trailing to columns as `a_columns`, `b_columns`,
    `c_columns` say (the product of the trailing dimensions that form columns). op(a) is m x k, op(b) is k x n. With c the result shares its
    buffer and accumulates; `apart`: it has its own, c is only read and may be of a wider float type (a sum of products in f32, rounded once).
    ```mlir
    %dx = tile.gemm %dv, %wv, %sum {a_columns = 64 : i64, apart, b_columns = 64 : i64, c_columns = 32 : i64, transpose_b}
        : (tensor<2x8x64xbf16>, tensor<32x64xbf16>, tensor<2x8x32xf32>) -> tensor<2x8x32xbf16>
    ```
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, Optional<AnyRankedTensor>:$c, I64Attr:$a_columns, I64Attr:$b_columns,
                   I64Attr:$c_columns, UnitAttr:$transpose_a, UnitAttr:$transpose_b, UnitAttr:$apart);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

def Tile_GroupedGemmOp : Op<Tile_Dialect, "grouped_gemm", [Pure]> {
  let summary = "library GEMM per group of rows, offsets on the device";
  let description = [{
    `weight` false: a [1, R, k], b [E, k, n] (transpose_b: [E, n, k]) -> [1, R, n] (+ c).  `weight` true: a [1, R, m], b [1, R, n] -> [E, m, n] f32 (+ c).
    `apart` (rows): as of tile.gemm.
  }];
  let arguments = (ins AnyRankedTensor:$a, AnyRankedTensor:$b, AnyRankedTensor:$offsets, Optional<AnyRankedTensor>:$c, UnitAttr:$weight,
                   UnitAttr:$transpose_b, UnitAttr:$apart);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
  let hasVerifier = 1;
}

#endif // BRAID_TILE_LAUNCH_OPS
