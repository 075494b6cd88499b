// What the runtime reads: program files, checkpoint indices, safetensors and NumPy files, text as training data.
#include "test/fuzz/FuzzTargets.h"

#include "runtime/Program.h"
#include "runtime/io/JsonLines.h"
#include "runtime/io/Npy.h"
#include "runtime/io/Safetensors.h"
#include "runtime/train/CheckpointIndex.h"
#include "runtime/train/Corpus.h"

#include <sys/mman.h>
#include <unistd.h>

using namespace braid::runtime;

namespace braid::fuzz {
namespace {

std::vector<std::byte> copyOf(std::span<const uint8_t> bytes) {
  auto *data = reinterpret_cast<const std::byte *>(bytes.data());
  return {data, data + bytes.size()};
}

// The bytes as a file in memory.
std::string fileWith(std::span<const uint8_t> bytes) {
  static const int file = memfd_create("fuzz", 0);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return "/proc/self/fd/" + std::to_string(file);
}

// Below a hash that fits: the hash would refuse every change, and this is about structure.
void program(std::span<const uint8_t> bytes) {
  std::vector<std::byte> file = copyOf(bytes);
  Program::seal(file);
  auto parsed = Program::parse(std::move(file), "fuzz");
  if (!parsed)
    return;
  const Program &program = **parsed;
  for (uint32_t rank = 0; rank < std::min(program.mesh().worldSize(), 4u); ++rank)
    (void)logicalTensors(program, rank, /*moments=*/true).ok();
}

void checkpointIndex(std::span<const uint8_t> bytes) {
  std::string text(bytes.begin(), bytes.end());
  if (text.size() >= 3)
    text = CheckpointIndex::seal(text);
  auto parsed = CheckpointIndex::parse(text, "fuzz");
  if (parsed && !CheckpointIndex::parse(parsed->toJson(), "again"))
    std::abort(); // what is accepted can be written and read again
}

void safetensors(std::span<const uint8_t> bytes) {
  auto file = SafetensorsFile::open(fileWith(bytes));
  if (!file)
    return;
  std::vector<std::byte> target;
  for (const auto &[name, entry] : file->entries()) {
    target.resize(entry.bytes);
    if (!file->read(entry, target).ok())
      std::abort(); // the header was checked against the size of the file
  }
}

void npy(std::span<const uint8_t> bytes) {
  auto array = parseNpy(std::as_bytes(bytes), "fuzz");
  if (!array)
    return;
  uint64_t elements = 1;
  for (int64_t extent : array->shape)
    elements *= static_cast<uint64_t>(extent);
  if (elements * sizeOf(array->dtype) != array->data.size())
    std::abort();
}

// The first byte is the length of a window, the rest the text; then lines of metrics of a run that is resumed.
void text(std::span<const uint8_t> bytes) {
  if (bytes.empty())
    return;
  int64_t length = 1 + bytes[0] % 32;
  std::span<const uint8_t> rest = bytes.subspan(1);
  if (auto order = WindowOrder::create(rest.size(), length, bytes[0])) {
    std::vector<int32_t> tokens(static_cast<size_t>(length)), labels(tokens);
    for (uint64_t sample = 0; sample < std::min<uint64_t>(order->windows(), 64); ++sample)
      if (fillRow(rest, order->begin(sample), tokens, labels) != length)
        std::abort();
  }
  (void)dropLinesAfter(fileWith(rest), "step", 3).ok();
}

constexpr Target table[] = {{"program", program},
                            {"checkpoint-index", checkpointIndex},
                            {"safetensors", safetensors},
                            {"npy", npy},
                            {"text", text}};

} // namespace

const std::span<const Target> targets = table;

} // namespace braid::fuzz
