//===- Explain.cpp - which kernel, how many FLOPs and bytes, and where the memory goes ----------------------------===//
#include "compiler/Explain.h"

#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace braid;

/// "1.25 M": four digits at most, powers of 1000.
static std::string shortNumber(double value) {
  const char *units[] = {"", " k", " M", " G", " T", " P"};
  unsigned unit = 0;
  for (; value >= 1000 && unit + 1 < std::size(units); ++unit)
    value /= 1000;
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format(unit ? "%.3g%s" : "%.0f%s", value, units[unit]);
  return text;
}

namespace {
/// FLOPs that a CPU core of today does in the time it moves one byte: all that shares of floors need to know of a
/// machine.
constexpr double flopsPerByte = 5;

/// What one command does: the library call or kernel, the shapes it works on, the work of one execution.
struct CommandFacts {
  std::string what, shapes, choice;
  double flops = 0, bytes = 0;
  bool asked = true; ///< by the model; copies and fills of the memory plan are not

  double floor() const { return asked ? std::max(flops, flopsPerByte * bytes) : 0; }
};

class EntryPage {
public:
  EntryPage(ModuleOp module, llvm::raw_ostream &os) : symbols(module), os(os) {}

  void print(cmd::EntryOp entry) {
    flops = bytes = floors = 0;
    commands = 0;
    count(entry.getBody().front(), 1);
    os << "entry @" << entry.getSymName() << "\n";
    os << llvm::formatv("  {0,-44} {1,-52} {2,10} {3,10} {4,7}  {5}\n", "command", "kernel or library call", "FLOPs",
                        "bytes", "share", "shapes; why");
    list(entry.getBody().front(), 1, 2);
    os << llvm::formatv("  {0} commands in one run, {1} FLOPs, {2}B\n\n", commands, shortNumber(flops),
                        shortNumber(bytes));
  }

private:
  static double bytesOf(Operation *op) {
    double sum = 0;
    for (NamedAttribute attr : op->getAttrDictionary()) {
      if (auto buffer = dyn_cast<cmd::BufferAttr>(attr.getValue()))
        sum += buffer.getBytes();
      if (auto args = dyn_cast<DictionaryAttr>(attr.getValue()))
        for (NamedAttribute arg : args)
          if (auto buffer = dyn_cast<cmd::BufferAttr>(arg.getValue()))
            sum += buffer.getBytes();
    }
    return sum;
  }

  /// "q 8x128x4x32, k 8x128x4x32, ..": parameters of the kernel with the sizes of this launch.
  std::string shapesOf(cmd::LaunchOp launch) {
    auto kernel = symbols.lookup<func::FuncOp>(launch.getKernel());
    std::string text;
    for (unsigned i = 0; kernel && i < kernel.getNumArguments(); ++i) {
      auto type = dyn_cast<MemRefType>(kernel.getArgumentTypes()[i]);
      auto name = kernel.getArgAttrOfType<StringAttr>(i, tile::kNameAttr);
      if (!type || !name)
        continue;
      text += (text.empty() ? "" : ", ") + name.str() + " ";
      for (auto [d, size] : llvm::enumerate(type.getShape())) {
        auto given = launch.getArgs().getAs<IntegerAttr>((name.getValue() + ".dim" + Twine(d)).str());
        text += (d ? "x" : "") +
                (ShapedType::isDynamic(size) ? given ? std::to_string(given.getInt()) : "?" : std::to_string(size));
      }
    }
    return text;
  }

  CommandFacts factsOf(Operation *op) {
    CommandFacts facts;
    facts.bytes = bytesOf(op);
    if (auto launch = dyn_cast<cmd::LaunchOp>(op)) {
      facts.what = "@" + launch.getKernel().str() +
                   llvm::formatv(" grid {0}", llvm::make_range(launch.getGrid().begin(), launch.getGrid().end())).str();
      facts.shapes = shapesOf(launch);
    } else if (auto gemm = dyn_cast<cmd::GemmOp>(op)) {
      facts.what = llvm::formatv("gemm {0} x {1} x {2}{3}{4}{5}{6}", gemm.getM(), gemm.getN(), gemm.getK(),
                                 gemm.getBatch() > 1 ? " batch " + std::to_string(gemm.getBatch()) : std::string(),
                                 gemm.getTransposeA() ? " a^T" : "", gemm.getTransposeB() ? " b^T" : "",
                                 gemm.getAccumulate() ? " +="
                                 : gemm.getAddend()   ? " + c"
                                                      : "");
      facts.flops = 2.0 * gemm.getM() * gemm.getN() * gemm.getK() * gemm.getBatch();
    } else if (auto gemm = dyn_cast<cmd::GroupedGemmOp>(op)) {
      bool rows = gemm.getKind() == cmd::GroupedKind::rows;
      facts.what =
          llvm::formatv("grouped_gemm {0} groups, <= {1} rows, {2} x {3}{4}", gemm.getGroups(), gemm.getMaxRows(),
                        rows ? gemm.getK() : gemm.getM(), gemm.getN(), rows ? "" : " weight");
      facts.flops = 2.0 * gemm.getMaxRows() * (rows ? gemm.getK() : gemm.getM()) * gemm.getN();
    } else if (auto collective = dyn_cast<cmd::CollectiveOp>(op)) {
      facts.what = cmd::stringifyCollectiveKind(collective.getKind()).str() + " over " + collective.getAxis().str();
      facts.choice = "what another rank has or needs";
    } else {
      facts.what = op->getName().stripDialect().str();
      facts.choice =
          isa<cmd::CopyOp>(op) ? "braid-plan-memory: two values that could not share a buffer" : "zeros to start from";
      facts.asked = false;
    }
    if (auto work = op->getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr)) {
      facts.flops = work.getFlops();
      facts.bytes = work.getBytes();
      facts.choice = (work.getOp() + ": " + work.getChoice()).str();
    }
    return facts;
  }

  void count(Block &block, double times) {
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<cmd::RepeatOp>(op)) {
        count(repeat.getBody().front(), times * repeat.getCount());
        continue;
      }
      commands += times;
      if (isa<cmd::RecordOp, cmd::WaitOp>(op))
        continue;
      CommandFacts facts = factsOf(&op);
      floors += times * facts.floor();
      flops += times * facts.flops;
      bytes += times * facts.bytes;
    }
  }

  /// Commands that would say the same, one behind the other, are one line.
  void list(Block &block, double times, unsigned indent) {
    std::string last;
    int64_t alike = 0;
    auto flush = [&] {
      if (alike > 0)
        os << last << (alike > 1 ? " (" + std::to_string(alike) + " of these)" : std::string()) << "\n";
      alike = 0;
    };
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<cmd::RepeatOp>(op)) {
        flush();
        os.indent(indent) << "repeat " << repeat.getCount() << "\n";
        list(repeat.getBody().front(), times * repeat.getCount(), indent + 2);
        continue;
      }
      if (isa<cmd::RecordOp, cmd::WaitOp>(op))
        continue;
      CommandFacts facts = factsOf(&op);
      auto name = op.getAttrOfType<StringAttr>("name");
      std::string text = std::string(indent, ' ') + (name ? name.str() : ""), share, why = facts.shapes;
      llvm::raw_string_ostream(share) << llvm::format("%.2f %%", floors ? 100 * times * facts.floor() / floors : 0.0);
      if (!facts.choice.empty())
        why += (why.empty() ? "" : "; ") + facts.choice;
      if (op.hasAttr(cmd::kJoinedAttr))
        why += "; starts with the launch before it";
      if (auto layers = op.getAttrOfType<DenseI32ArrayAttr>(cmd::kLayersAttr)) {
        llvm::raw_string_ostream stream(text);
        stream << " [";
        llvm::interleave(layers.asArrayRef(), stream, " ");
        stream << "]";
      }
      if (auto microBatch = op.getAttrOfType<IntegerAttr>(cmd::kMicroBatchAttr))
        text += " (micro-batch " + std::to_string(microBatch.getInt()) + ")";
      std::string line =
          llvm::formatv("{0,-46} {1,-52} {2,10} {3,10} {4,7}  {5}", text, facts.what,
                        facts.flops ? shortNumber(facts.flops) : "-", shortNumber(facts.bytes), share, why);
      if (line != last)
        flush();
      last = std::move(line);
      ++alike;
    }
    flush();
  }

  SymbolTable symbols;
  llvm::raw_ostream &os;
  double flops = 0, bytes = 0, floors = 0;
  int64_t commands = 0;
};
} // namespace

/// Which class every scan has and why; functions that say the same stand together.
static void printScans(DictionaryAttr metadata, llvm::raw_ostream &os) {
  llvm::MapVector<StringRef, std::string> functions;
  for (NamedAttribute entry : metadata)
    if (StringRef function = entry.getName().getValue(); function.consume_front("scans.")) {
      std::string &names = functions[cast<StringAttr>(entry.getValue()).getValue()];
      names += (names.empty() ? "@" : ", @") + function.str();
    }
  if (functions.empty())
    return;
  os << "classes of scans (braid-classify-scans); chunks stand with their kernels\n";
  for (const auto &[text, names] : functions)
    os << "  " << names << ":\n    " << text << "\n";
  os << "\n";
}

static void printSchedules(DictionaryAttr metadata, llvm::raw_ostream &os) {
  bool sliced = false;
  for (NamedAttribute entry : metadata)
    if (StringRef layer = entry.getName().getValue(); layer.consume_front("schedule.")) {
      os << (sliced ? "" : "slices and orders of layers; tasks are kind, block of the function, slice\n");
      os << "  @" << layer << ": " << cast<StringAttr>(entry.getValue()).getValue() << "\n";
      sliced = true;
    }
  os << (sliced ? "\n" : "");
}

void braid::explain(ModuleOp module, ArrayRef<StageTime> times, ArrayRef<CudaKernel> kernels, llvm::raw_ostream &os) {
  for (auto program : module.getOps<cmd::ProgramOp>()) {
    os << llvm::formatv(
        "FLOPs and bytes of one execution are counted from the shapes of the model's ops (braid-count-work). share: "
        "the "
        "command's part,\nall iterations together, of the entry's floor, the sum of max(FLOPs, {0} x bytes). [..]: the "
        "layers it computes, in order.\n\n",
        flopsPerByte);
    if (auto metadata = module->getAttrOfType<DictionaryAttr>(attrs::metadata)) {
      printScans(metadata, os);
      printSchedules(metadata, os);
    }
    EntryPage page(module, os);
    // What runs once comes last.
    SmallVector<cmd::EntryOp> entries(program.getOps<cmd::EntryOp>());
    llvm::stable_sort(entries, [](cmd::EntryOp x, cmd::EntryOp y) {
      return !x.getSymName().starts_with("init") && y.getSymName().starts_with("init");
    });
    for (cmd::EntryOp entry : entries)
      page.print(entry);
    os << "memory per rank\n";
    int64_t total = 0;
    for (auto arena : program.getOps<cmd::ArenaOp>()) {
      int64_t bytes = arena.getBytes(), bound = arena.getLowerBound().value_or(bytes);
      total += bytes;
      os << llvm::formatv("  {0,-12} {1,14} bytes planned, {2,14} at least ({3:f1}% over)\n", arena.getSymName(), bytes,
                          bound, bound ? 100.0 * (bytes - bound) / bound : 0.0);
    }
    os << llvm::formatv("  {0,-12} {1,14} bytes\n\n", "all", total);
  }
  if (!kernels.empty())
    os << llvm::formatv(
        "kernels of a GPU; registers, spilled bytes and bytes of local memory are per thread\n  {0,-60} {1,7} "
        "{2,9} {3,9} {4,9} {5,7} {6,7}\n",
        "kernel", "threads", "shared", "scratch", "registers", "spills", "local");
  for (const CudaKernel &kernel : kernels)
    os << llvm::formatv("  {0,-60} {1,7} {2,9} {3,9} {4,9} {5,7} {6,7}{7}\n", kernel.name, kernel.threads,
                        kernel.sharedBytes, kernel.scratchBytes, kernel.registers, kernel.spillBytes, kernel.stackBytes,
                        kernel.cluster > 1 ? "  in clusters of " + std::to_string(kernel.cluster) : "");
  os << (kernels.empty() ? "" : "\n") << "compile time\n";
  double sum = 0;
  for (const StageTime &time : times) {
    sum += time.milliseconds;
    os << llvm::formatv("  {0,-12} {1,9:f1} ms\n", time.stage, time.milliseconds);
  }
  os << llvm::formatv("  {0,-12} {1,9:f1} ms\n", "all", sum);
  for (const StageTime &time : times)
    if (!time.detail.empty())
      os << "  " << time.stage << ": " << time.detail << "\n";
}
