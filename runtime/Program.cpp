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
  std::shared_ptr<Program> program(new Program());
  program->bytes = std::move(bytes);
  program->filePath = name;
  if (Status status = program->read(); !status.ok())
    return status.withContext(name);
  if (keep) {
    std::vector<uint64_t> needed = program->arenaBytes(keep);
    for (size_t i = 0; i < needed.size(); ++i)
      program->arenaTable[i].bytes = needed[i];
    for (EntryInfo &entry : program->entryTable)
      entry.kept = keep(entry.name);
  }
  return std::shared_ptr<const Program>(std::move(program));
} catch (const std::exception &error) {
  return Status::error(ErrorCode::corruptFile, "{}: {}", name, error.what());
}

void Program::seal(std::vector<std::byte> &flatbuffer) {
  ContentHash hash = contentHash(flatbuffer);
  for (uint8_t byte : schema::ProgramTrailer{flatbuffer.size(), hash.high, hash.low}.encode())
    flatbuffer.push_back(static_cast<std::byte>(byte));
}

// The flatbuffer rules find damage to the structure; only a hash finds damage to numbers and code.
Status Program::checkTrailer() {
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
  writtenHash = {trailer.hashHigh, trailer.hashLow};
  if (ContentHash found = contentHash(bytes); found != writtenHash)
    return Status::error(ErrorCode::corruptFile, "the file is damaged: its content hash is {}, but was {} when written",
                         found.hex(), writtenHash.hex());
  return Status::success();
}

Status Program::read() {
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

  auto text = [](const flatbuffers::String *string) { return string ? string->str() : std::string(); };
  fileVersion = root->version();
  programName = text(root->name());
  targetName = text(root->target());
  archName = text(root->arch());
  if (root->cpu_features())
    for (const auto *feature : *root->cpu_features())
      featureNames.push_back(feature->str());
  for (const auto *arena : *root->arenas())
    arenaTable.push_back({arena->name()->str(), arena->bytes(), arena->align(), arena->lower_bound()});
  if (root->mesh()) {
    auto view = [](const auto *axes, std::vector<AxisInfo> &out) {
      if (axes)
        for (const auto *axis : *axes)
          out.push_back({axis->name()->str(), axis->size()});
    };
    view(root->mesh()->dense(), meshInfo.dense);
    view(root->mesh()->expert(), meshInfo.expert);
  }
  for (const auto *tensor : *root->tensors()) {
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
    info.of = text(tensor->of());
    info.slot = text(tensor->slot());
  }
  for (const auto *kernel : *root->kernels())
    kernelNames.push_back(kernel->name()->str());
  for (const auto *stream : *root->streams())
    streamTable.push_back({stream->name()->str(), text(stream->axis())});
  for (const auto *entry : *root->entries()) {
    EntryInfo &info = entryTable.emplace_back();
    info.name = entry->name()->str();
    if (entry->inputs())
      info.inputs.assign(entry->inputs()->begin(), entry->inputs()->end());
    if (entry->outputs())
      info.outputs.assign(entry->outputs()->begin(), entry->outputs()->end());
    info.events = entry->events();
    info.commands = 0;
  }
  if (root->metadata())
    for (const auto *pair : *root->metadata())
      metadataTable.emplace_back(pair->key()->str(), pair->value()->str());
  for (uint32_t i = 0; i < tensorTable.size(); ++i)
    tensorIndex.emplace(tensorTable[i].name, i);
  for (uint32_t i = 0; i < entryTable.size(); ++i)
    entryIndex.emplace(entryTable[i].name, i);

  BRAID_TRY(checkTables(*this));
  for (uint32_t i = 0; i < entryTable.size(); ++i) {
    BRAID_TRY(checkEntry(*this, i, entryTable[i]));
  }
  return checkCode(*this);
}

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
  for (const auto &[name, value] : metadataTable)
    if (name == key)
      return value;
  return std::nullopt;
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
  if (!root->code())
    return {};
  const auto *code = root->code()->bytes();
  return {reinterpret_cast<const std::byte *>(code->data()), code->size()};
}

std::string_view Program::codeHash() const {
  return root->code() ? std::string_view(root->code()->sha256()->c_str(), root->code()->sha256()->size())
                      : std::string_view();
}

} // namespace braid::runtime
