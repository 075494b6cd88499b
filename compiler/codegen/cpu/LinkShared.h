//===- LinkShared.h - object files -> a shared object, by ld.lld --------------------------------------------------===//
#ifndef COMPILER_CODEGEN_CPU_LINKSHARED_H
#define COMPILER_CODEGEN_CPU_LINKSHARED_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace braid {

/// Links objects into a shared object that exports `symbols` and nothing else. Needs ld.lld: beside LLVM, beside this
/// program, or in PATH.
llvm::Expected<std::vector<char>> linkShared(llvm::ArrayRef<llvm::ArrayRef<char>> objects,
                                             llvm::ArrayRef<std::string> symbols);

} // namespace braid

#endif // COMPILER_CODEGEN_CPU_LINKSHARED_H
