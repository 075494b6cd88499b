//===- LaunchRunner.cpp - the launches of a function, one after the other -----------------------------------------===//
#include "test/kernels/LaunchRunner.h"

#include "dialects/braid/BraidDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/Passes.h"
#include "test/kernels/KernelHarness.h"

#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"

#include <cstring>
#include <map>
#include <numeric>

using namespace mlir;

namespace braid::test {

static int64_t bytesOf(Tensor::Type type) { return type == Tensor::Type::f64 ? 8 : 4; }

Tensor::Tensor(Type type, std::vector<int64_t> shape, std::vector<double> values)
    : type(type), shape(std::move(shape)), values(std::move(values)) {
  this->values.resize(elements(), 0.0);
}

int64_t Tensor::elements() const {
  int64_t count = 1;
  for (int64_t size : shape)
    count *= size;
  return count;
}

std::string Tensor::typeText() const {
  std::string text = "tensor<";
  for (int64_t size : shape)
    text += std::to_string(size) + "x";
  return text + (type == Type::f32 ? "f32>" : type == Type::f64 ? "f64>" : "i32>");
}

namespace {

/// Memory of a value. Fresh buffers hold a NaN pattern: what a kernel forgets to write shows.
struct Memory {
  std::vector<char> bytes;
};

Tensor::Type typeOf(Type element) {
  return element.isF64() ? Tensor::Type::f64 : element.isF32() ? Tensor::Type::f32 : Tensor::Type::i32;
}

Memory memoryOf(const Tensor &tensor) {
  Memory memory{std::vector<char>(tensor.elements() * bytesOf(tensor.type))};
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    float single = static_cast<float>(tensor.values[i]);
    int32_t integer = tensor.type == Tensor::Type::i32 ? static_cast<int32_t>(tensor.values[i]) : 0;
    if (tensor.type == Tensor::Type::f64)
      std::memcpy(&memory.bytes[8 * i], &tensor.values[i], 8);
    else if (tensor.type == Tensor::Type::f32)
      std::memcpy(&memory.bytes[4 * i], &single, 4);
    else
      std::memcpy(&memory.bytes[4 * i], &integer, 4);
  }
  return memory;
}

Tensor tensorOf(const Memory &memory, RankedTensorType type) {
  Tensor tensor(typeOf(type.getElementType()), type.getShape().vec());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    float single;
    int32_t integer;
    if (tensor.type == Tensor::Type::f64)
      std::memcpy(&tensor.values[i], &memory.bytes[8 * i], 8);
    else if (tensor.type == Tensor::Type::f32)
      std::memcpy(&single, &memory.bytes[4 * i], 4), tensor.values[i] = single;
    else
      std::memcpy(&integer, &memory.bytes[4 * i], 4), tensor.values[i] = integer;
  }
  return tensor;
}

int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
}

Memory fresh(RankedTensorType type) {
  return {std::vector<char>(type.getNumElements() * bytesOf(typeOf(type.getElementType())), '\xff')};
}

} // namespace

using Buffers = std::map<std::string, std::pair<char *, RankedTensorType>>;

/// Fills the slots of the kernel's signature by name and runs the whole grid.
static void runLaunch(tile::LaunchOp launch, const Buffers &buffers, KernelHarness &kernels) {
  std::string kernel = launch.getKernel().str();
  const KernelSignature *signature = kernels.signature(kernel);
  if (!signature)
    return;
  Slots slots;
  for (const KernelSlot &slot : signature->slots) {
    std::string name = slot.name.substr(0, slot.name.find('.'));
    if (Attribute scalar = launch.getScalars().get(name)) {
      auto integer = dyn_cast<IntegerAttr>(scalar);
      slots.emplace(slot.name, integer ? Slot(integer.getInt()) : Slot(cast<FloatAttr>(scalar).getValueAsDouble()));
      continue;
    }
    auto [data, type] = buffers.at(name);
    if (slot.part == SlotPart::data)
      slots.emplace(slot.name, Slot(data));
    else if (slot.part == SlotPart::size)
      slots.emplace(slot.name, Slot(type.getDimSize(slot.dimension)));
    else
      slots.emplace(slot.name, Slot(product(type.getShape().drop_front(slot.dimension + 1))));
  }
  kernels.run(kernel, launch.getGrid().vec(), slots);
}

struct LaunchRunner::State {
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  func::FuncOp main;
  std::unique_ptr<KernelHarness> kernels;
};

LaunchRunner::LaunchRunner(const std::string &text) : state(std::make_unique<State>()) {
  MLIRContext &context = state->context;
  context.loadDialect<BraidDialect, tile::TileDialect, arith::ArithDialect, func::FuncDialect, scf::SCFDialect,
                      math::MathDialect, memref::MemRefDialect, vector::VectorDialect>();
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    llvm::raw_string_ostream(message) << diagnostic << "\n";
    return success();
  });
  state->module = parseSourceString<ModuleOp>(text, &context);
  if (!state->module)
    return;
  PassManager passes(&context);
  passes.addPass(createDecideChunkSizePass());
  passes.addPass(createChunkTilingPass());
  passes.addPass(createOutlinePass());
  if (failed(passes.run(*state->module)))
    return;
  state->main = state->module->lookupSymbol<func::FuncOp>("main");
  OwningOpRef<ModuleOp> kernelsOnly = state->module->clone(); // the harness knows no model ops
  for (auto func : llvm::make_early_inc_range(kernelsOnly->getOps<func::FuncOp>()))
    if (!func->hasAttr(tile::kKernelAttr))
      func.erase();
  state->kernels = std::make_unique<KernelHarness>(*kernelsOnly);
  if (!state->kernels->ok())
    message = "the kernels do not compile";
}

LaunchRunner::~LaunchRunner() = default;

std::vector<std::string> LaunchRunner::launches() const {
  std::vector<std::string> names;
  state->main.walk([&](tile::LaunchOp launch) { names.push_back(launch.getKernel().str()); });
  return names;
}

std::vector<Tensor> LaunchRunner::run(const std::vector<Tensor> &inputs) {
  // Values that share memory (views, results in place) hold the same pointer.
  llvm::DenseMap<Value, std::shared_ptr<Memory>> memories;
  for (auto [argument, tensor] : llvm::zip_equal(state->main.getArguments(), inputs))
    memories[argument] = std::make_shared<Memory>(memoryOf(tensor));
  std::vector<Tensor> results;
  for (Operation &op : state->main.getBody().front()) {
    if (auto view = dyn_cast<ReshapeOp>(op)) {
      memories[view.getResult()] = memories[view.getSource()];
    } else if (auto done = dyn_cast<func::ReturnOp>(op)) {
      for (Value value : done.getOperands())
        results.push_back(tensorOf(*memories[value], cast<RankedTensorType>(value.getType())));
    } else if (auto launch = dyn_cast<tile::LaunchOp>(op)) {
      Buffers buffers;
      for (auto [value, name] : llvm::zip_equal(launch.getInputs(), launch.getArgNames().getAsValueRange<StringAttr>()))
        buffers[name.str()] = {memories[value]->bytes.data(), cast<RankedTensorType>(value.getType())};
      for (auto [i, value] : llvm::enumerate(launch.getOutputs())) {
        auto type = cast<RankedTensorType>(value.getType());
        int64_t shared = launch.getInplace()[i];
        if (shared < 0) {
          memories[value] = std::make_shared<Memory>(fresh(type));
        } else {
          // In place where nobody else reads the operand; otherwise on a copy.
          Value operand = launch.getInputs()[shared];
          memories[value] = operand.hasOneUse() ? memories[operand] : std::make_shared<Memory>(*memories[operand]);
          buffers[cast<StringAttr>(launch.getArgNames()[shared]).str()].first = memories[value]->bytes.data();
        }
        buffers[cast<StringAttr>(launch.getResultNames()[i]).str()] = {memories[value]->bytes.data(), type};
      }
      runLaunch(launch, buffers, *state->kernels);
    }
  }
  return results;
}

} // namespace braid::test
