//===- KernelCache.cpp - compiled kernels kept from one compilation to the next -----------------------------------===//
#include "compiler/codegen/KernelCache.h"
#include "compiler/OutputFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CachePruning.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"

#include <elf.h>
#include <link.h>

using namespace llvm;
using namespace braid;

/// The build id that a linker wrote into the notes of a loaded object; empty if there is none.
static StringRef buildId(const dl_phdr_info &object) {
  for (int i = 0; i < object.dlpi_phnum; ++i) {
    const ElfW(Phdr) &segment = object.dlpi_phdr[i];
    if (segment.p_type != PT_NOTE)
      continue;
    const char *at = reinterpret_cast<const char *>(object.dlpi_addr + segment.p_vaddr), *end = at + segment.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto &note = *reinterpret_cast<const ElfW(Nhdr) *>(at);
      const char *name = at + sizeof note, *text = name + alignTo<4>(note.n_namesz);
      at = text + alignTo<4>(note.n_descsz);
      if (at <= end && note.n_type == NT_GNU_BUILD_ID && StringRef(name, note.n_namesz) == StringRef("GNU", 4))
        return StringRef(text, note.n_descsz);
    }
  }
  return {};
}

/// What tells one build of this program, and of the libraries that it has loaded, from another.
static std::string loadedBuilds() {
  std::string builds;
  ::dl_iterate_phdr(
      [](dl_phdr_info *object, size_t, void *data) {
        std::string build = buildId(*object).str();
        sys::fs::file_status status;
        StringRef name = object->dlpi_name;
        if (build.empty() && !sys::fs::status(name.empty() ? "/proc/self/exe" : name, status))
          build = formatv("{0} {1} {2}", name, status.getSize(),
                          status.getLastModificationTime().time_since_epoch().count());
        *static_cast<std::string *>(data) += std::to_string(build.size()) + ':' + build;
        return 0;
      },
      &builds);
  return builds;
}

Expected<std::unique_ptr<KernelCache>> KernelCache::open(StringRef directory) {
  auto cache = std::make_unique<KernelCache>();
  cache->directory = directory.str();
  if (std::error_code code = sys::fs::create_directories(directory))
    return createStringError(code, "cannot make the folder " + directory + ": " + code.message());
  if (!sys::fs::is_directory(directory))
    return createStringError(directory +
                             " is not a folder, nor a link to one; valid: a folder, or a name that one can be "
                             "made by");
  // What others keep there can be read all the same.
  if (Error error = checkWritable(cache->path("new"))) {
    cache->notKept = toString(std::move(error));
    cache->full = true;
    return cache;
  }
  CachePruningPolicy policy;
  policy.MaxSizeBytes = uint64_t(4) << 30;
  pruneCache(directory, policy);
  return cache;
}

mlir::FailureOr<std::vector<char>> KernelCache::getOrCompile(KernelCache *cache, mlir::ModuleOp kernel,
                                                             StringRef target, bool &kept, Compile compile) {
  if (!cache)
    return compile();
  std::string key = cache->key(kernel, target); // before the kernel is lowered in its place
  if (std::optional<std::vector<char>> code = cache->find(key)) {
    kept = true;
    return std::move(*code);
  }
  mlir::FailureOr<std::vector<char>> code = compile();
  if (succeeded(code) && !cache->full)
    if (Error error = cache->keep(key, *code)) {
      std::string message = toString(std::move(error));
      if (!cache->full.exchange(true))
        kernel.emitWarning("--kernel-cache: kernels are not kept: ") << message;
    }
  return code;
}

std::string KernelCache::key(mlir::ModuleOp kernel, StringRef target) const {
  std::call_once(known, [&] { compiler = loadedBuilds(); });
  std::string text;
  raw_string_ostream stream(text);
  kernel->print(stream, mlir::OpPrintingFlags().printGenericOpForm().useLocalScope());
  SHA256 hash;
  for (StringRef part : {StringRef(compiler), target, StringRef(text)}) {
    hash.update(std::to_string(part.size()) + ':');
    hash.update(part);
  }
  return toHex(hash.final(), /*LowerCase=*/true);
}

// CachePruning.h looks at names that begin so.
std::string KernelCache::path(StringRef key) const {
  SmallString<256> path = StringRef(directory);
  sys::path::append(path, "llvmcache-" + key);
  return path.str().str();
}

/// Of the name too: one kernel's file under the name of another is damaged.
static std::string hashOf(StringRef key, StringRef code) {
  SHA256 hash;
  hash.update(key);
  hash.update(code);
  return toStringRef(hash.final()).str();
}

// A file is the hash of its name and the code, then the code.
std::optional<std::vector<char>> KernelCache::find(StringRef key) const {
  ErrorOr<std::unique_ptr<MemoryBuffer>> file =
      MemoryBuffer::getFile(path(key), /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return std::nullopt;
  StringRef contents = (*file)->getBuffer();
  if (contents.size() < 32)
    return std::nullopt;
  StringRef code = contents.drop_front(32);
  if (hashOf(key, code) != contents.take_front(32))
    return std::nullopt;
  return std::vector<char>(code.begin(), code.end());
}

Error KernelCache::keep(StringRef key, ArrayRef<char> code) const {
  StringRef text(code.data(), code.size());
  return writeOutput(path(key), hashOf(key, text) + text.str());
}
