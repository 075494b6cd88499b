#include "runtime/train/ExportedWeights.h"

#include "runtime/Bf16.h"
#include "runtime/F16.h"
#include "runtime/io/JsonText.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ImportedFiles.h"
#include "runtime/train/TensorBox.h"
#include "runtime/train/TensorSource.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

namespace braid::runtime {

namespace fs = std::filesystem;

namespace {

using Recipe = ImportedFiles::Recipe;

// Weights in files that are not written anew: beside others they would be another model.
bool holdsWeights(std::string_view name) {
  constexpr std::string_view endings[] = {
      ".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf", ".h5", ".msgpack",
      ".onnx"};
  return std::ranges::any_of(endings, [&](std::string_view ending) { return name.ends_with(ending); });
}

// What a tensor of theirs, or an expert's part of it, is made of: a weight of ours, or an expert of it.
struct Filling {
  const LogicalTensor *tensor;
  Recipe recipe;
  int64_t expert;

  std::string words() const {
    return fmt::format("'{}'{}", tensor->name, recipe.tensor->ofExperts() ? fmt::format(" of expert {}", expert) : "");
  }
};

class Exporter {
public:
  Exporter(const Program &program, std::string checkpoint, const std::atomic<bool> *stop)
      : program(program), stop(stop) {
    exported.checkpoint = std::move(checkpoint);
  }

  // All that can be wrong without a look at the numbers.
  Status plan(const std::string &like) {
    BRAID_ASSIGN(files, ImportedFiles::open(program, like));
    BRAID_ASSIGN(source, openWeights(program, exported.checkpoint));
    BRAID_ASSIGN(tensors, modelTensors(program, /*moments=*/false));
    for (LogicalTensor &tensor : tensors) { // whole, and masters where there are some
      tensor.offset.assign(tensor.shape.size(), 0);
      tensor.localShape = tensor.shape;
      if (tensor.dtype == DType::bf16)
        tensor.dtype = DType::f32;
    }
    BRAID_TRY(source->checkNames(tensors, /*moments=*/false));
    BRAID_TRY(files->checkNames(tensors));
    for (const LogicalTensor &tensor : tensors) {
      BRAID_TRY(source->check(tensor));
      BRAID_TRY(files->check(tensor));
      BRAID_ASSIGN(Recipe recipe, files->recipeOf(tensor));
      for (int64_t expert = 0; recipe.tensor->values.empty() && expert < recipe.experts; ++expert)
        fillings[recipe.nameOf(expert)].push_back({&tensor, recipe, expert});
    }
    for (const auto &[name, of] : fillings) {
      if (files->scalesOf(name))
        return Status::error(ErrorCode::unsupported,
                             "{}: tensor '{}' is {}, and weights are not written in that form; valid: a directory "
                             "with the same model in F32, BF16 or F16",
                             files->places().find(name)->second.file->path(), escaped(name),
                             safetensorsName(*files->places().find(name)->second.entry));
      BRAID_TRY(checkRows(name, of));
    }
    for (const auto &[one, other] : files->importMap().equal)
      if (auto found = fillings.find(other); found != fillings.end() && files->places().count(one))
        fillings.try_emplace(one, found->second);
    exported.filled = fillings.size();
    return listFiles();
  }

  Status write(const std::string &target) {
    for (const auto &file : files->files())
      BRAID_TRY(writeWeights(*file, target + "/" + nameOf(*file)));
    for (const std::string &name : exported.copied)
      BRAID_TRY(copyFile(files->directory() + "/" + name, target + "/" + name));
    for (const std::string &name : exported.kept)
      BRAID_TRY(copyFile(exported.checkpoint + "/" + name, target + "/" + name));
    return syncDirectory(target);
  }

  Exported exported;

private:
  static std::string nameOf(const SafetensorsFile &file) { return fs::path(file.path()).filename().string(); }

  // Parts of a tensor that are filled and written one after the other: the experts of a stacked one.
  static int64_t partsOf(const std::vector<Filling> &of) {
    const Recipe &recipe = of[0].recipe;
    return recipe.tensor->stacked ? recipe.experts : 1;
  }

  // Every row, or element, is one weight of ours.
  Status checkRows(const std::string &name, const std::vector<Filling> &of) const {
    const auto &[file, entry] = files->places().find(name)->second;
    auto wrong = [&](std::string_view what) {
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' cannot be written: {}", file->path(), escaped(name),
                           what);
    };
    bool stacked = of[0].recipe.tensor->stacked;
    for (const Filling &filling : of)
      if (filling.recipe.tensor->stacked != stacked)
        return wrong(fmt::format("it is {} and {} of program {}, one of them stacked; valid: both or none",
                                 of[0].words(), filling.words(), program.path()));
    bool byColumns = of[0].recipe.tensor->columns.has_value();
    for (const Filling &filling : of)
      if (filling.recipe.tensor->columns.has_value() != byColumns)
        return wrong(fmt::format("it is {} and {} of program {}, one of them columns of it; valid: both or none",
                                 of[0].words(), filling.words(), program.path()));
    std::string_view unit = byColumns ? "element" : "row";
    for (int64_t part = 0; part < partsOf(of); ++part) {
      const SafetensorsEntry shape = of[0].recipe.partOf(*entry, part);
      std::string whose = stacked ? fmt::format("expert {}'s", part) : "its";
      std::vector<const Filling *> taken(takenUnits(*of[0].recipe.tensor, shape.shape).all());
      for (const Filling &filling : of) {
        if (stacked && filling.expert != part)
          continue;
        TakenUnits units = takenUnits(*filling.recipe.tensor, shape.shape);
        for (size_t group = 0; group < units.groups; ++group)
          for (size_t i = group * units.units + units.first; i < group * units.units + units.last; ++i)
            if (const Filling *before = std::exchange(taken[i], &filling))
              return wrong(fmt::format("{} {} {} is both {} and {} of program {}", whose, unit, i, before->words(),
                                       filling.words(), program.path()));
      }
      auto gap = std::ranges::find(taken, nullptr);
      if (gap == taken.end())
        continue;
      auto behind = std::find_if(gap, taken.end(), [](const Filling *filling) { return filling; });
      return wrong(fmt::format("of {} {} {}s {} to {} are no weight of program {}, as others are {}", whose,
                               taken.size(), unit, gap - taken.begin(), behind - taken.begin() - 1, program.path(),
                               of[0].words()));
    }
    return Status::success();
  }

  Status listFiles() {
    std::set<std::string> ours;
    for (const auto &file : files->files()) {
      ours.insert(nameOf(*file));
      for (const auto &[name, entry] : file->entries())
        if (auto found = files->places().find(name); found == files->places().end() || found->second.entry != &entry)
          return Status::error(ErrorCode::corruptFile,
                               "{}: holds tensor '{}', which the index of {} does not place there", file->path(),
                               escaped(name), files->directory());
      exported.tensors += file->entries().size();
    }
    exported.files = ours.size();
    bool indexed = !ours.count("model.safetensors");
    BRAID_ASSIGN(std::vector<std::string> names, listDirectory(files->directory()));
    for (const std::string &name : names) {
      if (ours.count(name))
        continue;
      std::error_code unknown;
      bool isFile = fs::is_regular_file(files->directory() + "/" + name, unknown);
      bool isIndex = indexed && name == "model.safetensors.index.json";
      (isFile && (isIndex || !holdsWeights(name)) ? exported.copied : exported.left).push_back(name);
    }
    std::string chatTemplate(CheckpointIndex::templateFile);
    if (!isImported(exported.checkpoint) && pathExists(exported.checkpoint + "/" + chatTemplate) &&
        std::ranges::find(names, chatTemplate) == names.end())
      exported.kept.push_back(std::move(chatTemplate));
    return Status::success();
  }

  // Bytes [begin, end) of a file, in pieces.
  static Status copyBytes(const InputFile &from, uint64_t begin, uint64_t end, OutputFile &to) {
    std::vector<std::byte> piece;
    while (begin < end) {
      piece.resize(std::min<uint64_t>(end - begin, uint64_t(1) << 20));
      BRAID_TRY(from.read(begin, piece));
      BRAID_TRY(to.write(piece));
      begin += piece.size();
    }
    return Status::success();
  }

  static Status close(OutputFile &file) {
    BRAID_TRY(file.sync());
    return file.close();
  }

  static Status copyFile(const std::string &from, const std::string &to) {
    BRAID_ASSIGN(InputFile input, InputFile::open(from));
    BRAID_ASSIGN(OutputFile output, OutputFile::create(to));
    BRAID_TRY(copyBytes(input, 0, input.size(), output));
    return close(output);
  }

  // The header is theirs; so are the places of what follows it.
  Status writeWeights(const SafetensorsFile &file, const std::string &to) {
    std::vector<std::pair<const std::string *, const SafetensorsEntry *>> order;
    for (const auto &[name, entry] : file.entries())
      if (entry.bytes > 0)
        order.push_back({&name, &entry});
    std::ranges::sort(order, {}, [](const auto &tensor) { return tensor.second->offset; });
    BRAID_ASSIGN(InputFile input, InputFile::open(file.path()));
    BRAID_ASSIGN(OutputFile output, OutputFile::create(to));
    BRAID_TRY(copyBytes(input, 0, order.empty() ? input.size() : order[0].second->offset, output));
    for (const auto &[name, entry] : order) {
      auto found = fillings.find(*name);
      if (found == fillings.end()) {
        BRAID_TRY(copyBytes(input, entry->offset, entry->offset + entry->bytesInFile(), output));
        continue;
      }
      const std::vector<Filling> &of = found->second;
      for (int64_t part = 0; part < partsOf(of); ++part) {
        const SafetensorsEntry shape = of[0].recipe.partOf(*entry, part);
        made.resize(shape.bytesInFile());
        for (const Filling &filling : of)
          if (!filling.recipe.tensor->stacked || filling.expert == part)
            BRAID_TRY(fill(file, *name, shape, filling));
        BRAID_TRY(output.write(made));
      }
    }
    return close(output);
  }

  // What ImportedWeights reads, in the other direction.
  Status fill(const SafetensorsFile &file, const std::string &name, const SafetensorsEntry &entry,
              const Filling &filling) {
    if (stop && *stop)
      return Status::error("stopped; nothing was written");
    const ImportedTensor &how = *filling.recipe.tensor;
    LogicalTensor wanted = *filling.tensor;
    if (how.ofExperts() && !wanted.shape.empty()) {
      wanted.offset[0] = filling.expert;
      wanted.localShape[0] = 1;
    }
    size_t element = sizeOf(wanted.dtype), count = 1;
    for (int64_t size : wanted.localShape)
      count *= static_cast<size_t>(size);
    values.resize(count * element);
    BRAID_TRY(source->read(wanted, values));
    if (wanted.dtype == DType::f32 && std::ranges::find(exported.notFinite, wanted.name) == exported.notFinite.end() &&
        !std::ranges::all_of(as<float>(values), [](float value) { return std::isfinite(value); }))
      exported.notFinite.push_back(wanted.name);
    if (how.transposed) {
      BRAID_ASSIGN(std::vector<int64_t> taken, importedShape(how, entry.shape));
      size_t rows = static_cast<size_t>(taken.back());
      ordered.resize(values.size());
      transpose(values, ordered.data(), count / rows, rows, element);
      values.swap(ordered);
    }
    if (const Linear back{1 / how.times, -how.plus / how.times}; back != Linear())
      convert(wanted.dtype, values, wanted.dtype, values.data(), back);
    bool isBf16 = wanted.dtype != entry.dtype;
    bool isF16 = entry.packed == SafetensorsEntry::Packed::f16;
    rounded.resize(count * (isF16 ? sizeof(uint16_t) : sizeOf(entry.dtype)));
    if (isF16)
      std::ranges::transform(as<float>(values), as<uint16_t>(rounded).begin(), toF16);
    else
      convert(wanted.dtype, values, entry.dtype, rounded.data());
    for (size_t at = 0; (isF16 || isBf16) && at < count; ++at)
      if (float value = as<float>(values)[at];
          (as<uint16_t>(rounded)[at] & 0x7fff) == (isBf16 ? 0x7f80 : 0x7c00) && std::isfinite(value))
        return Status::error("{}: tensor '{}' is {}, which cannot hold {} of {} (at most {}); valid: a directory whose "
                             "tensors are of another type",
                             file.path(), escaped(name), isBf16 ? "BF16" : "F16", value, filling.words(),
                             isBf16 ? fromBf16(0x7f7f) : fromF16(0x7bff));
    TakenUnits units = takenUnits(how, entry.shape);
    size_t unit = made.empty() ? 0 : made.size() / units.all(), kept = (units.last - units.first) * unit;
    for (size_t group = 0; group < units.groups; ++group)
      std::memcpy(made.data() + (group * units.units + units.first) * unit, rounded.data() + group * kept, kept);
    return Status::success();
  }

  template <typename Element> static std::span<Element> as(std::vector<std::byte> &bytes) {
    return {reinterpret_cast<Element *>(bytes.data()), bytes.size() / sizeof(Element)};
  }

  const Program &program;
  const std::atomic<bool> *stop;
  std::unique_ptr<ImportedFiles> files;
  std::unique_ptr<TensorSource> source;
  std::vector<LogicalTensor> tensors;
  std::map<std::string, std::vector<Filling>, std::less<>> fillings; // by name of theirs
  std::vector<std::byte> values, ordered, rounded, made;
};

// Where the output will stand: what links to an empty directory is that directory.
Expected<fs::path> checkOutput(const std::string &output) {
  std::error_code error;
  fs::file_status status = fs::symlink_status(output, error);
  if (error && status.type() != fs::file_type::not_found)
    return writeError(output, error.value());
  fs::path path = fs::absolute(output, error).lexically_normal();
  if (status.type() != fs::file_type::not_found) {
    if (!fs::is_directory(output, error) || !fs::is_empty(output, error) || error)
      return Status::error("{}: is there, and is no empty directory; valid: a name of its own, or an empty directory",
                           output);
    path = fs::canonical(output, error);
    if (error)
      return writeError(output, error.value());
  }
  return path.has_filename() ? path : path.parent_path();
}

} // namespace

Expected<Exported> exportWeights(const Program &program, const std::string &checkpoint, const std::string &like,
                                 const std::string &output, const std::atomic<bool> *stop) {
  if (!isImported(like))
    return Status::error(ErrorCode::notFound,
                         "{}: is no directory of another software's weights; valid: one with 'model.safetensors' or "
                         "'model.safetensors.index.json' that was written for this model",
                         like);
  BRAID_ASSIGN(fs::path target, checkOutput(output));
  BRAID_ASSIGN(std::string directory, resolveCheckpoint(checkpoint));
  Exporter exporter(program, std::move(directory), stop);
  BRAID_TRY(exporter.plan(like));

  std::string parent = target.parent_path().string();
  std::string temporary = fmt::format("{}/.{}.tmp", parent, target.filename().string());
  BRAID_TRY(makeDirectories(parent));
  BRAID_ASSIGN(TemporaryDirectory held, TemporaryDirectory::make(temporary));
  auto all = [&]() -> Status {
    BRAID_TRY(exporter.write(temporary));
    BRAID_TRY(renamePath(temporary, target.string()));
    return syncDirectory(parent);
  };
  Status status = all();
  if (!status.ok())
    (void)removeAll(temporary).ok();
  BRAID_TRY(status);
  return std::move(exporter.exported);
}

} // namespace braid::runtime
