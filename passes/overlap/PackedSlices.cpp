//===- PackedSlices.cpp - values between sliced layers that stand slice after slice -------------------------------===//
// Whoever makes such a value and whoever reads it must agree, so all calls of all layers are looked at: what is not
// certain stands row after row.
#include "passes/overlap/PackedSlices.h"

#include "passes/analysis/Tensors.h"
#include "passes/analysis/Views.h"
#include "passes/overlap/SliceLayer.h"

#include "mlir/IR/SymbolTable.h"

using namespace mlir;
using namespace braid;

namespace {

/// An operand of a call: of which layer, which argument.
struct Reader {
  func::CallOp call;
  int64_t argument;
};

/// All calls that read a value, through repeats that stack it; false where anything else does, too.
bool findReaders(Value value, SmallVectorImpl<Reader> &readers) {
  for (OpOperand &use : value.getUses()) {
    Operation *user = use.getOwner();
    auto number = static_cast<int64_t>(use.getOperandNumber());
    if (auto call = dyn_cast<func::CallOp>(user)) {
      readers.push_back({call, number});
    } else if (auto yield = dyn_cast<YieldOp>(user)) {
      auto repeat = cast<RepeatOp>(yield->getParentOp());
      if (number < static_cast<int64_t>(repeat.getCarried()) || !findReaders(repeat->getResult(number), readers))
        return false;
    } else if (auto repeat = dyn_cast<RepeatOp>(user)) {
      if (number < static_cast<int64_t>(repeat.getCarried()) ||
          !findReaders(repeat.getBody().getArgument(number), readers))
        return false;
    } else {
      return false;
    }
  }
  return true;
}

} // namespace

PackedSlices::PackedSlices(ModuleOp module) {
  SymbolTableCollection symbols;
  struct Result {
    Place place;
    SmallVector<Reader> readers;
    bool packed = true;
  };
  SmallVector<Result> made; // of all calls of layers in slices
  DenseMap<Place, int64_t> calls; // of an argument
  DenseMap<Operation *, func::FuncOp> layerOf;
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
    for (auto [i, result] : llvm::enumerate(call.getResults())) {
      Result own{{layer, static_cast<int64_t>(i)}, {}};
      own.packed = findReaders(result, own.readers);
      made.push_back(std::move(own));
    }
  });
  // An argument takes slices apart along one dimension; the result must be put together so.
  auto dimOf = [&](const Reader &reader) -> std::optional<int64_t> {
    func::FuncOp layer = layerOf.lookup(reader.call);
    if (!layer || layer.isExternal())
      return std::nullopt;
    BlockArgument argument = layer.getArgument(reader.argument);
    std::optional<int64_t> dim = SliceLayer::tokenDim(layer, argument);
    bool alreadyStandsSo = dim && isLeading(typeOf(argument), *dim);
    return alreadyStandsSo ? std::nullopt : dim;
  };
  for (bool changed = true; changed;) {
    changed = false;
    arguments.clear();
    results.clear();
    DenseMap<Place, int64_t> met; // calls of an argument with something packed
    llvm::DenseSet<Place> refused;
    for (const Result &result : made) {
      std::optional<int64_t> dim =
          results.contains(result.place) ? std::optional(results.at(result.place)) : std::nullopt;
      bool good = result.packed && !result.readers.empty();
      for (const Reader &reader : result.readers) {
        std::optional<int64_t> own = good ? dimOf(reader) : std::nullopt;
        func::FuncOp layer = layerOf.lookup(reader.call);
        good = own && (!dim || dim == own) && slicesOf(layer) == slicesOf(cast<func::FuncOp>(result.place.first));
        dim = own;
        if (!good)
          break;
      }
      if (!good) {
        refused.insert(result.place);
        continue;
      }
      results[result.place] = *dim;
      for (const Reader &reader : result.readers) {
        Place place{layerOf.lookup(reader.call), reader.argument};
        arguments[place] = *dim;
        ++met[place];
      }
    }
    // All calls of a layer hand a packed value to a packed argument, and get one from a packed result.
    for (Result &result : made) {
      bool good = !refused.contains(result.place);
      for (const Reader &reader : result.readers) {
        Place place{layerOf.lookup(reader.call), reader.argument};
        good = good && place.first && met.lookup(place) == calls.lookup(place);
      }
      if (result.packed && !good) {
        result.packed = false;
        changed = true;
      }
    }
  }
}
