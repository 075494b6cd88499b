// Files to documents.
//
//   text   bytes, or what a tokenizer makes of them; a file is a document
//   jsonl  JSON Lines: one object per line, its field a string (as text) or an array of tokens; a line is a document
//   u16, u32  raw little-endian tokens; a file is a document
//   npy    a NumPy array of u1, u2, u4, i4 or i8: [tokens] is a document, [documents, tokens] one per row
//
// A separator token ends a document and belongs to it, in every format; documents that a tokenizer reads get one.
#pragma once

#include "runtime/Expected.h"
#include "runtime/data/Corpus.h"
#include "runtime/text/Tokenizer.h"

#include <optional>
#include <string>

namespace braid::runtime {

enum class DataFormat : uint8_t { text, jsonl, u16, u32, npy };
std::string_view toString(DataFormat format);
std::optional<DataFormat> parseDataFormat(std::string_view name);

// By its ending; an error where that says too little.
Expected<DataFormat> formatOf(const std::string &path);

struct DataOptions {
  // Absent: from the files' endings (.jsonl, .npy, .u16, .u32; others are text).
  std::optional<DataFormat> format = std::nullopt;
  std::optional<std::string> field = std::nullopt; // of JSON Lines; absent: "text"
  std::optional<int64_t> separator = std::nullopt;
  bool bytes = true; // the program's tokens can be the bytes of a text
  std::shared_ptr<const Tokenizer> tokenizer = nullptr; // of texts, whose tokens then are not bytes
  unsigned threads = 1; // that it runs on
  Status unreadTexts = Status::success(); // an error: why no text can be read
  // Files of more bytes together than this stay where they are (not JSON Lines) and are read where they are needed.
  // They are read with pread and not mapped: a file that becomes shorter, or a disk that fails, is then an error with
  // the file's name and not the signal SIGBUS in the middle of a step.
  uint64_t memoryBytes = uint64_t(1) << 28;
};

// The files that `paths` mean; a directory stands for those in it and below, sorted by path, without those whose name
// begins with a dot.
Expected<std::vector<std::string>> listDataFiles(std::span<const std::string> paths);

// All of listDataFiles(), in that order. Every token is below `vocabulary`. No paths: an empty corpus.
Expected<Corpus> readCorpus(std::span<const std::string> paths, int64_t vocabulary, const DataOptions &options);

} // namespace braid::runtime
