#include "runtime/CudaDriver.h"

#include <dlfcn.h>

namespace braid::runtime {

Status checkCudaDevice() {
  void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!driver) {
    const char *reason = dlerror();
    return Status::error(ErrorCode::unsupported, "no driver: libcuda.so.1 could not be opened ({})",
                         reason ? reason : "?");
  }
  // Signatures as NVIDIA documents them: cuInit(flags), cuDeviceGetCount(count); 0 is success.
  auto init = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto count = reinterpret_cast<int (*)(int *)>(dlsym(driver, "cuDeviceGetCount"));
  Status status = Status::success();
  int devices = 0;
  if (!init || !count)
    status = Status::error(ErrorCode::unsupported, "libcuda.so.1 is no CUDA driver: it lacks {}",
                           init ? "cuDeviceGetCount" : "cuInit");
  else if (int code = init(0); code != 0)
    status = Status::error(ErrorCode::unsupported, "the CUDA driver does not start: error {}{}", code,
                           code == 100 ? " (no device)" : "");
  else if (int code = count(&devices); code != 0)
    status =
        Status::error(ErrorCode::unsupported, "the CUDA driver does not say how many devices it has: error {}", code);
  else if (devices == 0)
    status = Status::error(ErrorCode::unsupported, "no device: the CUDA driver knows 0 GPUs");
  dlclose(driver);
  return status;
}

} // namespace braid::runtime
