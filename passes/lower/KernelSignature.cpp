//===- KernelSignature.cpp - the slots of a kernel ----------------------------------------------------------------===//
#include "passes/lower/KernelSignature.h"

#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "mlir/Interfaces/ViewLikeInterface.h"

using namespace mlir;

braid::KernelSignature braid::KernelSignature::of(func::FuncOp kernel) {
  KernelSignature signature{kernel.getName().str(), {}};
  for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
    auto nameAttr = kernel.getArgAttrOfType<StringAttr>(i, tile::kNameAttr);
    std::string name = nameAttr ? nameAttr.str() : "arg" + std::to_string(i);
    auto add = [&](std::string slot, SlotKind kind, SlotPart part, int64_t dimension) {
      signature.slots.push_back({std::move(slot), kind, part, static_cast<unsigned>(i), dimension});
    };
    auto buffer = dyn_cast<MemRefType>(type);
    if (!buffer) {
      add(name, type.isF32() ? SlotKind::f32 : type.isF64() ? SlotKind::f64 : SlotKind::i64, SlotPart::data, 0);
      continue;
    }
    add(name, SlotKind::pointer, SlotPart::data, 0);
    for (int64_t d = 0; d < buffer.getRank(); ++d)
      if (buffer.isDynamicDim(d))
        add(name + ".dim" + std::to_string(d), SlotKind::i64, SlotPart::size, d);
    // An identity layout has no strides of its own: they follow from the sizes.
    if (auto layout = dyn_cast<StridedLayoutAttr>(buffer.getLayout()))
      for (auto [d, stride] : llvm::enumerate(layout.getStrides()))
        if (ShapedType::isDynamic(stride))
          add(name + ".stride" + std::to_string(d), SlotKind::i64, SlotPart::stride, d);
  }
  return signature;
}

void braid::noteInPlace(tile::LaunchOp launch, func::FuncOp kernel) {
  Builder b(kernel.getContext());
  SmallVector<Attribute> pairs;
  if (auto known = kernel->getAttrOfType<ArrayAttr>(tile::kInPlaceAttr))
    pairs.append(known.begin(), known.end());
  for (auto [result, operand] : llvm::zip_equal(launch.getResultNames(), launch.getInplace()))
    if (operand >= 0)
      if (auto pair = b.getArrayAttr({result, launch.getArgNames()[operand]}); !llvm::is_contained(pairs, pair))
        pairs.push_back(pair);
  kernel->setAttr(tile::kInPlaceAttr, b.getArrayAttr(pairs));
}

bool braid::isWrittenByKernel(Value buffer) {
  return llvm::any_of(buffer.getUsers(), [&](Operation *user) {
    if (auto view = dyn_cast<ViewLikeOpInterface>(user))
      return view.getViewSource() == buffer && llvm::any_of(user->getResults(), isWrittenByKernel);
    return hasEffect<MemoryEffects::Write>(user, buffer);
  });
}
