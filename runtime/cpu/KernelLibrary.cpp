#include "runtime/cpu/KernelLibrary.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

namespace braid::runtime {

KernelLibrary::~KernelLibrary() {
  if (handle)
    dlclose(handle);
  if (descriptor >= 0)
    close(descriptor);
}

Expected<KernelLibrary> KernelLibrary::load(std::span<const std::byte> sharedObject, const std::string &name) {
  KernelLibrary library;
  library.descriptor = memfd_create("braid-kernels", MFD_CLOEXEC);
  if (library.descriptor < 0)
    return Status::error(ErrorCode::ioError, "code '{}': memfd_create: {}", name, std::strerror(errno));
  while (!sharedObject.empty()) {
    ssize_t written = write(library.descriptor, sharedObject.data(), sharedObject.size());
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      return Status::error(ErrorCode::ioError, "code '{}': cannot write it to memory: {}", name, std::strerror(errno));
    sharedObject = sharedObject.subspan(written);
  }
  std::string path = fmt::format("/proc/self/fd/{}", library.descriptor);
  library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle) {
    const char *reason = dlerror();
    return Status::error(ErrorCode::corruptFile, "code '{}' cannot be loaded: {}", name, reason ? reason : "?");
  }
  return library;
}

Expected<KernelFunction> KernelLibrary::resolve(const std::string &symbol) const {
  void *address = handle ? dlsym(handle, symbol.c_str()) : nullptr;
  if (!address)
    return Status::error(ErrorCode::corruptFile, "kernel '{}' is not in the program's code", symbol);
  return reinterpret_cast<KernelFunction>(address);
}

} // namespace braid::runtime
