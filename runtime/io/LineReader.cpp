#include "runtime/io/LineReader.h"

#include <algorithm>

namespace braid::runtime {

Expected<bool> LineReader::next(std::string_view &line) {
  constexpr uint64_t chunk = uint64_t(1) << 20;
  size_t end, searched = nextLine;
  while ((end = text.find('\n', searched)) == std::string::npos && read < file.size()) {
    text.erase(0, nextLine);
    nextLine = 0;
    searched = text.size();
    if (searched > mostBytes)
      return Status::error(ErrorCode::corruptFile, "{}:{}: the line has more than {} bytes", file.path(), count + 1,
                           mostBytes);
    text.resize(searched + std::min(chunk, file.size() - read));
    BRAID_TRY(file.read(read, std::as_writable_bytes(std::span(text).subspan(searched))));
    read += text.size() - searched;
  }
  hasNewline = end != std::string::npos;
  if (!hasNewline)
    end = text.size();
  if (!hasNewline && nextLine == end)
    return false;
  line = std::string_view(text).substr(nextLine, end - nextLine);
  nextLine = hasNewline ? end + 1 : end;
  ++count;
  lineBegin = read - text.size() + static_cast<size_t>(line.data() - text.data());
  return true;
}

} // namespace braid::runtime
