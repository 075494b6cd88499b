#include "runtime/train/Checkpoint.h"

#include "runtime/Bf16.h"
#include "runtime/io/JsonText.h"
#include "runtime/io/Safetensors.h"
#include "runtime/io/Shape.h"
#include "runtime/io/Words.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fmt/ranges.h>
#include <set>

namespace braid::runtime {

namespace {

constexpr std::string_view stepPrefix = "step-";
constexpr std::string_view temporaryPrefix = ".tmp-";

std::optional<uint64_t> stepOf(std::string_view name) {
  if (!name.starts_with(stepPrefix))
    return std::nullopt;
  name.remove_prefix(stepPrefix.size());
  uint64_t step = 0;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (error != std::errc() || end != name.data() + name.size() ||
      checkpointName(step).substr(stepPrefix.size()) != name)
    return std::nullopt;
  return step;
}

std::string fileName(Role role, uint32_t rank, uint32_t ranks) {
  std::string_view stem = role == Role::moment ? "optimizer" : "model";
  if (ranks == 1)
    return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, rank + 1, ranks);
}

// "c/step-00000100" or "c/step-00000100/": its parent and its step; no step: another directory.
std::pair<std::string, std::optional<uint64_t>> splitCheckpoint(std::filesystem::path path) {
  if (!path.has_filename())
    path = path.parent_path();
  return {path.has_parent_path() ? path.parent_path().string() : ".", stepOf(path.filename().string())};
}

} // namespace

Expected<CheckpointIndex> readIndex(const std::string &checkpoint) {
  std::string path = checkpoint + "/index.json";
  BRAID_ASSIGN(std::string text, readTextFile(path));
  return CheckpointIndex::parse(text, path);
}

namespace {

// The index is whole and every file has its size; hashes are looked at when it is loaded.
bool looksComplete(const std::string &checkpoint) {
  Expected<CheckpointIndex> index = readIndex(checkpoint);
  return index && std::all_of(index->files.begin(), index->files.end(), [&](const auto &file) {
           Expected<InputFile> opened = InputFile::open(checkpoint + "/" + file.first);
           return opened && opened->size() == file.second.bytes;
         });
}

} // namespace

std::string checkpointName(uint64_t step) { return fmt::format("{}{:08}", stepPrefix, step); }

Expected<std::vector<uint64_t>> listCheckpoints(const std::string &directory) {
  std::vector<uint64_t> steps;
  if (!pathExists(directory))
    return steps;
  BRAID_ASSIGN(std::vector<std::string> names, listDirectory(directory));
  for (const std::string &name : names)
    if (std::optional<uint64_t> step = stepOf(name))
      steps.push_back(*step);
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string describeComplete(const std::string &directory, uint64_t below) {
  Expected<std::vector<uint64_t>> steps = listCheckpoints(directory);
  if (!steps)
    return "";
  constexpr size_t most = 8; // the newest; each is read
  std::vector<uint64_t> complete;
  for (auto step = steps->rbegin(); step != steps->rend() && complete.size() < most; ++step)
    if (*step < below && looksComplete(directory + "/" + checkpointName(*step)))
      complete.push_back(*step);
  if (complete.empty())
    return fmt::format("; no {}checkpoint in {} is complete", below == UINT64_MAX ? "" : "earlier ", directory);
  return fmt::format("; complete {}checkpoints in {}: {}; go on from one with train --resume-step={}, or name it with "
                     "--checkpoint={}/{}",
                     below == UINT64_MAX ? "" : "earlier ", directory, fmt::join(complete, ", "), complete.front(),
                     directory, checkpointName(complete.front()));
}

Expected<std::string> resolveCheckpoint(const std::string &path) {
  if (pathExists(path + "/index.json"))
    return path;
  std::error_code unknown;
  if (std::filesystem::is_regular_file(path, unknown))
    return Status::error("{}: is a file; valid: a checkpoint, which is a directory, or a directory of checkpoints",
                         path);
  if (auto [parent, step] = splitCheckpoint(path); step && pathExists(path))
    return Status::error(ErrorCode::notFound, "{}: has no index.json, so it is no whole checkpoint{}", path,
                         describeComplete(parent, *step));
  std::string pointer = path + "/latest";
  if (!pathExists(pointer)) {
    // A run that was killed between its first checkpoint and the pointer: what has its final name is complete.
    BRAID_ASSIGN(std::vector<uint64_t> steps, listCheckpoints(path));
    if (steps.empty())
      return Status::error(ErrorCode::notFound, "{}: holds no checkpoint ({})", path,
                           pathExists(path) ? "neither 'index.json' nor 'latest' is there"
                                            : "there is no such directory");
    return path + "/" + checkpointName(steps.back());
  }
  BRAID_ASSIGN(std::string name, readTextFile(pointer, 4096));
  while (!name.empty() && (name.back() == '\n' || name.back() == '\r' || name.back() == ' '))
    name.pop_back();
  if (!stepOf(name))
    return Status::error(ErrorCode::corruptFile, "{}: holds '{}', which is not the name of a checkpoint{}", pointer,
                         escaped(name.substr(0, 40)), describeComplete(path));
  std::string checkpoint = path + "/" + name;
  if (!pathExists(checkpoint + "/index.json"))
    return Status::error(ErrorCode::notFound, "{}: names {}, which has no index.json{}", pointer, checkpoint,
                         describeComplete(path));
  return checkpoint;
}

namespace {

struct Box {
  std::span<const int64_t> offset, shape;
};

// Copies the elements that two boxes of one tensor share, row by row.
void copyShared(const Box &source, const std::byte *from, const Box &target, std::byte *to, size_t elementBytes) {
  size_t rank = source.shape.size();
  std::vector<int64_t> begin(rank), extent(rank), position(rank, 0);
  for (size_t d = 0; d < rank; ++d) {
    begin[d] = std::max(source.offset[d], target.offset[d]);
    extent[d] = std::min(source.offset[d] + source.shape[d], target.offset[d] + target.shape[d]) - begin[d];
    if (extent[d] <= 0)
      return;
  }
  auto address = [&](const Box &box) {
    int64_t index = 0;
    for (size_t d = 0; d < rank; ++d)
      index = index * box.shape[d] + begin[d] + position[d] - box.offset[d];
    return static_cast<size_t>(index) * elementBytes;
  };
  size_t rowBytes = (rank == 0 ? 1 : static_cast<size_t>(extent[rank - 1])) * elementBytes;
  while (true) {
    std::memcpy(to + address(target), from + address(source), rowBytes);
    size_t d = rank < 2 ? 0 : rank - 1; // the last dimension is the row
    while (d > 0 && ++position[d - 1] == extent[d - 1])
      position[--d] = 0;
    if (d == 0)
      return;
  }
}

// The weights of which this rank has the masters, of the more that it may hold.
std::vector<uint16_t> weightsOf(const LogicalTensor &master, std::span<const uint16_t> held) {
  std::vector<uint16_t> own(master.info->layerElements());
  copyShared({master.roundedOffset, master.roundedShape}, reinterpret_cast<const std::byte *>(held.data()),
             {master.offset, master.localShape}, reinterpret_cast<std::byte *>(own.data()), sizeof(uint16_t));
  return own;
}

constexpr uint32_t signBit = 0x80000000;

} // namespace

// ---- Saving ---------------------------------------------------------------------------------------------------------

namespace {

constexpr Role savedRoles[] = {Role::parameter, Role::moment};

// The contents of a rank's files, as ranks tell each other; without bytes: no such file.
using RankFiles = std::array<FileContent, std::size(savedRoles)>;

Expected<RankFiles> writeRankFiles(Rank &rank, const std::string &directory) {
  Session &session = rank.session();
  uint32_t index = static_cast<uint32_t>(rank.index()), ranks = static_cast<uint32_t>(rank.worldSize());
  BRAID_ASSIGN(std::vector<LogicalTensor> tensors, logicalTensors(rank.program(), index, /*moments=*/true));
  RankFiles files;
  for (size_t i = 0; i < files.size(); ++i) {
    Role role = savedRoles[i];
    SafetensorsWriter writer;
    writer.setMetadata("format", "pt"); // what safetensors readers of other frameworks expect to find
    for (const LogicalTensor &tensor : tensors) {
      if (tensor.role != role || !tensor.owned)
        continue;
      TensorView view = session.tensor(*tensor.info).layer(tensor.layer);
      BRAID_TRY(session.toHost(view));
      if (tensor.second) {
        TensorView weights = session.tensor(*tensor.rounded).layer(tensor.layer),
                   second = session.tensor(*tensor.second).layer(tensor.layer);
        BRAID_TRY(session.toHost(weights));
        BRAID_TRY(session.toHost(second));
        BRAID_TRY(writer.addMade(tensor.name, tensor.dtype, tensor.localShape, [=](std::span<std::byte> bytes) {
          auto *out = reinterpret_cast<float *>(bytes.data());
          std::vector<uint16_t> high = weightsOf(tensor, weights.as<uint16_t>());
          auto low = view.as<int16_t>();
          auto signs = second.as<uint32_t>();
          for (size_t at = 0; at < low.size(); ++at)
            out[at] = joinMaster({high[at], low[at], (signs[at] & signBit) != 0});
        }));
      } else if (tensor.signsOfMaster) {
        BRAID_TRY(writer.addMade(tensor.name, tensor.dtype, tensor.localShape, [=](std::span<std::byte> bytes) {
          auto *out = reinterpret_cast<uint32_t *>(bytes.data());
          for (uint32_t value : view.as<uint32_t>())
            *out++ = value & ~signBit;
        }));
      } else {
        BRAID_TRY(writer.add(tensor.name, tensor.dtype, tensor.localShape, {view.data, view.bytes}));
      }
    }
    if (!writer.empty()) {
      BRAID_ASSIGN(files[i], writer.write(directory + "/" + fileName(role, index, ranks)));
    }
  }
  return files;
}

Expected<CheckpointIndex> makeIndex(const Program &program, const CheckpointState &state,
                                    std::span<const RankFiles> files) {
  CheckpointIndex index;
  index.state = state;
  index.program = program.name();
  index.tokenizer = program.metadata("tokenizer").value_or("bytes");
  index.modelJson = program.metadata("model_json").value_or("");
  uint32_t ranks = program.mesh().worldSize();
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < std::size(savedRoles); ++i)
      if (files[rank][i].bytes > 0)
        index.files.emplace(fileName(savedRoles[i], rank, ranks), files[rank][i]);
    BRAID_ASSIGN(std::vector<LogicalTensor> tensors, logicalTensors(program, rank, /*moments=*/true));
    for (LogicalTensor &tensor : tensors) {
      if (!tensor.owned)
        continue;
      CheckpointTensor &entry = index.tensors[tensor.name];
      entry.role = tensor.role;
      entry.dtype = tensor.dtype;
      entry.shape = tensor.shape;
      entry.pieces.push_back(
          {fileName(entry.role, rank, ranks), std::move(tensor.offset), std::move(tensor.localShape)});
    }
  }
  return index;
}

// A directory of the same step is left over from a run that was killed before `latest` named it; it makes room.
Status publish(const std::string &directory, const std::string &temporary, uint64_t step, bool &published) {
  std::string name = checkpointName(step), target = directory + "/" + name;
  if (pathExists(target)) {
    BRAID_TRY(exchangePaths(temporary, target));
    BRAID_TRY(removeAll(temporary));
  } else {
    BRAID_TRY(renamePath(temporary, target));
  }
  BRAID_TRY(syncDirectory(directory));
  published = true;
  return writeFileAtomic(directory + "/latest", name + "\n")
      .withContext(fmt::format("{}/latest does not name it (--resume-step={} does)", directory, step));
}

// What has the name of a checkpoint is complete, also while it is being removed.
Status removeCheckpoint(const std::string &directory, uint64_t step) {
  std::string name = checkpointName(step), old = directory + "/" + std::string(temporaryPrefix) + "old-" + name;
  if (!pathExists(directory + "/" + name))
    return Status::success();
  BRAID_TRY(removeAll(old));
  BRAID_TRY(renamePath(directory + "/" + name, old));
  return removeAll(old);
}

Status writeCheckpoint(Rank &rank, const std::string &directory, const std::string &temporary,
                       const CheckpointState &state, int keep, std::span<const uint64_t> left, bool &published) {
  if (rank.isFirst()) {
    BRAID_TRY(makeDirectories(directory));
    BRAID_TRY(removeUnfinished(directory));
    BRAID_TRY(makeDirectories(temporary));
  }
  BRAID_TRY(rank.barrier("checkpoint directory"));
  BRAID_ASSIGN(RankFiles own, writeRankFiles(rank, temporary));
  std::vector<RankFiles> files(static_cast<size_t>(rank.worldSize()));
  BRAID_TRY(
      rank.gather(std::as_bytes(std::span(&own, 1)), std::as_writable_bytes(std::span(files)), "checkpoint files"));
  if (rank.isFirst()) {
    BRAID_ASSIGN(CheckpointIndex index, makeIndex(rank.program(), state, files));
    std::string text = index.toJson();
    // The rules of loading hold before anything is replaced: shards that do not cover a tensor end here.
    BRAID_TRY(CheckpointIndex::parse(text, temporary + "/index.json").status());
    BRAID_TRY(writeFileAtomic(temporary + "/index.json", text));
    BRAID_TRY(syncDirectory(temporary));
    BRAID_TRY(publish(directory, temporary, state.step, published));
    for (uint64_t step : left)
      if (step != state.step)
        BRAID_TRY(removeCheckpoint(directory, step).withContext("checkpoints of another end were not removed"));
    BRAID_TRY(pruneCheckpoints(directory, state.step, keep));
  }
  return rank.barrier("checkpoint");
}

} // namespace

Status removeUnfinished(const std::string &directory) {
  BRAID_ASSIGN(std::vector<std::string> names, listDirectory(directory));
  for (const std::string &name : names)
    if (name.starts_with(temporaryPrefix) || name == "latest.tmp")
      BRAID_TRY(removeAll(directory + "/" + name));
  return Status::success();
}

static Status removeOlder(const std::string &directory, uint64_t newest, int keep) {
  BRAID_ASSIGN(std::vector<uint64_t> steps, listCheckpoints(directory));
  std::erase_if(steps, [&](uint64_t step) { return step >= newest; });
  size_t others = static_cast<size_t>(std::max(keep, 1)) - 1;
  for (size_t i = 0; i + others < steps.size(); ++i)
    BRAID_TRY(removeCheckpoint(directory, steps[i]));
  return Status::success();
}

Status pruneCheckpoints(const std::string &directory, uint64_t newest, int keep) {
  return removeOlder(directory, newest, keep).withContext("older checkpoints were not removed");
}

Status saveCheckpoint(Rank &rank, const std::string &directory, const CheckpointState &state, int keep,
                      bool *isComplete, std::span<const uint64_t> left) {
  std::string temporary = directory + "/" + std::string(temporaryPrefix) + checkpointName(state.step);
  bool published = false;
  Status status = writeCheckpoint(rank, directory, temporary, state, keep, left, published);
  if (isComplete)
    *isComplete = published;
  // What was begun takes room that a full disk does not have.
  if (!status.ok() && rank.isFirst())
    (void)removeAll(temporary).ok();
  return status;
}

// ---- Loading --------------------------------------------------------------------------------------------------------

namespace {

std::span<const uint16_t> asBf16(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint16_t *>(bytes.data()), bytes.size() / 2};
}
std::span<const float> asF32(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float *>(bytes.data()), bytes.size() / 4};
}

// f32 and bf16 stand for each other: programs of both kinds read each other's checkpoints.
bool converts(DType from, DType to) {
  return from == to || (from == DType::f32 && to == DType::bf16) || (from == DType::bf16 && to == DType::f32);
}

void convert(DType from, std::span<const std::byte> source, DType to, std::byte *target) {
  if (from == to) {
    std::memcpy(target, source.data(), source.size());
  } else if (from == DType::bf16) {
    auto *out = reinterpret_cast<float *>(target);
    for (uint16_t value : asBf16(source))
      *out++ = fromBf16(value);
  } else {
    auto *out = reinterpret_cast<uint16_t *>(target);
    for (float value : asF32(source))
      *out++ = toBf16(value);
  }
}

class Loader {
public:
  Loader(Rank &rank, std::string directory) : rank(rank), directory(std::move(directory)) {}

  Expected<CheckpointState> load(Restored what) {
    auto parsed = readIndex(directory);
    if (!parsed)
      return withEarlier(parsed.status());
    CheckpointIndex index = *std::move(parsed);
    uint32_t rankIndex = static_cast<uint32_t>(rank.index());
    // A program that only serves has no moments to fill.
    if (std::ranges::none_of(rank.program().tensors(),
                             [](const TensorInfo &tensor) { return tensor.role == Role::moment; }))
      what = Restored::weights;
    BRAID_ASSIGN(std::vector<LogicalTensor> tensors,
                 logicalTensors(rank.program(), rankIndex, what != Restored::weights));
    if (what == Restored::masters)
      std::erase_if(tensors, [](const LogicalTensor &tensor) { return tensor.role == Role::moment; });
    BRAID_TRY(checkNames(index, tensors, what == Restored::all));
    // Masters in parts come last: they set signs of second moments.
    std::stable_partition(tensors.begin(), tensors.end(), [](const LogicalTensor &tensor) { return !tensor.second; });
    for (const LogicalTensor &tensor : tensors)
      BRAID_TRY(fill(tensor, index, index.tensors.find(tensor.name)->second));
    return index.state;
  }

private:
  // A damaged checkpoint is not the end when an earlier one is beside it.
  Status withEarlier(const Status &status) const {
    auto [parent, step] = splitCheckpoint(directory);
    if (!step)
      return status;
    return Status::error(status.code(), "{}{}", status.message(), describeComplete(parent, *step));
  }

  Status checkNames(const CheckpointIndex &index, const std::vector<LogicalTensor> &tensors, bool moments) {
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
                           others(missingCount), rank.program().path());
    if (extraCount)
      return Status::error(ErrorCode::corruptFile, "{}: holds tensor '{}'{}, which program {} does not have", directory,
                           extra, others(extraCount), rank.program().path());
    return Status::success();
  }

  static std::string others(size_t count) { return count == 1 ? "" : fmt::format(" (and {} more)", count - 1); }

  Status fill(const LogicalTensor &tensor, const CheckpointIndex &index, const CheckpointTensor &saved) {
    if (saved.role != tensor.role)
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' is saved as a {}, but is a {} of the program",
                           directory, tensor.name, toString(saved.role), toString(tensor.role));
    DType wanted = tensor.dtype;
    if (!converts(saved.dtype, wanted))
      return Status::error(ErrorCode::corruptFile, "{}: tensor '{}' is {} in the checkpoint but {} in the program",
                           directory, tensor.name, toString(saved.dtype), toString(wanted));
    if (saved.shape != tensor.shape)
      return Status::error(ErrorCode::corruptFile,
                           "{}: tensor '{}' has shape {} in the checkpoint but {} in the program", directory,
                           tensor.name, formatShape(saved.shape), formatShape(tensor.shape));
    TensorView view = rank.session().tensor(*tensor.info).layer(tensor.layer);
    if (tensor.second) {
      masters.resize(view.bytes / sizeof(int16_t));
      BRAID_TRY(read(tensor, index, saved, std::as_writable_bytes(std::span(masters))));
      BRAID_TRY(splitMasters(tensor, view));
    } else {
      BRAID_TRY(read(tensor, index, saved, {view.data, view.bytes}));
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
      return fill(rounded, index, saved);
    }
    TensorView rounded = rank.session().tensor(*tensor.rounded).layer(tensor.layer);
    std::span<const std::byte> values(view.data, view.bytes);
    convert(wanted, tensor.second ? std::as_bytes(std::span(masters)) : values, tensor.rounded->dtype, rounded.data);
    return rank.session().toDevice(rounded);
  }

  // From `masters` what stands beside the rounded parameter.
  Status splitMasters(const LogicalTensor &tensor, const TensorView &view) {
    TensorView second = rank.session().tensor(*tensor.second).layer(tensor.layer);
    BRAID_TRY(rank.session().toHost(second));
    auto low = view.as<int16_t>();
    auto signs = second.as<uint32_t>();
    for (size_t at = 0; at < masters.size(); ++at) {
      MasterParts parts = splitMaster(masters[at]);
      low[at] = parts.low;
      signs[at] = (signs[at] & ~signBit) | (parts.above ? signBit : 0);
    }
    return rank.session().toDevice(second);
  }

  // This rank's piece of a tensor from the pieces in files, as tensor.dtype.
  Status read(const LogicalTensor &tensor, const CheckpointIndex &index, const CheckpointTensor &saved,
              std::span<std::byte> out) {
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
      Box source{piece.offset, piece.shape}, target{tensor.offset, tensor.localShape};
      bool shared = true;
      for (size_t d = 0; d < piece.shape.size(); ++d)
        shared &=
            piece.offset[d] < target.offset[d] + target.shape[d] && target.offset[d] < piece.offset[d] + piece.shape[d];
      if (!shared)
        continue;
      buffer.resize(entry->bytes);
      BRAID_TRY(file->read(*entry, buffer));
      if (whole) {
        convert(saved.dtype, buffer, wanted, out.data());
      } else if (saved.dtype == wanted) {
        copyShared(source, buffer.data(), target, out.data(), sizeOf(wanted));
      } else {
        converted.resize(entry->bytes / sizeOf(saved.dtype) * sizeOf(wanted));
        convert(saved.dtype, buffer, wanted, converted.data());
        copyShared(source, converted.data(), target, out.data(), sizeOf(wanted));
      }
    }
    return Status::success();
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

  Rank &rank;
  std::string directory;
  std::map<std::string, SafetensorsFile> files;
  std::vector<std::byte> buffer, converted;
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

} // namespace

Expected<CheckpointState> loadCheckpoint(Rank &rank, const std::string &path, Restored what) {
  BRAID_ASSIGN(std::string directory, resolveOnAll(rank, path));
  if (rank.worldSize() > 1) {
    BRAID_ASSIGN(FileContent index, fileContent(directory + "/index.json"));
    const Rank::Value value{"checkpoint (hash of its index.json)", index.hash.hex()};
    BRAID_TRY(rank.agree({&value, 1}, "checkpoint"));
  }
  return Loader(rank, directory).load(what);
}

} // namespace braid::runtime
