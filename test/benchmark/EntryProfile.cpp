#include "test/benchmark/EntryProfile.h"

#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <map>

namespace braid::benchmark {

using namespace braid::runtime;

namespace {

using CommandList = flatbuffers::Vector<flatbuffers::Offset<schema::Command>>;

DType dtype(schema::DType type) { return static_cast<DType>(type); } // the values are equal

GemmDesc describe(const schema::Gemm &gemm) {
  GemmDesc desc;
  desc.shape = {gemm.m(),
                gemm.n(),
                gemm.k(),
                gemm.lda(),
                gemm.ldb(),
                gemm.ldc(),
                gemm.transpose_a(),
                gemm.transpose_b(),
                gemm.accumulate(),
                dtype(gemm.type_a()),
                dtype(gemm.type_b()),
                dtype(gemm.type_c())};
  desc.batch = gemm.batch();
  desc.batchStrideA = gemm.batch_stride_a();
  desc.batchStrideB = gemm.batch_stride_b();
  desc.batchStrideC = gemm.batch_stride_c();
  return desc;
}

GroupedGemmDesc describe(const schema::GroupedGemm &gemm) {
  bool rows = gemm.kind() == schema::GroupedKind::rows;
  return {rows ? GroupedGemmDesc::Kind::rows : GroupedGemmDesc::Kind::weight,
          gemm.groups(),
          gemm.max_rows(),
          gemm.m(),
          gemm.n(),
          gemm.k(),
          gemm.lda(),
          gemm.ldb(),
          gemm.ldc(),
          gemm.transpose_b(),
          gemm.accumulate(),
          dtype(gemm.type_a()),
          dtype(gemm.type_b()),
          dtype(gemm.type_c())};
}

double bytesOf(const schema::Buffer *buffer) { return buffer ? static_cast<double>(buffer->bytes()) : 0; }

class Unroller {
public:
  Unroller(const Program &program, std::vector<ExecutedCommand> &out) : program(program), out(out) {}

  Status add(const CommandList &list) {
    for (const schema::Command *command : list) {
      if (command->stream() != 0)
        return Status::error(ErrorCode::unsupported, "{}: has communication; programs of one rank are measured",
                             program.path());
      if (const schema::Repeat *repeat = command->body_as_Repeat()) {
        for (int64_t i = 0; i < repeat->count(); ++i)
          BRAID_TRY(add(*repeat->commands()));
        continue;
      }
      if (command->body_type() != schema::Body::Record) // not traced
        out.push_back(describeCommand(*command));
    }
    return Status::success();
  }

private:
  ExecutedCommand describeCommand(const schema::Command &command) {
    ExecutedCommand result;
    if (const schema::Launch *launch = command.body_as_Launch()) {
      result.kind = "launch";
      result.work = program.kernels()[launch->kernel()];
      if (launch->args())
        for (const schema::Arg *arg : *launch->args())
          if (const schema::BufferValue *value = arg->value_as_BufferValue())
            result.bytes += bytesOf(value->buffer());
    } else if (const schema::Gemm *gemm = command.body_as_Gemm()) {
      result.kind = "gemm";
      result.work = "oneDNN gemm";
      result.product.gemm = describe(*gemm);
      result.bytes = bytesOf(gemm->a()) + bytesOf(gemm->b()) + bytesOf(gemm->c());
    } else if (const schema::GroupedGemm *grouped = command.body_as_GroupedGemm()) {
      result.kind = "grouped_gemm";
      result.work = "oneDNN grouped_gemm";
      result.product.grouped = describe(*grouped);
      result.bytes = bytesOf(grouped->a()) + bytesOf(grouped->b()) + bytesOf(grouped->c());
    } else if (const schema::Copy *copy = command.body_as_Copy()) {
      result.kind = result.work = "copy";
      result.bytes = 2 * bytesOf(copy->target());
    } else if (const schema::Fill *fill = command.body_as_Fill()) {
      result.kind = result.work = "fill";
      result.bytes = bytesOf(fill->target());
    } else {
      result.kind = result.work = command.body_type() == schema::Body::Wait ? "wait" : "collective";
    }
    return result;
  }

  const Program &program;
  std::vector<ExecutedCommand> &out;
};

// Allocates nothing while it records.
class Recorder : public TraceSink {
public:
  explicit Recorder(size_t commands) : kinds(commands), times(commands) {}

  void command(const TraceEvent &event) override {
    if (count < times.size()) {
      kinds[count] = event.kind;
      times[count] = 1e-9 * static_cast<double>(event.endNs - event.beginNs);
    }
    ++count;
  }

  std::vector<const char *> kinds;
  std::vector<double> times;
  size_t count = 0;
};

std::string family(const ExecutedCommand &command) {
  if (command.kind != "launch")
    return command.work;
  for (const char *prefix : {"lsm_", "attn_", "moe_", "rows_", "short_conv", "embed", "cross_entropy"})
    if (command.work.starts_with(prefix))
      return std::string(prefix) + "*";
  for (const char *prefix : {"adamw", "sum_squares", "clip_scale"})
    if (command.work.starts_with(prefix))
      return "optimizer";
  return "other kernels";
}

} // namespace

Expected<std::vector<ExecutedCommand>> executedCommands(const Program &program, const std::string &entry) {
  std::vector<ExecutedCommand> commands;
  for (const schema::Entry *candidate : *program.file().entries())
    if (candidate->name()->string_view() == entry) {
      BRAID_TRY(Unroller(program, commands).add(*candidate->commands()));
      return commands;
    }
  return Status::error(ErrorCode::notFound, "{}: no entry '{}'", program.path(), entry);
}

Expected<EntryProfile> profileEntry(Session &session, const std::string &entry, int runs,
                                    const std::function<Status()> &run) {
  EntryProfile profile;
  BRAID_ASSIGN(profile.commands, executedCommands(session.program(), entry));
  size_t count = profile.commands.size();
  profile.seconds.resize(count);
  for (int i = 0; i < runs; ++i) {
    Recorder recorder(count);
    session.setTrace(&recorder);
    Status status = run();
    session.setTrace(nullptr);
    BRAID_TRY(status);
    if (recorder.count != count)
      return Status::error(ErrorCode::internal, "entry '{}': {} commands were traced, but {} were expected", entry,
                           recorder.count, count);
    for (size_t c = 0; c < count; ++c) {
      if (profile.commands[c].kind != recorder.kinds[c])
        return Status::error(ErrorCode::internal, "entry '{}': command {} of the trace is a {}, but a {} was expected",
                             entry, c, recorder.kinds[c], profile.commands[c].kind);
      profile.seconds[c].push_back(recorder.times[c]);
    }
  }
  return profile;
}

double EntryProfile::fastestSeconds(size_t command) const {
  return *std::min_element(seconds[command].begin(), seconds[command].end());
}

double EntryProfile::productFlops() const {
  double flops = 0;
  for (const ExecutedCommand &command : commands)
    flops += command.product.flops();
  return flops;
}

Json EntryProfile::grouped(const std::function<std::string(const ExecutedCommand &)> &key) const {
  struct Sum {
    std::string key;
    int64_t calls = 0;
    double seconds = 0, fastest = 0, bytes = 0;
  };
  std::map<std::string, Sum> sums;
  double total = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    Sum &sum = sums[key(commands[i])];
    sum.key = key(commands[i]);
    ++sum.calls;
    sum.seconds += medianSeconds(i);
    sum.fastest += fastestSeconds(i);
    sum.bytes += commands[i].bytes;
    total += medianSeconds(i);
  }
  std::vector<Sum> sorted;
  for (auto &[name, sum] : sums)
    sorted.push_back(sum);
  std::sort(sorted.begin(), sorted.end(), [](const Sum &a, const Sum &b) { return a.seconds > b.seconds; });
  Json list = Json::array();
  for (const Sum &sum : sorted)
    list.push_back({{"work", sum.key},
                    {"calls", sum.calls},
                    {"ms", 1e3 * sum.seconds},
                    {"fastest_ms", 1e3 * sum.fastest},
                    {"share", sum.seconds / std::max(total, 1e-12)},
                    {"bytes", sum.bytes},
                    {"gbytes_per_s", 1e-9 * sum.bytes / std::max(sum.seconds, 1e-12)}});
  return list;
}

Json EntryProfile::byWork() const {
  return grouped([](const ExecutedCommand &command) { return command.work; });
}

Json EntryProfile::byFamily() const { return grouped(family); }

std::vector<Product> EntryProfile::distinctProducts() const {
  std::map<std::string, Product> distinct;
  for (const ExecutedCommand &command : commands)
    if (command.product.isLibraryCall())
      distinct.emplace(command.product.text(), command.product);
  std::vector<Product> list;
  for (auto &[text, product] : distinct)
    list.push_back(product);
  return list;
}

Json EntryProfile::products(const std::vector<Product> &distinct, const std::vector<Rate> &alone) const {
  Json list = Json::array();
  for (size_t p = 0; p < distinct.size(); ++p) {
    int64_t calls = 0;
    double inStep = 0, fastest = 0;
    for (size_t i = 0; i < commands.size(); ++i)
      if (commands[i].product.isLibraryCall() && commands[i].product.text() == distinct[p].text()) {
        ++calls;
        inStep += medianSeconds(i);
        fastest += fastestSeconds(i);
      }
    double flops = distinct[p].flops(), count = static_cast<double>(calls);
    list.push_back({{"shape", distinct[p].text()},
                    {"calls", calls},
                    {"flops", flops},
                    {"alone_ms", 1e3 * alone[p].median},
                    {"alone_fastest_ms", 1e3 * alone[p].fastest},
                    {"alone_gflops", 1e-9 * flops / alone[p].median},
                    {"alone_fastest_gflops", 1e-9 * flops / alone[p].fastest},
                    {"in_step_ms", 1e3 * inStep / count},
                    {"in_step_gflops", 1e-9 * flops * count / inStep},
                    {"in_step_fastest_gflops", 1e-9 * flops * count / fastest}});
  }
  std::sort(list.begin(), list.end(), [](const Json &a, const Json &b) {
    return a["calls"].get<double>() * a["in_step_ms"].get<double>() >
           b["calls"].get<double>() * b["in_step_ms"].get<double>();
  });
  return list;
}

} // namespace braid::benchmark
