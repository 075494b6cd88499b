//===- EntryBuilder.h - one entry point ---------------------------------------------------------------------------===//
#ifndef FRONTEND_ENTRYBUILDER_H
#define FRONTEND_ENTRYBUILDER_H

#include "frontend/Parameters.h"
#include "llvm/ADT/StringMap.h"

namespace braid {

/// The layers of one entry shape in the order of the plan: layers[group][run].
using LayerTable = std::vector<std::vector<Layer>>;

/// A public function under construction: named arguments in front, named results at the end.
class EntryBuilder : public FunctionBuilder {
public:
  /// `stage`: of a pipeline, whose stages have an entry of this name each.
  EntryBuilder(const ModelSpec &spec, mlir::ModuleOp module, llvm::StringRef name,
               std::optional<int64_t> stage = std::nullopt);

  /// What the host gives; `dims` say what its dimensions count.
  mlir::Value input(llvm::StringRef name, mlir::Type type, llvm::ArrayRef<Dim> dims = {},
                    llvm::StringRef role = "input");
  /// A parameter or cache as an argument; returns its value.
  mlir::Value argument(const ModelTensor &tensor, llvm::StringRef role);
  /// What the host reads.
  void output(llvm::StringRef name, mlir::Value value);
  /// What goes on to the next stage, or (kStageBroadcast) to all others: there an input of this name.
  void stageOutput(llvm::StringRef name, mlir::Value value, llvm::ArrayRef<Dim> dims,
                   llvm::StringRef role = kStageOutput);
  /// A parameter or cache as a result; `alias` is the number of the argument whose place it takes.
  void result(const ModelTensor &tensor, llvm::StringRef role, mlir::Value value, std::optional<unsigned> alias = {});
  /// Part of the optimizer's state of a parameter.
  void moment(const ModelTensor &parameter, llvm::StringRef slot, mlir::Value value);
  /// What an update reads of a parameter that no loss trains.
  void gradient(const ModelTensor &parameter, mlir::Value value);
  /// The function with all that was declared.
  mlir::func::FuncOp finish();

  /// Zeros of this type, one constant per type.
  mlir::Value zeros(mlir::RankedTensorType type);

private:
  void resultOf(const ModelTensor &parameter, const std::string &name, llvm::StringRef role, llvm::StringRef slot,
                mlir::Value value);
  llvm::SmallVector<mlir::NamedAttribute> describe(const ModelTensor &tensor, llvm::StringRef role);
  mlir::NamedAttribute dimsAttr(llvm::ArrayRef<std::string> names);

  llvm::DenseMap<mlir::Type, mlir::Value> constants;
  llvm::SmallVector<mlir::DictionaryAttr> argumentAttrs, resultAttrs;
  llvm::SmallVector<mlir::Value> results;
};

/// What flows through the layers of an entry, and what they return.
struct LayerFlow {
  mlir::Value x, documents, routerLoss; ///< routerLoss [B, T]: null where nothing is trained
  mlir::Value firstValue; ///< null where no layer has one; zeros before the first that does
  mlir::Value drawKeys; ///< [B, 3]: null where no layer draws
  mlir::Value embedding; ///< what the first layer of the model reads: null where no other reads it, too
  llvm::StringMap<mlir::Value> shared; ///< weights that several layers read
  llvm::SmallVector<mlir::Value>
      states; ///< caches, stacked, in plan order; none: states are zeros and their results unused
  llvm::SmallVector<mlir::Value> expertCounts; ///< per group with experts: [layers, E]
  llvm::SmallVector<mlir::Value> expertLoads; ///< the same counts, of each run with experts, stacked as its weights
  llvm::SmallVector<mlir::Value> expertDropped; ///< the same where any layer has a capacity
};

/// Calls all layers: groups and runs as braid.repeat over stacked weights. `weights` in plan order, without shared ones.
void emitLayers(EntryBuilder &entry, const std::vector<LayerGroup> &plan, const LayerTable &layers,
                mlir::ValueRange weights, LayerFlow &flow);

} // namespace braid

#endif // FRONTEND_ENTRYBUILDER_H
