// What the compiler reads: model descriptions and modules.
#include "test/fuzz/FuzzTargets.h"

#include "frontend/ModelBuilder.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"

#include "compiler/Pipeline.h"

using namespace mlir;

namespace braid::fuzz {
namespace {

MLIRContext &context() {
  static MLIRContext *context = [] {
    DialectRegistry registry;
    registerCompiler(registry);
    auto *made = new MLIRContext(registry, MLIRContext::Threading::DISABLED);
    made->loadAllAvailableDialects();
    made->getDiagEngine().registerHandler([](Diagnostic &) { return success(); }); // refusals are no news
    return made;
  }();
  return *context;
}

// Read and checked. A description that is accepted and small becomes a module, too.
void description(std::span<const uint8_t> bytes) {
  StringRef text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  FailureOr<ModelSpec> spec = parseModelSpec(text, "fuzz.json", [](const std::string &) {});
  if (succeeded(spec) && spec->numLayers <= 8)
    (void)buildModel(&context(), *spec, [](const std::string &) {});
}

// Parsed, verified and printed.
void module(std::span<const uint8_t> bytes) {
  std::string text(bytes.begin(), bytes.end());
  OwningOpRef<ModuleOp> parsed = parseSourceString<ModuleOp>(text, ParserConfig(&context()), "fuzz.mlir");
  if (!parsed)
    return;
  std::string printed;
  llvm::raw_string_ostream stream(printed);
  parsed->print(stream);
}

constexpr Target table[] = {{"description", description}, {"module", module}};

} // namespace

const std::span<const Target> targets = table;

} // namespace braid::fuzz
