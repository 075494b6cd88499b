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

// What is at most 0 needs no other bound above, and one step to reduce it: 1 fma, 1 for r, 6 of the polynomial.
// CHECK-LABEL: func.func @decay
// CHECK:       arith.cmpf ogt
// CHECK-NOT:   arith.cmpf ogt
// CHECK-COUNT-8: math.fma
// CHECK-NOT:   math.fma
// CHECK:       return
func.func @decay(%x: vector<16xf32>) -> vector<16xf32> {
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %again = arith.constant dense<0.0> : vector<16xf32>
  %greater = arith.cmpf ogt, %x, %zero : vector<16xf32>
  %y = arith.select %greater, %again, %x : vector<16xi1>, vector<16xf32>
  %z = math.exp %y : vector<16xf32>
  return %z : vector<16xf32>
}

// The same, as canonicalization may turn it; a bound above 0 saves the other bound only.
// CHECK-LABEL: func.func @turned
// CHECK:       arith.cmpf olt
// CHECK-NOT:   arith.cmpf ogt
// CHECK-COUNT-8: math.fma
// CHECK-NOT:   math.fma
// CHECK:       return
func.func @turned(%x: vector<16xf32>) -> vector<16xf32> {
  %zero = arith.constant dense<0.0> : vector<16xf32>
  %greater = arith.cmpf olt, %zero, %x : vector<16xf32>
  %y = arith.select %greater, %zero, %x : vector<16xi1>, vector<16xf32>
  %z = math.exp %y : vector<16xf32>
  return %z : vector<16xf32>
}
// CHECK-LABEL: func.func @bounded
// CHECK:       arith.cmpf ogt
// CHECK-NOT:   arith.cmpf ogt
// CHECK-COUNT-9: math.fma
// CHECK-NOT:   math.fma
// CHECK:       return
func.func @bounded(%x: vector<16xf32>) -> vector<16xf32> {
  %most = arith.constant dense<80.0> : vector<16xf32>
  %greater = arith.cmpf ogt, %x, %most : vector<16xf32>
  %y = arith.select %greater, %most, %x : vector<16xi1>, vector<16xf32>
  %z = math.exp %y : vector<16xf32>
  return %z : vector<16xf32>
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

// No machine rounds f64 to bf16 in one instruction.
// CHECK-LABEL: func.func @round_twice
// CHECK:       %[[S:.*]] = arith.truncf %{{.*}} : f64 to f32
// CHECK:       arith.truncf %[[S]] : f32 to bf16
func.func @round_twice(%x: f64) -> bf16 {
  %y = arith.truncf %x : f64 to bf16
  return %y : bf16
}

// Where the machine knows no bf16 nothing is of that type: memory, constants, values that are only moved.
// CHECK-LABEL: func.func @move
// CHECK:       vector.maskedload {{.*}} memref<40xbf16>
// CHECK:       arith.extf
// PLAIN-LABEL: func.func @move(%arg0: memref<40xi16>
// PLAIN-NOT:   bf16
// PLAIN:       arith.constant dense<16256> : vector<8xi16>
// PLAIN:       %[[X:.*]] = vector.maskedload {{.*}} memref<40xi16>, vector<8xi1>, vector<8xi16> into vector<8xi16>
// PLAIN:       %[[WIDE:.*]] = arith.extui %[[X]] : vector<8xi16> to vector<8xi32>
// PLAIN:       %[[HIGH:.*]] = arith.shli %[[WIDE]]
// PLAIN:       arith.bitcast %[[HIGH]] : vector<8xi32> to vector<8xf32>
// PLAIN:       memref.load {{.*}} memref<40xi16>
// PLAIN:       vector.maskedstore {{.*}} vector<8xi16>
// PLAIN-NOT:   bf16
func.func @move(%m: memref<40xbf16>, %mask: vector<8xi1>, %i: index) -> (vector<8xf32>, f64) {
  %one = arith.constant dense<1.0> : vector<8xbf16>
  %x = vector.maskedload %m[%i], %mask, %one : memref<40xbf16>, vector<8xi1>, vector<8xbf16> into vector<8xbf16>
  %y = arith.extf %x : vector<8xbf16> to vector<8xf32>
  %s = memref.load %m[%i] : memref<40xbf16>
  %d = arith.extf %s : bf16 to f64
  vector.maskedstore %m[%i], %mask, %x : memref<40xbf16>, vector<8xi1>, vector<8xbf16>
  return %y, %d : vector<8xf32>, f64
}
