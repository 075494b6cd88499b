//===- FunctionRewriter.cpp - new types through entries, repeats and layer functions ------------------------------===//
#include "passes/shard/FunctionRewriter.h"

using namespace mlir;
using namespace braid;

LogicalResult FunctionRewriter::rewriteBlock(Block &from, IRMapping &map, OpBuilder &builder) {
  for (Operation &op : from.without_terminator()) {
    LogicalResult result = success();
    if (auto repeat = dyn_cast<RepeatOp>(op))
      result = rewriteRepeat(repeat, map, builder);
    else if (auto call = dyn_cast<func::CallOp>(op))
      result = rewriteCall(call, map, builder);
    else
      result = rewriteOp(op, map, builder);
    if (failed(result))
      return failure();
  }
  return success();
}

LogicalResult FunctionRewriter::rewriteRepeat(RepeatOp repeat, IRMapping &map, OpBuilder &builder) {
  Block &from = repeat.getBody().front();
  SmallVector<Value> inputs;
  for (Value input : repeat.getInputs())
    inputs.push_back(map.lookup(input));
  Region region;
  Block &to = region.emplaceBlock();
  for (auto [i, input] : llvm::enumerate(inputs)) {
    auto type = cast<RankedTensorType>(input.getType());
    if (i >= repeat.getCarried())
      type = RankedTensorType::get(type.getShape().drop_front(), type.getElementType());
    map.map(from.getArgument(i), to.addArgument(type, from.getArgument(i).getLoc()));
  }
  OpBuilder inner(module.getContext());
  inner.setInsertionPointToEnd(&to);
  if (failed(rewriteBlock(from, map, inner)))
    return failure();
  SmallVector<Value> values;
  SmallVector<Type> types;
  for (auto [i, value] : llvm::enumerate(cast<YieldOp>(from.getTerminator()).getValues())) {
    values.push_back(map.lookup(value));
    auto type = cast<RankedTensorType>(values.back().getType());
    if (i >= repeat.getCarried()) {
      SmallVector<int64_t> shape = {static_cast<int64_t>(repeat.getCount())};
      llvm::append_range(shape, type.getShape());
      type = RankedTensorType::get(shape, type.getElementType());
    } else if (type != inputs[i].getType()) {
      return repeat.emitOpError() << "carries value " << i << " in as " << inputs[i].getType() << " but out as "
                                  << type;
    }
    types.push_back(type);
  }
  YieldOp::create(inner, repeat.getLoc(), values);
  auto rebuilt = RepeatOp::create(builder, repeat.getLoc(), types, inputs, repeat.getCount(), repeat.getCarried(),
                                  repeat.getReverse());
  rebuilt.getBody().takeBody(region);
  rebuilt->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
  map.map(repeat.getResults(), rebuilt.getResults());
  return success();
}

LogicalResult FunctionRewriter::rewriteLayer(func::FuncOp from, Block &to, IRMapping &map) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(&to);
  Block &body = from.getBody().front();
  if (failed(rewriteBlock(body, map, builder)))
    return failure();
  SmallVector<Value> results;
  for (Value value : body.getTerminator()->getOperands())
    results.push_back(map.lookup(value));
  func::ReturnOp::create(builder, body.getTerminator()->getLoc(), results);
  return success();
}

LogicalResult FunctionRewriter::rewriteCall(func::CallOp call, IRMapping &map, OpBuilder &builder) {
  auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
  SmallVector<Value> operands;
  for (Value operand : call.getOperands())
    operands.push_back(callOperand(callee, operand, map.lookup(operand)));
  SmallVector<func::FuncOp> &known = layers[callee];
  func::FuncOp target;
  for (func::FuncOp candidate : known)
    if (llvm::equal(candidate.getArgumentTypes(), ValueRange(operands).getTypes()))
      target = candidate;
  if (!target) {
    OpBuilder atCallee(callee);
    target = func::FuncOp::create(atCallee, callee.getLoc(), callee.getName(), callee.getFunctionType());
    target.setPrivate();
    target->setDiscardableAttrs(callee->getDiscardableAttrDictionary());
    target->remove();
    Block *body = target.addEntryBlock();
    IRMapping inner;
    for (auto [argument, operand, old] : llvm::zip_equal(body->getArguments(), operands, callee.getArguments())) {
      argument.setType(operand.getType());
      argument.setLoc(old.getLoc());
      inner.map(old, argument);
    }
    if (failed(rewriteLayer(callee, *body, inner))) {
      target->erase();
      return failure();
    }
    target.setFunctionType(builder.getFunctionType(body->getArgumentTypes(), body->getTerminator()->getOperandTypes()));
    if (callee.getArgAttrs())
      target.setAllArgAttrs(callee.getArgAttrs().value());
    symbols.insert(target, std::next(callee->getIterator())); // unique name; takes the old one back in finish()
    layers[callee].push_back(target);
  }
  auto rebuilt = func::CallOp::create(builder, call.getLoc(), target, operands);
  rebuilt->setDiscardableAttrs(call->getDiscardableAttrDictionary());
  map.map(call.getResults(), rebuilt.getResults());
  return success();
}

LogicalResult FunctionRewriter::rewriteEntry(func::FuncOp entry, TypeRange argumentTypes) {
  Block &from = entry.getBody().front();
  Region region;
  Block &to = region.emplaceBlock();
  IRMapping map;
  for (auto [argument, type] : llvm::zip_equal(from.getArguments(), argumentTypes))
    map.map(argument, to.addArgument(type, argument.getLoc()));
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(&to);
  if (failed(rewriteBlock(from, map, builder)) || failed(beforeReturn(entry, map, builder)))
    return failure();
  SmallVector<Value> results;
  for (Value value : from.getTerminator()->getOperands())
    results.push_back(map.lookup(value));
  func::ReturnOp::create(builder, from.getTerminator()->getLoc(), results);
  entry.getBody().takeBody(region);
  entry.setFunctionType(builder.getFunctionType(to.getArgumentTypes(), ValueRange(results).getTypes()));
  return success();
}

void FunctionRewriter::finish() {
  for (auto &[old, rebuilt] : layers) {
    std::string name = cast<func::FuncOp>(old).getName().str();
    symbols.erase(old);
    if (rebuilt.size() == 1)
      (void)symbols.rename(rebuilt[0], name);
  }
}
