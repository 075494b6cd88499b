// Loading a checkpoint into a rank: what is to be filled, from which tensors, with the masters that bf16 parameters round.
#include "runtime/Bf16.h"
#include "runtime/io/Safetensors.h"
#include "runtime/io/Shape.h"
#include "runtime/io/Words.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/TensorBox.h"
#include "runtime/train/TensorSource.h"

#include <algorithm>
#include <array>
#include <set>

namespace braid::runtime {

std::string andMore(size_t count) { return count == 1 ? "" : fmt::format(" (and {} more)", count - 1); }

namespace {

// A checkpoint of ours.
class SavedTensors final : public TensorSource {
public:
  static Expected<std::unique_ptr<TensorSource>> open(const Program &program, std::string directory) {
    auto source = std::unique_ptr<SavedTensors>(new SavedTensors(program, std::move(directory)));
    auto parsed = readIndex(source->directory);
    if (!parsed)
      return source->withEarlier(parsed.status());
    source->index = *std::move(parsed);
    return std::unique_ptr<TensorSource>(std::move(source));
  }

  CheckpointState state() const override { return index.state; }

  Status checkNames(const std::vector<LogicalTensor> &tensors, bool moments) override {
    std::set<std::string_view> wanted;
    std::string_view missing, extra;
    size_t missingCount = 0, extraCount = 0;
    for (const LogicalTensor &tensor : tensors) {
      wanted.insert(tensor.name);
      if (!index.tensors.count(tensor.name) && ++missingCount == 1)
        missing = tensor.name;
    }
    for (const auto &[name, tensor] : index.tensors)
      if (!wanted.count(name) && (moments || tensor.role != Role::moment) && ++extraCount == 1)
        extra = name;
    if (missingCount)
      return Status::error(ErrorCode::corruptFile, "{}: lacks tensor '{}'{} of program {}", directory, missing,
                           andMore(missingCount), program.path());
    if (extraCount)
      return Status::error(ErrorCode::corruptFile, "{}: holds tensor '{}'{}, which program {} does not have", directory,
                           extra, andMore(extraCount), program.path());
    return Status::success();
  }

  Status check(const LogicalTensor &tensor) override {
    const CheckpointTensor &saved = find(tensor);
    if (saved.role != tensor.role)
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' is saved as a {}, but is a {} of the program",
                           directory, tensor.name, toString(saved.role), toString(tensor.role));
    if (!converts(saved.dtype, tensor.dtype))
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' is {} in the checkpoint but {} in the program",
                           directory, tensor.name, toString(saved.dtype), toString(tensor.dtype));
    if (saved.shape != tensor.shape)
      return Status::error(ErrorCode::corruptFile,
                           "{}: tensor '{}' has shape {} in the checkpoint but {} in the program", directory,
                           tensor.name, formatShape(saved.shape), formatShape(tensor.shape));
    return Status::success();
  }

  Status read(const LogicalTensor &tensor, std::span<std::byte> out) override {
    const CheckpointTensor &saved = find(tensor);
    DType wanted = tensor.dtype;
    for (const CheckpointPiece &piece : saved.pieces) {
      BRAID_ASSIGN(const SafetensorsFile *file, open(piece.file, index.files.find(piece.file)->second));
      const SafetensorsEntry *entry = file->find(tensor.name);
      if (!entry)
        return Status::error(ErrorCode::corruptFile, "{}: lacks tensor '{}', which index.json places there",
                             file->path(), tensor.name);
      if (entry->dtype != saved.dtype || entry->shape != piece.shape)
        return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' is {} {}, but index.json says {} {}",
                             file->path(), tensor.name, toString(entry->dtype), formatShape(entry->shape),
                             toString(saved.dtype), formatShape(piece.shape));
      bool whole = piece.offset == tensor.offset && piece.shape == tensor.localShape;
      if (whole && saved.dtype == wanted) {
        BRAID_TRY(file->read(*entry, out));
        continue;
      }
      Box target{tensor.offset, tensor.localShape};
      if (!sharesAny({piece.offset, piece.shape}, target))
        continue;
      // Of its first dimension what is asked for, of the others all: that lies together.
      std::vector<int64_t> offset = piece.offset, shape = piece.shape;
      uint64_t first = 0, bytes = entry->bytes;
      if (bytes > 0 && !shape.empty()) {
        int64_t begin = std::max(offset[0], tensor.offset[0]);
        int64_t end = std::min(offset[0] + shape[0], tensor.offset[0] + tensor.localShape[0]);
        uint64_t row = bytes / static_cast<uint64_t>(shape[0]);
        first = static_cast<uint64_t>(begin - offset[0]) * row;
        bytes = static_cast<uint64_t>(end - begin) * row;
        offset[0] = begin;
        shape[0] = end - begin;
      }
      Box source{offset, shape};
      buffer.resize(bytes);
      BRAID_TRY(file->read(*entry, first, buffer));
      if (whole) {
        convert(saved.dtype, buffer, wanted, out.data());
      } else if (saved.dtype == wanted) {
        copyShared(source, buffer.data(), target, out.data(), sizeOf(wanted));
      } else {
        converted.resize(bytes / sizeOf(saved.dtype) * sizeOf(wanted));
        convert(saved.dtype, buffer, wanted, converted.data());
        copyShared(source, converted.data(), target, out.data(), sizeOf(wanted));
      }
    }
    return Status::success();
  }

private:
  SavedTensors(const Program &program, std::string directory) : program(program), directory(std::move(directory)) {}

  const CheckpointTensor &find(const LogicalTensor &tensor) const { return index.tensors.find(tensor.name)->second; }

  // A damaged checkpoint is not the end when an earlier one is beside it.
  Status withEarlier(const Status &status) const {
    auto [parent, step] = splitCheckpoint(directory);
    if (!step)
      return status;
    return Status::error(status.code(), "{}{}", status.message(), describeComplete(parent, *step));
  }

  Expected<const SafetensorsFile *> open(const std::string &name, const FileContent &written) {
    auto opened = openFile(name, written);
    return opened ? opened : withEarlier(opened.status());
  }

  // Each file is read once to check its hash; the tensors come out of the page cache then.
  Expected<const SafetensorsFile *> openFile(const std::string &name, const FileContent &written) {
    auto found = files.find(name);
    if (found == files.end()) {
      std::string path = directory + "/" + name;
      BRAID_ASSIGN(FileContent content, fileContent(path));
      if (content.bytes != written.bytes)
        return Status::error(ErrorCode::corruptFile, "{}: has {}, but index.json says {}", path,
                             counted(content.bytes, "byte"), written.bytes);
      if (content.hash != written.hash)
        return Status::error(ErrorCode::corruptFile, "{}: is damaged: its content hash is {}, but index.json says {}",
                             path, content.hash.hex(), written.hash.hex());
      BRAID_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
      found = files.emplace(name, std::move(file)).first;
    }
    return &found->second;
  }

  const Program &program;
  std::string directory;
  CheckpointIndex index;
  std::map<std::string, SafetensorsFile> files;
  std::vector<std::byte> buffer, converted;
};

class Loader {
public:
  Loader(Rank &rank, TensorSource &source) : rank(rank), source(source) {}

  Status load(Restored what) {
    // A program that only serves has no moments to fill.
    BRAID_ASSIGN(std::vector<LogicalTensor> model, modelTensors(rank.program(), /*moments=*/true));
    auto isMoment = [](const LogicalTensor &tensor) { return tensor.role == Role::moment; };
    if (std::ranges::none_of(model, isMoment))
      what = Restored::weights;
    if (what == Restored::weights) {
      BRAID_ASSIGN(model, modelTensors(rank.program(), /*moments=*/false));
    }
    BRAID_ASSIGN(std::vector<LogicalTensor> tensors,
                 logicalTensors(rank.program(), static_cast<uint32_t>(rank.index()), what != Restored::weights));
    if (what == Restored::masters)
      for (std::vector<LogicalTensor> *list : {&model, &tensors})
        std::erase_if(*list, isMoment);
    BRAID_TRY(source.checkNames(model, what == Restored::all));
    // Masters in parts come last: they set signs of second moments.
    for (bool inParts : {false, true})
      for (const LogicalTensor &tensor : tensors)
        if (inParts == (tensor.second != nullptr))
          BRAID_TRY(fill(tensor));
    return Status::success();
  }

private:
  Status fill(const LogicalTensor &tensor) {
    BRAID_TRY(source.check(tensor));
    TensorView view = rank.session().tensor(*tensor.info).layer(tensor.layer);
    if (tensor.second) {
      masters.resize(view.bytes / sizeof(int16_t));
      BRAID_TRY(source.read(tensor, std::as_writable_bytes(std::span(masters))));
      BRAID_TRY(splitMasters(tensor, view));
    } else {
      BRAID_TRY(source.read(tensor, {view.data, view.bytes}));
    }
    BRAID_TRY(rank.session().toDevice(view));
    if (!tensor.rounded)
      return Status::success();
    if (tensor.roundedOffset != tensor.offset || tensor.roundedShape != tensor.localShape) {
      // Other ranks hold parts of its master: it is rounded from what is saved, as the master is its own.
      LogicalTensor rounded = tensor;
      rounded.info = std::exchange(rounded.rounded, nullptr);
      rounded.second = nullptr;
      rounded.dtype = rounded.info->dtype;
      rounded.offset = tensor.roundedOffset;
      rounded.localShape = tensor.roundedShape;
      return fill(rounded);
    }
    TensorView rounded = rank.session().tensor(*tensor.rounded).layer(tensor.layer);
    std::span<const std::byte> values(view.data, view.bytes);
    convert(tensor.dtype, tensor.second ? std::as_bytes(std::span(masters)) : values, tensor.rounded->dtype,
            rounded.data);
    return rank.session().toDevice(rounded);
  }

  // From `masters` what stands beside the rounded parameter.
  Status splitMasters(const LogicalTensor &tensor, const TensorView &view) {
    TensorView second = rank.session().tensor(*tensor.second).layer(tensor.layer);
    BRAID_TRY(rank.session().toHost(second));
    auto low = view.as<int16_t>();
    MasterSigns signs({second.data, second.bytes}, sizeOf(second.info->dtype));
    for (size_t at = 0; at < masters.size(); ++at) {
      MasterParts parts = splitMaster(masters[at]);
      low[at] = parts.low;
      signs.set(at, parts.above);
    }
    return rank.session().toDevice(second);
  }

  Rank &rank;
  TensorSource &source;
  std::vector<float> masters;
};

// resolveCheckpoint, with the newest of a directory as rank 0 saw it: a training may be writing there.
Expected<std::string> resolveOnAll(Rank &rank, const std::string &path) {
  BRAID_ASSIGN(std::string directory, resolveCheckpoint(path));
  if (rank.worldSize() == 1)
    return directory;
  using Name = std::array<char, 64>; // of a directory in `path`; empty: `path` itself
  Name own{};
  std::vector<Name> all(static_cast<size_t>(rank.worldSize()));
  if (directory != path)
    std::string_view(directory).substr(path.size() + 1).copy(own.data(), own.size() - 1);
  BRAID_TRY(rank.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(all)), "checkpoint name"));
  std::string name = all[0].data();
  if (directory == path || name.empty())
    return directory;
  auto resolved = resolveCheckpoint(path + "/" + name);
  if (!resolved)
    return resolved.status().withContext(
        fmt::format("rank {}: {} is not the --checkpoint of rank 0, which has {}", rank.index(), path, name));
  return resolved;
}

Expected<std::unique_ptr<TensorSource>> openSaved(Rank &rank, const std::string &directory) {
  if (rank.worldSize() > 1) {
    BRAID_ASSIGN(FileContent index, fileContent(directory + "/index.json"));
    const Rank::Value value{"checkpoint (hash of its index.json)", index.hash.hex()};
    BRAID_TRY(rank.agree({&value, 1}, "checkpoint"));
  }
  return SavedTensors::open(rank.program(), directory);
}

} // namespace

Expected<std::unique_ptr<TensorSource>> openWeights(const Program &program, const std::string &directory) {
  return isImported(directory) ? openImported(program, directory) : SavedTensors::open(program, directory);
}

Expected<CheckpointState> loadCheckpoint(Rank &rank, const std::string &path, Restored what) {
  BRAID_ASSIGN(std::string directory, resolveOnAll(rank, path));
  bool imported = isImported(directory);
  if (imported && what == Restored::all)
    return Status::error("{}: holds weights alone, as other software wrote them, and no training to resume; valid: "
                         "train --init-from={}, eval, generate",
                         path, path);
  BRAID_ASSIGN(std::unique_ptr<TensorSource> source,
               imported ? openImported(rank.program(), directory, &rank) : openSaved(rank, directory));
  BRAID_TRY(Loader(rank, *source).load(what));
  return source->state();
}

} // namespace braid::runtime
