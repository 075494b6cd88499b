// JSON that must be one object: what is wrong with a text that is not, and where.
#pragma once

#include "runtime/Expected.h"

#include <nlohmann/json.hpp>

namespace braid::runtime {

// "is not JSON, at byte 812 (line 9, column 4): unexpected end of input: the file looks truncated". The caller adds the
// name.
Expected<nlohmann::json> parseJsonObject(std::string_view text);

// Of a text of JSON, how many lists and objects are in each other: what is deep takes the stack of who reads or frees it.
size_t jsonDepth(std::string_view text);

// The library's sentence without its number and its own idea of the place, or the first 200 bytes of it.
std::string_view jsonReason(const nlohmann::json::exception &error);

// A value in a message: the kind of a list or object, which may be as deep as its text is long; of others 40 letters.
std::string shownValue(const nlohmann::json &value);
// Of this kind "an object", "a list" and "an empty list".
std::string shownValue(const nlohmann::ordered_json &value);

// Of any bytes: what is no letter of ASCII as JSON has it (\n, \u0007), what is no text as \ufffd.
std::string escaped(std::string_view text);

} // namespace braid::runtime
