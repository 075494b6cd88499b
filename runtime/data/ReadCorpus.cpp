#include "runtime/data/ReadCorpus.h"

#include "runtime/data/JsonRecord.h"
#include "runtime/io/File.h"
#include "runtime/io/Npy.h"
#include "runtime/io/Shape.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <new>
#include <unistd.h>

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

Expected<std::vector<std::string>> listFiles(std::span<const std::string> paths) {
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
  Reader(Corpus &corpus, const DataOptions &options) : corpus(corpus), separator(options.separator) {
    field = options.field.value_or("text");
  }

  Status read(const std::string &path, DataFormat format) {
    BRAID_ASSIGN(InputFile file, InputFile::open(path));
    if (file.size() == 0)
      return Status::error(ErrorCode::corruptFile, "{}: is empty", path);
    switch (format) {
    case DataFormat::text: return readText(file);
    case DataFormat::jsonl: return readLines(file);
    case DataFormat::u16: return readTokens<uint16_t>(file, 0, file.size(), UINT64_MAX, "u16");
    case DataFormat::u32: return readTokens<uint32_t>(file, 0, file.size(), UINT64_MAX, "u32");
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

  // Tokens are held in memory; what cannot fit is said before the machine is out of it.
  Status reserve(const InputFile &file, uint64_t tokens) {
    uint64_t memory = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    uint64_t fits = memory / corpus.width();
    if (corpus.size() > fits || tokens > fits - corpus.size())
      return Status::error(ErrorCode::unsupported,
                           "{}: with its {} tokens the data needs {} bytes each for {} tokens, but the machine has {} "
                           "bytes of memory",
                           file.path(), tokens, corpus.width(), corpus.size() + tokens, memory);
    corpus.reserve(tokens);
    return Status::success();
  }

  Status readText(const InputFile &file) {
    BRAID_TRY(reserve(file, file.size()));
    std::vector<uint8_t> chunk;
    for (uint64_t at = 0; at < file.size(); at += chunk.size()) {
      chunk.resize(std::min(chunkBytes, file.size() - at));
      BRAID_TRY(file.read(at, std::as_writable_bytes(std::span(chunk))));
      add<uint8_t>(chunk);
    }
    corpus.endDocument();
    return Status::success();
  }

  Status readLines(const InputFile &file) {
    std::string text; // of the current line, and what was read beyond it
    uint64_t at = 0, line = 0;
    size_t begin = 0, searched = 0;
    while (true) {
      size_t end = text.find('\n', searched);
      if (end == std::string::npos && at < file.size()) {
        text.erase(0, begin);
        begin = 0;
        searched = text.size();
        text.resize(searched + std::min(chunkBytes, file.size() - at));
        BRAID_TRY(file.read(at, std::as_writable_bytes(std::span(text).subspan(searched))));
        at += text.size() - searched;
        continue;
      }
      if (end == std::string::npos)
        end = text.size();
      std::string_view words(text.data() + begin, end - begin);
      ++line;
      if (words.find_first_not_of(" \t\r") != std::string_view::npos) // an empty line holds no document
        BRAID_TRY(addRecord(words).withContext(fmt::format("{}:{}", file.path(), line)));
      if (end == text.size())
        return Status::success();
      begin = searched = end + 1;
    }
  }

  Status addRecord(std::string_view line) {
    BRAID_ASSIGN(JsonRecord record, parseJsonRecord(line, field, corpus.vocabulary()));
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
    }
    corpus.endDocument();
    return Status::success();
  }

  // `rowTokens` tokens are a document.
  template <class T>
  Status readTokens(const InputFile &file, uint64_t begin, uint64_t bytes, uint64_t rowTokens, std::string_view type) {
    if (bytes % sizeof(T))
      return Status::error(ErrorCode::corruptFile, "{}: has {} bytes, no multiple of the {} of {}", file.path(), bytes,
                           sizeof(T), type);
    BRAID_TRY(reserve(file, bytes / sizeof(T)));
    std::vector<T> chunk;
    std::vector<uint32_t> tokens;
    uint64_t inRow = 0;
    for (uint64_t at = 0; at < bytes; at += chunk.size() * sizeof(T)) {
      chunk.resize(std::min(chunkBytes, bytes - at) / sizeof(T));
      BRAID_TRY(file.read(begin + at, std::as_writable_bytes(std::span(chunk))));
      tokens.resize(chunk.size());
      for (size_t i = 0; i < chunk.size(); ++i) {
        if (std::cmp_less(chunk[i], 0) || std::cmp_greater_equal(chunk[i], corpus.vocabulary()))
          return Status::error(
              ErrorCode::corruptFile, "{}: byte {}: token {} is {}, but the vocabulary has 0 to {} (read as {})",
              file.path(), begin + at + i * sizeof(T), at / sizeof(T) + i, +chunk[i], corpus.vocabulary() - 1, type);
        tokens[i] = static_cast<uint32_t>(chunk[i]);
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
    uint64_t bytes = file.size() - header.dataBegin;
    // 0 tokens in a row: there are no bytes to cut.
    uint64_t row =
        header.shape.size() == 2 ? std::max<uint64_t>(static_cast<uint64_t>(header.shape[1]), 1) : UINT64_MAX;
    auto read = [&]<class T>(T) { return readTokens<T>(file, header.dataBegin, bytes, row, header.descr); };
    if (header.descr == "|u1" || header.descr == "<u1")
      return read(uint8_t());
    if (header.descr == "<u2")
      return read(uint16_t());
    if (header.descr == "<u4")
      return read(uint32_t());
    if (header.descr == "<i4")
      return read(int32_t());
    if (header.descr == "<i8")
      return read(int64_t());
    return Status::error(ErrorCode::unsupported, "{}: holds type {}; tokens are |u1, <u2, <u4, <i4 or <i8", file.path(),
                         header.descr);
  }

  Corpus &corpus;
  std::optional<int64_t> separator;
  std::string field;
};

// The first document of JSON Lines says whether its units are bytes or tokens.
Expected<bool> firstLineIsText(const std::string &path, const std::string &field, int64_t vocabulary) {
  BRAID_ASSIGN(InputFile file, InputFile::open(path));
  std::string text;
  for (uint64_t line = 1, at = 0; at < file.size() || !text.empty(); ++line) {
    size_t end;
    while ((end = text.find('\n')) == std::string::npos && at < file.size()) {
      size_t had = text.size();
      text.resize(had + std::min(chunkBytes, file.size() - at));
      BRAID_TRY(file.read(at, std::as_writable_bytes(std::span(text).subspan(had))));
      at += text.size() - had;
    }
    std::string words = text.substr(0, end);
    if (words.find_first_not_of(" \t\r") != std::string::npos) {
      Expected<JsonRecord> record = parseJsonRecord(words, field, vocabulary);
      if (!record)
        return record.status().withContext(fmt::format("{}:{}", path, line));
      return record->text.has_value();
    }
    text.erase(0, end == std::string::npos ? end : end + 1);
  }
  return Status::error(ErrorCode::corruptFile, "{}: holds no document", path);
}

Expected<Corpus> readAll(std::span<const std::string> paths, int64_t vocabulary, const DataOptions &options) {
  BRAID_ASSIGN(std::vector<std::string> files, listFiles(paths));
  BRAID_ASSIGN(DataFormat format, options.format ? Expected<DataFormat>(*options.format) : chooseFormat(files));
  if (options.field && format != DataFormat::jsonl)
    return Status::error("--field={}: only JSON Lines have fields, but {} is read as {}", *options.field, files.front(),
                         toString(format));
  bool text = format == DataFormat::text;
  if (format == DataFormat::jsonl) {
    BRAID_ASSIGN(text, firstLineIsText(files.front(), options.field.value_or("text"), vocabulary));
  }
  if (text && (!options.bytes || vocabulary < 256))
    return Status::error(
        ErrorCode::unsupported,
        "{}: text is read as bytes, which need a vocabulary of 256 or more whose tokens are bytes; the "
        "program has {} other tokens: give token files (u16, u32, npy, jsonl with an array)",
        files.front(), vocabulary);
  if (options.separator && (*options.separator < 0 || *options.separator >= (text ? 256 : vocabulary)))
    return Status::error("--separator={}: must be a token from 0 to {}", *options.separator,
                         (text ? 256 : vocabulary) - 1);
  Corpus corpus(text ? 256 : vocabulary, text);
  Reader reader(corpus, options);
  for (const std::string &file : files)
    BRAID_TRY(reader.read(file, format));
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
