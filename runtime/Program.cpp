#include "runtime/Program.h"

#include "runtime/ContentHash.h"
#include "runtime/ProgramChecks.h"
#include "runtime/io/Words.h"
#include "runtime/schema/ProgramTrailer.h"
#include "runtime/schema/Program_generated.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>

namespace braid::runtime {

size_t sizeOf(DType type) {
  switch (type) {
  case DType::f32: return 4;
  case DType::bf16: return 2;
  case DType::f64: return 8;
  case DType::i32: return 4;
  case DType::i64: return 8;
  case DType::u8: return 1;
  case DType::i16: return 2;
  }
  return 1;
}

std::string_view toString(DType type) {
  switch (type) {
  case DType::f32: return "f32";
  case DType::bf16: return "bf16";
  case DType::f64: return "f64";
  case DType::i32: return "i32";
  case DType::i64: return "i64";
  case DType::u8: return "u8";
  case DType::i16: return "i16";
  }
  return "unknown";
}

std::string_view toString(Role role) {
  switch (role) {
  case Role::parameter: return "parameter";
  case Role::moment: return "moment";
  case Role::gradient: return "gradient";
  case Role::input: return "input";
  case Role::output: return "output";
  case Role::cache: return "cache";
  }
  return "unknown";
}

int64_t TensorInfo::layerElements() const {
  int64_t count = 1;
  for (int64_t extent : shape)
    count *= extent;
  return count;
}

std::string_view TensorInfo::lastComponent() const {
  std::string_view whole = name;
  return whole.substr(whole.rfind('/') + 1); // npos + 1 is 0
}

std::optional<std::string_view> TensorInfo::coordinateAxis() const {
  constexpr std::string_view prefix = "coordinate.";
  std::string_view component = lastComponent();
  if (role != Role::input || !component.starts_with(prefix))
    return std::nullopt;
  return component.substr(prefix.size());
}

std::string TensorInfo::layerName(size_t i) const {
  std::string result = name;
  if (size_t at = result.find("{}"); at != std::string::npos && i < layers.size())
    result.replace(at, 2, std::to_string(layers[i]));
  return result;
}

Program::~Program() = default;

Expected<std::shared_ptr<const Program>> Program::load(const std::string &path, EntryFilter keep) try {
  std::FILE *file = std::fopen(path.c_str(), "rb");
  if (!file)
    return Status::error(ErrorCode::ioError, "{}: {}", path, std::strerror(errno));
  std::vector<std::byte> bytes;
  size_t used = 0;
  while (true) {
    // Doubling from what the file says, so that pipes work too.
    if (used == bytes.size())
      bytes.resize(used ? used * 2 : size_t(1) << 20);
    size_t got = std::fread(bytes.data() + used, 1, bytes.size() - used, file);
    used += got;
    if (got == 0)
      break;
    // A device has no end; what is no program needs none.
    if (used >= 16 && !schema::ProgramBufferHasIdentifier(bytes.data()))
      break;
    if (used >= FLATBUFFERS_MAX_BUFFER_SIZE)
      break;
  }
  bool failed = std::ferror(file);
  std::fclose(file);
  if (failed)
    return Status::error(ErrorCode::ioError, "{}: cannot read (is it a directory?)", path);
  bytes.resize(used);
  bytes.shrink_to_fit();
  return parse(std::move(bytes), path, keep);
} catch (const std::exception &error) {
  return Status::error(ErrorCode::ioError, "{}: {}", path, error.what());
}

Expected<std::shared_ptr<const Program>> Program::parse(std::vector<std::byte> bytes, const std::string &name,
                                                        EntryFilter keep) try {
  auto contents = std::make_shared<Contents>();
  contents->bytes = std::move(bytes);
  contents->path = name;
  Status status = contents->read();
  if (status.ok())
    status = contents->makeViews(keep);
  if (!status.ok())
    return status.withContext(name);
  return contents->views.front()->stage(0);
} catch (const std::exception &error) {
  return Status::error(ErrorCode::corruptFile, "{}: {}", name, error.what());
}

void Program::seal(std::vector<std::byte> &flatbuffer) {
  ContentHash hash = contentHash(flatbuffer);
  for (uint8_t byte : schema::ProgramTrailer{flatbuffer.size(), hash.high, hash.low}.encode())
    flatbuffer.push_back(static_cast<std::byte>(byte));
}

// The flatbuffer rules find damage to the structure; only a hash finds damage to numbers and code.
Status Program::Contents::checkTrailer() {
  constexpr size_t trailerBytes = schema::ProgramTrailer::bytes;
  schema::ProgramTrailer trailer;
  if (bytes.size() < 16 + trailerBytes ||
      !schema::ProgramTrailer::decode(reinterpret_cast<const uint8_t *>(bytes.data()) + bytes.size() - trailerBytes,
                                      trailer))
    return Status::error(ErrorCode::corruptFile,
                         "the file of {} does not end with its content hash: it is truncated, or was written by "
                         "an older braid-compile",
                         counted(bytes.size(), "byte"));
  if (trailer.size != bytes.size() - trailerBytes)
    return Status::error(ErrorCode::corruptFile, "the file is damaged: it has {}, but was written with {}",
                         counted(bytes.size(), "byte"), trailer.size + trailerBytes);
  bytes.resize(bytes.size() - trailerBytes);
  hash = {trailer.hashHigh, trailer.hashLow};
  if (ContentHash found = contentHash(bytes); found != hash)
    return Status::error(ErrorCode::corruptFile, "the file is damaged: its content hash is {}, but was {} when written",
                         found.hex(), hash.hex());
  return Status::success();
}

namespace {

std::string textOf(const flatbuffers::String *string) { return string ? string->str() : std::string(); }

} // namespace

Status Program::Contents::read() {
  auto *data = reinterpret_cast<const uint8_t *>(bytes.data());
  if (bytes.size() < 16)
    return Status::error(ErrorCode::corruptFile, "not a Braid program: {}", counted(bytes.size(), "byte"));
  if (bytes.size() >= FLATBUFFERS_MAX_BUFFER_SIZE)
    return Status::error(ErrorCode::corruptFile, "{} bytes exceed the format's limit of {}", bytes.size(),
                         FLATBUFFERS_MAX_BUFFER_SIZE);
  if (!schema::ProgramBufferHasIdentifier(data))
    return Status::error(ErrorCode::corruptFile,
                         "not a Braid program: the file identifier is not {}; "
                         "braid-compile makes one of a model description",
                         schema::ProgramIdentifier());
  BRAID_TRY(checkTrailer());
  data = reinterpret_cast<const uint8_t *>(bytes.data());
  // A table takes at least 8 bytes in an honest file; shared tables may not make the walk longer than that.
  auto maxTables = static_cast<flatbuffers::uoffset_t>(std::max<size_t>(1 << 16, bytes.size() / 8));
  flatbuffers::Verifier verifier(data, bytes.size(), 64, maxTables);
  if (!schema::VerifyProgramBuffer(verifier))
    return Status::error(ErrorCode::corruptFile, "the file is damaged (flatbuffer verification failed)");
  root = schema::GetProgram(data);
  if (root->version() != 1)
    return Status::error(ErrorCode::unsupported, "program version {}; this runtime reads version 1", root->version());

  version = root->version();
  this->name = textOf(root->name());
  target = textOf(root->target());
  arch = textOf(root->arch());
  if (root->cpu_features())
    for (const auto *feature : *root->cpu_features())
      cpuFeatures.push_back(feature->str());
  if (root->mesh()) {
    auto view = [](const auto *axes, std::vector<AxisInfo> &out) {
      if (axes)
        for (const auto *axis : *axes)
          out.push_back({axis->name()->str(), axis->size()});
    };
    view(root->mesh()->dense(), mesh.dense);
    view(root->mesh()->expert(), mesh.expert);
  }
  for (const auto *kernel : *root->kernels())
    kernels.push_back(kernel->name()->str());
  for (const auto *stream : *root->streams())
    streams.push_back({stream->name()->str(), textOf(stream->axis())});
  if (root->metadata())
    for (const auto *pair : *root->metadata())
      metadata.emplace_back(pair->key()->str(), pair->value()->str());
  return Status::success();
}

Status Program::Contents::makeViews(EntryFilter keep) {
  BRAID_ASSIGN(uint32_t stages, countStages(*root, mesh));
  for (uint32_t stage = 0; stage < stages; ++stage)
    views.emplace_back(new Program(*this, stage));
  for (const auto &view : views) {
    Status status = view->read();
    if (status.ok())
      status = view->check();
    if (!status.ok())
      return stages == 1 ? status : status.withContext(fmt::format("stage {}", view->stageIndex));
    if (keep)
      view->leaveOut(keep);
  }
  if (stages > 1)
    BRAID_TRY(checkTogether(*views.front()));
  return checkCode(*views.front());
}

// countStages() has looked at the indices.
Status Program::read() {
  const schema::Program &file = *common.root;
  auto isOwn = [&](int32_t stage) { return stages() == 1 || static_cast<uint32_t>(stage) == stageIndex; };
  for (const auto *arena : *file.arenas())
    arenaTable.push_back({arena->name()->str(), isOwn(arena->stage()) ? arena->bytes() : 0, arena->align(),
                          isOwn(arena->stage()) ? arena->lower_bound() : 0, arena->stage()});
  std::vector<uint32_t> ownIndex; // of the file's tensors
  for (const auto *tensor : *file.tensors()) {
    ownIndex.push_back(static_cast<uint32_t>(tensorTable.size()));
    if (!isOwn(file.arenas()->Get(tensor->arena())->stage()))
      continue;
    TensorInfo &info = tensorTable.emplace_back();
    info.name = tensor->name()->str();
    info.role = static_cast<Role>(tensor->role());
    info.dtype = static_cast<DType>(tensor->dtype());
    if (!elementsAligned(tensor->shape()))
      return Status::error(ErrorCode::corruptFile, "tensor '{}': the numbers of its shape are not aligned", info.name);
    if (tensor->shape())
      info.shape.assign(tensor->shape()->begin(), tensor->shape()->end());
    info.arena = tensor->arena();
    info.offset = tensor->offset();
    info.bytes = tensor->bytes();
    if (tensor->layers())
      info.layers.assign(tensor->layers()->begin(), tensor->layers()->end());
    if (tensor->shards())
      for (const auto *shard : *tensor->shards())
        info.shards.push_back({shard->dim(), shard->axis()->str()});
    info.of = textOf(tensor->of());
    info.slot = textOf(tensor->slot());
  }
  for (uint32_t index = 0; index < file.entries()->size(); ++index) {
    const auto *entry = file.entries()->Get(index);
    if (!isOwn(entry->stage()))
      continue;
    EntryInfo &info = entryTable.emplace_back();
    info.name = entry->name()->str();
    for (auto [from, to] : {std::pair(entry->inputs(), &info.inputs), {entry->outputs(), &info.outputs}})
      if (from)
        for (uint32_t tensor : *from)
          to->push_back(ownIndex[tensor]);
    info.events = entry->events();
    info.commands = 0;
    info.index = index;
  }
  for (uint32_t i = 0; i < tensorTable.size(); ++i)
    tensorIndex.emplace(tensorTable[i].name, i);
  for (uint32_t i = 0; i < entryTable.size(); ++i)
    entryIndex.emplace(entryTable[i].name, i);
  return Status::success();
}

Status Program::check() {
  BRAID_TRY(checkTables(*this));
  for (EntryInfo &entry : entryTable)
    BRAID_TRY(checkEntry(*this, entry));
  return Status::success();
}

void Program::leaveOut(EntryFilter keep) {
  std::vector<uint64_t> needed = arenaBytes(keep);
  for (size_t i = 0; i < needed.size(); ++i)
    arenaTable[i].bytes = needed[i];
  for (EntryInfo &entry : entryTable)
    entry.kept = keep(entry.name);
}

std::shared_ptr<const Program> Program::stage(uint32_t index) const {
  return {common.shared_from_this(), common.views[index].get()};
}

uint32_t Program::stageOf(uint32_t rank) const {
  return stages() == 1 ? 0 : mesh().coordinate(rank, stageAxis).value_or(0);
}

uint32_t Program::firstRank(uint32_t stage) const { return stages() == 1 ? 0 : (*mesh().members(0, stageAxis))[stage]; }

bool Program::isAcrossStages(const TensorInfo &tensor) const {
  uint32_t own = firstRank(stageIndex), other = firstRank((stageIndex + 1) % stages());
  return std::ranges::any_of(tensor.shards, [&](const ShardInfo &shard) {
    return mesh().coordinate(own, shard.axis) != mesh().coordinate(other, shard.axis);
  });
}

bool Program::isOn(std::string_view axis) const { return mesh().coordinate(firstRank(stageIndex), axis).has_value(); }

std::vector<uint64_t> Program::arenaBytes(EntryFilter keep) const {
  std::vector<uint64_t> bytes(arenaTable.size(), 0);
  for (const EntryInfo &entry : entryTable)
    for (size_t i = 0; keep(entry.name) && i < bytes.size(); ++i)
      bytes[i] = std::max(bytes[i], entry.reach[i]);
  std::vector<bool> touched;
  for (uint64_t reach : bytes)
    touched.push_back(reach > 0);
  for (const TensorInfo &tensor : tensorTable)
    if (tensor.role == Role::parameter ||
        (touched[tensor.arena] && tensor.role != Role::input && tensor.role != Role::output))
      bytes[tensor.arena] = std::max(bytes[tensor.arena], tensor.offset + tensor.bytes);
  return bytes;
}

const TensorInfo *Program::findTensor(std::string_view name) const {
  auto found = tensorIndex.find(name);
  return found == tensorIndex.end() ? nullptr : &tensorTable[found->second];
}

const EntryInfo *Program::findEntry(std::string_view name) const {
  auto found = entryIndex.find(name);
  return found == entryIndex.end() ? nullptr : &entryTable[found->second];
}

std::optional<std::string_view> Program::metadata(std::string_view key) const {
  for (const auto &[name, value] : common.metadata)
    if (name == key)
      return value;
  return std::nullopt;
}

std::string Program::ownKey(std::string_view name) const {
  return stages() == 1 ? std::string(name) : fmt::format("{}.stage{}", name, stageIndex);
}

const TensorInfo *Program::findCompanion(std::string_view parameter, Role role, std::string_view slot) const {
  for (const TensorInfo &tensor : tensorTable)
    if (tensor.role == role && tensor.of == parameter && (slot.empty() || tensor.slot == slot))
      return &tensor;
  return nullptr;
}

const TensorInfo *Program::momentOf(const TensorInfo &parameter, std::string_view slot) const {
  for (const TensorInfo &tensor : tensorTable)
    if (tensor.role == Role::moment && tensor.slot == slot && tensor.of == parameter.name &&
        tensor.layers == parameter.layers)
      return &tensor;
  return nullptr;
}

std::span<const std::byte> Program::code() const {
  if (!file().code())
    return {};
  const auto *code = file().code()->bytes();
  return {reinterpret_cast<const std::byte *>(code->data()), code->size()};
}

std::string_view Program::codeHash() const {
  return file().code() ? std::string_view(file().code()->sha256()->c_str(), file().code()->sha256()->size())
                       : std::string_view();
}

} // namespace braid::runtime
