// Walks a text for a parser that tells nobody where it is (nlohmann's), and tells `watch` of every character that it has passed: watch(at).
#ifndef RUNTIME_SCHEMA_WATCHEDTEXT_H
#define RUNTIME_SCHEMA_WATCHEDTEXT_H

#include <cstddef>
#include <iterator>

namespace braid {

template <typename Watch> struct WatchedText {
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char *;
  using reference = const char &;
  using iterator_category = std::input_iterator_tag;

  const char *at;
  Watch *watch; ///< of all copies

  reference operator*() const { return *at; }
  WatchedText &operator++() {
    (*watch)(at++);
    return *this;
  }
  WatchedText operator++(int) {
    WatchedText old = *this;
    ++*this;
    return old;
  }
  bool operator==(const WatchedText &other) const { return at == other.at; }
  bool operator!=(const WatchedText &other) const { return at != other.at; }
};

} // namespace braid

#endif // RUNTIME_SCHEMA_WATCHEDTEXT_H
