//===- KernelTime.h - where the time of compiling one kernel went -------------------------------------------------===//
#ifndef COMPILER_CODEGEN_KERNELTIME_H
#define COMPILER_CODEGEN_KERNELTIME_H

#include <string>

namespace braid {

/// In milliseconds.
struct KernelTime {
  std::string name;
  double lowering = 0, optimizing = 0, emitting = 0;
};

} // namespace braid

#endif // COMPILER_CODEGEN_KERNELTIME_H
