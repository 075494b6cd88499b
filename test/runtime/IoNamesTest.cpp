#include "test/runtime/TrainFixture.h"

#include "runtime/io/JsonLines.h"
#include "runtime/io/LineReader.h"
#include "runtime/io/TensorNames.h"

#include <nlohmann/json.hpp>

#include <csignal>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace braid::runtime::test {
namespace {

TEST(IoTensorNames, FindsInputsByTheirLastComponent) {
  auto program = parseProgram(bigramProgram());
  const EntryInfo &train = *program->findEntry("train_step"), &eval = *program->findEntry("eval_step");
  auto a = entryInput(*program, train, "tokens"), b = entryInput(*program, eval, "tokens");
  ASSERT_TRUE(a && b);
  EXPECT_EQ((*a)->name, "tokens");
  EXPECT_EQ((*b)->name, "eval_step/tokens");
  auto missing = entryInput(*program, eval, "step");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.message(), "entry @eval_step has no input 'step'; it has: eval_step/tokens, eval_step/labels, "
                               "eval_step/cu_seqlens");
  EXPECT_FALSE(entryOutput(*program, eval, "tokens"));
  auto entry = findEntry(*program, "decode_9");
  ASSERT_FALSE(entry);
  EXPECT_NE(entry.message().find("no entry @decode_9; it has: init, train_step"), std::string::npos) << entry.message();
}

TEST(IoTensorNames, FindsStackedTensorsAndTheirLayers) {
  auto program = parseProgram(bigramProgram()); // bias of layers 1 and 4
  auto whole = findTensor(*program, nullptr, "layers.{}.bias"), layer = findTensor(*program, nullptr, "layers.4.bias");
  ASSERT_TRUE(whole && layer);
  EXPECT_EQ(whole->shape(), (std::vector<int64_t>{2, 256}));
  EXPECT_EQ(layer->shape(), (std::vector<int64_t>{256}));
  EXPECT_EQ(layer->layer, 1u);
  EXPECT_EQ(whole->bytes(), 2 * layer->bytes());
  auto missing = findTensor(*program, nullptr, "layers.2.bias");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.message(), "there is no tensor 'layers.2.bias'; 'layers.{}.bias' has layers 1, 4");
  const EntryInfo &decode = *program->findEntry("decode_1");
  auto logits = findTensor(*program, &decode, "logits");
  ASSERT_TRUE(logits);
  EXPECT_EQ(logits->info->name, "decode_1/logits");
  EXPECT_FALSE(findTensor(*program, nullptr, "logits"));
  EXPECT_FALSE(findTensor(*program, &decode, "nonsense"));
}

TEST(IoJsonLines, DropsWhatCameAfterTheCheckpoint) {
  TemporaryDirectory directory;
  std::string path = directory / "m.jsonl";
  EXPECT_TRUE(dropLinesAfter(path, "step", 1).ok());
  auto file = JsonLinesFile::create(path);
  ASSERT_TRUE(file);
  for (int step = 1; step <= 4; ++step)
    ASSERT_TRUE(file->write({{"step", step}, {"loss", 0.5f}}).ok());
  ASSERT_TRUE(file->write({{"note", NAN}}).ok());
  writeText(path, readText(path) + "{\"step\": 5, \"lo"); // a killed run
  ASSERT_TRUE(dropLinesAfter(path, "step", 2).ok());
  EXPECT_EQ(readText(path), "{\"step\":1,\"loss\":0.5}\n{\"step\":2,\"loss\":0.5}\n{\"note\":null}\n");
}

TEST(IoJsonLines, DroppingLeavesLinksAndDevicesAlone) {
  TemporaryDirectory directory;
  std::string lines = "{\"step\":1}\n{\"step\":9}\n{\"step\":2}\n";
  writeText(directory / "m", lines);
  std::filesystem::create_symlink("m", directory / "link");
  ASSERT_TRUE(dropLinesAfter(directory / "link", "step", 2).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link"));
  EXPECT_EQ(readText(directory / "m"), "{\"step\":1}\n{\"step\":2}\n");
  EXPECT_EQ(listDirectory(directory.str())->size(), 2u);
  EXPECT_TRUE(dropLinesAfter("/dev/null", "step", 2).ok());
}

// As on a disk that is full for a while; the kernel writes what still fits.
TEST(IoJsonLines, LinesThatDoNotFitWaitForRoom) {
  TemporaryDirectory directory;
  std::string path = directory / "m.jsonl", expected;
  auto file = JsonLinesFile::create(path);
  ASSERT_TRUE(file);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{25, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  for (int step = 1; step <= 5; ++step) {
    Status status = file->write({{"step", step}});
    EXPECT_EQ(status.message(), step <= 2 ? "" : "cannot write " + path + ": File too large");
    expected += fmt::format("{{\"step\":{}}}\n", step);
  }
  EXPECT_EQ(readText(path), expected.substr(0, 25));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_TRUE(file->flush().ok());
  EXPECT_EQ(readText(path), expected);
  EXPECT_EQ(file->lostLines(), 0u);
}

// A reader that pauses, or is not there, does not hold up a training.
TEST(IoJsonLines, APipeNeverHoldsUpItsWriter) {
  TemporaryDirectory directory;
  std::string path = directory / "pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(JsonLinesFile::create(path).message(), "cannot write " + path + ": No such device or address");
  int reader = open(path.c_str(), O_RDONLY | O_NONBLOCK);
  auto file = JsonLinesFile::create(path);
  ASSERT_TRUE(file);
  std::string expected, got;
  Status status = Status::success();
  for (int step = 0; status.ok() && step < 100000; ++step) {
    status = file->write({{"step", step}});
    expected += fmt::format("{{\"step\":{}}}\n", step);
  }
  EXPECT_EQ(status.message(), "cannot write " + path + ": Resource temporarily unavailable");
  for (char block[4096]; got.size() < expected.size();) {
    ssize_t size = read(reader, block, sizeof(block));
    if (size > 0)
      got.append(block, static_cast<size_t>(size));
    else
      ASSERT_TRUE(file->flush().ok());
  }
  EXPECT_TRUE(got == expected);
  close(reader);
}

TEST(IoLineReader, GivesEveryLineAndBoundsThem) {
  TemporaryDirectory directory;
  std::string long1((1 << 20) + 5, 'a'), long2((2 << 20) - 3, 'b');
  writeText(directory / "f", "\n" + long1 + "\n\nx\n" + long2);
  auto file = InputFile::open(directory / "f");
  ASSERT_TRUE(file);
  LineReader reader(*file);
  std::string_view line;
  uint64_t begin = 0, number = 0;
  for (const std::string &expected : {std::string(), long1, std::string(), std::string("x"), long2}) {
    auto more = reader.next(line);
    ASSERT_TRUE(more && *more);
    EXPECT_TRUE(line == expected);
    EXPECT_EQ(reader.number(), ++number);
    EXPECT_EQ(reader.begin(), begin);
    EXPECT_EQ(reader.complete(), number < 5);
    begin += expected.size() + 1;
  }
  EXPECT_FALSE(*reader.next(line));
  LineReader bounded(*file, 1000);
  ASSERT_TRUE(*bounded.next(line));
  EXPECT_EQ(bounded.next(line).message(), directory / "f" + ":2: the line has more than 1000 bytes");
}

TEST(IoFile, WritesAtomicallyAndNamesWhatFails) {
  TemporaryDirectory directory;
  std::string path = directory / "f";
  ASSERT_TRUE(writeFileAtomic(path, "one").ok());
  ASSERT_TRUE(writeFileAtomic(path, "two").ok());
  EXPECT_EQ(readText(path), "two");
  EXPECT_EQ(listDirectory(directory.str())->size(), 1u);
  EXPECT_NE(readTextFile(directory / "none").message().find("cannot open: No such file"), std::string::npos);
  EXPECT_NE(readTextFile(directory.str()).message().find("is a directory"), std::string::npos);
  EXPECT_FALSE(writeFileAtomic(directory / "no/such/f", "x").ok());
  auto file = InputFile::open(path);
  std::vector<std::byte> more(5);
  EXPECT_NE(file->read(0, more).message().find("ends after 3 bytes, but bytes 0 to 5"), std::string::npos);
}

} // namespace
} // namespace braid::runtime::test
