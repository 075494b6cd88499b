//===- KernelBounds.cpp - what a kernel's code asks of its numbers ------------------------------------------------===//
#include "compiler/serialize/KernelBounds.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace braid {
namespace {

class Finder {
public:
  Finder(func::FuncOp kernel, const KernelSignature &signature) : kernel(kernel), signature(signature) {}

  std::vector<KernelBound> run() {
    kernel.walk([&](Operation *op) {
      llvm::TypeSwitch<Operation *>(op)
          .Case([&](tile::LoadOp load) {
            access(load.getSource(), load.getIndices());
            limit(load.getSource(), load.getLimit(), load.getDims());
          })
          .Case([&](tile::StoreOp store) {
            access(store.getTarget(), store.getIndices());
            limit(store.getTarget(), store.getLimit(), store.getDims());
          })
          .Case([&](memref::LoadOp load) { access(load.getMemRef(), load.getIndices()); })
          .Case([&](memref::StoreOp store) { access(store.getMemRef(), store.getIndices()); })
          .Case<arith::DivSIOp, arith::DivUIOp, arith::RemSIOp, arith::RemUIOp, arith::CeilDivSIOp,
                arith::FloorDivSIOp>([&](auto division) { divisor(division.getRhs()); })
          .Case([&](arith::IndexCastOp cast) {
            // What is cut off would make another number of it.
            if (std::optional<unsigned> slot = numberOf(cast.getIn()); slot && cast.getType().isInteger(32)) {
              KernelBound bound{*slot, /*extent=*/false, INT32_MIN};
              bound.most = INT32_MAX;
              add(bound);
            }
          })
          .Case([&](scf::ForOp loop) { divisor(loop.getStep()); });
    });
    // Programs are numbered over all extents.
    if (auto grid = kernel->getAttrOfType<ArrayAttr>(tile::kGridAttr))
      for (unsigned extent = grid.size(); extent < KernelSignature::kGridSlots; ++extent) {
        KernelBound bound{extent, /*extent=*/true};
        bound.most = 1;
        add(bound);
      }
    return std::move(bounds);
  }

private:
  func::FuncOp kernel;
  const KernelSignature &signature;
  std::vector<KernelBound> bounds;

  void add(const KernelBound &bound) {
    if (!llvm::is_contained(bounds, bound))
      bounds.push_back(bound);
  }

  /// The slot of an argument, a buffer's pointer or a number.
  std::optional<unsigned> slotOf(Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getOwner() != &kernel.getBody().front())
      return std::nullopt;
    for (auto [i, slot] : llvm::enumerate(signature.slots))
      if (slot.argument == argument.getArgNumber() && slot.part == SlotPart::data)
        return i;
    return std::nullopt;
  }

  std::optional<unsigned> numberOf(Value value) {
    std::optional<unsigned> slot = slotOf(value);
    return slot && signature.slots[*slot].kind == SlotKind::i64 ? slot : std::nullopt;
  }

  void access(Value buffer, ValueRange indices) {
    if (std::optional<unsigned> pointer = slotOf(buffer))
      for (auto [d, index] : llvm::enumerate(indices))
        reaches(index, *pointer, d, 1, 1, -1);
  }

  /// `value` * per / times, or more, is an index in that dimension.
  void reaches(Value value, unsigned pointer, int64_t dimension, int64_t per, int64_t times, int64_t perSlot) {
    auto deeper = [&](Value inner) { reaches(inner, pointer, dimension, per, times, perSlot); };
    if (std::optional<unsigned> slot = numberOf(value))
      return add({*slot, /*extent=*/false, 0, pointer, dimension, per, times, perSlot});
    if (auto iteration = dyn_cast<BlockArgument>(value)) {
      auto loop = dyn_cast<scf::ForOp>(iteration.getOwner()->getParentOp());
      if (!loop || loop.getInductionVar() != value)
        return;
      deeper(loop.getLowerBound());
      if (per == 1 && times == 1 && perSlot < 0)
        ends(loop.getUpperBound(), pointer, dimension);
      return;
    }
    llvm::TypeSwitch<Operation *>(value.getDefiningOp())
        .Case([&](tile::ProgramOp program) {
          add({cast<OpResult>(value).getResultNumber(), /*extent=*/true, 0, pointer, dimension, per, times, perSlot});
        })
        .Case<arith::AddIOp, arith::MaxSIOp>([&](auto op) {
          deeper(op.getLhs());
          deeper(op.getRhs());
        })
        .Case([&](arith::MulIOp op) {
          for (auto [one, other] : {std::pair(op.getLhs(), op.getRhs()), std::pair(op.getRhs(), op.getLhs())})
            if (auto factor = getConstantIntValue(other); factor && *factor > 0 && times == 1)
              reaches(one, pointer, dimension, per * *factor, 1, perSlot);
            else if (auto slot = numberOf(other); slot && times == 1 && perSlot < 0)
              reaches(one, pointer, dimension, per, 1, *slot);
        })
        .Case<arith::DivSIOp, arith::DivUIOp>([&](auto op) {
          if (auto parts = getConstantIntValue(op.getRhs()); parts && *parts > 0 && per == 1 && perSlot < 0)
            reaches(op.getLhs(), pointer, dimension, 1, times * *parts, -1);
        })
        .Case([&](arith::SubIOp op) {
          std::optional<unsigned> slot = numberOf(op.getLhs());
          if (auto less = getConstantIntValue(op.getRhs()); less && *less > 0 && slot && per == 1 && perSlot < 0)
            add({*slot, /*extent=*/false, *less, pointer, dimension, 1, times});
        })
        .Case([&](arith::IndexCastOp op) { deeper(op.getIn()); });
  }

  void limit(Value buffer, Value limit, ArrayRef<int64_t> dimensions) {
    if (std::optional<unsigned> pointer = slotOf(buffer); pointer && limit && !dimensions.empty())
      ends(limit, *pointer, dimensions.front());
  }

  /// Indices in that dimension go up to `value`.
  void ends(Value value, unsigned pointer, int64_t dimension) {
    if (std::optional<unsigned> slot = numberOf(value))
      return add({*slot, /*extent=*/false, 0, pointer, dimension});
    if (Operation *op = value.getDefiningOp())
      if (isa<arith::AddIOp, arith::MulIOp, arith::MinSIOp, arith::IndexCastOp>(op))
        for (Value operand : op->getOperands())
          ends(operand, pointer, dimension);
  }

  /// Nothing is divided by 0, and no loop takes steps of 0.
  void divisor(Value value) {
    if (std::optional<unsigned> slot = numberOf(value))
      return add({*slot, /*extent=*/false, 1});
    if (Operation *op = value.getDefiningOp())
      if (isa<arith::IndexCastOp, arith::TruncIOp, arith::ExtSIOp, vector::BroadcastOp, arith::MulIOp>(op))
        for (Value operand : op->getOperands())
          divisor(operand);
  }
};

enum class Kept { no, within, whole };

/// Whether a launch keeps to a bound, and reaches all of what it is of; `no` also where its numbers are not those of the signature.
Kept keptBy(cmd::LaunchOp launch, const KernelBound &bound, func::FuncOp kernel, const KernelSignature &signature) {
  auto argument = [&](StringRef name) -> std::optional<int64_t> {
    auto value = dyn_cast_or_null<IntegerAttr>(launch.getArgs().get(name));
    return value ? std::optional(value.getInt()) : std::nullopt;
  };
  if (bound.extent && bound.number >= launch.getGrid().size())
    return Kept::no;
  std::optional<int64_t> number =
      bound.extent ? launch.getGrid()[bound.number] : argument(signature.slots[bound.number].name);
  if (!number || *number < bound.least || *number > bound.most)
    return Kept::no;
  if (bound.of < 0)
    return Kept::within;
  const KernelSlot &slot = signature.slots[bound.of];
  std::optional<int64_t> size =
      cast<MemRefType>(kernel.getArgument(slot.argument).getType()).getDimSize(bound.dimension);
  if (ShapedType::isDynamic(*size))
    size = argument(slot.name + ".dim" + std::to_string(bound.dimension));
  std::optional<int64_t> times = bound.perSlot < 0 ? 1 : argument(signature.slots[bound.perSlot].name);
  if (!size || !times)
    return Kept::no;
  int64_t per = bound.per * std::max<int64_t>(*times, 1), most = (*size + per - 1) / per * bound.times;
  most = std::max(most, bound.least);
  return *number > most ? Kept::no : *number < most ? Kept::within : Kept::whole;
}

} // namespace

bool fillsItsBuffers(func::FuncOp kernel, const KernelSlot &pointer, ArrayRef<cmd::LaunchOp> launches) {
  auto type = dyn_cast<MemRefType>(kernel.getArgument(pointer.argument).getType());
  if (!type || !type.getLayout().isIdentity() || !type.getElementType().isIntOrFloat())
    return false;
  return llvm::all_of(launches, [&](cmd::LaunchOp launch) {
    auto buffer = dyn_cast_or_null<cmd::BufferAttr>(launch.getArgs().get(pointer.name));
    auto bytes = static_cast<uint64_t>(type.getElementTypeBitWidth() / 8);
    for (int64_t d = 0; d < type.getRank(); ++d) {
      auto size = dyn_cast_or_null<IntegerAttr>(launch.getArgs().get(pointer.name + ".dim" + std::to_string(d)));
      if (type.isDynamicDim(d) && !size)
        return false;
      bytes *= static_cast<uint64_t>(type.isDynamicDim(d) ? size.getInt() : type.getDimSize(d));
    }
    return buffer && static_cast<uint64_t>(buffer.getBytes()) == bytes;
  });
}

std::vector<KernelBound> kernelBounds(func::FuncOp kernel, const KernelSignature &signature,
                                      ArrayRef<cmd::LaunchOp> launches) {
  std::vector<KernelBound> bounds = Finder(kernel, signature).run();
  llvm::erase_if(bounds, [&](KernelBound &bound) {
    bound.whole = bound.of >= 0 && !launches.empty();
    return llvm::any_of(launches, [&](cmd::LaunchOp launch) {
      Kept kept = keptBy(launch, bound, kernel, signature);
      bound.whole &= kept == Kept::whole;
      return kept == Kept::no;
    });
  });
  return bounds;
}

} // namespace braid
