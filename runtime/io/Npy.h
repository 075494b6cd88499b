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

Expected<NpyArray> readNpy(const std::string &path);
// The same on a file's bytes; `name` stands in errors for the path.
Expected<NpyArray> parseNpy(std::span<const std::byte> bytes, const std::string &name);

Status writeNpy(const std::string &path, DType dtype, std::span<const int64_t> shape, std::span<const std::byte> data);

// The type string of a header: "<f4".
std::string_view npyDescr(DType dtype);

} // namespace braid::runtime
