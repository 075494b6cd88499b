// RUN: braid-opt %s --braid-tile-to-threads --braid-emulate-threads --canonicalize --cse | FileCheck %s

// The kernel has the ABI of the CPU's and runs its blocks; the thread asks the emulator for what threads have in common.
// CHECK:       func.func @total(%[[ARGS:.*]]: !llvm.ptr, %[[BEGIN:.*]]: i64, %[[END:.*]]: i64)
// CHECK:         %[[THREAD:.*]] = constant @total__thread
// CHECK:         %[[BODY:.*]] = builtin.unrealized_conversion_cast %[[THREAD]]
// CHECK:         call @braid_emulate_blocks(%[[BODY]], %[[ARGS]], %[[BEGIN]], %[[END]], %c128_i64, %c16_i64, %c1_i64)
// CHECK-LABEL: func.func private @total__thread(%{{.*}}: !llvm.ptr)
// CHECK-NOT:   gpu.
// CHECK-DAG:     call @braid_emulate_block()
// CHECK-DAG:     call @braid_emulate_shared()
// CHECK-DAG:     call @braid_emulate_thread()
// CHECK:         call @braid_emulate_shuffle(%{{.*}}, %c16_i32, %c0_i32)
// What is touched of shared memory is said: one f32, written and, behind the barrier, read.
// CHECK:         call @braid_emulate_touch(%{{.*}}, %c4_i32{{.*}}, %c1_i32{{.*}})
// CHECK:         memref.store
// CHECK:         call @braid_emulate_barrier()
// CHECK:         call @braid_emulate_touch(%{{.*}}, %c4_i32{{.*}}, %c0_i32{{.*}})
// CHECK-NOT:   gpu.
func.func @total(%x: memref<?x252xf32> {tile.name = "x"}, %y: memref<?x252xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %v = tile.load %x[%i, %c0] {dims = array<i64: 0, 1>} : memref<?x252xf32>, vector<1x252xf32>
  %s = tile.reduce add %v {axis = 1 : i64} : vector<1x252xf32>, vector<1xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<1xf32>, vector<1x252xf32>
  tile.store %se, %y[%i, %c0] {dims = array<i64: 0, 1>} : vector<1x252xf32>, memref<?x252xf32>
  return
}
