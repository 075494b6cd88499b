#include "runtime/io/JsonLines.h"

#include "runtime/io/LineReader.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace braid::runtime {

Expected<JsonLinesFile> JsonLinesFile::create(const std::string &path) {
  BRAID_ASSIGN(OutputFile file, OutputFile::createWithoutWaiting(path));
  return JsonLinesFile(std::move(file));
}

Expected<JsonLinesFile> JsonLinesFile::append(const std::string &path) {
  BRAID_ASSIGN(OutputFile file, OutputFile::append(path));
  return JsonLinesFile(std::move(file));
}

Status JsonLinesFile::write(const nlohmann::ordered_json &object) {
  if (kept.size() >= mostKept)
    ++lost;
  else
    kept += object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  return flush();
}

Status JsonLinesFile::flush() {
  size_t written;
  Status status = file.write(std::as_bytes(std::span(kept)), written);
  kept.erase(0, written);
  return status;
}

// Copies the first `bytes` of a file.
static Status copyBegin(const InputFile &file, uint64_t bytes, OutputFile &target) {
  std::vector<std::byte> block(std::min<uint64_t>(bytes, 1 << 20));
  for (uint64_t at = 0; at < bytes; at += block.size()) {
    auto part = std::span(block).first(std::min<uint64_t>(block.size(), bytes - at));
    BRAID_TRY(file.read(at, part));
    BRAID_TRY(target.write(part));
  }
  return Status::success();
}

Status dropLinesAfter(const std::string &path, std::string_view key, uint64_t last) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) // a device or a pipe keeps nothing
    return Status::success();
  auto isKept = [&](std::string_view line) {
    nlohmann::json object = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    auto found = object.is_object() ? object.find(key) : object.end();
    return found == object.end() || !found->is_number_unsigned() || found->get<uint64_t>() <= last;
  };
  // A link stays a link: what it names is written anew.
  std::string target = std::filesystem::canonical(path, error).string(), temporary = target + ".tmp";
  if (error)
    return writeError(path, error.value());
  BRAID_ASSIGN(InputFile file, InputFile::open(path));
  LineReader reader(file);
  std::string_view line;
  std::optional<OutputFile> kept; // once there is a line to drop
  while (true) {
    BRAID_ASSIGN(bool more, reader.next(line));
    if (!more)
      break;
    bool keep = reader.complete() && isKept(line);
    if (!keep && !kept) {
      BRAID_ASSIGN(kept, OutputFile::create(temporary));
      BRAID_TRY(copyBegin(file, reader.begin(), *kept));
    } else if (keep && kept) {
      BRAID_TRY(kept->write(std::string(line) + "\n"));
    }
  }
  if (!kept)
    return Status::success();
  BRAID_TRY(kept->sync());
  BRAID_TRY(kept->close());
  return replaceFile(temporary, target);
}

} // namespace braid::runtime
