#include "runtime/comm/NcclApi.h"

#include <dlfcn.h>

namespace braid::runtime::nccl {

namespace {

Expected<void *> load(const std::string &name) {
  if (void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL))
    return library;
  const char *reason = dlerror();
  return Status::error(ErrorCode::unsupported, "GPUs as ranks need {}, which cannot be opened: {}", name,
                       reason ? reason : "?");
}

template <class Function>
Status find(void *library, const std::string &libraryName, const char *name, Function &function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function)
    return Status::success();
  return Status::error(ErrorCode::unsupported, "GPUs as ranks need {}, which {} lacks", name, libraryName);
}

} // namespace

#define BRAID_FIND(member, name, result, parameters) BRAID_TRY(find(handle, library, name, functions.member));

Expected<Library> openLibrary(const std::string &library) {
  Library functions;
  BRAID_ASSIGN(void *handle, load(library));
  BRAID_NCCL_FUNCTIONS(BRAID_FIND)
  return functions;
}

#undef BRAID_FIND

Status Library::check(const char *call, Result code) const {
  if (code == success)
    return Status::success();
  return Status::error(ErrorCode::ioError, "{}: error {} ({})", call, code, errorText(code));
}

} // namespace braid::runtime::nccl
