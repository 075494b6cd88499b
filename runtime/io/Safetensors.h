// safetensors files: 8 bytes little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}},
// then the data without holes. The writer pads the header so that the data starts at a multiple of 64 bytes and puts
// wide types first, so that every tensor is aligned to its elements.
#pragma once

#include "runtime/ContentHash.h"
#include "runtime/Program.h"
#include "runtime/io/File.h"

#include <functional>
#include <map>

namespace braid::runtime {

struct SafetensorsEntry {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  uint64_t offset = 0; // from the start of the file
  uint64_t bytes = 0; // as read
  // In the file an f32 may have fewer bits: it is read as the f32 that it is, of E4M3 and E2M1 (two in a byte, the first in its
  // low bits) without what its block is multiplied by. No header says E2M1: such bytes are U8 there.
  enum class Packed : uint8_t { no, f16, e4m3, e8m0, e2m1 };
  Packed packed = Packed::no;
  uint64_t bytesInFile() const { return bytes / shrinks(); }
  uint64_t shrinks() const {
    return packed == Packed::no ? 1 : packed == Packed::f16 ? 2 : packed == Packed::e2m1 ? 8 : 4;
  }
};

// Reads and checks the header of a file; the tensors are read on demand.
class SafetensorsFile {
public:
  static Expected<SafetensorsFile> open(const std::string &path);

  const std::string &path() const { return file.path(); }
  const std::map<std::string, SafetensorsEntry, std::less<>> &entries() const { return table; }
  // nullptr when there is none of that name.
  const SafetensorsEntry *find(std::string_view name) const;
  // The "__metadata__" object of the header.
  const std::map<std::string, std::string, std::less<>> &metadata() const { return metadataTable; }
  // The whole tensor; `target` must have its size.
  Status read(const SafetensorsEntry &entry, std::span<std::byte> target) const;
  // As many of its bytes, as read, from `first` on as `target` takes; both in whole elements (of MXFP4 in pairs of them).
  Status read(const SafetensorsEntry &entry, uint64_t first, std::span<std::byte> target) const;

private:
  explicit SafetensorsFile(InputFile file) : file(std::move(file)) {}
  Status readHeader();

  InputFile file;
  std::map<std::string, SafetensorsEntry, std::less<>> table;
  std::map<std::string, std::string, std::less<>> metadataTable;
};

// Collects tensors and writes them in one durable file. Their bytes must live until write(), or are made then, those of one tensor at a time.
class SafetensorsWriter {
public:
  void setMetadata(std::string key, std::string value);
  Status add(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const std::byte> data);
  using Make = std::function<void(std::span<std::byte>)>;
  Status addMade(std::string name, DType dtype, std::vector<int64_t> shape, Make make);
  bool empty() const { return tensors.empty(); }
  // Returns the size and hash of what it wrote.
  Expected<FileContent> write(const std::string &path) const;

private:
  struct Tensor {
    DType dtype;
    std::vector<int64_t> shape;
    std::span<const std::byte> data;
    Make make;
    size_t bytes;
  };
  Status add(std::string name, Tensor tensor);
  std::map<std::string, Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

// "F32", "BF16", "F64", "I32", "I64", "U8", "I16".
std::string_view safetensorsName(DType dtype);
// Of what is packed the name that it has in files: "F16", "F8_E4M3", "F8_E8M0", "MXFP4"; else that of its type.
std::string_view safetensorsName(const SafetensorsEntry &entry);

} // namespace braid::runtime
