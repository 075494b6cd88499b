// Programs of attention own two tiles of rows, by which the other operand's pass in boxes, where that leaves 128 of them and what a box may bring is all to be read.
// RUN: braid-opt %s --braid-outline="gpu boxes" | FileCheck %s
// RUN: braid-opt %s --braid-outline=gpu | FileCheck %s --check-prefix=THREADS
// RUN: braid-opt %s --braid-outline | FileCheck %s --check-prefix=THREADS
// THREADS-NOT: _r128

// Three blocks of 128 rows for each of 24 heads of two rows; keys are shared by three of them: 48 programs would be too few.
// CHECK-LABEL: func.func @packed(
// CHECK: tile.launch @attn_causal_h24_g8_d64_bf16_r128 grid [3, 24, 2]
// CHECK: tile.launch @attn_grad_q_h24_g8_d64_bf16_r128 grid [3, 24, 2]
// CHECK: tile.launch @attn_grad_kv_h24_g8_d64_bf16 grid [5, 8, 2]
func.func @packed(%q: tensor<2x300x24x64xbf16>, %k: tensor<2x300x8x64xbf16>, %v: tensor<2x300x8x64xbf16>, %documents: tensor<2x300xi32>, %do: tensor<2x300x24x64xbf16>)
    -> (tensor<2x300x24x64xbf16>, tensor<2x300x24x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300x8x64xbf16>) {
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {prefix = 0 : i64, scale = 0.125 : f64, window = 0 : i64}
    : (tensor<2x300x24x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300xi32>) -> (tensor<2x300x24x64xbf16>, tensor<2x24x300xf32>)
  %dq, %dk, %dv = braid.attn.causal_grad %q, %k, %v, %documents, %o, %lse, %do {prefix = 0 : i64, scale = 0.125 : f64, window = 0 : i64, operandSegmentSizes = array<i32: 1, 1, 1, 1, 1, 1, 1, 0, 0>}
    : (tensor<2x300x24x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300xi32>, tensor<2x300x24x64xbf16>, tensor<2x24x300xf32>, tensor<2x300x24x64xbf16>) -> (tensor<2x300x24x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300x8x64xbf16>)
  return %o, %dq, %dk, %dv : tensor<2x300x24x64xbf16>, tensor<2x300x24x64xbf16>, tensor<2x300x8x64xbf16>, tensor<2x300x8x64xbf16>
}

// Keys have room for later ones, which may be anything: no box brings them.
// CHECK-LABEL: func.func @room(
// CHECK: tile.launch @attn_causal_h64_g64_d64_bf16 grid [5, 64, 1]
func.func @room(%q: tensor<1x300x64x64xbf16>, %k: tensor<1x400x64x64xbf16>, %v: tensor<1x400x64x64xbf16>, %documents: tensor<1x300xi32>) -> tensor<1x300x64x64xbf16> {
  %o, %lse = braid.attn.causal %q, %k, %v, %documents {prefix = 20 : i64, keys = 320 : i64, scale = 0.125 : f64, window = 0 : i64}
    : (tensor<1x300x64x64xbf16>, tensor<1x400x64x64xbf16>, tensor<1x400x64x64xbf16>, tensor<1x300xi32>) -> (tensor<1x300x64x64xbf16>, tensor<1x64x300xf32>)
  return %o : tensor<1x300x64x64xbf16>
}

// The kernel: one loop over tiles of 128 keys that goes on for one more, as values come one tile behind. Queries are multiplied as they lie in memory. P of the tile before is multiplied while this one's is masked and
// computed, an exponent of two that the scale is a factor of; what has been summed up is scaled behind that.
// CHECK: func.func @attn_causal_h24_g8_d64_bf16_r128({{.*}}tile.boxes
// CHECK: scf.for %[[AT:.*]] = %[[LO:.*]] to %{{.*}} step %c128 iter_args({{.*}}, %[[SUM:[a-z0-9_]+]] = %{{[a-z0-9_]+}}, %{{[a-z0-9_]+}} = %{{[a-z0-9_]+}}) -> (vector<128xf32>, vector<128xf32>, vector<128x64xf32>, vector<128x128xf32>)
// CHECK: tile.load %arg1[%{{.*}}, %[[AT]], {{.*}}vector<128x64xbf16>
// CHECK: %[[BEHIND:.*]] = arith.subi %[[AT]], %c128
// CHECK: %[[FROM:.*]] = arith.maxsi %[[BEHIND]], %[[LO]]
// CHECK: tile.load %arg2[%{{.*}}, %[[FROM]], {{.*}}vector<128x64xbf16>
// CHECK: tile.dot {{.*}} {transpose_b} : vector<128x64xbf16>, vector<128x64xbf16>, vector<128x128xf32>
// CHECK: %[[OUT:.*]] = tile.dot %{{.*}}, %{{.*}}, %[[SUM]] {transpose_a}
// CHECK: scf.if
// CHECK: tile.reduce max
// CHECK: math.exp2
// CHECK: arith.mulf %[[OUT]]
