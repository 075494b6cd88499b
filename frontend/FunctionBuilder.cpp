//===- FunctionBuilder.cpp - what layers and entry points have in common while they are built ---------------------===//
#include "frontend/FunctionBuilder.h"

using namespace mlir;
using namespace braid;

FloatTypes braid::floatTypesOf(const ModelSpec &spec, MLIRContext *context) {
  if (spec.dtype == "f64")
    return {Float64Type::get(context), Float64Type::get(context)};
  auto f32 = Float32Type::get(context);
  if (spec.dtype == "bf16")
    return {BFloat16Type::get(context), f32};
  return {f32, f32};
}

FunctionBuilder::FunctionBuilder(const ModelSpec &spec, ModuleOp module, StringRef name)
    : spec(spec), builder(module.getContext()), types(floatTypesOf(spec, module.getContext())) {
  builder.setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(builder, loc(name), name, builder.getFunctionType({}, {}));
  block = function.addEntryBlock();
  builder.setInsertionPointToStart(block);
}

void FunctionBuilder::close(ValueRange results) {
  func::ReturnOp::create(builder, loc("return"), results);
  function.setFunctionType(builder.getFunctionType(block->getArgumentTypes(), results.getTypes()));
}

Location FunctionBuilder::loc(StringRef name) const {
  auto of = [&](StringRef part, Location whole) {
    return NameLoc::get(StringAttr::get(builder.getContext(), part), whole);
  };
  Location unknown = UnknownLoc::get(builder.getContext());
  func::FuncOp in = function;
  return of(name, in ? Location(of(in.getName(), unknown)) : unknown);
}

Value FunctionBuilder::scale(StringRef name, Value x, double value) {
  return ScaleOp::create(builder, loc(name), x.getType(), x, builder.getF64FloatAttr(value));
}

Value FunctionBuilder::offset(StringRef name, Value x, double value) {
  return OffsetOp::create(builder, loc(name), x.getType(), x, builder.getF64FloatAttr(value));
}

Value FunctionBuilder::scaled(StringRef name, Value x, double factor) {
  return factor == 1.0 ? x : scale(name, x, factor);
}

Value FunctionBuilder::softcapped(StringRef name, Value x, double cap) {
  if (cap == 0)
    return x;
  auto kind = builder.getStringAttr("tanh");
  return scale(name, ActivationOp::create(builder, loc(name), x.getType(), scale(name, x, 1 / cap), kind), cap);
}

Value FunctionBuilder::rmsNorm(StringRef name, Value x, Value weight, double eps, int64_t groups) {
  return RmsNormOp::create(builder, loc(name), x.getType(), x, weight, builder.getF64FloatAttr(eps),
                           builder.getI64IntegerAttr(groups));
}

Value FunctionBuilder::norm(StringRef name, Value x, Value weight, Value bias) {
  if (spec.norm.kind == NormKind::rms)
    return rmsNorm(name, x, weight, spec.norm.eps);
  return LayerNormOp::create(builder, loc(name), x.getType(), x, weight, bias, builder.getF64FloatAttr(spec.norm.eps));
}
