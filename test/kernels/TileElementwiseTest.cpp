//===- TileElementwiseTest.cpp - loads, stores, index maps and elementwise chains against loops ------------------===//
#include "test/kernels/TileTest.h"

using namespace braid::test;

namespace {

/// A kernel text in which T stands for the element type, run for f32 and f64 and for both vector sizes.
template <typename F> void forEachType(const std::string &text, F check) {
  for (const char *cpu : {"native", "x86-64-v3"}) {
    SCOPED_TRACE(cpu);
    {
      KernelHarness kernels(withType(text, "f32"), cpu);
      check(kernels, float());
    }
    KernelHarness kernels(withType(text, "f64"), cpu);
    check(kernels, double());
  }
}

TEST(TileElementwise, ChainWithLimitOddSizes) {
  forEachType(R"(
func.func @k(%x: memref<?x37xT> {tile.name = "x"}, %w: memref<37xT> {tile.name = "w"}, %y: memref<?x37xT> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c5 = arith.constant 5 : index
  %i = tile.program : index
  %r = arith.muli %i, %c5 : index
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x37xT>, vector<5x37xT>
  %b = tile.load %w[%c0] {dims = array<i64: 0>} : memref<37xT>, vector<37xT>
  %be = tile.expand %b {axis = 0 : i64} : vector<37xT>, vector<5x37xT>
  %s = arith.mulf %a, %be : vector<5x37xT>
  %z = arith.constant dense<0.0> : vector<5x37xT>
  %c = arith.cmpf ogt, %s, %z : vector<5x37xT>
  %e = math.exp %s : vector<5x37xT>
  %v = arith.select %c, %s, %e : vector<5x37xi1>, vector<5x37xT>
  tile.store %v, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<5x37xT>, memref<?x37xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                int64_t n = 13;
                auto x = randoms<T>(n * 37), w = randoms<T>(37), y = std::vector<T>(15 * 37, T(7));
                kernels.run("k", {3}, {{"x", x}, {"w", w}, {"y", y}, {"n", n}});
                for (int64_t i = 0; i < 15 * 37; ++i) {
                  T s = i < n * 37 ? x[i] * w[i % 37] : T(0), want = i < n * 37 ? (s > 0 ? s : std::exp(s)) : T(7);
                  ASSERT_NEAR(y[i], want, tolerance<T>()) << i;
                }
              });
}

TEST(TileElementwise, NegativeRowsReadZero) {
  forEachType(R"(
func.func @k(%x: memref<?x3xT> {tile.name = "x"}, %y: memref<?x3xT> {tile.name = "y"}, %n: index {tile.name = "n"}, %shift: index {tile.name = "shift"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %r = arith.muli %i, %c4 : index
  %rs = arith.addi %r, %shift : index
  %a = tile.load %x[%rs, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x3xT>, vector<4x3xT>
  tile.store %a, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<4x3xT>, memref<?x3xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                int64_t n = 10;
                auto x = randoms<T>(n * 3), y = std::vector<T>(12 * 3, T(7));
                kernels.run("k", {3}, {{"x", x}, {"y", y}, {"n", n}, {"shift", -3}});
                for (int64_t i = 0; i < 12 * 3; ++i)
                  ASSERT_EQ(y[i], i >= n * 3 ? T(7) : i < 9 ? T(0) : x[i - 9]) << i;
              });
}

TEST(TileElementwise, LongRowsToTheirLimit) { // whole strips, then what is left; y is 1 behind the limit, z untouched
  forEachType(R"(
func.func @k(%x: memref<?xT> {tile.name = "x"}, %y: memref<?xT> {tile.name = "y"}, %z: memref<?xT> {tile.name = "z"}, %n: index {tile.name = "n"}, %shift: index {tile.name = "shift"})
    attributes {tile.kernel, tile.grid = ["block"]} {
  %c512 = arith.constant 512 : index
  %i = tile.program : index
  %r = arith.muli %i, %c512 : index
  %rs = arith.addi %r, %shift : index
  %a = tile.load %x[%rs] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<512xT>
  %one = arith.constant dense<1.0> : vector<512xT>
  %s = arith.addf %a, %one : vector<512xT>
  tile.store %s, %y[%r] {dims = array<i64: 0>} : vector<512xT>, memref<?xT>
  %b = tile.load %x[%r] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<512xT>
  %t = arith.addf %b, %one : vector<512xT>
  tile.store %t, %z[%r] limit %n {dims = array<i64: 0>} : vector<512xT>, memref<?xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                for (int64_t n : {0, 1, 7, 8, 100, 511, 512, 513, 700, 1023, 1024})
                  for (int64_t shift : {-513, -3, 0, 5, 512}) {
                    auto x = randoms<T>(std::max<int64_t>(n, 1));
                    std::vector<T> y(1024, T(7)), z(1024, T(7));
                    kernels.run("k", {2}, {{"x", x}, {"y", y}, {"z", z}, {"n", n}, {"shift", shift}});
                    for (int64_t i = 0; i < 1024; ++i) {
                      int64_t from = i + shift;
                      ASSERT_EQ(y[i], from >= 0 && from < n ? x[from] + T(1) : T(1)) << n << " " << shift << " " << i;
                      ASSERT_EQ(z[i], i < n ? x[i] + T(1) : T(7)) << n << " " << shift << " " << i;
                    }
                  }
              });
}

TEST(TileElementwise, StridedColumnWithLimit) { // one head's scalar per token: [T, 3] read down a column
  forEachType(R"(
func.func @k(%x: memref<?x3xT> {tile.name = "x"}, %y: memref<?x3xT> {tile.name = "y"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["block", "head"]} {
  %c20 = arith.constant 20 : index
  %b, %h = tile.program : index, index
  %r = arith.muli %b, %c20 : index
  %a = tile.load %x[%r, %h] limit %n {dims = array<i64: 0>} : memref<?x3xT>, vector<20xT>
  %s = arith.addf %a, %a : vector<20xT>
  tile.store %s, %y[%r, %h] limit %n {dims = array<i64: 0>} : vector<20xT>, memref<?x3xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                int64_t n = 33;
                auto x = randoms<T>(n * 3), y = std::vector<T>(40 * 3, T(7));
                kernels.run("k", {2, 3}, {{"x", x}, {"y", y}, {"n", n}});
                for (int64_t i = 0; i < 40 * 3; ++i)
                  ASSERT_EQ(y[i], i < n * 3 ? x[i] + x[i] : T(7)) << i;
              });
}

TEST(TileElementwise, StridedBufferAndMiddleDimension) {
  forEachType(
      R"(
func.func @k(%x: memref<?x?x2x9xT> {tile.name = "x"}, %y: memref<?x2x9xT, strided<[?, ?, 1]>> {tile.name = "y"})
    attributes {tile.kernel, tile.grid = ["head", "batch"]} {
  %c0 = arith.constant 0 : index
  %h, %b = tile.program : index, index
  %a = tile.load %x[%b, %c0, %h, %c0] {dims = array<i64: 1, 3>} : memref<?x?x2x9xT>, vector<6x9xT>
  %r = tile.reduce add %a {axis = 0 : i64} : vector<6x9xT>, vector<9xT>
  tile.store %r, %y[%b, %h, %c0] {dims = array<i64: 2>} : vector<9xT>, memref<?x2x9xT, strided<[?, ?, 1]>>
  return
})",
      [](KernelHarness &kernels, auto zero) {
        using T = decltype(zero);
        auto x = randoms<T>(3 * 6 * 2 * 9), y = std::vector<T>(3 * 40, T(7));
        kernels.run(
            "k", {2, 3},
            {{"x", x}, {"x.dim0", 3}, {"x.dim1", 6}, {"y", y}, {"y.dim0", 3}, {"y.stride0", 40}, {"y.stride1", 15}});
        for (int b = 0; b < 3; ++b)
          for (int h = 0; h < 2; ++h)
            for (int c = 0; c < 15 && h * 15 + c < 40; ++c) {
              T sum = 0;
              for (int t = 0; t < 6 && c < 9; ++t)
                sum += x[((b * 6 + t) * 2 + h) * 9 + c];
              ASSERT_NEAR(y[b * 40 + h * 15 + c], c < 9 ? sum : T(7), tolerance<T>());
            }
      });
}

TEST(TileElementwise, GatherRows) {
  forEachType(R"(
func.func @k(%x: memref<?x21xT> {tile.name = "x"}, %i: memref<?xi32> {tile.name = "i"}, %y: memref<?x21xT> {tile.name = "y"}, %z: memref<?xT> {tile.name = "z"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %p = tile.program : index
  %r = arith.muli %p, %c8 : index
  %rows = tile.load %i[%r] {dims = array<i64: 0>} : memref<?xi32>, vector<8xi32>
  %a = tile.load %x[%c0, %c0] limit %n rows %rows : vector<8xi32> {dims = array<i64: 0, 1>} : memref<?x21xT>, vector<8x21xT>
  tile.store %a, %y[%r, %c0] {dims = array<i64: 0, 1>} : vector<8x21xT>, memref<?x21xT>
  %c5 = arith.constant 5 : index
  %v = tile.load %x[%c0, %c5] rows %rows : vector<8xi32> {dims = array<i64: 0>} : memref<?x21xT>, vector<8xT>
  tile.store %v, %z[%r] {dims = array<i64: 0>} : vector<8xT>, memref<?xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(20 * 21);
                std::vector<int32_t> rows = {3, -1, 19, 0, 0, 7, 18, -5, 1, 2, 3, 4, 5, 6, 7, 8};
                std::vector<T> y(16 * 21), z(16);
                kernels.run("k", {2}, {{"x", x}, {"i", rows}, {"y", y}, {"z", z}, {"n", 19}});
                for (int r = 0; r < 16; ++r) {
                  for (int c = 0; c < 21; ++c)
                    ASSERT_EQ(y[r * 21 + c], rows[r] < 0 || rows[r] >= 19 ? T(0) : x[rows[r] * 21 + c]);
                  ASSERT_EQ(z[r], rows[r] < 0 ? T(0) : x[rows[r] * 21 + 5]);
                }
              });
}

TEST(TileElementwise, ScatterRows) {
  forEachType(R"(
func.func @k(%x: memref<?x21xT> {tile.name = "x"}, %i: memref<?xi32> {tile.name = "i"}, %y: memref<?x21xT> {tile.name = "y"}, %z: memref<?x2xT> {tile.name = "z"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c11 = arith.constant 11 : index
  %p = tile.program : index
  %r = arith.muli %p, %c11 : index
  %rows = tile.load %i[%r] {dims = array<i64: 0>} : memref<?xi32>, vector<11xi32>
  %a = tile.load %x[%r, %c0] {dims = array<i64: 0, 1>} : memref<?x21xT>, vector<11x21xT>
  tile.store %a, %y[%c1, %c0] limit %n rows %rows : vector<11xi32> {dims = array<i64: 0, 1>} : vector<11x21xT>, memref<?x21xT>
  %v = tile.load %x[%r, %c11] {dims = array<i64: 0>} : memref<?x21xT>, vector<11xT>
  tile.store %v, %z[%c0, %c1] limit %n rows %rows : vector<11xi32> {dims = array<i64: 0>} : vector<11xT>, memref<?x2xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(22 * 21);
                std::vector<int32_t> rows = {3, -1, 19, 0, -7, 7, 18, -5, 1,  2,  4,
                                             5, 21, -1, 6, 17, 8, 9,  20, 10, 11, 12};
                std::vector<T> y(24 * 21, T(7)), z(24 * 2, T(7)), wantY = y, wantZ = z;
                int n = 19; // of the buffer's rows: the first store begins at its second
                for (int r = 0; r < 22; ++r) {
                  if (rows[r] >= 0 && rows[r] < n)
                    wantZ[rows[r] * 2 + 1] = x[r * 21 + 11];
                  for (int c = 0; c < 21 && rows[r] >= 0 && rows[r] + 1 < n; ++c)
                    wantY[(rows[r] + 1) * 21 + c] = x[r * 21 + c];
                }
                kernels.run("k", {2}, {{"x", x}, {"i", rows}, {"y", y}, {"z", z}, {"n", n}});
                ASSERT_EQ(y, wantY);
                ASSERT_EQ(z, wantZ);
              });
}

// What is scattered may be what was there: rows are read before any is written.
TEST(TileElementwise, ScatterInPlace) {
  for (const char *cpu : {"native", "x86-64-v3"}) {
    SCOPED_TRACE(cpu);
    KernelHarness kernels(R"(
func.func @k(%x: memref<40xi32> {tile.name = "x"}) attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %last = arith.constant dense<39> : vector<40xi32>
  %at = tile.iota {axis = 0 : i64} : vector<40xi32>
  %back = arith.subi %last, %at : vector<40xi32>
  %a = tile.load %x[%c0] {dims = array<i64: 0>} : memref<40xi32>, vector<40xi32>
  tile.store %a, %x[%c0] rows %back : vector<40xi32> {dims = array<i64: 0>} : vector<40xi32>, memref<40xi32>
  return
})",
                          cpu);
    std::vector<int32_t> x(40);
    for (int i = 0; i < 40; ++i)
      x[i] = i * i;
    kernels.run("k", {1}, {{"x", x}});
    for (int i = 0; i < 40; ++i)
      ASSERT_EQ(x[i], (39 - i) * (39 - i)) << i;
  }
}

TEST(TileElementwise, IntegerCumsum) {
  for (const char *cpu : {"native", "x86-64-v3"}) {
    SCOPED_TRACE(cpu);
    KernelHarness kernels(R"(
func.func @k(%x: memref<5x37xi32> {tile.name = "x"}, %rows: memref<5x37xi32> {tile.name = "rows"}, %columns: memref<5x37xi32> {tile.name = "columns"})
    attributes {tile.kernel, tile.grid = ["all"]} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<5x37xi32>, vector<5x37xi32>
  %r = tile.cumsum %a {axis = 0 : i64, reverse} : vector<5x37xi32>
  %c = tile.cumsum %a {axis = 1 : i64} : vector<5x37xi32>
  tile.store %r, %rows[%c0, %c0] {dims = array<i64: 0, 1>} : vector<5x37xi32>, memref<5x37xi32>
  tile.store %c, %columns[%c0, %c0] {dims = array<i64: 0, 1>} : vector<5x37xi32>, memref<5x37xi32>
  return
})",
                          cpu);
    std::vector<int32_t> x(5 * 37), rows(5 * 37), columns(5 * 37);
    for (int i = 0; i < 5 * 37; ++i)
      x[i] = (1 << 24) + i * 7919 % 101; // sums of f32 would round
    kernels.run("k", {1}, {{"x", x}, {"rows", rows}, {"columns", columns}});
    for (int r = 0; r < 5; ++r)
      for (int c = 0; c < 37; ++c) {
        int32_t below = 0, left = 0;
        for (int i = r; i < 5; ++i)
          below += x[i * 37 + c];
        for (int i = 0; i <= c; ++i)
          left += x[r * 37 + i];
        ASSERT_EQ(rows[r * 37 + c], below);
        ASSERT_EQ(columns[r * 37 + c], left);
      }
  }
}

TEST(TileElementwise, SliceConcatRowsInsertIota) {
  forEachType(R"(
func.func @k(%x: memref<7x24xT> {tile.name = "x"}, %y: memref<7x24xT> {tile.name = "y"}, %u: memref<3x24xT> {tile.name = "u"}, %at: index {tile.name = "at"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %a = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<7x24xT>, vector<7x24xT>
  %l = tile.slice %a {offset = 0 : i64} : vector<7x24xT>, vector<7x11xT>
  %r = tile.slice %a {offset = 11 : i64} : vector<7x24xT>, vector<7x13xT>
  %n = arith.negf %r : vector<7x13xT>
  %c = tile.concat %n, %l : vector<7x13xT>, vector<7x11xT> -> vector<7x24xT>
  %i = tile.iota {axis = 1 : i64} : vector<7x24xi32>
  %j = tile.iota {axis = 0 : i64} : vector<7x24xi32>
  %ij = arith.addi %i, %j : vector<7x24xi32>
  %f = arith.sitofp %ij : vector<7x24xi32> to vector<7x24xT>
  %s = arith.addf %c, %f : vector<7x24xT>
  %part = tile.rows %s[%at] : vector<7x24xT>, vector<3x24xT>
  tile.store %part, %u[%c0, %c0] {dims = array<i64: 0, 1>} : vector<3x24xT>, memref<3x24xT>
  %twice = arith.addf %part, %part : vector<3x24xT>
  %ins = tile.insert_rows %twice, %s[%c0] : vector<3x24xT>, vector<7x24xT>
  %one = tile.rows %s[%at] : vector<7x24xT>, vector<24xT>
  %c6 = arith.constant 6 : index
  %ins2 = tile.insert_rows %one, %ins[%c6] : vector<24xT>, vector<7x24xT>
  tile.store %ins2, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<7x24xT>, memref<7x24xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(7 * 24);
                std::vector<T> y(7 * 24), u(3 * 24);
                kernels.run("k", {1}, {{"x", x}, {"y", y}, {"u", u}, {"at", 2}});
                auto s = [&](int r, int c) { return (c < 13 ? -x[r * 24 + c + 11] : x[r * 24 + c - 13]) + T(r + c); };
                for (int c = 0; c < 24; ++c)
                  for (int r = 0; r < 7; ++r) {
                    if (r < 3)
                      ASSERT_EQ(u[r * 24 + c], s(r + 2, c));
                    ASSERT_EQ(y[r * 24 + c], r < 3 ? 2 * s(r + 2, c) : r == 6 ? s(2, c) : s(r, c)) << r << "," << c;
                  }
              });
}

TEST(TileElementwise, MasksAndTranspose) {
  forEachType(R"(
func.func @k(%x: memref<19x19xT> {tile.name = "x"}, %a: memref<19x19xT> {tile.name = "a"}, %b: memref<19x19xT> {tile.name = "b"}, %c: memref<19x19xT> {tile.name = "c"}, %d: memref<19x19xT> {tile.name = "d"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<19x19xT>, vector<19x19xT>
  %m0 = tile.mask lower %v : vector<19x19xT>
  %m1 = tile.mask strict_lower %v : vector<19x19xT>
  %m2 = tile.mask upper %v : vector<19x19xT>
  %t = tile.transpose %v : vector<19x19xT>, vector<19x19xT>
  %m3 = tile.mask strict_upper %t : vector<19x19xT>
  tile.store %m0, %a[%c0, %c0] {dims = array<i64: 0, 1>} : vector<19x19xT>, memref<19x19xT>
  tile.store %m1, %b[%c0, %c0] {dims = array<i64: 0, 1>} : vector<19x19xT>, memref<19x19xT>
  tile.store %m2, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<19x19xT>, memref<19x19xT>
  tile.store %m3, %d[%c0, %c0] {dims = array<i64: 0, 1>} : vector<19x19xT>, memref<19x19xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(361);
                x[3] = NAN; // row 0, column 3: outside of lower
                std::vector<T> a(361), b(361), c(361), d(361);
                kernels.run("k", {1}, {{"x", x}, {"a", a}, {"b", b}, {"c", c}, {"d", d}});
                for (int i = 0; i < 19; ++i)
                  for (int j = 0; j < 19; ++j) {
                    ASSERT_EQ(a[i * 19 + j], j <= i ? x[i * 19 + j] : T(0));
                    ASSERT_EQ(b[i * 19 + j], j < i ? x[i * 19 + j] : T(0));
                    if (i * 19 + j != 3)
                      ASSERT_EQ(c[i * 19 + j], j >= i ? x[i * 19 + j] : T(0));
                    ASSERT_EQ(d[i * 19 + j], j > i ? x[j * 19 + i] : T(0));
                  }
              });
}

TEST(TileElementwise, ElementsOfRows) {
  forEachType(R"(
func.func @k(%x: memref<19x19xT> {tile.name = "x"}, %columns: memref<19xi32> {tile.name = "columns"}, %d: memref<19xT> {tile.name = "d"}, %p: memref<19xT> {tile.name = "p"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<19x19xT>, vector<19x19xT>
  %c = tile.load %columns[%c0] {dims = array<i64: 0>} : memref<19xi32>, vector<19xi32>
  %own = tile.diagonal %v : vector<19x19xT>, vector<19xT>
  %picked = tile.pick %v[%c] : vector<19x19xT>, vector<19xi32>, vector<19xT>
  tile.store %own, %d[%c0] {dims = array<i64: 0>} : vector<19xT>, memref<19xT>
  tile.store %picked, %p[%c0] {dims = array<i64: 0>} : vector<19xT>, memref<19xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(361);
                std::vector<int32_t> columns(19);
                for (int i = 0; i < 19; ++i)
                  columns[i] = 7 * i % 23 - 2; // some are on the left of the tile, some on the right
                x[4] = NAN; // above the diagonal, and picked by nobody
                std::vector<T> d(19), p(19);
                kernels.run("k", {1}, {{"x", x}, {"columns", columns}, {"d", d}, {"p", p}});
                for (int i = 0; i < 19; ++i) {
                  bool inside = columns[i] >= 0 && columns[i] < 19;
                  ASSERT_EQ(d[i], x[i * 19 + i]);
                  ASSERT_EQ(p[i], inside ? x[i * 19 + columns[i]] : T(0));
                }
              });
}

TEST(TileElementwise, ShapeCastsAndBroadcasts) {
  forEachType(R"(
func.func @k(%x: memref<5x48xT> {tile.name = "x"}, %w: memref<3x16xT> {tile.name = "w"}, %y: memref<5x48xT> {tile.name = "y"}, %z: memref<5x3xT> {tile.name = "z"}, %f: memref<15xT> {tile.name = "f"}, %scale: T {tile.name = "scale"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<5x48xT>, vector<5x48xT>
  %h = vector.shape_cast %v : vector<5x48xT> to vector<5x3x16xT>
  %wv = tile.load %w[%c0, %c0] {dims = array<i64: 0, 1>} : memref<3x16xT>, vector<3x16xT>
  %wb = vector.broadcast %wv : vector<3x16xT> to vector<5x3x16xT>
  %sb = vector.broadcast %scale : T to vector<5x3x16xT>
  %p = arith.mulf %h, %wb : vector<5x3x16xT>
  %q = arith.mulf %p, %sb : vector<5x3x16xT>
  %sum = tile.reduce add %q {axis = 2 : i64} : vector<5x3x16xT>, vector<5x3xT>
  %max = tile.reduce max %q {axis = 1 : i64} : vector<5x3x16xT>, vector<5x16xT>
  %me = tile.expand %max {axis = 1 : i64} : vector<5x16xT>, vector<5x3x16xT>
  %se = tile.expand %sum {axis = 2 : i64} : vector<5x3xT>, vector<5x3x16xT>
  %d = arith.subf %q, %me : vector<5x3x16xT>
  %e = arith.addf %d, %se : vector<5x3x16xT>
  %o = vector.shape_cast %e : vector<5x3x16xT> to vector<5x48xT>
  tile.store %o, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<5x48xT>, memref<5x48xT>
  tile.store %sum, %z[%c0, %c0] {dims = array<i64: 0, 1>} : vector<5x3xT>, memref<5x3xT>
  %flat = vector.shape_cast %sum : vector<5x3xT> to vector<15xT>
  tile.store %flat, %f[%c0] {dims = array<i64: 0>} : vector<15xT>, memref<15xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(5 * 48), w = randoms<T>(48);
                std::vector<T> y(5 * 48), z(15), f(15);
                kernels.run("k", {1}, {{"x", x}, {"w", w}, {"y", y}, {"z", z}, {"f", f}, {"scale", 0.5}});
                for (int r = 0; r < 5; ++r) {
                  auto q = [&](int h, int c) { return x[r * 48 + h * 16 + c] * w[h * 16 + c] * T(0.5); };
                  for (int h = 0; h < 3; ++h) {
                    T sum = 0;
                    for (int c = 0; c < 16; ++c)
                      sum += q(h, c);
                    ASSERT_NEAR(z[r * 3 + h], sum, tolerance<T>());
                    ASSERT_EQ(f[r * 3 + h], z[r * 3 + h]);
                    for (int c = 0; c < 16; ++c)
                      ASSERT_NEAR(y[r * 48 + h * 16 + c], q(h, c) - std::max({q(0, c), q(1, c), q(2, c)}) + sum,
                                  tolerance<T>());
                  }
                }
              });
}

TEST(TileElementwise, InPlaceAndSeveralStores) { // an optimizer step: all reads of a strip come before its writes
  forEachType(R"(
func.func @k(%p: memref<?xT> {tile.name = "p"}, %m: memref<?xT> {tile.name = "m"}, %g: memref<?xT> {tile.name = "g"}, %q: memref<?xT> {tile.name = "q"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["block"]} {
  %c100 = arith.constant 100 : index
  %b = tile.program : index
  %r = arith.muli %b, %c100 : index
  %pv = tile.load %p[%r] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<100xT>
  %mv = tile.load %m[%r] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<100xT>
  %gv = tile.load %g[%r] limit %n {dims = array<i64: 0>} : memref<?xT>, vector<100xT>
  %half = arith.constant dense<0.5> : vector<100xT>
  %m1 = arith.mulf %mv, %half : vector<100xT>
  %m2 = arith.addf %m1, %gv : vector<100xT>
  tile.store %m2, %m[%r] limit %n {dims = array<i64: 0>} : vector<100xT>, memref<?xT>
  %p1 = arith.subf %pv, %m2 : vector<100xT>
  tile.store %p1, %q[%r] limit %n {dims = array<i64: 0>} : vector<100xT>, memref<?xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto p = randoms<T>(250), m = randoms<T>(250), g = randoms<T>(250), p0 = p, m0 = m;
                kernels.run("k", {3}, {{"p", p}, {"m", m}, {"g", g}, {"q", p.data()}, {"n", 233}});
                for (int i = 0; i < 250; ++i) {
                  T m1 = i < 233 ? m0[i] * T(0.5) + g[i] : m0[i];
                  ASSERT_NEAR(m[i], m1, tolerance<T>());
                  ASSERT_NEAR(p[i], i < 233 ? p0[i] - m1 : p0[i], tolerance<T>());
                }
              });
}

TEST(TileElementwise, ShiftedInPlace) { // a convolution tail: rows move up by one in the same buffer
  forEachType(R"(
func.func @k(%x: memref<4x20xT> {tile.name = "x"}, %new: memref<20xT> {tile.name = "new"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %v = tile.load %x[%c1, %c0] {dims = array<i64: 0, 1>} : memref<4x20xT>, vector<3x20xT>
  %all = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<4x20xT>, vector<4x20xT>
  %w = tile.load %new[%c0] {dims = array<i64: 0>} : memref<20xT>, vector<20xT>
  tile.store %v, %x[%c0, %c0] {dims = array<i64: 0, 1>} : vector<3x20xT>, memref<4x20xT>
  tile.store %w, %x[%c3, %c0] {dims = array<i64: 1>} : vector<20xT>, memref<4x20xT>
  %first = tile.rows %all[%c0] : vector<4x20xT>, vector<20xT>
  tile.store %first, %new[%c0] {dims = array<i64: 0>} : vector<20xT>, memref<20xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(80), w = randoms<T>(20), x0 = x, w0 = w;
                kernels.run("k", {1}, {{"x", x}, {"new", w}});
                for (int i = 0; i < 80; ++i)
                  ASSERT_EQ(x[i], i < 60 ? x0[i + 20] : w0[i - 60]) << i;
                for (int i = 0; i < 20; ++i)
                  ASSERT_EQ(w[i], x0[i]);
              });
}

// A sum that looked expensive becomes cheap when the exponential in it is kept, and is computed again behind the store that
// overwrites what it is made from.
TEST(TileElementwise, ReadBeforeItIsWritten) {
  KernelHarness kernels(R"(
func.func @k(%m: memref<8x64xf32> {tile.name = "m"}, %p: memref<8x64xf32> {tile.name = "p"}, %y: memref<8x64xf32> {tile.name = "y"},
             %z: memref<8x64xf32> {tile.name = "z"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %x = tile.load %m[%c0, %c0] {dims = array<i64: 0, 1>} : memref<8x64xf32>, vector<8x64xf32>
  %a = tile.load %p[%c0, %c0] {dims = array<i64: 0, 1>} : memref<8x64xf32>, vector<8x64xf32>
  %e = math.exp %a : vector<8x64xf32>
  %v = arith.addf %e, %x : vector<8x64xf32>
  tile.store %v, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<8x64xf32>, memref<8x64xf32>
  tile.store %e, %m[%c0, %c0] {dims = array<i64: 0, 1>} : vector<8x64xf32>, memref<8x64xf32>
  %w = tile.load %p[%c0, %c0] {dims = array<i64: 0, 1>} : memref<8x64xf32>, vector<8x64xf32>
  %u = arith.addf %v, %w : vector<8x64xf32>
  tile.store %u, %z[%c0, %c0] {dims = array<i64: 0, 1>} : vector<8x64xf32>, memref<8x64xf32>
  return
})",
                        "native");
  auto m = randoms<float>(512), p = randoms<float>(512), m0 = m;
  std::vector<float> y(512), z(512);
  kernels.run("k", {1}, {{"m", m}, {"p", p}, {"y", y}, {"z", z}});
  for (int i = 0; i < 512; ++i) {
    ASSERT_NEAR(m[i], std::exp(p[i]), 1e-5) << i;
    ASSERT_NEAR(y[i], std::exp(p[i]) + m0[i], 1e-5) << i;
    ASSERT_NEAR(z[i], std::exp(p[i]) + m0[i] + p[i], 1e-5) << i;
  }
}

TEST(TileElementwise, Bfloat16) {
  const char *text = R"(
func.func @k(%x: memref<?x40xbf16> {tile.name = "x"}, %y: memref<?x40xbf16> {tile.name = "y"}, %z: memref<?x40xf32> {tile.name = "z"}, %n: index {tile.name = "n"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %r = arith.muli %i, %c4 : index
  %a = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x40xbf16>, vector<4x40xbf16>
  %f = arith.extf %a : vector<4x40xbf16> to vector<4x40xf32>
  %s = arith.mulf %f, %f : vector<4x40xf32>
  %o = arith.truncf %s : vector<4x40xf32> to vector<4x40xbf16>
  tile.store %o, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<4x40xbf16>, memref<?x40xbf16>
  %sum = tile.reduce add %f {axis = 1 : i64} : vector<4x40xf32>, vector<4xf32>
  %e = tile.expand %sum {axis = 1 : i64} : vector<4xf32>, vector<4x40xf32>
  tile.store %e, %z[%r, %c0] {dims = array<i64: 0, 1>} : vector<4x40xf32>, memref<?x40xf32>
  return
})";
  for (const char *cpu : {"native", "x86-64-v3"}) {
    KernelHarness kernels(text, cpu);
    auto xf = randoms<float>(10 * 40);
    std::vector<uint16_t> x(400), y(480, 7);
    std::vector<float> z(480);
    for (int i = 0; i < 400; ++i) {
      x[i] = toBf16(xf[i]);
      xf[i] = fromBf16(x[i]);
    }
    kernels.run("k", {3}, {{"x", x}, {"y", y}, {"z", z}, {"n", 10}});
    for (int r = 0; r < 12; ++r) {
      float sum = 0;
      for (int c = 0; c < 40 && r < 10; ++c)
        sum += xf[r * 40 + c];
      for (int c = 0; c < 40; ++c) {
        ASSERT_EQ(y[r * 40 + c], r < 10 ? toBf16(xf[r * 40 + c] * xf[r * 40 + c]) : 7) << r << "," << c;
        ASSERT_NEAR(z[r * 40 + c], sum, 1e-5);
      }
    }
  }
}

TEST(TileElementwise, TableAndScalarAccess) {
  forEachType(R"(
func.func @k(%x: memref<?x4xT> {tile.name = "x"}, %t: memref<?xi32> {tile.name = "t"}, %y: memref<?x4xT> {tile.name = "y"}, %s: memref<?xT> {tile.name = "s"})
    attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %i = tile.program : index
  %ri = memref.load %t[%i] : memref<?xi32>
  %r = arith.index_cast %ri : i32 to index
  %v = tile.load %x[%r, %c0] {dims = array<i64: 1>} : memref<?x4xT>, vector<4xT>
  %k = arith.constant dense<[1.0, 2.0, 4.0, 8.0]> : vector<4xT>
  %p = arith.mulf %v, %k : vector<4xT>
  tile.store %p, %y[%i, %c0] {dims = array<i64: 1>} : vector<4xT>, memref<?x4xT>
  %sum = tile.reduce add %p {axis = 0 : i64} : vector<4xT>, T
  memref.store %sum, %s[%i] : memref<?xT>
  return
})",
              [](KernelHarness &kernels, auto zero) {
                using T = decltype(zero);
                auto x = randoms<T>(20);
                std::vector<int32_t> t = {4, 0, 2};
                std::vector<T> y(12), s(3);
                kernels.run("k", {3}, {{"x", x}, {"t", t}, {"y", y}, {"s", s}});
                for (int i = 0; i < 3; ++i) {
                  T sum = 0;
                  for (int c = 0; c < 4; ++c) {
                    ASSERT_EQ(y[i * 4 + c], x[t[i] * 4 + c] * T(1 << c));
                    sum += y[i * 4 + c];
                  }
                  ASSERT_NEAR(s[i], sum, tolerance<T>());
                }
              });
}

} // namespace
