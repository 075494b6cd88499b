#include "runtime/train/Checkpoint.h"

#include "runtime/Bf16.h"
#include "runtime/io/JsonText.h"
#include "runtime/io/Safetensors.h"
#include "runtime/io/Shape.h"
#include "runtime/io/Words.h"
#include "runtime/train/TensorBox.h"
#include "runtime/train/TensorSource.h"

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

} // namespace

std::pair<std::string, std::optional<uint64_t>> splitCheckpoint(std::filesystem::path path) {
  if (!path.has_filename())
    path = path.parent_path();
  return {path.has_parent_path() ? path.parent_path().string() : ".", stepOf(path.filename().string())};
}

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
  if (pathExists(path + "/index.json") || isImported(path))
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
                           pathExists(path) ? "of 'index.json', 'latest', 'model.safetensors' and "
                                              "'model.safetensors.index.json' none is there"
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

// The weights of which this rank has the masters, of the more that it may hold.
std::vector<uint16_t> weightsOf(const LogicalTensor &master, std::span<const uint16_t> held) {
  std::vector<uint16_t> own(master.info->layerElements());
  copyShared({master.roundedOffset, master.roundedShape}, reinterpret_cast<const std::byte *>(held.data()),
             {master.offset, master.localShape}, reinterpret_cast<std::byte *>(own.data()), sizeof(uint16_t));
  return own;
}

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
          MasterSigns signs({second.data, second.bytes}, sizeOf(second.info->dtype));
          for (size_t at = 0; at < low.size(); ++at)
            out[at] = joinMaster({high[at], low[at], signs[at]});
        }));
      } else if (tensor.signsOfMaster) {
        BRAID_TRY(writer.addMade(tensor.name, tensor.dtype, tensor.localShape, [=](std::span<std::byte> bytes) {
          std::copy_n(view.data, view.bytes, bytes.data());
          MasterSigns signs(bytes, sizeOf(view.info->dtype));
          for (size_t at = 0; at < signs.size(); ++at)
            signs.set(at, false);
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
                       const CheckpointState &state, int keep, std::span<const uint64_t> left,
                       const std::map<std::string, std::string> &tokenizerFiles, bool &published) {
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
    for (std::string_view name : CheckpointIndex::tokenizerFiles)
      if (tokenizerFiles.contains(std::string(name)))
        index.tokenizer = name;
    for (const auto &[name, content] : tokenizerFiles) {
      BRAID_TRY(writeFileAtomic(fmt::format("{}/{}", temporary, name), content));
      index.files[name] = {content.size(), contentHash(std::as_bytes(std::span(content)))};
    }
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
                      bool *isComplete, std::span<const uint64_t> left,
                      const std::map<std::string, std::string> &tokenizerFiles) {
  std::string temporary = directory + "/" + std::string(temporaryPrefix) + checkpointName(state.step);
  bool published = false;
  Status status = writeCheckpoint(rank, directory, temporary, state, keep, left, tokenizerFiles, published);
  if (isComplete)
    *isComplete = published;
  // What was begun takes room that a full disk does not have.
  if (!status.ok() && rank.isFirst())
    (void)removeAll(temporary).ok();
  return status;
}

} // namespace braid::runtime
