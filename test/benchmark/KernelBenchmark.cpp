//===- KernelBenchmark.cpp - what generated kernels reach on one core ---------------------------------------------===//
// Elementwise chains against memcpy, dot against the fused multiply-add peak, and compile time per kernel.
#include "test/kernels/KernelHarness.h"

#include <benchmark/benchmark.h>
#include <cstring>
#include <ctime>

using namespace braid;
using namespace braid::test;

static const char *kText = R"(
func.func @chain(%x: memref<?x64xf32> {tile.name = "x"}, %w: memref<64xf32> {tile.name = "w"}, %y: memref<?x64xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %i = tile.program : index
  %r = arith.muli %i, %c64 : index
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<64x64xf32>
  %b = tile.load %w[%c0] {dims = array<i64: 0>} : memref<64xf32>, vector<64xf32>
  %be = tile.expand %b {axis = 0 : i64} : vector<64xf32>, vector<64x64xf32>
  %s = arith.mulf %a, %be : vector<64x64xf32>
  %t = arith.addf %s, %a : vector<64x64xf32>
  %z = arith.constant dense<0.0> : vector<64x64xf32>
  %c = arith.cmpf ogt, %t, %z : vector<64x64xf32>
  %v = arith.select %c, %t, %s : vector<64x64xi1>, vector<64x64xf32>
  tile.store %v, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<?x64xf32>
  return
}
func.func @silu(%x: memref<?x64xf32> {tile.name = "x"}, %y: memref<?x64xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c64 = arith.constant 64 : index
  %i = tile.program : index
  %r = arith.muli %i, %c64 : index
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x64xf32>, vector<64x64xf32>
  %m = arith.negf %a : vector<64x64xf32>
  %e = math.exp %m : vector<64x64xf32>
  %one = arith.constant dense<1.0> : vector<64x64xf32>
  %d = arith.addf %e, %one : vector<64x64xf32>
  %v = arith.divf %a, %d : vector<64x64xf32>
  tile.store %v, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<?x64xf32>
  return
}
func.func @softmax(%x: memref<?x256xf32> {tile.name = "x"}, %y: memref<?x256xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %i = tile.program : index
  %r = arith.muli %i, %c16 : index
  %v = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x256xf32>, vector<16x256xf32>
  %m = tile.reduce max %v {axis = 1 : i64} : vector<16x256xf32>, vector<16xf32>
  %me = tile.expand %m {axis = 1 : i64} : vector<16xf32>, vector<16x256xf32>
  %d = arith.subf %v, %me : vector<16x256xf32>
  %e = math.exp %d : vector<16x256xf32>
  %s = tile.reduce add %e {axis = 1 : i64} : vector<16x256xf32>, vector<16xf32>
  %one = arith.constant dense<1.0> : vector<16xf32>
  %inv = arith.divf %one, %s : vector<16xf32>
  %se = tile.expand %inv {axis = 1 : i64} : vector<16xf32>, vector<16x256xf32>
  %o = arith.mulf %e, %se : vector<16x256xf32>
  tile.store %o, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<16x256xf32>, memref<?x256xf32>
  return
}
func.func @dot(%a: memref<64x64xf32> {tile.name = "a"}, %b: memref<64x64xf32> {tile.name = "b"}, %c: memref<64x64xf32> {tile.name = "c"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %z = arith.constant dense<0.0> : vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %z) -> (vector<64x64xf32>) {
    %s = tile.dot %x, %y, %acc FLAGS : vector<64x64xf32>, vector<64x64xf32>, vector<64x64xf32>
    scf.yield %s : vector<64x64xf32>
  }
  tile.store %r, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}
func.func @solve(%a: memref<64x64xf32> {tile.name = "a"}, %b: memref<64x64xf32> {tile.name = "b"}, %c: memref<64x64xf32> {tile.name = "c"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %x = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%v = %y) -> (vector<64x64xf32>) {
    %s = tile.solve %x, %v : vector<64x64xf32>, vector<64x64xf32>
    scf.yield %s : vector<64x64xf32>
  }
  tile.store %r, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
}
)";

static std::string textWith(const char *flags) {
  std::string text = kText;
  text.replace(text.find("FLAGS"), 5, flags);
  return text;
}

static KernelHarness &kernels() {
  static KernelHarness harness(textWith(""));
  return harness;
}

static void elementwise(benchmark::State &state, const char *name, int64_t columns, int64_t rowsPerProgram) {
  int64_t rows = state.range(0);
  std::vector<float> x(rows * columns, 0.5f), y(rows * columns), w(64, 0.5f);
  Slots slots{{"x", x}, {"y", y}, {"n", rows}};
  if (std::string(name) == "chain")
    slots.insert({"w", w});
  auto args = kernels().arguments(name, {rows / rowsPerProgram}, slots);
  KernelFunction run = kernels().function(name);
  for (auto _ : state)
    run(args.data(), 0, rows / rowsPerProgram);
  state.SetBytesProcessed(state.iterations() * rows * columns * 8);
}
BENCHMARK_CAPTURE(elementwise, chain, "chain", 64, 64)->Arg(64)->Arg(1024)->Arg(65536);
BENCHMARK_CAPTURE(elementwise, silu, "silu", 64, 64)->Arg(64)->Arg(1024)->Arg(65536);
BENCHMARK_CAPTURE(elementwise, softmax, "softmax", 256, 16)->Arg(16)->Arg(256);

static void copy(benchmark::State &state) {
  std::vector<float> x(state.range(0) * 64, 0.5f), y(x.size());
  for (auto _ : state) {
    std::memcpy(y.data(), x.data(), x.size() * 4);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * x.size() * 8);
}
BENCHMARK(copy)->Arg(64)->Arg(1024)->Arg(65536);

/// Flops of `repeats` products inside one program: operands stay in the first-level cache.
static void matrix(benchmark::State &state, const char *name, const char *flags, double flops) {
  KernelHarness harness(textWith(flags));
  std::vector<float> a(4096, 1e-3f), b(4096, 1e-3f), c(4096);
  int64_t repeats = 64;
  auto args = harness.arguments(name, {1}, {{"a", a}, {"b", b}, {"c", c}, {"n", repeats}});
  KernelFunction run = harness.function(name);
  for (auto _ : state)
    run(args.data(), 0, 1);
  state.counters["GFLOPS"] =
      benchmark::Counter(state.iterations() * repeats * flops * 1e-9, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(matrix, dot_nn, "dot", "", 2.0 * 64 * 64 * 64);
BENCHMARK_CAPTURE(matrix, dot_nt, "dot", "{transpose_b}", 2.0 * 64 * 64 * 64);
BENCHMARK_CAPTURE(matrix, dot_tn, "dot", "{transpose_a}", 2.0 * 64 * 64 * 64);
BENCHMARK_CAPTURE(matrix, solve, "solve", "", 64.0 * 64 * 64);

#if defined(__x86_64__) && defined(__clang__)
/// The peak that dot is compared with: independent fused multiply-adds in registers.
__attribute__((target("avx512f"))) static double peakFlops(int64_t rounds) {
  typedef float Vector __attribute__((vector_size(64)));
  Vector sums[16], x = {}, y = {};
  for (int i = 0; i < 16; ++i) {
    x[i] = 1.0f;
    y[i] = 1e-9f;
  }
  for (Vector &sum : sums)
    sum = x;
  std::clock_t start = std::clock();
  for (int64_t r = 0; r < rounds; ++r) {
#pragma clang loop unroll(full)
    for (int i = 0; i < 16; ++i)
      asm volatile("vfmadd231ps %2, %1, %0" : "+v"(sums[i]) : "v"(x), "v"(y));
  }
  double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  benchmark::DoNotOptimize(sums);
  return rounds * 16 * 32 / seconds;
}
static void peak(benchmark::State &state) {
  if (!__builtin_cpu_supports("avx512f"))
    return state.SkipWithError("needs AVX-512");
  double best = 0;
  for (auto _ : state)
    best = std::max(best, peakFlops(10000000));
  state.counters["GFLOPS"] = best * 1e-9;
}
BENCHMARK(peak);
#endif

static void compileTime(benchmark::State &state) {
  for (auto _ : state) {
    KernelHarness harness(textWith(""));
    double total = 0;
    for (const KernelTime &time : harness.times) {
      state.counters[time.name + "_ms"] = time.lowering + time.optimizing + time.emitting;
      total += time.lowering + time.optimizing + time.emitting;
    }
    state.counters["sum_ms"] = total;
  }
}
BENCHMARK(compileTime)->Unit(benchmark::kMillisecond);

int main(int argc, char **argv) {
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
