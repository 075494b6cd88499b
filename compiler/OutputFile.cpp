//===- OutputFile.cpp - files that a compilation writes -----------------------------------------------------------===//
#include "compiler/OutputFile.h"

#include "runtime/schema/Program_generated.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <climits>
#include <csignal>
#include <unistd.h>

using namespace llvm;
using namespace braid;

/// The file that opening `path` for writing would make or change: links followed, also to what does not exist yet.
static std::string resolveLinks(StringRef path) {
  SmallString<256> at = path;
  char link[PATH_MAX];
  for (int i = 0; i < 40; ++i) { // as many as the kernel follows
    ssize_t length = ::readlink(at.c_str(), link, sizeof link);
    if (length < 0)
      break;
    StringRef target(link, static_cast<size_t>(length));
    if (!sys::path::is_absolute(target))
      sys::path::remove_filename(at);
    else
      at.clear();
    sys::path::append(at, target);
  }
  return at.str().str();
}

/// One spelling of a path: of the directory the real path, then the name.
static std::string canonical(StringRef path) {
  std::string file = resolveLinks(path);
  StringRef parent = sys::path::parent_path(file);
  SmallString<256> real;
  if (sys::fs::real_path(parent.empty() ? "." : parent, real))
    return file;
  sys::path::append(real, sys::path::filename(file));
  return real.str().str();
}

static bool isSameFile(StringRef a, StringRef b) {
  if (a == "-" || b == "-")
    return a == b;
  bool same = false;
  if (!sys::fs::equivalent(a, b, same)) // by device and inode: hard links too
    return same;
  return canonical(a) == canonical(b);
}

/// Where every output can go at once: terminals, pipes, /dev/null.
static bool isShared(StringRef path) { return path != "-" && sys::fs::exists(path) && !sys::fs::is_regular_file(path); }

static StringRef describe(FileKind kind) {
  switch (kind) {
  case FileKind::any: return "a file";
  case FileKind::program: return "a program";
  case FileKind::module: return "a module";
  case FileKind::description: return "a model description";
  case FileKind::picture: return "a picture (SVG)";
  case FileKind::trace: return "a trace";
  }
  llvm_unreachable("all kinds are above");
}

static bool isOfKind(StringRef contents, FileKind kind) {
  bool isText = !contents.contains('\0'); // a program holds the text of its description
  if (kind != FileKind::any && kind != FileKind::program && !isText)
    return false;
  switch (kind) {
  case FileKind::any: return true;
  case FileKind::program: return contents.substr(4, 4) == schema::ProgramIdentifier(); // as flatbuffers have it
  case FileKind::module: return contents.starts_with("module") || contents.contains("\nmodule");
  case FileKind::description: return contents.contains("\"mixers\"") || contents.contains("\"schedule\"");
  case FileKind::picture: return contents.ltrim().starts_with("<svg");
  case FileKind::trace: return contents.contains("\"traceEvents\"");
  }
  llvm_unreachable("all kinds are above");
}

/// An error where a file of another kind lies at the path. One that cannot be read is not recognised; an empty one holds
/// nothing that could be lost.
static Error checkReplaces(const NamedFile &output) {
  if (output.kind == FileKind::any || output.path == "-" || !sys::fs::is_regular_file(output.path))
    return Error::success();
  ErrorOr<std::unique_ptr<MemoryBuffer>> there =
      MemoryBuffer::getFile(output.path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (there && ((*there)->getBuffer().empty() || isOfKind((*there)->getBuffer(), output.kind)))
    return Error::success();
  return createStringError(output.name + ": the file that is there is not " + describe(output.kind) +
                           "; valid: a name of its own");
}

Error braid::checkOutputs(ArrayRef<NamedFile> inputs, ArrayRef<NamedFile> outputs) {
  for (auto [i, output] : enumerate(outputs)) {
    if (isShared(output.path))
      continue;
    for (const NamedFile &input : inputs)
      if (isSameFile(output.path, input.path))
        return createStringError(output.name + " would overwrite " + input.name);
    for (const NamedFile &other : outputs.take_front(i))
      if (isSameFile(output.path, other.path))
        return createStringError(output.name + " and " + other.name + " both write " +
                                 (output.path == "-" ? "standard output" : output.path));
    if (Error other = checkReplaces(output))
      return other;
  }
  return Error::success();
}

static Error cannotWrite(StringRef path, std::error_code code) {
  return createStringError(code, "cannot write " + (path == "-" ? "standard output" : path) + ": " + code.message());
}

/// All of it, or why not. The stream forgets its error: at its end LLVM would take it for a bug.
static std::error_code writeAll(raw_fd_ostream &stream, StringRef contents) {
  stream << contents;
  stream.flush();
  std::error_code code = stream.error();
  stream.clear_error();
  return code;
}

/// A file beside `target`, which is to take its place; removed should a signal end the process.
static Expected<sys::fs::TempFile> makeBeside(StringRef target) {
  Expected<sys::fs::TempFile> file =
      sys::fs::TempFile::create(target + ".%%%%%%.tmp", sys::fs::all_read | sys::fs::all_write);
  std::signal(SIGXFSZ,
              SIG_IGN); // a file over the limit of its size is an error of write(), and TempFile brought handlers
  return file;
}

Error braid::checkWritable(StringRef path) {
  if (path == "-" || isShared(path)) {
    bool open = path == "-" || !sys::fs::access(path, sys::fs::AccessMode::Write);
    return open ? Error::success() : cannotWrite(path, std::make_error_code(std::errc::permission_denied));
  }
  if (sys::fs::is_directory(path))
    return cannotWrite(path, std::make_error_code(std::errc::is_a_directory));
  Expected<sys::fs::TempFile> file = makeBeside(resolveLinks(path));
  if (!file)
    return cannotWrite(path, errorToErrorCode(file.takeError()));
  return file->discard();
}

Error braid::writeOutput(StringRef path, StringRef contents) {
  std::error_code code;
  if (path == "-") {
    code = writeAll(outs(), contents);
    return code ? cannotWrite(path, code) : Error::success();
  }
  sys::fs::file_status status;
  bool exists = !sys::fs::status(path, status);
  if (exists && status.type() != sys::fs::file_type::regular_file) {
    raw_fd_ostream stream(path, code);
    if (!code)
      code = writeAll(stream, contents);
    return code ? cannotWrite(path, code) : Error::success();
  }
  std::string target = resolveLinks(path);
  Expected<sys::fs::TempFile> file = makeBeside(target);
  if (!file)
    return cannotWrite(path, errorToErrorCode(file.takeError()));
  if (exists)
    (void)sys::fs::setPermissions(file->FD, status.permissions());
  {
    raw_fd_ostream stream(file->FD, /*shouldClose=*/false);
    code = writeAll(stream, contents);
  }
  if (!code)
    code = errorToErrorCode(file->keep(target));
  else
    consumeError(file->discard());
  return code ? cannotWrite(path, code) : Error::success();
}
