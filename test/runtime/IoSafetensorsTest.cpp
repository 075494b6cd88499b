#include "test/runtime/TrainFixture.h"

#include "runtime/F16.h"
#include "runtime/io/Safetensors.h"

#include <cmath>
#include <cstring>

namespace braid::runtime::test {
namespace {

std::string withHeader(const std::string &header, size_t dataBytes) {
  std::string text;
  for (size_t i = 0; i < 8; ++i)
    text.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return text + header + std::string(dataBytes, 'x');
}

void expectError(const std::string &file, std::string_view part) {
  TemporaryDirectory directory;
  std::string path = directory / "x.safetensors";
  writeText(path, file);
  auto opened = SafetensorsFile::open(path);
  ASSERT_FALSE(opened) << part;
  EXPECT_NE(opened.message().find(part), std::string::npos) << opened.message();
  EXPECT_TRUE(opened.message().starts_with(path)) << opened.message();
}

TEST(IoSafetensors, RoundTrip) {
  TemporaryDirectory directory;
  std::vector<float> a = {1, 2, 3, 4, 5, 6};
  std::vector<uint8_t> b = {7, 8, 9};
  std::vector<double> c = {0.5};
  SafetensorsWriter writer;
  writer.setMetadata("format", "pt");
  // The odd-sized u8 tensor comes first by name, but not in the file: it would misalign the others.
  ASSERT_TRUE(writer.add("b", DType::u8, {3}, std::as_bytes(std::span(b))).ok());
  ASSERT_TRUE(writer.add("layers.3.a", DType::f32, {2, 3}, std::as_bytes(std::span(a))).ok());
  ASSERT_TRUE(writer.add("z", DType::f64, {}, std::as_bytes(std::span(c))).ok());
  ASSERT_TRUE(writer.add("empty", DType::f32, {0, 4}, {}).ok());
  EXPECT_FALSE(writer.add("wrong", DType::f32, {2}, std::as_bytes(std::span(a))).ok());
  EXPECT_FALSE(writer.add("b", DType::u8, {3}, std::as_bytes(std::span(b))).ok());
  std::string path = directory / "x.safetensors";
  ASSERT_TRUE(writer.write(path).ok());

  auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.message();
  EXPECT_EQ(file->entries().size(), 4u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const SafetensorsEntry *entry = file->find("layers.3.a");
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->shape, (std::vector<int64_t>{2, 3}));
  for (const auto &[name, any] : file->entries())
    EXPECT_EQ(any.offset % sizeOf(any.dtype), 0u) << name;
  std::vector<float> back(6);
  ASSERT_TRUE(file->read(*entry, std::as_writable_bytes(std::span(back))).ok());
  EXPECT_EQ(back, a);
  EXPECT_FALSE(file->read(*entry, std::as_writable_bytes(std::span(back).first(5))).ok());
  EXPECT_EQ(file->find("nothing"), nullptr);
}

TEST(IoSafetensors, RejectsBrokenHeaders) {
  expectError("1234", "4 bytes");
  expectError(withHeader("{}", 0).substr(0, 9), "claims 2 bytes, but the file has 1");
  expectError(std::string(8, '\xff') + "{}", "claims 18446744073709551615 bytes");
  expectError(withHeader("[]", 0), "the safetensors header: holds JSON, but array instead of an object");
  expectError(withHeader("{\"a\":", 0), "the safetensors header: is not JSON, at byte 5 of 5 (line 1, column 5): ");
  expectError(withHeader(std::string(100000, '['), 0), "the file looks truncated");
  expectError(withHeader(std::string("{}\0{}", 5), 0), "is not JSON: a NUL byte at byte 3 of 5");
  expectError(withHeader("{\"a\":1}", 0), "tensor 'a' in the safetensors header: not a JSON object");
  expectError(withHeader(R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1),
              "dtype F8_E5M2 is not supported; valid: F32, BF16, F16, F64, F8_E4M3, F8_E8M0, I32, I64, U8, I16");
  expectError(withHeader(R"({"a":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,4]}})", 4),
              "F8_E4M3 [3] does not take the 4 bytes");
  expectError(withHeader(R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,4]}})", 4),
              "F16 [1] does not take the 4 bytes");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), "non-negative");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4), "non-negative");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", 4),
              "too large");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "no data_offsets");
  for (auto [offsets, what] : {std::pair(R"("0:4")", "is \"0:4\""),
                               {"null", "is null"},
                               {"{}", "is object"},
                               {"[4]", "has 1 numbers"},
                               {"[0,4,8]", "has 3 numbers"},
                               {"[-4,4]", "holds -4, which is no place in a file"},
                               {"[0,4.0]", "holds 4.0, which is no place in a file"},
                               {"[0,[4]]", "holds array, which is no place in a file"}})
    expectError(
        withHeader(fmt::format(R"({{"a":{{"dtype":"F32","shape":[1],"data_offsets":{}}}}})", offsets), 4),
        fmt::format("tensor 'a' in the safetensors header: data_offsets {}; valid: [begin, end], in bytes of the data",
                    what));
  expectError(withHeader(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "no dtype");
  expectError(withHeader(R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", 4),
              "dtype is 32; valid: \"F32\", \"BF16\", ..");
  expectError(withHeader(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "no shape");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4),
              "shape is 1; valid: a list of dimensions");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4), "data_offsets [4, 0]");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 4),
              "data_offsets [0, 8] leave the 4 bytes of data in the file (is it truncated?)");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              "F32 [2] does not take the 4 bytes");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 9), "describes 4 bytes");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                         4),
              "starts at byte 0 of the data, but the one before ends at 4");
}

TEST(IoSafetensors, NumbersOfEightBitsAreReadAsTheNumbersThatTheyAre) {
  std::string data;
  for (int bits = 0; bits < 256; ++bits)
    data += static_cast<char>(bits);
  std::string header = R"({"e":{"dtype":"F8_E4M3","shape":[16,16],"data_offsets":[0,256]},)"
                       R"("s":{"dtype":"F8_E8M0","shape":[256],"data_offsets":[256,512]}})";
  TemporaryDirectory directory;
  writeText(directory / "x", withHeader(header, 0) + data + data);
  auto file = SafetensorsFile::open(directory / "x");
  ASSERT_TRUE(file) << file.message();
  std::vector<float> e(256), s(256), part(7);
  for (auto [name, read] : {std::pair("e", &e), std::pair("s", &s)}) {
    const SafetensorsEntry &entry = *file->find(name);
    EXPECT_EQ(entry.dtype, DType::f32);
    ASSERT_EQ(entry.bytes, 1024u);
    EXPECT_EQ(entry.bytesInFile(), 256u);
    EXPECT_EQ(safetensorsName(entry), name == std::string("e") ? "F8_E4M3" : "F8_E8M0");
    ASSERT_TRUE(file->read(entry, std::as_writable_bytes(std::span(*read))).ok());
    ASSERT_TRUE(file->read(entry, 4 * 249, std::as_writable_bytes(std::span(part))).ok());
    EXPECT_EQ(std::memcmp(part.data(), read->data() + 249, sizeof(float) * 7), 0);
  }
  for (int bits = 0; bits < 256; ++bits) {
    int exponent = bits >> 3 & 15, fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f) { // no infinities
      EXPECT_TRUE(std::isnan(e[bits])) << bits;
    } else {
      float value = exponent ? std::ldexp(8.0f + fraction, exponent - 10) : std::ldexp(1.0f * fraction, -9);
      EXPECT_EQ(e[bits], bits >> 7 ? -value : value) << bits;
      EXPECT_EQ(std::signbit(e[bits]), bits >> 7 != 0) << bits;
    }
    if (bits == 255)
      EXPECT_TRUE(std::isnan(s[bits]));
    else
      EXPECT_EQ(s[bits], std::ldexp(1.0f, bits - 127)) << bits;
  }
  // By hand: the smallest, 1, the largest.
  EXPECT_EQ(e[1], 0x1p-9f);
  EXPECT_EQ(e[0x38], 1.0f);
  EXPECT_EQ(e[0x7e], 448.0f);
}

// What Git LFS leaves where it did not fetch a file.
TEST(IoSafetensors, PointersOfGitLfsAreNamed) {
  expectError("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n",
              "is a Git LFS pointer of 74 bytes in the place of a safetensors file; valid: the file itself, which 'git "
              "lfs pull' in its directory fetches");
}

TEST(IoSafetensors, HalvesAreReadAsTheNumbersThatTheyAre) {
  // Every f16, and a tensor behind them.
  constexpr size_t all = 1 << 16;
  std::string data;
  for (size_t bits = 0; bits < all; ++bits)
    data += {static_cast<char>(bits & 0xff), static_cast<char>(bits >> 8)};
  std::string header = R"({"h":{"dtype":"F16","shape":[256,256],"data_offsets":[0,131072]},)"
                       R"("i":{"dtype":"I16","shape":[1],"data_offsets":[131072,131074]}})";
  TemporaryDirectory directory;
  writeText(directory / "x", withHeader(header, 0) + data + "\x05" + std::string(1, '\0'));
  auto file = SafetensorsFile::open(directory / "x");
  ASSERT_TRUE(file) << file.message();
  const SafetensorsEntry &entry = *file->find("h");
  EXPECT_EQ(entry.dtype, DType::f32);
  EXPECT_EQ(entry.shape, (std::vector<int64_t>{256, 256}));
  std::vector<float> read(all);
  ASSERT_EQ(entry.bytes, all * 4);
  ASSERT_TRUE(file->read(entry, std::as_writable_bytes(std::span(read))).ok());
  for (size_t bits = 0; bits < all; ++bits) {
    int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    float sign = bits >> 15 ? -1.0f : 1.0f;
    if (exponent == 31 && fraction) {
      EXPECT_TRUE(std::isnan(read[bits])) << bits;
      continue;
    }
    double value = exponent == 31 ? INFINITY
                   : exponent     ? std::ldexp(1024 + fraction, exponent - 25)
                                  : std::ldexp(fraction, -24);
    EXPECT_EQ(read[bits], sign * static_cast<float>(value)) << bits;
    EXPECT_EQ(std::signbit(read[bits]), bits >> 15 != 0) << bits;
  }
  // A part of them is read alone.
  std::vector<float> part(300);
  ASSERT_TRUE(file->read(entry, 4 * 0x3bff, std::as_writable_bytes(std::span(part))).ok());
  EXPECT_TRUE(std::equal(part.begin(), part.end(), read.begin() + 0x3bff));
  EXPECT_FALSE(file->read(entry, 4 * (all - 299), std::as_writable_bytes(std::span(part))).ok());
  // And back: each itself, what lies between two the nearer, in the middle the even one.
  for (size_t bits = 0; bits < all; ++bits) {
    if (std::isnan(read[bits])) {
      EXPECT_TRUE(std::isnan(fromF16(toF16(read[bits]))) && toF16(read[bits]) >> 15 == bits >> 15) << bits;
      continue;
    }
    EXPECT_EQ(toF16(read[bits]), bits);
    if ((bits & 0x7fff) >= 0x7bff)
      continue;
    float middle = (read[bits] + read[bits + 1]) / 2;
    EXPECT_EQ(toF16(middle), bits + (bits & 1)) << bits;
    EXPECT_EQ(toF16(std::nextafter(middle, read[bits])), bits);
    EXPECT_EQ(toF16(std::nextafter(middle, read[bits + 1])), bits + 1);
  }
  EXPECT_EQ(toF16(std::nextafter(65520.0f, 0.0f)), 0x7bff);
  EXPECT_EQ(toF16(65520), 0x7c00);
  EXPECT_EQ(toF16(-1e30f), 0xfc00);
  // By hand: 1, -2, the largest, the smallest normal and subnormal ones.
  EXPECT_EQ(read[0x3c00], 1.0f);
  EXPECT_EQ(read[0xc000], -2.0f);
  EXPECT_EQ(read[0x7bff], 65504.0f);
  EXPECT_EQ(read[0x0400], 6.103515625e-05f);
  EXPECT_EQ(read[0x0001], 5.9604644775390625e-08f);
  int16_t behind = 0;
  ASSERT_TRUE(file->read(*file->find("i"), std::as_writable_bytes(std::span(&behind, 1))).ok());
  EXPECT_EQ(behind, 5);
}

TEST(IoSafetensors, RefusesNamesThatStandTwice) {
  // The data would be whole with the last of the two alone, which is what a JSON library keeps.
  std::string one = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  std::string header = "{" + one + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[4,8]},)" + one + "}";
  size_t second = header.rfind("\"a\"") + 3;
  expectError(withHeader(header, 8),
              fmt::format("the safetensors header: has key 'a' twice in one object: they end at bytes 4 and {} of {}; "
                          "valid: one of them",
                          second, header.size()));
  // The same letters, written in two ways; and in a tensor's own keys.
  expectError(withHeader(R"({"b\u0031":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
                         R"("b1":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
                         0),
              "has key 'b1' twice in one object: they end at bytes 10 and ");
  expectError(withHeader(R"({"a":{"dtype":"F32","shape":[2],"shape":[1],"data_offsets":[0,4]}})", 4),
              "has key 'shape' twice in one object: they end at bytes 27 and 39 of ");
  // Of two objects each may have it.
  TemporaryDirectory directory;
  writeText(directory / "x", withHeader(R"({"__metadata__":{"a":"1","dtype":"x"},)" + one + "}", 4));
  auto opened = SafetensorsFile::open(directory / "x");
  EXPECT_TRUE(opened) << opened.message();
}

TEST(IoSafetensors, EveryTruncationIsAnErrorAndEveryFlipIsHarmless) {
  TemporaryDirectory directory;
  std::string path = directory / "x.safetensors";
  std::string file = withHeader(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8);
  for (size_t length = 0; length < file.size(); ++length) {
    writeText(path, std::string_view(file).substr(0, length));
    EXPECT_FALSE(SafetensorsFile::open(path)) << length;
  }
  for (size_t i = 0; i < file.size(); ++i) {
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ (1 << (i % 8)));
    writeText(path, changed);
    if (auto opened = SafetensorsFile::open(path))
      for (const auto &[name, entry] : opened->entries()) {
        std::vector<std::byte> data(entry.bytes);
        EXPECT_TRUE(opened->read(entry, data).ok());
      }
  }
}

} // namespace
} // namespace braid::runtime::test
