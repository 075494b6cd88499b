//===- SplitProducts.cpp - f32 products of a GPU as products of bf16 on the tensor cores --------------------------===//
//
//   x = hi + mid + lo          each the rest behind the ones before it, rounded to bf16: 24 bits
//   C = A op(B) = sum of A_i op(B_j), i + j <= 2        small terms first, all in one sum
//
// An FMA unit has a fifteenth of the tensor cores' rate. A product of two bf16 numbers is exact in f32, so three products (one operand is bf16) or six are as exact as
// one of f32 (Henry, Tang, Heinecke: Leveraging the bfloat16 artificial intelligence datatype for higher-precision computations, 2019): what is left out is below
// 2^-24 of each term. Tensor cores cut what does not fit the digits of a sum instead of rounding it (Ootomo, Yokota 2022), half a digit in the mean for each 16 terms: a sum of
// 1024 large terms, 64 times of them, may lose 4e-6 of its size, and no sum here is longer.
//
// What is no finite number has one part, itself, and two of 0; so has what is made of it: where one of f32 is NaN, so is one of parts, and where it is infinite it is
// infinite or NaN (0 times an infinite part; parts of a product beyond the largest number, of both signs), never finite. A product within 2^-7 of the largest number may be
// infinite already, as its first term is. Numbers above the largest of bf16 keep three parts, of which that is the first.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/ProductTiles.h"

#include "passes/analysis/Machine.h"
#include "passes/analysis/Views.h"

#include <limits>

using namespace mlir;

namespace braid {

namespace {

constexpr int64_t kParts = 3, kBlock = 1024;
constexpr double kLargestBf16 = 0x1.FEp+127;

/// Of x: hi, mid, lo; of bf16 itself.
SmallVector<Value> partsOf(Operation *op, Value x, OutlineContext &context) {
  auto type = tensorType(x);
  if (type.getElementType().isBF16())
    return {x};
  SmallVector<Value> &known = context.parts[x];
  if (!known.empty() && known.front().getParentBlock() == op->getBlock())
    return known;
  int64_t size = product(type.getShape());
  static constexpr StringRef names[] = {"hi", "mid", "lo"};
  std::string kernel = context.kernel(kSplitKernel, {"block"}, [&](KernelBuilder &k) {
    Type bf16 = k.builder.getBF16Type();
    Var x = k.buffer("x", k.f32(), {kDynamic});
    Vars parts;
    for (StringRef name : names)
      parts.push_back(k.buffer(name, bf16, {kDynamic}));
    Var size = k.index("size"), first = k.program(0) * kBlock;
    Var rest = k.load(x, {first}, {kBlock}, {.limit = size});
    Var finite = lt(abs(rest), std::numeric_limits<double>::infinity());
    Var rounded = cast(select(finite, max(min(rest, kLargestBf16), -kLargestBf16), rest), bf16);
    for (Var part : parts) {
      k.store(rounded, part, {first}, {.limit = size});
      rest = select(finite, rest - cast(rounded, k.f32()), 0);
      rounded = cast(rest, bf16);
    }
  });
  auto launch = context.launch(op, kernel, {ceilDiv(size, kBlock)});
  launch.arg("x", context.view(op, x, {size}));
  for (StringRef name : names)
    launch.result(name, RankedTensorType::get({size}, BFloat16Type::get(op->getContext())));
  SmallVector<Value> parts = launch.index("size", size).run();
  for (Value &part : parts)
    part = context.view(op, part, type.getShape());
  return context.parts[x] = parts;
}

} // namespace

std::string splitChoice(int64_t m, int64_t n, int64_t k, Type a, Type b, bool transposeA) {
  // What units take for the products, and a copy for the bytes of parts and for launches.
  constexpr GpuRates rates;
  constexpr double bytesOfParts = 4 + kParts * 2; // read and written
  bool types = (a.isBF16() || a.isF32()) && (b.isBF16() || b.isF32()) && !(a.isBF16() && b.isBF16());
  if (!types || m % kGrain != 0 || n % kGrain != 0 || k % kGrain != 0 || (!transposeA && k > kMostSplit))
    return {};
  double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  int64_t products = a.isBF16() || b.isBF16() ? kParts : 2 * kParts;
  double seconds = flops * static_cast<double>(products) / rates.tensor;
  for (auto [type, size] : {std::pair(a, m * k), std::pair(b, k * n)})
    if (type.isF32())
      seconds += rates.launch + bytesOfParts * static_cast<double>(size) / rates.bandwidth;
  if (seconds >= flops / rates.fma)
    return {};
  return "generated: f32 operands in parts of bf16, " + std::to_string(products) + " products on the tensor cores";
}

Value splitProduct(Operation *op, const Product &p, RankedTensorType type, OutlineContext &context) {
  int64_t k = p.transposeA ? product(shapeOf(p.a)) / p.aColumns : p.aColumns;
  int64_t m = product(type.getShape()) / p.cColumns, n = p.cColumns;
  Type left = tensorType(p.a).getElementType(), right = tensorType(p.b).getElementType();
  if (!context.ownProducts() || !context.f32Parts || !type.getElementType().isF32() ||
      (p.transposeA ? p.transposeB : bool(p.c)) || (p.c && p.c.getType() != type) || !isContiguous(p.a) ||
      !isContiguous(p.b) || splitChoice(m, n, k, left, right, p.transposeA).empty())
    return {};
  SmallVector<Value> a = partsOf(op, p.a, context), b = partsOf(op, p.b, context), as, bs;
  for (int64_t order = kParts - 1; order >= 0; --order)
    for (int64_t i = 0; i <= order; ++i)
      if (i < static_cast<int64_t>(a.size()) && order - i < static_cast<int64_t>(b.size())) {
        as.push_back(a[i]);
        bs.push_back(b[order - i]);
      }
  if (p.transposeA)
    return sumInParts(op, as, bs, p, type, context);
  Value sum = sumInOneKernel(op, as, bs, {}, p.transposeB, type.clone({m, n}), context); // heads are columns
  return sum ? context.view(op, sum, type.getShape()) : Value();
}

} // namespace braid
