//===- BraidDialect.h - the model dialect: see BraidDialect.td ----------------------------------------------------===//
#ifndef DIALECTS_BRAID_BRAIDDIALECT_H
#define DIALECTS_BRAID_BRAIDDIALECT_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace braid {

/// How an op sees one of its values with respect to tokens; see Braid_TokenOpInterface.
enum class TokenKind { token, state, whole, rows, piece };

/// Trait of all model ops: operands and results have static shapes.
mlir::LogicalResult verifyStaticShapes(mlir::Operation *op);
template <typename Op> class StaticShapes : public mlir::OpTrait::TraitBase<Op, StaticShapes> {
public:
  static mlir::LogicalResult verifyTrait(mlir::Operation *op) { return verifyStaticShapes(op); }
};

class GradientContext;
class TileEmitter;

/// Kind of operand `i` of the row-wise op called `op` ("braid.rms_norm").
TokenKind rowsOperandKind(llvm::StringRef op, unsigned i);

/// Attributes of an entry function's arguments and results: what the value is called outside and who owns it.
///   braid.name    "layers.{}.lsm.wq", "tokens", ..   ({} = absolute layer index, for values stacked over layers)
///   braid.role    "parameter" "moment" "gradient" "input" "output" "cache"; up to `sharded`, of a stage of a pipeline also what
///                 comes from the stage before ("stage_input") and goes to the one behind ("stage_output"), by name, and
///                 "stage_cotangent": of these an argument, of those a result
///   braid.layers  array<i32>: the layer indices of a stacked value, in buffer order
///   braid.of      moment, gradient: name of its parameter;   braid.slot   moment: "first", "second" or "low"
///   braid.decay   parameter: bool, weight decay applies;     braid.trained  parameter: bool, false = constant
///   braid.rate_scale  parameter: f64, its learning rate is this times the step's (1 when absent)
///   braid.correction_rate  untrained parameter whose gradient the entry returns (role "gradient"): the load of experts, by
///                 which braid.moe.correct changes it at every update
///   braid.dims    one text per dimension (without the layer dimension): what it counts, whatever the mesh: "embed",
///                 "experts", or "heads*16": heads of 16 elements each;  ShardingRules.h and passes/shard use them
///   braid.shards  array of [dim, axis] (dims without the layer dimension), from `sharded` on
///   braid.alias   result: index of the argument whose buffer it is written to
/// An entry function is public and carries the unit attribute braid.entry. Entries of a stage of a pipeline (mesh axis pp) also
/// have braid.stage, the number of their stage, which their names end with (stagedName); braid.micro_batches, up to
/// `sharded`: it is one micro-batch of a step, which has as many, in the order braid.stage_order of kStageOrders (absent: the first).
namespace attrs {
inline constexpr llvm::StringLiteral name = "braid.name", role = "braid.role", layers = "braid.layers", of = "braid.of",
                                     slot = "braid.slot", decay = "braid.decay", trained = "braid.trained",
                                     rateScale = "braid.rate_scale", correctionRate = "braid.correction_rate",
                                     shards = "braid.shards", dims = "braid.dims", alias = "braid.alias",
                                     entry = "braid.entry", phase = "braid.phase", mesh = "braid.mesh",
                                     schedule = "braid.schedule", overlapDegree = "braid.overlap_degree",
                                     metadata = "braid.metadata", maxDocuments = "braid.max_documents",
                                     spAlgorithm = "braid.sp_algorithm", expertRoom = "braid.expert_room",
                                     stage = "braid.stage", microBatches = "braid.micro_batches",
                                     stageOrder = "braid.stage_order";
} // namespace attrs

/// Orders of micro-batches on a stage: one forward, one backward; the same, with gradients of weights behind the cotangent
/// that the stage before waits for.
inline constexpr llvm::StringLiteral kOrder1F1B = "1F1B", kOrderZeroBubble = "ZB-H1",
                                     kStageOrders[] = {kOrder1F1B, kOrderZeroBubble};

/// Turns, a forward and a backward each, by which a micro-batch comes back later where all stages have words of the head: one for
/// each of the two exchanges about its logits (the two barriers of Yeung et al. 2024, "Balancing Pipeline Parallelism with
/// Vocabulary Parallelism").
inline constexpr int64_t kHeadDelay = 2;

/// What boundaries of stages are called in braid.role; stage_broadcast: what the last one hands to all others, result
/// there, argument here.
inline constexpr llvm::StringLiteral kStageInput = "stage_input", kStageOutput = "stage_output",
                                     kStageCotangent = "stage_cotangent", kStageBroadcast = "stage_broadcast";

/// The number of an entry's stage; absent: there are no stages.
std::optional<int64_t> stageOf(mlir::Operation *entry);
/// Whether all stages have words of the head, of which this one is: what they read is broadcast.
bool dividesHead(mlir::func::FuncOp entry);
/// Whether its stage sends cotangents on before it computes gradients of weights.
bool isZeroBubble(mlir::Operation *entry);
/// What a name that each stage has once is called where all are in one module: "train_step.stage1".
std::string stagedName(llvm::StringRef name, std::optional<int64_t> stage);
/// The name without its stage.
llvm::StringRef unstagedName(llvm::StringRef name, std::optional<int64_t> stage);
/// Axis of the ranks of two stages that agree in all else: "pp[0,1]".
std::string stagePair(int64_t first, int64_t second);

} // namespace braid

#include "dialects/braid/BraidDialect.h.inc"
#include "dialects/braid/BraidEnums.h.inc"
#define GET_TYPEDEF_CLASSES
#include "dialects/braid/BraidOpInterfaces.h.inc"
#include "dialects/braid/BraidTypes.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/StructureOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/RowsOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/LinearOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/LsmOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/AttnOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/MoeOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/CommOps.h.inc"
#define GET_OP_CLASSES
#include "dialects/braid/TrainOps.h.inc"

#endif // DIALECTS_BRAID_BRAIDDIALECT_H
