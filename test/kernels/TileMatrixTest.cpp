//===- TileMatrixTest.cpp - dot, solve, reductions, running sums, loops against naive references -----------------===//
#include "test/kernels/TileTest.h"

using namespace braid::test;

namespace {

/// Every `$name` of the text replaced by its value.
std::string fill(std::string text, const std::map<std::string, std::string> &values) {
  for (auto it = values.rbegin(); it != values.rend(); ++it)
    for (size_t at; (at = text.find("$" + it->first)) != std::string::npos;)
      text.replace(at, it->first.size() + 1, it->second);
  return text;
}

template <typename T> std::string typeName() { return sizeof(T) == 4 ? "f32" : "f64"; }

template <typename T> void checkDot(int m, int n, int k, bool ta, bool tb, const char *cpu) {
  std::string text =
      fill(R"(
func.func @dot(%a: memref<$arx$acx$t> {tile.name = "a"}, %b: memref<$brx$bcx$t> {tile.name = "b"}, %c: memref<$mx$nx$t> {tile.name = "c"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %x = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$arx$acx$t>, vector<$arx$acx$t>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$brx$bcx$t>, vector<$brx$bcx$t>
  %z = tile.load %c[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$mx$nx$t>, vector<$mx$nx$t>
  %half = arith.constant dense<0.5> : vector<$mx$nx$t>
  %zh = arith.mulf %z, %half : vector<$mx$nx$t>
  %s = tile.dot %x, %y, %zh {$flags} : vector<$arx$acx$t>, vector<$brx$bcx$t>, vector<$mx$nx$t>
  tile.store %s, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$mx$nx$t>, memref<$mx$nx$t>
  return
})",
           {{"ar", std::to_string(ta ? k : m)},
            {"ac", std::to_string(ta ? m : k)},
            {"br", std::to_string(tb ? n : k)},
            {"bc", std::to_string(tb ? k : n)},
            {"m", std::to_string(m)},
            {"n", std::to_string(n)},
            {"t", typeName<T>()},
            {"flags", std::string(ta ? "transpose_a" : "") + (ta && tb ? ", " : "") + (tb ? "transpose_b" : "")}});
  KernelHarness kernels(text, cpu);
  auto a = randoms<T>(m * k), b = randoms<T>(k * n), c = randoms<T>(m * n), c0 = c;
  kernels.run("dot", {1}, {{"a", a}, {"b", b}, {"c", c}});
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0.5 * c0[i * n + j];
      for (int l = 0; l < k; ++l)
        sum += double(ta ? a[l * m + i] : a[i * k + l]) * double(tb ? b[j * k + l] : b[l * n + j]);
      ASSERT_NEAR(c[i * n + j], sum, 10 * tolerance<T>()) << m << "x" << n << "x" << k << " at " << i << "," << j;
    }
}

TEST(TileMatrix, DotShapesAndTransposes) {
  struct {
    int m, n, k;
  } shapes[] = {{16, 16, 16}, {64, 64, 64}, {5, 7, 3}, {33, 20, 17}, {1, 64, 8}, {64, 1, 9}, {13, 100, 31}};
  for (const char *cpu : {"native", "x86-64-v3"})
    for (auto s : shapes)
      for (int t = 0; t < 4; ++t) {
        checkDot<float>(s.m, s.n, s.k, t & 1, t & 2, cpu);
        if (s.m < 40)
          checkDot<double>(s.m, s.n, s.k, t & 1, t & 2, cpu);
      }
}

/// bf16 operands, one of them computed, the left one full or a triangle: sums in f32 of exact products.
void checkBf16Dots(const char *cpu) {
  struct {
    int m, n, k;
    const char *keep;
  } shapes[] = {{64, 64, 64, "lower"}, {32, 32, 32, "strict_upper"},
                {20, 40, 36, ""},      {7, 24, 18, ""},
                {33, 8, 50, ""},       {9, 3, 16, ""},
                {18, 20, 15, ""}};
  for (auto [m, n, k, keep] : shapes)
    for (int t = 0; t < 4; ++t) {
      bool ta = t & 1, tb = t & 2, half = *keep;
      std::string text = fill(
          R"(
func.func @dot(%a: memref<$arx$acxbf16> {tile.name = "a"}, %b: memref<$brx$bcxf32> {tile.name = "b"}, %c: memref<$mx$nxf32> {tile.name = "c"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %x = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$arx$acxbf16>, vector<$arx$acxbf16>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$brx$bcxf32>, vector<$brx$bcxf32>
  $mask
  %z = arith.constant dense<1.0> : vector<$mx$nxf32>
  %narrow = arith.truncf %y : vector<$brx$bcxf32> to vector<$brx$bcxbf16>
  %s = tile.dot $left, %narrow, %z {$flags} : vector<$arx$acxbf16>, vector<$brx$bcxbf16>, vector<$mx$nxf32>
  tile.store %s, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$mx$nxf32>, memref<$mx$nxf32>
  return
})",
          {{"ar", std::to_string(ta ? k : m)},
           {"ac", std::to_string(ta ? m : k)},
           {"br", std::to_string(tb ? n : k)},
           {"bc", std::to_string(tb ? k : n)},
           {"m", std::to_string(m)},
           {"n", std::to_string(n)},
           {"left", half ? "%part" : "%x"},
           {"mask", half ? "%part = tile.mask " + std::string(keep) + " %x : vector<" + std::to_string(m) + "x" +
                               std::to_string(k) + "xbf16>"
                         : ""},
           {"flags", std::string(ta ? "transpose_a" : "") + (ta && tb ? ", " : "") + (tb ? "transpose_b" : "")}});
      KernelHarness kernels(text, cpu);
      auto b = randoms<float>(k * n), left = randoms<float>(m * k);
      std::vector<float> c(m * n);
      std::vector<uint16_t> a(m * k);
      std::transform(left.begin(), left.end(), a.begin(), toBf16);
      for (float &x : b) // whether the kernel rounds what is bf16 or not
        x = fromBf16(toBf16(x));
      kernels.run("dot", {1}, {{"a", a}, {"b", b}, {"c", c}});
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          double sum = 1;
          for (int l = 0; l < k; ++l) {
            int row = ta ? l : i, column = ta ? i : l;
            bool kept = !half || (keep[0] == 'l' ? column <= row : column > row);
            if (kept)
              sum += double(fromBf16(a[row * (ta ? m : k) + column])) * (tb ? b[j * k + l] : b[l * n + j]);
          }
          ASSERT_NEAR(c[i * n + j], sum, 2e-5) << m << "x" << n << "x" << k << " " << t << " at " << i << "," << j;
        }
    }
}

TEST(TileMatrix, DotOfBf16) { checkBf16Dots("x86-64-v3"); }

TEST(TileMatrix, DotOfPairsOfBf16) {
  if (!llvm::is_contained(braid::hostFeatures(), "avx512bf16"))
    GTEST_SKIP() << "this CPU has no avx512bf16";
  checkBf16Dots("native");
}

TEST(TileMatrix, DotOfBf16WithTransposeOp) {
  KernelHarness kernels(R"(
func.func @k(%a: memref<18x24xbf16> {tile.name = "a"}, %b: memref<18x20xbf16> {tile.name = "b"}, %c: memref<24x20xf32> {tile.name = "c"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %x = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<18x24xbf16>, vector<18x24xbf16>
  %y = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<18x20xbf16>, vector<18x20xbf16>
  %xt = tile.transpose %x : vector<18x24xbf16>, vector<24x18xbf16>
  %z = arith.constant dense<1.0> : vector<24x20xf32>
  %s = tile.dot %xt, %y, %z : vector<24x18xbf16>, vector<18x20xbf16>, vector<24x20xf32>
  tile.store %s, %c[%c0, %c0] {dims = array<i64: 0, 1>} : vector<24x20xf32>, memref<24x20xf32>
  return
})");
  auto af = randoms<float>(18 * 24), bf = randoms<float>(18 * 20);
  std::vector<uint16_t> a, b;
  for (float &v : af) {
    a.push_back(toBf16(v));
    v = fromBf16(a.back());
  }
  for (float &v : bf) {
    b.push_back(toBf16(v));
    v = fromBf16(b.back());
  }
  std::vector<float> c(24 * 20);
  kernels.run("k", {1}, {{"a", a}, {"b", b}, {"c", c}});
  for (int i = 0; i < 24; ++i)
    for (int j = 0; j < 20; ++j) {
      double sum = 1;
      for (int l = 0; l < 18; ++l)
        sum += double(af[l * 24 + i]) * bf[l * 20 + j];
      ASSERT_NEAR(c[i * 20 + j], sum, 2e-5);
    }
}

template <typename T> void checkSolve(int c, int n, bool transpose, const char *cpu) {
  std::string text = fill(R"(
func.func @k(%a: memref<$cx$cx$t> {tile.name = "a"}, %b: memref<$cx$nx$t> {tile.name = "b"}, %x: memref<$cx$nx$t> {tile.name = "x"})
    attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %av = tile.load %a[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$cx$cx$t>, vector<$cx$cx$t>
  %bv = tile.load %b[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$cx$nx$t>, vector<$cx$nx$t>
  %s = tile.solve %av, %bv {$flags} : vector<$cx$cx$t>, vector<$cx$nx$t>
  tile.store %s, %x[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$cx$nx$t>, memref<$cx$nx$t>
  return
})",
                          {{"c", std::to_string(c)},
                           {"n", std::to_string(n)},
                           {"t", typeName<T>()},
                           {"flags", transpose ? "transpose" : ""}});
  KernelHarness kernels(text, cpu);
  auto a = randoms<T>(c * c, 1, 0.5), b = randoms<T>(c * n);
  std::vector<T> x(c * n);
  kernels.run("k", {1}, {{"a", a}, {"b", b}, {"x", x}});
  std::vector<double> want(b.begin(), b.end());
  double largest = 1;
  for (int step = 0; step < c; ++step) {
    int r = transpose ? c - 1 - step : step;
    for (int s = 0; s < c; ++s)
      if (transpose ? s > r : s < r)
        for (int j = 0; j < n; ++j)
          want[r * n + j] -= double(transpose ? a[s * c + r] : a[r * c + s]) * want[s * n + j];
    for (int j = 0; j < n; ++j)
      largest = std::max(largest, std::abs(want[r * n + j]));
  }
  for (int i = 0; i < c * n; ++i)
    ASSERT_NEAR(x[i], want[i], 100 * tolerance<T>() * largest)
        << c << "x" << n << (transpose ? "T" : "") << " at " << i;
}

TEST(TileMatrix, Solve) {
  struct {
    int c, n;
  } shapes[] = {{16, 16}, {64, 64}, {17, 5}, {3, 40}, {1, 1}, {30, 100}};
  for (const char *cpu : {"native", "x86-64-v3"})
    for (auto s : shapes)
      for (bool transpose : {false, true}) {
        checkSolve<float>(s.c, s.n, transpose, cpu);
        checkSolve<double>(s.c, s.n, transpose, cpu);
      }
}

template <typename T> void checkScan(int r, int c, const char *cpu) {
  std::string text = fill(R"(
func.func @k(%x: memref<$rx$cx$t> {tile.name = "x"}, %d: memref<$rx$cx$t> {tile.name = "d"}, %u: memref<$rx$cx$t> {tile.name = "u"}, %f: memref<$rx$cx$t> {tile.name = "f"},
             %g: memref<$rx$cx$t> {tile.name = "g"}, %s: memref<$cx$t> {tile.name = "s"}, %m: memref<$rx$t> {tile.name = "m"}, %n: memref<$rx$t> {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %v = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<$rx$cx$t>, vector<$rx$cx$t>
  %w = arith.addf %v, %v : vector<$rx$cx$t>
  %0 = tile.cumsum %w {axis = 0 : i64} : vector<$rx$cx$t>
  %1 = tile.cumsum %w {axis = 0 : i64, reverse} : vector<$rx$cx$t>
  %2 = tile.cumsum %w {axis = 1 : i64} : vector<$rx$cx$t>
  %3 = tile.cumsum %w {axis = 1 : i64, reverse} : vector<$rx$cx$t>
  %4 = tile.reduce add %w {axis = 0 : i64} : vector<$rx$cx$t>, vector<$cx$t>
  %5 = tile.reduce max %w {axis = 1 : i64} : vector<$rx$cx$t>, vector<$rx$t>
  %6 = tile.reduce min %w {axis = 1 : i64} : vector<$rx$cx$t>, vector<$rx$t>
  tile.store %0, %d[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$rx$cx$t>, memref<$rx$cx$t>
  tile.store %1, %u[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$rx$cx$t>, memref<$rx$cx$t>
  tile.store %2, %f[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$rx$cx$t>, memref<$rx$cx$t>
  tile.store %3, %g[%c0, %c0] {dims = array<i64: 0, 1>} : vector<$rx$cx$t>, memref<$rx$cx$t>
  tile.store %4, %s[%c0] {dims = array<i64: 0>} : vector<$cx$t>, memref<$cx$t>
  tile.store %5, %m[%c0] {dims = array<i64: 0>} : vector<$rx$t>, memref<$rx$t>
  tile.store %6, %n[%c0] {dims = array<i64: 0>} : vector<$rx$t>, memref<$rx$t>
  return
})",
                          {{"c", std::to_string(c)}, {"r", std::to_string(r)}, {"t", typeName<T>()}});
  KernelHarness kernels(text, cpu);
  auto x = randoms<T>(r * c);
  std::vector<T> d(r * c), u(r * c), f(r * c), g(r * c), s(c), m(r), n(r);
  kernels.run("k", {1}, {{"x", x}, {"d", d}, {"u", u}, {"f", f}, {"g", g}, {"s", s}, {"m", m}, {"n", n}});
  double eps = 40 * tolerance<T>();
  for (int i = 0; i < r; ++i) {
    double max = -1e9, min = 1e9;
    for (int j = 0; j < c; ++j) {
      double down = 0, up = 0, forth = 0, back = 0;
      for (int t = 0; t < r; ++t)
        (t <= i ? down : up) += 2 * x[t * c + j];
      for (int t = 0; t < c; ++t)
        (t <= j ? forth : back) += 2 * x[i * c + t];
      double own = 2 * x[i * c + j];
      ASSERT_NEAR(d[i * c + j], down, eps);
      ASSERT_NEAR(u[i * c + j], up + own, eps);
      ASSERT_NEAR(f[i * c + j], forth, eps) << r << "x" << c << " at " << i << "," << j;
      ASSERT_NEAR(g[i * c + j], back + own, eps) << r << "x" << c << " at " << i << "," << j;
      ASSERT_NEAR(s[j], down + up, eps);
      max = std::max(max, own);
      min = std::min(min, own);
    }
    ASSERT_NEAR(m[i], max, eps);
    ASSERT_NEAR(n[i], min, eps);
  }
}

TEST(TileMatrix, RunningSumsAndReductions) {
  for (const char *cpu : {"native", "x86-64-v3"})
    for (auto [r, c] : {std::pair(8, 16), {5, 37}, {64, 64}, {3, 130}, {1, 1}, {9, 3}}) {
      checkScan<float>(r, c, cpu);
      checkScan<double>(r, c, cpu);
    }
}

TEST(TileMatrix, RankOneScans) {
  KernelHarness kernels(R"(
func.func @k(%x: memref<45xf32> {tile.name = "x"}, %y: memref<45xf32> {tile.name = "y"}, %i: memref<45xi32> {tile.name = "i"}, %o: memref<3xi32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %v = tile.load %x[%c0] {dims = array<i64: 0>} : memref<45xf32>, vector<45xf32>
  %s = tile.cumsum %v {axis = 0 : i64, reverse} : vector<45xf32>
  %last = tile.rows %s[%c2] : vector<45xf32>, f32
  %b = vector.broadcast %last : f32 to vector<45xf32>
  %d = arith.subf %s, %b : vector<45xf32>
  tile.store %d, %y[%c0] {dims = array<i64: 0>} : vector<45xf32>, memref<45xf32>
  %w = tile.load %i[%c0] {dims = array<i64: 0>} : memref<45xi32>, vector<45xi32>
  %add = tile.reduce add %w {axis = 0 : i64} : vector<45xi32>, i32
  %max = tile.reduce max %w {axis = 0 : i64} : vector<45xi32>, i32
  %min = tile.reduce min %w {axis = 0 : i64} : vector<45xi32>, i32
  memref.store %add, %o[%c0] : memref<3xi32>
  memref.store %max, %o[%c1] : memref<3xi32>
  memref.store %min, %o[%c2] : memref<3xi32>
  return
})");
  auto x = randoms<float>(45);
  std::vector<float> y(45);
  std::vector<int32_t> i(45), o(3);
  for (int t = 0; t < 45; ++t)
    i[t] = (t * 37) % 45 - 20;
  kernels.run("k", {1}, {{"x", x}, {"y", y}, {"i", i}, {"o", o}});
  for (int t = 0; t < 45; ++t) {
    double want = 0;
    for (int u = t; u < 45; ++u)
      want += x[u];
    for (int u = 2; u < 45; ++u)
      want -= x[u];
    ASSERT_NEAR(y[t], want, 1e-5);
  }
  EXPECT_EQ(o[0], 45 * 44 / 2 - 20 * 45);
  EXPECT_EQ(o[1], 24);
  EXPECT_EQ(o[2], -20);
}

// A state that decays and takes a rank-k update per step, as linear attention does, and an output per step; the loop
// also swaps two small tiles and counts.
TEST(TileMatrix, LoopCarriedTiles) {
  for (const char *cpu : {"native", "x86-64-v3"}) {
    KernelHarness kernels(R"(
func.func @k(%q: memref<?x24xf32> {tile.name = "q"}, %v: memref<?x20xf32> {tile.name = "v"}, %o: memref<?x20xf32> {tile.name = "o"}, %s: memref<24x20xf32> {tile.name = "s"},
             %ab: memref<2x5xf32> {tile.name = "ab"}, %n: index {tile.name = "n"}, %decay: f32 {tile.name = "decay"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c8 = arith.constant 8 : index
  %s0 = tile.load %s[%c0, %c0] {dims = array<i64: 0, 1>} : memref<24x20xf32>, vector<24x20xf32>
  %a0 = tile.load %ab[%c0, %c0] {dims = array<i64: 1>} : memref<2x5xf32>, vector<5xf32>
  %b0 = tile.load %ab[%c1, %c0] {dims = array<i64: 1>} : memref<2x5xf32>, vector<5xf32>
  %d = vector.broadcast %decay : f32 to vector<24x20xf32>
  %zero = arith.constant dense<0.0> : vector<8x20xf32>
  %r:4 = scf.for %t = %c0 to %n step %c8 iter_args(%state = %s0, %a = %a0, %count = %c0, %b = %b0) -> (vector<24x20xf32>, vector<5xf32>, index, vector<5xf32>) {
    %qt = tile.load %q[%t, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x24xf32>, vector<8x24xf32>
    %vt = tile.load %v[%t, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x20xf32>, vector<8x20xf32>
    %ot = tile.dot %qt, %state, %zero : vector<8x24xf32>, vector<24x20xf32>, vector<8x20xf32>
    tile.store %ot, %o[%t, %c0] limit %n {dims = array<i64: 0, 1>} : vector<8x20xf32>, memref<?x20xf32>
    %faded = arith.mulf %state, %d : vector<24x20xf32>
    %next = tile.dot %qt, %vt, %faded {transpose_a} : vector<8x24xf32>, vector<8x20xf32>, vector<24x20xf32>
    %more = arith.addi %count, %c1 : index
    scf.yield %next, %b, %more, %a : vector<24x20xf32>, vector<5xf32>, index, vector<5xf32>
  }
  tile.store %r#0, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<24x20xf32>, memref<24x20xf32>
  tile.store %r#1, %ab[%c0, %c0] {dims = array<i64: 1>} : vector<5xf32>, memref<2x5xf32>
  %ci = arith.index_cast %r#2 : index to i32
  %cf = arith.sitofp %ci : i32 to f32
  %cb = vector.broadcast %cf : f32 to vector<5xf32>
  %bc = arith.addf %r#3, %cb : vector<5xf32>
  tile.store %bc, %ab[%c1, %c0] {dims = array<i64: 1>} : vector<5xf32>, memref<2x5xf32>
  return
})",
                          cpu);
    int n = 21;
    auto q = randoms<float>(n * 24), v = randoms<float>(n * 20), s = randoms<float>(480), ab = randoms<float>(10),
         ab0 = ab;
    std::vector<double> state(s.begin(), s.end());
    std::vector<float> o(24 * 20, 7);
    kernels.run("k", {1}, {{"q", q}, {"v", v}, {"o", o}, {"s", s}, {"ab", ab}, {"n", n}, {"decay", 0.5}});
    for (int t = 0; t < n; t += 8) {
      for (int r = t; r < std::min(n, t + 8); ++r)
        for (int j = 0; j < 20; ++j) {
          double sum = 0;
          for (int i = 0; i < 24; ++i)
            sum += q[r * 24 + i] * state[i * 20 + j];
          ASSERT_NEAR(o[r * 20 + j], sum, 1e-4);
        }
      for (int i = 0; i < 24; ++i)
        for (int j = 0; j < 20; ++j) {
          state[i * 20 + j] *= 0.5;
          for (int r = t; r < std::min(n, t + 8); ++r)
            state[i * 20 + j] += q[r * 24 + i] * v[r * 20 + j];
        }
    }
    for (int i = 0; i < 480; ++i)
      ASSERT_NEAR(s[i], state[i], 1e-4);
    for (int i = 0; i < 60; ++i)
      ASSERT_EQ(o[420 + i], 7) << "rows past the limit stay";
    for (int i = 0; i < 5; ++i) { // three swaps
      ASSERT_EQ(ab[i], ab0[5 + i]);
      ASSERT_EQ(ab[5 + i], ab0[i] + 3);
    }
  }
}

TEST(TileMatrix, ConditionsAndNestedLoops) {
  KernelHarness kernels(R"(
func.func @k(%x: memref<12x18xf32> {tile.name = "x"}, %y: memref<4x18xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant dense<0.0> : vector<4x18xf32>
  %e0 = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<12x18xf32>, vector<4x18xf32>
  %e = math.exp %e0 : vector<4x18xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%acc = %zero) -> (vector<4x18xf32>) {
    %row = arith.muli %i, %c4 : index
    %even = arith.remui %i, %c2 : index
    %is = arith.cmpi eq, %even, %c0 : index
    %v = tile.load %x[%row, %c0] {dims = array<i64: 0, 1>} : memref<12x18xf32>, vector<4x18xf32>
    %w = scf.if %is -> (vector<4x18xf32>) {
      %m = arith.mulf %v, %e : vector<4x18xf32>
      scf.yield %m : vector<4x18xf32>
    } else {
      scf.yield %acc : vector<4x18xf32>
    }
    %in = scf.for %j = %c0 to %i step %c1 iter_args(%t = %acc) -> (vector<4x18xf32>) {
      %u = arith.addf %t, %w : vector<4x18xf32>
      scf.yield %u : vector<4x18xf32>
    }
    %a = arith.addf %in, %w : vector<4x18xf32>
    scf.yield %a : vector<4x18xf32>
  }
  tile.store %r, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<4x18xf32>, memref<4x18xf32>
  return
})");
  auto x = randoms<float>(12 * 18);
  std::vector<float> y(72);
  kernels.run("k", {1}, {{"x", x}, {"y", y}, {"n", 3}});
  for (int c = 0; c < 72; ++c) {
    double acc = 0;
    for (int i = 0; i < 3; ++i) {
      double w = i % 2 == 0 ? x[i * 72 + c] * std::exp(x[c]) : acc, in = acc;
      for (int j = 0; j < i; ++j)
        in += w;
      acc = in + w;
    }
    ASSERT_NEAR(y[c], acc, 1e-4);
  }
}

TEST(TileMatrix, SoftmaxAndTripleProduct) {
  KernelHarness kernels(R"(
func.func @softmax(%x: memref<?x50xf32> {tile.name = "x"}, %y: memref<?x50xf32> {tile.name = "y"}, %n: index {tile.name = "n"}) attributes {tile.kernel, tile.grid = ["row"]} {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %i = tile.program : index
  %r = arith.muli %i, %c4 : index
  %v = tile.load %x[%r, %c0] limit %n {dims = array<i64: 0, 1>} : memref<?x50xf32>, vector<4x50xf32>
  %m = tile.reduce max %v {axis = 1 : i64} : vector<4x50xf32>, vector<4xf32>
  %me = tile.expand %m {axis = 1 : i64} : vector<4xf32>, vector<4x50xf32>
  %d = arith.subf %v, %me : vector<4x50xf32>
  %e = math.exp %d : vector<4x50xf32>
  %s = tile.reduce add %e {axis = 1 : i64} : vector<4x50xf32>, vector<4xf32>
  %se = tile.expand %s {axis = 1 : i64} : vector<4xf32>, vector<4x50xf32>
  %o = arith.divf %e, %se : vector<4x50xf32>
  tile.store %o, %y[%r, %c0] limit %n {dims = array<i64: 0, 1>} : vector<4x50xf32>, memref<?x50xf32>
  return
}
func.func @triple(%q: memref<16x32xf32> {tile.name = "q"}, %c: memref<16x32xf32> {tile.name = "c"}, %o: memref<16x16xf32> {tile.name = "o"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %qv = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x32xf32>, vector<16x32xf32>
  %cv = tile.load %c[%c0, %c0] {dims = array<i64: 0, 1>} : memref<16x32xf32>, vector<16x32xf32>
  %ca = tile.expand %cv {axis = 1 : i64} : vector<16x32xf32>, vector<16x16x32xf32>
  %cb = tile.expand %cv {axis = 0 : i64} : vector<16x32xf32>, vector<16x16x32xf32>
  %qa = tile.expand %qv {axis = 1 : i64} : vector<16x32xf32>, vector<16x16x32xf32>
  %zero = arith.constant dense<0.0> : vector<16x16x32xf32>
  %d = arith.subf %ca, %cb : vector<16x16x32xf32>
  %dm = arith.minimumf %d, %zero : vector<16x16x32xf32>
  %e = math.exp %dm : vector<16x16x32xf32>
  %p = arith.mulf %qa, %e : vector<16x16x32xf32>
  %s = tile.reduce add %p {axis = 2 : i64} : vector<16x16x32xf32>, vector<16x16xf32>
  %low = tile.mask lower %s : vector<16x16xf32>
  tile.store %low, %o[%c0, %c0] {dims = array<i64: 0, 1>} : vector<16x16xf32>, memref<16x16xf32>
  return
})");
  auto x = randoms<float>(10 * 50, 1, 5);
  std::vector<float> y = x; // in place
  kernels.run("softmax", {3}, {{"x", y}, {"y", y.data()}, {"n", 10}});
  for (int r = 0; r < 10; ++r) {
    double sum = 0;
    for (int c = 0; c < 50; ++c)
      sum += std::exp(double(x[r * 50 + c]));
    for (int c = 0; c < 50; ++c)
      ASSERT_NEAR(y[r * 50 + c], std::exp(double(x[r * 50 + c])) / sum, 1e-6);
  }
  auto q = randoms<float>(512), c = randoms<float>(512);
  std::vector<float> o(256);
  kernels.run("triple", {1}, {{"q", q}, {"c", c}, {"o", o}});
  for (int a = 0; a < 16; ++a)
    for (int b = 0; b < 16; ++b) {
      double sum = 0;
      for (int d = 0; d < 32 && b <= a; ++d)
        sum += q[a * 32 + d] * std::exp(std::min(0.0, double(c[a * 32 + d]) - c[b * 32 + d]));
      ASSERT_NEAR(o[a * 16 + b], sum, 1e-5);
    }
}

// Scores of a causal chunk: dots that give them skip what is above the diagonal, dots that take them too. What is
// skipped is 0 for whoever still looks (the row sums), and a NaN of the weights that a mask removes stays away.
TEST(TileMatrix, TriangularDots) {
  const char *text = R"(
func.func @causal(%q: memref<48x20xT> {tile.name = "q"}, %w: memref<48x48xT> {tile.name = "w"}, %v: memref<48x24xT> {tile.name = "v"}, %s: memref<48x48xT> {tile.name = "s"}, %p: memref<48x24xT> {tile.name = "p"}, %r: memref<48xT> {tile.name = "r"}, %o: memref<48x24xT> {tile.name = "o"}, %t: memref<48x24xT> {tile.name = "t"}, %u: memref<48x24xT> {tile.name = "u"}) attributes {tile.kernel, tile.grid = ["one"]} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %x = tile.load %q[%c0, %c0] {dims = array<i64: 0, 1>} : memref<48x20xT>, vector<48x20xT>
  %weights = tile.load %w[%c0, %c0] {dims = array<i64: 0, 1>} : memref<48x48xT>, vector<48x48xT>
  %values = tile.load %v[%c0, %c0] {dims = array<i64: 0, 1>} : memref<48x24xT>, vector<48x24xT>
  %zero = arith.constant dense<0.0> : vector<48x48xT>
  %none = arith.constant dense<0.0> : vector<48x24xT>
  %decay = tile.mask lower %weights : vector<48x48xT>
  %sums = scf.for %i = %c0 to %c2 step %c1 iter_args(%now = %zero) -> (vector<48x48xT>) {
    %next = tile.dot %x, %x, %now {transpose_b} : vector<48x20xT>, vector<48x20xT>, vector<48x48xT>
    scf.yield %next : vector<48x48xT>
  }
  %scores = arith.mulf %sums, %decay : vector<48x48xT>
  tile.store %scores, %s[%c0, %c0] {dims = array<i64: 0, 1>} : vector<48x48xT>, memref<48x48xT>
  %rows = tile.reduce add %scores {axis = 1 : i64} : vector<48x48xT>, vector<48xT>
  tile.store %rows, %r[%c0] {dims = array<i64: 0>} : vector<48xT>, memref<48xT>
  %out = tile.dot %scores, %values, %none : vector<48x48xT>, vector<48x24xT>, vector<48x24xT>
  tile.store %out, %o[%c0, %c0] {dims = array<i64: 0, 1>} : vector<48x24xT>, memref<48x24xT>
  %turned = tile.dot %scores, %values, %none {transpose_a} : vector<48x48xT>, vector<48x24xT>, vector<48x24xT>
  tile.store %turned, %t[%c0, %c0] {dims = array<i64: 0, 1>} : vector<48x24xT>, memref<48x24xT>
  %upper = tile.mask strict_upper %scores : vector<48x48xT>
  %difference = arith.subf %upper, %scores : vector<48x48xT>
  %below = tile.mask strict_lower %difference : vector<48x48xT>
  %strict = tile.dot %below, %values, %out : vector<48x48xT>, vector<48x24xT>, vector<48x24xT>
  %products = tile.dot %x, %x, %zero {transpose_b} : vector<48x20xT>, vector<48x20xT>, vector<48x48xT>
  %above = tile.mask upper %products : vector<48x48xT>
  %upwards = tile.dot %above, %values, %none {transpose_a} : vector<48x48xT>, vector<48x24xT>, vector<48x24xT>
  tile.store %upwards, %p[%c0, %c0] {dims = array<i64: 0, 1>} : vector<48x24xT>, memref<48x24xT>
  tile.store %strict, %u[%c0, %c0] {dims = array<i64: 0, 1>} : vector<48x24xT>, memref<48x24xT>
  return
})";
  for (const char *cpu : {"native", "x86-64-v3"}) {
    KernelHarness kernels(withType(text, "f32"), cpu);
    constexpr int C = 48, K = 20, V = 24;
    auto q = randoms<float>(C * K), w = randoms<float>(C * C), v = randoms<float>(C * V);
    for (int i = 0; i < C; ++i)
      for (int j = i + 1; j < C; ++j)
        w[i * C + j] = std::nanf("");
    std::vector<float> s(C * C, 7), p(C * V, 7), r(C, 7), o(C * V, 7), t(C * V, 7), u(C * V, 7);
    kernels.run("causal", {1},
                {{"q", q}, {"w", w}, {"v", v}, {"s", s}, {"p", p}, {"r", r}, {"o", o}, {"t", t}, {"u", u}});
    std::vector<double> scores(C * C), out(C * V), turned(C * V), strict(C * V), upwards(C * V);
    for (int i = 0; i < C; ++i) {
      double row = 0;
      for (int j = 0; j <= i; ++j) {
        double dot = 0;
        for (int k = 0; k < K; ++k)
          dot += 2.0 * q[i * K + k] * q[j * K + k];
        scores[i * C + j] = dot * w[i * C + j];
        row += scores[i * C + j];
        for (int c = 0; c < V; ++c) {
          out[i * V + c] += scores[i * C + j] * v[j * V + c];
          turned[j * V + c] += scores[i * C + j] * v[i * V + c];
          strict[i * V + c] += j == i ? scores[i * C + j] * v[j * V + c] : 0;
          upwards[i * V + c] += dot / 2 * v[j * V + c];
        }
      }
      EXPECT_NEAR(r[i], row, 1e-4) << i;
      for (int j = 0; j < C; ++j)
        ASSERT_NEAR(s[i * C + j], scores[i * C + j], 1e-5) << i << " " << j;
    }
    for (int i = 0; i < C * V; ++i) {
      ASSERT_NEAR(o[i], out[i], 1e-4) << i;
      ASSERT_NEAR(t[i], turned[i], 1e-4) << i;
      ASSERT_NEAR(u[i], strict[i], 1e-4) << i;
      ASSERT_NEAR(p[i], upwards[i], 1e-4) << i;
    }
  }
}

} // namespace
