//===- ChunkCosts.cpp - kernels of one chunk, lowered and counted -------------------------------------------------===//
#include "passes/chunk/ChunkCosts.h"

#include "passes/analysis/StateWalk.h"

#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/PassAttributes.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "passes/lower/KernelSignature.h"
#include "passes/lower/LoopWork.h"
#include "passes/lower/LowerKernels.h"
#include "passes/outline/LsmChunk.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace braid;

/// Tokens and states come from memory, or from a cache that all cores share: a core or a multiprocessor has as many
/// bytes of it a cycle.
static constexpr double bytesPerCycle = 12.5;

std::string KernelTarget::describe() const {
  if (sharedBytes)
    return llvm::formatv("a GPU with {0} bytes of shared memory in a block", sharedBytes);
  return llvm::formatv("a CPU with vectors of {0} bytes{1}", vectorBytes,
                       bf16Dots ? " and products of bf16 pairs" : "");
}

namespace {

/// A block that has a multiprocessor for itself waits for what it loads with nothing beside it. On an H200 outputs of S took 19 us for 128 tokens by such a
/// block, and 15 by two of 64 tokens beside each other.
constexpr double kAlone = 1.3;

/// One launch of a chunk's kernels.
struct Launch {
  StringRef kernel;
  double programs = 1; ///< for one chunk
  double bytes = 0;
  bool walksTokens = true; ///< a loop of unknown length is over the tokens of a chunk; else over chunks
};

/// What holds states: [B, H, ..] or [1, B, H, ..].
bool isState(Operation *op, Value value) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](LsmScanOp scan) { return value == scan.getInitialState() || value == scan.getFinalState(); })
      .Case([&](LsmScanGradOp grad) {
        return llvm::is_contained({grad.getInitialState(), grad.getDfinalState(), grad.getDinitialState()}, value);
      })
      .Case([&](LsmSegmentOp segment) { return llvm::is_contained(segment.getResults(), value); })
      .Case([&](LsmSegmentGradOp grad) { return value == grad.getDx(); });
}

/// For one row, one chunk of tokens and one head.
Type ofOneChunk(Operation *op, Value value, int64_t size) {
  auto type = cast<RankedTensorType>(value.getType());
  SmallVector<int64_t> shape(type.getShape());
  bool segment = isa<LsmSegmentOp, LsmSegmentGradOp>(op);
  if (shape.size() == 1) { // a decay per head
    shape[0] = 1;
  } else if (isState(op, value)) {
    shape[segment] = shape[segment + 1] = 1;
  } else {
    shape[0] = 1;
    shape[1] = size;
    if (shape.size() > 2)
      shape[2] = 1;
  }
  return type.clone(shape);
}

/// Whether states of these chunks are added up in one walk: a row of one chunk, as here, has nothing to walk over.
bool areWalked(ArrayRef<Operation *> ops, int64_t size) {
  return llvm::any_of(ops, [&](Operation *op) {
    auto walks = [&](auto scan) {
      Type gate = scan.getLogDecay() ? getElementTypeOrSelf(scan.getLogDecay().getType()) : Type();
      return gate && getElementTypeOrSelf(scan.getK().getType()).isBF16() &&
             walksStates(ScanSizes::of(scan, size), gate, scan);
    };
    return llvm::TypeSwitch<Operation *, bool>(op).Case<LsmScanOp, LsmScanGradOp>(walks).Default(false);
  });
}

/// A module with a function that consists of these ops for one chunk.
OwningOpRef<ModuleOp> moduleOf(ArrayRef<Operation *> ops, ChunkSizes sizes) {
  Location loc = ops.front()->getLoc();
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  OpBuilder builder = OpBuilder::atBlockEnd(module->getBody());
  auto function = func::FuncOp::create(builder, loc, "chunk", builder.getFunctionType({}, {}));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToStart(body);
  IRMapping arguments; // what two ops read is one argument
  SmallVector<Value> results;
  for (Operation *op : ops) {
    SmallVector<Value> operands;
    for (Value operand : op->getOperands()) {
      if (!arguments.contains(operand))
        arguments.map(operand, body->addArgument(ofOneChunk(op, operand, sizes.tokens), loc));
      operands.push_back(arguments.lookup(operand));
    }
    SmallVector<Type> types =
        llvm::map_to_vector(op->getResults(), [&](Value result) { return ofOneChunk(op, result, sizes.tokens); });
    Operation *copy = builder.clone(*op);
    copy->setOperands(operands);
    for (auto [result, type] : llvm::zip_equal(copy->getResults(), types))
      result.setType(type);
    copy->setAttr("chunk_size", builder.getI64IntegerAttr(sizes.tokens));
    copy->setAttr(attrs::scoreRows, builder.getI64IntegerAttr(sizes.scoreRows));
    llvm::append_range(results, copy->getResults());
  }
  func::ReturnOp::create(builder, loc, results);
  function.setFunctionType(builder.getFunctionType(body->getArgumentTypes(), ValueRange(results).getTypes()));
  return module;
}

/// Where one walk adds up the states of chunks nobody scans them in memory: they are there for who reads them.
void giveStates(func::FuncOp function) {
  Block &body = function.front();
  for (Operation &op : llvm::make_early_inc_range(body))
    if (isa<LsmStateScanOp, LsmStateScanGradOp>(op)) {
      for (Value result : op.getResults())
        result.replaceAllUsesWith(body.addArgument(result.getType(), op.getLoc()));
      op.erase();
    }
  function.setFunctionType(
      FunctionType::get(function.getContext(), body.getArgumentTypes(), function.getFunctionType().getResults()));
}

/// Bytes of the tokens and per-chunk tensors of a launch. The table has one row more than there are chunks here; what a
/// whole row reads and writes once, its states before and behind all chunks, is no chunk's.
/// `walked`: what the f32 states of a launch are where one walk adds them up (lsm.state_walk): in-states in bf16.
double bytesOf(tile::LaunchOp launch, int64_t size, bool walked) {
  double bytes = 0;
  for (Value value : llvm::concat<Value>(launch.getInputs(), launch.getOutputs())) {
    auto type = cast<RankedTensorType>(value.getType());
    if (type.getRank() < 3 || type.getElementType().isInteger() || type.getDimSize(1) == 1)
      continue;
    int64_t rows = type.getDimSize(1) == size ? 1 : type.getDimSize(1);
    unsigned bits = walked && type.getRank() == 5 && type.getElementType().isF32() ? 16 : type.getElementTypeBitWidth();
    bytes += static_cast<double>(type.getNumElements()) / static_cast<double>(rows) * bits / 8;
  }
  return bytes;
}

} // namespace

std::optional<ChunkCycles> braid::chunkCycles(ArrayRef<Operation *> ops, ChunkSizes sizes, const KernelTarget &target,
                                              std::string &failure) {
  MLIRContext *context = ops.front()->getContext();
  ScopedDiagnosticHandler quiet(context, [&](Diagnostic &diagnostic) {
    std::string message = diagnostic.str();
    bool tooLarge = StringRef(message).starts_with(kTilesDoNotFit);
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error && failure.empty() && !tooLarge)
      failure = message;
    return success();
  });
  OwningOpRef<ModuleOp> module = moduleOf(ops, sizes);
  PassManager tiling(context), outlining(context);
  for (PassManager *passes : {&tiling, &outlining})
    passes->enableVerifier(false);
  tiling.addPass(createChunkTilingPass({.gpu = target.sharedBytes > 0}));
  tiling.addPass(createCSEPass());
  outlining.addPass(createOutlinePass({.gpu = target.sharedBytes > 0}));
  if (failed(tiling.run(*module)))
    return {};
  bool walked = target.sharedBytes && areWalked(ops, sizes.tokens);
  auto function = module->lookupSymbol<func::FuncOp>("chunk");
  if (walked)
    giveStates(function);
  if (failed(outlining.run(*module)))
    return {};
  ChunkCycles cycles;
  SmallVector<Launch> launches;
  for (auto op : function.getOps<tile::LaunchOp>()) {
    auto kernel = module->lookupSymbol<func::FuncOp>(op.getKernel());
    noteInPlace(op, kernel);
    auto axes = kernel->getAttrOfType<ArrayAttr>(tile::kGridAttr).getAsValueRange<StringAttr>();
    Launch launch{kernel.getName(), 1, bytesOf(op, sizes.tokens, walked), llvm::is_contained(axes, "chunk")};
    for (auto [axis, extent] : llvm::zip_equal(axes, op.getGrid()))
      launch.programs *= axis == "chunk" ? 1 : static_cast<double>(extent);
    launches.push_back(launch);
  }
  function.erase();
  if (failed(target.sharedBytes ? lowerTilesToThreads(*module, {target.sharedBytes})
                                : lowerTilesToLoops(*module, target.vectorBytes, target.bf16Dots)))
    return {};
  for (const Launch &launch : launches) {
    auto kernel = module->lookupSymbol<func::FuncOp>(launch.kernel);
    auto threads = kernel->getAttrOfType<IntegerAttr>(kThreadsAttr);
    if (auto scratch = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr); scratch && scratch.getInt() > 0)
      return {};
    IssueRates rates = threads ? IssueRates::block(threads.getInt()) : IssueRates::core();
    auto shared = kernel->getAttrOfType<IntegerAttr>(kSharedBytesAttr);
    double waits = shared && 2 * shared.getInt() > target.sharedBytes ? kAlone : 1;
    // Where the loop is over chunks, one more of them; what stands around it is the row's.
    for (auto [sum, strong] : {std::pair(&cycles.mild, false), {&cycles.strong, true}}) {
      auto trips = [&](double unknown) { return programCycles(kernel, rates, unknown, strong); };
      double program = launch.walksTokens ? trips(static_cast<double>(sizes.tokens)) : trips(2) - trips(1);
      *sum += waits * (launch.bytes / bytesPerCycle + launch.programs * program);
    }
  }
  return cycles;
}

ChunkCycles ChunkCosts::ofChunk(ChunkSizes sizes) {
  auto [it, isNew] = known.try_emplace(sizes);
  if (isNew) {
    constexpr double none = std::numeric_limits<double>::infinity();
    std::string failure;
    for (const auto &[function, inside] : ops) {
      ChunkCycles cycles = chunkCycles(inside, sizes, target, failure).value_or(ChunkCycles{none, none});
      it->second.mild += cycles.mild;
      it->second.strong += cycles.strong;
    }
    if (!failure.empty())
      failures[sizes.tokens] = failure;
  }
  return it->second;
}

/// What a larger size must save: cycles are counted without misses of the first-level cache, where tiles of a larger
/// chunk take more room (test/benchmark/results/README.md, "Every class by itself").
static constexpr double kWorthLarger = 0.99;
/// What fewer rows of score tiles must save: short loops are counted as if they filled the pipelines as long ones do.
static constexpr double kWorthFewerRows = 1.02;

size_t braid::cheapestSize(ArrayRef<int64_t> sizes, llvm::function_ref<double(int64_t)> cost,
                           llvm::function_ref<bool(int64_t)> hasNoKernels) {
  std::optional<size_t> best;
  double least = std::numeric_limits<double>::infinity();
  for (auto [i, size] : llvm::enumerate(sizes)) {
    double now = cost(size);
    if (std::isinf(now)) {
      if (!hasNoKernels(size))
        break;
    } else if (now < kWorthLarger * least) {
      best = i;
      least = now;
    } else {
      break;
    }
  }
  return best.value_or(0);
}

ChunkCosts::Choice ChunkCosts::choose(int64_t tokens) {
  int64_t row = static_cast<int64_t>(llvm::alignTo(tokens, least));
  SmallVector<int64_t> sizes;
  for (int64_t size = least; size < std::min(row, most + 1); size *= 2)
    sizes.push_back(size);
  if (row <= most)
    sizes.push_back(row);
  if (sizes.size() == 1)
    return {.size = sizes.front()};
  Choice choice;
  auto cost = [&](int64_t size) {
    return choice.perToken[size] = static_cast<double>(llvm::divideCeil(tokens, size)) *
                                   ofChunk({size, kScoreRows}).mild / static_cast<double>(tokens);
  };
  size_t at = cheapestSize(sizes, cost, [&](int64_t size) { return !failure(size).empty(); });
  // The whole row has one chunk and no padding, so it is no neighbour of the others.
  if (row <= most && at + 1 < sizes.size() && cost(row) < choice.perToken[sizes[at]])
    at = sizes.size() - 1;
  choice.size = sizes[at];
  return choice;
}

void ChunkCosts::chooseScoreRows(Choice &choice) {
  double least = std::numeric_limits<double>::infinity();
  for (int64_t rows : {8, 16, 32}) {
    if (choice.size % rows != 0)
      continue;
    double cycles = ofChunk({choice.size, rows}).strong / static_cast<double>(choice.size);
    choice.strongPerToken[rows] = cycles;
    if (cycles < kWorthFewerRows * least)
      choice.scoreRows = rows;
    least = std::min(least, cycles);
  }
}
