//===- LinkShared.cpp - object files -> a shared object, by ld.lld ------------------------------------------------===//
#include "compiler/codegen/cpu/LinkShared.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <sys/resource.h>

using namespace llvm;

static Expected<std::string> findLinker() {
  const std::string major = std::to_string(LLVM_VERSION_MAJOR), beside = "/usr/lib/llvm-" + major + "/bin";
  std::string self = sys::path::parent_path(sys::fs::getMainExecutable(nullptr, nullptr)).str();
  if (ErrorOr<std::string> found = sys::findProgramByName("ld.lld", {beside, self}))
    return *found;
  for (const std::string &name : {"ld.lld-" + major, std::string("ld.lld")})
    if (ErrorOr<std::string> found = sys::findProgramByName(name))
      return *found;
  return createStringError("ld.lld was not found in " + beside + ", beside this program, or in PATH; install lld-" +
                           major);
}

static Error writeFile(StringRef path, StringRef text) {
  std::error_code code;
  raw_fd_ostream stream(path, code);
  if (code)
    return createStringError(code, "cannot write " + path + ": " + code.message());
  stream << text;
  stream.flush();
  code = stream.error();
  stream.clear_error(); // at its end LLVM would take it for a bug
  return code ? createStringError(code, "cannot write " + path + ": " + code.message()) : Error::success();
}

Expected<std::vector<char>> braid::linkShared(ArrayRef<ArrayRef<char>> objects, ArrayRef<std::string> symbols) {
  Expected<std::string> linker = findLinker();
  if (!linker)
    return linker.takeError();
  SmallString<128> folder;
  if (std::error_code code = sys::fs::createUniqueDirectory("braid-kernels", folder))
    return createStringError(code, "cannot make the temporary folder " + folder + ": " + code.message());
  scope_exit cleanUp([&] { sys::fs::remove_directories(folder); });
  auto at = [&](const Twine &name) {
    SmallString<128> path = folder;
    sys::path::append(path, name);
    return path.str().str();
  };

  std::string exports = "{\n";
  if (!symbols.empty())
    exports += "global:\n";
  for (const std::string &symbol : symbols)
    exports += "  \"" + symbol + "\";\n";
  exports += "local: *;\n};\n";
  if (Error error = writeFile(at("exports"), exports))
    return std::move(error);
  std::string output = at("kernels.so"), messages = at("messages");
  std::vector<std::string> arguments{*linker, "-shared",     "--build-id=none",  "-soname",     "braid-kernels.so",
                                     "-z",    "noexecstack", "--version-script", at("exports"), "-o",
                                     output};
  for (auto [i, object] : enumerate(objects)) {
    arguments.push_back(at(Twine(i) + ".o"));
    if (Error error = writeFile(arguments.back(), StringRef(object.data(), object.size())))
      return std::move(error);
  }
  // f64 elementary functions come from libm; without its file here the symbols are found in the process that loads us.
  for (const char *libm : {"/lib/x86_64-linux-gnu/libm.so.6", "/lib64/libm.so.6", "/usr/lib/libm.so.6"})
    if (sys::fs::exists(libm)) {
      arguments.insert(arguments.end(), {"--as-needed", libm});
      break;
    }
  std::vector<StringRef> references(arguments.begin(), arguments.end());
  std::string error;
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(messages), StringRef(messages)};
  int status = sys::ExecuteAndWait(*linker, references, std::nullopt, redirects, 0, 0, &error);
  if (status != 0) {
    if (ErrorOr<std::unique_ptr<MemoryBuffer>> text = MemoryBuffer::getFile(messages))
      error += (*text)->getBuffer();
    // The linker takes the signal of a file that grows over the limit for a bug of its own.
    rlimit limit{};
    bool limited = ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    if (limited && StringRef(error).contains("Stack dump:"))
      return createStringError("cannot write " + output + ": " +
                               std::make_error_code(std::errc::file_too_large).message());
    return createStringError(*linker + " failed: " + error);
  }
  ErrorOr<std::unique_ptr<MemoryBuffer>> result = MemoryBuffer::getFile(output);
  if (!result)
    return createStringError(result.getError(), "cannot read " + output);
  return std::vector<char>((*result)->getBufferStart(), (*result)->getBufferEnd());
}
