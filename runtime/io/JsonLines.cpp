#include "runtime/io/JsonLines.h"

#include <nlohmann/json.hpp>

namespace braid::runtime {

Expected<JsonLinesFile> JsonLinesFile::create(const std::string &path) {
  BRAID_ASSIGN(OutputFile file, OutputFile::create(path));
  return JsonLinesFile(std::move(file));
}

Expected<JsonLinesFile> JsonLinesFile::append(const std::string &path) {
  BRAID_ASSIGN(OutputFile file, OutputFile::append(path));
  return JsonLinesFile(std::move(file));
}

Status JsonLinesFile::write(const nlohmann::ordered_json &object) {
  return file.write(object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

Status dropLinesAfter(const std::string &path, std::string_view key, uint64_t last) {
  if (!pathExists(path))
    return Status::success();
  BRAID_ASSIGN(std::string text, readTextFile(path));
  std::string kept;
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find('\n', begin);
    if (end == std::string::npos)
      break;
    std::string_view line(text.data() + begin, end - begin);
    nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    auto found = object.is_object() ? object.find(key) : object.end();
    bool later = found != object.end() && found->is_number_unsigned() && found->get<uint64_t>() > last;
    if (!later)
      kept.append(line).push_back('\n');
    begin = end + 1;
  }
  return kept == text ? Status::success() : writeFileAtomic(path, kept);
}

} // namespace braid::runtime
