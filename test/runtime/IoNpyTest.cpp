#include "test/runtime/TrainFixture.h"

#include "runtime/io/Npy.h"

#include <csignal>
#include <iterator>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace braid::runtime::test {
namespace {

std::vector<std::byte> bytesOf(std::string_view text) {
  auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

// A version 1 file with any header text.
std::vector<std::byte> fileOf(const std::string &header, size_t dataBytes) {
  std::string text("\x93NUMPY\x01\x00", 8);
  text.push_back(static_cast<char>(header.size() & 0xff));
  text.push_back(static_cast<char>(header.size() >> 8));
  return bytesOf(text + header + std::string(dataBytes, 'x'));
}

// What readNpy() says of a file that holds `bytes`.
Expected<NpyArray> parse(std::span<const std::byte> bytes) {
  static const TemporaryDirectory directory;
  writeText(directory / "x.npy", {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  return readNpy(directory / "x.npy");
}

void expectError(const std::vector<std::byte> &bytes, std::string_view part) {
  auto array = parse(bytes);
  ASSERT_FALSE(array);
  EXPECT_NE(array.message().find(part), std::string::npos) << array.message();
  EXPECT_NE(array.message().find("/x.npy: "), std::string::npos) << array.message();
}

TEST(IoNpy, RoundTripsEveryTypeAndShape) {
  TemporaryDirectory directory;
  for (DType dtype : {DType::f32, DType::bf16, DType::f64, DType::i32, DType::i64, DType::u8, DType::i16})
    for (std::vector<int64_t> shape : {std::vector<int64_t>{}, {1}, {5}, {2, 3}, {0, 4}, {2, 1, 3, 2}}) {
      size_t count = 1;
      for (int64_t extent : shape)
        count *= static_cast<size_t>(extent);
      std::vector<std::byte> data(count * sizeOf(dtype));
      for (size_t i = 0; i < data.size(); ++i)
        data[i] = static_cast<std::byte>(i * 37);
      std::string path = directory / "a.npy";
      ASSERT_TRUE(writeNpy(path, dtype, shape, data).ok());
      EXPECT_EQ((readText(path).size() - data.size()) % 64, 0u);
      auto array = readNpy(path);
      ASSERT_TRUE(array) << array.message();
      EXPECT_EQ(array->dtype, dtype);
      EXPECT_EQ(array->shape, shape);
      EXPECT_EQ(array->data, data);
    }
}

TEST(IoNpy, AFileStaysWholeUntilTheNextIs) {
  TemporaryDirectory directory;
  std::string path = directory / "a.npy", link = directory / "link.npy";
  std::vector<std::byte> data(64);
  int64_t shape[] = {64};
  ASSERT_TRUE(writeNpy(path, DType::u8, shape, data).ok());
  std::string before = readText(path);
  // What takes its place is another file, written beside it; a link stays one.
  std::filesystem::create_hard_link(path, directory / "old");
  data.assign(64, std::byte{7});
  ASSERT_TRUE(writeNpy(path, DType::u8, shape, data).ok());
  EXPECT_EQ(readText(directory / "old"), before);
  EXPECT_NE(readText(path), before);
  std::filesystem::create_symlink("a.npy", link);
  data.assign(64, std::byte{9});
  ASSERT_TRUE(writeNpy(link, DType::u8, shape, data).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(readNpy(path)->data, data);
  // What fails on the way leaves what stood there, and nothing beside it.
  rlimit unlimited{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &unlimited), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{100, unlimited.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  Status failed = writeNpy(path, DType::u8, shape, std::vector<std::byte>(64));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &unlimited), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_NE(failed.message().find("File too large"), std::string::npos) << failed.message();
  EXPECT_EQ(readNpy(path)->data, data);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.str()), {}), 3); // a.npy, old, link.npy
}

TEST(IoNpy, AFileKeepsItsRightsAndItsNeighbours) {
  TemporaryDirectory directory;
  std::string path = directory / "a.npy", neighbour = fmt::format("{}.{}-0.tmp", path, getpid());
  std::vector<std::byte> data(64);
  int64_t shape[] = {64};
  ASSERT_TRUE(writeNpy(path, DType::u8, shape, data).ok());
  std::filesystem::permissions(path, std::filesystem::perms(0640));
  writeText(neighbour, "the user's");
  ASSERT_TRUE(writeNpy(path, DType::u8, shape, data).ok());
  EXPECT_EQ(readText(neighbour), "the user's");
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0640));
  // Root may write all of these; a process without that right may not.
  auto child = [&](auto &&body) {
    pid_t process = fork();
    if (process == 0) {
      prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE);
      __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
      __user_cap_data_struct none[2] = {};
      _exit(syscall(SYS_capset, &header, none) == 0 && body() ? 0 : 1);
    }
    int status = -1;
    waitpid(process, &status, 0);
    return status == 0;
  };
  std::vector<std::byte> other(64, std::byte{5});
  std::filesystem::permissions(path, std::filesystem::perms(0444));
  EXPECT_TRUE(child([&] { return !writeNpy(path, DType::u8, shape, other).ok(); }));
  EXPECT_EQ(readNpy(path)->data, data);
  // A file that can be written in a directory that cannot.
  std::filesystem::permissions(path, std::filesystem::perms(0644));
  std::filesystem::permissions(directory.str(), std::filesystem::perms(0555));
  EXPECT_TRUE(child([&] { return writeNpy(path, DType::u8, shape, other).ok(); }));
  std::filesystem::permissions(directory.str(), std::filesystem::perms(0755));
  EXPECT_EQ(readNpy(path)->data, other);
}

TEST(IoNpy, ReadsWhatNumpyWrites) {
  // numpy.save of numpy.arange(3, dtype='<i4'): a shape of one dimension keeps its comma.
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }";
  auto array = parse(fileOf(header + std::string(60, ' ') + "\n", 12));
  ASSERT_TRUE(array) << array.message();
  EXPECT_EQ(array->shape, std::vector<int64_t>{3});
  // Version 2 has a header length of four bytes.
  std::string text("\x93NUMPY\x02\x00", 8);
  text += std::string("\x2d\x00\x00\x00", 4) + "{'shape':(),'fortran_order':False,'descr':'<f8'}";
  text[8] = static_cast<char>(text.size() - 12);
  EXPECT_TRUE(parse(bytesOf(text + "12345678")));
  // Fortran order is no difference in one dimension.
  EXPECT_TRUE(parse(fileOf("{'descr': '|u1', 'fortran_order': True, 'shape': (2,), }", 2)));
}

TEST(IoNpy, RejectsWhatItCannotRead) {
  expectError(bytesOf("not a numpy file"), "not a NumPy file");
  expectError(bytesOf(std::string_view("\x93NUMPY\x09\x00\x00\x00", 10)), "version 9 is not supported");
  expectError(fileOf("{'descr': '<f2', 'fortran_order': False, 'shape': (2,), }", 4), "type '<f2' is not supported");
  expectError(fileOf("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", 8), "type '>f4' is not supported");
  expectError(fileOf("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", 8), "structured");
  expectError(fileOf("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }", 16), "Fortran order");
  expectError(fileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", 20),
              "shape [2, 3] of type <f4 holds 6 elements, but the file has 20 bytes of data");
  expectError(fileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }", 8), "a dimension");
  expectError(fileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 9), }", 8), "too large");
  expectError(fileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }", 8), "a dimension");
  expectError(fileOf("{'descr': '<f4', 'shape': (2,), }", 8), "lacks 'fortran_order'");
  expectError(fileOf("{'descr': '<f4', 'descr': '<f4', }", 8), "unexpected key 'descr'");
  expectError(fileOf("{'descr': '<f4", 8), "closing quote");
}

TEST(IoNpy, EveryTruncationAndFlipIsHarmless) {
  std::vector<std::byte> file = fileOf("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n", 24);
  ASSERT_TRUE(parse(file));
  for (size_t length = 0; length < file.size(); ++length)
    EXPECT_FALSE(parse(std::span(file).first(length))) << length;
  for (size_t i = 0; i < file.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::vector<std::byte> changed = file;
      changed[i] ^= static_cast<std::byte>(1 << bit);
      (void)parse(changed).ok();
    }
}

} // namespace
} // namespace braid::runtime::test
