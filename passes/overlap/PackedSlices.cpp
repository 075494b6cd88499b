//===- PackedSlices.cpp - values between sliced layers that stand slice after slice -------------------------------===//
// Whoever makes such a value and whoever reads it must agree, so all calls of all layers are looked at: what is not
// certain stands row after row. A layer's value in a stack of many layers keeps its bytes: reshapes, concatenations and
// slices of leading dimensions move whole layers.
#include "passes/overlap/PackedSlices.h"

#include "passes/analysis/Tensors.h"
#include "passes/analysis/Views.h"
#include "passes/overlap/SliceLayer.h"

#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace braid;

namespace {

bool isOfLayers(ArrayRef<int64_t> layer, Value v) {
  auto type = dyn_cast<RankedTensorType>(v.getType());
  return type && type.getRank() >= static_cast<int64_t>(layer.size()) &&
         type.getShape().take_back(layer.size()) == layer;
}

/// Everything that holds the same values, forward and backward from one: between calls they pass repeats that stack them
/// and views of whole layers.
struct Flow {
  SmallVector<OpResult> makers; ///< results of calls
  SmallVector<OpOperand *> readers; ///< operands of calls
  bool certain = true; ///< nobody else makes or reads any of it

  Flow(Value start, DenseSet<Value> &met) : shape(typeOf(start).getShape()), met(met) {
    add(start);
    while (!open.empty()) {
      Value value = open.pop_back_val();
      comesFrom(value);
      for (OpOperand &use : value.getUses())
        goesTo(use);
    }
  }

private:
  void add(Value value) {
    if (!isOfLayers(shape, value)) {
      certain = false; // part of a layer
    } else if (own.insert(value).second) {
      certain &= met.insert(value).second; // otherwise of a flow that did not come here
      open.push_back(value);
    }
  }

  /// A view along `dim`, in front of what belongs to one layer.
  bool movesLayers(Value whole, int64_t dim) const {
    return dim < typeOf(whole).getRank() - static_cast<int64_t>(shape.size());
  }

  void comesFrom(Value value) {
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      auto repeat = dyn_cast<RepeatOp>(argument.getOwner()->getParentOp());
      if (!repeat || argument.getArgNumber() < repeat.getCarried())
        certain = false;
      else
        add(repeat.getInputs()[argument.getArgNumber()]);
      return;
    }
    auto result = cast<OpResult>(value);
    Operation *op = result.getOwner();
    if (isa<func::CallOp>(op)) {
      makers.push_back(result);
      certain &= typeOf(value).getShape() == ArrayRef(shape);
    } else if (auto repeat = dyn_cast<RepeatOp>(op); repeat && result.getResultNumber() >= repeat.getCarried()) {
      add(repeat.getBody().front().getTerminator()->getOperand(result.getResultNumber()));
    } else if (movesWholeLayers(op)) {
      for (Value operand : op->getOperands())
        add(operand);
    } else {
      certain = false;
    }
  }

  void goesTo(OpOperand &use) {
    Operation *user = use.getOwner();
    unsigned number = use.getOperandNumber();
    if (isa<func::CallOp>(user)) {
      readers.push_back(&use);
      certain &= typeOf(use.get()).getShape() == ArrayRef(shape);
    } else if (auto repeat = dyn_cast<RepeatOp>(user); repeat && number >= repeat.getCarried()) {
      add(repeat.getBody().getArgument(number));
    } else if (auto yield = dyn_cast<YieldOp>(user);
               yield && number >= cast<RepeatOp>(yield->getParentOp()).getCarried()) {
      add(yield->getParentOp()->getResult(number));
    } else if (movesWholeLayers(user)) {
      add(user->getResult(0));
    } else {
      certain = false;
    }
  }

  bool movesWholeLayers(Operation *op) const {
    if (auto slice = dyn_cast<SliceOp>(op))
      return movesLayers(slice.getOperand(), slice.getDim());
    if (auto concat = dyn_cast<ConcatOp>(op))
      return movesLayers(concat.getResult(), concat.getDim());
    return isa<ReshapeOp>(op);
  }

  SmallVector<int64_t> shape; ///< of one layer's
  DenseSet<Value> own, &met;
  SmallVector<Value> open;
};

} // namespace

PackedSlices::PackedSlices(ModuleOp module) {
  SymbolTableCollection symbols;
  std::vector<Flow> flows; // of everything that calls of layers in slices make
  DenseMap<Place, int64_t> calls; // of an argument
  DenseMap<Operation *, func::FuncOp> layerOf;
  DenseSet<Value> met;
  auto slicesOf = [](func::FuncOp layer) {
    auto schedule = layer->getAttrOfType<DictionaryAttr>(attrs::schedule);
    // Experts in other slices than the mixer read tokens of two cuts.
    return schedule && !schedule.get("moe_slices") ? schedule.get("token_slices") : Attribute();
  };
  module.walk([&](func::CallOp call) {
    auto layer = symbols.lookupNearestSymbolFrom<func::FuncOp>(call, call.getCalleeAttr());
    if (!layer || !slicesOf(layer))
      return;
    layerOf[call] = layer;
    for (int64_t i = 0; i < static_cast<int64_t>(call.getNumOperands()); ++i)
      ++calls[{layer, i}];
    for (Value result : call.getResults())
      if (!met.contains(result))
        flows.emplace_back(result, met);
  });
  auto placeOf = [&](OpOperand *reader) {
    return Place(layerOf.lookup(reader->getOwner()), reader->getOperandNumber());
  };
  auto resultOf = [&](OpResult maker) { return Place(layerOf.lookup(maker.getOwner()), maker.getResultNumber()); };
  // An argument takes slices apart along one dimension; the result must be put together so.
  auto dimOf = [&](OpOperand *reader) -> std::optional<int64_t> {
    func::FuncOp layer = layerOf.lookup(reader->getOwner());
    if (!layer || layer.isExternal())
      return std::nullopt;
    BlockArgument argument = layer.getArgument(reader->getOperandNumber());
    std::optional<int64_t> dim = SliceLayer::tokenDim(layer, argument);
    bool alreadyStandsSo = dim && isLeading(typeOf(argument), *dim);
    return alreadyStandsSo ? std::nullopt : dim;
  };
  std::vector<std::optional<int64_t>> dims; // of flows that stand slice after slice
  for (const Flow &flow : flows) {
    std::optional<int64_t> dim;
    if (flow.certain && !flow.readers.empty())
      dim = dimOf(flow.readers.front());
    Attribute slices = dim ? slicesOf(layerOf.lookup(flow.readers.front()->getOwner())) : Attribute();
    auto cutsSo = [&](Operation *call) {
      func::FuncOp layer = layerOf.lookup(call);
      return layer && slicesOf(layer) == slices;
    };
    bool good = dim && llvm::all_of(flow.makers, [&](OpResult maker) { return cutsSo(maker.getOwner()); }) &&
                llvm::all_of(flow.readers,
                             [&](OpOperand *reader) { return cutsSo(reader->getOwner()) && dimOf(reader) == dim; });
    dims.push_back(good ? dim : std::nullopt);
  }
  for (bool changed = true; changed;) {
    changed = false;
    arguments.clear();
    results.clear();
    DenseMap<Place, int64_t> packedCalls; // of an argument
    DenseSet<Place> rows; // results that stand row after row somewhere
    for (auto [flow, dim] : llvm::zip_equal(flows, dims)) {
      for (OpResult maker : flow.makers)
        if (!dim || results.try_emplace(resultOf(maker), *dim).first->second != *dim)
          rows.insert(resultOf(maker));
      for (OpOperand *reader : flow.readers)
        if (dim) {
          arguments[placeOf(reader)] = *dim;
          ++packedCalls[placeOf(reader)];
        }
    }
    // All calls of a layer hand a packed value to a packed argument, and get one from a packed result.
    for (auto [flow, dim] : llvm::zip_equal(flows, dims)) {
      bool good = llvm::none_of(flow.makers, [&](OpResult maker) { return rows.contains(resultOf(maker)); }) &&
                  llvm::all_of(flow.readers, [&](OpOperand *reader) {
                    return packedCalls.lookup(placeOf(reader)) == calls.lookup(placeOf(reader));
                  });
      if (dim && !good) {
        dim = std::nullopt;
        changed = true;
      }
    }
  }
}
