//===- CommandAccesses.h - the bytes that a command reads and writes ----------------------------------------------===//
#ifndef PASSES_LOWER_COMMANDACCESSES_H
#define PASSES_LOWER_COMMANDACCESSES_H

#include "dialects/cmd/CmdDialect.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace braid {

struct Access {
  cmd::BufferAttr buffer;
  bool written;
};

/// Knows of every kernel of a module which of its parameters it writes.
class CommandAccesses {
public:
  explicit CommandAccesses(mlir::ModuleOp module);
  /// Of a launch, library call, collective, copy or fill; other commands touch nothing.
  llvm::SmallVector<Access> of(mlir::Operation *command) const;

private:
  llvm::StringMap<llvm::StringSet<>> written;
};

} // namespace braid

#endif // PASSES_LOWER_COMMANDACCESSES_H
