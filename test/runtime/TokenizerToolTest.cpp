// Tokenizers in the commands of braid-run: data and prompts in text, and texts as tokens.
#include "test/runtime/ToolFixture.h"

#include "runtime/text/Tokenizer.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace braid::runtime::test {
namespace {

using Json = nlohmann::json;

// Letters, blank and newline of the sample text, the words that it repeats, and one token that ends documents.
std::string tokenizerOfLetters() {
  Json vocab = {{"\u0120", 26}, {"\u010a", 27}, {".", 28}, {",", 29}, {"th", 30}, {"the", 31}, {"\u0120the", 32}};
  for (int i = 0; i < 26; ++i)
    vocab[std::string(1, static_cast<char>('a' + i))] = i;
  return Json{{"added_tokens", {{{"id", 33}, {"content", "<end>"}, {"special", true}}}},
              {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
              {"decoder", {{"type", "ByteLevel"}}},
              {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e", "\u0120 the"}}}}}
      .dump();
}

class TokenizerTool : public TrainTool {
protected:
  void SetUp() override {
    TrainTool::SetUp();
    if (IsSkipped())
      return;
    BigramOptions numbers;
    numbers.metadata = {{"tokenizer", "none"}, {"vocab_size", "200"}};
    write("n.braid", numbers);
    writeText(directory / "t.json", tokenizerOfLetters());
    writeText(directory / "the.txt", "the cat, the dog.\nthe end");
  }
  std::vector<Json> linesOf(const std::string &text) {
    std::vector<Json> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
      lines.push_back(Json::parse(line));
    return lines;
  }
};

TEST_F(TokenizerTool, TokenizesAndBack) {
  Outcome tokens = run({"tokenize", "--tokenizer", "t.json", "--data", "the.txt"});
  ASSERT_EQ(tokens.code, 0) << tokens.err;
  EXPECT_EQ(tokens.out, "{\"tokens\":[31,26,2,0,19,29,32,26,3,14,6,28,27,31,26,4,13,3]}\n");
  EXPECT_TRUE(tokens.err.starts_with("18 tokens in 1 document: 25 bytes, 1.39 bytes a token, ")) << tokens.err;
  writeText(directory / "d.jsonl", "{\"text\": \"the\"}\n\n{\"text\": \"\"}\n{\"text\": \"a<end>b\"}\n");
  for (const char *name : {"t.u16", "t.u32", "t.jsonl"}) {
    Outcome made =
        run({"tokenize", "--tokenizer", "t.json", "--data", "d.jsonl", "--separator", "<end>", "--output", name});
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_EQ(made.out, "");
  }
  EXPECT_EQ(readText(directory / "t.u16"), std::string("\x1f\0\x21\0\x21\0\0\0\x21\0\x01\0\x21\0", 14));
  EXPECT_EQ(readText(directory / "t.u32").size(), 28u);
  EXPECT_EQ(readText(directory / "t.jsonl"), "{\"tokens\":[31,33]}\n{\"tokens\":[33]}\n{\"tokens\":[0,33,1,33]}\n");
  Outcome back = run({"tokenize", "--decode", "--tokenizer", "t.json", "--data", "t.jsonl"});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.out, "{\"text\":\"the<end>\"}\n{\"text\":\"<end>\"}\n{\"text\":\"a<end>b<end>\"}\n");
  back = run({"tokenize", "--decode", "--tokenizer", "t.json", "--data", "t.u16", "--separator", "33"});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(back.out, "{\"text\":\"the<end>\"}\n{\"text\":\"<end>\"}\n{\"text\":\"a<end>\"}\n{\"text\":\"b<end>\"}\n");

  expectError({"tokenize", "--tokenizer", "t.json", "--data", "t.jsonl", "--field", "tokens"},
              "t.jsonl:1: field 'tokens' is an array of tokens; valid: a string, or --decode");
  expectError({"tokenize", "--decode", "--tokenizer", "t.json", "--data", "d.jsonl", "--field", "text"},
              "d.jsonl:1: field 'text' is a string; valid: an array of tokens");
  expectError({"tokenize", "--tokenizer", "t.json", "--data", "the.txt", "--output", "x.bin"},
              "--output=x.bin: its ending says no format; valid: .jsonl, .u16, .u32");
  expectError({"tokenize", "--tokenizer", "t.json", "--data", "d.jsonl", "--output", "d.jsonl"}, "d.jsonl");
  expectError({"tokenize", "--tokenizer", "t.json", "--data", "t.u16"},
              "t.u16: is read as u16; valid: text, jsonl, or --decode");
  expectError({"tokenize", "--decode", "--tokenizer", "t.json", "--data", "the.txt"},
              "the.txt: is read as text; valid with --decode: jsonl, u16, u32, npy");
  expectError({"tokenize", "--tokenizer", "t.json", "--data", "the.txt", "--field", "text"},
              "--field=text: only JSON Lines have fields, but the.txt is read as text");
  expectError({"tokenize", "--tokenizer", "t.json", "--data", "the.txt", "--separator", "34"},
              "--separator=34: must be a token from 0 to 33");
  Outcome joined = run({"tokenize", "--tokenizer", "t.json", "--data", "d.jsonl", "--output", "j.u16"});
  EXPECT_NE(joined.err.find("remark: j.u16 has no --separator, so its 3 documents are one"), std::string::npos)
      << joined.err;
  writeText(directory / "wrong.jsonl", "{\"text\": \"the\"}\n{\"text\": 3}\n");
  expectError({"tokenize", "--tokenizer", "t.json", "--data", "wrong.jsonl", "--output", "never.u16"}, "wrong.jsonl:2");
  EXPECT_FALSE(std::filesystem::exists(directory / "never.u16"));
}

// A chat is rendered by the template beside the tokenizer, which checkpoints keep, and generated from.
TEST_F(TokenizerTool, Chats) {
  std::string source = "{% for m in messages %}{{ m.role[0] }},{{ m.content }}{{ eos_token }}{% endfor %}"
                       "{% if tools %}{{ tools|length * 'c' }}{% endif %}{{ x }}a";
  std::filesystem::create_directories(directory / "chat");
  writeText(directory / "chat/tokenizer.json", tokenizerOfLetters());
  writeText(directory / "chat/tokenizer_config.json", R"({"eos_token": "<end>", "bos_token": null})");
  expectError({"tokenize", "--tokenizer", "chat", "--chat", "the"},
              "--chat: chat: holds no chat template: neither chat_template.jinja nor chat_template in "
              "tokenizer_config.json is there; valid: --chat-template FILE");
  writeText(directory / "chat/chat_template.jinja", source);
  Outcome seen = run({"tokenize", "--tokenizer", "chat", "--chat", "the cat", "--system", "be"});
  ASSERT_EQ(seen.code, 0) << seen.err;
  EXPECT_EQ(seen.out, "{\"prompt\":\"s,be<end>u,the cat<end>a\",\"tokens\":[18,29,1,4,33,20,29,31,26,2,0,19,33,0]}\n");
  writeText(directory / "p.jsonl",
            "\"the\"\n[{\"role\": \"user\", \"content\": \"a\"}]\n{\"messages\": [{\"role\": "
            "\"user\", \"content\": \"b\"}], \"tools\": [{}, {}], \"chat_template_kwargs\": {\"x\": \"d\"}}\n");
  seen = run({"tokenize", "--tokenizer", "chat", "--prompts", "p.jsonl", "--chat-template-kwargs", "{\"x\": \"e\"}"});
  ASSERT_EQ(seen.code, 0) << seen.err;
  EXPECT_EQ(seen.out, "{\"prompt\":\"the\",\"tokens\":[31]}\n"
                      "{\"prompt\":\"u,a<end>ea\",\"tokens\":[20,29,0,33,4,0]}\n"
                      "{\"prompt\":\"u,b<end>ccda\",\"tokens\":[20,29,1,33,2,2,3,0]}\n");
  writeText(directory / "other.jinja", "{{ messages[0].content }}{{ nope.x }}");
  expectError({"tokenize", "--tokenizer", "chat", "--chat", "a", "--chat-template", "other.jinja"},
              "--chat: other.jinja:1: 'nope' is undefined: it has no 'x'");
  expectError({"tokenize", "--tokenizer", "chat", "--chat", "a", "--chat-template-kwargs", "3"},
              "--chat: --chat-template-kwargs: is no JSON object");
  writeText(directory / "q.jsonl", "[{\"role\": \"user\"}, 3]\n");
  expectError({"tokenize", "--tokenizer", "chat", "--prompts", "q.jsonl"},
              "q.jsonl:1: messages[1] is 3; valid: an object");
  writeText(directory / "q.jsonl", "[1, 2]\n");
  expectError({"tokenize", "--tokenizer", "chat", "--prompts", "q.jsonl"},
              "q.jsonl: holds token numbers; valid: texts and chats");
  expectError({"tokenize", "--tokenizer", "chat", "--chat", "a", "--output", "chat/chat_template.jinja.jsonl",
               "--chat-template", "chat/chat_template.jinja.jsonl"},
              "chat_template.jinja.jsonl");

  Outcome trained = run({"train", "n.braid", "--data", "train.txt", "--tokenizer", "chat", "--separator", "<end>",
                         "--steps", "20", "--threads", "1", "--checkpoint-dir", "c"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  for (const char *name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"})
    EXPECT_EQ(readText(directory / fmt::format("c/step-00000020/{}", name)),
              readText(directory / fmt::format("chat/{}", name)));
  std::filesystem::remove_all(directory / "chat");
  std::vector<std::string> generate = {"generate",     "n.braid", "--checkpoint", "c",
                                       "--max-tokens", "3",       "--threads",    "1"};
  auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), generate.begin(), generate.end());
    return more;
  };
  Outcome lines = run(with({"--prompts", "p.jsonl"}));
  ASSERT_EQ(lines.code, 0) << lines.err;
  std::vector<Json> made = linesOf(lines.out);
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made[1]["prompt"], "u,a<end>a");
  // The answer alone is printed: what its text continues with.
  Outcome answer = run(with({"--chat", "a"}));
  ASSERT_EQ(answer.code, 0) << answer.err;
  EXPECT_EQ(answer.out, made[1]["text"].get<std::string>() + "\n");
  Outcome same = run(with({"--prompt-tokens", "20,29,0,33,0"}));
  std::string tokens = "20,29,0,33,0";
  for (const Json &token : made[1]["tokens"])
    tokens += fmt::format(",{}", token.get<int>());
  EXPECT_EQ(same.out, tokens + "\n");
  // It ends with the eos_token beside its template, here what comes first.
  std::string end = "<end>";
  Json tokenizer = Json::parse(tokenizerOfLetters());
  for (const auto &[text, token] : tokenizer["model"]["vocab"].items())
    if (token == made[1]["tokens"][0])
      end = text;
  std::filesystem::create_directories(directory / "chat");
  writeText(directory / "chat/tokenizer.json", tokenizerOfLetters());
  writeText(directory / "chat/tokenizer_config.json", Json::object({{"eos_token", end}}).dump());
  writeText(directory / "chat/chat_template.jinja", "u,{{ messages[0].content }}<end>a");
  writeText(directory / "q.jsonl", "[{\"role\": \"user\", \"content\": \"a\"}]\n");
  lines = run(with({"--prompts", "q.jsonl", "--tokenizer", "chat"}));
  ASSERT_EQ(lines.code, 0) << lines.err;
  EXPECT_EQ(linesOf(lines.out)[0]["prompt"], made[1]["prompt"]);
  EXPECT_EQ(linesOf(lines.out)[0]["tokens"], Json::array({made[1]["tokens"][0]}));
  Outcome warned = run(with({"--prompt", "the", "--chat-template", "other.jinja"}));
  EXPECT_NE(warned.err.find("--chat-template=other.jinja changes nothing: no prompt is a chat"), std::string::npos)
      << warned.err;
  writeText(directory / "c/step-00000020/chat_template.jinja", "changed");
  expectError(with({"--chat", "a"}), "chat_template.jinja: has hash ");
}

TEST_F(TokenizerTool, TrainsEvaluatesAndGeneratesInText) {
  Outcome trained = run({"train", "n.braid", "--data", "train.txt", "--heldout", "heldout.txt", "--tokenizer", "t.json",
                         "--separator", "<end>", "--steps", "20", "--threads", "1", "--checkpoint-dir", "c"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find(" tokens in 1 document; "), std::string::npos) << trained.err;
  EXPECT_NE(trained.out.find(" nats/token "), std::string::npos) << trained.out;
  EXPECT_EQ(readText(directory / "c/step-00000020/tokenizer.json"), tokenizerOfLetters());

  // What was trained with it is found beside the weights, in the directory and in one checkpoint of it.
  ASSERT_EQ(run({"tokenize", "--tokenizer", "c/step-00000020", "--data", "heldout.txt", "--separator", "33", "--output",
                 "h.u16"})
                .code,
            0);
  std::vector<std::string> losses;
  for (std::vector<std::string> data : {std::vector<std::string>{"heldout.txt", "--separator", "<end>"},
                                        {"heldout.txt", "--separator", "33", "--tokenizer", "t.json"},
                                        {"h.u16", "--separator", "33"}}) {
    data.insert(data.begin(), {"eval", "n.braid", "--checkpoint", "c/step-00000020", "--data"});
    Outcome evaluated = run(data);
    ASSERT_EQ(evaluated.code, 0) << evaluated.err;
    losses.push_back(evaluated.out.substr(0, evaluated.out.find(" over ")));
    EXPECT_EQ(evaluated.out.find("bits/byte") != std::string::npos, data[5] == "heldout.txt") << evaluated.out;
    if (data[5] == "heldout.txt") { // all but the first letter, "T" or what it is, are predicted
      size_t bytes = readText(directory / "heldout.txt").size();
      EXPECT_NE(evaluated.out.find(fmt::format("over {} bytes, ", bytes - 1)), std::string::npos) << evaluated.out;
    }
  }
  EXPECT_EQ(losses[1], losses[0]);
  EXPECT_EQ(losses[2], losses[0]);

  // Lines of texts and of tokens: what a byte of all of it costs nobody knows.
  writeText(directory / "mixed.jsonl", "{\"text\": \"the cat\"}\n{\"text\": [31, 26, 2]}\n");
  for (std::string data : {"mixed.jsonl", "h.u16"}) {
    Outcome mixed = run({"eval", "n.braid", "--checkpoint", "c", "--data", data, "--tokenizer", "t.json"});
    ASSERT_EQ(mixed.code, 0) << mixed.err;
    EXPECT_EQ(mixed.out.find("of the text"), std::string::npos) << mixed.out;
    bool idle = mixed.err.find("warning: --tokenizer=t.json changes nothing: the data is tokens") != std::string::npos;
    EXPECT_EQ(idle, data == "h.u16") << mixed.err;
  }

  std::vector<std::string> generate = {"generate", "n.braid", "--checkpoint", "c", "--max-tokens", "6"};
  auto generated = [&](std::vector<std::string> more) {
    more.insert(more.begin(), generate.begin(), generate.end());
    return run(more);
  };
  Outcome text = generated({"--prompt", "the"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("the")) << text.out;
  EXPECT_NE(text.err.find("prompt: 1 token, "), std::string::npos) << text.err;
  Outcome numbers = generated({"--prompt-tokens", "31"});
  writeText(directory / "tokens.jsonl", "{\"tokens\": [" + numbers.out.substr(0, numbers.out.size() - 1) + "]}");
  Outcome decoded = run({"tokenize", "--decode", "--tokenizer", "c/step-00000020", "--data", "tokens.jsonl"});
  ASSERT_EQ(decoded.code, 0) << decoded.err;
  EXPECT_EQ(linesOf(decoded.out)[0]["text"].get<std::string>() + "\n", text.out);
  writeText(directory / "p.jsonl", "\"the\"\n\"a cat\"\n");
  Outcome many = generated({"--prompts", "p.jsonl"});
  ASSERT_EQ(many.code, 0) << many.err;
  std::vector<Json> lines = linesOf(many.out);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["prompt"].get<std::string>() + lines[0]["text"].get<std::string>() + "\n", text.out);
  EXPECT_EQ(lines[1]["prompt"], "a cat");
  EXPECT_EQ(lines[1]["tokens"].size(), 6u);

  // Also where bytes could be read, as by a program of the user's own: the training says what made its tokens.
  Outcome own = run({"train", "p.braid", "--data", "train.txt", "--tokenizer", "t.json", "--steps", "2", "--threads",
                     "1", "--checkpoint-dir", "own"});
  ASSERT_EQ(own.code, 0) << own.err;
  own = run({"generate", "p.braid", "--checkpoint", "own", "--prompt", "the", "--max-tokens", "1"});
  EXPECT_NE(own.err.find("prompt: 1 token, "), std::string::npos) << own.err;
  Outcome begun =
      run({"train", "p.braid", "--data", "train.txt", "--init-from", "own", "--steps", "1", "--threads", "1"});
  EXPECT_NE(begun.err.find(" tokens in 1 document; "), std::string::npos) << begun.err;
  // Wherever it lies; a run that is refused changes nothing of it.
  std::filesystem::create_directory_symlink("own/step-00000002", directory / "best");
  own = run({"generate", "p.braid", "--checkpoint", "best", "--prompt", "the", "--max-tokens", "1"});
  EXPECT_NE(own.err.find("prompt: 1 token, "), std::string::npos) << own.err;
  writeText(directory / "other.json", tokenizerOfLetters() + "\n");
  expectError({"train", "p.braid", "--data", "train.txt", "--tokenizer", "other.json", "--steps", "2",
               "--checkpoint-dir", "own"},
              "own already holds a checkpoint of step 2");
  EXPECT_EQ(readText(directory / "own/step-00000002/tokenizer.json"), tokenizerOfLetters());
  // What lies there and cannot be read is missed by texts only.
  std::string unread = "own/step-00000002/tokenizer.json";
  for (const char *content : {"{", "\n"}) {
    writeText(directory / unread, tokenizerOfLetters() + content);
    expectError({"generate", "p.braid", "--checkpoint", "own", "--prompt", "the", "--max-tokens", "1"}, unread + ": ");
    expectError({"eval", "p.braid", "--checkpoint", "own", "--data", "heldout.txt"}, unread + ": ");
    std::filesystem::remove(directory / unread);
  }
  expectError({"generate", "p.braid", "--checkpoint", "own/step-00000002", "--prompt", "the", "--max-tokens", "1"},
              unread + ": cannot open: No such file or directory; valid: --tokenizer, or tokens");
  EXPECT_EQ(run({"generate", "p.braid", "--checkpoint", "own", "--tokenizer", "t.json", "--prompt", "the",
                 "--max-tokens", "1"})
                .code,
            0);
  Outcome byNumber = run({"generate", "p.braid", "--checkpoint", "own", "--prompt-tokens", "1,2", "--max-tokens", "1",
                          "--tokenizer", "t.json"});
  EXPECT_EQ(byNumber.code, 0) << byNumber.err;
  EXPECT_NE(byNumber.err.find("warning: --tokenizer=t.json changes nothing: the prompts are tokens"), std::string::npos)
      << byNumber.err;
  EXPECT_EQ(run({"generate", "p.braid", "--checkpoint", "own", "--prompt-tokens", "1,2", "--max-tokens", "1"}).code, 0);
  EXPECT_EQ(run({"eval", "p.braid", "--checkpoint", "own", "--data", "h.u16"}).code, 0);

  // A resumed run reads its data as before.
  std::filesystem::remove(directory / "t.json");
  Outcome resumed = run({"train", "n.braid", "--data", "train.txt", "--separator", "<end>", "--steps", "22",
                         "--threads", "1", "--checkpoint-dir", "c", "--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.out.find("trained to step 22"), std::string::npos) << resumed.out;
}

// A tiktoken.model is one with the configuration beside it: checkpoints keep both, and know both again.
TEST_F(TokenizerTool, ReadsRanks) {
  std::string config = R"({"auto_map": {"AutoTokenizer": "tokenization_kimi.TikTokenTokenizer"}})";
  std::filesystem::create_directories(directory / "ranks");
  writeText(directory / "ranks/tiktoken.model", ranksOfBytes());
  writeText(directory / "ranks/tokenizer_config.json", config);
  writeText(directory / "ranks/chat_template.jinja", "{{ messages[0].content }}!");
  Outcome tokens = run({"tokenize", "--tokenizer", "ranks", "--chat", "the"});
  ASSERT_EQ(tokens.code, 0) << tokens.err;
  EXPECT_EQ(tokens.out, "{\"prompt\":\"the!\",\"tokens\":[1,35]}\n");
  Outcome trained = run({"train", "n.braid", "--data", "train.txt", "--tokenizer", "ranks/tiktoken.model", "--steps",
                         "3", "--threads", "1", "--checkpoint-dir", "c"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  std::filesystem::remove_all(directory / "ranks");
  std::string kept = "c/step-00000003/";
  EXPECT_EQ(readText(directory / (kept + "tiktoken.model")), ranksOfBytes());
  EXPECT_EQ(readText(directory / (kept + "tokenizer_config.json")), config);
  std::vector<std::string> generate = {"generate",     "n.braid", "--checkpoint", "c",
                                       "--max-tokens", "2",       "--chat",       "the"};
  Outcome answer = run(generate);
  ASSERT_EQ(answer.code, 0) << answer.err;
  Outcome resumed = run({"train", "n.braid", "--data", "train.txt", "--steps", "4", "--threads", "1",
                         "--checkpoint-dir", "c", "--resume"});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  kept = "c/step-00000004/";
  writeText(directory / (kept + "tokenizer_config.json"), config + " ");
  expectError(generate, kept + "tokenizer_config.json: has hash ");
  std::filesystem::remove(directory / (kept + "tokenizer_config.json"));
  generate[6] = "--prompt";
  expectError(generate, kept + "tiktoken.model: its texts are cut as tokenizer_config.json beside it says: ");
}

TEST_F(TokenizerTool, SaysWhatDoesNotFit) {
  writeText(directory / "latin.txt", "the caf\xe9");
  std::vector<std::string> train = {"train", "n.braid", "--steps", "1", "--threads", "1", "--data"};
  auto trainError = [&](std::vector<std::string> more, std::string_view part, int code = 1) {
    more.insert(more.begin(), train.begin(), train.end());
    expectError(more, part, code);
  };
  trainError({"train.txt"}, "the program has 200 other tokens: give their --tokenizer, or token files");
  trainError({"latin.txt", "--tokenizer", "t.json"}, "latin.txt: byte 7 (0xe9) is no UTF-8, which a tokenizer reads");
  trainError({"train.txt", "--tokenizer", "t.json", "--separator", "<eos>"},
             "--separator: '<eos>' is no token of t.json; valid: a number, or the text of a token");
  trainError(
      {"train.txt", "--separator", "<end>"},
      "--separator: \"<end>\" is not an integer; valid: 0 to 2147483647, or with a --tokenizer the text of a token");
  trainError({"train.txt", "--tokenizer", "t.json", "--separator", "-1"}, "--separator: -1 is out of range", 2);
  trainError({"train.txt", "--tokenizer", "none.json"}, "none.json: cannot open");
  trainError({"train.txt", "--tokenizer", "train.txt"}, "train.txt: is not JSON");
  BigramOptions fewer;
  fewer.metadata = {{"tokenizer", "none"}, {"vocab_size", "32"}};
  write("few.braid", fewer);
  expectError({"train", "few.braid", "--steps", "1", "--data", "the.txt", "--tokenizer", "t.json"},
              "the.txt: the tokenizer t.json makes token 32 of it, but the program's vocabulary has 0 to 31");
  expectError({"generate", "n.braid", "--checkpoint", "nowhere", "--prompt", "the", "--max-tokens", "1"},
              "its 200 tokens are not bytes: give their --tokenizer, or the prompt as --prompt-tokens 1,2,3");
  expectError({"generate", "few.braid", "--checkpoint", "nowhere", "--tokenizer", "t.json", "--prompt", "a the",
               "--max-tokens", "1"},
              "the tokenizer t.json makes token 32 of the prompt, but the vocabulary of few.braid has 0 to 31");
}

} // namespace
} // namespace braid::runtime::test
