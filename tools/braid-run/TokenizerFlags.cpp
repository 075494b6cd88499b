#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/template/ChatTemplate.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/TensorSource.h"
#include "tools/braid-run/Commands.h"
#include "tools/common/IntegerFlag.h"

#include <filesystem>

namespace braid::run {

using namespace braid::runtime;

CLI::Option *addTokenizerOption(CLI::App &command, std::string &path) {
  return command
      .add_option(
          "--tokenizer", path,
          "tokenizer.json or tiktoken.model of transformers, rwkv_vocab_*.txt of RWKV, or a directory with one, that "
          "reads texts (default: "
          "bytes, where the program's tokens are; else that beside the weights)")
      ->type_name("FILE");
}

// Whoever writes digits means a number.
static std::string numberError(const std::string &text) {
  return !text.empty() && text.find_first_not_of("+-0123456789") == std::string::npos
             ? checkInteger(text, 0, maxTokenCount)
             : "";
}

CLI::Option *addSeparatorOption(CLI::App &command, std::optional<std::string> &separator, const std::string &help) {
  return command.add_option("--separator", separator, help + "; with a tokenizer also its text, as '</s>'")
      ->check(CLI::Validator(numberError, ""))
      ->type_name("TOKEN");
}

Expected<std::optional<int64_t>> separatorOf(const std::optional<std::string> &text, const Texts &texts) {
  if (!text)
    return std::optional<int64_t>();
  std::string message = checkInteger(*text, 0, maxTokenCount);
  if (message.empty())
    return std::optional<int64_t>(std::stoll(*text));
  BRAID_TRY(texts.unread);
  const Tokenizer &tokenizer = texts.tokenizer;
  if (!tokenizer)
    return Status::error("--separator: {}, or with a --tokenizer the text of a token", message);
  if (std::optional<int32_t> token = tokenizer->tokenOf(*text))
    return std::optional<int64_t>(*token);
  return Status::error("--separator: '{}' is no token of {}; valid: a number, or the text of a token", escaped(*text),
                       tokenizer->path());
}

std::string directoryOf(const runtime::Tokenizer &tokenizer) {
  std::string directory = std::filesystem::path(tokenizer.path()).parent_path().string();
  return directory.empty() ? "." : directory;
}

Expected<std::map<std::string, std::string>> filesOf(const runtime::Tokenizer &tokenizer) {
  std::map<std::string, std::string> files;
  for (const runtime::Tokenizer::Source &source : tokenizer.sources()) {
    BRAID_ASSIGN(std::string text, readTextFile(source.path));
    if (contentHash(std::as_bytes(std::span(text))) != source.hash)
      return Status::error(ErrorCode::ioError, "{}: is being changed", source.path);
    files.emplace(source.name, std::move(text));
  }
  for (std::string_view name : ChatTemplate::files)
    if (std::string path = fmt::format("{}/{}", directoryOf(tokenizer), name);
        !files.contains(std::string(name)) && pathExists(path)) {
      BRAID_ASSIGN(files[std::string(name)], readTextFile(path));
    }
  return files;
}

Expected<Texts> textsOf(const Program &program, const std::string &path, const std::string &checkpoint) {
  Texts texts;
  if (!path.empty()) {
    BRAID_ASSIGN(texts.tokenizer, runtime::Tokenizer::load(path));
    texts.directory = directoryOf(*texts.tokenizer);
    return texts;
  }
  Expected<std::string> directory = checkpoint.empty() ? checkpoint : resolveCheckpoint(checkpoint);
  if (!directory || directory->empty()) { // whoever reads the weights says what is wrong
    texts.missing = directory.status();
    return texts;
  }
  texts.directory = *directory;
  std::optional<std::string> beside;
  std::map<std::string, FileContent, std::less<>> files; // that a checkpoint says it has
  if (isImported(*directory)) {
    BRAID_ASSIGN(bool bytes, readsBytes(program));
    beside = bytes ? std::nullopt : runtime::Tokenizer::fileIn(*directory);
  } else if (Expected<CheckpointIndex> index = readIndex(*directory)) {
    if (std::ranges::find(CheckpointIndex::tokenizerFiles, index->tokenizer) !=
        std::end(CheckpointIndex::tokenizerFiles))
      beside = fmt::format("{}/{}", *directory, index->tokenizer);
    files = std::move(index->files);
  }
  if (!beside)
    return texts;
  Expected<Tokenizer> tokenizer = runtime::Tokenizer::load(*beside);
  if (!tokenizer) {
    texts.unread = Status::error(tokenizer.status().code(), "{}; valid: --tokenizer, or tokens", tokenizer.message());
    return texts;
  }
  for (const runtime::Tokenizer::Source &source : (*tokenizer)->sources())
    if (auto file = files.find(source.name); file != files.end() && file->second.hash != source.hash) {
      texts.unread =
          Status::error(ErrorCode::corruptFile,
                        "{}: has hash {}, but that with which {} was trained had {}; valid: --tokenizer, or tokens",
                        source.path, source.hash.hex(), *directory, file->second.hash.hex());
      return texts;
    }
  texts.tokenizer = *std::move(tokenizer);
  return texts;
}

} // namespace braid::run
