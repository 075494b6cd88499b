//===- Passes.td - every pass, in pipeline order ------------------------------------------------------------------===//
#ifndef BRAID_PASSES
#define BRAID_PASSES

include "mlir/Pass/PassBase.td"

//===- kernels -> machine code -------------------------------------------------------------------------------------===//

def TileToLoopsPass : Pass<"braid-tile-to-loops", "::mlir::ModuleOp"> {
  let summary = "kernels on tiles -> loops over 1-D vectors, with the ABI of Program.fbs";
  let description = [{
    Every `func.func` with `tile.kernel` becomes `@name(%args: !llvm.ptr, %begin: i64, %end: i64)`: slots are read once,
    a loop walks the linear program numbers. Elementwise chains are evaluated strip by strip inside the loop of the op
    that consumes them; dot and solve become register-blocked loops; what must be kept lives in stack buffers allocated
    once per call and shared by tiles that are not alive together.

    Before: `%y = arith.addf %a, %b : vector<4x32xf32>  tile.store %y, %o[%i, %c0] ..`
    After:  one loop over 4 rows and two strips: load, load, add, store.
    Invariant: no `tile` op is left, no vector has more than one dimension, no allocation is inside a loop.
  }];
  let options = [Option<"vectorBytes", "vector-bytes", "int64_t", "64", "bytes of a vector register: 64 (AVX-512), 32 or 16">];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::scf::SCFDialect", "::mlir::memref::MemRefDialect",
                           "::mlir::arith::ArithDialect", "::mlir::vector::VectorDialect", "::mlir::math::MathDialect"];
}

def ExpandMathPass : Pass<"braid-expand-math", "::mlir::ModuleOp"> {
  let summary = "f32 exp, log, log1p, expm1, tanh, ... -> polynomials on vectors, within about 2 ulp";
  let description = [{
    Before: `math.exp %x : vector<16xf32>`. After: range reduction, a polynomial, scaling by a power of two.
    Special values are those of libm: exp(-inf) = 0, log(0) = -inf, NaN stays NaN. f64 is left to libm.
  }];
  let options = [Option<"hasScale", "has-scale", "bool", "true", "the machine scales by a power of two in one instruction (AVX-512)">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::LLVM::LLVMDialect"];
}

#endif // BRAID_PASSES
