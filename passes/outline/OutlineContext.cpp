//===- OutlineContext.cpp - kernels by name, launches, views ------------------------------------------------------===//
#include "passes/outline/OutlineContext.h"

using namespace mlir;

namespace braid {

std::string OutlineContext::kernel(StringRef name, ArrayRef<StringRef> grid,
                                   llvm::function_ref<void(KernelBuilder &)> body) {
  // A function of the program may have the name already.
  std::string symbol = name.str();
  while (Operation *existing = module.lookupSymbol(symbol)) {
    if (existing->hasAttr(tile::kKernelAttr))
      return symbol;
    symbol += "_kernel";
  }
  KernelBuilder k(module, symbol, grid);
  body(k);
  if (gpu)
    k.approximateRounded();
  k.finish();
  return symbol;
}

OutlineContext::Launch &OutlineContext::Launch::arg(StringRef name, Value value) {
  argNames.push_back(name.str());
  args.push_back(value);
  return *this;
}

OutlineContext::Launch &OutlineContext::Launch::result(StringRef name, Type type, StringRef inplaceOf) {
  resultNames.push_back(name.str());
  resultTypes.push_back(type);
  auto it = llvm::find(argNames, inplaceOf.str());
  inplace.push_back(inplaceOf.empty() || it == argNames.end() ? -1 : it - argNames.begin());
  return *this;
}

OutlineContext::Launch &OutlineContext::Launch::index(StringRef name, int64_t value) {
  Builder &b = context.rewriter;
  scalars.push_back(b.getNamedAttr(name, b.getIndexAttr(value)));
  return *this;
}

OutlineContext::Launch &OutlineContext::Launch::scalar(StringRef name, double value, Type type) {
  Builder &b = context.rewriter;
  scalars.push_back(b.getNamedAttr(name, b.getFloatAttr(type, value)));
  return *this;
}

SmallVector<Value> OutlineContext::Launch::run() {
  IRRewriter &b = context.rewriter;
  auto strings = [&](ArrayRef<std::string> names) {
    return b.getArrayAttr(
        llvm::map_to_vector(names, [&](const std::string &n) -> Attribute { return b.getStringAttr(n); }));
  };
  auto launch = tile::LaunchOp::create(b, op->getLoc(), TypeRange(resultTypes), args,
                                       FlatSymbolRefAttr::get(b.getContext(), kernel), b.getDenseI64ArrayAttr(grid),
                                       strings(argNames), strings(resultNames), b.getDenseI64ArrayAttr(inplace),
                                       b.getDictionaryAttr(scalars));
  return SmallVector<Value>(launch.getOutputs());
}

Value OutlineContext::view(Operation *op, Value value, Shape shape) {
  if (shapeOf(value) == shape)
    return value;
  if (auto reshape = value.getDefiningOp<ReshapeOp>())
    if (shapeOf(reshape.getSource()) == shape)
      return reshape.getSource();
  OpBuilder::InsertionGuard guard(rewriter);
  rewriter.setInsertionPoint(op);
  return ReshapeOp::create(rewriter, op->getLoc(), tensorType(value).clone(shape), value);
}

Value OutlineContext::rowsView(Operation *op, Value value) {
  SmallVector<int64_t> shape(shapeOf(value).drop_front());
  shape[0] *= shapeOf(value)[0];
  return view(op, value, shape);
}

void OutlineContext::replace(Operation *op, ValueRange values) {
  SmallVector<Value> results;
  for (auto [result, value] : llvm::zip_equal(op->getResults(), values))
    results.push_back(view(op, value, shapeOf(result)));
  rewriter.replaceOp(op, results);
}

int64_t product(Shape shape) {
  int64_t n = 1;
  for (int64_t size : shape)
    n *= size;
  return n;
}

std::string typeName(Type element) {
  std::string text;
  llvm::raw_string_ostream(text) << element;
  return text;
}

int64_t divisorUpTo(int64_t n, int64_t bound) {
  for (int64_t d = std::min(n, bound); d > 1; --d)
    if (n % d == 0)
      return d;
  return 1;
}

} // namespace braid
