// NumPy .npy files (format 1.0, 2.0 and 3.0 headers, C order, little endian).
//   f32 '<f4'   f64 '<f8'   i32 '<i4'   i64 '<i8'   u8 '|u1'   bf16 '<u2'
// NumPy has no bf16: such a tensor travels as its 16 raw bits, x.view(np.uint16), which are the upper half of an f32.
#pragma once

#include "runtime/Program.h"
#include "runtime/io/File.h"

namespace braid::runtime {

struct NpyArray {
  DType dtype = DType::f32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;
};

// Where the data of a file begins and what it is; its bytes are those that shape and type need, in C order.
struct NpyHeader {
  std::string descr; // "<u2"
  std::vector<int64_t> shape;
  uint64_t dataBegin = 0;
};
Expected<NpyHeader> readNpyHeader(const InputFile &file);

// A file opened: what it holds is known, its data is read on demand.
class NpyFile {
public:
  static Expected<NpyFile> open(const std::string &path);

  DType dtype() const { return type; }
  const std::vector<int64_t> &shape() const { return header.shape; }
  uint64_t bytes() const { return file.size() - header.dataBegin; }
  // All of it; `target` must have its size.
  Status read(std::span<std::byte> target) const;

private:
  NpyFile(InputFile file, NpyHeader header, DType type)
      : file(std::move(file)), header(std::move(header)), type(type) {}

  InputFile file;
  NpyHeader header;
  DType type;
};

Expected<NpyArray> readNpy(const std::string &path);

Status writeNpy(const std::string &path, DType dtype, std::span<const int64_t> shape, std::span<const std::byte> data);

// The type string of a header: "<f4".
std::string_view npyDescr(DType dtype);

} // namespace braid::runtime
