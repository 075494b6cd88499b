#include "runtime/data/JsonRecord.h"
#include "runtime/io/Words.h"
#include "runtime/text/TextBatch.h"
#include "tools/braid-run/Prompts.h"
#include "tools/common/IntegerFlag.h"

#include <chrono>
#include <filesystem>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace braid::run {

using namespace braid::runtime;

namespace {

struct Options {
  std::string tokenizer, output;
  DataFlags data;
  PromptFlags prompts;
  bool decode = false;
};

// Where documents go, one after the other: lines of JSON, or tokens of two or four bytes.
class Sink {
public:
  Sink(OutputFile *file, size_t width) : file(file), width(width) {}

  Status line(const nlohmann::json &value) {
    pending += value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    pending += '\n';
    return pending.size() < mostPending ? Status::success() : flush();
  }
  Status tokens(std::span<const int32_t> tokens, const std::string &place) {
    if (width == 0)
      return line({{"tokens", tokens}});
    for (int32_t token : tokens) {
      if (width == 2 && token > UINT16_MAX)
        return Status::error("{}: token {} has no room in the 2 bytes of u16; valid: --output=FILE.u32", place, token);
      for (size_t byte = 0; byte < width; ++byte)
        pending += static_cast<char>(static_cast<uint32_t>(token) >> 8 * byte);
    }
    return pending.size() < mostPending ? Status::success() : flush();
  }
  Status flush() {
    if (stopOnSignals())
      return Status::error(ErrorCode::aborted, "stopped{}", file ? "; nothing was written" : "");
    std::string bytes = std::exchange(pending, {});
    if (file)
      return file->write(bytes);
    if (std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size())
      return writeError("standard output", errno);
    return Status::success();
  }

private:
  static constexpr size_t mostPending = size_t(1) << 20;
  OutputFile *file; // null: standard output
  size_t width; // 0: lines
  std::string pending;
};

struct Counts {
  uint64_t documents = 0, bytes = 0, tokens = 0;
};

// `place`: of the document, for what is wrong with it.
Status decodeDocument(std::span<const int32_t> tokens, const std::string &place, const Tokenizer &tokenizer, Sink &sink,
                      Counts &counts) {
  TextDecoder decoder(tokenizer, /*special=*/true);
  std::string text;
  for (int32_t token : tokens) {
    Expected<std::string> added = decoder.add(token);
    if (!added)
      return added.status().withContext(place);
    text += *added;
  }
  ++counts.documents;
  counts.bytes += text.size();
  counts.tokens += tokens.size();
  return sink.line({{"text", text}});
}

Expected<DataFormat> formatOf(const std::string &path, const Options &options) {
  std::optional<DataFormat> given = parseDataFormat(options.data.format);
  return given ? Expected<DataFormat>(*given) : runtime::formatOf(path);
}

// One that cannot be what is asked for is refused before anything is written.
Status checkFormats(const std::vector<std::string> &files, const Options &options) {
  for (const std::string &path : files) {
    BRAID_ASSIGN(DataFormat format, formatOf(path, options));
    bool tokens = format != DataFormat::text && format != DataFormat::jsonl;
    if (options.decode ? format == DataFormat::text : tokens)
      return Status::error("{}: is read as {}; valid{}: {}", path, toString(format),
                           options.decode ? " with --decode" : "",
                           options.decode ? "jsonl, u16, u32, npy" : "text, jsonl, or --decode");
    if (options.data.field && format != DataFormat::jsonl)
      return Status::error("--field={}: only JSON Lines have fields, but {} is read as {}", *options.data.field, path,
                           toString(format));
  }
  return Status::success();
}

Status encodeFiles(const std::vector<std::string> &files, const Options &options, TextBatch &batch,
                   int64_t vocabulary) {
  std::string field = options.data.field.value_or("text");
  for (const std::string &path : files) {
    BRAID_ASSIGN(DataFormat format, formatOf(path, options));
    if (format != DataFormat::jsonl) {
      BRAID_ASSIGN(std::string text, readTextFile(path, UINT64_MAX));
      BRAID_TRY(batch.add(std::move(text), path));
      continue;
    }
    BRAID_TRY(
        forEachJsonRecord(path, field, vocabulary, [&](JsonRecord &record, const std::string &place) -> Expected<bool> {
          if (!record.text)
            return Status::error("{}: field '{}' is an array of tokens; valid: a string, or --decode", place, field);
          BRAID_TRY(batch.add(*std::move(record.text), place));
          return true;
        }));
  }
  return batch.finish();
}

Status decodeFiles(const std::vector<std::string> &files, const Options &options, const Tokenizer &tokenizer,
                   std::optional<int64_t> separator, Sink &sink, Counts &counts) {
  std::string field = options.data.field.value_or("tokens");
  for (const std::string &path : files) {
    BRAID_ASSIGN(DataFormat format, formatOf(path, options));
    if (format == DataFormat::jsonl) {
      BRAID_TRY(forEachJsonRecord(
          path, field, tokenizer->vocabulary(), [&](JsonRecord &record, const std::string &place) -> Expected<bool> {
            if (!record.tokens)
              return Status::error("{}: field '{}' is a string; valid: an array of tokens", place, field);
            std::vector<int32_t> tokens(record.tokens->begin(), record.tokens->end());
            BRAID_TRY(decodeDocument(tokens, place, tokenizer, sink, counts));
            return true;
          }));
      continue;
    }
    DataOptions data;
    data.format = format;
    data.separator = separator;
    data.bytes = false;
    BRAID_ASSIGN(Corpus corpus, readCorpus(std::span(&path, 1), tokenizer->vocabulary(), data));
    for (uint64_t document = 0; document < corpus.documents(); ++document) {
      std::vector<int32_t> tokens(corpus.end(document) - corpus.begin(document));
      BRAID_TRY(corpus.copy(corpus.begin(document), tokens));
      BRAID_TRY(decodeDocument(tokens, path, tokenizer, sink, counts));
    }
  }
  return Status::success();
}

// What a name asks for; 0: lines of JSON.
Expected<size_t> widthOf(const Options &options) {
  std::string ending = std::filesystem::path(options.output).extension().string();
  if (options.output.empty() || ending == ".jsonl")
    return size_t(0);
  if (!options.decode && (ending == ".u16" || ending == ".u32"))
    return size_t(ending == ".u16" ? 2 : 4);
  return Status::error("--output={}: its ending says no format; valid: {}", options.output,
                       options.decode ? ".jsonl" : ".jsonl, .u16, .u32");
}

// What generate would begin with.
Status encodePrompts(const Options &options, const Tokenizer &tokenizer, size_t width, Sink &sink, Counts &counts) {
  Texts texts{tokenizer, directoryOf(*tokenizer)};
  BRAID_ASSIGN(Prompts prompts, readPrompts(options.prompts, nullptr, tokenizer->vocabulary(), texts));
  if (!prompts.text)
    return Status::error("{}: holds token numbers; valid: texts and chats", *options.prompts.prompts);
  for (size_t i = 0; i < prompts.tokens.size(); ++i) {
    ++counts.documents;
    counts.bytes += prompts.texts[i].size();
    counts.tokens += prompts.tokens[i].size();
    if (width > 0)
      BRAID_TRY(sink.tokens(prompts.tokens[i], fmt::format("prompt {}", i)));
    else
      BRAID_TRY(sink.line({{"prompt", prompts.texts[i]}, {"tokens", prompts.tokens[i]}}));
  }
  return Status::success();
}

Status run(const Options &options) {
  stopOnSignals();
  FileUses uses;
  uses.reads("--tokenizer", options.tokenizer);
  addDataUses(uses, "--data", options.data.paths);
  if (options.prompts.prompts)
    uses.reads("--prompts", *options.prompts.prompts);
  if (!options.prompts.chatTemplate.empty())
    uses.reads("--chat-template", options.prompts.chatTemplate);
  if (!options.output.empty())
    uses.writes("--output", options.output, FileUses::Kind::any);
  BRAID_TRY(uses.check());
  BRAID_ASSIGN(size_t width, widthOf(options));
  BRAID_ASSIGN(Tokenizer tokenizer, runtime::Tokenizer::load(options.tokenizer));
  BRAID_ASSIGN(std::optional<int64_t> separator, separatorOf(options.data.separator, {tokenizer}));
  bool ofPrompts = options.prompts.chat || options.prompts.prompts;
  std::vector<std::string> files;
  if (!ofPrompts) {
    BRAID_ASSIGN(files, listDataFiles(options.data.paths));
  }
  BRAID_TRY(checkFormats(files, options));
  if (separator && *separator >= tokenizer->vocabulary())
    return Status::error("--separator={}: must be a token from 0 to {}", *separator, tokenizer->vocabulary() - 1);
  auto begin = std::chrono::steady_clock::now();
  Counts counts;
  auto write = [&](OutputFile *file) -> Status {
    Sink sink(file, width);
    if (ofPrompts) {
      BRAID_TRY(encodePrompts(options, tokenizer, width, sink, counts));
    } else if (options.decode) {
      BRAID_TRY(decodeFiles(files, options, tokenizer, separator, sink, counts));
    } else {
      TextBatch batch(tokenizer, std::max(std::thread::hardware_concurrency(), 1u), separator,
                      [&](const std::vector<int32_t> &tokens, size_t bytes, const std::string &place) -> Status {
                        ++counts.documents;
                        counts.bytes += bytes;
                        counts.tokens += tokens.size();
                        return sink.tokens(tokens, place);
                      });
      BRAID_TRY(encodeFiles(files, options, batch, tokenizer->vocabulary()));
    }
    return sink.flush();
  };
  if (options.output.empty())
    BRAID_TRY(write(nullptr));
  else
    BRAID_TRY(writeReplacing(options.output, [&](OutputFile &file) { return write(&file); }));
  if (width > 0 && counts.documents > 1 && !separator)
    fmt::print(stderr, "braid-run: remark: {} has no --separator, so its {} documents are one\n", options.output,
               counts.documents);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  fmt::print(stderr, "{} in {}: {}, {:.2f} bytes a token, {:.2f} MB/s\n", counted(counts.tokens, "token"),
             counted(counts.documents, "document"), counted(counts.bytes, "byte"),
             static_cast<double>(counts.bytes) / static_cast<double>(std::max<uint64_t>(counts.tokens, 1)),
             1e-6 * static_cast<double>(counts.bytes) / std::max(seconds, 1e-9));
  return Status::success();
}

} // namespace

Action addTokenize(CLI::App &command) {
  auto options = std::make_shared<Options>();
  command
      .add_option("--tokenizer", options->tokenizer,
                  "tokenizer.json or tiktoken.model of transformers, rwkv_vocab_*.txt of RWKV, or a directory with one")
      ->required()
      ->type_name("FILE");
  CLI::Option_group *input = command.add_option_group("input");
  addDataOptions(command, options->data, input);
  addChatOptions(command, *input, options->prompts,
                 "A line of JSON each is written: prompt, the text that generate would begin with, and its tokens");
  input->require_option(1);
  command
      .add_option("--output", options->output,
                  "Tokens as .u16, .u32 (all documents one after the other: give a --separator) or .jsonl (a line a "
                  "document, {\"tokens\": [..]}); default: lines, printed")
      ->type_name("FILE");
  command.add_flag("--decode", options->decode, "The other way: tokens of --data become texts, a line of JSON each");
  return [options] { return run(*options); };
}

} // namespace braid::run
