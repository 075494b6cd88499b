// Weights as other software wrote them: safetensors files under its own names, with matrices that it keeps transposed,
// several in one, an expert each. What is where says the program (ImportMap.h); each tensor is read and brought into
// order when it is asked for, of experts those that a rank has, whether or not they are stacked in one tensor.
#include "runtime/train/ImportedFiles.h"
#include "runtime/train/TensorBox.h"
#include "runtime/train/TensorSource.h"

#include <algorithm>
#include <cstring>

namespace braid::runtime {

namespace {

class ImportedWeights final : public TensorSource {
public:
  explicit ImportedWeights(std::unique_ptr<ImportedFiles> files) : files(std::move(files)) {}

  CheckpointState state() const override { return {}; }
  Status checkNames(const std::vector<LogicalTensor> &tensors, bool) override { return files->checkNames(tensors); }
  Status check(const LogicalTensor &tensor) override { return files->check(tensor); }

  Status read(const LogicalTensor &tensor, std::span<std::byte> out) override {
    BRAID_ASSIGN(ImportedFiles::Recipe recipe, files->recipeOf(tensor));
    if (const std::vector<float> &values = recipe.tensor->values; !values.empty()) {
      auto mine = std::span(values).subspan(static_cast<size_t>(tensor.offset.back()),
                                            static_cast<size_t>(tensor.localShape.back()));
      for (size_t at = 0, row = mine.size() * sizeOf(tensor.dtype); row && at < out.size(); at += row)
        convert(DType::f32, std::as_bytes(mine), tensor.dtype, out.data() + at);
      return Status::success();
    }
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
  Status readOne(const ImportedFiles::Recipe &recipe, int64_t expert, const Box &target, DType wanted,
                 std::span<std::byte> out) {
    const ImportedFiles::Place &place = files->places().find(recipe.nameOf(expert))->second;
    const ImportedTensor &how = *recipe.tensor;
    const SafetensorsEntry entry = recipe.partOf(*place.entry, expert);
    size_t element = sizeOf(entry.dtype);
    source.resize(entry.bytes);
    BRAID_TRY(place.file->read(entry, source));
    if (const ImportedFiles::Place *ofBlocks = files->scalesOf(recipe.nameOf(expert)))
      BRAID_TRY(scale(entry, *ofBlocks->file, recipe.partOf(*ofBlocks->entry, expert)));
    if ((how.rows || how.columns) && !source.empty()) { // in place: what is kept only moves to the front
      TakenUnits taken = takenUnits(how, entry.shape);
      size_t unit = source.size() / taken.all(), kept = (taken.last - taken.first) * unit;
      for (size_t group = 0; group < taken.groups; ++group)
        std::memmove(source.data() + group * kept, source.data() + (group * taken.units + taken.first) * unit, kept);
      source.resize(taken.groups * kept);
    }
    if (how.transposed && !source.empty()) {
      BRAID_ASSIGN(std::vector<int64_t> taken, importedShape(how, entry.shape));
      size_t rows = static_cast<size_t>(taken.back());
      ordered.resize(source.size());
      transpose(source, ordered.data(), rows, source.size() / element / rows, element);
      source.swap(ordered);
    }
    if (std::ranges::equal(target.shape, recipe.shape)) {
      convert(entry.dtype, source, wanted, out.data(), {how.times, how.plus});
      return Status::success();
    }
    std::vector<int64_t> zeros(recipe.shape.size(), 0);
    part.resize(out.size() / sizeOf(wanted) * element);
    copyShared({zeros, recipe.shape}, source.data(), target, part.data(), element);
    convert(entry.dtype, part, wanted, out.data(), {how.times, how.plus});
    return Status::success();
  }

  // What `source` holds of `entry`, by the scales of its blocks.
  Status scale(const SafetensorsEntry &entry, const SafetensorsFile &file, const SafetensorsEntry &scales) {
    part.resize(scales.bytes);
    BRAID_TRY(file.read(scales, part));
    ordered.resize(scales.bytes / sizeOf(scales.dtype) * sizeof(float));
    convert(scales.dtype, part, DType::f32, ordered.data());
    std::vector<int64_t> stored = entry.shape;
    bool isTurned = entry.packed == SafetensorsEntry::Packed::e2m1;
    if (isTurned)
      std::swap(stored.back(), stored[stored.size() - 2]);
    files->blockScales().apply(stored, ordered, source);
    if (!isTurned || source.empty())
      return Status::success();
    size_t rows = static_cast<size_t>(stored[stored.size() - 2]), columns = static_cast<size_t>(stored.back()),
           bytes = rows * columns * sizeof(float);
    ordered.resize(source.size());
    for (size_t at = 0; at < source.size(); at += bytes)
      transpose(std::span(source).subspan(at, bytes), ordered.data() + at, rows, columns, sizeof(float));
    source.swap(ordered);
    return Status::success();
  }

  std::unique_ptr<ImportedFiles> files;
  std::vector<std::byte> source, ordered, part;
};

} // namespace

Expected<std::unique_ptr<TensorSource>> openImported(const Program &program, const std::string &directory, Rank *rank) {
  BRAID_ASSIGN(std::unique_ptr<ImportedFiles> files, ImportedFiles::open(program, directory));
  if (rank) {
    const Rank::Value value{"checkpoint (hash of what its files hold)", files->contents().hex()};
    BRAID_TRY(rank->agree({&value, 1}, "checkpoint"));
  }
  return std::unique_ptr<TensorSource>(std::make_unique<ImportedWeights>(std::move(files)));
}

} // namespace braid::runtime
