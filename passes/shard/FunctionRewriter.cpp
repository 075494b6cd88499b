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
  int64_t carried = repeat.getCarried();
  SmallVector<Value> inputs, values;
  for (Value input : repeat.getInputs())
    inputs.push_back(map.lookup(input));
  auto region = std::make_unique<Region>();
  for (bool fits = false; !fits;) {
    Block &to = region->emplaceBlock();
    for (auto [i, input] : llvm::enumerate(inputs)) {
      auto type = cast<RankedTensorType>(input.getType());
      if (static_cast<int64_t>(i) >= carried)
        type = RankedTensorType::get(type.getShape().drop_front(), type.getElementType());
      map.map(from.getArgument(i), to.addArgument(type, from.getArgument(i).getLoc()));
    }
    beginBody(to, inputs, carried);
    OpBuilder inner(module.getContext());
    inner.setInsertionPointToEnd(&to);
    if (failed(rewriteBlock(from, map, inner)))
      return failure();
    fits = true;
    values.clear();
    for (auto [i, old] : llvm::enumerate(cast<YieldOp>(from.getTerminator()).getValues())) {
      Value value = map.lookup(old);
      if (static_cast<int64_t>(i) < carried) {
        value = carriedYield(inner, value, to.getArgument(i));
        if (Value input = value ? adaptInput(builder, inputs[i], value) : Value()) {
          inputs[i] = input;
          fits = false;
        }
      }
      if (!value)
        return failure();
      values.push_back(value);
    }
    if (!fits) {
      region->dropAllReferences();
      discarded.push_back(std::move(region));
      region = std::make_unique<Region>();
    } else {
      YieldOp::create(inner, repeat.getLoc(), values);
    }
  }
  SmallVector<Type> types;
  for (auto [i, value] : llvm::enumerate(values)) {
    auto type = cast<RankedTensorType>(value.getType());
    if (static_cast<int64_t>(i) >= carried) {
      SmallVector<int64_t> shape = {static_cast<int64_t>(repeat.getCount())};
      llvm::append_range(shape, type.getShape());
      type = RankedTensorType::get(shape, type.getElementType());
    } else if (type != inputs[i].getType()) {
      return repeat.emitOpError() << "carries value " << i << " in as " << inputs[i].getType() << " but out as "
                                  << type;
    }
    types.push_back(type);
  }
  auto rebuilt = RepeatOp::create(builder, repeat.getLoc(), types, inputs, repeat.getCount(), repeat.getCarried(),
                                  repeat.getReverse());
  rebuilt.getBody().takeBody(*region);
  rebuilt->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
  map.map(repeat.getResults(), rebuilt.getResults());
  repeated(rebuilt);
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
  for (auto [operand, argument] : llvm::zip_equal(call.getOperands(), callee.getArguments()))
    operands.push_back(callOperand(callee, argument, map.lookup(operand)));
  std::string told = signature(operands);
  func::FuncOp target;
  for (const Rebuilt &known : layers[callee]) {
    func::FuncOp candidate = known.function;
    if (known.signature == told &&
        llvm::equal(candidate.getArgumentTypes().take_front(operands.size()), ValueRange(operands).getTypes()))
      target = candidate;
  }
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
    beginFunction(*body, operands);
    if (failed(rewriteLayer(callee, *body, inner))) {
      target->erase();
      return failure();
    }
    endFunction(target);
    target.setFunctionType(builder.getFunctionType(body->getArgumentTypes(), body->getTerminator()->getOperandTypes()));
    if (callee.getArgAttrs()) {
      SmallVector<Attribute> attributes(callee.getArgAttrs().value().getValue());
      attributes.resize(body->getNumArguments(), builder.getDictionaryAttr({}));
      target.setAllArgAttrs(attributes);
    }
    symbols.insert(target, std::next(callee->getIterator())); // unique name; takes the old one back in finish()
    layers[callee].push_back({target, told});
  }
  extraOperands(target, operands);
  auto rebuilt = func::CallOp::create(builder, call.getLoc(), target, operands);
  rebuilt->setDiscardableAttrs(call->getDiscardableAttrDictionary());
  map.map(call.getResults(), rebuilt.getResults());
  called(target, rebuilt);
  return success();
}

LogicalResult FunctionRewriter::rewriteEntry(func::FuncOp entry, TypeRange argumentTypes) {
  Block &from = entry.getBody().front();
  Region region;
  Block &to = region.emplaceBlock();
  IRMapping map;
  for (auto [argument, type] : llvm::zip_equal(from.getArguments(), argumentTypes))
    map.map(argument, to.addArgument(type, argument.getLoc()));
  beginFunction(to, {});
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(&to);
  if (failed(rewriteBlock(from, map, builder)) || failed(beforeReturn(entry, map, builder)))
    return failure();
  SmallVector<Value> results;
  for (Value value : from.getTerminator()->getOperands())
    results.push_back(map.lookup(value));
  func::ReturnOp::create(builder, from.getTerminator()->getLoc(), results);
  entry.getBody().takeBody(region);
  entry.setFunctionType(
      builder.getFunctionType(entry.getBody().front().getArgumentTypes(), ValueRange(results).getTypes()));
  endFunction(entry);
  return success();
}

void FunctionRewriter::finish() {
  discarded.clear();
  for (auto &[old, rebuilt] : layers) {
    std::string name = cast<func::FuncOp>(old).getName().str();
    symbols.erase(old);
    // What only a discarded body has called.
    llvm::erase_if(rebuilt, [&](const Rebuilt &layer) {
      bool unused = SymbolTable::symbolKnownUseEmpty(layer.function, module);
      if (unused)
        symbols.erase(layer.function);
      return unused;
    });
    if (rebuilt.size() == 1)
      (void)symbols.rename(rebuilt[0].function, name);
  }
}
