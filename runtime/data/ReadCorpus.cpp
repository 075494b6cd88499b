#include "runtime/data/ReadCorpus.h"

#include "runtime/MachineMemory.h"
#include "runtime/data/JsonRecord.h"
#include "runtime/io/Npy.h"
#include "runtime/io/Shape.h"
#include "runtime/io/Words.h"
#include "runtime/text/TextBatch.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <new>

namespace braid::runtime {

namespace {

constexpr uint64_t chunkBytes = uint64_t(1) << 20;
constexpr std::array<std::pair<DataFormat, std::string_view>, 5> formats = {{{DataFormat::text, "text"},
                                                                             {DataFormat::jsonl, "jsonl"},
                                                                             {DataFormat::u16, "u16"},
                                                                             {DataFormat::u32, "u32"},
                                                                             {DataFormat::npy, "npy"}}};

// ---- Which files ----------------------------------------------------------------------------------------------------

Status addFiles(const std::string &path, std::vector<std::string> &files) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) {
    files.push_back(path);
    return Status::success();
  }
  BRAID_ASSIGN(std::vector<std::string> names, listDirectory(path));
  for (const std::string &name : names)
    if (!name.starts_with('.'))
      BRAID_TRY(addFiles((std::filesystem::path(path) / name).string(), files));
  return Status::success();
}

} // namespace

Expected<std::vector<std::string>> listDataFiles(std::span<const std::string> paths) {
  std::vector<std::string> files;
  for (const std::string &path : paths) {
    size_t before = files.size();
    BRAID_TRY(addFiles(path, files));
    if (files.size() == before)
      return Status::error(ErrorCode::notFound, "{}: the directory holds no files", path);
  }
  return files;
}

Expected<DataFormat> formatOf(const std::string &path) {
  std::string ending = std::filesystem::path(path).extension().string();
  for (DataFormat format : {DataFormat::jsonl, DataFormat::npy, DataFormat::u16, DataFormat::u32})
    if (ending == "." + std::string(toString(format)))
      return format;
  if (ending == ".bin")
    return Status::error("{}: its ending does not say how many bytes a token has: give --format=u16 or --format=u32",
                         path);
  return DataFormat::text;
}

namespace {

// The format of all files: they must agree, so that a stray file is not read as text beside tokens.
Expected<DataFormat> chooseFormat(const std::vector<std::string> &files) {
  BRAID_ASSIGN(DataFormat first, formatOf(files.front()));
  for (const std::string &file : files) {
    BRAID_ASSIGN(DataFormat other, formatOf(file));
    if (other != first)
      return Status::error("{} would be read as {}, but {} as {}: read them apart, or give --format", file,
                           toString(other), files.front(), toString(first));
  }
  return first;
}

// ---- One file -------------------------------------------------------------------------------------------------------

class Reader {
public:
  // Tokens are kept in memory, or only checked and left where they are.
  Reader(Corpus &corpus, const DataOptions &options, bool inMemory)
      : corpus(corpus), separator(options.separator), inMemory(inMemory), memory(machineMemoryBytes()) {
    field = options.field.value_or("text");
    if (options.tokenizer)
      batch.emplace(options.tokenizer, options.threads, options.separator,
                    [this, tokenizer = options.tokenizer](const std::vector<int32_t> &tokens, size_t bytes,
                                                          const std::string &place) {
                      return addEncoded(tokens, bytes, tokenizer).withContext(place);
                    });
  }
  Reader(const Reader &) = delete;

  Status read(const std::string &path, DataFormat format) {
    BRAID_ASSIGN(InputFile file, InputFile::open(path));
    if (file.size() == 0)
      return Status::error(ErrorCode::corruptFile, "{}: is empty", path);
    switch (format) {
    case DataFormat::text:
      return batch ? readText(path) : readTokens(file, 0, file.size(), UINT64_MAX, TokenType::u8, "text");
    case DataFormat::jsonl: return readLines(path);
    case DataFormat::u16: return readTokens(file, 0, file.size(), UINT64_MAX, TokenType::u16, "u16");
    case DataFormat::u32: return readTokens(file, 0, file.size(), UINT64_MAX, TokenType::u32, "u32");
    case DataFormat::npy: return readArray(file);
    }
    return Status::success();
  }

private:
  template <class T> void add(std::span<const T> tokens) {
    while (separator && !tokens.empty()) {
      auto found = std::find(tokens.begin(), tokens.end(), static_cast<T>(*separator));
      if (found == tokens.end())
        break;
      size_t count = static_cast<size_t>(found - tokens.begin()) + 1;
      corpus.append(tokens.first(count));
      corpus.endDocument();
      tokens = tokens.subspan(count);
    }
    corpus.append(tokens);
  }

  Status readText(const std::string &path) {
    BRAID_ASSIGN(std::string text, readTextFile(path, memory));
    return batch->add(std::move(text), path);
  }

public:
  // The last of what read() was given.
  Status finish() { return batch ? batch->finish() : Status::success(); }

private:
  Status addEncoded(const std::vector<int32_t> &tokens, size_t bytes,
                    const std::shared_ptr<const Tokenizer> &tokenizer) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= corpus.vocabulary())
        return Status::error("the tokenizer {} makes token {} of it, but the program's vocabulary has 0 to {}",
                             tokenizer->path(), tokens[i], corpus.vocabulary() - 1);
      // The token that begins a document is not predicted, so its bytes are not what a loss is of.
      if (i == 0 || (separator && tokens[i - 1] == *separator)) {
        BRAID_ASSIGN(std::string first, TextDecoder(tokenizer, /*special=*/false).add(tokens[i]));
        bytes -= std::min(bytes, first.size());
      }
    }
    corpus.addTextBytes(bytes);
    add(std::span(reinterpret_cast<const uint32_t *>(tokens.data()), tokens.size()));
    corpus.endDocument();
    return checkMemory();
  }

  // What cannot fit is said before the machine is out of memory.
  Status checkMemory() {
    if (corpus.size() > memory / corpus.width())
      return Status::error(ErrorCode::unsupported,
                           "up to here the data has {} tokens of {} bytes, but the machine has {} bytes of "
                           "memory; token files (u16, u32, npy) and text are not held in memory",
                           corpus.size(), corpus.width(), memory);
    return Status::success();
  }

  Status readLines(const std::string &path) {
    return forEachJsonRecord(path, field, corpus.vocabulary(),
                             [&](JsonRecord &record, const std::string &place) -> Expected<bool> {
                               if (record.text && batch) {
                                 BRAID_TRY(batch->add(*std::move(record.text), place));
                                 return true;
                               }
                               BRAID_TRY(finish()); // documents stay in their order
                               BRAID_TRY(addRecord(record).withContext(place));
                               BRAID_TRY(checkMemory().withContext(path));
                               return true;
                             });
  }

  Status addRecord(const JsonRecord &record) {
    if (record.text) {
      // A corpus of text has byte units, one of tokens must not silently hold some bytes.
      if (!corpus.isText())
        return Status::error(ErrorCode::corruptFile, "field '{}' is a string, but earlier documents are tokens", field);
      const auto *bytes = reinterpret_cast<const uint8_t *>(record.text->data());
      add(std::span(bytes, record.text->size()));
    } else {
      if (corpus.isText())
        return Status::error(ErrorCode::corruptFile, "field '{}' is an array, but earlier documents are text", field);
      add<uint32_t>(*record.tokens);
      corpus.addTextBytes(std::nullopt);
    }
    corpus.endDocument();
    return Status::success();
  }

  // `rowTokens` tokens are a document; `name` is what messages call the type.
  Status readTokens(const InputFile &file, uint64_t begin, uint64_t bytes, uint64_t rowTokens, TokenType type,
                    std::string_view name) {
    size_t width = sizeOf(type);
    if (bytes % width)
      return Status::error(ErrorCode::corruptFile, "{}: has {}, no multiple of the {} of {}", file.path(),
                           counted(bytes, "byte"), width, name);
    if (inMemory)
      corpus.reserve(bytes / width);
    else
      corpus.beginFile(file, begin, type);
    std::vector<std::byte> chunk(std::min(chunkBytes, bytes));
    std::vector<uint32_t> tokens;
    uint64_t inRow = 0;
    for (uint64_t at = 0; at < bytes; at += chunk.size()) {
      chunk.resize(std::min<uint64_t>(chunk.size(), bytes - at));
      BRAID_TRY(file.read(begin + at, chunk));
      tokens.resize(chunk.size() / width);
      for (size_t i = 0; i < tokens.size(); ++i) {
        int64_t token = tokenAt(type, chunk.data() + i * width);
        if (token < 0 || token >= corpus.vocabulary())
          return Status::error(ErrorCode::corruptFile,
                               "{}: byte {}: token {} is {}, but the vocabulary has 0 to {} (read as {})", file.path(),
                               begin + at + i * width, at / width + i, token, corpus.vocabulary() - 1, name);
        tokens[i] = static_cast<uint32_t>(token);
      }
      for (std::span<const uint32_t> rest = tokens; !rest.empty();) {
        size_t count = static_cast<size_t>(std::min<uint64_t>(rest.size(), rowTokens - inRow));
        add(rest.first(count));
        rest = rest.subspan(count);
        inRow += count;
        if (inRow == rowTokens) {
          corpus.endDocument();
          inRow = 0;
        }
      }
    }
    corpus.endDocument();
    return Status::success();
  }

  Status readArray(const InputFile &file) {
    BRAID_ASSIGN(NpyHeader header, readNpyHeader(file));
    if (header.shape.empty() || header.shape.size() > 2)
      return Status::error(ErrorCode::unsupported, "{}: holds shape {}; valid: [tokens], or [documents, tokens]",
                           file.path(), formatShape(header.shape));
    // 0 tokens in a row: there are no bytes to cut.
    uint64_t row =
        header.shape.size() == 2 ? std::max<uint64_t>(static_cast<uint64_t>(header.shape[1]), 1) : UINT64_MAX;
    constexpr std::pair<std::string_view, TokenType> types[] = {{"|u1", TokenType::u8},  {"<u1", TokenType::u8},
                                                                {"<u2", TokenType::u16}, {"<u4", TokenType::u32},
                                                                {"<i4", TokenType::i32}, {"<i8", TokenType::i64}};
    for (auto [descr, type] : types)
      if (descr == header.descr)
        return readTokens(file, header.dataBegin, file.size() - header.dataBegin, row, type, descr);
    return Status::error(ErrorCode::unsupported, "{}: holds type {}; tokens are |u1, <u2, <u4, <i4 or <i8", file.path(),
                         header.descr);
  }

  Corpus &corpus;
  std::optional<int64_t> separator;
  std::optional<TextBatch> batch; // of a tokenizer
  std::string field;
  bool inMemory;
  uint64_t memory; // of the machine
};

// The first document of JSON Lines says whether its units are bytes or tokens.
Expected<bool> firstLineIsText(const std::string &path, const std::string &field, int64_t vocabulary) {
  std::optional<bool> text;
  BRAID_TRY(forEachJsonRecord(path, field, vocabulary, [&](JsonRecord &record, const std::string &) -> Expected<bool> {
    text = record.text.has_value();
    return false;
  }));
  return text ? Expected<bool>(*text) : Status::error(ErrorCode::corruptFile, "{}: holds no document", path);
}

// Small data is kept in memory: it costs nothing there, and what happens to its files then does not matter. JSON has no
// tokens to go back to.
Expected<bool> fitsMemory(const std::vector<std::string> &files, DataFormat format, bool encoded, uint64_t limit) {
  if (format == DataFormat::jsonl || encoded)
    return true;
  uint64_t bytes = 0;
  for (const std::string &path : files) {
    BRAID_ASSIGN(InputFile file, InputFile::open(path));
    bytes += file.size();
  }
  return bytes <= limit;
}

Expected<Corpus> readAll(std::span<const std::string> paths, int64_t vocabulary, const DataOptions &options) {
  BRAID_ASSIGN(std::vector<std::string> files, listDataFiles(paths));
  BRAID_ASSIGN(DataFormat format, options.format ? Expected<DataFormat>(*options.format) : chooseFormat(files));
  if (options.field && format != DataFormat::jsonl)
    return Status::error("--field={}: only JSON Lines have fields, but {} is read as {}", *options.field, files.front(),
                         toString(format));
  bool text = format == DataFormat::text;
  if (format == DataFormat::jsonl) {
    BRAID_ASSIGN(text, firstLineIsText(files.front(), options.field.value_or("text"), vocabulary));
  }
  if (text)
    BRAID_TRY(options.unreadTexts);
  bool encoded = text && options.tokenizer;
  text &= !encoded;
  if (text && (!options.bytes || vocabulary < 256))
    return Status::error(
        ErrorCode::unsupported,
        "{}: text is read as bytes, which need a vocabulary of 256 or more whose tokens are bytes; the "
        "program has {} other tokens: give their --tokenizer, or token files (u16, u32, npy, jsonl with an array)",
        files.front(), vocabulary);
  if (options.separator && (*options.separator < 0 || *options.separator >= (text ? 256 : vocabulary)))
    return Status::error("--separator={}: must be a token from 0 to {}", *options.separator,
                         (text ? 256 : vocabulary) - 1);
  BRAID_ASSIGN(bool inMemory, fitsMemory(files, format, encoded, options.memoryBytes));
  Corpus corpus(text ? 256 : vocabulary, text);
  Reader reader(corpus, options, inMemory);
  for (const std::string &file : files)
    BRAID_TRY(reader.read(file, format));
  BRAID_TRY(reader.finish());
  return corpus;
}

} // namespace

std::string_view toString(DataFormat format) {
  for (auto [candidate, name] : formats)
    if (candidate == format)
      return name;
  return "?";
}

std::optional<DataFormat> parseDataFormat(std::string_view name) {
  for (auto [format, candidate] : formats)
    if (candidate == name)
      return format;
  return std::nullopt;
}

Expected<Corpus> readCorpus(std::span<const std::string> paths, int64_t vocabulary, const DataOptions &options) {
  if (paths.empty())
    return Corpus();
  try {
    return readAll(paths, vocabulary, options);
  } catch (const std::bad_alloc &) {
    return Status::error(ErrorCode::ioError, "{}: the data does not fit in memory", paths.front());
  }
}

} // namespace braid::runtime
