#include "runtime/data/Corpus.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>

namespace braid::runtime {

namespace {

uint64_t addToHash(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001b3; }

template <class T> int64_t valueAt(const std::byte *at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return static_cast<int64_t>(value);
}

} // namespace

size_t sizeOf(TokenType type) {
  switch (type) {
  case TokenType::u8: return 1;
  case TokenType::u16: return 2;
  case TokenType::u32:
  case TokenType::i32: return 4;
  case TokenType::i64: return 8;
  }
  return 1;
}

int64_t tokenAt(TokenType type, const std::byte *at) {
  switch (type) {
  case TokenType::u8: return valueAt<uint8_t>(at);
  case TokenType::u16: return valueAt<uint16_t>(at);
  case TokenType::u32: return valueAt<uint32_t>(at);
  case TokenType::i32: return valueAt<int32_t>(at);
  case TokenType::i64: return valueAt<int64_t>(at);
  }
  return -1;
}

Corpus::Corpus(int64_t vocabulary, bool text) : vocabularySize(vocabulary), text(text), tokenHash(0xcbf29ce484222325) {
  if (vocabulary > 65536)
    storage.emplace<2>();
  else if (vocabulary > 256)
    storage.emplace<1>();
}

Corpus::Corpus(std::vector<uint8_t> bytes) : Corpus() {
  append(std::span<const uint8_t>(bytes));
  endDocument();
}

uint64_t Corpus::hash() const {
  uint64_t hash = tokenHash;
  for (uint64_t end : ends)
    hash = addToHash(hash, end);
  return hash;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

Status Corpus::copy(uint64_t begin, std::span<int32_t> target) const {
  assert(begin + target.size() <= count);
  if (parts.empty()) {
    std::visit(
        [&](const auto &tokens) {
          for (size_t i = 0; i < target.size(); ++i)
            target[i] = static_cast<int32_t>(tokens[begin + i]);
        },
        storage);
    return Status::success();
  }
  auto next = std::upper_bound(parts.begin(), parts.end(), begin,
                               [](uint64_t token, const FilePart &part) { return token < part.begin; });
  while (!target.empty()) {
    const FilePart &part = *std::prev(next);
    uint64_t end = next == parts.end() ? count : next->begin;
    std::span<int32_t> here = target.first(std::min<uint64_t>(target.size(), end - begin));
    BRAID_TRY(copyFromFile(part, begin, here));
    begin += here.size();
    target = target.subspan(here.size());
    if (next != parts.end())
      ++next;
  }
  return Status::success();
}

// The file is opened for every call: a corpus of a hundred thousand files needs no descriptors, and one that was
// changed, replaced or removed since its tokens were checked is noticed before one of them reaches a kernel.
Status Corpus::copyFromFile(const FilePart &part, uint64_t begin, std::span<int32_t> target) const {
  BRAID_ASSIGN(InputFile file, InputFile::open(part.path));
  if (file.identity() != part.identity)
    return Status::error(
        ErrorCode::corruptFile,
        "{}: was changed while it was being read: its {} bytes are not the {} that were checked before", part.path,
        file.size(), part.identity.size);
  size_t width = sizeOf(part.type);
  uint64_t at = part.offset + (begin - part.begin) * width;
  std::array<std::byte, 16384> raw;
  while (!target.empty()) {
    size_t tokens = std::min(target.size(), raw.size() / width);
    BRAID_TRY(file.read(at, std::span(raw).first(tokens * width)));
    for (size_t i = 0; i < tokens; ++i) {
      int64_t token = tokenAt(part.type, raw.data() + i * width);
      if (token < 0 || token >= vocabularySize)
        return Status::error(ErrorCode::corruptFile,
                             "{}: was changed while it was being read: byte {} holds token {}, but the vocabulary has "
                             "0 to {}",
                             part.path, at + i * width, token, vocabularySize - 1);
      target[i] = static_cast<int32_t>(token);
    }
    at += tokens * width;
    target = target.subspan(tokens);
  }
  return Status::success();
}

Status Corpus::forEach(uint64_t begin, uint64_t end, const std::function<void(std::span<const int32_t>)> &visit) const {
  std::vector<int32_t> piece(std::min<uint64_t>(end - begin, 1 << 18));
  for (; begin < end; begin += piece.size()) {
    piece.resize(std::min<uint64_t>(piece.size(), end - begin));
    BRAID_TRY(copy(begin, piece));
    visit(piece);
  }
  return Status::success();
}

// ---- Appending ------------------------------------------------------------------------------------------------------

template <class T> void Corpus::appendAll(std::span<const T> tokens) {
  for (T token : tokens)
    tokenHash = addToHash(tokenHash, token);
  count += tokens.size();
  if (!parts.empty())
    return;
  std::visit(
      [&](auto &target) {
        using Stored = typename std::remove_reference_t<decltype(target)>::value_type;
        size_t at = target.size();
        target.resize(at + tokens.size());
        for (T token : tokens)
          target[at++] = static_cast<Stored>(token);
      },
      storage);
}
template void Corpus::appendAll(std::span<const uint8_t>);
template void Corpus::appendAll(std::span<const uint32_t>);

void Corpus::beginFile(const InputFile &file, uint64_t offset, TokenType type) {
  assert((count == 0 || !parts.empty()) && "some tokens are in memory");
  parts.push_back({file.path(), file.identity(), count, offset, type});
}

void Corpus::endDocument() {
  if (count > (ends.empty() ? 0 : ends.back()))
    ends.push_back(count);
}

void Corpus::reserve(uint64_t tokens) {
  std::visit([&](auto &target) { target.reserve(target.size() + tokens); }, storage);
}

} // namespace braid::runtime
