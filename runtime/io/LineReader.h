// The lines of a file one after the other, in memory that depends on the longest line and not on the file.
#pragma once

#include "runtime/io/File.h"

namespace braid::runtime {

class LineReader {
public:
  // A line of more than `mostBytes` is an error. The file must outlive the reader.
  explicit LineReader(const InputFile &file, size_t mostBytes = size_t(1) << 30) : file(file), mostBytes(mostBytes) {}

  // False at the end of the file. The line, without its newline, is valid until the next call.
  Expected<bool> next(std::string_view &line);
  // Of the line that next() gave last: counted from 1; false for one that ends with the file and not with a newline.
  uint64_t number() const { return count; }
  bool complete() const { return hasNewline; }
  // Where it begins in the file.
  uint64_t begin() const { return lineBegin; }

private:
  const InputFile &file;
  size_t mostBytes;
  std::string text;    // of the current line, and what was read beyond it
  size_t nextLine = 0; // in `text`
  uint64_t read = 0;   // bytes of the file
  uint64_t lineBegin = 0;
  uint64_t count = 0;
  bool hasNewline = false;
};

} // namespace braid::runtime
