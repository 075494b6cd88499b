//===- Sharder.h - rewrites functions from logical to local tensors -----------------------------------------------===//
// Walks a function in program order with the placement of every local value at hand. An op's rule (ShardingRules.h)
// says which dimensions are the same index; operands are put where that needs them, results follow. Ops that need more
// than their rule have functions of their own: Experts.cpp (moe.*), Vocabulary.cpp (embedding and loss), Optimizer.cpp.
#ifndef PASSES_SHARD_SHARDER_H
#define PASSES_SHARD_SHARDER_H

#include "dialects/braid/ShardingRules.h"
#include "passes/shard/FunctionRewriter.h"
#include "passes/shard/Placement.h"
#include "passes/shard/Sequence.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace braid {

class Sharder : public FunctionRewriter {
public:
  /// `sliced`: tokens will be cut into slices.
  Sharder(mlir::ModuleOp module, const Mesh &mesh, bool sliced, SpAlgorithm spAlgorithm)
      : FunctionRewriter(module), mesh(mesh), sliced(sliced), spAlgorithm(spAlgorithm), sequenceFacts(module) {
    if (auto room = module->getAttrOfType<mlir::FloatAttr>(attrs::expertRoom))
      expertRoom = room.getValueAsDouble();
  }

  llvm::LogicalResult shardEntry(mlir::func::FuncOp entry);
  llvm::LogicalResult shardInit(mlir::func::FuncOp entry);

protected:
  llvm::LogicalResult rewriteOp(mlir::Operation &op, mlir::IRMapping &map, mlir::OpBuilder &builder) override;
  llvm::LogicalResult beforeReturn(mlir::func::FuncOp entry, mlir::IRMapping &map, mlir::OpBuilder &builder) override;
  mlir::Value callOperand(mlir::func::FuncOp callee, mlir::BlockArgument argument, mlir::Value mapped) override;
  std::string signature(mlir::ValueRange operands) override;
  void beginFunction(mlir::Block &body, mlir::ValueRange operands) override;
  void endFunction(mlir::func::FuncOp function) override;
  void extraOperands(mlir::func::FuncOp target, llvm::SmallVectorImpl<mlir::Value> &operands) override;
  void called(mlir::func::FuncOp target, mlir::func::CallOp call) override;
  void beginBody(mlir::Block &body, mlir::ValueRange inputs, int64_t carried) override;
  mlir::Value carriedYield(mlir::OpBuilder &builder, mlir::Value value, mlir::Value argument) override;
  mlir::Value adaptInput(mlir::OpBuilder &builder, mlir::Value input, mlir::Value yielded) override;
  void repeated(RepeatOp rebuilt) override;

private:
  // ---- placements of local values (Sharder.cpp)
  Placement placementOf(mlir::Value local) const;
  void place(mlir::Value local, Placement placement) { placements[local] = std::move(placement); }
  int64_t parts(llvm::ArrayRef<llvm::StringRef> axes) const { return partsOf(mesh, axes); }
  /// Those of size > 1.
  Axes present(llvm::ArrayRef<llvm::StringRef> axes) const;
  /// The axes that cut batch and sequence: what sums over tokens are pending over.
  Axes tokenAxes() const { return present({"dp", "sp"}); }
  /// `local` where `to` says. Null after an error, which names `op` (and the value's dimension that cannot be cut).
  mlir::Value convert(mlir::OpBuilder &builder, mlir::Operation *op, mlir::Value local, const Placement &to);
  /// The mapped operand with nothing pending; later users of the operand find it complete.
  mlir::Value complete(mlir::OpBuilder &builder, mlir::Operation *op, mlir::Value old, mlir::IRMapping &map);
  mlir::Value collective(mlir::OpBuilder &builder, mlir::Value x, llvm::ArrayRef<llvm::StringRef> axes,
                         CollectiveKind kind, int64_t dim = 0);
  /// The rank's place on a product of axes, as a value of the current function: [1] i32.
  mlir::Value coordinate(llvm::ArrayRef<llvm::StringRef> axes);

  // ---- ops
  llvm::LogicalResult rewriteOne(mlir::Operation &op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteGeneric(mlir::Operation &op, mlir::IRMapping &map, mlir::OpBuilder &builder,
                                     const ShardingRule &rule);
  /// An op whose sequence index is cut by these axes, with local operands: Sequence.h builds it.
  llvm::FailureOr<llvm::SmallVector<mlir::Value>> rewriteSequence(mlir::Operation &op, mlir::ValueRange operands,
                                                                  const Axes &cut, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteConstant(mlir::arith::ConstantOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteReshape(ReshapeOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteAdd(AddOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteGradData(LinearGradDataOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);

  // ---- experts (Experts.cpp)
  enum class Exchange { none, travel, replicated };
  Exchange exchangeOf(const Placement &tokens) const;
  /// Ranks of an etp group have different tokens.
  bool sharesRows() const { return mesh.size("etp") > 1 && mesh.size("etp") != mesh.size("tp"); }
  /// What gradients of experts are pending over, and their optimizer states cut by.
  Axes expertAxes() const;
  Axes expertSums(const Placement &rows, const Placement &tokens) const;
  struct Packed {
    mlir::Value sendCounts, recvCounts, perm, inverse;
  };
  Packed unpack(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value packed);
  mlir::Value travel(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value rows, mlir::Value sendCounts,
                     mlir::Value recvCounts, llvm::StringRef label);
  mlir::Value toExperts(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value rows, const Packed &e,
                        llvm::StringRef label);
  mlir::Value toTokens(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value rows, const Packed &e,
                       llvm::StringRef label);
  llvm::LogicalResult checkExperts(mlir::Operation *op, int64_t experts);
  llvm::LogicalResult rewritePlan(MoePlanOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteDispatch(MoeDispatchOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteCombine(MoeCombineOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteRowWeights(MoeRowWeightsOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteRowWeightsGrad(MoeRowWeightsGradOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteCombineGrad(MoeCombineGradOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteGroupBias(MoeGroupBiasOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);

  // ---- vocabulary (Vocabulary.cpp)
  llvm::LogicalResult rewriteEmbed(EmbedOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteEmbedGrad(EmbedGradOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteLoss(LinearCrossEntropyOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteLossGrad(LinearCrossEntropyGradOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult rewriteScores(LinearScoresOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  /// A number of each token [B, T] of every part of the words: [B, T, parts].
  mlir::Value gatherParts(mlir::OpBuilder &builder, mlir::Value perToken, const Axes &cut);
  /// lse of the whole vocabulary and the sum over tokens of the losses, from the parts of all ranks; of stages that share
  /// the words this one's part of that sum.
  std::pair<mlir::Value, mlir::Value> joinLoss(mlir::OpBuilder &builder, mlir::Operation *op, mlir::Value x,
                                               mlir::Value weight, mlir::Value labels, mlir::UnitAttr transposed,
                                               mlir::FloatAttr softcap, Axes cut, mlir::Type sum);

  // ---- optimizer (Optimizer.cpp)
  llvm::LogicalResult rewriteSumSquares(SumSquaresOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult reduceTogether(SumSquaresOp op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  llvm::LogicalResult reduceHere(mlir::Operation &op, mlir::IRMapping &map, mlir::OpBuilder &builder);
  void collectReduced(mlir::func::FuncOp entry);
  void cutState(Placement &placement, mlir::RankedTensorType type, int64_t stackedDims,
                llvm::ArrayRef<llvm::StringRef> axes);

  // ---- entries (ApplySharding.cpp)
  /// Where an argument or result of an entry is; failure says which dimension cannot be cut.
  llvm::FailureOr<Placement> argumentPlacement(mlir::func::FuncOp entry, bool isResult, unsigned i);
  mlir::ArrayAttr shardsAttr(const Placement &placement, int64_t stackedDims);
  void collectWanted(mlir::func::FuncOp entry);
  /// What the gradient of a parameter with these dimensions is pending over between two steps that accumulate it.
  Axes gradientSums(mlir::ArrayAttr dims) const;

  const Mesh mesh;
  bool sliced;
  SpAlgorithm spAlgorithm;
  std::optional<double> expertRoom; ///< of rows from each other rank, in even shares; none: for all there may be
  SequenceFacts sequenceFacts;
  llvm::DenseMap<mlir::Value, Placement> placements;
  std::vector<Placement> entryArguments; ///< of the entry that is being rewritten
  bool sharesTokens = true; ///< in that entry the ranks of sp have a part of each row
  bool slicesRows = false; ///< and of each slice of it: ops that cross tokens get their exchange when these exist
  llvm::DenseMap<mlir::Value, Placement> wanted; ///< logical gradients -> where their parameters are
  llvm::DenseMap<mlir::Value, Placement> reduced; ///< logical gradients that are completed where they are made
  int64_t numExperts = 0;

  /// What a rebuilt function adds to the logical one.
  struct Scope {
    mlir::Block *body;
    llvm::SmallVector<std::pair<std::string, mlir::Value>> coordinates; ///< by name of the axes: arguments at the end
  };
  llvm::SmallVector<Scope> scopes;
  struct Signature {
    llvm::SmallVector<std::string> coordinates;
    std::vector<Placement> results;
  };
  llvm::DenseMap<mlir::Operation *, Signature> signatures;
  /// Conversions of the blocks that are being built.
  std::map<std::tuple<void *, void *, std::string>, mlir::Value> conversions;
};

} // namespace braid

#endif // PASSES_SHARD_SHARDER_H
