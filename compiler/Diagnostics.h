//===- Diagnostics.h - messages of the compiler on standard error -------------------------------------------------===//
#ifndef COMPILER_DIAGNOSTICS_H
#define COMPILER_DIAGNOSTICS_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/raw_ostream.h"

namespace braid {

/// The program in front of every message; "braid-compile" until a main says otherwise. `name` outlives all messages.
void setProgramName(llvm::StringRef name);

/// "braid-compile: error: <message>".
void printError(const llvm::Twine &message);

/// Prints what MLIR reports in the same form. Modules built from a description have names instead of lines:
/// "braid-compile: error: layers: layer_G: q: .."; those read from a file have both: "braid-compile: error:
/// x.mlir:3:5: ..", with the line of `source` and a mark where it fits a screen.
void printDiagnostic(mlir::Diagnostic &diagnostic, llvm::StringRef source);

/// While it lives, messages of this thread are kept here and printed nowhere: of one of many compilations, which may be refused. One at a time in a thread.
class KeptMessages {
public:
  KeptMessages();
  ~KeptMessages();
  KeptMessages(const KeptMessages &) = delete;
  KeptMessages &operator=(const KeptMessages &) = delete;
  /// The first error without program and severity, on one line; empty: there is none.
  std::string firstError() const;

private:
  std::string text;
  llvm::raw_string_ostream stream;
};

} // namespace braid

#endif // COMPILER_DIAGNOSTICS_H
