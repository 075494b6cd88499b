// From the verified file to prepared commands. The file was checked when it was loaded, so this only resolves.
#include "runtime/Commands.h"

#include "runtime/comm/Collectives.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <unordered_map>

namespace braid::runtime {
namespace {

constexpr double leastSharedBytes = 64 * 1024;

class Preparer {
public:
  Preparer(const Program &program, const CommandTarget &target, CommunicatorGroup &group, Commands &out)
      : program(program), target(target), group(group), out(out) {}

  Status run() {
    momentArenas.resize(program.arenas().size());
    for (const TensorInfo &tensor : program.tensors())
      if (tensor.role == Role::moment)
        momentArenas[tensor.arena] = true;
    for (const auto *kernel : *program.file().kernels()) {
      KernelFunction function = nullptr;
      if (target.kernels) {
        BRAID_ASSIGN(function, target.kernels->resolve(kernel->name()->str()));
      }
      functions.push_back(function);
    }
    for (const schema::Entry *entry : *program.file().entries())
      if (program.findEntry(entry->name()->string_view())->kept)
        BRAID_TRY(openAxes(*entry->commands()));
    for (const EntryInfo &info : program.entries()) {
      const schema::Entry &entry = *program.file().entries()->Get(info.index);
      entryName = info.name;
      auto begin = static_cast<uint32_t>(out.list.size());
      if (info.kept)
        BRAID_TRY(prepareList(*entry.commands(), "", {}));
      out.entries.push_back({begin, static_cast<uint32_t>(out.list.size()), entry.events()});
    }
    for (JoinedLaunches &joined : out.joined)
      share(joined, target.matmuls ? target.matmuls->threads() : 1);
    return Status::success();
  }

private:
  const Program &program;
  const CommandTarget &target;
  CommunicatorGroup &group;
  Commands &out;
  std::vector<KernelFunction> functions;
  std::string_view entryName;
  std::vector<bool> momentArenas; // by arena: it holds a moment
  bool touchesMoments = false;    // the command that is prepared

  BufferRef buffer(const schema::Buffer &buffer) {
    touchesMoments |= momentArenas[buffer.arena()];
    BufferRef ref;
    ref.base = target.arenas[buffer.arena()] + buffer.offset();
    ref.bytes = buffer.bytes();
    if (buffer.strides()) {
      // Trailing zeros (an invariant operand of inner repeats) cost nothing at run time.
      uint32_t count = buffer.strides()->size();
      while (count > 0 && buffer.strides()->Get(count - 1) == 0)
        --count;
      if (count > 0) {
        auto &list = out.strideLists.emplace_back(buffer.strides()->begin(), buffer.strides()->begin() + count);
        ref.strides = list.data();
        ref.strideCount = count;
      }
    }
    return ref;
  }

  // Communicators are made by all ranks in one order, that of the file: a rank of another stage executes other commands.
  Status openAxes(const flatbuffers::Vector<flatbuffers::Offset<schema::Command>> &list) {
    for (const schema::Command *command : list) {
      if (const auto *collective = command->body_as_Collective())
        BRAID_TRY(group.axis(collective->axis()->string_view()).status());
      if (const auto *repeat = command->body_as_Repeat())
        BRAID_TRY(openAxes(*repeat->commands()));
    }
    return Status::success();
  }

  const char *text(std::string string) { return out.texts.emplace_back(std::move(string)).c_str(); }

  // `counts`: of the repeats around the list.
  Status prepareList(const flatbuffers::Vector<flatbuffers::Offset<schema::Command>> &list, const std::string &path,
                     std::vector<int64_t> counts) {
    const std::vector<int64_t> &keptCounts = out.strideLists.emplace_back(std::move(counts));
    size_t head = 0; // the launch that joined ones start with
    for (flatbuffers::uoffset_t i = 0; i < list.size(); ++i) {
      std::string here = path + std::to_string(i);
      std::string where = fmt::format("entry '{}' command {}", entryName, here);
      if (list.Get(i)->name())
        where += fmt::format(" '{}'", list.Get(i)->name()->string_view());
      const char *kept = text(where);
      size_t at = out.list.size();
      BRAID_TRY(prepareCommand(*list.Get(i), here, kept, keptCounts).withContext(kept));
      if (list.Get(i)->joined())
        join(head, at);
      else
        head = at;
    }
    return Status::success();
  }

  // The launch at `at` starts with the one at `head`.
  void join(size_t head, size_t at) {
    Command &first = out.list[head];
    if (first.joined == 0) {
      first.joined = 1;
      first.start = static_cast<uint32_t>(out.joined.size());
      out.joined.push_back({first.index, 1, {}});
    }
    ++first.joined;
    ++out.joined[first.start].count;
    first.updates |= out.list[at].updates;
  }

  // Bytes that a program of the launch touches, about: all there is to know of its cost.
  static double programCost(const LaunchCommand &launch) {
    return static_cast<double>(launch.touched) / static_cast<double>(std::max<int64_t>(launch.programs, 1)) + 64;
  }

  void share(JoinedLaunches &joined, int threads) {
    double total = 0;
    for (uint32_t i = 0; i < joined.count; ++i)
      total += static_cast<double>(out.launches[joined.first + i].touched);
    // As little work as that is done before another thread is awake.
    if (total < leastSharedBytes)
      threads = 1;
    joined.pieces.resize(static_cast<size_t>(threads));
    std::vector<double> load(joined.pieces.size());
    auto give = [&](size_t thread, uint32_t launch, int64_t begin, int64_t end) {
      if (begin >= end)
        return;
      auto &pieces = joined.pieces[thread];
      if (!pieces.empty() && pieces.back().launch == launch && pieces.back().end == begin)
        pieces.back().end = end;
      else
        pieces.push_back({launch, begin, end});
      load[thread] += programCost(out.launches[launch]) * static_cast<double>(end - begin);
    };
    for (uint32_t i = 0; i < joined.count; ++i) {
      uint32_t launch = joined.first + i;
      int64_t programs = out.launches[launch].programs;
      if (programs >= 4 * threads)
        for (int64_t thread = 0; thread < threads; ++thread)
          give(static_cast<size_t>(thread), launch, programs * thread / threads, programs * (thread + 1) / threads);
      else
        for (int64_t program = 0; program < programs; ++program)
          give(static_cast<size_t>(std::min_element(load.begin(), load.end()) - load.begin()), launch, program,
               program + 1);
    }
  }

  Status prepareCommand(const schema::Command &command, const std::string &path, const char *where,
                        const std::vector<int64_t> &counts) {
    Command result{};
    touchesMoments = false;
    result.source = &command;
    // What computes beside stream 0 the calling thread of a CPU does in its turn.
    bool inTurn = !target.gpu && program.streams()[command.stream()].axis.empty();
    result.stream = inTurn ? 0 : command.stream();
    result.where = where;
    result.name = command.name() ? command.name()->c_str() : schema::EnumNameBody(command.body_type());
    result.op = command.work() ? command.work()->op()->c_str() : "";
    if (command.layers())
      result.layers = {command.layers()->data(), command.layers()->size()};
    result.counts = counts.data();
    result.microBatch = command.micro_batch();
    switch (command.body_type()) {
    case schema::Body::NONE: break;
    case schema::Body::Launch: prepareLaunch(*command.body_as_Launch(), result); break;
    case schema::Body::Gemm: BRAID_TRY(prepareGemm(*command.body_as_Gemm(), result)); break;
    case schema::Body::GroupedGemm: BRAID_TRY(prepareGroupedGemm(*command.body_as_GroupedGemm(), result)); break;
    case schema::Body::Collective: BRAID_TRY(prepareCollective(*command.body_as_Collective(), result)); break;
    case schema::Body::Copy:
      result.kind = Command::Kind::copy;
      result.index = static_cast<uint32_t>(out.copies.size());
      out.copies.push_back({buffer(*command.body_as_Copy()->source()), buffer(*command.body_as_Copy()->target())});
      break;
    case schema::Body::Fill:
      result.kind = Command::Kind::fill;
      result.index = static_cast<uint32_t>(out.fills.size());
      out.fills.push_back({buffer(*command.body_as_Fill()->target()), command.body_as_Fill()->value()});
      break;
    case schema::Body::Record:
      result.kind = Command::Kind::record;
      result.index = command.body_as_Record()->event();
      break;
    case schema::Body::Wait:
      result.kind = Command::Kind::wait;
      result.index = command.body_as_Wait()->event();
      break;
    case schema::Body::Repeat: {
      result.kind = Command::Kind::repeat;
      result.count = command.body_as_Repeat()->count();
      size_t at = out.list.size();
      out.list.push_back(result);
      std::vector<int64_t> inner = counts;
      inner.push_back(result.count);
      BRAID_TRY(prepareList(*command.body_as_Repeat()->commands(), path + ".", std::move(inner)));
      out.list[at].end = static_cast<uint32_t>(out.list.size());
      return Status::success();
    }
    }
    result.updates = touchesMoments;
    out.list.push_back(result);
    return Status::success();
  }

  void prepareLaunch(const schema::Launch &launch, Command &command) {
    const schema::Kernel &kernel = *program.file().kernels()->Get(launch.kernel());
    LaunchCommand result;
    result.function = functions[launch.kernel()];
    result.kernel = launch.kernel();
    result.programs = 1;
    for (uint64_t extent : *launch.grid()) {
      result.slots.push_back(static_cast<int64_t>(extent));
      result.programs *= static_cast<int64_t>(extent);
    }
    std::unordered_map<std::string_view, const schema::Arg *> args;
    if (launch.args())
      for (const auto *arg : *launch.args())
        args.emplace(arg->name()->string_view(), arg);
    if (kernel.params())
      for (const auto *param : *kernel.params()) {
        auto slot = static_cast<uint32_t>(result.slots.size());
        const schema::Arg &arg = *args.at(param->name()->string_view());
        int64_t value = 0;
        if (const auto *pointer = arg.value_as_BufferValue()) {
          BufferRef ref = buffer(*pointer->buffer());
          result.touched += ref.bytes;
          value = reinterpret_cast<int64_t>(ref.base);
          if (ref.strideCount)
            result.moving.push_back({slot, ref});
        } else if (const auto *integer = arg.value_as_I64Value()) {
          value = integer->value();
        } else if (param->kind() == schema::ParamKind::f32) {
          value = std::bit_cast<uint32_t>(static_cast<float>(arg.value_as_FloatValue()->value()));
        } else {
          value = std::bit_cast<int64_t>(arg.value_as_FloatValue()->value());
        }
        result.slots.push_back(value);
      }
    if (!target.kernels)
      result.slots.push_back(target.gpu->scratch());
    command.kind = Command::Kind::launch;
    if (!std::strcmp(command.name, "Launch"))
      command.name = kernel.name()->c_str();
    command.index = static_cast<uint32_t>(out.launches.size());
    out.launches.push_back(std::move(result));
  }

  // The power of two that all addresses of the matrices are multiples of, at most 256.
  static uint32_t alignmentOf(const GemmDesc &desc, const GemmCommand &command) {
    uint64_t all = 256;
    for (const BufferRef &matrix : {command.a, command.b, command.c, command.addend.value_or(command.c)}) {
      all |= reinterpret_cast<uintptr_t>(matrix.base);
      for (uint32_t i = 0; i < matrix.strideCount; ++i)
        all |= static_cast<uint64_t>(matrix.strides[i]);
    }
    if (desc.batch > 1)
      for (auto [stride, type] : {std::pair(desc.batchStrideA, desc.shape.typeA),
                                  {desc.batchStrideB, desc.shape.typeB},
                                  {desc.batchStrideC, desc.shape.typeC},
                                  {desc.batchStrideAddend, desc.shape.addend.value_or(desc.shape.typeC)}})
        all |= static_cast<uint64_t>(stride) * sizeOf(type);
    return static_cast<uint32_t>(all & (~all + 1));
  }

  template <typename Product> static std::optional<DType> addendOf(const Product &product) {
    return product.addend() ? std::optional(dtype(product.type_addend())) : std::nullopt;
  }

  Status prepareGemm(const schema::Gemm &gemm, Command &command) {
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
    command.kind = Command::Kind::gemm;
    command.index = static_cast<uint32_t>(out.gemms.size());
    GemmCommand made{{}, 0, buffer(*gemm.a()), buffer(*gemm.b()), buffer(*gemm.c()), {}};
    if (gemm.addend())
      made.addend = buffer(*gemm.addend());
    if (target.gpu) {
      BRAID_ASSIGN(made.product, target.gpu->prepareGemm(desc, alignmentOf(desc, made)));
    } else {
      BRAID_ASSIGN(made.gemm, Gemm::prepare(desc, *target.matmuls));
    }
    out.gemms.push_back(std::move(made));
    return Status::success();
  }

  Status prepareGroupedGemm(const schema::GroupedGemm &gemm, Command &command) {
    GroupedGemmDesc desc{};
    desc.kind = gemm.kind() == schema::GroupedKind::rows ? GroupedGemmDesc::Kind::rows : GroupedGemmDesc::Kind::weight;
    desc.groups = gemm.groups();
    desc.maxRows = gemm.max_rows();
    desc.m = gemm.m();
    desc.n = gemm.n();
    desc.k = gemm.k();
    desc.lda = gemm.lda();
    desc.ldb = gemm.ldb();
    desc.ldc = gemm.ldc();
    desc.transposeB = gemm.transpose_b();
    desc.accumulate = gemm.accumulate();
    desc.typeA = dtype(gemm.type_a());
    desc.typeB = dtype(gemm.type_b());
    desc.typeC = dtype(gemm.type_c());
    desc.addend = addendOf(gemm);
    if (target.gpu)
      return Status::error(ErrorCode::unsupported,
                           "a grouped matrix product of a library, which programs for GPUs do not call; valid: compile "
                           "the model again, which makes it a kernel");
    BRAID_ASSIGN(GroupedGemm prepared, GroupedGemm::prepare(desc, *target.matmuls));
    command.kind = Command::Kind::groupedGemm;
    command.index = static_cast<uint32_t>(out.groupedGemms.size());
    out.groupedGemms.push_back(
        {std::move(prepared), buffer(*gemm.a()), buffer(*gemm.b()), buffer(*gemm.c()), buffer(*gemm.offsets()), {}});
    if (gemm.addend())
      out.groupedGemms.back().addend = buffer(*gemm.addend());
    return Status::success();
  }

  Status prepareCollective(const schema::Collective &collective, Command &command) {
    CollectiveCommand result{};
    CollectiveCall call = callOf(collective);
    result.kind = call.kind;
    BRAID_ASSIGN(result.communicator, group.axis(collective.axis()->string_view()));
    if (!result.communicator)
      return Status::error("rank {} is not on axis '{}'", group.rank(), collective.axis()->string_view());
    for (uint32_t i = 1; i < program.streams().size(); ++i)
      if (program.streams()[i].axis == collective.axis()->string_view())
        result.fifo = i;
    result.dtype = call.dtype;
    result.send = buffer(*collective.send());
    result.recv = buffer(*collective.recv());
    if (collective.send_counts()) {
      result.sendCounts = buffer(*collective.send_counts());
      result.recvCounts = buffer(*collective.recv_counts());
    }
    result.blockBytes = collective.block_bytes();
    result.rowBytes = collective.row_bytes();
    result.countsPerPeer = collective.counts_per_peer();
    result.cyclic = call.cyclic;
    result.reverse = call.reverse;
    result.distance = call.distance;
    result.name = collective.name() ? collective.name()->c_str() : command.name;
    command.kind = Command::Kind::collective;
    command.index = static_cast<uint32_t>(out.collectives.size());
    out.collectives.push_back(result);
    return Status::success();
  }

  static DType dtype(schema::DType type) { return static_cast<DType>(type); }
};

} // namespace

Status prepareCommands(const Program &program, const CommandTarget &target, CommunicatorGroup &group,
                       Commands &commands) {
  return Preparer(program, target, group, commands).run();
}

} // namespace braid::runtime
