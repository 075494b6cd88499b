// The tokens of all documents one after the other, and where each document ends. Tokens are in memory, one, two or four
// bytes each as the vocabulary asks for, or stay in their files and are read where they are needed: then memory grows
// with the number of documents and files, not of tokens.
#pragma once

#include "runtime/io/File.h"

#include <functional>
#include <optional>
#include <variant>

namespace braid::runtime {

// How a file holds tokens, little endian.
enum class TokenType : uint8_t { u8, u16, u32, i32, i64 };
size_t sizeOf(TokenType type);
// The token that stands at `at`, as wide as any.
int64_t tokenAt(TokenType type, const std::byte *at);

class Corpus {
public:
  // No documents. Tokens will be below `vocabulary`; those of text are bytes.
  explicit Corpus(int64_t vocabulary = 256, bool text = true);
  // Text, one document.
  explicit Corpus(std::vector<uint8_t> bytes);

  uint64_t size() const { return count; }
  int64_t vocabulary() const { return vocabularySize; }
  bool isText() const { return text; }
  // What tokens of this corpus are called: "byte" or "token".
  std::string_view unit() const { return text ? "byte" : "token"; }
  // Where a tokenizer made all tokens: the bytes of their text without those of each document's first token, which
  // nobody predicts; else 0.
  uint64_t textBytes() const { return bytesOfText.value_or(0); }
  // Absent: of tokens whose text is not known.
  void addTextBytes(std::optional<uint64_t> bytes) {
    bytesOfText = bytesOfText && bytes ? std::optional(*bytesOfText + *bytes) : std::nullopt;
    encoded |= bytes.has_value();
  }
  // Whether a tokenizer made any.
  bool isEncoded() const { return encoded; }
  uint64_t documents() const { return ends.size(); }
  uint64_t begin(uint64_t document) const { return document ? ends[document - 1] : 0; }
  uint64_t end(uint64_t document) const { return ends[document]; }
  // 64-bit FNV-1a of the tokens and of the ends of the documents.
  uint64_t hash() const;

  // Tokens [begin, begin + target.size()). An error: a file is no longer what it was when it was appended. Any number
  // of threads at once.
  Status copy(uint64_t begin, std::span<int32_t> target) const;
  // Tokens [begin, end), a piece at a time.
  Status forEach(uint64_t begin, uint64_t end, const std::function<void(std::span<const int32_t>)> &visit) const;

  // Tokens must be below the vocabulary; nothing is checked here.
  void append(std::span<const uint8_t> tokens) { appendAll(tokens); }
  void append(std::span<const uint32_t> tokens) { appendAll(tokens); }
  // What is appended from now on stands in `file` from byte `offset` on and is not kept here. Either all of a corpus is
  // in files or nothing.
  void beginFile(const InputFile &file, uint64_t offset, TokenType type);
  // What was appended since the last document becomes one; nothing: there is none.
  void endDocument();
  // Room for `tokens` more in memory; may throw std::bad_alloc, as append does.
  void reserve(uint64_t tokens);
  // Bytes that a token takes in memory.
  unsigned width() const { return 1u << storage.index(); }

private:
  struct FilePart {
    std::string path;
    FileIdentity identity;
    uint64_t begin, offset; // the part's first token, and the byte where it stands
    TokenType type;
  };
  template <class T> void appendAll(std::span<const T> tokens);
  Status copyFromFile(const FilePart &part, uint64_t begin, std::span<int32_t> target) const;

  int64_t vocabularySize;
  bool text;
  uint64_t count = 0, tokenHash;
  std::optional<uint64_t> bytesOfText = 0;
  bool encoded = false;
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<uint32_t>> storage;
  std::vector<FilePart> parts; // none: all is in storage
  std::vector<uint64_t> ends;
};

} // namespace braid::runtime
