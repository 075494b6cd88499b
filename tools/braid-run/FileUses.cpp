#include "tools/braid-run/FileUses.h"

#include "runtime/train/TensorSource.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <sys/stat.h>

namespace braid::run {

using runtime::Status;

namespace fs = std::filesystem;

namespace {

// What tells one file from another: device and inode of one that is there, else where its name leads.
struct Place {
  bool matters = true; // false: a device or a pipe
  std::pair<uint64_t, uint64_t> inode;
  std::string path;
  auto key() const { return std::tuple(inode, inode.second ? std::string() : path); }
};

Place placeOf(const struct stat &info) {
  return {S_ISREG(info.st_mode) || S_ISDIR(info.st_mode), {info.st_dev, info.st_ino}, ""};
}

std::string fullPath(const std::string &path) {
  std::error_code error;
  fs::path full = fs::weakly_canonical(fs::absolute(path), error); // a relative one may stay as it is
  return error ? path : full.string();
}

Place placeOf(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 ? placeOf(info) : Place{true, {}, fullPath(path)};
}

// The parts of `path` below `directory`; nothing: it is not below.
std::optional<fs::path> below(const std::string &directory, const std::string &path) {
  fs::path outer = fullPath(directory), inner = fullPath(path);
  auto [atOuter, atInner] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (atOuter != outer.end() || atInner == inner.end())
    return std::nullopt;
  fs::path rest;
  for (; atInner != inner.end(); ++atInner)
    rest /= *atInner;
  return rest;
}

bool isHidden(const fs::path &path) {
  return std::any_of(path.begin(), path.end(), [](const fs::path &part) { return part.string().starts_with('.'); });
}

// Names that belong to the checkpoints of a directory (runtime/train/Checkpoint.h).
bool isCheckpointName(const std::string &name) {
  return name.starts_with("step-") || name.starts_with(".tmp-") || name == "latest" || name == "latest.tmp" ||
         name == ".lock";
}

std::string_view describe(FileUses::Kind kind) {
  switch (kind) {
  case FileUses::Kind::any: return "a file";
  case FileUses::Kind::array: return "an array (NPY)";
  case FileUses::Kind::metrics: return "metrics (JSON Lines)";
  case FileUses::Kind::trace: return "a trace";
  }
  return "";
}

bool isOfKind(std::string_view begin, FileUses::Kind kind) {
  switch (kind) {
  case FileUses::Kind::any: return true;
  case FileUses::Kind::array: return begin.starts_with("\x93NUMPY");
  case FileUses::Kind::metrics:
    return begin.starts_with('{') && begin.substr(0, begin.find('\n')).find("\"step\"") != begin.npos;
  case FileUses::Kind::trace: return begin.find("\"traceEvents\"") != begin.npos;
  }
  return false;
}

// A file that may be replaced: there is none, it is of that kind, or it is empty. One that cannot be read is not.
bool isReplaceable(const std::string &path, FileUses::Kind kind) {
  std::error_code error;
  if (kind == FileUses::Kind::any || !fs::is_regular_file(path, error) || fs::file_size(path, error) == 0)
    return true;
  std::string begin(size_t(1) << 16, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return isOfKind(begin, kind);
}

} // namespace

void FileUses::reads(const std::string &flag, const std::string &path) { inputs.push_back({flag, path}); }
void FileUses::readsAll(const std::string &flag, const std::string &directory) {
  std::error_code error;
  if (fs::is_directory(directory, error))
    dataDirectories.push_back({flag, directory});
}
void FileUses::writes(const std::string &flag, const std::string &path, Kind kind) {
  outputs.push_back({flag, path, kind});
}
void FileUses::readsCheckpoints(const std::string &flag, const std::string &directory) {
  checkpointDirectories.push_back({flag, directory});
  std::error_code error;
  bool imported = runtime::isImported(directory); // its config and tokenizer are nobody's outputs either
  for (const fs::directory_entry &entry : fs::recursive_directory_iterator(directory, error))
    if (std::string name = entry.path().filename().string();
        (imported && !entry.is_directory(error)) || isCheckpointName(name) ||
        isCheckpointName(entry.path().parent_path().filename().string()) || name.ends_with(".safetensors") ||
        name.ends_with(".safetensors.index.json"))
      inputs.push_back({flag, entry.path().string()});
}
void FileUses::writesCheckpoints(const std::string &flag, const std::string &directory) {
  readsCheckpoints(flag, directory);
  checkpointOutputs.push_back({flag, directory});
}

Status FileUses::check() const {
  auto same = [](const Use &written, const Use &other) {
    if (written.path == other.path)
      return Status::error("{} and {} both name {}: what one needs the other would overwrite", written.flag, other.flag,
                           written.path);
    return Status::error("{} {} and {} {} are the same file: what one needs the other would overwrite", written.flag,
                         written.path, other.flag, other.path);
  };
  std::map<decltype(Place().key()), const Use *> seen;
  for (const Use &input : inputs)
    if (Place place = placeOf(input.path); place.matters)
      seen.emplace(place.key(), &input);
  for (const Use &output : outputs) {
    Place place = placeOf(output.path);
    if (!place.matters)
      continue;
    if (auto [other, fresh] = seen.emplace(place.key(), &output); !fresh)
      return same(output, *other->second);
    for (const Use &directory : checkpointDirectories) {
      std::optional<fs::path> rest = below(directory.path, output.path);
      bool inside = isCheckpointName(fs::path(fullPath(directory.path)).filename().string());
      if (rest && (inside || isCheckpointName(rest->begin()->string())))
        return Status::error("{} {}: that is a name of the checkpoints in {} ({})", output.flag, output.path,
                             directory.path, directory.flag);
    }
  }
  for (const Use &output : outputs)
    if (!isReplaceable(output.path, output.kind))
      return Status::error("{} {}: the file that is there is not {}; valid: a name of its own", output.flag,
                           output.path, describe(output.kind));
  for (const std::vector<Use> &list : {outputs, checkpointOutputs})
    for (const Use &output : list)
      for (const Use &directory : dataDirectories)
        if (std::optional<fs::path> rest = below(directory.path, output.path);
            rest && !isHidden(*rest) && placeOf(output.path).matters)
          return Status::error(
              "{} {}: lies in {}, of which {} reads every file, so the next run would read it as data; "
              "valid: a place outside, or a name that begins with a dot",
              output.flag, output.path, directory.path, directory.flag);
  // What the shell opened: only that it is nothing the command uses.
  for (auto [descriptor, name] : {std::pair(1, "standard output"), std::pair(2, "standard error")}) {
    struct stat info;
    if (::fstat(descriptor, &info) != 0 || !placeOf(info).matters)
      continue;
    if (auto found = seen.find(placeOf(info).key()); found != seen.end())
      return Status::error("{} goes to {} ({}): what one needs the other would overwrite", name, found->second->path,
                           found->second->flag);
  }
  return Status::success();
}

} // namespace braid::run
