// One line of a JSON Lines file: the field that holds the document.
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace braid::runtime {

// A string is text, an array of integers is tokens; exactly one of the two is there.
struct JsonRecord {
  std::optional<std::string> text;
  std::optional<std::vector<uint32_t>> tokens;
};

// Reads `field` of the object that `line` holds; everything else of it must be well-formed and is passed over. Tokens
// are checked: integers from 0 to vocabulary - 1. Errors say what is wrong where in the line; the caller adds file and
// line.
Expected<JsonRecord> parseJsonRecord(std::string_view line, const std::string &field, int64_t vocabulary);

// Visits the record of every line of a file with its place, "FILE:7", until that says false; an empty line holds none.
Status forEachJsonRecord(const std::string &path, const std::string &field, int64_t vocabulary,
                         const std::function<Expected<bool>(JsonRecord &record, const std::string &place)> &visit);

} // namespace braid::runtime
