// Rules about command lists: every index in range, every byte a command touches, over all iterations of the repeats
// around it, inside its arena. Arithmetic is done in 128 bits on values bounded first, so nothing here can overflow.
#include "runtime/ProgramChecks.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <unordered_map>

namespace braid::runtime {
namespace {

constexpr int64_t maxExtent = int64_t(1) << 40;
constexpr int64_t maxCount = int64_t(1) << 40;

// A matrix of a gemm: `rows` x `cols` as stored, `batch` times.
struct Matrix {
  const char *name;
  const schema::Buffer *buffer;
  schema::DType type;
  int64_t rows, cols, leading;
  int64_t batch = 1, batchStride = 0;
};

class EntryChecker {
public:
  EntryChecker(const Program &program, EntryInfo &found)
      : program(program), file(program.file()), entry(*file.entries()->Get(found.index)), found(found) {}

  Status run() {
    found.commands = 0;
    found.reach.assign(program.arenas().size(), 0);
    for (const std::vector<uint32_t> *bound : {&found.inputs, &found.outputs})
      for (uint32_t index : *bound)
        reach(program.tensors()[index].arena, program.tensors()[index].offset + program.tensors()[index].bytes);
    recorded.assign(entry.events(), noStream);
    BRAID_TRY(checkList(*entry.commands(), ""));
    for (auto [event, where] : waited)
      if (recorded[event] == noStream)
        return corrupt("{}: event {} is never recorded", where, event);
    return Status::success();
  }

private:
  static constexpr uint32_t noStream = UINT32_MAX;

  const Program &program;
  const schema::Program &file;
  const schema::Entry &entry;
  EntryInfo &found; // its commands and reach are set
  std::vector<int64_t> counts;    // of the repeats around the current command
  std::vector<uint32_t> recorded; // the stream that records each event
  std::unordered_map<uint32_t, std::string> waited;
  std::unordered_map<uint32_t, LaunchRules> rules; // of the kernels of its launches
  std::string where; // what errors start with

  void reach(uint32_t arena, uint64_t end) { found.reach[arena] = std::max(found.reach[arena], end); }

  Status checkList(const flatbuffers::Vector<flatbuffers::Offset<schema::Command>> &list, const std::string &path) {
    for (flatbuffers::uoffset_t i = 0; i < list.size(); ++i) {
      const schema::Command &command = *list.Get(i);
      std::string here = path + std::to_string(i);
      where = fmt::format("entry '{}' command {}", entry.name()->string_view(), here);
      if (command.name())
        where += fmt::format(" '{}'", command.name()->string_view());
      ++found.commands;
      if (command.joined() && (command.body_type() != schema::Body::Launch || i == 0 ||
                               list.Get(i - 1)->body_type() != schema::Body::Launch))
        return corrupt("{}: only a launch right behind a launch can be joined to it", where);
      BRAID_TRY(checkCommand(command, here));
    }
    return Status::success();
  }

  Status checkCommand(const schema::Command &command, const std::string &path) {
    if (command.stream() >= program.streams().size())
      return corrupt("{}: stream {} of {}", where, command.stream(), program.streams().size());
    if (command.body_type() == schema::Body::NONE || command.body_type() > schema::Body::MAX || !command.body())
      return corrupt("{}: unknown or missing command body (type {})", where, static_cast<int>(command.body_type()));
    BRAID_TRY(checkLayers(command));
    if (command.micro_batch() < -1)
      return corrupt("{}: micro-batch {}; valid: 0 on, or -1 for none", where, command.micro_batch());
    const StreamInfo &stream = program.streams()[command.stream()];
    bool compute = command.stream() == 0;
    if (!stream.axis.empty() && !program.isOn(stream.axis))
      return corrupt("{}: stream {} is of axis '{}', which has no rank of stage {}", where, command.stream(),
                     stream.axis, program.ownStage());
    switch (command.body_type()) {
    case schema::Body::NONE: return Status::success();
    case schema::Body::Launch:
      if (!stream.axis.empty())
        return corrupt("{}: a launch must be on a stream that computes, not on stream {} '{}'", where, command.stream(),
                       stream.name);
      return checkLaunch(*command.body_as_Launch());
    case schema::Body::Gemm: return compute ? checkGemm(*command.body_as_Gemm()) : onlyCompute("gemm", command);
    case schema::Body::GroupedGemm:
      return compute ? checkGroupedGemm(*command.body_as_GroupedGemm()) : onlyCompute("grouped_gemm", command);
    case schema::Body::Collective: return checkCollective(*command.body_as_Collective(), command.stream());
    case schema::Body::Copy: return checkCopy(*command.body_as_Copy());
    case schema::Body::Fill: return checkBuffer("target", *command.body_as_Fill()->target());
    case schema::Body::Record: return checkRecord(*command.body_as_Record(), command.stream());
    case schema::Body::Wait: return checkWait(*command.body_as_Wait());
    case schema::Body::Repeat: return checkRepeat(*command.body_as_Repeat(), path);
    }
    return Status::success();
  }

  // One layer per iteration of the enclosing repeats.
  Status checkLayers(const schema::Command &command) {
    if (!command.layers() || command.layers()->size() == 0)
      return Status::success();
    uint64_t size = command.layers()->size(), iterations = 1;
    for (int64_t count : counts)
      if (iterations <= size)
        iterations *= std::min(static_cast<uint64_t>(count), size + 1);
    if (iterations != size)
      return corrupt("{}: {} layers, but not as many iterations of its {} enclosing repeats", where, size,
                     counts.size());
    return Status::success();
  }

  Status onlyCompute(const char *kind, const schema::Command &command) {
    return corrupt("{}: a {} must be on stream 0, not on stream {} '{}'", where, kind, command.stream(),
                   program.streams()[command.stream()].name);
  }

  // Every byte the buffer stands for in any iteration is inside its arena.
  Status checkBuffer(std::string_view name, const schema::Buffer &buffer) {
    if (buffer.arena() >= program.arenas().size())
      return corrupt("{}: buffer '{}': arena {} of {}", where, name, buffer.arena(), program.arenas().size());
    const ArenaInfo &arena = program.arenas()[buffer.arena()];
    if (arena.stage != entry.stage())
      return corrupt("{}: buffer '{}': arena {} '{}' is of stage {}, but the entry of stage {}", where, name,
                     buffer.arena(), arena.name, arena.stage, entry.stage());
    if (buffer.offset() > arena.bytes || buffer.bytes() > arena.bytes)
      return corrupt("{}: buffer '{}': {} bytes at offset {} leave arena '{}' of {} bytes", where, name, buffer.bytes(),
                     buffer.offset(), arena.name, arena.bytes);
    __int128 low = static_cast<__int128>(buffer.offset()), high = low;
    if (!elementsAligned(buffer.strides()))
      return corrupt("{}: buffer '{}': its strides are not aligned", where, name);
    if (buffer.strides()) {
      if (buffer.strides()->size() > counts.size())
        return corrupt("{}: buffer '{}': {} strides but {} enclosing repeats", where, name, buffer.strides()->size(),
                       counts.size());
      for (flatbuffers::uoffset_t i = 0; i < buffer.strides()->size(); ++i) {
        // |stride| < 2^63 and count <= 2^40: at most 8 such terms stay far below 2^127.
        __int128 reach = static_cast<__int128>(buffer.strides()->Get(i)) * std::max<int64_t>(counts[i] - 1, 0);
        (reach < 0 ? low : high) += reach;
      }
    }
    if (low < 0)
      return corrupt("{}: buffer '{}': its repeats reach {} bytes before arena '{}'", where, name, clamp(-low),
                     arena.name);
    if (high + buffer.bytes() > arena.bytes)
      return corrupt("{}: buffer '{}': its repeats reach byte {} of arena '{}', which has {}", where, name,
                     clamp(high + buffer.bytes()), arena.name, arena.bytes);
    if (buffer.bytes() > 0)
      reach(buffer.arena(), static_cast<uint64_t>(high + buffer.bytes()));
    return Status::success();
  }

  static uint64_t clamp(__int128 value) {
    return value > static_cast<__int128>(UINT64_MAX) ? UINT64_MAX : static_cast<uint64_t>(value);
  }

  // A typed buffer: also aligned in every iteration.
  Status checkTyped(std::string_view name, const schema::Buffer &buffer, schema::DType type) {
    if (type > schema::DType::MAX)
      return corrupt("{}: buffer '{}': unknown dtype {}", where, name, static_cast<int>(type));
    BRAID_TRY(checkBuffer(name, buffer));
    auto size = static_cast<int64_t>(sizeOf(static_cast<DType>(type)));
    bool aligned = buffer.offset() % size == 0 && program.arenas()[buffer.arena()].align % size == 0;
    if (buffer.strides())
      for (int64_t stride : *buffer.strides())
        aligned &= stride % size == 0;
    if (!aligned)
      return corrupt("{}: buffer '{}': offset, strides or arena alignment is not a multiple of the element size {}",
                     where, name, size);
    return Status::success();
  }

  Status checkLaunch(const schema::Launch &launch) {
    if (launch.kernel() >= file.kernels()->size())
      return corrupt("{}: kernel {} of {}", where, launch.kernel(), file.kernels()->size());
    const schema::Kernel &kernel = *file.kernels()->Get(launch.kernel());
    where += fmt::format(" (kernel '{}')", kernel.name()->string_view());
    if (!elementsAligned(launch.grid()))
      return corrupt("{}: the extents of its grid are not aligned", where);
    if (!launch.grid() || launch.grid()->size() != 3)
      return corrupt("{}: a grid has 3 extents, not {}", where, launch.grid() ? launch.grid()->size() : 0);
    unsigned __int128 programs = 1;
    for (uint64_t extent : *launch.grid()) {
      if (extent > uint64_t(maxExtent))
        return corrupt("{}: grid extent {} exceeds {}", where, extent, maxExtent);
      programs *= extent;
    }
    if (programs > uint64_t(maxExtent))
      return corrupt("{}: the grid has more than {} programs", where, maxExtent);

    size_t params = kernel.params() ? kernel.params()->size() : 0;
    size_t args = launch.args() ? launch.args()->size() : 0;
    std::unordered_map<std::string_view, const schema::Arg *> seen;
    std::unordered_map<std::string_view, const schema::Param *> kinds;
    for (size_t i = 0; i < params; ++i)
      kinds.emplace(kernel.params()->Get(i)->name()->string_view(), kernel.params()->Get(i));
    for (size_t i = 0; i < args; ++i) {
      const schema::Arg &arg = *launch.args()->Get(i);
      std::string_view name = arg.name()->string_view();
      auto kind = kinds.find(name);
      if (kind == kinds.end())
        return corrupt("{}: the kernel has no parameter '{}'", where, name);
      if (!seen.emplace(name, &arg).second)
        return corrupt("{}: argument '{}' is given twice", where, name);
      BRAID_TRY(checkArg(arg, name, *kind->second));
    }
    if (args != params)
      for (const auto &[name, kind] : kinds)
        if (!seen.count(name))
          return corrupt("{}: parameter '{}' has no argument ({} arguments for {} parameters)", where, name, args,
                         params);
    std::vector<const schema::Arg *> ordered;
    for (size_t i = 0; i < params; ++i)
      ordered.push_back(seen.at(kernel.params()->Get(i)->name()->string_view()));
    int64_t grid[3];
    std::copy(launch.grid()->begin(), launch.grid()->end(), grid);
    return rulesOf(launch.kernel(), kernel).check(kernel, ordered, grid).withContext(where);
  }

  const LaunchRules &rulesOf(uint32_t index, const schema::Kernel &kernel) {
    auto [found, isNew] = rules.try_emplace(index);
    if (isNew)
      (void)found->second.read(kernel).ok(); // checkKernels() has asked
    return found->second;
  }

  Status checkArg(const schema::Arg &arg, std::string_view name, const schema::Param &param) {
    schema::ParamKind kind = param.kind();
    if (arg.value_type() == schema::Value::NONE || arg.value_type() > schema::Value::MAX || !arg.value())
      return corrupt("{}: argument '{}' has no value", where, name);
    schema::Value wanted = schema::Value::FloatValue; // f32, f64
    if (kind == schema::ParamKind::pointer)
      wanted = schema::Value::BufferValue;
    if (kind == schema::ParamKind::i64)
      wanted = schema::Value::I64Value;
    if (arg.value_type() != wanted)
      return corrupt("{}: argument '{}' is a {} but the parameter is of kind {}", where, name,
                     schema::EnumNameValue(arg.value_type()), schema::EnumNameParamKind(kind));
    if (const auto *value = arg.value_as_BufferValue())
      return checkTyped(name, *value->buffer(), param.type());
    return Status::success();
  }

  Status checkExtent(const char *name, int64_t value, int64_t low) {
    if (value < low || value > maxExtent)
      return corrupt("{}: {} is {}, allowed is {} to {}", where, name, value, low, maxExtent);
    return Status::success();
  }

  Status checkMatrix(const Matrix &matrix) {
    BRAID_TRY(checkTyped(matrix.name, *matrix.buffer, matrix.type));
    if (matrix.leading < matrix.cols || matrix.leading > maxExtent)
      return corrupt("{}: ld{} is {} but a row of '{}' has {} elements", where, matrix.name, matrix.leading,
                     matrix.name, matrix.cols);
    if (matrix.batchStride < 0 || matrix.batchStride > maxExtent)
      return corrupt("{}: batch_stride_{} is {}, allowed is 0 to {}", where, matrix.name, matrix.batchStride,
                     maxExtent);
    if (matrix.rows == 0 || matrix.cols == 0 || matrix.batch == 0)
      return Status::success();
    __int128 elements = static_cast<__int128>(matrix.rows - 1) * matrix.leading + matrix.cols +
                        static_cast<__int128>(matrix.batch - 1) * matrix.batchStride;
    __int128 needed = elements * static_cast<int64_t>(sizeOf(static_cast<DType>(matrix.type)));
    if (needed > static_cast<__int128>(matrix.buffer->bytes()))
      return corrupt("{}: '{}' ({} x {}, ld {}, batch {}) needs {} bytes but its buffer has {}", where, matrix.name,
                     matrix.rows, matrix.cols, matrix.leading, matrix.batch, clamp(needed), matrix.buffer->bytes());
    return Status::success();
  }

  // What is added to C without being C: rows as C's, its type or f32, no byte of it.
  template <typename Product>
  Status checkAddend(const Product &product, int64_t rows, int64_t batch = 1, int64_t batchStride = 0) {
    if (!product.addend())
      return Status::success();
    if (product.accumulate())
      return corrupt("{}: adds an addend and accumulates", where);
    if (product.type_addend() != product.type_c() && product.type_addend() != schema::DType::f32)
      return corrupt("{}: 'addend' is {} but C is {}; valid: that type or f32", where,
                     schema::EnumNameDType(product.type_addend()), schema::EnumNameDType(product.type_c()));
    BRAID_TRY(checkExtent("k", product.k(), 1));
    return checkMatrix(
        {"addend", product.addend(), product.type_addend(), rows, product.n(), product.ldc(), batch, batchStride});
  }

  Status checkGemm(const schema::Gemm &gemm) {
    BRAID_TRY(checkExtent("m", gemm.m(), 0));
    BRAID_TRY(checkExtent("n", gemm.n(), 0));
    BRAID_TRY(checkExtent("k", gemm.k(), 0));
    BRAID_TRY(checkExtent("batch", gemm.batch(), 0));
    auto stored = [](bool transposed, int64_t rows, int64_t cols) {
      return transposed ? std::pair(cols, rows) : std::pair(rows, cols);
    };
    auto [aRows, aCols] = stored(gemm.transpose_a(), gemm.m(), gemm.k());
    auto [bRows, bCols] = stored(gemm.transpose_b(), gemm.k(), gemm.n());
    BRAID_TRY(
        checkMatrix({"a", gemm.a(), gemm.type_a(), aRows, aCols, gemm.lda(), gemm.batch(), gemm.batch_stride_a()}));
    BRAID_TRY(
        checkMatrix({"b", gemm.b(), gemm.type_b(), bRows, bCols, gemm.ldb(), gemm.batch(), gemm.batch_stride_b()}));
    BRAID_TRY(checkMatrix(
        {"c", gemm.c(), gemm.type_c(), gemm.m(), gemm.n(), gemm.ldc(), gemm.batch(), gemm.batch_stride_c()}));
    if (gemm.batch() > 1 && gemm.batch_stride_c() < gemm.n())
      return corrupt("{}: batch_stride_c is {}, so the {} results of {} columns overlap", where, gemm.batch_stride_c(),
                     gemm.batch(), gemm.n());
    return checkAddend(gemm, gemm.m(), gemm.batch(), gemm.batch_stride_addend());
  }

  Status checkGroupedGemm(const schema::GroupedGemm &gemm) {
    if (gemm.kind() > schema::GroupedKind::MAX)
      return corrupt("{}: unknown kind {} of grouped_gemm", where, static_cast<int>(gemm.kind()));
    BRAID_TRY(checkExtent("groups", gemm.groups(), 1));
    BRAID_TRY(checkExtent("max_rows", gemm.max_rows(), 0));
    bool rows = gemm.kind() == schema::GroupedKind::rows;
    // rows: A rows x k, B groups of k x n, C rows x n.  weight: A rows x m, B rows x n, C groups of m x n.
    if (rows)
      BRAID_TRY(checkExtent("k", gemm.k(), 1));
    else
      BRAID_TRY(checkExtent("m", gemm.m(), 1));
    BRAID_TRY(checkExtent("n", gemm.n(), 1));
    int64_t groups = gemm.groups(), bRows = gemm.transpose_b() ? gemm.n() : gemm.k(),
            bCols = gemm.transpose_b() ? gemm.k() : gemm.n();
    if (!rows && gemm.transpose_b())
      return corrupt("{}: transpose_b has no meaning for kind weight", where);
    if (!rows && gemm.addend())
      return corrupt("{}: an addend has no meaning for kind weight", where);
    BRAID_TRY(checkTyped("offsets", *gemm.offsets(), schema::DType::i32));
    if (gemm.offsets()->bytes() < (static_cast<uint64_t>(groups) + 1) * 4)
      return corrupt("{}: 'offsets' of {} groups needs {} bytes but its buffer has {}", where, groups, (groups + 1) * 4,
                     gemm.offsets()->bytes());
    auto grouped = [&](const char *name, const schema::Buffer *buffer, schema::DType type, int64_t r, int64_t c,
                       int64_t leading) -> Status {
      if (leading < 0 || leading > maxExtent || r > maxExtent / std::max<int64_t>(leading, 1))
        return corrupt("{}: '{}' of {} rows with ld {} is out of range", where, name, r, leading);
      return checkMatrix({name, buffer, type, r, c, leading, groups, r * leading});
    };
    BRAID_TRY(checkMatrix({"a", gemm.a(), gemm.type_a(), gemm.max_rows(), rows ? gemm.k() : gemm.m(), gemm.lda()}));
    if (rows) {
      BRAID_TRY(grouped("b", gemm.b(), gemm.type_b(), bRows, bCols, gemm.ldb()));
      BRAID_TRY(checkAddend(gemm, gemm.max_rows()));
      return checkMatrix({"c", gemm.c(), gemm.type_c(), gemm.max_rows(), gemm.n(), gemm.ldc()});
    }
    BRAID_TRY(checkMatrix({"b", gemm.b(), gemm.type_b(), gemm.max_rows(), gemm.n(), gemm.ldb()}));
    return grouped("c", gemm.c(), gemm.type_c(), gemm.m(), gemm.n(), gemm.ldc());
  }

  Status checkCollective(const schema::Collective &collective, uint32_t stream) {
    std::string_view axis = collective.axis()->string_view();
    auto peers = program.mesh().size(axis);
    if (!peers)
      return corrupt("{}: the mesh has no axis '{}'", where, axis);
    if (!program.isOn(axis))
      return corrupt("{}: a collective of axis '{}', which has no rank of stage {}", where, axis, program.ownStage());
    if (stream != 0 && program.streams()[stream].axis != axis)
      return corrupt("{}: a collective of axis '{}' on stream {} of axis '{}'", where, axis, stream,
                     program.streams()[stream].axis);
    if (collective.kind() > schema::CollectiveKind::MAX)
      return corrupt("{}: unknown kind {} of collective", where, static_cast<int>(collective.kind()));
    BRAID_TRY(checkTyped("send", *collective.send(), collective.dtype()));
    BRAID_TRY(checkTyped("recv", *collective.recv(), collective.dtype()));
    unsigned __int128 send = collective.send()->bytes(), recv = collective.recv()->bytes();
    auto need = [&](const char *what, unsigned __int128 wanted, const char *name, unsigned __int128 bytes) -> Status {
      if (wanted == bytes)
        return Status::success();
      return corrupt("{}: {} over {} ranks of '{}': '{}' has {} bytes, expected {}", where, what, *peers, axis, name,
                     clamp(static_cast<__int128>(bytes)), clamp(static_cast<__int128>(wanted)));
    };
    if (collective.distance() < 1 || collective.distance() > INT32_MAX)
      return corrupt("{}: distance {} of a shift", where, collective.distance());
    if ((collective.cyclic() || collective.reverse() || collective.distance() != 1) &&
        collective.kind() != schema::CollectiveKind::shift)
      return corrupt("{}: cyclic, reverse and distance belong to shift, not to {}", where,
                     schema::EnumNameCollectiveKind(collective.kind()));
    switch (collective.kind()) {
    case schema::CollectiveKind::all_reduce:
      BRAID_TRY(checkSum(collective, send));
      return need("all_reduce", send, "recv", recv);
    case schema::CollectiveKind::all_gather: return need("all_gather", send * *peers, "recv", recv);
    case schema::CollectiveKind::reduce_scatter:
      BRAID_TRY(checkSum(collective, recv));
      return need("reduce_scatter", recv * *peers, "send", send);
    case schema::CollectiveKind::shift: {
      // Between two stages a rank may have one end only: the buffer for what it does not send, or get, is empty.
      uint32_t self = program.firstRank(program.ownStage());
      if (axis.find('[') == std::string_view::npos || collective.cyclic() || collective.distance() != 1 || send == recv)
        return need("shift", send, "recv", recv);
      bool sends = (*program.mesh().coordinate(self, axis) == 0) != collective.reverse();
      return need("shift", 0, sends ? "recv" : "send", sends ? recv : send);
    }
    case schema::CollectiveKind::all_to_all: break;
    }
    unsigned __int128 blocks = static_cast<unsigned __int128>(collective.block_bytes()) * *peers;
    if (blocks > send || blocks > recv)
      return corrupt("{}: all_to_all: {} blocks of {} bytes exceed 'send' ({} bytes) or 'recv' ({} bytes)", where,
                     *peers, collective.block_bytes(), collective.send()->bytes(), collective.recv()->bytes());
    if (!collective.send_counts() != !collective.recv_counts())
      return corrupt("{}: all_to_all has only one of send_counts and recv_counts", where);
    if (!collective.send_counts())
      return Status::success();
    uint64_t countBytes = uint64_t(*peers) * collective.counts_per_peer() * 4;
    if (collective.counts_per_peer() == 0 || collective.row_bytes() == 0)
      return corrupt("{}: all_to_all with counts needs counts_per_peer ({}) and row_bytes ({})", where,
                     collective.counts_per_peer(), collective.row_bytes());
    for (auto [name, buffer] :
         {std::pair("send_counts", collective.send_counts()), std::pair("recv_counts", collective.recv_counts())}) {
      BRAID_TRY(checkTyped(name, *buffer, schema::DType::i32));
      if (buffer->bytes() < countBytes)
        return corrupt("{}: '{}' needs {} bytes but its buffer has {}", where, name, countBytes, buffer->bytes());
    }
    return Status::success();
  }

  // Sums exist for every type but u8 and i16, on whole elements.
  Status checkSum(const schema::Collective &collective, unsigned __int128 bytes) {
    auto type = static_cast<DType>(collective.dtype());
    if (type == DType::u8 || type == DType::i16)
      return corrupt("{}: no sum over {}", where, toString(type));
    if (bytes % sizeOf(type))
      return corrupt("{}: {} bytes are not whole elements of {}", where, clamp(static_cast<__int128>(bytes)),
                     toString(type));
    return Status::success();
  }

  Status checkCopy(const schema::Copy &copy) {
    BRAID_TRY(checkBuffer("source", *copy.source()));
    BRAID_TRY(checkBuffer("target", *copy.target()));
    if (copy.source()->bytes() != copy.target()->bytes())
      return corrupt("{}: copy of {} bytes to {} bytes", where, copy.source()->bytes(), copy.target()->bytes());
    return Status::success();
  }

  Status checkRecord(const schema::Record &record, uint32_t stream) {
    if (record.event() >= entry.events())
      return corrupt("{}: event {} of {}", where, record.event(), entry.events());
    if (recorded[record.event()] != noStream && recorded[record.event()] != stream)
      return corrupt("{}: event {} is recorded on stream {} and on stream {}", where, record.event(),
                     recorded[record.event()], stream);
    recorded[record.event()] = stream;
    return Status::success();
  }

  Status checkWait(const schema::Wait &wait) {
    if (wait.event() >= entry.events())
      return corrupt("{}: event {} of {}", where, wait.event(), entry.events());
    waited.emplace(wait.event(), where);
    return Status::success();
  }

  Status checkRepeat(const schema::Repeat &repeat, const std::string &path) {
    if (repeat.count() < 0 || repeat.count() > maxCount)
      return corrupt("{}: repeat count {}, allowed is 0 to {}", where, repeat.count(), maxCount);
    if (counts.size() == maxRepeatDepth)
      return corrupt("{}: repeats nest deeper than {}", where, maxRepeatDepth);
    counts.push_back(repeat.count());
    BRAID_TRY(checkList(*repeat.commands(), path + "."));
    counts.pop_back();
    return Status::success();
  }
};

} // namespace

Status checkEntry(const Program &program, EntryInfo &entry) { return EntryChecker(program, entry).run(); }

} // namespace braid::runtime
