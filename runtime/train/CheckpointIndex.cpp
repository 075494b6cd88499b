#include "runtime/train/CheckpointIndex.h"

#include "runtime/io/JsonText.h"
#include "runtime/io/Shape.h"

#include <algorithm>
#include <set>

namespace braid::runtime {

namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view formatName = "braid-checkpoint";
constexpr uint64_t formatVersion = 3; // 1 had no hashes, 2 no steps and batches

std::optional<DType> parseDType(std::string_view name) {
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8, DType::i16})
    if (toString(dtype) == name)
      return dtype;
  return std::nullopt;
}

// Reads typed members of one JSON object; remembers the first thing that was wrong, as a JSON path.
class Reader {
public:
  Reader(const nlohmann::json &object, std::string at, Status &status)
      : object(object), at(std::move(at)), status(status) {}

  void read(const char *key, uint64_t &value) {
    if (const nlohmann::json *member = find(key, "a non-negative integer"); member && member->is_number_unsigned())
      value = member->get<uint64_t>();
    else if (member)
      fail(key, "a non-negative integer");
  }
  void read(const char *key, double &value) {
    if (const nlohmann::json *member = find(key, "a number"); member && member->is_number())
      value = member->get<double>();
    else if (member)
      fail(key, "a number");
  }
  void read(const char *key, std::string &value) {
    if (const nlohmann::json *member = find(key, "a string"); member && member->is_string())
      value = member->get<std::string>();
    else if (member)
      fail(key, "a string");
  }
  void read(const char *key, std::vector<int64_t> &value) {
    const nlohmann::json *member = find(key, "an array of non-negative integers");
    if (!member)
      return;
    if (!member->is_array())
      return fail(key, "an array of non-negative integers");
    for (const nlohmann::json &element : *member) {
      if (!element.is_number_unsigned() || element.get<uint64_t>() > uint64_t(1) << 62)
        return fail(key, "an array of non-negative integers");
      value.push_back(element.get<int64_t>());
    }
  }
  void fail(const char *key, std::string_view wanted) {
    if (status.ok())
      status = Status::error(ErrorCode::corruptFile, "{}{}: must be {}", at, key, wanted);
  }

private:
  const nlohmann::json *find(const char *key, std::string_view wanted) {
    auto found = object.find(key);
    if (found != object.end())
      return &*found;
    fail(key, wanted);
    return nullptr;
  }

  const nlohmann::json &object;
  std::string at;
  Status &status;
};

bool overlap(const CheckpointPiece &a, const CheckpointPiece &b) {
  for (size_t d = 0; d < a.shape.size(); ++d)
    if (a.shape[d] == 0 || b.shape[d] == 0 || a.offset[d] + a.shape[d] <= b.offset[d] ||
        b.offset[d] + b.shape[d] <= a.offset[d])
      return false;
  return true;
}

// Every element of the tensor is in exactly one piece.
Status checkPieces(const CheckpointTensor &tensor) {
  std::optional<int64_t> count = elementCount(tensor.shape);
  if (!count)
    return Status::error(ErrorCode::corruptFile, "shape {} is too large", formatShape(tensor.shape));
  int64_t covered = 0;
  for (size_t i = 0; i < tensor.pieces.size(); ++i) {
    const CheckpointPiece &piece = tensor.pieces[i];
    if (!isPlainName(piece.file))
      return Status::error(ErrorCode::corruptFile, "pieces[{}].file: '{}' is not the plain name of a file", i,
                           piece.file);
    if (piece.offset.size() != tensor.shape.size() || piece.shape.size() != tensor.shape.size())
      return Status::error(ErrorCode::corruptFile,
                           "pieces[{}]: offset {} and shape {} do not have the tensor's {} dimensions", i,
                           formatShape(piece.offset), formatShape(piece.shape), tensor.shape.size());
    int64_t elements = 1;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      if (piece.offset[d] > tensor.shape[d] || piece.shape[d] > tensor.shape[d] - piece.offset[d])
        return Status::error(ErrorCode::corruptFile, "pieces[{}]: offset {} and shape {} leave the tensor's shape {}",
                             i, formatShape(piece.offset), formatShape(piece.shape), formatShape(tensor.shape));
      elements *= piece.shape[d]; // at most *count
    }
    for (size_t j = 0; j < i; ++j)
      if (overlap(piece, tensor.pieces[j]))
        return Status::error(ErrorCode::corruptFile, "pieces[{}] and pieces[{}] overlap", j, i);
    covered += elements;
  }
  if (covered != *count)
    return Status::error(ErrorCode::corruptFile, "its pieces hold {} elements, but the shape {} has {}", covered,
                         formatShape(tensor.shape), *count);
  return Status::success();
}

} // namespace

bool isPlainName(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

std::string CheckpointIndex::toJson() const {
  Json json = {{"format", formatName},
               {"version", formatVersion},
               {"program", program},
               {"tokenizer", tokenizer},
               {"step", state.step},
               {"data_position", state.dataPosition},
               {"seed", state.seed},
               {"seq_len", state.seqLen},
               {"max_documents", state.maxDocuments},
               {"corpus_tokens", state.corpusTokens},
               {"corpus_documents", state.corpusDocuments},
               {"corpus_hash", state.corpusHash},
               {"learning_rate", state.learningRate},
               {"min_learning_rate", state.minLearningRate},
               {"warmup_steps", state.warmupSteps},
               {"steps", state.steps},
               {"accumulation_steps", state.accumulationSteps},
               {"step_samples", state.stepSamples}};
  // The model as an object when it is one (comments are dropped), so that people and tools can read it.
  Json model = Json::parse(modelJson, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  json["model"] = model.is_discarded() ? Json(modelJson) : std::move(model);
  std::map<std::string, Json> table;
  for (const auto &[name, tensor] : tensors) {
    Json pieces = Json::array();
    for (const CheckpointPiece &piece : tensor.pieces)
      pieces.push_back({{"file", piece.file}, {"offset", piece.offset}, {"shape", piece.shape}});
    table[name] = {{"role", toString(tensor.role)},
                   {"dtype", toString(tensor.dtype)},
                   {"shape", tensor.shape},
                   {"pieces", std::move(pieces)}};
  }
  // One tensor per line: a person can read and compare it. (An ordered object of thousands would be slow to build.)
  std::string text = json.dump(1, ' ', false, Json::error_handler_t::replace);
  text.resize(text.size() - 2); // "\n}"
  text += ",\n \"tensors\": {";
  const char *separator = "\n  ";
  for (const auto &[name, tensor] : table) {
    text += separator + Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ": " + tensor.dump();
    separator = ",\n  ";
  }
  text += "\n },\n \"files\": {";
  separator = "\n  ";
  for (const auto &[name, content] : files) {
    text +=
        fmt::format("{}{}: {{\"bytes\":{},\"hash\":\"{}\"}}", separator,
                    Json(name).dump(-1, ' ', false, Json::error_handler_t::replace), content.bytes, content.hash.hex());
    separator = ",\n  ";
  }
  return seal(text + "\n }\n}\n");
}

constexpr std::string_view sealBegin = ",\n \"content_hash\": \"", sealEnd = "\"\n}\n";

std::string CheckpointIndex::seal(std::string json) {
  json.resize(json.size() - 3); // "\n}\n"
  std::string hash = contentHash(std::as_bytes(std::span(json))).hex();
  return fmt::format("{}{}{}{}", json, sealBegin, hash, sealEnd);
}

static Status checkSeal(std::string_view text) {
  constexpr size_t digits = 32, sealBytes = sealBegin.size() + digits + sealEnd.size();
  std::string_view sealed = text.size() < sealBytes ? "" : text.substr(text.size() - sealBytes);
  if (!sealed.starts_with(sealBegin) || !sealed.ends_with(sealEnd))
    return Status::error(ErrorCode::corruptFile, "does not end with its content_hash: it is truncated or was changed");
  std::string_view content = text.substr(0, text.size() - sealBytes), written = sealed.substr(sealBegin.size(), digits);
  std::string found = contentHash(std::as_bytes(std::span(content))).hex();
  if (found != written)
    return Status::error(ErrorCode::corruptFile, "is damaged or was changed: its content hash is {}, but was {}", found,
                         written);
  return Status::success();
}

Expected<CheckpointIndex> CheckpointIndex::parse(std::string_view text, const std::string &path) {
  Expected<nlohmann::json> parsed = parseJsonObject(text);
  if (!parsed)
    return parsed.status().withContext(path);
  const nlohmann::json &json = *parsed;
  CheckpointIndex index;
  Status status = Status::success();
  Reader top(json, "", status);
  std::string format;
  uint64_t version = 0, seqLen = 0, maxDocuments = 0;
  top.read("format", format);
  top.read("version", version);
  if (status.ok() && format != formatName)
    return Status::error(ErrorCode::corruptFile, "{}: format is '{}', not '{}'", path, format, formatName);
  if (status.ok() && version != formatVersion)
    return Status::error(ErrorCode::unsupported, "{}: version {}, but this build reads version {}", path, version,
                         formatVersion);
  if (Status intact = checkSeal(text); status.ok() && !intact.ok())
    return intact.withContext(path);
  CheckpointState &state = index.state;
  top.read("program", index.program);
  top.read("tokenizer", index.tokenizer);
  top.read("step", state.step);
  top.read("data_position", state.dataPosition);
  top.read("seed", state.seed);
  top.read("seq_len", seqLen);
  top.read("max_documents", maxDocuments);
  top.read("corpus_tokens", state.corpusTokens);
  top.read("corpus_documents", state.corpusDocuments);
  top.read("corpus_hash", state.corpusHash);
  top.read("learning_rate", state.learningRate);
  top.read("min_learning_rate", state.minLearningRate);
  top.read("warmup_steps", state.warmupSteps);
  top.read("steps", state.steps);
  top.read("accumulation_steps", state.accumulationSteps);
  top.read("step_samples", state.stepSamples);
  state.seqLen = static_cast<int64_t>(seqLen & INT64_MAX);
  state.maxDocuments = static_cast<int64_t>(maxDocuments & INT64_MAX);
  if (auto model = json.find("model"); model != json.end())
    index.modelJson =
        model->is_string() ? model->get<std::string>() : model->dump(-1, ' ', false, Json::error_handler_t::replace);
  auto files = json.find("files");
  if (files == json.end() || !files->is_object())
    top.fail("files", "an object");
  auto tensors = json.find("tensors");
  if (tensors == json.end() || !tensors->is_object())
    top.fail("tensors", "an object");
  if (!status.ok())
    return status.withContext(path);

  for (const auto &item : files->items()) {
    uint64_t bytes = 0;
    std::string hash;
    if (!item.value().is_object())
      return Status::error(ErrorCode::corruptFile, "{}: files['{}'] must be an object", path, item.key());
    Reader reader(item.value(), fmt::format("files['{}'].", item.key()), status);
    reader.read("bytes", bytes);
    reader.read("hash", hash);
    std::optional<ContentHash> known = ContentHash::parse(hash);
    if (!known)
      reader.fail("hash", "32 hexadecimal digits");
    if (!status.ok())
      return status.withContext(path);
    index.files.emplace(item.key(), FileContent{bytes, *known});
  }
  for (const auto &item : tensors->items()) {
    std::string at = fmt::format("tensors['{}'].", item.key());
    const nlohmann::json &value = item.value();
    if (!value.is_object())
      return Status::error(ErrorCode::corruptFile, "{}: tensors['{}'] must be an object", path, item.key());
    CheckpointTensor tensor;
    std::string role, dtype;
    Reader reader(value, at, status);
    reader.read("role", role);
    reader.read("dtype", dtype);
    reader.read("shape", tensor.shape);
    if (role != "parameter" && role != "moment")
      reader.fail("role", "'parameter' or 'moment'");
    tensor.role = role == "moment" ? Role::moment : Role::parameter;
    std::optional<DType> known = parseDType(dtype);
    if (!known)
      reader.fail("dtype", "one of f32, bf16, f64, i32, i64, u8");
    tensor.dtype = known.value_or(DType::f32);
    auto pieces = value.find("pieces");
    if (pieces == value.end() || !pieces->is_array()) {
      reader.fail("pieces", "an array");
      return status.withContext(path);
    }
    for (size_t i = 0; i < pieces->size(); ++i) {
      const nlohmann::json &piece = (*pieces)[i];
      if (!piece.is_object()) {
        reader.fail("pieces", "an array of objects");
        break;
      }
      CheckpointPiece &target = tensor.pieces.emplace_back();
      Reader pieceReader(piece, fmt::format("{}pieces[{}].", at, i), status);
      pieceReader.read("file", target.file);
      pieceReader.read("offset", target.offset);
      pieceReader.read("shape", target.shape);
    }
    if (!status.ok())
      return status.withContext(path);
    for (const CheckpointPiece &piece : tensor.pieces)
      if (isPlainName(piece.file) && !index.files.count(piece.file))
        return Status::error(ErrorCode::corruptFile, "{}: tensors['{}']: its file '{}' is not among the files", path,
                             item.key(), piece.file);
    if (Status covered = checkPieces(tensor); !covered.ok())
      return covered.withContext(fmt::format("{}: tensors['{}']", path, item.key()));
    index.tensors.emplace(item.key(), std::move(tensor));
  }
  return index;
}

// ---- Logical tensors ------------------------------------------------------------------------------------------------

namespace {

Expected<LogicalTensor> describe(const Program &program, const TensorInfo &tensor, uint32_t rank) {
  const MeshInfo &mesh = program.mesh();
  LogicalTensor logical;
  logical.info = &tensor;
  logical.shape = logical.localShape = tensor.shape;
  logical.offset.assign(tensor.shape.size(), 0);
  logical.owned = true;
  // Several axes on one dimension: the first listed is the outermost. `shape` grows from the inside out.
  for (auto shard = tensor.shards.rbegin(); shard != tensor.shards.rend(); ++shard) {
    std::optional<uint32_t> size = mesh.size(shard->axis), coordinate = mesh.coordinate(rank, shard->axis);
    if (!size || !coordinate || shard->dim >= tensor.shape.size())
      return Status::error(ErrorCode::corruptFile,
                           "tensor '{}' is sharded on dimension {} over '{}', which does not exist", tensor.name,
                           shard->dim, shard->axis);
    logical.offset[shard->dim] += static_cast<int64_t>(*coordinate) * logical.shape[shard->dim];
    logical.shape[shard->dim] *= static_cast<int64_t>(*size);
  }
  for (uint32_t lower = 0; lower < rank && logical.owned; ++lower) {
    bool same = program.stageOf(lower) == program.ownStage();
    for (const ShardInfo &shard : tensor.shards)
      same &= mesh.coordinate(lower, shard.axis) == mesh.coordinate(rank, shard.axis);
    logical.owned = !same;
  }
  return logical;
}

bool isSaved(const TensorInfo &tensor, bool moments) {
  bool partOfMaster = tensor.slot == "master" || tensor.slot == "low";
  return tensor.role == Role::parameter || (moments && tensor.role == Role::moment && !partOfMaster);
}

std::string logicalName(const TensorInfo &tensor, size_t layer) {
  if (tensor.role != Role::moment)
    return tensor.layerName(layer);
  std::string name = tensor.of;
  if (size_t hole = name.find("{}"); hole != std::string::npos && !tensor.layers.empty())
    name.replace(hole, 2, std::to_string(tensor.layers[layer]));
  return name + "." + tensor.slot;
}

// What stages before this one have whole: a tensor of several (a tied embedding) is saved by the first.
std::set<std::string> savedBefore(const Program &program, bool moments) {
  std::set<std::string> names;
  for (uint32_t stage = 0; stage < program.ownStage(); ++stage) {
    auto view = program.stage(stage);
    for (const TensorInfo &tensor : view->tensors())
      for (size_t i = 0; i < tensor.layerCount() && isSaved(tensor, moments) && !view->isAcrossStages(tensor); ++i)
        names.insert(logicalName(tensor, i));
  }
  return names;
}

} // namespace

Expected<std::vector<LogicalTensor>> logicalTensors(const Program &file, uint32_t rank, bool moments) {
  const Program &program = *file.ofRank(rank); // which lives as long as the file
  std::set<std::string> before = savedBefore(program, moments);
  std::vector<LogicalTensor> result;
  for (const TensorInfo &tensor : program.tensors()) {
    if (!isSaved(tensor, moments))
      continue;
    BRAID_ASSIGN(LogicalTensor logical, describe(program, tensor, rank));
    logical.role = tensor.role;
    logical.dtype = tensor.dtype;
    const TensorInfo *low = nullptr, *master = nullptr;
    if (moments && tensor.role == Role::parameter && tensor.dtype == DType::bf16) {
      low = program.momentOf(tensor, "low");
      master = low ? low : program.momentOf(tensor, "master");
    }
    if (master) {
      LogicalTensor rounded = std::move(logical);
      BRAID_ASSIGN(logical, describe(program, *master, rank));
      logical.role = tensor.role;
      logical.second = low ? program.momentOf(tensor, "second") : nullptr;
      logical.rounded = &tensor;
      logical.roundedOffset = std::move(rounded.offset);
      logical.roundedShape = std::move(rounded.localShape);
    }
    if (tensor.slot == "second")
      for (const TensorInfo &other : program.tensors())
        logical.signsOfMaster |= other.slot == "low" && other.of == tensor.of && other.layers == tensor.layers;
    for (size_t i = 0; i < tensor.layerCount(); ++i) {
      logical.layer = i;
      logical.name = logicalName(tensor, i);
      result.push_back(logical);
      result.back().owned &= !before.contains(logical.name);
    }
  }
  return result;
}

Expected<std::vector<LogicalTensor>> modelTensors(const Program &program, bool moments) {
  std::vector<LogicalTensor> all;
  for (uint32_t stage = 0; stage < program.stages(); ++stage) {
    BRAID_ASSIGN(std::vector<LogicalTensor> tensors, logicalTensors(program, program.firstRank(stage), moments));
    // The first rank of a stage owns what no stage before has, and its part of what all have.
    auto view = program.stage(stage);
    std::ranges::copy_if(tensors, std::back_inserter(all), [&](const LogicalTensor &tensor) {
      return tensor.owned && (stage == 0 || !view->isAcrossStages(*tensor.info));
    });
  }
  return all;
}

} // namespace braid::runtime
