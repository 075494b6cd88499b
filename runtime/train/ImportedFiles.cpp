#include "runtime/train/ImportedFiles.h"

#include "runtime/io/JsonText.h"
#include "runtime/io/Shape.h"
#include "runtime/io/Words.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ImportedConfig.h"
#include "runtime/train/TensorBox.h"
#include "runtime/train/TensorSource.h"

#include <algorithm>

namespace braid::runtime {

static constexpr std::string_view singleFile = "model.safetensors", indexFile = "model.safetensors.index.json";

bool isImported(const std::string &path) {
  return !pathExists(path + "/index.json") && !pathExists(path + "/latest") && !splitCheckpoint(path).second &&
         (pathExists(path + "/" + std::string(indexFile)) || pathExists(path + "/" + std::string(singleFile)));
}

Expected<std::unique_ptr<ImportedFiles>> ImportedFiles::open(const Program &program, std::string directory) {
  auto map = ImportMap::parse(program.metadata("model_json").value_or(""));
  BRAID_TRY(map.status().withContext(program.path()));
  if (!*map)
    return Status::error("{}: was written by other software, and program {} does not say what that calls its weights; "
                         "valid: a program that was compiled from the config.json beside them, or from a description "
                         "with 'import'",
                         directory, program.path());
  BRAID_TRY(checkConfig(program, directory));
  BRAID_ASSIGN(BlockScales scales, blockScalesOf(directory));
  auto files = std::unique_ptr<ImportedFiles>(new ImportedFiles(program, std::move(directory), **std::move(map)));
  files->scales = scales;
  BRAID_TRY(files->openAll());
  if (scales.isMxfp4)
    BRAID_TRY(files->joinBlocks());
  return files;
}

Status ImportedFiles::openAll() {
  if (pathExists(path + "/" + std::string(singleFile))) // as transformers does where an index lies beside it
    return openFile(std::string(singleFile), nullptr);
  std::string indexPath = path + "/" + std::string(indexFile);
  BRAID_ASSIGN(std::string text, readTextFile(indexPath));
  auto parsed = parseJsonObject(text);
  BRAID_TRY(parsed.status().withContext(indexPath));
  auto named = parsed->find("weight_map");
  if (named == parsed->end() || !named->is_object())
    return Status::error(ErrorCode::corruptFile, "{}: has no object weight_map", indexPath);
  std::map<std::string, std::set<std::string>> names; // of tensors, by file
  for (const auto &[tensor, file] : named->items()) {
    if (!file.is_string() || !isPlainName(file.get<std::string>()))
      return Status::error(ErrorCode::corruptFile, "{}: weight_map['{}'] is {}, not the plain name of a file",
                           indexPath, escaped(tensor), shownValue(file));
    names[file.get<std::string>()].insert(tensor);
  }
  for (const auto &[file, tensors] : names)
    BRAID_TRY(openFile(file, &tensors));
  return Status::success();
}

// Two tensors are what they stand for.
Status ImportedFiles::joinBlocks() {
  std::vector<std::string> names;
  for (const auto &[name, place] : table)
    if (name.ends_with(BlockScales::ofBlocks))
      names.push_back(name.substr(0, name.size() - BlockScales::ofBlocks.size()));
    else if (name.ends_with(BlockScales::ofScales) && place.entry->dtype == DType::u8)
      if (std::string blocks =
              name.substr(0, name.size() - BlockScales::ofScales.size()) + std::string(BlockScales::ofBlocks);
          !table.count(blocks))
        return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' has scales of blocks, but there is no '{}'",
                             place.file->path(), escaped(name), escaped(blocks));
  for (const std::string &name : names) {
    auto blocks = table.find(name + std::string(BlockScales::ofBlocks)),
         scalesOfBlocks = table.find(name + std::string(BlockScales::ofScales));
    auto wrong = [&](std::string_view what) {
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' in mxfp4: {}", blocks->second.file->path(),
                           escaped(name), what);
    };
    if (scalesOfBlocks == table.end())
      return wrong(fmt::format("there is no '{}{}' beside its blocks", escaped(name), BlockScales::ofScales));
    if (table.count(name))
      return wrong("it is there in another type, too");
    auto matrix = BlockScales::join(*blocks->second.entry, *scalesOfBlocks->second.entry);
    if (!matrix)
      return wrong(matrix.status().message());
    joined.push_back(std::make_unique<BlockScales::Matrix>(*std::move(matrix)));
    table.emplace(name, Place{blocks->second.file, &joined.back()->elements});
    scalesOfJoined.emplace(name, Place{scalesOfBlocks->second.file, &joined.back()->scales});
    table.erase(blocks);
    table.erase(scalesOfBlocks);
  }
  return Status::success();
}

Status ImportedFiles::openFile(const std::string &name, const std::set<std::string> *tensors) {
  BRAID_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path + "/" + name));
  opened.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
  const SafetensorsFile &added = *opened.back();
  for (const auto &[tensor, entry] : added.entries())
    if (!tensors || tensors->count(tensor))
      table.emplace(tensor, Place{&added, &entry});
  if (tensors)
    for (const std::string &tensor : *tensors)
      if (!added.find(tensor))
        return Status::error(ErrorCode::corruptFile, "{}: lacks tensor '{}', which {} places there", added.path(),
                             escaped(tensor), indexFile);
  return Status::success();
}

ContentHash ImportedFiles::contents() const {
  ContentHasher hasher;
  for (const auto &[name, place] : table) {
    std::string line = fmt::format("{} {} {} {} {}\n", name, place.file->path().substr(path.size()),
                                   toString(place.entry->dtype), formatShape(place.entry->shape), place.entry->offset);
    hasher.add(std::as_bytes(std::span(line)));
  }
  return hasher.hash();
}

Expected<ImportedFiles::Recipe> ImportedFiles::recipeOf(const LogicalTensor &tensor) const {
  auto [general, layer] = splitLayer(tensor.name);
  auto found = map.weights.find(tensor.name);
  if (found == map.weights.end())
    found = map.weights.find(general);
  if (found == map.weights.end())
    return Status::error(ErrorCode::corruptFile, "{}: its 'import' does not say what '{}' is called elsewhere",
                         program.path(), tensor.name);
  const ImportedTensor &how = found->second;
  bool isOther = !how.otherName.empty() && !table.count(fillName(how.name, layer, 0)) &&
                 table.count(fillName(how.otherName, layer, 0));
  Recipe recipe{&how, isOther ? &how.otherName : &how.name, layer, 1, tensor.shape};
  if (recipe.tensor->ofExperts() && !tensor.shape.empty()) {
    recipe.experts = tensor.shape[0];
    recipe.shape.erase(recipe.shape.begin());
  }
  return recipe;
}

SafetensorsEntry ImportedFiles::Recipe::partOf(const SafetensorsEntry &entry, int64_t expert) const {
  SafetensorsEntry part = entry;
  if (tensor->stacked) {
    part.shape.erase(part.shape.begin());
    part.bytes /= static_cast<uint64_t>(experts);
    part.offset += static_cast<uint64_t>(expert) * part.bytesInFile();
  }
  return part;
}

static bool isScaled(const SafetensorsEntry &entry) { return entry.packed == SafetensorsEntry::Packed::e4m3; }

const ImportedFiles::Place *ImportedFiles::scalesOf(const std::string &name) const {
  if (auto found = scalesOfJoined.find(name); found != scalesOfJoined.end())
    return &found->second;
  if (!isScaled(*table.find(name)->second.entry))
    return nullptr;
  auto found = table.find(name + std::string(BlockScales::suffix));
  return found == table.end() ? nullptr : &found->second;
}

Status ImportedFiles::checkNames(const std::vector<LogicalTensor> &tensors) const {
  std::set<std::string> wanted;
  std::string missing, ofLayer, extra;
  size_t missingCount = 0, extraCount = 0;
  for (const LogicalTensor &tensor : tensors) {
    BRAID_ASSIGN(Recipe recipe, recipeOf(tensor));
    for (int64_t expert = 0; expert < recipe.tensors(); ++expert) {
      std::string name = recipe.nameOf(expert);
      auto found = table.find(name);
      if (found == table.end()) {
        std::string inBlocks = name + std::string(BlockScales::ofBlocks);
        if (!scales.isMxfp4 && table.count(inBlocks))
          return Status::error(
              ErrorCode::corruptFile,
              "{}: holds '{}' in the place of '{}', and no config.json beside it says of which form these blocks "
              "are; valid: one with quantization_config (of gpt-oss quant_method mxfp4)",
              path, escaped(inBlocks), escaped(name));
        if (++missingCount == 1) {
          missing = fmt::format("'{}', which is '{}'", escaped(name), tensor.name);
          if (recipe.layer) // "model.layers.3."
            ofLayer = fillName(recipe.name->substr(0, recipe.name->find("{layer}")) + "{layer}.", recipe.layer, 0);
        }
      } else if (isScaled(*found->second.entry)) {
        std::string ofBlocks = name + std::string(BlockScales::suffix);
        if (!table.count(ofBlocks) && ++missingCount == 1)
          missing = fmt::format("'{}', the scales of blocks of '{}' (F8_E4M3), which is '{}'", escaped(ofBlocks),
                                escaped(name), tensor.name);
        wanted.insert(std::move(ofBlocks));
      }
      wanted.insert(std::move(name));
    }
  }
  std::string instead; // a part of another kind in the layer
  for (const auto &[name, place] : table)
    if (!wanted.count(name) && !map.leaves(name)) {
      if (++extraCount == 1)
        extra = name;
      if (instead.empty() && !ofLayer.empty() && name.starts_with(ofLayer))
        instead =
            fmt::format(". Of this layer it holds '{}', which is no weight of the program; valid: a program whose "
                        "config or description says of this layer what these weights are",
                        escaped(name));
    }
  if (missingCount)
    return Status::error(ErrorCode::corruptFile, "{}: lacks tensor {}{} of program {}{}", path, missing,
                         andMore(missingCount), program.path(), instead);
  if (extraCount)
    return Status::error(ErrorCode::corruptFile,
                         "{}: holds tensor '{}'{}, which is no weight of program {}; what may stay unread says the "
                         "'import' of its description",
                         path, escaped(extra), andMore(extraCount), program.path());
  for (const auto &[one, other] : map.equal)
    BRAID_TRY(checkEqual(one, other));
  return Status::success();
}

// A head that is the embedding may lie there once more; a head of its own is no weight of the program.
Status ImportedFiles::checkEqual(const std::string &one, const std::string &other) const {
  auto first = table.find(one), second = table.find(other);
  if (first == table.end() || second == table.end())
    return Status::success();
  const auto &[a, b] = std::pair(first->second.entry, second->second.entry);
  bool same = a->dtype == b->dtype && a->shape == b->shape;
  std::vector<std::byte> left(a->bytes), right(b->bytes);
  BRAID_TRY(first->second.file->read(*a, left));
  BRAID_TRY(second->second.file->read(*b, right));
  if (!same || left != right)
    return Status::error(ErrorCode::corruptFile,
                         "{}: tensor '{}' is not '{}', which stands for both in program {}; valid: equal ones, or a "
                         "program that has both (a config with tie_word_embeddings false)",
                         path, escaped(one), escaped(other), program.path());
  return Status::success();
}

Status ImportedFiles::check(const LogicalTensor &tensor) const {
  BRAID_ASSIGN(Recipe recipe, recipeOf(tensor));
  if (const std::vector<float> &values = recipe.tensor->values; !values.empty()) {
    bool isRow = !tensor.shape.empty() && tensor.shape.back() == static_cast<int64_t>(values.size());
    if (!isRow || !converts(DType::f32, tensor.dtype))
      return Status::error(ErrorCode::corruptFile, "{}: its 'import' has {} of '{}', which is {} {} in the program",
                           program.path(), counted(values.size(), "value"), tensor.name, toString(tensor.dtype),
                           formatShape(tensor.shape));
  }
  for (int64_t expert = 0; expert < recipe.tensors(); ++expert) {
    auto found = table.find(recipe.nameOf(expert));
    const SafetensorsEntry &entry = *found->second.entry;
    auto wrong = [&](std::string_view what) {
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' {}", found->second.file->path(),
                           escaped(found->first), what);
    };
    if (!converts(entry.dtype, tensor.dtype))
      return wrong(fmt::format("is {}, but '{}' is {} in the program; valid: {}", toString(entry.dtype), tensor.name,
                               toString(tensor.dtype),
                               converts(DType::f32, tensor.dtype) ? "f32, bf16, f16" : toString(tensor.dtype)));
    if (const Place *ofBlocks = scalesOf(found->first); ofBlocks && isScaled(entry)) {
      if (scales.isMxfp4)
        return wrong(
            "is F8_E4M3, but config.json beside it says quant_method mxfp4 (quantization_config); valid: fp8 there");
      if (!scales.rows)
        return wrong(
            fmt::format("is F8_E4M3, and no config.json beside it says of which blocks its scales are; valid: one "
                        "with quantization_config"));
      Status fits = scales.check(*ofBlocks->entry, entry.shape);
      if (!fits.ok())
        return wrong(fits.message());
    }
    if (recipe.tensor->stacked && (entry.shape.empty() || entry.shape[0] != recipe.experts))
      return wrong(fmt::format("has shape {}, whose first dimension is not the {} experts of '{}' in the program",
                               formatShape(entry.shape), recipe.experts, tensor.name));
    auto shape = importedShape(*recipe.tensor, recipe.partOf(entry, expert).shape);
    if (!shape)
      return wrong(fmt::format("{}{}", recipe.tensor->stacked ? "of each expert " : "", shape.status().message()));
    if (!joins(*shape, recipe.shape) || !turns(*recipe.tensor, *shape, recipe.shape))
      return wrong(fmt::format("has shape {}, which makes {}, but '{}'{} is {} in the program",
                               formatShape(entry.shape), formatShape(*shape), tensor.name,
                               recipe.tensor->ofExperts() ? " of an expert" : "", formatShape(recipe.shape)));
  }
  return Status::success();
}

} // namespace braid::runtime
