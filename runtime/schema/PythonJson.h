// Numbers as Python's json writes them, which JSON does not have.
#ifndef RUNTIME_SCHEMA_PYTHONJSON_H
#define RUNTIME_SCHEMA_PYTHONJSON_H

#include <algorithm>
#include <string>
#include <string_view>

namespace braid {

/// How much of a text is one string or comment, or else one character; the text is not empty.
inline size_t lengthOfNext(std::string_view text) {
  auto behind = [&](size_t end, size_t more) { return end == text.npos ? text.size() : end + more; };
  if (text.starts_with("//"))
    return behind(text.find('\n'), 0);
  if (text.starts_with("/*"))
    return behind(text.find("*/", 2), 2);
  if (!text.starts_with('"'))
    return 1;
  size_t at = 1;
  while (at < text.size() && text[at] != '"')
    at += text[at] == '\\' ? 2 : 1;
  return std::min(at + 1, text.size());
}

/// The bare words Infinity, -Infinity and NaN become strings, outside of strings and comments; readers say what they think of them.
inline std::string quoteBareWords(std::string_view text) {
  std::string quoted;
  while (!text.empty()) {
    bool isWord = false;
    for (std::string_view word : {"Infinity", "-Infinity", "NaN"})
      if (text.starts_with(word)) {
        (quoted += '"').append(word) += '"';
        text.remove_prefix(word.size());
        isWord = true;
        break;
      }
    if (isWord)
      continue;
    size_t length = lengthOfNext(text);
    quoted.append(text.substr(0, length));
    text.remove_prefix(length);
  }
  return quoted;
}

} // namespace braid

#endif // RUNTIME_SCHEMA_PYTHONJSON_H
