// Weights as other software wrote them: safetensors files under its own names, with matrices that it keeps transposed,
// several in one, an expert each. What is where says the program (ImportMap.h); each tensor is read and brought into
// order when it is asked for, of experts those that a rank has.
#include "runtime/io/JsonText.h"
#include "runtime/io/Safetensors.h"
#include "runtime/io/Shape.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ImportMap.h"
#include "runtime/train/ImportedConfig.h"
#include "runtime/train/TensorBox.h"
#include "runtime/train/TensorSource.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace braid::runtime {

namespace {

constexpr std::string_view singleFile = "model.safetensors", indexFile = "model.safetensors.index.json";

// Columns of a matrix [rows, columns] become rows; by squares that stay in a cache.
template <typename Element> void transpose(const Element *from, Element *to, size_t rows, size_t columns) {
  constexpr size_t side = 64;
  for (size_t row = 0; row < rows; row += side)
    for (size_t column = 0; column < columns; column += side)
      for (size_t j = column; j < std::min(column + side, columns); ++j)
        for (size_t i = row; i < std::min(row + side, rows); ++i)
          to[j * rows + i] = from[i * columns + j];
}

void transpose(std::span<const std::byte> from, std::byte *to, size_t rows, size_t columns, size_t elementBytes) {
  switch (elementBytes) {
  case 2:
    return transpose(reinterpret_cast<const uint16_t *>(from.data()), reinterpret_cast<uint16_t *>(to), rows, columns);
  case 4:
    return transpose(reinterpret_cast<const uint32_t *>(from.data()), reinterpret_cast<uint32_t *>(to), rows, columns);
  default:
    return transpose(reinterpret_cast<const uint64_t *>(from.data()), reinterpret_cast<uint64_t *>(to), rows, columns);
  }
}

class ImportedWeights final : public TensorSource {
public:
  ImportedWeights(const Program &program, std::string directory, ImportMap map)
      : program(program), directory(std::move(directory)), map(std::move(map)) {}

  CheckpointState state() const override { return {}; }

  // Opens all files; what they hold is known then.
  Status open() {
    if (pathExists(directory + "/" + std::string(singleFile))) // as transformers does where an index lies beside it
      return openFile(std::string(singleFile), nullptr);
    std::string path = directory + "/" + std::string(indexFile);
    BRAID_ASSIGN(std::string text, readTextFile(path));
    auto parsed = parseJsonObject(text);
    BRAID_TRY(parsed.status().withContext(path));
    auto table = parsed->find("weight_map");
    if (table == parsed->end() || !table->is_object())
      return Status::error(ErrorCode::corruptFile, "{}: has no object weight_map", path);
    std::map<std::string, std::set<std::string>> names; // of tensors, by file
    for (const auto &[tensor, file] : table->items()) {
      if (!file.is_string() || !isPlainName(file.get<std::string>()))
        return Status::error(ErrorCode::corruptFile, "{}: weight_map['{}'] is {}, not the plain name of a file", path,
                             escaped(tensor), shownValue(file));
      names[file.get<std::string>()].insert(tensor);
    }
    for (const auto &[file, tensors] : names)
      BRAID_TRY(openFile(file, &tensors));
    return Status::success();
  }

  // What ranks compare.
  ContentHash contents() const {
    ContentHasher hasher;
    for (const auto &[name, place] : places) {
      std::string line =
          fmt::format("{} {} {} {} {}\n", name, place.file->path().substr(directory.size()),
                      toString(place.entry->dtype), formatShape(place.entry->shape), place.entry->offset);
      hasher.add(std::as_bytes(std::span(line)));
    }
    return hasher.hash();
  }

  Status checkNames(const std::vector<LogicalTensor> &tensors, bool) override {
    std::set<std::string> wanted;
    std::string missing, extra;
    size_t missingCount = 0, extraCount = 0;
    for (const LogicalTensor &tensor : tensors) {
      BRAID_ASSIGN(Recipe recipe, recipeOf(tensor));
      for (int64_t expert = 0; expert < recipe.experts; ++expert) {
        std::string name = recipe.nameOf(expert);
        if (!places.count(name) && ++missingCount == 1)
          missing = fmt::format("'{}', which is '{}'", escaped(name), tensor.name);
        wanted.insert(std::move(name));
      }
    }
    for (const auto &[name, place] : places)
      if (!wanted.count(name) && !map.leaves(name) && ++extraCount == 1)
        extra = name;
    if (missingCount)
      return Status::error(ErrorCode::corruptFile, "{}: lacks tensor {}{} of program {}", directory, missing,
                           andMore(missingCount), program.path());
    if (extraCount)
      return Status::error(ErrorCode::corruptFile,
                           "{}: holds tensor '{}'{}, which is no weight of program {}; what may stay unread says the "
                           "'import' of its description",
                           directory, escaped(extra), andMore(extraCount), program.path());
    for (const auto &[one, other] : map.equal)
      BRAID_TRY(checkEqual(one, other));
    return Status::success();
  }

  Status check(const LogicalTensor &tensor) override {
    BRAID_ASSIGN(Recipe recipe, recipeOf(tensor));
    for (int64_t expert = 0; expert < recipe.experts; ++expert) {
      auto found = places.find(recipe.nameOf(expert));
      const SafetensorsEntry &entry = *found->second.entry;
      auto wrong = [&](std::string_view what) {
        return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' {}", found->second.file->path(),
                             escaped(found->first), what);
      };
      if (!converts(entry.dtype, tensor.dtype))
        return wrong(fmt::format("is {}, but '{}' is {} in the program", toString(entry.dtype), tensor.name,
                                 toString(tensor.dtype)));
      auto shape = importedShape(*recipe.tensor, entry.shape);
      if (!shape)
        return wrong(shape.status().message());
      if (!joins(*shape, recipe.shape) || !turns(*recipe.tensor, *shape, recipe.shape))
        return wrong(fmt::format("has shape {}, which makes {}, but '{}'{} is {} in the program",
                                 formatShape(entry.shape), formatShape(*shape), tensor.name,
                                 recipe.tensor->ofExperts() ? " of an expert" : "", formatShape(recipe.shape)));
    }
    return Status::success();
  }

  Status read(const LogicalTensor &tensor, std::span<std::byte> out) override {
    BRAID_ASSIGN(Recipe recipe, recipeOf(tensor));
    if (!recipe.tensor->ofExperts())
      return readOne(recipe, 0, {tensor.offset, tensor.localShape}, tensor.dtype, out);
    std::span offset = std::span(tensor.offset).subspan(1), local = std::span(tensor.localShape).subspan(1);
    int64_t mine = tensor.localShape[0];
    size_t bytes = mine ? out.size() / static_cast<size_t>(mine) : 0;
    for (int64_t expert = 0; expert < mine; ++expert)
      BRAID_TRY(readOne(recipe, tensor.offset[0] + expert, {offset, local}, tensor.dtype,
                        out.subspan(static_cast<size_t>(expert) * bytes, bytes)));
    return Status::success();
  }

private:
  struct Place {
    const SafetensorsFile *file;
    const SafetensorsEntry *entry;
  };

  // How a tensor of the program is made.
  struct Recipe {
    const ImportedTensor *tensor;
    std::optional<int64_t> layer;
    int64_t experts = 1;
    std::vector<int64_t> shape; // of one expert
    std::string nameOf(int64_t expert) const { return tensor->nameOf(layer, expert); }
  };

  // A head that is the embedding may lie there once more; a head of its own is no weight of the program.
  Status checkEqual(const std::string &one, const std::string &other) {
    auto first = places.find(one), second = places.find(other);
    if (first == places.end() || second == places.end())
      return Status::success();
    const auto &[a, b] = std::pair(first->second.entry, second->second.entry);
    bool same = a->dtype == b->dtype && a->shape == b->shape;
    source.resize(a->bytes);
    ordered.resize(b->bytes);
    BRAID_TRY(first->second.file->read(*a, source));
    BRAID_TRY(second->second.file->read(*b, ordered));
    if (!same || source != ordered)
      return Status::error(ErrorCode::corruptFile,
                           "{}: tensor '{}' is not '{}', which stands for both in program {}; valid: equal ones, or a "
                           "program that has both (a config with tie_word_embeddings false)",
                           directory, escaped(one), escaped(other), program.path());
    return Status::success();
  }

  Expected<Recipe> recipeOf(const LogicalTensor &tensor) const {
    auto [general, layer] = splitLayer(tensor.name);
    auto found = map.weights.find(tensor.name);
    if (found == map.weights.end())
      found = map.weights.find(general);
    if (found == map.weights.end())
      return Status::error(ErrorCode::corruptFile, "{}: its 'import' does not say what '{}' is called elsewhere",
                           program.path(), tensor.name);
    Recipe recipe{&found->second, layer, 1, tensor.shape};
    if (recipe.tensor->ofExperts() && !tensor.shape.empty()) {
      recipe.experts = tensor.shape[0];
      recipe.shape.erase(recipe.shape.begin());
    }
    return recipe;
  }

  Status openFile(const std::string &name, const std::set<std::string> *tensors) {
    BRAID_ASSIGN(SafetensorsFile file, SafetensorsFile::open(directory + "/" + name));
    files.push_back(std::make_unique<SafetensorsFile>(std::move(file)));
    const SafetensorsFile &opened = *files.back();
    for (const auto &[tensor, entry] : opened.entries())
      if (!tensors || tensors->count(tensor))
        places.emplace(tensor, Place{&opened, &entry});
    if (tensors)
      for (const std::string &tensor : *tensors)
        if (!opened.find(tensor))
          return Status::error(ErrorCode::corruptFile, "{}: lacks tensor '{}', which {} places there", opened.path(),
                               escaped(tensor), indexFile);
    return Status::success();
  }

  Status readOne(const Recipe &recipe, int64_t expert, const Box &target, DType wanted, std::span<std::byte> out) {
    const Place &place = places.find(recipe.nameOf(expert))->second;
    const ImportedTensor &how = *recipe.tensor;
    const SafetensorsEntry &entry = *place.entry;
    size_t element = sizeOf(entry.dtype);
    source.resize(entry.bytes);
    BRAID_TRY(place.file->read(entry, source));
    if (how.rows) { // in place: what is kept only moves to the front
      size_t groups = static_cast<size_t>(how.groups), ofGroup = source.size() / groups;
      size_t row = ofGroup / static_cast<size_t>(entry.shape[0] / how.groups);
      size_t first = static_cast<size_t>((*how.rows)[0]) * row,
             kept = static_cast<size_t>((*how.rows)[1]) * row - first;
      for (size_t group = 0; group < groups; ++group)
        std::memmove(source.data() + group * kept, source.data() + group * ofGroup + first, kept);
      source.resize(groups * kept);
    }
    if (how.transposed && !source.empty()) {
      BRAID_ASSIGN(std::vector<int64_t> taken, importedShape(how, entry.shape));
      size_t rows = static_cast<size_t>(taken.back());
      ordered.resize(source.size());
      transpose(source, ordered.data(), rows, source.size() / element / rows, element);
      source.swap(ordered);
    }
    if (std::ranges::equal(target.shape, recipe.shape)) {
      convert(entry.dtype, source, wanted, out.data(), static_cast<float>(how.plus));
      return Status::success();
    }
    std::vector<int64_t> zeros(recipe.shape.size(), 0);
    part.resize(out.size() / sizeOf(wanted) * element);
    copyShared({zeros, recipe.shape}, source.data(), target, part.data(), element);
    convert(entry.dtype, part, wanted, out.data(), static_cast<float>(how.plus));
    return Status::success();
  }

  const Program &program;
  std::string directory;
  ImportMap map;
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  std::map<std::string, Place> places; // of every tensor
  std::vector<std::byte> source, ordered, part;
};

} // namespace

bool isImported(const std::string &path) {
  return !pathExists(path + "/index.json") && !pathExists(path + "/latest") && !splitCheckpoint(path).second &&
         (pathExists(path + "/" + std::string(indexFile)) || pathExists(path + "/" + std::string(singleFile)));
}

Expected<std::unique_ptr<TensorSource>> openImported(Rank &rank, const std::string &directory) {
  const Program &program = rank.program();
  auto map = ImportMap::parse(program.metadata("model_json").value_or(""));
  BRAID_TRY(map.status().withContext(program.path()));
  if (!*map)
    return Status::error("{}: was written by other software, and program {} does not say what that calls its weights; "
                         "valid: a program that was compiled from the config.json beside them, or from a description "
                         "with 'import'",
                         directory, program.path());
  BRAID_TRY(checkConfig(program, directory));
  auto source = std::make_unique<ImportedWeights>(program, directory, **std::move(map));
  BRAID_TRY(source->open());
  const Rank::Value value{"checkpoint (hash of what its files hold)", source->contents().hex()};
  BRAID_TRY(rank.agree({&value, 1}, "checkpoint"));
  return std::unique_ptr<TensorSource>(std::move(source));
}

} // namespace braid::runtime
