#include "runtime/io/File.h"
#include "runtime/io/Words.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace braid::runtime {

namespace {

Status readError(const std::string &path, const char *action, int error) {
  ErrorCode code = error == ENOENT ? ErrorCode::notFound : ErrorCode::ioError;
  return Status::error(code, "{}: cannot {}: {}", path, action, std::strerror(error));
}

} // namespace

Status writeError(std::string_view name, int error) {
  return Status::error(ErrorCode::ioError, "cannot write {}: {}", name, std::strerror(error));
}

// ---- Reading --------------------------------------------------------------------------------------------------------

Expected<InputFile> InputFile::open(const std::string &path) {
  InputFile file;
  file.filePath = path;
  // Without O_NONBLOCK the opening of a FIFO would wait for its writer.
  file.descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file.descriptor < 0)
    return readError(path, "open", errno);
  struct stat info;
  if (::fstat(file.descriptor, &info) != 0)
    return readError(path, "read its size", errno);
  if (S_ISDIR(info.st_mode))
    return Status::error(ErrorCode::ioError, "{}: is a directory, not a file", path);
  if (!S_ISREG(info.st_mode))
    return Status::error(ErrorCode::ioError,
                         "{}: is {}, not a regular file: its size must be known and any part readable", path,
                         S_ISFIFO(info.st_mode)   ? "a pipe"
                         : S_ISSOCK(info.st_mode) ? "a socket"
                                                  : "a device");
  file.known = {info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
                info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec};
  return file;
}

InputFile::InputFile(InputFile &&other) noexcept
    : filePath(std::move(other.filePath)), descriptor(std::exchange(other.descriptor, -1)), known(other.known) {}

InputFile &InputFile::operator=(InputFile &&other) noexcept {
  std::swap(filePath, other.filePath);
  std::swap(descriptor, other.descriptor);
  std::swap(known, other.known);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

Status InputFile::read(uint64_t offset, std::span<std::byte> target) const {
  size_t done = 0;
  while (done < target.size()) {
    ssize_t got = ::pread(descriptor, target.data() + done, target.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR)
      continue;
    if (got < 0)
      return readError(filePath, "read", errno);
    if (got == 0)
      return Status::error(ErrorCode::corruptFile, "{}: ends after {}, but bytes {} to {} are needed", filePath,
                           counted(offset + done, "byte"), offset, offset + target.size());
    done += static_cast<size_t>(got);
  }
  return Status::success();
}

Expected<std::string> readTextFile(const std::string &path, uint64_t limit) {
  BRAID_ASSIGN(InputFile file, InputFile::open(path));
  if (file.size() > limit)
    return Status::error(ErrorCode::corruptFile, "{}: has {}; at most {} are read", path, counted(file.size(), "byte"),
                         limit);
  std::string text(file.size(), '\0');
  BRAID_TRY(file.read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Expected<FileContent> fileContent(const std::string &path) {
  BRAID_ASSIGN(InputFile file, InputFile::open(path));
  std::vector<std::byte> block(std::min<uint64_t>(file.size(), 1 << 20));
  ContentHasher hasher;
  for (uint64_t at = 0; at < file.size(); at += block.size()) {
    auto part = std::span(block).first(std::min<uint64_t>(block.size(), file.size() - at));
    BRAID_TRY(file.read(at, part));
    hasher.add(part);
  }
  return FileContent{file.size(), hasher.hash()};
}

// ---- Writing --------------------------------------------------------------------------------------------------------

Expected<OutputFile> OutputFile::open(const std::string &path, int flags) {
  OutputFile file;
  file.filePath = path;
  file.descriptor = ::open(path.c_str(), flags | O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (file.descriptor < 0)
    return writeError(path, errno);
  return file;
}

Expected<OutputFile> OutputFile::create(const std::string &path) { return open(path, O_TRUNC); }
Expected<OutputFile> OutputFile::createWithoutWaiting(const std::string &path) {
  return open(path, O_TRUNC | O_NONBLOCK);
}
Expected<OutputFile> OutputFile::append(const std::string &path) { return open(path, O_APPEND | O_NONBLOCK); }

Expected<OutputFile> OutputFile::openInPlace(const std::string &path) { return open(path, 0); }

OutputFile::OutputFile(OutputFile &&other) noexcept
    : filePath(std::move(other.filePath)), descriptor(std::exchange(other.descriptor, -1)) {}

OutputFile &OutputFile::operator=(OutputFile &&other) noexcept {
  std::swap(filePath, other.filePath);
  std::swap(descriptor, other.descriptor);
  return *this;
}

OutputFile::~OutputFile() {
  if (descriptor >= 0)
    ::close(descriptor);
}

Status OutputFile::write(std::span<const std::byte> bytes, size_t &written) {
  for (written = 0; written < bytes.size();) {
    ssize_t put = ::write(descriptor, bytes.data() + written, bytes.size() - written);
    if (put < 0 && errno == EINTR)
      continue;
    if (put < 0)
      return writeError(filePath, errno);
    written += static_cast<size_t>(put);
  }
  return Status::success();
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  size_t written;
  return write(bytes, written);
}

Status OutputFile::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Status OutputFile::sync() {
  if (::fsync(descriptor) != 0 && errno != EINVAL) // EINVAL: a pipe or device, which has nothing to sync
    return writeError(filePath, errno);
  return Status::success();
}

Status OutputFile::close() {
  if (::close(std::exchange(descriptor, -1)) != 0)
    return writeError(filePath, errno);
  return Status::success();
}

Status writeReplacing(const std::string &path, const std::function<Status(OutputFile &)> &write) {
  struct stat info;
  bool exists = ::lstat(path.c_str(), &info) == 0;
  bool isLink = exists && S_ISLNK(info.st_mode);
  std::error_code unresolved;
  std::string target = isLink ? std::filesystem::canonical(path, unresolved).string() : path;
  if (isLink && !unresolved)
    exists = ::lstat(target.c_str(), &info) == 0;
  bool replaces = exists ? S_ISREG(info.st_mode) : errno == ENOENT;
  if (replaces && exists && ::access(target.c_str(), W_OK) != 0) // a rename would not ask
    return writeError(path, errno);
  OutputFile file;
  file.filePath = path; // what messages name
  std::string temporary;
  int error = 0;
  for (int i = 0; replaces && file.descriptor < 0; ++i) {
    temporary = fmt::format("{}.{}-{}.tmp", target, ::getpid(), i);
    file.descriptor = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    error = file.descriptor < 0 ? errno : 0;
    if (error != 0 && error != EEXIST) // a file of another's that has this name stays
      break;
  }
  if (error == EACCES || error == EPERM ||
      error == ENAMETOOLONG) // such a directory may hold a file that can be written
    replaces = false;
  else if (error != 0) // a full disk: in place, it would take what stands there
    return writeError(path, error);
  if (!replaces) {
    BRAID_ASSIGN(file, OutputFile::create(path));
  } else if (exists) {
    (void)::fchmod(file.descriptor, info.st_mode & 07777);
  }
  auto all = [&]() -> Status {
    BRAID_TRY(write(file));
    BRAID_TRY(file.close());
    return replaces ? renamePath(temporary, target) : Status::success();
  };
  Status status = all();
  if (!status.ok() && replaces)
    ::unlink(temporary.c_str());
  return status;
}

Status writeFileAtomic(const std::string &path, std::string_view text) {
  std::string temporary = path + ".tmp";
  BRAID_ASSIGN(OutputFile file, OutputFile::create(temporary));
  BRAID_TRY(file.write(text));
  BRAID_TRY(file.sync());
  BRAID_TRY(file.close());
  return replaceFile(temporary, path);
}

Status replaceFile(const std::string &temporary, const std::string &path) {
  BRAID_TRY(renamePath(temporary, path));
  std::string parent = std::filesystem::path(path).parent_path().string();
  return syncDirectory(parent.empty() ? "." : parent);
}

// ---- Locks ----------------------------------------------------------------------------------------------------------

namespace {

enum class LeadsTo : uint8_t { nothing, another, same };

/// Whether the path leads to what the descriptor has open; while it is open, no other file has its number.
Expected<LeadsTo> leadsTo(const std::string &path, int descriptor) {
  struct stat there, own;
  if (::stat(path.c_str(), &there) != 0) {
    if (errno == ENOENT || errno == ENOTDIR)
      return LeadsTo::nothing;
    return readError(path, "look at it", errno);
  }
  if (::fstat(descriptor, &own) != 0)
    return readError(path, "look at what was locked", errno);
  return there.st_dev == own.st_dev && there.st_ino == own.st_ino ? LeadsTo::same : LeadsTo::another;
}

} // namespace

Expected<DirectoryLock> DirectoryLock::acquire(const std::string &directory) {
  std::string path = directory + "/.lock";
  // Whoever removes the file between opening and locking it takes the lock along. A file system whose files have no
  // lasting identity shows the same.
  constexpr int tries = 10;
  for (int i = 1;; ++i) {
    int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (descriptor < 0)
      return writeError(path, errno);
    DirectoryLock lock;
    lock.file = descriptor;
    lock.folder = ::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
    int failed;
    do
      failed = ::flock(descriptor, LOCK_EX | LOCK_NB);
    while (failed != 0 && errno == EINTR);
    if (failed != 0 && errno == EWOULDBLOCK) {
      char text[32] = {};
      ssize_t length = ::pread(descriptor, text, sizeof(text) - 1, 0);
      long holder = length > 0 ? std::strtol(text, nullptr, 10) : 0;
      return Status::error(ErrorCode::ioError, "{}: another training run{} writes its checkpoints there", directory,
                           holder > 0 ? fmt::format(" (process {})", holder) : "");
    }
    // A file system without locks cannot help; refusing to train on it would not either.
    if (failed != 0 && errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS)
      return writeError(path, errno);
    BRAID_ASSIGN(LeadsTo found, leadsTo(path, descriptor));
    if (found != LeadsTo::same && i < tries)
      continue;
    lock.identified = found == LeadsTo::same;
    // Who holds it, for the message above and for holderOf(): without room on the disk both know less.
    lock.stamp =
        fmt::format("{:<20} {:016x}\n", ::getpid(), std::chrono::system_clock::now().time_since_epoch().count());
    [[maybe_unused]] ssize_t put = ::pwrite(descriptor, lock.stamp.data(), lock.stamp.size(), 0);
    (void)::fsync(descriptor); // other machines read it
    return lock;
  }
}

Expected<bool> DirectoryLock::holds(const std::string &directory) const {
  BRAID_ASSIGN(LeadsTo found, leadsTo(directory + "/.lock", file));
  return found == LeadsTo::same || (found == LeadsTo::another && !identified);
}

bool DirectoryLock::owns(const std::string &directory) const {
  auto holder = holderOf(directory);
  if (holder)
    return *holder == stamp;
  auto found = leadsTo(directory, folder);
  return holder.status().code() == ErrorCode::notFound && found && *found == LeadsTo::same;
}

Expected<std::string> DirectoryLock::holderOf(const std::string &directory) {
  return readTextFile(directory + "/.lock", 256);
}

DirectoryLock::~DirectoryLock() {
  for (int descriptor : {file, folder})
    if (descriptor >= 0)
      ::close(descriptor);
}

Expected<TemporaryDirectory> TemporaryDirectory::make(const std::string &path) {
  // Whoever has it may rename it away between opening and locking it.
  constexpr int tries = 10;
  for (int i = 1;; ++i) {
    if (::mkdir(path.c_str(), 0777) != 0 && errno != EEXIST)
      return writeError(path, errno);
    int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (descriptor < 0 && errno == ENOENT && i < tries)
      continue;
    if (descriptor < 0)
      return writeError(path, errno);
    TemporaryDirectory made(descriptor);
    int failed;
    do
      failed = ::flock(descriptor, LOCK_EX | LOCK_NB);
    while (failed != 0 && errno == EINTR);
    if (failed != 0 && errno == EWOULDBLOCK)
      return Status::error(ErrorCode::ioError, "{}: another process writes it; valid: once that has ended", path);
    if (failed != 0 && errno != ENOLCK && errno != EOPNOTSUPP && errno != ENOSYS)
      return writeError(path, errno);
    BRAID_ASSIGN(LeadsTo found, leadsTo(path, descriptor));
    if (found != LeadsTo::same && i < tries)
      continue;
    BRAID_ASSIGN(std::vector<std::string> left, listDirectory(path));
    for (const std::string &name : left)
      BRAID_TRY(removeAll(path + "/" + name));
    return made;
  }
}

TemporaryDirectory::~TemporaryDirectory() {
  if (descriptor >= 0)
    ::close(descriptor);
}

// ---- Directories ----------------------------------------------------------------------------------------------------

Status makeDirectories(const std::string &path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  return error ? writeError(path, error.value()) : Status::success();
}

Status syncDirectory(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0)
    return writeError(path, errno);
  int failed = ::fsync(descriptor);
  int error = errno;
  ::close(descriptor);
  if (failed != 0 && error != EINVAL)
    return writeError(path, error);
  return Status::success();
}

Status renamePath(const std::string &from, const std::string &to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return writeError(to, errno);
  return Status::success();
}

Status exchangePaths(const std::string &fresh, const std::string &old) {
  if (::renameat2(AT_FDCWD, fresh.c_str(), AT_FDCWD, old.c_str(), RENAME_EXCHANGE) == 0)
    return Status::success();
  if (errno != EINVAL && errno != ENOSYS)
    return writeError(old, errno);
  std::string aside = fresh + ".old";
  BRAID_TRY(removeAll(aside));
  BRAID_TRY(renamePath(old, aside));
  BRAID_TRY(renamePath(fresh, old));
  return renamePath(aside, fresh);
}

Status removeAll(const std::string &path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  return error ? writeError(path, error.value()) : Status::success();
}

Expected<std::vector<std::string>> listDirectory(const std::string &path) {
  std::error_code error;
  std::filesystem::directory_iterator iterator(path, error), end;
  if (error)
    return readError(path, "list", error.value());
  std::vector<std::string> names;
  while (iterator != end) {
    names.push_back(iterator->path().filename().string());
    iterator.increment(error);
    if (error)
      return readError(path, "list", error.value());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool pathExists(const std::string &path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

} // namespace braid::runtime
