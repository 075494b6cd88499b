//===- SplitBackward.cpp - a backward in two: cotangents, then gradients of weights -------------------------------===//
// Zero-bubble pipelines (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 2) send the cotangent on before they
// compute gradients of weights. Those are products that nothing but sums of gradients waits for: they, and what only they
// need or lead to, become ops of their own, through calls and repeats. What both halves read goes from one to the other.
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "passes/Passes.h"
#include "passes/analysis/Tensors.h"
#include "passes/analysis/Views.h"
#include "passes/lower/PrepareBuffers.h"

#include "dialects/cmd/CmdDialect.h"

using namespace mlir;

namespace braid {
#define GEN_PASS_DEF_SPLITBACKWARDPASS
#include "passes/Passes.h.inc"

namespace {

bool isFuture(Value value) { return isa<FutureType>(value.getType()); }

/// The ops of a block that can wait, in their order.
using LateOps = llvm::SetVector<Operation *>;

/// A layer function that was split: the half that is called in its place, and the one that can be called later.
struct Halves {
  func::FuncOp early, late; ///< null: nothing of it can wait
  SmallVector<std::pair<bool, unsigned>> results; ///< of the whole: whether late, and which of that half
  SmallVector<unsigned> arguments; ///< of the whole, that the late half takes
  unsigned crossing = 0; ///< results of the early half, behind the others, that the late half takes behind those
};

class Splitter {
public:
  explicit Splitter(ModuleOp module) : symbols(module) {}

  /// Splits calls and repeats of a block. `urgent`: operands of its terminator that nothing may make wait.
  /// Returns what can wait.
  LateOps split(Block &block, const llvm::SmallDenseSet<unsigned> &urgent) {
    LateOps late;
    for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
      if (late.contains(&op))
        continue; // waits for one that does
      if (isa<LinearGradWeightOp, MoeGroupedLinearGradWeightOp>(op))
        takeWithUsers(&op, urgent, late);
      else if (auto call = dyn_cast<func::CallOp>(op))
        splitCall(call, urgent, late);
      else if (auto repeat = dyn_cast<RepeatOp>(op))
        splitRepeat(repeat, urgent, late);
    }
    return late;
  }

  void eraseUnused() {
    for (Operation *function : replaced)
      if (SymbolTable::symbolKnownUseEmpty(function, symbols.getOp()))
        symbols.erase(function);
  }

private:
  //===- What can wait --------------------------------------------------------------------------------------------===//

  /// All ops of its block that wait for this value; none: something urgent does.
  static std::optional<LateOps> usersOf(Value value, const llvm::SmallDenseSet<unsigned> &urgent) {
    LateOps users;
    SmallVector<Value> open = {value};
    while (!open.empty())
      for (OpOperand &use : open.pop_back_val().getUses()) {
        Operation *user = value.getParentBlock()->findAncestorOpInBlock(*use.getOwner());
        if (user->hasTrait<OpTrait::IsTerminator>()) {
          if (urgent.contains(use.getOperandNumber()))
            return std::nullopt;
        } else if (users.insert(user)) {
          open.append(user->getResults().begin(), user->getResults().end());
        }
      }
    return users;
  }

  static void takeWithUsers(Operation *op, const llvm::SmallDenseSet<unsigned> &urgent, LateOps &late) {
    LateOps all;
    all.insert(op);
    for (Value result : op->getResults()) {
      std::optional<LateOps> users = usersOf(result, urgent);
      if (!users)
        return;
      all.insert(users->begin(), users->end());
    }
    late.insert(all.begin(), all.end());
  }

  /// What only late ops read is made late where that keeps no more bytes than it saves; `there`: values that they have anyway.
  static void sink(Block &block, LateOps &late) {
    llvm::SmallDenseSet<Value> there;
    for (Operation *op : late)
      there.insert(op->operand_begin(), op->operand_end());
    for (Operation &op : llvm::reverse(block.without_terminator())) {
      if (late.contains(&op) || op.getNumRegions() || !isMemoryEffectFree(&op) || op.getNumResults() == 0 ||
          !llvm::all_of(op.getUsers(), [&](Operation *user) { return late.contains(user); }))
        continue;
      int64_t kept = 0, saved = 0;
      for (Value operand : op.getOperands())
        if (operand.getDefiningOp() && !there.contains(operand))
          kept += extentBytes(operand);
      for (Value result : op.getResults())
        if (!result.use_empty())
          saved += extentBytes(result);
      if (kept > saved)
        continue;
      late.insert(&op);
      there.insert(op.operand_begin(), op.operand_end());
    }
  }

  /// In the order of the block.
  static SmallVector<Operation *> inOrder(Block &block, const LateOps &late) {
    SmallVector<Operation *> ops;
    for (Operation &op : block.without_terminator())
      if (late.contains(&op))
        ops.push_back(&op);
    return ops;
  }

  /// Values that late ops read and do not make: arguments of the block, and what early ops make.
  static void readBy(Block &block, ArrayRef<Operation *> ops, llvm::SetVector<Value> &arguments,
                     llvm::SetVector<Value> &made) {
    DenseSet<Operation *> own(ops.begin(), ops.end());
    for (Operation *op : ops)
      op->walk([&](Operation *inner) {
        for (Value operand : inner->getOperands()) {
          Operation *def = operand.getDefiningOp();
          if (operand.getParentBlock() != &block || (def && own.contains(def)))
            continue;
          (def ? made : arguments).insert(operand);
        }
      });
  }

  /// Whether some future would begin in one half and end in the other.
  static bool cutsFutures(Block &block, const LateOps &late) {
    return llvm::any_of(block, [&](Operation &op) {
      return llvm::any_of(op.getOperands(), [&](Value operand) {
        return isFuture(operand) && operand.getDefiningOp() &&
               late.contains(&op) != late.contains(operand.getDefiningOp());
      });
    });
  }

  //===- Functions ------------------------------------------------------------------------------------------------===//

  /// `urgent`: results of the function that cannot wait, at the calls at hand.
  Halves &halvesOf(func::FuncOp whole, const llvm::SmallDenseSet<unsigned> &urgent) {
    SmallVector<unsigned> key(urgent.begin(), urgent.end());
    llvm::sort(key);
    auto [place, fresh] = known.try_emplace({whole, std::vector<unsigned>(key.begin(), key.end())});
    if (fresh)
      place->second = makeHalves(whole, urgent);
    return place->second;
  }

  Halves makeHalves(func::FuncOp whole, const llvm::SmallDenseSet<unsigned> &urgent) {
    func::FuncOp early = whole.clone();
    early.setName((whole.getName() + "_data").str());
    symbols.insert(early, std::next(Block::iterator(whole)));
    Block &body = early.getBody().front();
    LateOps late = split(body, urgent);
    if (!late.empty())
      sink(body, late);
    if (late.empty() || cutsFutures(body, late)) {
      symbols.erase(early);
      return {};
    }
    SmallVector<Operation *> ops = inOrder(body, late);
    llvm::SetVector<Value> arguments, made;
    readBy(body, ops, arguments, made);

    Halves halves;
    auto lateHalf = func::FuncOp::create(whole.getLoc(), (whole.getName() + "_weight").str(),
                                         FunctionType::get(whole.getContext(), {}, {}));
    lateHalf.setPrivate();
    lateHalf->setDiscardableAttrs(whole->getDiscardableAttrDictionary());
    symbols.insert(lateHalf, std::next(Block::iterator(early)));
    Block *target = lateHalf.addEntryBlock();
    IRMapping map;
    for (Value argument : arguments) {
      halves.arguments.push_back(cast<BlockArgument>(argument).getArgNumber());
      map.map(argument, target->addArgument(argument.getType(), argument.getLoc()));
    }
    for (Value value : made)
      map.map(value, target->addArgument(value.getType(), value.getLoc()));
    OpBuilder builder = OpBuilder::atBlockEnd(target);
    for (Operation *op : ops)
      builder.clone(*op, map);

    SmallVector<Value> earlyResults, lateResults;
    for (Value result : body.getTerminator()->getOperands()) {
      bool waits = result.getDefiningOp() && late.contains(result.getDefiningOp());
      SmallVector<Value> &list = waits ? lateResults : earlyResults;
      halves.results.push_back({waits, list.size()});
      list.push_back(waits ? map.lookup(result) : result);
    }
    earlyResults.append(made.begin(), made.end());
    halves.crossing = made.size();
    func::ReturnOp::create(builder, whole.getLoc(), lateResults);
    lateHalf.setFunctionType(builder.getFunctionType(target->getArgumentTypes(), ValueRange(lateResults).getTypes()));
    body.getTerminator()->setOperands(earlyResults);
    for (Operation *op : llvm::reverse(ops))
      op->erase();
    early.setFunctionType(builder.getFunctionType(body.getArgumentTypes(), ValueRange(earlyResults).getTypes()));
    early.removeResAttrsAttr();
    halves.early = early;
    halves.late = lateHalf;
    return halves;
  }

  void splitCall(func::CallOp call, const llvm::SmallDenseSet<unsigned> &urgent, LateOps &late) {
    auto whole = symbols.lookup<func::FuncOp>(call.getCallee());
    if (!whole || whole.isExternal())
      return;
    llvm::SmallDenseSet<unsigned> atOnce;
    for (OpResult result : call.getResults())
      if (!usersOf(result, urgent))
        atOnce.insert(result.getResultNumber());
    Halves &halves = halvesOf(whole, atOnce);
    if (!halves.early)
      return;
    OpBuilder builder(call);
    auto first = func::CallOp::create(builder, call.getLoc(), halves.early, call.getOperands());
    SmallVector<Value> operands;
    for (unsigned argument : halves.arguments)
      operands.push_back(call.getOperand(argument));
    llvm::append_range(operands, first.getResults().take_back(halves.crossing));
    auto second = func::CallOp::create(builder, call.getLoc(), halves.late, operands);
    // The second takes no weights, which say whose layer it is.
    Attribute layers = layersOfCall(call);
    for (func::CallOp half : {first, second}) {
      half->setDiscardableAttrs(call->getDiscardableAttrDictionary());
      if (layers)
        half->setAttr(cmd::kLayersAttr, layers);
    }
    for (auto [result, place] : llvm::zip_equal(call.getResults(), halves.results))
      result.replaceAllUsesWith((place.first ? second : first).getResult(place.second));
    replaced.insert(whole);
    call.erase();
    takeWithUsers(second, urgent, late);
  }

  //===- Repeats --------------------------------------------------------------------------------------------------===//

  void splitRepeat(RepeatOp repeat, const llvm::SmallDenseSet<unsigned> &urgent, LateOps &late) {
    Block &body = repeat.getBody().front();
    int64_t count = repeat.getCount(), carried = repeat.getCarried();
    llvm::SmallDenseSet<unsigned> atOnce;
    for (OpResult result : repeat.getResults())
      if (result.getResultNumber() < carried || !usersOf(result, urgent))
        atOnce.insert(result.getResultNumber());
    LateOps waits = split(body, atOnce);
    if (waits.empty() || cutsFutures(body, waits))
      return;
    SmallVector<Operation *> ops = inOrder(body, waits);
    llvm::SetVector<Value> arguments, made;
    readBy(body, ops, arguments, made);
    Operation *yield = body.getTerminator();

    // The second repeat reads its part of what the first one is given or makes; it carries nothing.
    SmallVector<Value> crossing(made.begin(), made.end()), stacks;
    SmallVector<BlockArgument> inner;
    Block *target = new Block;
    IRMapping map;
    for (Value value : arguments) {
      auto argument = cast<BlockArgument>(value);
      if (argument.getArgNumber() < carried) {
        crossing.push_back(argument);
        continue;
      }
      stacks.push_back(repeat.getInputs()[argument.getArgNumber()]);
      map.map(argument, target->addArgument(argument.getType(), argument.getLoc()));
    }
    for (Value value : crossing)
      map.map(value, target->addArgument(value.getType(), value.getLoc()));
    OpBuilder builder(repeat.getContext());
    builder.setInsertionPointToEnd(target);
    for (Operation *op : ops)
      builder.clone(*op, map);

    SmallVector<Value> earlyValues, lateValues;
    SmallVector<Type> earlyTypes, lateTypes;
    SmallVector<std::pair<bool, unsigned>> places;
    for (auto [value, result] : llvm::zip_equal(yield->getOperands(), repeat.getResults())) {
      bool isLate = value.getDefiningOp() && waits.contains(value.getDefiningOp());
      SmallVector<Value> &list = isLate ? lateValues : earlyValues;
      places.push_back({isLate, list.size()});
      list.push_back(isLate ? map.lookup(value) : value);
      (isLate ? lateTypes : earlyTypes).push_back(result.getType());
    }
    for (Value value : crossing) {
      earlyTypes.push_back(stackedType(count, value.getType()));
      earlyValues.push_back(value);
    }
    YieldOp::create(builder, yield->getLoc(), lateValues);
    yield->setOperands(earlyValues);
    for (Operation *op : llvm::reverse(ops))
      op->erase();

    builder.setInsertionPoint(repeat);
    auto create = [&](ArrayRef<Type> types, ValueRange inputs, int64_t carries) {
      auto half = RepeatOp::create(builder, repeat.getLoc(), types, inputs, count, carries, repeat.getReverse());
      half->setDiscardableAttrs(repeat->getDiscardableAttrDictionary());
      return half;
    };
    RepeatOp first = create(earlyTypes, repeat.getInputs(), carried);
    first.getBody().takeBody(repeat.getBody());
    llvm::append_range(stacks, first.getResults().take_back(crossing.size()));
    RepeatOp second = create(lateTypes, stacks, 0);
    second.getBody().push_back(target);
    for (auto [result, place] : llvm::zip_equal(repeat.getResults(), places))
      result.replaceAllUsesWith((place.first ? second : first).getResult(place.second));
    repeat.erase();
    takeWithUsers(second, urgent, late);
  }

  SymbolTable symbols;
  std::map<std::pair<Operation *, std::vector<unsigned>>, Halves> known; ///< by function and what is urgent of it
  llvm::SetVector<Operation *> replaced; ///< functions that were called
};

struct SplitBackwardPass : impl::SplitBackwardPassBase<SplitBackwardPass> {
  void runOnOperation() override {
    Splitter splitter(getOperation());
    for (auto function : llvm::to_vector(getOperation().getOps<func::FuncOp>())) {
      if (!isZeroBubble(function))
        continue;
      // The first stage sends no cotangent that could wait for gradients of weights.
      llvm::SmallDenseSet<unsigned> urgent;
      bool sends = false;
      for (unsigned i = 0; i < function.getNumResults(); ++i) {
        auto role = function.getResultAttrOfType<StringAttr>(i, attrs::role);
        bool cotangent = role && role.getValue() == kStageCotangent;
        sends |= cotangent;
        if (cotangent || (role && (role.getValue() == kStageOutput || role.getValue() == kStageBroadcast)))
          urgent.insert(i);
      }
      if (sends)
        (void)splitter.split(function.getBody().front(), urgent);
    }
    splitter.eraseUnused();
  }
};

} // namespace
} // namespace braid
