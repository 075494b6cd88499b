// A file of JSON objects, one per line, that a person can follow while it grows.
#pragma once

#include "runtime/io/File.h"

#include <nlohmann/json_fwd.hpp>

namespace braid::runtime {

class JsonLinesFile {
public:
  // A new file (or a pipe, which never holds up the writer), or the end of an existing one.
  static Expected<JsonLinesFile> create(const std::string &path);
  static Expected<JsonLinesFile> append(const std::string &path);

  // One line, handed to the operating system at once. Numbers that JSON does not have (NaN, infinity) become null.
  // After an error what did not arrive is kept and goes first at the next call, so that the file has no gap then; lines
  // beyond `mostKept` bytes are lost.
  Status write(const nlohmann::ordered_json &object);
  // Tries again what is kept.
  Status flush();
  uint64_t lostLines() const { return lost; }

  static constexpr size_t mostKept = size_t(64) << 20;

private:
  explicit JsonLinesFile(OutputFile file) : file(std::move(file)) {}
  OutputFile file;
  std::string kept;
  uint64_t lost = 0;
};

// Drops the lines whose integer `key` is greater than `last`, and a last line that was cut off: what a run wrote after
// the checkpoint from which it is resumed. A file that does not exist is left alone.
Status dropLinesAfter(const std::string &path, std::string_view key, uint64_t last);

} // namespace braid::runtime
