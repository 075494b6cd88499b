//===- EmulatedShared.h - the shared memory of a block, and who touched what of it --------------------------------===//
#ifndef TEST_EMULATOR_EMULATEDSHARED_H
#define TEST_EMULATOR_EMULATEDSHARED_H

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace braid {
namespace [[gnu::visibility("hidden")]] emulator {

/// Ends the process.
[[noreturn]] void fail(const char *message, long thread);
/// Whether a variable of the environment says so.
bool isSet(const char *variable, const char *value);

/// Whole pages, with one in front and one behind that nobody may touch.
class Pages {
public:
  explicit Pages(size_t bytes);
  Pages(const Pages &) = delete;
  ~Pages();
  size_t size() const { return bytes; }
  char *end() const;
  /// `count` bytes that end where the pages do, each of them NaN.
  char *last(size_t count) const;

private:
  size_t bytes;
  char *base;
};

/// What a thread touches between two barriers, as long as it neither fences nor meets others: all of it is known by one number. Numbers grow by two; those of what a
/// copy wrote, which no fence has followed when it is written, have their lowest bit set.
struct Touch {
  int32_t thread; ///< or kSeveral
  uint32_t fences, meetings; ///< of that thread, so far
};
inline constexpr uint32_t kByCopy = 1;
inline constexpr int32_t kSeveral = -1; ///< threads

/// Some bytes of shared memory that follow each other, in units of which it is known together who touched them: the numbers of the `Touch`es that wrote and read
/// each of them last, 0: none of this block.
struct Units {
  uint32_t *written, *read;
  int64_t count;
};

/// What is known of a part of shared memory. Units are as large as whatever was touched there so far, in this launch: most of the time of an access is to find
/// them in the CPU's caches, and most of shared memory is only touched 16 bytes at a time.
class SharedPart {
public:
  static constexpr int64_t kBytes = 1024;

  /// Of a launch that begins.
  void clear() { resize(mostShift); }
  /// Whether these bytes of shared memory are one.
  bool isUnit(uint64_t first, int64_t bytes) const {
    return bytes == int64_t(1) << shift && (first & static_cast<uint64_t>(bytes - 1)) == 0;
  }
  Units unitAt(uint64_t first) { return {written + (first >> shift), read + (first >> shift), 1}; }
  /// From byte `first` of it on.
  Units at(int64_t first, int64_t bytes) {
    if ((first | bytes) & ((int64_t(1) << shift) - 1)) [[unlikely]]
      divide(first | bytes);
    return {written + (first >> shift), read + (first >> shift), bytes >> shift};
  }

private:
  static constexpr int mostShift = 4;

  void resize(int newShift);
  /// Into units of which `places` is a multiple.
  void divide(int64_t places);

  std::vector<uint32_t> numbers;
  uint32_t *written = nullptr, *read = nullptr; ///< the halves of `numbers`
  int shift = mostShift; ///< a unit has 2^shift bytes
};

/// The shared memory of a block.
struct SharedMemory {
  std::unique_ptr<Pages> pages;
  char *begin = nullptr; ///< of the block that runs
  std::vector<SharedPart> parts;
  std::vector<Touch> touches; ///< of the block that runs
  uint32_t first = 2; ///< the number of the first of them
  uint32_t step = 2; ///< of the first behind the last barrier: what several threads have touched since

  uint32_t add(const Touch &touch) {
    touches.push_back(touch);
    return first + 2 * static_cast<uint32_t>(touches.size() - 1);
  }
  const Touch &at(uint32_t number) const { return touches[(number - first) / 2]; }
  /// Of a launch of blocks that have so much of it.
  void beginLaunch(int64_t bytes);
  /// Of a block, which forgets what the last one touched.
  void beginBlock();
  /// Behind a barrier.
  void beginStep() { step = add({kSeveral, 0, 0}); }
};

inline void SharedPart::resize(int newShift) {
  shift = newShift;
  const auto count = static_cast<size_t>(kBytes >> shift);
  numbers.assign(2 * count, 0);
  written = numbers.data();
  read = written + count;
}

inline void SharedPart::divide(int64_t places) {
  const std::vector<uint32_t> before = numbers;
  const auto count = static_cast<int64_t>(before.size()) / 2;
  const int parts = shift - std::min(shift, std::countr_zero(static_cast<uint64_t>(places)));
  resize(shift - parts);
  for (int64_t i = 0; i < count << parts; ++i) {
    written[i] = before[static_cast<size_t>(i >> parts)];
    read[i] = before[static_cast<size_t>(count + (i >> parts))];
  }
}

inline void SharedMemory::beginLaunch(int64_t bytes) {
  parts.resize(static_cast<size_t>((bytes + SharedPart::kBytes - 1) / SharedPart::kBytes));
  for (SharedPart &part : parts)
    part.clear();
}

inline void SharedMemory::beginBlock() {
  constexpr uint32_t most = uint32_t(1) << 30; // far from where numbers end, however long a block
  first += 2 * static_cast<uint32_t>(touches.size());
  if (first > most) {
    for (SharedPart &part : parts)
      part.clear();
    first = 2;
  }
  touches.clear();
  beginStep();
}

} // namespace emulator
} // namespace braid

#endif // TEST_EMULATOR_EMULATEDSHARED_H
