#include "runtime/data/Corpus.h"

namespace braid::runtime {

Corpus::Corpus(int64_t vocabulary, bool text) : vocabularySize(vocabulary), text(text) {
  if (vocabulary > 65536)
    storage.emplace<2>();
  else if (vocabulary > 256)
    storage.emplace<1>();
}

Corpus::Corpus(std::vector<uint8_t> bytes) : Corpus() {
  storage = std::move(bytes);
  endDocument();
}

uint64_t Corpus::size() const {
  return std::visit([](const auto &tokens) -> uint64_t { return tokens.size(); }, storage);
}

int32_t Corpus::operator[](uint64_t index) const {
  return std::visit([&](const auto &tokens) { return static_cast<int32_t>(tokens[index]); }, storage);
}

void Corpus::copy(uint64_t begin, std::span<int32_t> target) const {
  std::visit(
      [&](const auto &tokens) {
        for (size_t i = 0; i < target.size(); ++i)
          target[i] = static_cast<int32_t>(tokens[begin + i]);
      },
      storage);
}

uint64_t Corpus::hash() const {
  uint64_t hash = 0xcbf29ce484222325;
  auto add = [&](uint64_t value) { hash = (hash ^ value) * 0x100000001b3; };
  std::visit(
      [&](const auto &tokens) {
        for (auto token : tokens)
          add(token);
      },
      storage);
  for (uint64_t end : ends)
    add(end);
  return hash;
}

template <class T> void Corpus::appendAll(std::span<const T> tokens) {
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

void Corpus::endDocument() {
  if (uint64_t tokens = size(); tokens > (ends.empty() ? 0 : ends.back()))
    ends.push_back(tokens);
}

void Corpus::reserve(uint64_t tokens) {
  std::visit([&](auto &target) { target.reserve(target.size() + tokens); }, storage);
}

} // namespace braid::runtime
