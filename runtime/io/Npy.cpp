#include "runtime/io/Npy.h"

#include "runtime/io/File.h"
#include "runtime/io/Shape.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>

namespace braid::runtime {

namespace {

constexpr std::string_view magic("\x93NUMPY", 6);

struct Descr {
  std::string_view text;
  DType dtype;
};
constexpr std::array<Descr, 8> descrs = {{{"<f4", DType::f32},
                                          {"<u2", DType::bf16},
                                          {"<f8", DType::f64},
                                          {"<i4", DType::i32},
                                          {"<i8", DType::i64},
                                          {"<i2", DType::i16},
                                          {"|u1", DType::u8},
                                          {"<u1", DType::u8}}};

// The header is a Python dictionary of three known keys; this reads exactly that.
class HeaderParser {
public:
  HeaderParser(std::string_view text, const std::string &file) : text(text), file(file) {}

  Status parse(std::string &descr, bool &fortranOrder, std::vector<int64_t> &shape) {
    bool seenDescr = false, seenOrder = false, seenShape = false;
    BRAID_TRY(expect('{'));
    while (!accept('}')) {
      std::string key;
      BRAID_TRY(string(key));
      BRAID_TRY(expect(':'));
      if (key == "descr" && !seenDescr) {
        seenDescr = true;
        skipSpace();
        if (peek() == '[')
          return Status::error(ErrorCode::unsupported, "{}: structured NumPy types are not supported", file);
        BRAID_TRY(string(descr));
      } else if (key == "fortran_order" && !seenOrder) {
        seenOrder = true;
        BRAID_TRY(boolean(fortranOrder));
      } else if (key == "shape" && !seenShape) {
        seenShape = true;
        BRAID_TRY(tuple(shape));
      } else {
        return Status::error(ErrorCode::corruptFile, "{}: unexpected key '{}' in the NumPy header", file, key);
      }
      if (!accept(',')) {
        BRAID_TRY(expect('}'));
        break;
      }
    }
    skipSpace();
    if (position != text.size())
      return broken("end of header");
    if (!seenDescr || !seenOrder || !seenShape)
      return Status::error(ErrorCode::corruptFile, "{}: the NumPy header lacks '{}'", file,
                           !seenDescr   ? "descr"
                           : !seenOrder ? "fortran_order"
                                        : "shape");
    return Status::success();
  }

private:
  char peek() const { return position < text.size() ? text[position] : '\0'; }
  void skipSpace() {
    while (peek() == ' ' || peek() == '\n' || peek() == '\t')
      ++position;
  }
  bool accept(char c) {
    skipSpace();
    if (peek() != c)
      return false;
    ++position;
    return true;
  }
  Status broken(std::string_view wanted) {
    return Status::error(ErrorCode::corruptFile, "{}: malformed NumPy header: expected {} at character {}", file,
                         wanted, position);
  }
  Status expect(char c) { return accept(c) ? Status::success() : broken(fmt::format("'{}'", c)); }
  Status string(std::string &value) {
    skipSpace();
    char quote = peek();
    if (quote != '\'' && quote != '"')
      return broken("a string");
    size_t end = text.find(quote, position + 1);
    if (end == std::string_view::npos)
      return broken("a closing quote");
    value = text.substr(position + 1, end - position - 1);
    position = end + 1;
    return Status::success();
  }
  Status boolean(bool &value) {
    skipSpace();
    for (bool candidate : {false, true}) {
      std::string_view word = candidate ? "True" : "False";
      if (text.substr(position, word.size()) == word) {
        position += word.size();
        value = candidate;
        return Status::success();
      }
    }
    return broken("True or False");
  }
  Status tuple(std::vector<int64_t> &shape) {
    BRAID_TRY(expect('('));
    while (!accept(')')) {
      skipSpace();
      int64_t extent = 0;
      auto [end, error] = std::from_chars(text.data() + position, text.data() + text.size(), extent);
      if (error != std::errc() || extent < 0)
        return broken("a dimension");
      position = static_cast<size_t>(end - text.data());
      shape.push_back(extent);
      if (!accept(',')) {
        BRAID_TRY(expect(')'));
        break;
      }
    }
    return Status::success();
  }

  std::string_view text;
  const std::string &file;
  size_t position = 0;
};

} // namespace

std::string_view npyDescr(DType dtype) {
  for (const Descr &descr : descrs)
    if (descr.dtype == dtype)
      return descr.text;
  return "";
}

namespace {

constexpr size_t maxHeaderBytes = size_t(1) << 20; // of the format's 4 GiB; no array has that many dimensions

// `begin`: the first bytes of a file of `size` bytes, its whole header or maxHeaderBytes of it at least.
Expected<NpyHeader> parseHeader(std::string_view begin, uint64_t size, const std::string &name) {
  if (begin.size() < 10 || begin.substr(0, 6) != magic)
    return Status::error(ErrorCode::corruptFile, "{}: not a NumPy file", name);
  int major = static_cast<unsigned char>(begin[6]);
  if (major < 1 || major > 3)
    return Status::error(ErrorCode::unsupported, "{}: NumPy format version {} is not supported (1 to 3 are)", name,
                         major);
  size_t lengthBytes = major == 1 ? 2 : 4;
  if (begin.size() < 8 + lengthBytes)
    return Status::error(ErrorCode::corruptFile, "{}: not a NumPy file", name);
  size_t headerBytes = 0;
  for (size_t i = 0; i < lengthBytes; ++i)
    headerBytes |= size_t(static_cast<unsigned char>(begin[8 + i])) << (8 * i);
  NpyHeader header;
  header.dataBegin = 8 + lengthBytes + headerBytes;
  if (header.dataBegin > size)
    return Status::error(ErrorCode::corruptFile, "{}: the NumPy header ends at byte {}, but the file has {} bytes",
                         name, header.dataBegin, size);
  if (header.dataBegin > begin.size())
    return Status::error(ErrorCode::unsupported, "{}: the NumPy header has {} bytes; at most {} are read", name,
                         headerBytes, maxHeaderBytes);

  bool fortranOrder = false;
  HeaderParser parser(begin.substr(8 + lengthBytes, headerBytes), name);
  BRAID_TRY(parser.parse(header.descr, fortranOrder, header.shape));
  std::optional<int64_t> count = elementCount(header.shape);
  if (!count)
    return Status::error(ErrorCode::corruptFile, "{}: shape {} is too large", name, formatShape(header.shape));
  if (fortranOrder && header.shape.size() > 1)
    return Status::error(ErrorCode::unsupported,
                         "{}: the array is in Fortran order; save numpy.ascontiguousarray(x) instead", name);
  // The type's size is its number; division, because count * size could overflow.
  uint64_t elementBytes = 0;
  for (char c : header.descr)
    elementBytes =
        c >= '0' && c <= '9' ? std::min<uint64_t>(elementBytes * 10 + static_cast<uint64_t>(c - '0'), 1 << 20) : 0;
  uint64_t available = size - header.dataBegin;
  if (elementBytes && (available % elementBytes != 0 || available / elementBytes != static_cast<uint64_t>(*count)))
    return Status::error(ErrorCode::corruptFile,
                         "{}: shape {} of type {} holds {} elements, but the file has {} bytes of data", name,
                         formatShape(header.shape), header.descr, *count, available);
  return header;
}

} // namespace

Expected<NpyHeader> readNpyHeader(const InputFile &file) {
  std::string begin(std::min<uint64_t>(file.size(), maxHeaderBytes), '\0');
  BRAID_TRY(file.read(0, std::as_writable_bytes(std::span(begin))));
  return parseHeader(begin, file.size(), file.path());
}

Expected<NpyFile> NpyFile::open(const std::string &path) {
  BRAID_ASSIGN(InputFile file, InputFile::open(path));
  BRAID_ASSIGN(NpyHeader header, readNpyHeader(file));
  auto found = std::find_if(descrs.begin(), descrs.end(), [&](const Descr &d) { return d.text == header.descr; });
  if (found == descrs.end())
    return Status::error(ErrorCode::unsupported,
                         "{}: NumPy type '{}' is not supported (<f4, <f8, <i4, <i8, |u1, and <u2 for bf16 bits are)",
                         path, header.descr);
  return NpyFile(std::move(file), std::move(header), found->dtype);
}

Status NpyFile::read(std::span<std::byte> target) const {
  if (target.size() != bytes())
    return Status::error(ErrorCode::internal, "{}: {} bytes of data were asked into {} bytes", file.path(), bytes(),
                         target.size());
  return file.read(header.dataBegin, target);
}

Expected<NpyArray> readNpy(const std::string &path) {
  BRAID_ASSIGN(NpyFile file, NpyFile::open(path));
  NpyArray array{file.dtype(), file.shape(), std::vector<std::byte>(file.bytes())};
  BRAID_TRY(file.read(array.data));
  return array;
}

Status writeNpy(const std::string &path, DType dtype, std::span<const int64_t> shape, std::span<const std::byte> data) {
  std::string extents;
  for (int64_t extent : shape)
    extents += fmt::format("{}, ", extent);
  if (shape.size() > 1)
    extents.resize(extents.size() - 2);
  else if (shape.size() == 1)
    extents.resize(extents.size() - 1); // a tuple of one keeps its comma
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", npyDescr(dtype), extents);
  // The data starts at a multiple of 64; the header ends with a newline.
  bool large = header.size() + 65 > 0xffff;
  size_t prefix = large ? 12 : 10;
  header.append(63 - (prefix + header.size()) % 64, ' ');
  header.push_back('\n');

  std::string start(magic);
  start.push_back(large ? 2 : 1);
  start.push_back(0);
  for (size_t i = 0; i < prefix - 8; ++i)
    start.push_back(static_cast<char>((header.size() >> (8 * i)) & 0xff));
  return writeReplacing(path, [&](OutputFile &file) -> Status {
    BRAID_TRY(file.write(start + header));
    return file.write(data);
  });
}

} // namespace braid::runtime
