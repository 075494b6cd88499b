//===- TileDialect.td - the kernel dialect -----------------------------------------------------------------------===//
//
//   braid (tensors, chunked) --Outline--> tile kernels --TileToLoops--> scf + memref + 1-D vector --> LLVM --> .so
//                                                    \--(Hopper)-----> gpu + nvvm --> cubin
//
// A kernel is one `func.func` with the unit attribute `tile.kernel` and `tile.grid = ["row", ..]` (one to three names,
// x fastest). Its arguments carry `tile.name`; the names are those of the op's operands and cross the ABI as they are.
// Argument types: memref (buffers; identity layout or strided<[..]> with dynamic outer strides, contiguous innermost
// dimension), index, f32, f64. Tiles are builtin `vector` values of static shape: elementwise mathematics is upstream `arith` and
// `math` on vectors, loops are `scf`, scalar accesses are `memref.load/store`; `tile` adds only what those lack.
// Programs of one launch are independent: no two write the same element.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_TILE_DIALECT
#define BRAID_TILE_DIALECT

include "mlir/IR/OpBase.td"

def Tile_Dialect : Dialect {
  let name = "tile";
  let cppNamespace = "::braid::tile";
  let summary = "Kernels over a grid; tiles are vectors of static shape";
  let description = [{
    One kernel source, lowered once per target. Enters: nothing but what Outline builds. Leaves: LLVM for the CPU,
    NVVM for Hopper. Legal beside it inside a kernel: arith, math, scf, memref, vector.broadcast, vector.shape_cast.
  }];
  let hasOperationAttrVerify = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::vector::VectorDialect"];
}

#endif // BRAID_TILE_DIALECT
