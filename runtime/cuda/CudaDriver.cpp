#include "runtime/cuda/CudaDriver.h"

#include <thread>

#include <dlfcn.h>

namespace braid::runtime::cuda {
namespace {

struct Opened {
  Driver driver;
  Status status = Status::success();
};

Status start(Driver &driver) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = dlerror();
    return Status::error(ErrorCode::unsupported, "no driver: libcuda.so.1 could not be opened ({})",
                         reason ? reason : "?");
  }
  const char *missing = nullptr;
#define BRAID_CUDA_FIND(name, parameters)                                                                              \
  driver.name = reinterpret_cast<decltype(driver.name)>(dlsym(library, #name));                                        \
  if (!driver.name && !missing)                                                                                        \
    missing = #name;
  BRAID_CUDA_FUNCTIONS(BRAID_CUDA_FIND)
  if (missing)
    return Status::error(ErrorCode::unsupported, "libcuda.so.1 is no CUDA driver, or too old a one: it lacks {}",
                         missing);
  BRAID_CUDA_NEWER_FUNCTIONS(BRAID_CUDA_FIND)
#undef BRAID_CUDA_FIND
  if (int code = driver.cuInit(0); code == noDevice)
    return Status::error(ErrorCode::unsupported, "no device: the CUDA driver knows 0 GPUs");
  else if (code != success)
    return driver.check(code, "cuInit").withContext("the CUDA driver does not start");
  int devices = 0;
  BRAID_TRY(driver.check(driver.cuDeviceGetCount(&devices), "cuDeviceGetCount"));
  if (devices == 0)
    return Status::error(ErrorCode::unsupported, "no device: the CUDA driver knows 0 GPUs");
  return Status::success();
}

} // namespace

Expected<const Driver *> Driver::open() {
  static const Opened *opened = [] {
    auto *made = new Opened; // lives as long as the driver's own threads
    made->status = start(made->driver);
    return made;
  }();
  BRAID_TRY(opened->status);
  return &opened->driver;
}

Status Driver::check(int result, const char *call) const {
  if (result == success)
    return Status::success();
  const char *name = nullptr, *text = nullptr;
  if (cuGetErrorName(result, &name) != success || !name)
    name = "unknown";
  if (cuGetErrorString(result, &text) != success || !text)
    text = "no description";
  return Status::error(ErrorCode::unsupported, "{}: error {} {} ({})", call, result, name, text);
}

Expected<bool> Driver::waitFor(Stream stream, std::chrono::milliseconds timeout,
                               const std::function<Status()> &alive) const {
  auto deadline = std::chrono::steady_clock::now() + timeout;
  for (int polls = 0;; ++polls) {
    int state = cuStreamQuery(stream);
    if (state != notReady) {
      BRAID_TRY(check(state, "cuStreamQuery"));
      return true;
    }
    if (std::chrono::steady_clock::now() > deadline)
      return false;
    if (polls < 100)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (polls % 16 == 15)
      BRAID_TRY(alive());
  }
}

} // namespace braid::runtime::cuda
