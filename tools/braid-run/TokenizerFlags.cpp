#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"

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
  Expected<std::string> directory = checkpoint.empty() ? checkpoint : resolveCheckpoint(checkpoint);
  if (!directory || directory->empty()) // whoever reads the weights says what is wrong
    return Tokenizer();
  if (isImported(*directory)) {
    BRAID_ASSIGN(bool bytes, readsBytes(program));
    std::string beside = fmt::format("{}/{}", *directory, CheckpointIndex::tokenizerFile);
    return bytes || !pathExists(beside) ? Tokenizer() : runtime::Tokenizer::load(beside);
  }
  Expected<CheckpointIndex> index = readIndex(*directory);
  if (!index || !index->tokenizer.starts_with(CheckpointIndex::tokenizerFile))
    return Tokenizer();
  std::string beside = fmt::format("{}/{}", splitCheckpoint(*directory).first, CheckpointIndex::tokenizerFile);
  Expected<Tokenizer> tokenizer = runtime::Tokenizer::load(beside);
  std::string trained = fmt::format("{} was trained with it; valid: --tokenizer", *directory);
  if (!tokenizer)
    return Status::error(tokenizer.status().code(), "{}; {}", tokenizer.message(), trained);
  std::string hash = (*tokenizer)->hash().hex(),
              known =
                  index->tokenizer.substr(std::min(index->tokenizer.size(), CheckpointIndex::tokenizerFile.size() + 1));
  if (hash != known)
    return Status::error(ErrorCode::corruptFile, "{}: has hash {}, but {} had {}; valid: --tokenizer", beside, hash,
                         "that with which " + *directory + " was trained", known);
  return tokenizer;
}

} // namespace braid::run
