//===- LayerPattern.h - the layers that a pattern of letters names -----------------------------------------*- C++ -*-===//
#ifndef RUNTIME_SCHEMA_LAYERPATTERN_H
#define RUNTIME_SCHEMA_LAYERPATTERN_H

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

/// The letters of each layer: "LL(NM)-" is {"L", "L", "NM", "-"}. Whether letters and parentheses are what a description
/// may say is the frontend's to check; what is not closed ends with the pattern.
inline std::vector<std::string> layersOfPattern(std::string_view pattern) {
  std::vector<std::string> layers;
  for (size_t at = 0; at < pattern.size();) {
    bool isGroup = pattern[at] == '(';
    size_t begin = isGroup ? at + 1 : at, end = isGroup ? std::min(pattern.find(')', begin), pattern.size()) : at + 1;
    layers.emplace_back(pattern.substr(begin, end - begin));
    at = isGroup ? end + 1 : end;
  }
  return layers;
}

} // namespace braid

#endif // RUNTIME_SCHEMA_LAYERPATTERN_H
