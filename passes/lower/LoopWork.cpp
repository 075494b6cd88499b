//===- LoopWork.cpp - operations of lowered kernels, times the trips of their loops -------------------------------===//
#include "passes/lower/LoopWork.h"
#include "passes/lower/LowerKernels.h"

#include "dialects/tile/TileDialect.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/TypeSwitch.h"

#include <cmath>

using namespace mlir;
using namespace braid;

namespace {

/// Operations of exp and of other polynomials (ExpandMath), of a division or root, and of a warp's share of a matrix unit's
/// product.
constexpr double exponential = 12, polynomial = 17, division = 8, matrixUnit = 4;
/// And of an exponential that a GPU has an instruction for, at an eighth of the rate of others.
constexpr double approximate = 9;
/// Accesses of a gather or scatter of a vector's lanes.
constexpr double lanes = 8;

class Walk {
public:
  Walk(const IssueRates &rates, double unknownTrips, bool otherwise)
      : rates(rates), unknownTrips(unknownTrips), otherwise(otherwise) {}
  double cycles(Block &block, double atLeast = 0);
  void know(Value value, double number) { known[value] = number; }

private:
  struct Own {
    double compute = 0, loads = 0, stores = 0, barriers = 0;
  };
  void count(Operation *op, Own &own);
  double loop(scf::ForOp op);
  std::optional<double> number(Value value);

  double lanesOf(Operation *op);

  const IssueRates &rates;
  double unknownTrips;
  bool otherwise;
  DenseMap<Value, std::optional<double>> known; ///< a loop's counter: its mean
};

std::optional<double> Walk::number(Value value) {
  if (auto it = known.find(value); it != known.end())
    return it->second;
  std::optional<double> result;
  Operation *op = value.getDefiningOp();
  if (auto constant = dyn_cast_or_null<arith::ConstantOp>(op)) {
    if (auto integer = dyn_cast<IntegerAttr>(constant.getValue()))
      result = static_cast<double>(integer.getInt());
  } else if (isa_and_nonnull<gpu::ThreadIdOp, gpu::BlockIdOp>(op)) {
    result = 0;
  } else if (isa_and_nonnull<arith::IndexCastOp>(op)) {
    result = number(op->getOperand(0));
  } else if (op && op->getNumOperands() == 2) {
    std::optional<double> x = number(op->getOperand(0)), y = number(op->getOperand(1));
    if (x && y)
      result = llvm::TypeSwitch<Operation *, std::optional<double>>(op)
                   .Case([&](arith::AddIOp) { return *x + *y; })
                   .Case([&](arith::SubIOp) { return *x - *y; })
                   .Case([&](arith::MulIOp) { return *x * *y; })
                   .Case<arith::DivUIOp, arith::DivSIOp>(
                       [&](auto) { return *y != 0 ? std::optional<double>(*x / *y) : std::nullopt; })
                   .Case<arith::MinSIOp, arith::MinUIOp>([&](auto) { return std::min(*x, *y); })
                   .Case<arith::MaxSIOp, arith::MaxUIOp>([&](auto) { return std::max(*x, *y); })
                   .Default([](Operation *) { return std::nullopt; });
  }
  return known[value] = result;
}

/// How often a thread issues the operation.
double Walk::lanesOf(Operation *op) {
  auto type = op->getNumOperands() ? dyn_cast<VectorType>(op->getOperand(op->getNumOperands() - 1).getType()) : nullptr;
  return rates.lanesInTurn && type ? static_cast<double>(type.getNumElements()) : 1;
}

/// Index arithmetic is free: addresses are formed beside what is computed, or before the loop.
void Walk::count(Operation *op, Own &own) {
  if (isa<memref::LoadOp, memref::PrefetchOp, vector::LoadOp, vector::MaskedLoadOp, gpu::ShuffleOp>(op))
    ++own.loads;
  else if (isa<memref::StoreOp, vector::StoreOp, vector::MaskedStoreOp>(op))
    ++own.stores;
  else if (isa<vector::GatherOp>(op))
    own.loads += lanes;
  else if (isa<vector::ScatterOp>(op))
    own.stores += lanes;
  else if (isa<gpu::BarrierOp, NVVM::Barrier0Op>(op))
    ++own.barriers;
  else if (isa<NVVM::LdMatrixOp, NVVM::CpAsyncOp>(op))
    ++own.loads;
  else if (isa<NVVM::MmaOp>(op))
    own.compute += matrixUnit;
  else if (isa<vector::ReductionOp, vector::ExtractOp>(op))
    own.compute += 2;
  else if (isa<vector::FMAOp, vector::ShuffleOp, LLVM::CallIntrinsicOp, math::FmaOp>(op))
    own.compute += lanesOf(op);
  else if (isa<arith::DivFOp, math::SqrtOp, math::RsqrtOp>(op))
    own.compute += division * lanesOf(op);
  else if (isa<arith::ArithDialect>(op->getDialect()) && op->getNumOperands() > 0) {
    Type type = op->getOperand(op->getNumOperands() - 1).getType();
    if (isa<VectorType>(type) || isa<FloatType>(type))
      own.compute += lanesOf(op);
  } else if (isa<math::MathDialect>(op->getDialect()))
    own.compute += (isa<math::AbsFOp, math::FloorOp, math::CeilOp, math::CopySignOp, math::AbsIOp>(op) ? 1
                    : rates.lanesInTurn && isApproximate(op)                                           ? approximate
                    : isa<math::ExpOp, math::Exp2Op>(op)                                               ? exponential
                                                                                                       : polynomial) *
                   lanesOf(op);
}

double Walk::loop(scf::ForOp op) {
  std::optional<double> low = number(op.getLowerBound()), high = number(op.getUpperBound()),
                        step = number(op.getStep());
  double trips = std::ceil(unknownTrips / step.value_or(1));
  if (auto walk = op->getAttrOfType<IntegerAttr>(tile::kMeanWalkAttr); walk && step)
    trips = static_cast<double>(walk.getInt()) / *step;
  else if (low && high && step)
    trips = std::max(0.0, std::ceil((*high - *low) / *step - 1e-9));
  if (trips == 0)
    return 0;
  if (low && step)
    know(op.getInductionVar(), *low + (trips - 1) / 2 * *step);
  bool waits = llvm::any_of(op.getResultTypes(), [](Type type) { return isa<VectorType, FloatType>(type); });
  return trips * cycles(*op.getBody(), waits ? rates.carried : 0);
}

/// Its other side is more than values that go on.
bool worksOtherwise(scf::IfOp branch) {
  return branch.elseBlock() && !branch.elseBlock()->without_terminator().empty() && !branch->hasAttr(kLikelyAttr);
}

double Walk::cycles(Block &block, double atLeast) {
  Own own;
  double inner = 0;
  for (Operation &op : block) {
    if (auto nested = dyn_cast<scf::ForOp>(op))
      inner += loop(nested);
    else if (auto branch = dyn_cast<scf::IfOp>(op))
      inner += cycles(otherwise && worksOtherwise(branch) ? *branch.elseBlock() : *branch.thenBlock());
    else
      count(&op, own);
  }
  double longest = std::max({own.compute * rates.compute, own.loads * rates.load, own.stores * rates.store, atLeast});
  return longest + own.barriers * rates.barrier + inner;
}

} // namespace

double braid::programCycles(func::FuncOp lowered, const IssueRates &rates, double unknownTrips, bool otherwise) {
  Walk walk(rates, unknownTrips, otherwise);
  if (lowered.getNumArguments() == 3) { // on a CPU: programs [begin, end)
    walk.know(lowered.getArgument(1), 0);
    walk.know(lowered.getArgument(2), 1);
  }
  return walk.cycles(lowered.front());
}
