//===- Explain.cpp - which kernel, how many FLOPs and bytes, and where the memory goes ----------------------------===//
#include "compiler/Explain.h"

#include "dialects/cmd/CmdDialect.h"

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
/// What one command does: the library call or kernel, its shape, its work in one execution.
struct Work {
  std::string what, shape;
  double flops = 0, bytes = 0;
};

class EntryPage {
public:
  explicit EntryPage(llvm::raw_ostream &os) : os(os) {}

  void print(cmd::EntryOp entry) {
    os << "entry @" << entry.getSymName() << "\n";
    os << llvm::formatv("  {0,-44} {1,-52} {2,10} {3,10}\n", "command", "kernel or library call", "FLOPs", "bytes");
    list(entry.getBody().front(), 1, 2);
    os << llvm::formatv("  {0} commands in one run, {1} FLOPs in library calls, up to {2}B touched\n\n", commands,
                        shortNumber(flops), shortNumber(bytes));
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

  static Work workOf(Operation *op) {
    Work work;
    work.bytes = bytesOf(op);
    if (auto launch = dyn_cast<cmd::LaunchOp>(op)) {
      work.what = "@" + launch.getKernel().str();
      work.shape = llvm::formatv("grid {0}", llvm::make_range(launch.getGrid().begin(), launch.getGrid().end())).str();
    } else if (auto gemm = dyn_cast<cmd::GemmOp>(op)) {
      work.what = "gemm";
      work.shape = llvm::formatv("{0} x {1} x {2}{3}{4}{5}{6}", gemm.getM(), gemm.getN(), gemm.getK(),
                                 gemm.getBatch() > 1 ? " batch " + std::to_string(gemm.getBatch()) : std::string(),
                                 gemm.getTransposeA() ? " a^T" : "", gemm.getTransposeB() ? " b^T" : "",
                                 gemm.getAccumulate() ? " +=" : "");
      work.flops = 2.0 * gemm.getM() * gemm.getN() * gemm.getK() * gemm.getBatch();
    } else if (auto gemm = dyn_cast<cmd::GroupedGemmOp>(op)) {
      bool rows = gemm.getKind() == cmd::GroupedKind::rows;
      work.what = "grouped_gemm";
      work.shape = llvm::formatv("{0} groups, <= {1} rows, {2} x {3}{4}", gemm.getGroups(), gemm.getMaxRows(),
                                 rows ? gemm.getK() : gemm.getM(), gemm.getN(), rows ? "" : " weight");
      work.flops = 2.0 * gemm.getMaxRows() * (rows ? gemm.getK() : gemm.getM()) * gemm.getN();
    } else if (auto collective = dyn_cast<cmd::CollectiveOp>(op)) {
      work.what = cmd::stringifyCollectiveKind(collective.getKind()).str();
      work.shape = "over " + collective.getAxis().str();
    } else {
      work.what = op->getName().stripDialect().str();
    }
    return work;
  }

  void list(Block &block, double times, unsigned indent) {
    for (Operation &op : block) {
      if (auto repeat = dyn_cast<cmd::RepeatOp>(op)) {
        os.indent(indent) << "repeat " << repeat.getCount() << "\n";
        list(repeat.getBody().front(), times * repeat.getCount(), indent + 2);
        continue;
      }
      commands += times;
      if (isa<cmd::RecordOp, cmd::WaitOp>(op))
        continue;
      Work work = workOf(&op);
      flops += times * work.flops;
      bytes += times * work.bytes;
      auto name = op.getAttrOfType<StringAttr>("name");
      std::string text = std::string(indent, ' ') + (name ? name.str() : "");
      os << llvm::formatv("{0,-46} {1,-52} {2,10} {3,10}\n", text,
                          work.what + (work.shape.empty() ? "" : " " + work.shape),
                          work.flops ? shortNumber(work.flops) : "-", shortNumber(work.bytes));
    }
  }

  llvm::raw_ostream &os;
  double flops = 0, bytes = 0;
  int64_t commands = 0;
};
} // namespace

void braid::explain(ModuleOp module, ArrayRef<StageTime> times, llvm::raw_ostream &os) {
  for (auto program : module.getOps<cmd::ProgramOp>()) {
    for (auto entry : program.getOps<cmd::EntryOp>())
      EntryPage(os).print(entry);
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
  os << "compile time\n";
  double sum = 0;
  for (const StageTime &time : times) {
    sum += time.milliseconds;
    os << llvm::formatv("  {0,-12} {1,9:f1} ms\n", time.stage, time.milliseconds);
  }
  os << llvm::formatv("  {0,-12} {1,9:f1} ms\n", "all", sum);
}
