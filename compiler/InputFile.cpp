#include "compiler/InputFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

using namespace braid;

llvm::Expected<std::string> braid::readInput(llvm::StringRef path) {
  auto failed = [&](const llvm::Twine &why) { return llvm::createStringError("cannot read " + path + ": " + why); };
  if (llvm::sys::fs::is_directory(path)) {
    llvm::SmallString<128> config = path;
    llvm::sys::path::append(config, "config.json");
    return failed("it is a directory; valid: a file" +
                  llvm::Twine(llvm::sys::fs::exists(config) ? ", such as " + config : ""));
  }
  bool standard = path == "-";
  std::unique_ptr<std::FILE, int (*)(std::FILE *)> opened(standard ? nullptr : std::fopen(path.str().c_str(), "rb"),
                                                          std::fclose);
  std::FILE *file = standard ? stdin : opened.get();
  if (!file)
    return failed(std::strerror(errno));
  std::string text;
  char part[1 << 16];
  while (size_t count = std::fread(part, 1, sizeof(part), file)) {
    text.append(part, count);
    if (text.size() > maxInputBytes)
      return failed("it has more than " + llvm::Twine(maxInputBytes) + " bytes, the most that are read");
  }
  if (std::ferror(file))
    return failed(std::strerror(errno));
  return text;
}
