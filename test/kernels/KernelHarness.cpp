//===- KernelHarness.cpp - compile a kernel in process and run it over a grid -------------------------------------===//
#include "test/kernels/KernelHarness.h"

#include "dialects/tile/TileDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"

#include <cstring>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace mlir;
using namespace braid;
using namespace braid::test;

KernelHarness::KernelHarness(llvm::StringRef mlir, llvm::StringRef cpu) { compile(mlir, cpu); }

KernelHarness::KernelHarness(ModuleOp module, llvm::StringRef cpu) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream);
  compile(text, cpu);
}

KernelHarness::~KernelHarness() {
  if (handle)
    dlclose(handle);
  if (file >= 0)
    close(file);
}

void KernelHarness::compile(llvm::StringRef mlir, llvm::StringRef cpu) {
  DialectRegistry registry;
  registerCpuCodegen(registry);
  context = std::make_unique<MLIRContext>(registry);
  std::string messages;
  ScopedDiagnosticHandler handler(context.get(), [&](Diagnostic &diagnostic) {
    llvm::raw_string_ostream(messages) << diagnostic.getLocation() << ": " << diagnostic << "\n";
    return success();
  });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(mlir, context.get());
  llvm::Expected<CpuTarget> target = CpuTarget::parse(cpu);
  if (!target) {
    ADD_FAILURE() << llvm::toString(target.takeError());
    return;
  }
  if (!module) {
    ADD_FAILURE() << "parsing: " << messages;
    return;
  }
  for (auto kernel : module->getOps<func::FuncOp>())
    if (kernel->hasAttr(tile::kKernelAttr))
      signatures[kernel.getName().str()] = KernelSignature::of(kernel);
  bool dump = getenv("BRAID_DUMP_ASM") != nullptr;
  llvm::raw_string_ostream stream(assembly);
  FailureOr<std::vector<char>> object = compileKernels(*module, *target, dump ? &stream : nullptr, &times);
  if (failed(object)) {
    ADD_FAILURE() << "compiling: " << messages;
    return;
  }
  if (dump)
    llvm::errs() << assembly;
  file = memfd_create("braid-kernels", 0);
  for (size_t done = 0; done < object->size();) {
    ssize_t wrote = write(file, object->data() + done, object->size() - done);
    ASSERT_GT(wrote, 0) << "writing the shared object to memory";
    done += wrote;
  }
  handle = dlopen(("/proc/self/fd/" + std::to_string(file)).c_str(), RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(handle, nullptr) << dlerror();
}

const KernelSignature *KernelHarness::signature(const std::string &kernel) const {
  auto it = signatures.find(kernel);
  return it == signatures.end() ? nullptr : &it->second;
}

KernelFunction KernelHarness::function(const std::string &kernel) const {
  void *symbol = handle ? dlsym(handle, kernel.c_str()) : nullptr;
  EXPECT_NE(symbol, nullptr) << "no kernel @" << kernel;
  return reinterpret_cast<KernelFunction>(symbol);
}

std::vector<int64_t> KernelHarness::arguments(const std::string &kernel, std::vector<int64_t> grid,
                                              const Slots &slots) const {
  grid.resize(KernelSignature::kGridSlots, 1);
  std::vector<int64_t> arguments(grid);
  const KernelSignature *signature = this->signature(kernel);
  EXPECT_NE(signature, nullptr) << "no kernel @" << kernel;
  if (!signature)
    return {};
  size_t used = 0;
  for (const KernelSlot &slot : signature->slots) {
    auto it = slots.find(slot.name);
    if (it == slots.end()) {
      EXPECT_EQ(slot.part, SlotPart::size) << "@" << kernel << ": no value for '" << slot.name << "'";
      arguments.push_back(0);
      continue;
    }
    ++used;
    int64_t bits = 0;
    float narrow = static_cast<float>(it->second.number);
    switch (slot.kind) {
    case SlotKind::pointer: bits = reinterpret_cast<int64_t>(it->second.pointer); break;
    case SlotKind::i64: bits = static_cast<int64_t>(it->second.number); break;
    case SlotKind::f32: std::memcpy(&bits, &narrow, sizeof narrow); break;
    case SlotKind::f64: std::memcpy(&bits, &it->second.number, sizeof bits); break;
    }
    arguments.push_back(bits);
  }
  EXPECT_EQ(used, slots.size()) << "@" << kernel << ": a value has a name that the kernel does not know";
  return arguments;
}

void KernelHarness::run(const std::string &kernel, std::vector<int64_t> grid, const Slots &slots, bool split) {
  KernelFunction call = ok() ? function(kernel) : nullptr;
  if (!call)
    return;
  std::vector<int64_t> args = arguments(kernel, grid, slots);
  if (args.empty())
    return;
  int64_t programs = args[0] * args[1] * args[2], middle = split ? programs / 2 : 0;
  if (middle > 0)
    call(args.data(), 0, middle);
  call(args.data(), middle, programs);
}
