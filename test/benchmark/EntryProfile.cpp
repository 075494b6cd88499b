#include "test/benchmark/EntryProfile.h"

#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace braid::benchmark {

using namespace braid::runtime;

namespace {

using CommandList = flatbuffers::Vector<flatbuffers::Offset<schema::Command>>;

DType dtype(schema::DType type) { return static_cast<DType>(type); } // the values are equal

template <typename Gemm> std::optional<DType> addendOf(const Gemm &gemm) {
  return gemm.addend() ? std::optional(dtype(gemm.type_addend())) : std::nullopt;
}

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
                dtype(gemm.type_c()),
                addendOf(gemm)};
  desc.batch = gemm.batch();
  desc.batchStrideA = gemm.batch_stride_a();
  desc.batchStrideB = gemm.batch_stride_b();
  desc.batchStrideC = gemm.batch_stride_c();
  desc.batchStrideAddend = gemm.batch_stride_addend();
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
          dtype(gemm.type_c()),
          addendOf(gemm)};
}

// Bytes [begin, end) of arenas, any of them several times; counted once.
class Footprint {
public:
  void add(const schema::Buffer *buffer, const std::vector<int64_t> &iterations) {
    if (!buffer)
      return;
    auto begin = static_cast<int64_t>(buffer->offset());
    for (size_t i = 0; buffer->strides() && i < buffer->strides()->size() && i < iterations.size(); ++i)
      begin += buffer->strides()->Get(static_cast<flatbuffers::uoffset_t>(i)) * iterations[i];
    spans.push_back({buffer->arena(), begin, begin + static_cast<int64_t>(buffer->bytes())});
  }

  double bytes() {
    std::sort(spans.begin(), spans.end());
    int64_t sum = 0, end = 0;
    uint32_t arena = UINT32_MAX;
    for (const auto &[spanArena, begin, spanEnd] : spans) {
      if (spanArena != arena)
        end = 0;
      arena = spanArena;
      sum += std::max<int64_t>(0, spanEnd - std::max(begin, end));
      end = std::max(end, spanEnd);
    }
    return static_cast<double>(sum);
  }

private:
  std::vector<std::tuple<uint32_t, int64_t, int64_t>> spans;
};

class Unroller {
public:
  explicit Unroller(const Program &program) : program(program) {}

  Status add(const CommandList &list) {
    for (const schema::Command *command : list) {
      if (command->stream() != 0)
        return Status::error(ErrorCode::unsupported, "{}: has communication; programs of one rank are measured",
                             program.path());
      if (const schema::Repeat *repeat = command->body_as_Repeat()) {
        for (int64_t i = 0; i < repeat->count(); ++i) {
          iterations.push_back(i);
          Status status = add(*repeat->commands());
          iterations.pop_back();
          BRAID_TRY(status);
        }
        continue;
      }
      if (command->body_type() == schema::Body::Record) // not traced
        continue;
      ExecutedCommand described = describeCommand(*command);
      if (!command->joined()) {
        out.push_back(std::move(described));
        continue;
      }
      // Joined launches are one start of the threads, and one event of the trace.
      out.back().flops += described.flops;
      out.back().bytes += described.bytes;
      out.back().touched += described.touched;
    }
    return Status::success();
  }

  EntryCommands finish() { return {std::move(out), footprint.bytes()}; }

private:
  double touch(const schema::Buffer *buffer) {
    footprint.add(buffer, iterations);
    return buffer ? static_cast<double>(buffer->bytes()) : 0;
  }

  ExecutedCommand describeCommand(const schema::Command &command) {
    ExecutedCommand result;
    if (const schema::Launch *launch = command.body_as_Launch()) {
      result.kind = "launch";
      result.work = program.kernels()[launch->kernel()];
      if (launch->args())
        for (const schema::Arg *arg : *launch->args())
          if (const schema::BufferValue *value = arg->value_as_BufferValue())
            result.touched += touch(value->buffer());
    } else if (const schema::Gemm *gemm = command.body_as_Gemm()) {
      result.kind = "gemm";
      result.work = "oneDNN gemm";
      result.product.gemm = describe(*gemm);
      result.touched = touch(gemm->a()) + touch(gemm->b()) + touch(gemm->c());
      if (gemm->addend())
        result.touched += touch(gemm->addend());
    } else if (const schema::GroupedGemm *grouped = command.body_as_GroupedGemm()) {
      result.kind = "grouped_gemm";
      result.work = "oneDNN grouped_gemm";
      result.product.grouped = describe(*grouped);
      result.touched = touch(grouped->a()) + touch(grouped->b()) + touch(grouped->c());
      if (grouped->addend())
        result.touched += touch(grouped->addend());
    } else if (const schema::Copy *copy = command.body_as_Copy()) {
      result.kind = result.work = "copy";
      result.touched = touch(copy->source()) + touch(copy->target());
    } else if (const schema::Fill *fill = command.body_as_Fill()) {
      result.kind = result.work = "fill";
      result.touched = touch(fill->target());
    } else {
      result.kind = result.work = command.body_type() == schema::Body::Wait ? "wait" : "collective";
    }
    result.op = result.kind;
    if (const schema::Work *work = command.work()) {
      result.op = work->op()->str();
      result.flops = static_cast<double>(work->flops());
      result.bytes = static_cast<double>(work->bytes());
    }
    return result;
  }

  const Program &program;
  std::vector<ExecutedCommand> out;
  std::vector<int64_t> iterations;
  Footprint footprint;
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
  for (const char *prefix : {"lsm_", "attn_", "moe_", "rows_", "short_conv", "embed", "cross_entropy", "few_rows"})
    if (command.work.starts_with(prefix))
      return std::string(prefix) + "*";
  for (const char *prefix : {"adamw", "sum_squares", "clip_scale"})
    if (command.work.starts_with(prefix))
      return "optimizer";
  return "other kernels";
}

} // namespace

Expected<EntryCommands> executedCommands(const Program &program, const std::string &entry) {
  const EntryInfo *info = program.findEntry(entry);
  if (!info)
    return Status::error(ErrorCode::notFound, "{}: no entry '{}'", program.path(), entry);
  Unroller unroller(program);
  BRAID_TRY(unroller.add(*program.file().entries()->Get(info->index)->commands()));
  return unroller.finish();
}

Expected<EntryProfile> profileEntry(Session &session, const std::string &entry, int runs,
                                    const std::function<Status()> &run) {
  EntryProfile profile;
  BRAID_ASSIGN(EntryCommands commands, executedCommands(session.program(), entry));
  profile.commands = std::move(commands.list);
  profile.footprint = commands.footprint;
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

double EntryProfile::floorSeconds(const Rates &rates) const {
  double sum = 0;
  for (const ExecutedCommand &command : commands)
    sum += rates.floor(command);
  return sum;
}

Json EntryProfile::grouped(const std::function<std::string(const ExecutedCommand &)> &key, const Rates &rates) const {
  struct Sum {
    std::string key;
    int64_t calls = 0;
    double seconds = 0, fastest = 0, flops = 0, bytes = 0, floor = 0;
  };
  std::map<std::string, Sum> sums;
  double total = 0;
  for (size_t i = 0; i < commands.size(); ++i) {
    Sum &sum = sums[key(commands[i])];
    sum.key = key(commands[i]);
    ++sum.calls;
    sum.seconds += medianSeconds(i);
    sum.fastest += fastestSeconds(i);
    sum.flops += commands[i].flops;
    sum.bytes += commands[i].bytes;
    sum.floor += rates.floor(commands[i]);
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
                    {"flops", sum.flops},
                    {"bytes", sum.bytes},
                    {"floor_ms", 1e3 * sum.floor},
                    {"of_floor", sum.floor / std::max(sum.seconds, 1e-12)},
                    {"bound", sum.flops / rates.flopRate > sum.bytes / rates.byteRate ? "FLOPs" : "bytes"}});
  return list;
}

Json EntryProfile::byWork(const Rates &rates) const {
  return grouped([](const ExecutedCommand &command) { return command.work; }, rates);
}

Json EntryProfile::byFamily(const Rates &rates) const { return grouped(family, rates); }

Json EntryProfile::byOp(const Rates &rates) const {
  return grouped([](const ExecutedCommand &command) { return command.op; }, rates);
}

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
