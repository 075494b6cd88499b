// RUN: braid-opt %s --braid-expand-math | FileCheck %s
// RUN: braid-opt %s --braid-expand-math="has-scale=false has-bf16=false" | FileCheck %s --check-prefix=PLAIN

// CHECK-LABEL: func.func @exp
// CHECK:       math.fma
// CHECK:       llvm.call_intrinsic "llvm.x86.avx512.mask.scalef.ps.512"
// CHECK-NOT:   math.exp
// PLAIN-LABEL: func.func @exp
// PLAIN-NOT:   scalef
// PLAIN:       arith.shli
// PLAIN:       return
func.func @exp(%x: vector<16xf32>) -> vector<16xf32> {
  %y = math.exp %x : vector<16xf32>
  return %y : vector<16xf32>
}

// f64 is left to libm.
// CHECK-LABEL: func.func @double
// CHECK:       math.log
func.func @double(%x: vector<8xf64>) -> vector<8xf64> {
  %y = math.log %x : vector<8xf64>
  return %y : vector<8xf64>
}

// CHECK-LABEL: func.func @round
// CHECK:       arith.truncf
// PLAIN-LABEL: func.func @round
// PLAIN-NOT:   arith.truncf
// PLAIN:       arith.cmpf uno
func.func @round(%x: vector<16xf32>) -> vector<16xbf16> {
  %y = arith.truncf %x : vector<16xf32> to vector<16xbf16>
  return %y : vector<16xbf16>
}
