//===- Assemble.cpp - PTX -> machine code of one GPU, by the toolkit's nvJitLink or ptxas -------------------------===//
#include "compiler/codegen/cuda/Assemble.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#if BRAID_HAVE_CUDA
#include <dlfcn.h>
#include <nvJitLink.h>
#endif

using namespace llvm;
using namespace braid;

#if BRAID_HAVE_CUDA

namespace {
/// The functions of the library that are used here, by the names that its header gives them.
struct Library {
  decltype(&nvJitLinkCreate) create;
  decltype(&nvJitLinkDestroy) destroy;
  decltype(&nvJitLinkAddData) addData;
  decltype(&nvJitLinkComplete) complete;
  decltype(&nvJitLinkGetLinkedCubinSize) cubinSize;
  decltype(&nvJitLinkGetLinkedCubin) cubin;
  decltype(&nvJitLinkGetErrorLogSize) errorSize;
  decltype(&nvJitLinkGetErrorLog) error;
  decltype(&nvJitLinkGetInfoLogSize) infoSize;
  decltype(&nvJitLinkGetInfoLog) info;
  std::string problem;
};
} // namespace

#define BRAID_STRING_OF(x) #x
#define BRAID_STRING(x) BRAID_STRING_OF(x)

static Library openLibrary() {
  Library library{};
  // Beside the toolkit that this was built with, where the loader does not look by itself.
  void *handle = nullptr;
  for (const char *name : {"libnvJitLink.so." BRAID_STRING(BRAID_CUDA_MAJOR),
                           BRAID_CUDA_LIBRARIES "/libnvJitLink.so." BRAID_STRING(BRAID_CUDA_MAJOR)})
    if (!handle)
      handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    library.problem = std::string("the CUDA toolkit's assembler could not be opened: ") + dlerror();
    return library;
  }
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (!function)
      library.problem = std::string("the CUDA toolkit's assembler has no function ") + name;
  };
  find(library.create, BRAID_STRING(nvJitLinkCreate));
  find(library.destroy, BRAID_STRING(nvJitLinkDestroy));
  find(library.addData, BRAID_STRING(nvJitLinkAddData));
  find(library.complete, BRAID_STRING(nvJitLinkComplete));
  find(library.cubinSize, BRAID_STRING(nvJitLinkGetLinkedCubinSize));
  find(library.cubin, BRAID_STRING(nvJitLinkGetLinkedCubin));
  find(library.errorSize, BRAID_STRING(nvJitLinkGetErrorLogSize));
  find(library.error, BRAID_STRING(nvJitLinkGetErrorLog));
  find(library.infoSize, BRAID_STRING(nvJitLinkGetInfoLogSize));
  find(library.info, BRAID_STRING(nvJitLinkGetInfoLog));
  return library;
}

/// The number before `word` in "..     0 bytes stack frame, 0 bytes spill stores, ..".
static std::optional<int64_t> numberBefore(StringRef text, StringRef word) {
  StringRef head = text.take_front(text.find(word)).rtrim();
  int64_t value = 0;
  StringRef digits = head.take_back(head.size() - (head.find_last_not_of("0123456789") + 1));
  if (!text.contains(word) || digits.getAsInteger(10, value))
    return std::nullopt;
  return value;
}

/// What the assembler has said besides machine code.
static Error readNumbers(StringRef said, Assembled &result) {
  std::string info;
  SmallVector<StringRef> lines;
  said.split(lines, '\n');
  for (StringRef line : lines)
    if (line.contains("Performance Loss") || line.contains("is injected"))
      result.loss = line.trim().str();
    else
      info += line.str() + "\n";
  for (auto [number, word] : {std::pair(&result.registers, "registers"),
                              {&result.stackBytes, "bytes stack frame"},
                              {&result.spillBytes, "bytes spill stores"}}) {
    std::optional<int64_t> found = numberBefore(info, word);
    if (!found)
      return createStringError("the CUDA toolkit's assembler does not say how many " + Twine(word) +
                               " a kernel has: " + info);
    *number = *found;
  }
  return Error::success();
}

static const Library &assembler() {
  static const Library library = openLibrary();
  return library;
}

Error braid::openAssembler() {
  const std::string &problem = assembler().problem;
  return problem.empty() ? Error::success() : createStringError(problem);
}

Expected<Assembled> braid::assemble(StringRef ptx, StringRef arch) {
  if (Error error = openAssembler())
    return std::move(error);
  const Library &library = assembler();
  std::string archOption = "-arch=" + arch.str();
  const char *options[] = {archOption.c_str(), "-O3", "-verbose"};
  nvJitLinkHandle handle = nullptr;
  auto log = [&](auto size, auto get) {
    size_t bytes = 0;
    std::string text;
    if (size(handle, &bytes) == NVJITLINK_SUCCESS && bytes > 0) {
      text.resize(bytes);
      get(handle, text.data());
    }
    return StringRef(text.c_str()).trim().str();
  };
  if (nvJitLinkResult code = library.create(&handle, std::size(options), options); code != NVJITLINK_SUCCESS)
    return createStringError("the CUDA toolkit's assembler cannot be started for %s: code %d", arch.str().c_str(),
                             code);
  Assembled result;
  nvJitLinkResult code = library.addData(handle, NVJITLINK_INPUT_PTX, ptx.data(), ptx.size(), "kernel.ptx");
  if (code == NVJITLINK_SUCCESS)
    code = library.complete(handle);
  size_t bytes = 0;
  if (code == NVJITLINK_SUCCESS)
    code = library.cubinSize(handle, &bytes);
  if (code == NVJITLINK_SUCCESS) {
    result.cubin.resize(bytes);
    code = library.cubin(handle, result.cubin.data());
  }
  if (code != NVJITLINK_SUCCESS) {
    std::string text = log(library.errorSize, library.error);
    library.destroy(&handle);
    return createStringError("the CUDA toolkit's assembler fails with code " + Twine(static_cast<int>(code)) + ": " +
                             text);
  }
  std::string said = log(library.infoSize, library.info);
  library.destroy(&handle);
  if (Error error = readNumbers(said, result))
    return std::move(error);
  return result;
}

StringRef braid::wholeAssembler() {
  static const std::string path = sys::fs::can_execute(BRAID_CUDA_ASSEMBLER) ? BRAID_CUDA_ASSEMBLER : "";
  return path;
}

namespace {
/// A file with another name each time, gone when this is.
struct TemporaryFile {
  SmallString<128> path;
  FileRemover remover;
  int descriptor = -1;

  Error create(StringRef ending) {
    if (std::error_code error = sys::fs::createTemporaryFile("braid", ending, descriptor, path)) {
      SmallString<128> directory;
      sys::path::system_temp_directory(/*ErasedOnReboot=*/true, directory);
      return createStringError("no file for the CUDA toolkit's assembler in " + directory + ": " + error.message() +
                               "; valid: a TMPDIR with room");
    }
    remover.setFile(path);
    return Error::success();
  }
  Expected<std::unique_ptr<MemoryBuffer>> read() const {
    return errorOrToExpected(MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false));
  }
};
} // namespace

Expected<Assembled> braid::assembleWhole(StringRef ptx, StringRef arch) {
  StringRef program = wholeAssembler();
  if (program.empty())
    return createStringError("the CUDA toolkit's assembler " BRAID_CUDA_ASSEMBLER " cannot be executed");
  TemporaryFile source, cubin, said;
  for (auto [file, ending] : {std::pair(&source, "ptx"), {&cubin, "cubin"}, {&said, "txt"}})
    if (Error error = file->create(ending))
      return std::move(error);
  raw_fd_ostream stream(source.descriptor, /*shouldClose=*/true);
  stream << ptx.take_until([](char c) { return c == '\0'; });
  stream.close();
  if (std::error_code error = stream.error()) {
    stream.clear_error();
    return createStringError("cannot write " + source.path.str() + ": " + error.message());
  }
  for (TemporaryFile *file : {&cubin, &said})
    if (std::error_code error = sys::fs::closeFile(file->descriptor))
      return createStringError("cannot write " + file->path.str() + ": " + error.message());
  std::string archOption = "-arch=" + arch.str(), message;
  const StringRef arguments[] = {program, archOption, "-O3", "-v", source.path, "-o", cubin.path};
  const std::optional<StringRef> redirects[] = {"", said.path, said.path};
  int status = sys::ExecuteAndWait(program, arguments, std::nullopt, redirects, 0, 0, &message);
  Expected<std::unique_ptr<MemoryBuffer>> text = said.read();
  if (!text)
    return text.takeError();
  if (status != 0)
    return createStringError("the CUDA toolkit's assembler fails with status " + Twine(status) + ": " +
                             (message.empty() ? (*text)->getBuffer().trim() : StringRef(message)));
  Expected<std::unique_ptr<MemoryBuffer>> code = cubin.read();
  if (!code)
    return code.takeError();
  Assembled result;
  result.cubin.assign((*code)->getBufferStart(), (*code)->getBufferEnd());
  if (Error error = readNumbers((*text)->getBuffer(), result))
    return std::move(error);
  return result;
}

uint32_t braid::leastCudaDriver() { return BRAID_CUDA_MAJOR * 1000; }

#else

uint32_t braid::leastCudaDriver() { return 0; }

Error braid::openAssembler() { return createStringError("this compiler was built without a CUDA toolkit"); }

Expected<Assembled> braid::assemble(StringRef, StringRef) { return openAssembler(); }

StringRef braid::wholeAssembler() { return ""; }

Expected<Assembled> braid::assembleWhole(StringRef, StringRef) { return openAssembler(); }

#endif
