#include "runtime/data/JsonRecord.h"

#include "runtime/io/JsonText.h"
#include "runtime/io/LineReader.h"

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

// Events of one line: nothing is built but the field's value, nothing throws, nesting needs no stack.
class FieldReader : public nlohmann::json_sax<Json> {
public:
  FieldReader(const std::string &field, int64_t vocabulary) : field(field), vocabulary(vocabulary) {}

  bool null() override { return value("null"); }
  bool boolean(bool) override { return value("true or false"); }
  bool number_integer(number_integer_t number) override { return integer(number, std::to_string(number)); }
  bool number_unsigned(number_unsigned_t number) override {
    return integer(number > INT64_MAX ? INT64_MAX : static_cast<int64_t>(number), std::to_string(number));
  }
  bool number_float(number_float_t, const string_t &digits) override {
    return inTokens ? wrongToken(digits) : value("a number");
  }
  bool string(string_t &text) override {
    if (!wanted)
      return inTokens ? wrongToken("a string") : value("a string");
    wanted = false;
    record.text = std::move(text);
    return true;
  }
  bool binary(binary_t &) override { return value("binary data"); }
  bool start_object(std::size_t) override {
    if (depth == 0)
      isObject = true;
    else if (!value("an object"))
      return false;
    ++depth;
    return true;
  }
  bool key(string_t &name) override {
    if (depth != 1 || name != field)
      return true;
    if (seen)
      return fail(fmt::format("has the field '{}' twice", field));
    return seen = wanted = true;
  }
  bool end_object() override {
    --depth;
    return true;
  }
  bool start_array(std::size_t) override {
    if (std::exchange(wanted, false)) {
      inTokens = true;
      record.tokens.emplace();
    } else if (!value("an array")) {
      return false;
    }
    ++depth;
    return true;
  }
  bool end_array() override {
    inTokens = false;
    --depth;
    return true;
  }
  bool parse_error(std::size_t position, const std::string &, const nlohmann::detail::exception &error) override {
    return fail(fmt::format("is not JSON, at character {}: {}", position, jsonReason(error)));
  }

  Expected<JsonRecord> finish() {
    if (!message.empty())
      return Status::error(ErrorCode::corruptFile, "{}", message);
    if (!isObject)
      return Status::error(ErrorCode::corruptFile, "is no JSON object");
    if (!seen)
      return Status::error(ErrorCode::corruptFile, "has no field '{}'", field);
    return std::move(record);
  }

private:
  bool fail(std::string words) {
    if (message.empty())
      message = std::move(words);
    return false;
  }
  // Any value that is not the wanted one's text or tokens.
  bool value(std::string_view what) {
    if (depth == 0)
      return fail(fmt::format("holds {}, not an object", what));
    if (wanted)
      return fail(fmt::format("field '{}' is {}, not a string or an array of tokens", field, what));
    return inTokens ? wrongToken(what) : true;
  }
  bool wrongToken(std::string_view what) {
    return fail(
        fmt::format("{}[{}] is {}, not a token from 0 to {}", field, record.tokens->size(), what, vocabulary - 1));
  }
  bool integer(int64_t number, const std::string &digits) {
    if (!inTokens)
      return value("a number");
    if (number < 0 || number >= vocabulary)
      return wrongToken(digits);
    record.tokens->push_back(static_cast<uint32_t>(number));
    return true;
  }

  const std::string &field;
  int64_t vocabulary;
  JsonRecord record;
  std::string message;
  size_t depth = 0;
  bool isObject = false, seen = false;
  bool wanted = false;   // the next value is the field's
  bool inTokens = false; // inside its array
};

} // namespace

Expected<JsonRecord> parseJsonRecord(std::string_view line, const std::string &field, int64_t vocabulary) {
  if (size_t nul = line.find('\0'); nul != std::string_view::npos) // for the library the end of the text
    return Status::error(ErrorCode::corruptFile, "holds a NUL byte, at byte {}", nul + 1);
  FieldReader reader(field, vocabulary);
  Json::sax_parse(line.begin(), line.end(), &reader);
  return reader.finish();
}

Status forEachJsonRecord(const std::string &path, const std::string &field, int64_t vocabulary,
                         const std::function<Expected<bool>(JsonRecord &, const std::string &)> &visit) {
  BRAID_ASSIGN(InputFile file, InputFile::open(path));
  LineReader lines(file);
  std::string_view line;
  while (true) {
    BRAID_ASSIGN(bool more, lines.next(line));
    if (!more)
      return Status::success();
    if (line.find_first_not_of(" \t\r") == std::string_view::npos)
      continue;
    std::string place = fmt::format("{}:{}", path, lines.number());
    Expected<JsonRecord> record = parseJsonRecord(line, field, vocabulary);
    if (!record)
      return record.status().withContext(place);
    BRAID_ASSIGN(bool goOn, visit(*record, place));
    if (!goOn)
      return Status::success();
  }
}

} // namespace braid::runtime
