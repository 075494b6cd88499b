#include "runtime/io/JsonText.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"

#include <charconv>
#include <filesystem>

namespace braid::run {

using namespace braid::runtime;

void addTokenizerOption(CLI::App &command, std::string &path) {
  command
      .add_option(
          "--tokenizer", path,
          "tokenizer.json of transformers, or a directory with one, that reads texts (default: bytes, where the "
          "program's tokens are; else that beside the weights)")
      ->type_name("FILE");
}

// Whoever writes digits means a number.
static std::string numberError(const std::string &text) {
  return text.find_first_not_of("+-0123456789") == std::string::npos ? checkInteger(text, 0, maxTokenCount) : "";
}

CLI::Option *addSeparatorOption(CLI::App &command, std::optional<std::string> &separator, const std::string &help) {
  return command.add_option("--separator", separator, help + "; with a tokenizer also its text, as '</s>'")
      ->check(CLI::Validator(numberError, ""))
      ->type_name("TOKEN");
}

Expected<std::optional<int64_t>> separatorOf(const std::optional<std::string> &text, const Tokenizer &tokenizer) {
  if (!text)
    return std::optional<int64_t>();
  std::string message = checkInteger(*text, 0, maxTokenCount);
  if (message.empty())
    return std::optional<int64_t>(std::stoll(*text));
  if (!tokenizer)
    return Status::error("--separator: {}, or with a --tokenizer the text of a token", message);
  if (std::optional<int32_t> token = tokenizer->tokenOf(*text))
    return std::optional<int64_t>(*token);
  return Status::error("--separator: '{}' is no token of {}; valid: a number, or the text of a token", escaped(*text),
                       tokenizer->path());
}

Expected<Tokenizer> tokenizerOf(const Program &program, const std::string &path, const std::string &checkpoint) {
  if (!path.empty())
    return runtime::Tokenizer::load(path);
  BRAID_ASSIGN(bool bytes, readsBytes(program));
  if (bytes || checkpoint.empty())
    return Tokenizer();
  Expected<std::string> directory = resolveCheckpoint(checkpoint);
  if (!directory) // whoever reads the weights says why
    return Tokenizer();
  auto [parent, step] = splitCheckpoint(*directory);
  std::string beside = (std::filesystem::path(step ? parent : *directory) / "tokenizer.json").string();
  return pathExists(beside) ? runtime::Tokenizer::load(beside) : Tokenizer();
}

} // namespace braid::run
