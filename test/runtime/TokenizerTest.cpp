// Tokenizers: what Hugging Face's tokenizers (of ranks: tiktoken; of the World vocabulary: rwkv) made of the texts in test/tokenizers
// (benchmark/peers/tokens.py wrote them), and what is said of files that are read otherwise there.
#include "test/runtime/TrainFixture.h"

#include "runtime/text/Tokenizer.h"

#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace braid::runtime::test {
namespace {

using Json = nlohmann::json;

// What is no text as JSON has it.
std::string shownText(const std::string &bytes) {
  return Json::parse(Json(bytes).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

std::string decoded(const std::shared_ptr<const Tokenizer> &tokenizer, const std::vector<int32_t> &tokens,
                    bool special) {
  TextDecoder decoder(tokenizer, special);
  std::string text;
  for (int32_t token : tokens) {
    Expected<std::string> added = decoder.add(token);
    EXPECT_TRUE(added) << added.message();
    text += *added;
  }
  return shownText(text);
}

TEST(Tokenizers, TextsAreThoseOfTheLibrary) {
  int kinds = 0;
  for (const auto &entry : std::filesystem::directory_iterator(BRAID_TEST_TOKENIZERS)) {
    std::filesystem::path path = entry.path();
    if (path.extension() == ".jsonl")
      continue;
    ++kinds;
    auto tokenizer = Tokenizer::load(path.string());
    ASSERT_TRUE(tokenizer) << tokenizer.message();
    EXPECT_EQ((*tokenizer)->path(), entry.is_directory() ? *Tokenizer::fileIn(path.string()) : path.string());
    std::vector<std::string> texts;
    std::vector<std::vector<int32_t>> expected;
    TextEncoder encoder(*tokenizer);
    std::istringstream lines(readText(path.replace_extension(".cases.jsonl").string()));
    for (std::string line; std::getline(lines, line);) {
      Json cases = Json::parse(line);
      SCOPED_TRACE(path.string() + " " + cases["text"].dump());
      texts.push_back(cases["text"]);
      expected.push_back(cases["tokens"]);
      auto tokens = encoder.encode(texts.back());
      ASSERT_TRUE(tokens) << tokens.message();
      EXPECT_EQ(*tokens, expected.back());
      auto plain = encoder.encode(texts.back(), /*whole=*/false);
      ASSERT_TRUE(plain) << plain.message();
      EXPECT_EQ(*plain, cases["plain"].get<std::vector<int32_t>>());
      EXPECT_EQ(decoded(*tokenizer, *tokens, false), cases["decoded"].get<std::string>());
      EXPECT_EQ(decoded(*tokenizer, *tokens, true), cases["decoded_all"].get<std::string>());
      for (int32_t token : *tokens)
        EXPECT_LT(token, (*tokenizer)->vocabulary());
    }
    EXPECT_GT(texts.size(), 50u);
    // Side by side, in their order.
    TextEncoders encoders(*tokenizer, 3);
    size_t failed = 0;
    auto all = encoders.encode(texts, failed);
    ASSERT_TRUE(all) << all.message();
    EXPECT_EQ(*all, expected);
  }
  EXPECT_EQ(kinds, 17);
}

// All bytes, from 1 on.
std::string vocabularyOfBytes() {
  std::string lines;
  for (int byte = 0; byte < 256; ++byte)
    lines += fmt::format("{} {}'\\x{:02x}' 1\n", byte + 1, byte < 0x80 ? "" : "b", byte);
  return lines;
}

TEST(Tokenizers, World) {
  // As repr() writes texts, and bytes that are none; of tokens that begin alike the longest, or a shorter one where it ends elsewhere.
  std::string lines = vocabularyOfBytes() + R"(300 'ab' 2
301 'abcd' 4
302 "'a" 2
303 '"\'\t' 3
304 'é\x85\u200b\U0001f600' 11
305 b'\xa9\'"' 3)";
  auto read = Tokenizer::parseWorld(lines + "\r\n\n", "a/rwkv_vocab_v20230424.txt");
  ASSERT_TRUE(read) << read.message();
  const std::shared_ptr<const Tokenizer> &tokenizer = *read;
  TextEncoder encoder(tokenizer);
  EXPECT_EQ(*encoder.encode("abcabcd<|rwkv_tokenizer_end_of_text|>ab"),
            (std::vector<int32_t>{300, 'c' + 1, 301, 0, 300}));
  EXPECT_EQ(*encoder.encode("'a'\"'\t\"'"), (std::vector<int32_t>{302, '\'' + 1, 303, '"' + 1, '\'' + 1}));
  EXPECT_EQ(*encoder.encode("\u00e9'\"\u00e9\u0085\u200b\U0001f600\u00e9\u0085"),
            (std::vector<int32_t>{0xc3 + 1, 305, 304, 0xc3 + 1, 0xa9 + 1, 0xc2 + 1, 0x85 + 1}));
  EXPECT_EQ(decoded(tokenizer, {301, 0, 400, 0xc3 + 1, 305}, false), "abcd\u00e9'\"");
  EXPECT_EQ(decoded(tokenizer, {301, 0}, true), "abcd<|rwkv_tokenizer_end_of_text|>");
  EXPECT_EQ(tokenizer->tokenOf("abcd"), 301);
  EXPECT_EQ(tokenizer->tokenOf("abc"), std::nullopt);
  EXPECT_EQ(tokenizer->tokenOf("<|rwkv_tokenizer_end_of_text|>"), 0);
  EXPECT_EQ(tokenizer->vocabulary(), 306);
  EXPECT_EQ(tokenizer->sources().size(), 1u);
}

TEST(Tokenizers, WhatWorldMayNotSay) {
  auto message = [](const std::string &lines) {
    auto read = Tokenizer::parseWorld(lines, "a.txt");
    EXPECT_FALSE(read) << lines;
    return std::string(read.message());
  };
  std::string valid =
      "; valid: a number from 1 to 16777215, a text or bytes as Python writes them, and how many bytes they are";
  for (const char *line : {"300",
                           "300 'a'",
                           "'a' 1",
                           "0 'ab' 2",
                           "-1 'ab' 2",
                           "16777216 'ab' 2",
                           "300 ab 2",
                           "300 'ab 2",
                           "300 'ab\" 2",
                           "300 ab' 2",
                           "300 'ab' x",
                           "300 'ab'  ",
                           "300 '' 0",
                           "300 b'' 0",
                           "300 ' 1",
                           "300 'a'b' 3",
                           "300 u'ab' 2",
                           "300 'a\\' 2",
                           "300 'a\\q' 2",
                           "300 'a\\x4' 2",
                           "300 'a\\xg0' 2",
                           "300 '\\ud800' 3",
                           "300 '\\U00110000' 4",
                           "300 b'\\u0041' 1",
                           "300 b'\u00e9' 2",
                           "300 '\\x' 1"})
    EXPECT_EQ(message(vocabularyOfBytes() + line).find("a.txt: line 257: is '" + std::string(line).substr(0, 3)), 0u)
        << line;
  EXPECT_EQ(message("0 'ab' 2"), "a.txt: line 1: is '0 'ab' 2'" + valid);
  EXPECT_EQ(message("1 '\u00e9' 1"), "a.txt: line 1: '\\u00e9' has 2 bytes, and not 1");
  EXPECT_EQ(message("1 '\\x00' 1\n3 '\\x02' 1"), "a.txt: the byte 0x01 is no token");
  EXPECT_EQ(message(""), "a.txt: the byte 0x00 is no token");
  EXPECT_EQ(message(vocabularyOfBytes() + "300 'ab' 2\n301 'ab' 2"), "a.txt: 'ab' has the numbers 300 and 301");
  EXPECT_EQ(message(vocabularyOfBytes() + "300 'ab' 2\n300 'ac' 2"), "a.txt: 'ab' and 'ac' both have number 300");
  EXPECT_EQ(message(vocabularyOfBytes() + "7 'ab' 2"), "a.txt: '\\u0006' and 'ab' both have number 7");
}

constexpr std::string_view configOfRanks =
    R"({"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer", null]},
  "added_tokens_decoder": {"258": {"content": "[BOS]", "special": true}, "515": {"content": "<last>"}}})";

TEST(Tokenizers, Ranks) {
  auto read = Tokenizer::parseRanks(ranksOfBytes(), configOfRanks, "a/tiktoken.model");
  ASSERT_TRUE(read) << read.message();
  const std::shared_ptr<const Tokenizer> &tokenizer = *read;
  EXPECT_EQ(*TextEncoder(tokenizer).encode("the[BOS]that\u00e9<|reserved_token_300|><last>"),
            (std::vector<int32_t>{1, 258, 0, 99, 118, 0xc3 + 2, 0xa9 + 2, 300, 515}));
  EXPECT_EQ(decoded(tokenizer, {1, 258, 0xc3 + 2, 0xa9 + 2, 300, 516}, false), "the\u00e9<|reserved_token_300|>");
  EXPECT_EQ(tokenizer->vocabulary(), 516);
  EXPECT_EQ(tokenizer->tokenOf("[BOS]"), 258);
  EXPECT_EQ(tokenizer->path(), "a/tiktoken.model");
  ASSERT_EQ(tokenizer->sources().size(), 2u);
  EXPECT_EQ(tokenizer->sources()[1].path, "a/tokenizer_config.json");
  std::string other(configOfRanks);
  other += " ";
  EXPECT_NE((*Tokenizer::parseRanks(ranksOfBytes(), other, "a/tiktoken.model"))->hash().hex(), tokenizer->hash().hex());
  // Of a repository in whose name others load it; and where the last line has no end.
  std::string of = R"({"auto_map": {"AutoTokenizer": "me/model--tokenization_kimi.TikTokenTokenizer"}})";
  EXPECT_TRUE(Tokenizer::parseRanks(ranksOfBytes() + "\r\nYWI= 258", of, "a"));
}

TEST(Tokenizers, WhatRanksMayNotSay) {
  auto message = [](const std::string &ranks, std::string_view config) {
    auto read = Tokenizer::parseRanks(ranks, config, "a/tiktoken.model");
    EXPECT_FALSE(read);
    return std::string(read.message());
  };
  auto ofRanks = [&](const std::string &more) { return message(ranksOfBytes() + more, configOfRanks); };
  std::string valid = "; valid: a token in base64 and its number, 0 to 16777215";
  for (const char *line :
       {"YWI=", "YWI= -1", "YWI= 1x", "YWI 258", "Y!I= 258", "YWI= 16777216", "=AAA 258", "==== 1", " 258"})
    EXPECT_EQ(ofRanks(line), fmt::format("a/tiktoken.model: line 259: is '{}'{}", line, valid));
  EXPECT_EQ(ofRanks("YWI= 7"), "a/tiktoken.model: '\\u0105' and 'ab' both have number 7");
  EXPECT_EQ(ofRanks("dGhl 258"), "a/tiktoken.model: 'the' has the numbers 1 and 258");
  EXPECT_EQ(ofRanks("YWI= 259"), "a/tiktoken.model: has 259 tokens, but the number 259; valid: 0 to 258");
  EXPECT_EQ(message("YQ== 0\n", configOfRanks), "a/tiktoken.model: the byte 0x00 is no token");
  auto ofConfig = [&](std::string_view config) { return message(ranksOfBytes(), config); };
  std::string known = "stands in its Python code, and is not known; valid: tokenization_kimi.TikTokenTokenizer";
  EXPECT_EQ(ofConfig(R"({"tokenizer_class": "QWenTokenizer"})"),
            "a/tokenizer_config.json: tokenizer_class: how 'QWenTokenizer' cuts texts " + known);
  EXPECT_EQ(ofConfig(R"({"auto_map": {"AutoTokenizer": ["tokenization_x.TikTokenTokenizer", null]}})"),
            "a/tokenizer_config.json: auto_map.AutoTokenizer: how 'tokenization_x.TikTokenTokenizer' cuts texts " +
                known);
  EXPECT_EQ(ofConfig("[]").find("a/tokenizer_config.json: "), 0u);
  std::string with =
      R"({"auto_map": {"AutoTokenizer": ["tokenization_kimi.TikTokenTokenizer"]}, "added_tokens_decoder": )";
  EXPECT_EQ(ofConfig(with + R"({"7": {"content": "x"}}})"),
            "a/tokenizer_config.json: added_tokens_decoder.7: valid: a number from 258, behind the ranks, to 515");
  EXPECT_EQ(ofConfig(with + R"({"258": {"content": "x", "lstrip": true}}})"),
            "a/tokenizer_config.json: added_tokens_decoder.258: single_word, lstrip or rstrip is true; valid: false");
  EXPECT_EQ(ofConfig(with + R"({"258": {"content": "x"}, "260": {"content": "x"}}})"),
            "a/tokenizer_config.json: added_tokens_decoder: 'x' has the numbers 258 and 260");
  EXPECT_EQ(ofConfig("{}"), "a/tokenizer_config.json: tokenizer_class: is missing; valid: a string");
  std::string large;
  for (int i = 0; i < 500; ++i)
    large += "YWFh";
  EXPECT_EQ(ofRanks(large + " 258"), "a/tiktoken.model: token 258 has 1500 letters of bytes; valid: at most 1024");
  EXPECT_EQ(ofConfig(with + R"({"258": {}}})"),
            "a/tokenizer_config.json: added_tokens_decoder.258.content: is missing; valid: a string");
  EXPECT_EQ(ofConfig(with + "3}"), "a/tokenizer_config.json: added_tokens_decoder: is 3; valid: an object");
}

// The letters a to d and what two pairs make of them; an added token.
Json small() {
  return Json::parse(R"({
    "added_tokens": [{"id": 6, "content": "<end>", "special": true}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": null,
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "d": 3, "ab": 4, "abc": 5}, "merges": ["a b", ["ab", "c"]]}})");
}

Expected<std::shared_ptr<const Tokenizer>> parsed(const Json &json) { return Tokenizer::parse(json.dump(), "t.json"); }

std::vector<int32_t> tokensOf(const Json &json, std::string_view text) {
  auto tokenizer = parsed(json);
  EXPECT_TRUE(tokenizer) << tokenizer.message();
  auto tokens = TextEncoder(*tokenizer).encode(text);
  EXPECT_TRUE(tokens) << tokens.message();
  return *tokens;
}

TEST(Tokenizers, PairsAreJoinedInTheirOrder) {
  EXPECT_EQ(tokensOf(small(), "abcab<end>dab"), (std::vector<int32_t>{5, 4, 6, 3, 4}));
  EXPECT_EQ(tokensOf(small(), ""), std::vector<int32_t>());
  Json listedTwice = small(); // the later rank counts, so c and d are joined first
  listedTwice["model"]["vocab"]["cd"] = 6;
  listedTwice["added_tokens"][0]["id"] = 7;
  listedTwice["model"]["merges"] = {"a b", "ab c", "c d", "ab c"};
  EXPECT_EQ(tokensOf(listedTwice, "abcd"), (std::vector<int32_t>{4, 6}));
  auto tokenizer = *parsed(small());
  EXPECT_EQ(tokenizer->vocabulary(), 7);
  EXPECT_EQ(tokenizer->tokenOf("<end>"), 6);
  EXPECT_EQ(tokenizer->tokenOf("abc"), 5);
  EXPECT_EQ(tokenizer->tokenOf("bc"), std::nullopt);
}

TEST(Tokenizers, NumbersWithoutATokenHaveNoText) {
  EXPECT_EQ(decoded(*parsed(small()), {5, 700, -1, 6, 0}, true), "abc<end>a");
  EXPECT_EQ(decoded(*parsed(small()), {5, 700, -1, 6, 0}, false), "abca");
}

// Marks are put in order in the time of sorting them: a document may hold nothing else.
TEST(Tokenizers, NormalFormsOfManyMarks) {
  std::string above, below;
  for (int i = 0; i < 200'000; ++i) {
    above += "\u0301";
    below += "\u0323";
  }
  auto form = normalized("a" + above + below, NormalForm::nfd);
  ASSERT_TRUE(form) << form.message();
  EXPECT_EQ(*form, "a" + below + above);
  form = normalized("\u1e69 \uac01 \u2126 \ufb01", NormalForm::nfkd);
  EXPECT_EQ(*form, "s\u0323\u0307 \u1100\u1161\u11a8 \u03a9 fi");
  EXPECT_EQ(*normalized(*form, NormalForm::nfc), "\u1e69 \uac01 \u03a9 fi");
  EXPECT_EQ(*normalized("s\u0307\u0323 \ufb01", NormalForm::nfc), "\u1e69 \ufb01");
}

TEST(Tokenizers, TextThatIsNoUtf8IsNamed) {
  auto tokenizer = *parsed(small());
  for (std::string_view text : {"ab\xff", "ab\xc0\x80", "ab\xed\xa0\x80", "ab\xf4\x90\x80\x80", "ab\xe4\xb8"}) {
    auto tokens = TextEncoder(tokenizer).encode(text);
    ASSERT_FALSE(tokens);
    EXPECT_EQ(tokens.message(), fmt::format("byte 2 (0x{:02x}) is no UTF-8, which a tokenizer reads",
                                            static_cast<unsigned char>(text[2])));
  }
  size_t failed = 0;
  const std::string texts[] = {"a", "b", "c\xff", "\xff"};
  EXPECT_FALSE(TextEncoders(tokenizer, 2).encode(texts, failed));
  EXPECT_EQ(failed, 2u);
}

TEST(Tokenizers, WhatIsNotReadIsRefusedByName) {
  struct Case {
    const char *change; // a JSON merge patch
    const char *message;
  };
  const Case cases[] = {
      {R"({"model": {"type": "Unigram"}})", "model.type: 'Unigram' is not read; valid: BPE"},
      {R"({"model": {"dropout": 0.1}})", "model.dropout: '0.1' is not read; valid: null"},
      {R"({"model": {"merges": ["a b", "a  c"]}})",
       "model.merges[1]: is \"a  c\"; valid: two tokens, as \"a b\" or [\"a\", \"b\"]"},
      {R"({"model": {"merges": [["a", "d"]]}})", "model: merges[0]: 'ad' is not in vocab"},
      {R"({"model": {"merges": ["a x"]}})", "model: merges[0]: 'x' is not in vocab"},
      {R"({"model": {"unk_token": "<unk>"}})", "model: unk_token: '<unk>' is not in vocab"},
      {R"({"model": {"vocab": {"e": 3}}})", "model: vocab: 'd' and 'e' both have number 3"},
      {R"({"model": {"vocab": {"e": -1}}})", "model.vocab.e: is -1; valid: a whole number from 0 to 16777215"},
      {R"({"model": {"vocab": 5}})", "model.vocab: is 5; valid: an object"},
      {R"({"model": null})", "model: is missing; valid: an object"},
      {R"({"added_tokens": [{"id": 9, "content": "ab"}]})",
       "added_tokens[0]: 'ab' has number 9 here, but 4 in model.vocab"},
      {R"({"added_tokens": [{"id": 4, "content": "xy"}]})",
       "added_tokens[0]: number 4 is 'xy' here, but 'ab' in model.vocab"},
      {R"({"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}})",
       "normalizer.normalizers[1].type: 'Lowercase' is not read; valid: Sequence, NFC, NFD, NFKC, NFKD, Replace, "
       "Prepend, Strip, ByteLevel"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "[a"}, "behavior": "Isolated"}})",
       "pre_tokenizer.pattern: a '[' without its ']' at byte 0 of '[a' is not read"},
      {R"J({"pre_tokenizer": {"type": "Split", "pattern": {"Regex": "a)"}, "behavior": "Isolated"}})J",
       "pre_tokenizer.pattern: 'a)' is no regular expression that is read here: unmatched closing parenthesis (at byte "
       "1 "
       "of 'a)')"},
      {R"({"pre_tokenizer": {"type": "Split", "pattern": {"String": "a"}, "behavior": "isolated"}})",
       "pre_tokenizer.behavior: 'isolated' is not read; valid: Removed, Isolated, MergedWithPrevious, MergedWithNext, "
       "Contiguous"},
      {R"({"pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "last"}})",
       "pre_tokenizer.prepend_scheme: 'last' is not read; valid: always, first, never"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}], "special_tokens": {}}})",
       "post_processor.special_tokens.<s>: is missing; valid: an object"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [], "special_tokens": {}}})",
       "post_processor.single: has the text 0 times; valid: once"},
      {R"({"post_processor": {"type": "BertProcessing", "cls": ["x", 7], "sep": ["y", 1]}})",
       "post_processor: adds token 7, but there are 0 to 6"},
      {R"({"decoder": {"type": "CTC"}})",
       "decoder.type: 'CTC' is not read; valid: Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, "
       "BPEDecoder"},
      {R"({"decoder": {"type": "Strip", "content": " ", "start": 0, "stop": 1}})",
       "decoder.stop: '1' is not read; valid: 0"},
      {R"({"decoder": {"type": 3}})", "decoder.type: is 3; valid: a string"},
      {R"({"decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}})",
       "decoder.decoders[1].type: 'ByteFallback' is not read; valid: Strip alone behind Fuse"},
      {R"({"decoder": {"type": "Sequence", "decoders": [{"type": "BPEDecoder"}, {"type": "Fuse"}]}})",
       "decoder.decoders[1].type: 'Fuse' is not read; valid: nothing behind BPEDecoder"},
      {R"({"added_tokens": [{"id": 9, "content": "xy"}]})",
       "added_tokens[0]: 'xy' has number 9, but model.vocab and the tokens before it give 6; valid: that"},
      {R"({"post_processor": {"type": "Sequence", "processors": [{"type": "BertProcessing", "cls": ["x", 0], "sep": ["y", 1]}, {"type": "BertProcessing", "cls": ["x", 0], "sep": ["y", 1]}]}})",
       "post_processor.processors[1]: is the second that adds tokens; valid: one"},
      {R"({"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "B"}}], "special_tokens": {}}})",
       "post_processor.single[0].Sequence.id: 'B' is not read; valid: A"},
  };
  for (const Case &wrong : cases) {
    Json json = small();
    json.merge_patch(Json::parse(wrong.change));
    auto tokenizer = parsed(json);
    ASSERT_FALSE(tokenizer) << wrong.change;
    EXPECT_EQ(tokenizer.message(), std::string("t.json: ") + wrong.message);
  }
  EXPECT_EQ(Tokenizer::parse("{", "t.json").message().substr(0, 27), "t.json: is not JSON, at byt");
  EXPECT_EQ(Tokenizer::load("/nowhere/t.json").message().substr(0, 28), "/nowhere/t.json: cannot open");
  std::string deep = "{\"type\": \"NFC\"}";
  for (int i = 0; i < 20; ++i)
    deep = "{\"type\": \"Sequence\", \"normalizers\": [" + deep + "]}";
  Json json = small();
  json["normalizer"] = Json::parse(deep);
  EXPECT_NE(parsed(json).message().find("lists within lists, 16 deep"), std::string::npos);
}

TEST(Tokenizers, ExpressionsAreWrittenForPcre2) {
  const std::string blanks =
      R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
  const std::string words = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})", alone = words + R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
  const std::pair<const char *, std::string> cases[] = {
      {R"( ?\p{L}+|(?!\S))", R"( ?\p{L}+|(?![^)" + blanks + "])"},
      {R"((?i:'s|'t)|[\[\]\\])", R"((?i:'s|'t)|[\[\]\\])"},
      {R"((?m:.)x{,3}y{2,}z{a})", R"((?s:.)x{0,3}y{2,}z{a})"},
      {R"(\h[\h_]\v)", R"([0-9A-Fa-f][0-9A-Fa-f_]\x0b)"},
      {R"(\u4e00[\u4e00-\u9fff])", R"(\x{4e00}[\x{4e00}-\x{9fff}])"},
      {R"([\p{Lu}\p{Ll}&&[^\p{Han}]]+)", R"((?:(?=[^\p{sc:Han}])[\p{Lu}\p{Ll}])+)"},
      {R"(\P{Han}\p{^Han}\p{Lu})", R"(\P{sc:Han}\P{sc:Han}\p{Lu})"},
      {R"([]a][^]a])", R"([]a][^]a])"},
      {R"([[:digit:][:punct:]])", R"([\p{Nd}\p{P}\p{S}])"},
      {R"(\w[\w'])", "[" + alone + "][" + words + "']"},
      {R"([\Sa][^\S\n][\S][^\S])",
       "(?:[^" + blanks + "]|[a])(?:(?![\\n])[" + blanks + "])(?:[^" + blanks + "])[" + blanks + "]"},
      {R"(\b)", "(?:(?<=[" + alone + "])(?![" + alone + "])|(?<![" + alone + "])(?=[" + alone + "]))"},
  };
  for (const auto &[expression, expected] : cases) {
    auto translated = translatedPattern(expression);
    ASSERT_TRUE(translated) << translated.message();
    EXPECT_EQ(*translated, expected);
    EXPECT_TRUE(Pattern::compile(expression)) << Pattern::compile(expression).message();
  }
  const std::pair<const char *, const char *> refused[] = {
      {R"(a{1,3}+)", "'+' behind a repeat in braces at byte 1 of 'a{1,3}+' is not read"},
      {R"(a{2}?)", "'?' behind a number in braces at byte 1 of 'a{2}?' is not read"},
      {R"([a[bc]])", "a bracket inside of brackets at byte 2 of '[a[bc]]' is not read"},
      {R"([^a&&[b]])", "'&&' here at byte 3 of '[^a&&[b]]' is not read"},
      {R"([a&&b])", "'&&' without a bracket behind it at byte 4 of '[a&&b]' is not read"},
      {R"([^\W\S])", "a set without what is not in two others at byte 7 of '[^\\\\W\\\\S]' is not read"},
      {R"([[:graph:]])", "'[:' without one of the known sets at byte 1 of '[[:graph:]]' is not read"},
      {R"(\Qa.\E)", "'\\Q' at byte 0 of '\\\\Qa.\\\\E' is not read"},
      {R"(\pL)", "'\\p' at byte 0 of '\\\\pL' is not read"},
      {R"(a(?i)b|c)", "'(?i)' behind the beginning at byte 1 of 'a(?i)b|c' is not read"},
      {R"((?i:[\p{Lu}]))", "'\\p' where case does not count, at byte 0 of '(?i:[\\\\p{Lu}])' is not read"},
      {R"((?i:(a)ss))", "'ss' where case does not count, at byte 0 of '(?i:(a)ss)' is not read"},
      {R"(a\)", "a '\\' with nothing behind it at byte 1 of 'a\\\\' is not read"}};
  for (auto [expression, message] : refused) {
    auto translated = translatedPattern(expression);
    ASSERT_FALSE(translated) << expression;
    EXPECT_EQ(translated.message(), message);
  }
}

std::vector<std::string> matchesOf(const char *expression, std::string_view text) {
  auto pattern = Pattern::compile(expression);
  EXPECT_TRUE(pattern) << pattern.message();
  std::vector<std::string> matches;
  EXPECT_TRUE(pattern
                  ->forEachMatch(text,
                                 [&](size_t begin, size_t end) {
                                   matches.emplace_back(text.substr(begin, end - begin));
                                   return Status::success();
                                 })
                  .ok());
  return matches;
}

TEST(Tokenizers, MatchesGoFromLeftToRight) {
  using Matches = std::vector<std::string>;
  EXPECT_EQ(matchesOf("a|ab", "abaab"), (Matches{"a", "a", "a"}));
  EXPECT_EQ(matchesOf("x*", "axxb"), (Matches{"", "xx", ""}));
  EXPECT_EQ(matchesOf("x*", "\u00e9"), (Matches{"", ""}));
  EXPECT_EQ(matchesOf("^.", "ab\ncd"), (Matches{"a", "c"}));
  EXPECT_EQ(matchesOf(R"(\b\w+\b)", "\u0939\u093f\u0928\u094d\u0926\u0940 a"),
            (Matches{"\u0939\u093f\u0928\u094d\u0926\u0940", "a"}));
  EXPECT_EQ(matchesOf(R"(\s)", "a\u180e\u0085 b"), (Matches{"\u0085", " "}));
  EXPECT_EQ(matchesOf("(?i:s)", "s\u017fS"), (Matches{"s", "\u017f", "S"}));
  // More than the stack of compiled patterns holds.
  EXPECT_EQ(matchesOf("(?:(a)|b)+c?", std::string(1 << 20, 'a')).size(), 1u);
  auto slow = Pattern::compile(R"((a+)+\d)");
  Status status = slow->forEachMatch(std::string(64, 'a'), [](size_t, size_t) { return Status::success(); });
  EXPECT_NE(
      status.message().find("the search for '(a+)+\\\\d' in a text of 64 bytes ends at byte 0: match limit exceeded"),
      std::string::npos)
      << status.message();
}

} // namespace
} // namespace braid::runtime::test
