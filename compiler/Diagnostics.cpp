//===- Diagnostics.cpp - messages of the compiler on standard error -----------------------------------------------===//
#include "compiler/Diagnostics.h"

#include "frontend/ModelSpec.h"

#include "mlir/IR/Location.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace braid;

/// Columns of a line that a message repeats; a module's attributes can be one line of many thousands.
static constexpr size_t maxColumns = 160;
/// Letters of a line of a message.
static constexpr size_t maxLetters = 4096;

static StringRef programName = "braid-compile";

void braid::setProgramName(StringRef name) { programName = name; }

static thread_local llvm::raw_ostream *kept = nullptr;

static llvm::raw_ostream &messages() { return kept ? *kept : llvm::errs(); }

KeptMessages::KeptMessages() : stream(text) { kept = &stream; }

KeptMessages::~KeptMessages() { kept = nullptr; }

std::string KeptMessages::firstError() const {
  SmallVector<StringRef> lines;
  StringRef(text).split(lines, '\n');
  std::string before = (programName + ": error: ").str();
  for (StringRef line : lines)
    if (line.consume_front(before))
      return line.str();
  return "";
}

void braid::printError(const Twine &message) { messages() << programName << ": error: " << message << '\n'; }

static StringRef severityName(DiagnosticSeverity severity) {
  switch (severity) {
  case DiagnosticSeverity::Note: return "note";
  case DiagnosticSeverity::Warning: return "warning";
  case DiagnosticSeverity::Error: return "error";
  case DiagnosticSeverity::Remark: return "remark";
  }
  llvm_unreachable("all severities are above");
}

/// "x.mlir:3:5: " and "layer_G_D_8x128: o: ", as far as the location has them.
static std::string placeOf(Location location, FileLineColLoc &file) {
  std::string names;
  location->walk([&](Location part) {
    if (auto line = dyn_cast<FileLineColLoc>(part); line && !file)
      file = line;
    if (auto name = dyn_cast<NameLoc>(part))
      names.insert(0, name.getName().str() + ": "); // an op's place holds that of its function
    return WalkResult::advance();
  });
  if (!file)
    return names;
  if (file.getLine() == 0) // a module that the file does not write stands at no line
    return (file.getFilename().getValue() + ": ").str();
  return (file.getFilename().getValue() + ":" + Twine(file.getLine()) + ":" + Twine(file.getColumn()) + ": ").str();
}

static void printLine(FileLineColLoc file, StringRef source) {
  if (file.getLine() == 0 || file.getColumn() == 0)
    return;
  for (unsigned line = 1; line < file.getLine(); ++line)
    source = source.split('\n').second;
  StringRef text = source.split('\n').first;
  if (text.empty() || text.size() > maxColumns || file.getColumn() > text.size() + 1)
    return;
  messages() << shownText(text, maxColumns) << '\n';
  // Letters that are escaped would move the mark.
  if (llvm::all_of(text, [](char c) { return llvm::isPrint(c); }))
    messages().indent(file.getColumn() - 1) << "^\n";
}

void braid::printDiagnostic(Diagnostic &diagnostic, StringRef source) {
  auto print = [&](Diagnostic &one, StringRef prefix) {
    FileLineColLoc file;
    std::string place = placeOf(one.getLocation(), file);
    messages() << prefix << severityName(one.getSeverity()) << ": " << place;
    std::string text = one.str();
    // Of a function that came from a description: its name stands before, and nobody wrote an op.
    if (StringRef op = "'func.func' op "; !file && !place.empty() && StringRef(text).starts_with(op))
      text.erase(0, op.size());
    SmallVector<StringRef> lines;
    StringRef(text).split(lines, '\n');
    for (StringRef line : lines)
      messages() << shownText(line, maxLetters) << '\n';
    if (file && !source.empty())
      printLine(file, source);
  };
  print(diagnostic, (programName + ": ").str());
  for (Diagnostic &note : diagnostic.getNotes())
    print(note, "  ");
}
