#include "test/runtime/AllocationCounter.h"

#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <dnnl.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || __has_feature(memory_sanitizer)
#define BRAID_SANITIZED 1
#endif
#endif

namespace {
std::atomic<int64_t> own{0}, inLibrary{0};
thread_local bool insideLibrary = false;
} // namespace

#if !defined(BRAID_SANITIZED) && defined(__GLIBC__)
extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

// operator new ends here too.
void *malloc(size_t bytes) {
  (insideLibrary ? inLibrary : own).fetch_add(1, std::memory_order_relaxed);
  return __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  (insideLibrary ? inLibrary : own).fetch_add(1, std::memory_order_relaxed);
  return __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  (insideLibrary ? inLibrary : own).fetch_add(1, std::memory_order_relaxed);
  return __libc_realloc(memory, bytes);
}

// The runtime is linked statically, so its calls come here.
dnnl_status_t dnnl_primitive_execute(const_dnnl_primitive_t primitive, dnnl_stream_t stream, int count,
                                     const dnnl_exec_arg_t *args) {
  using Execute = dnnl_status_t (*)(const_dnnl_primitive_t, dnnl_stream_t, int, const dnnl_exec_arg_t *);
  static const auto execute = reinterpret_cast<Execute>(dlsym(RTLD_NEXT, "dnnl_primitive_execute"));
  insideLibrary = true;
  dnnl_status_t status = execute(primitive, stream, count, args);
  insideLibrary = false;
  return status;
}
}
#define BRAID_COUNTS_ALLOCATIONS 1
#endif

namespace braid::runtime::test {

bool countsAllocations() {
#ifdef BRAID_COUNTS_ALLOCATIONS
  return true;
#else
  return false;
#endif
}

int64_t allocations() { return own.load(); }
int64_t libraryAllocations() { return inLibrary.load(); }

} // namespace braid::runtime::test
