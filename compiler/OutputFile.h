//===- OutputFile.h - files that a compilation writes -------------------------------------------------------------===//
// A file appears complete or not at all, and never in the place of another one that the same command names.
#ifndef COMPILER_OUTPUTFILE_H
#define COMPILER_OUTPUTFILE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace braid {

/// What is written, as it is recognised where it lies.
enum class FileKind { any, program, module, description, picture, trace };

/// A file and what a message calls it: "the input m.json", "-o P.braid", "--dump-phases-to=DIR".
struct NamedFile {
  std::string name, path;
  FileKind kind = FileKind::any; ///< of an output
};

/// An error that says both names where an output is an input, or another output, by whatever path, link or hard link;
/// and one where it would take the place of a file of another kind. "-" is standard output.
llvm::Error checkOutputs(llvm::ArrayRef<NamedFile> inputs, llvm::ArrayRef<NamedFile> outputs);

/// What writeOutput would meet at once, found before there is anything to write: no such folder, no right to write there.
/// Nothing is changed.
llvm::Error checkWritable(llvm::StringRef path);

/// Writes a whole file: beside the one it replaces (where a link points), then in its place; what stood there stays
/// until then. Devices, pipes and "-" (standard output) are written to directly.
llvm::Error writeOutput(llvm::StringRef path, llvm::StringRef contents);

} // namespace braid

#endif // COMPILER_OUTPUTFILE_H
