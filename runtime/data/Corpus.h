// Data in memory: the tokens of all documents one after the other, and where each document ends. Tokens take one, two
// or four bytes each, as the vocabulary asks for.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

namespace braid::runtime {

class Corpus {
public:
  // No documents. Tokens will be below `vocabulary`; those of text are bytes.
  explicit Corpus(int64_t vocabulary = 256, bool text = true);
  // Text, one document.
  explicit Corpus(std::vector<uint8_t> bytes);

  uint64_t size() const;
  int64_t vocabulary() const { return vocabularySize; }
  bool isText() const { return text; }
  // What tokens of this corpus are called: "byte" or "token".
  std::string_view unit() const { return text ? "byte" : "token"; }
  uint64_t documents() const { return ends.size(); }
  uint64_t begin(uint64_t document) const { return document ? ends[document - 1] : 0; }
  uint64_t end(uint64_t document) const { return ends[document]; }

  int32_t operator[](uint64_t index) const;
  // Tokens [begin, begin + target.size()).
  void copy(uint64_t begin, std::span<int32_t> target) const;
  // 64-bit FNV-1a of the tokens and of the ends of the documents.
  uint64_t hash() const;

  // Tokens must be below the vocabulary; nothing is checked here.
  void append(std::span<const uint8_t> tokens) { appendAll(tokens); }
  void append(std::span<const uint32_t> tokens) { appendAll(tokens); }
  // What was appended since the last document becomes one; nothing: there is none.
  void endDocument();
  // Room for `tokens` more; may throw std::bad_alloc, as append does.
  void reserve(uint64_t tokens);
  // Bytes that a token takes.
  unsigned width() const { return 1u << storage.index(); }

private:
  template <class T> void appendAll(std::span<const T> tokens);

  int64_t vocabularySize;
  bool text;
  std::variant<std::vector<uint8_t>, std::vector<uint16_t>, std::vector<uint32_t>> storage;
  std::vector<uint64_t> ends;
};

} // namespace braid::runtime
