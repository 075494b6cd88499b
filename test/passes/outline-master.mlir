// RUN: braid-opt %s --braid-outline | FileCheck %s
// RUN: braid-opt %s --braid-outline --braid-tile-to-threads | FileCheck %s --check-prefix=THREADS

// A master is its bf16 parameter, 16 bits, and the sign of the second moment (MasterParts.h).
!m = tensor<64x64xf32>
func.func @step(%w: tensor<64x64xbf16>, %g: !m, %m: !m, %v: !m, %lr: tensor<1xf32>, %step: tensor<1xi32>, %low: tensor<64x64xi16>) -> (tensor<64x64xbf16>, !m, !m, tensor<64x64xi16>) {
  %0:4 = braid.adamw %w, %g, %m, %v, %lr, %step, %lr, %low {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1} : (tensor<64x64xbf16>, !m, !m, !m, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<64x64xi16>) -> (tensor<64x64xbf16>, !m, !m, tensor<64x64xi16>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<64x64xbf16>, !m, !m, tensor<64x64xi16>
}
func.func @short(%w: tensor<64x64xbf16>, %g: tensor<64x64xbf16>, %m: tensor<64x64xbf16>, %v: tensor<64x64xbf16>, %lr: tensor<1xf32>, %step: tensor<1xi32>, %low: tensor<64x64xi16>) -> (tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xi16>) {
  %0:4 = braid.adamw %w, %g, %m, %v, %lr, %step, %lr, %low {beta1 = 0.9, beta2 = 0.95, eps = 1.0e-8, weight_decay = 0.1} : (tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<1xf32>, tensor<1xi32>, tensor<1xf32>, tensor<64x64xi16>) -> (tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xi16>)
  return %0#0, %0#1, %0#2, %0#3 : tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xbf16>, tensor<64x64xi16>
}
func.func @initial(%seed: tensor<1xi64>) -> (tensor<64x64xbf16>, tensor<64x64xi16>, !m, tensor<64x64xbf16>) {
  %0 = braid.init %seed {distribution = "constant", keys = array<i64: 7>, low = 1.00390625 : f64} : (tensor<1xi64>) -> tensor<64x64xbf16>
  %1 = braid.init %seed {distribution = "constant", keys = array<i64: 7>, part = "low", low = 1.00390625 : f64} : (tensor<1xi64>) -> tensor<64x64xi16>
  %2 = braid.init %seed {distribution = "constant", keys = array<i64: 7>, part = "half", low = 1.00390625 : f64} : (tensor<1xi64>) -> !m
  %3 = braid.init %seed {distribution = "constant", keys = array<i64: 7>, part = "half", low = 1.00390625 : f64} : (tensor<1xi64>) -> tensor<64x64xbf16>
  return %0, %1, %2, %3 : tensor<64x64xbf16>, tensor<64x64xi16>, !m, tensor<64x64xbf16>
}

// CHECK-LABEL: func.func @step
// CHECK:       tile.launch @adamw_bf16_f32_master grid [1]
// CHECK-SAME:  inplace = array<i64: 0, 2, 3, 7>, result_names = ["new_parameter", "new_first", "new_second", "new_low"]
// CHECK-LABEL: func.func @short
// CHECK:       tile.launch @adamw_bf16_master_moments_bf16
// CHECK-SAME:  scalars = {beta1 = 0.899999976 : f32, beta2 = 0.949999988 : f32,
// CHECK-LABEL: func.func @initial
// CHECK:       tile.launch @fill_bf16
// CHECK:       tile.launch @init_constant_i16_low
// CHECK:       tile.launch @init_constant_f32_half
// CHECK:       tile.launch @init_constant_bf16_half
// CHECK-LABEL: func.func @adamw_bf16_f32_master(
// 2^15 where the second moment has its sign, else `low`; above it the parameter.
// CHECK:       %[[V:.*]] = tile.load %arg3
// CHECK:       %[[W:.*]] = tile.load %arg0
// CHECK:       %[[LOW:.*]] = tile.load %arg7
// CHECK:       %[[NEGATIVE:.*]] = arith.cmpi slt, %{{.*}}, %{{.*}} : vector<1024xi32>
// CHECK:       %[[WIDE:.*]] = arith.extsi %[[LOW]]
// CHECK:       %[[REST:.*]] = arith.select %[[NEGATIVE]], %[[HALF:.*]], %[[WIDE]]
// CHECK:       %[[BITS:.*]] = arith.bitcast %[[W]] : vector<1024xbf16> to vector<1024xi16>
// CHECK:       %[[UPPER:.*]] = arith.shli
// CHECK:       %[[MASTER:.*]] = arith.addi %[[UPPER]], %[[REST]]
// CHECK:       arith.bitcast %[[MASTER]] : vector<1024xi32> to vector<1024xf32>
// CHECK:       math.absf %[[V]]
// The new master, split: nothing waits for the rounded half.
// CHECK:       %[[NEW:.*]] = arith.subf
// CHECK:       %[[BITS:.*]] = arith.bitcast %[[NEW]] : vector<1024xf32> to vector<1024xi32>
// CHECK:       %[[LOWER:.*]] = arith.andi %[[BITS]], %{{.*}}
// CHECK:       arith.cmpi eq, %[[LOWER]], %[[HALF]]
// CHECK-DAG:   %[[HIGH:.*]] = arith.truncf %[[NEW]] : vector<1024xf32> to vector<1024xbf16>
// CHECK-DAG:   %[[LOW:.*]] = arith.trunci %[[BITS]] : vector<1024xi32> to vector<1024xi16>
// CHECK:       tile.store %[[HIGH]], %arg8{{.*}} : vector<1024xbf16>
// CHECK:       tile.store %[[LOW]], %arg11{{.*}} : vector<1024xi16>
// Moments in bf16: in f32 until the master is made, then a hash of both and of the step, half of its bits for each. What is not finite is cast.
// CHECK-LABEL: func.func @adamw_bf16_master_moments_bf16(
// CHECK:       %[[STEP:.*]] = memref.load %arg5
// CHECK:       %[[M:.*]] = arith.addf {{.*}} : vector<1024xf32>
// CHECK:       %[[V:.*]] = arith.addf {{.*}} : vector<1024xf32>
// CHECK:       %[[NEW:.*]] = arith.subf
// CHECK:       %[[MBITS:.*]] = arith.bitcast %[[M]]
// CHECK:       %[[VBITS:.*]] = arith.bitcast %[[V]]
// CHECK:       arith.muli %[[MBITS]]
// CHECK:       arith.muli %[[STEP]]
// CHECK-COUNT-2: arith.xori
// CHECK:       %[[RANDOM:.*]] = arith.xori
// CHECK:       %[[FINITE:.*]] = arith.cmpi slt
// CHECK:       %[[UP:.*]] = arith.andi %[[RANDOM]]
// CHECK:       arith.addi {{.*}}%[[UP]]
// CHECK:       %[[ROUNDED:.*]] = arith.select %[[FINITE]], %{{.*}}, %[[M]]
// CHECK:       arith.shrui %[[RANDOM]]
// CHECK:       arith.select {{.*}}, %[[V]] : vector<1024xi1>, vector<1024xf32>
// CHECK:       arith.bitcast %[[NEW]]
// CHECK:       %[[SIGNED:.*]] = arith.ori
// CHECK:       arith.truncf %[[ROUNDED]] : vector<1024xf32> to vector<1024xbf16>
// CHECK-LABEL: func.func @init_constant_i16_low(
// CHECK:       tile.store {{.*}} : vector<256xi16>
// CHECK-LABEL: func.func @init_constant_f32_half(
// CHECK:       tile.store {{.*}} : vector<256xf32>

// A thread has eight elements, 16 bytes of each of the two halves.
// THREADS-LABEL: func.func @adamw_bf16_f32_master(
// THREADS:       vector.load {{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// THREADS:       vector.load {{.*}} {alignment = 16 : i64} : memref<?xi16>, vector<8xi16>
// THREADS:       vector.store {{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// THREADS:       vector.store {{.*}} {alignment = 16 : i64} : memref<?xi16>, vector<8xi16>
// THREADS-NOT:   vector.load
// THREADS:       vector.maskedload
// THREADS-LABEL: func.func @adamw_bf16_master_moments_bf16(
// THREADS-COUNT-4: vector.load {{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
// THREADS-COUNT-2: vector.store {{.*}} {alignment = 16 : i64} : memref<?xbf16>, vector<8xbf16>
