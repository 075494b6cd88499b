// Files as documents: every format, and what is said of files that are none.
#include "test/runtime/TrainFixture.h"

#include "runtime/data/PackedRows.h"
#include "runtime/data/ReadCorpus.h"
#include "runtime/io/Npy.h"

#include <random>
#include <sys/stat.h>

namespace braid::runtime::test {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

Documents documentsOf(const Corpus &corpus) {
  Documents documents;
  for (uint64_t i = 0; i < corpus.documents(); ++i) {
    documents.emplace_back(corpus.end(i) - corpus.begin(i));
    EXPECT_TRUE(corpus.copy(corpus.begin(i), documents.back()).ok());
  }
  return documents;
}

std::vector<int32_t> bytesOf(std::string_view text) {
  std::vector<int32_t> tokens;
  for (char c : text)
    tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

class DataRead : public testing::Test {
protected:
  template <class T> std::string raw(const std::string &name, std::vector<T> values) {
    writeText(directory / name, {reinterpret_cast<const char *>(values.data()), values.size() * sizeof(T)});
    return directory / name;
  }
  std::string text(const std::string &name, std::string_view content) {
    writeText(directory / name, content);
    return directory / name;
  }
  std::string npy(const std::string &name, const std::string &descr, const std::string &shape, std::string data) {
    std::string header = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }\n";
    std::string file = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0' + header + data;
    return text(name, file);
  }
  Expected<Corpus> read(std::vector<std::string> paths, DataOptions options = {}, int64_t vocabulary = 256) {
    return readCorpus(paths, vocabulary, options);
  }
  void expectDocuments(const Expected<Corpus> &corpus, const Documents &documents) {
    ASSERT_TRUE(corpus) << corpus.message();
    EXPECT_EQ(documentsOf(*corpus), documents);
  }
  void expectError(const Expected<Corpus> &corpus, const std::string &message) {
    ASSERT_FALSE(corpus);
    EXPECT_EQ(corpus.message(), message);
  }

  TemporaryDirectory directory;
};

TEST_F(DataRead, TextIsBytesAndFilesAreDocuments) {
  std::string a = text("a.txt", "one \xff"), b = text("b", "two");
  auto corpus = read({a, b, a});
  expectDocuments(corpus, {bytesOf("one \xff"), bytesOf("two"), bytesOf("one \xff")});
  EXPECT_TRUE(corpus->isText());
  EXPECT_EQ(corpus->width(), 1u);
  EXPECT_EQ(read({})->size(), 0u);
  expectError(read({a}, {}, 32),
              a + ": text is read as bytes, which need a vocabulary of 256 or more whose tokens are bytes; "
                  "the program has 32 other tokens: give their --tokenizer, or token files (u16, u32, npy, jsonl with "
                  "an array)");
  expectError(read({text("empty", "")}), directory / "empty" + ": is empty");
  EXPECT_NE(read({directory / "gone"}).message().find("gone: cannot open"), std::string::npos);
}

TEST_F(DataRead, ASeparatorEndsADocumentAndBelongsToIt) {
  DataOptions lines{.separator = '\n'};
  expectDocuments(read({text("a", "one\ntwo\n\nthree")}, lines),
                  {bytesOf("one\n"), bytesOf("two\n"), bytesOf("\n"), bytesOf("three")});
  DataOptions zero{.separator = 0};
  expectDocuments(read({raw<uint16_t>("b.u16", {7, 0, 300, 8, 0})}, zero, 301), {{7, 0}, {300, 8, 0}});
  expectError(read({directory / "b.u16"}, DataOptions{.separator = 301}, 301),
              "--separator=301: must be a token from 0 to 300");
  expectError(read({directory / "a"}, DataOptions{.separator = 256}, 5000),
              "--separator=256: must be a token from 0 to 255");
}

TEST_F(DataRead, DirectoriesAreSortedAndFormatsMustAgree) {
  std::filesystem::create_directories(directory / "d/b");
  std::filesystem::create_directories(directory / "none");
  text("d/c.txt", "3");
  text("d/b/x", "2");
  text("d/a", "1");
  text("d/.hidden", "0");
  expectDocuments(read({directory / "d"}), {bytesOf("1"), bytesOf("2"), bytesOf("3")});
  expectError(read({directory / "none"}), directory / "none" + ": the directory holds no files");
  std::string array = npy("d/t.npy", "<u2", "(1,)", std::string("\x01\x00", 2));
  expectError(read({directory / "d"}), array + " would be read as npy, but " + directory / "d/a" +
                                           " as text: read them apart, or give --format");
  expectError(read({text("t.bin", "1234")}), directory / "t.bin" +
                                                 ": its ending does not say how many bytes a token has: "
                                                 "give --format=u16 or --format=u32");
  expectDocuments(read({directory / "t.bin"}, {.format = DataFormat::u16}, 65536), {{0x3231, 0x3433}});
}

TEST_F(DataRead, OnlyRegularFiles) {
  std::string fifo = directory / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  expectError(read({fifo}), fifo + ": is a pipe, not a regular file: its size must be known and any part readable");
  expectError(read({"/dev/zero"}),
              "/dev/zero: is a device, not a regular file: its size must be known and any part readable");
}

TEST_F(DataRead, JsonLinesOfText) {
  std::string path = text("a.jsonl", "{\"id\": {\"text\": [1]}, \"text\": \"na\\u00efve\\n\"}\r\n\n"
                                     "{\"text\": \"\"}\n  {\"text\":\"b\", \"tokens\": [5]}");
  expectDocuments(read({path}), {bytesOf("na\xc3\xafve\n"), bytesOf("b")});
  expectDocuments(read({text("b.jsonl", "{\"body\": \"x\", \"text\": 1}")}, {.field = "body"}), {bytesOf("x")});
  auto wrong = [&](const std::string &line, const std::string &message) {
    std::string file = text("w.jsonl", "{\"text\": \"fine\"}\n" + line + "\n{\"text\": \"fine\"}");
    expectError(read({file}), file + ":2: " + message);
  };
  wrong("[1]", "holds an array, not an object");
  wrong("{\"txt\": \"a\"}", "has no field 'text'");
  wrong("{\"text\": null}", "field 'text' is null, not a string or an array of tokens");
  wrong("{\"text\": {\"text\": \"a\"}}", "field 'text' is an object, not a string or an array of tokens");
  wrong("{\"text\": \"a\", \"text\": \"b\"}", "has the field 'text' twice");
  wrong("{\"text\": [1]}", "field 'text' is an array, but earlier documents are text");
  wrong(std::string("{\"text\": \"a\"}\0 more", 19), "holds a NUL byte, at byte 14");
  for (std::string broken : {"{\"text\": \"a\"", "{\"text\": \"a\"} {}", "{'text': 'a'}", "{\"text\": \"\xff\"}", "nul",
                             "{\"text\": 1e999}"}) {
    std::string file = text("w.jsonl", broken);
    auto corpus = read({file});
    ASSERT_FALSE(corpus) << broken;
    EXPECT_TRUE(corpus.message().starts_with(file + ":1: ")) << corpus.message();
  }
  expectError(read({text("blank.jsonl", "\n \n")}), directory / "blank.jsonl" + ": holds no document");
  expectError(read({text("t.txt", "a")}, {.field = "text"}),
              "--field=text: only JSON Lines have fields, but " + directory / "t.txt" + " is read as text");
}

TEST_F(DataRead, JsonLinesOfTokens) {
  DataOptions tokens{.field = "tokens"};
  std::string path =
      text("a.jsonl", "{\"tokens\": [1, 2, 299]}\n{\"tokens\": []}\n{\"text\": \"x\", \"tokens\": [0]}\n");
  auto corpus = read({path}, tokens, 300);
  expectDocuments(corpus, {{1, 2, 299}, {0}});
  EXPECT_FALSE(corpus->isText());
  EXPECT_EQ(corpus->width(), 2u);
  for (auto [value, what] : {std::pair("300", "300"),
                             {"-1", "-1"},
                             {"1.5", "1.5"},
                             {"\"a\"", "a string"},
                             {"[1]", "an array"},
                             {"null", "null"},
                             {"18446744073709551615", "18446744073709551615"}}) {
    std::string file = text("w.jsonl", "{\"tokens\": [4]}\n{\"tokens\": [1, " + std::string(value) + "]}");
    expectError(read({file}, tokens, 300), file + ":2: tokens[1] is " + what + ", not a token from 0 to 299");
  }
}

TEST_F(DataRead, LongLinesAndFilesOfManyChunks) {
  std::string long1((1 << 20) + 5, 'a'), long2((1 << 20) - 3, 'b');
  std::string path =
      text("a.jsonl", "{\"text\": \"" + long1 + "\"}\n{\"text\": \"c\"}\n{\"text\": \"" + long2 + "\"}\n");
  expectDocuments(read({path}), {bytesOf(long1), bytesOf("c"), bytesOf(long2)});
  std::vector<uint32_t> many((1 << 19) + 77);
  for (size_t i = 0; i < many.size(); ++i)
    many[i] = static_cast<uint32_t>(i * 2654435761u % 100000);
  expectDocuments(read({raw("b.u32", many)}, {}, 100000), {std::vector<int32_t>(many.begin(), many.end())});
}

TEST_F(DataRead, TextsThatATokenizerReads) {
  DataOptions options;
  options.bytes = false;
  options.threads = 3;
  options.tokenizer = *Tokenizer::parse(R"J({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false},
      "added_tokens": [{"id": 4, "content": "|"}],
      "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "ab": 300}, "merges": ["a b"]}})J",
                                        "t.json");
  Expected<Corpus> corpus = read({text("a.txt", "abc"), text("b.txt", "c|a")}, options, 400);
  expectDocuments(corpus, {{300, 2}, {2, 4, 0}});
  EXPECT_EQ(corpus->textBytes(), 3u); // of those that are predicted: c, |, a
  EXPECT_EQ(corpus->unit(), "token");
  // With a separator every document has one at its end, whether it was written there or not.
  options.separator = 4;
  expectDocuments(read({directory / "a.txt", directory / "b.txt"}, options, 400), {{300, 2, 4}, {2, 4}, {0, 4}});
  expectDocuments(read({text("c.txt", "a|")}, options, 400), {{0, 4}});
  // Lines of both kinds stay in their order, also where they are many.
  std::string lines;
  Documents documents;
  for (int i = 0; i < 30; ++i) {
    bool tokens = i % 7 == 3;
    std::string letters(tokens ? 0 : size_t(1) << 19, "abc"[i % 3]);
    lines += tokens ? fmt::format("{{\"text\": [{}]}}\n", i) : fmt::format("{{\"text\": \"{}\"}}\n", letters);
    documents.push_back(tokens ? std::vector<int32_t>{i} : std::vector<int32_t>(letters.size(), i % 3));
  }
  options.separator = std::nullopt;
  expectDocuments(read({text("d.jsonl", lines)}, options, 400), documents);
  expectError(read({text("e.jsonl", "{\"text\": \"a\"}\n{\"text\": \"ab\"}\n")}, options, 300),
              directory / "e.jsonl:2" +
                  ": the tokenizer t.json makes token 300 of it, but the program's vocabulary has 0 to 299");
  expectError(read({text("f.txt", "a\xe9")}, options, 400),
              directory / "f.txt" + ": byte 1 (0xe9) is no UTF-8, which a tokenizer reads");
  // Token files are what they are.
  expectDocuments(read({raw<uint16_t>("g.u16", {399, 1})}, options, 400), {{399, 1}});
}

TEST_F(DataRead, RawTokens) {
  auto corpus = read({raw<uint16_t>("a.u16", {1, 65535}), raw<uint16_t>("b.u16", {4})}, {}, 70000);
  expectDocuments(corpus, {{1, 65535}, {4}});
  EXPECT_EQ(corpus->width(), 4u);
  EXPECT_EQ(read({directory / "a.u16"}, {}, 65536)->width(), 2u);
  expectError(read({directory / "a.u16"}, {}, 65535),
              directory / "a.u16" + ": byte 2: token 1 is 65535, but the vocabulary has 0 to 65534 (read as u16)");
  expectError(read({directory / "a.u16"}, {.format = DataFormat::u32}, 70000),
              directory / "a.u16" + ": byte 0: token 0 is 4294901761, but the vocabulary has 0 to 69999 (read as u32)");
  expectError(read({text("odd.u32", "12345")}, {}, 70000),
              directory / "odd.u32" + ": has 5 bytes, no multiple of the 4 of u32");
}

TEST_F(DataRead, NumpyTokens) {
  std::string two("\x01\x00\x02\x00\x03\x00\x04\x00", 8);
  expectDocuments(read({npy("a.npy", "<u2", "(4,)", two)}, {}, 5), {{1, 2, 3, 4}});
  expectDocuments(read({npy("b.npy", "<u2", "(2, 2)", two)}, {}, 5), {{1, 2}, {3, 4}});
  expectDocuments(read({npy("c.npy", "<u4", "(2,)", two)}, {}, 300000), {{0x20001, 0x40003}});
  expectDocuments(read({npy("d.npy", "|u1", "(8,)", two)}, {}, 5), {{1, 0, 2, 0, 3, 0, 4, 0}});
  std::vector<int64_t> values = {3, -1};
  ASSERT_TRUE(
      writeNpy(directory / "e.npy", DType::i64, std::vector<int64_t>{2}, std::as_bytes(std::span(values))).ok());
  auto negative = read({directory / "e.npy"}, {}, 5);
  EXPECT_NE(negative.message().find("token 1 is -1, but the vocabulary has 0 to 4 (read as <i8)"), std::string::npos)
      << negative.message();
  expectError(read({npy("f.npy", "<u2", "(4, 1, 1)", two)}, {}, 5),
              directory / "f.npy" + ": holds shape [4, 1, 1]; valid: [tokens], or [documents, tokens]");
  expectError(read({npy("g.npy", "<f4", "(2,)", two)}, {}, 5),
              directory / "g.npy" + ": holds type <f4; tokens are |u1, <u2, <u4, <i4 or <i8");
  expectError(read({npy("h.npy", "<u2", "(5,)", two)}, {}, 5),
              directory / "h.npy" + ": shape [5] of type <u2 holds 5 elements, but the file has 8 bytes of data");
  expectError(read({text("i.npy", "no array")}, {}, 5), directory / "i.npy" + ": not a NumPy file");
}

// Data that stays in its files is the same data: documents, hash, rows.
TEST_F(DataRead, FilesAreReadWhereTheyAre) {
  std::string two("\x01\x00\x02\x00\x03\x00\x04\x00", 8);
  std::vector<uint32_t> many((1 << 19) + 77);
  std::vector<int32_t> wide(3000);
  for (size_t i = 0; i < many.size(); ++i)
    many[i] = static_cast<uint32_t>(i * 2654435761u % 65536);
  for (size_t i = 0; i < wide.size(); ++i)
    wide[i] = static_cast<int32_t>(i % 777);
  std::vector<std::vector<std::string>> cases = {
      {text("a.txt", "one\ntwo\nthree"), text("b.txt", std::string(40000, 'x') + "\n" + std::string(77, 'y'))},
      {raw("c.u16", std::vector<uint16_t>(many.begin(), many.end())), raw<uint16_t>("d.u16", {4, 10, 5})},
      {raw("e.u32", many), raw<uint32_t>("f.u32", {10, 10, 65535})},
      {npy("g.npy", "<u2", "(2, 2)", two), npy("h.npy", "|u1", "(8,)", two),
       npy("i.npy", "<i4", "(30, 100)", {reinterpret_cast<const char *>(wide.data()), 12000})}};
  for (const std::vector<std::string> &files : cases)
    for (std::optional<int64_t> separator : {std::optional<int64_t>(), std::optional<int64_t>(10)}) {
      DataOptions options{.separator = separator};
      auto held = read(files, options, 70000);
      options.memoryBytes = 0;
      auto left = read(files, options, 70000);
      ASSERT_TRUE(held && left) << held.message() << left.message();
      EXPECT_EQ(documentsOf(*left), documentsOf(*held)) << files[0];
      EXPECT_EQ(left->hash(), held->hash());
      EXPECT_EQ(left->size(), held->size());
      std::vector<int32_t> across(held->size()), same(across); // over the borders of files
      EXPECT_TRUE(held->copy(0, across).ok() && left->copy(0, same).ok());
      EXPECT_EQ(same, across);
      auto rows = PackedRows::pack(*held, 24, 3), leftRows = PackedRows::pack(*left, 24, 3);
      ASSERT_EQ(rows->size(), leftRows->size());
      std::vector<int32_t> a(24), b(24), c(4), d(24), e(24), f(4);
      for (uint64_t row = 0; row < rows->size(); row += 1 + row / 50) {
        ASSERT_TRUE(rows->fill(*held, row, a, b, c).ok() && leftRows->fill(*left, row, d, e, f).ok());
        EXPECT_TRUE(a == d && b == e && c == f) << row;
      }
    }
}

// What was checked once is no longer there: an error with the file's name, no signal and no wrong token.
TEST_F(DataRead, FilesThatChangeWhileTheyAreReadAreNoticed) {
  std::vector<uint16_t> tokens(9000, 7);
  std::vector<int32_t> target(5);
  auto expectChanged = [&](const std::function<void()> &change, std::string_view part) {
    raw("a.u16", tokens);
    auto corpus = read({directory / "a.u16"}, {.memoryBytes = 0}, 300);
    ASSERT_TRUE(corpus) << corpus.message();
    ASSERT_TRUE(corpus->copy(8990, target).ok());
    change();
    Status status = corpus->copy(8990, target);
    EXPECT_TRUE(status.message().starts_with(directory / "a.u16" + ": ")) << status.message();
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  };
  expectChanged([&] { std::filesystem::resize_file(directory / "a.u16", 100); },
                "was changed while it was being read: its 100 bytes are not the 18000 that were checked before");
  expectChanged([&] { std::filesystem::remove(directory / "a.u16"); }, "cannot open: No such file or directory");
  expectChanged(
      [&] {
        std::vector<uint16_t> others(9000, 8);
        raw("b.u16", others);
        std::filesystem::rename(directory / "b.u16", directory / "a.u16");
      },
      "was changed while it was being read");
}

TEST_F(DataRead, DamagedFilesAreRefusedOrRead) {
  // Any bytes: an error or documents, never more.
  std::mt19937 random(5);
  std::string two("\x01\x00\x02\x00\x03\x00\x04\x00", 8);
  std::vector<std::pair<std::string, std::string>> seeds = {
      {"x.npy", readText(npy("seed.npy", "<u2", "(2, 2)", two))},
      {"x.jsonl", "{\"a\": [1, {\"b\": null}], \"text\": \"\\u00e4\\n\"}\n{\"text\": \"b\"}\n"},
      {"x.jsonl", "{\"text\": [1, 2, 3], \"n\": -1.5e3}\n{\"text\": [4]}\n"}};
  size_t good = 0;
  for (int round = 0; round < 900; ++round) {
    auto [name, content] = seeds[static_cast<size_t>(round) % seeds.size()];
    for (unsigned edits = random() % 4; edits > 0 && !content.empty(); --edits) {
      size_t at = random() % content.size();
      switch (random() % 3) {
      case 0: content[at] = static_cast<char>(random()); break;
      case 1: content.erase(at, 1 + random() % 5); break;
      case 2: content.insert(at, content.substr(random() % content.size(), random() % 9)); break;
      }
    }
    auto corpus = read({text(name, content)}, {}, 300);
    good += corpus.ok();
    if (!corpus.ok()) {
      EXPECT_TRUE(corpus.message().starts_with(directory / name + ":")) << corpus.message();
    }
  }
  EXPECT_GT(good, 150u); // a quarter is not edited at all
}

} // namespace
} // namespace braid::runtime::test
