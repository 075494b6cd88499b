// Files as the runtime needs them: whole reads with clear errors, and writes that survive a crash (a file or directory
// is either the old one or the complete new one). Whatever cannot be written is said in one way, by writeError().
#pragma once

#include "runtime/ContentHash.h"
#include "runtime/Expected.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace braid::runtime {

// "cannot write FILE: No space left on device": every call that changes a file, a directory or its names.
Status writeError(std::string_view name, int error);

// The whole of a regular file; one of more than `limit` bytes is an error, so that nothing is allocated without bound.
Expected<std::string> readTextFile(const std::string &path, uint64_t limit = uint64_t(1) << 30);

// Which file a path means, and whether it is as it was.
struct FileIdentity {
  uint64_t device = 0, inode = 0, size = 0;
  int64_t changedNs = 0; // when its content was last changed
  bool operator==(const FileIdentity &) const = default;
};

// A regular file opened for reading at offsets; closed by the destructor.
class InputFile {
public:
  static Expected<InputFile> open(const std::string &path);
  InputFile(InputFile &&other) noexcept;
  InputFile &operator=(InputFile &&other) noexcept;
  ~InputFile();

  const std::string &path() const { return filePath; }
  uint64_t size() const { return known.size; }
  const FileIdentity &identity() const { return known; } // when it was opened
  // Exactly target.size() bytes from `offset`; an end of file before that is an error with both numbers.
  Status read(uint64_t offset, std::span<std::byte> target) const;

private:
  InputFile() = default;

  std::string filePath;
  int descriptor = -1;
  FileIdentity known;
};

// What a file should hold, or does.
struct FileContent {
  uint64_t bytes = 0;
  ContentHash hash;
};
Expected<FileContent> fileContent(const std::string &path);

// A new (or truncated) file. close() reports what the destructor cannot; sync() makes the bytes durable.
class OutputFile {
public:
  static Expected<OutputFile> create(const std::string &path);
  // These two never wait for the reader of a pipe: it must be there, and what it has no room for is an error. append
  // opens the end of a file, a new one when there is none.
  static Expected<OutputFile> createWithoutWaiting(const std::string &path);
  static Expected<OutputFile> append(const std::string &path);
  // What stands in it stays until it is written.
  static Expected<OutputFile> openInPlace(const std::string &path);
  OutputFile(OutputFile &&other) noexcept;
  OutputFile &operator=(OutputFile &&other) noexcept;
  ~OutputFile();

  const std::string &path() const { return filePath; }
  Status write(std::span<const std::byte> bytes);
  Status write(std::string_view text);
  // After an error `written` is how many of the bytes arrived.
  Status write(std::span<const std::byte> bytes, size_t &written);
  Status sync();
  Status close();

private:
  friend Status writeReplacing(const std::string &path, const std::function<Status(OutputFile &)> &write);
  OutputFile() = default;
  static Expected<OutputFile> open(const std::string &path, int flags);

  std::string filePath;
  int descriptor = -1;
};

// Writes beside `path` and renames it over `path`: what stood there stays until all is written. A link stays a link: the
// file that it names is replaced. In place where a device, a pipe or a link to nothing stands there, or the directory is
// not ours to add a file to. The file's mode stays, and one that may not be written is refused.
Status writeReplacing(const std::string &path, const std::function<Status(OutputFile &)> &write);
// A text that takes the place of whatever has the name `path`, and is durable then; `path`.tmp is made for it.
Status writeFileAtomic(const std::string &path, std::string_view text);
// The rename alone, made durable.
Status replaceFile(const std::string &temporary, const std::string &path);

// Keeps other processes from writing a directory: a lock on its file `.lock`, which the kernel drops when the holder
// ends, however it ends. The file itself stays.
class DirectoryLock {
public:
  // An error when another process (or another lock of this one) holds it.
  static Expected<DirectoryLock> acquire(const std::string &directory);
  // Whether the lock is that of the directory which is now at this path. It is not when the directory or its `.lock` was
  // removed, renamed or replaced: then it keeps nobody out, and a new one is needed. An error: nothing could be seen
  // there, which says nothing of the lock. Where files have no lasting identity, a `.lock` that is there is this one.
  Expected<bool> holds(const std::string &directory) const;
  // Whether what lies in the directory at this path is still the holder's alone, locked or not: nobody locked it since,
  // and it is the same directory, or a copy of it.
  bool owns(const std::string &directory) const;
  // What the last holder left in the directory, other for every lock: two names of one directory lead to the same.
  static Expected<std::string> holderOf(const std::string &directory);
  DirectoryLock(DirectoryLock &&other) noexcept { *this = std::move(other); }
  DirectoryLock &operator=(DirectoryLock &&other) noexcept {
    std::swap(file, other.file);
    std::swap(folder, other.folder);
    std::swap(identified, other.identified);
    std::swap(stamp, other.stamp);
    return *this;
  }
  ~DirectoryLock();

private:
  DirectoryLock() = default;

  int file = -1, folder = -1;
  bool identified = true; // a look at the path that was locked found the same file
  std::string stamp; // what holderOf() reads
};

// A directory that is written under a name of its own and then renamed; nobody else writes it meanwhile. The kernel drops
// the lock (on the directory itself) when its maker ends, however that ends.
class TemporaryDirectory {
public:
  // Makes it. What a maker that was killed left under this name is removed; while one is at work, that is an error.
  static Expected<TemporaryDirectory> make(const std::string &path);
  TemporaryDirectory(TemporaryDirectory &&other) noexcept : descriptor(std::exchange(other.descriptor, -1)) {}
  TemporaryDirectory &operator=(TemporaryDirectory &&) = delete;
  ~TemporaryDirectory();

private:
  explicit TemporaryDirectory(int descriptor) : descriptor(descriptor) {}

  int descriptor;
};

Status makeDirectories(const std::string &path);
// Makes the names in a directory durable (after creating or renaming files in it).
Status syncDirectory(const std::string &path);
Status renamePath(const std::string &from, const std::string &to);
// Puts `fresh` in the place of `old`, which ends up at the name of `fresh`. At once where the file system can do that;
// otherwise `old` is away for a moment.
Status exchangePaths(const std::string &fresh, const std::string &old);
// Removes a file or a directory with all it holds; one that does not exist is success.
Status removeAll(const std::string &path);
// Names (not paths) in a directory, sorted.
Expected<std::vector<std::string>> listDirectory(const std::string &path);
bool pathExists(const std::string &path);

} // namespace braid::runtime
