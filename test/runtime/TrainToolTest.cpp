// The command line of braid-run, run as a user runs it, on the bigram network.
#include "test/runtime/ToolFixture.h"

#include "runtime/cpu/CpuFeatures.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/ModelDifference.h"

#include <nlohmann/json.hpp>

#include <csignal>
#include <sstream>
#include <thread>

namespace braid::runtime::test {
namespace {

TEST_F(TrainTool, TrainsEvaluatesAndGenerates) {
  Outcome trained = run({"train",
                         "p.braid",
                         "--data",
                         "train.txt",
                         "--steps",
                         "120",
                         "--lr",
                         "0.05",
                         "--min-lr",
                         "0.01",
                         "--warmup",
                         "5",
                         "--seed",
                         "3",
                         "--checkpoint-dir",
                         "c",
                         "--save-every",
                         "50",
                         "--keep",
                         "2",
                         "--metrics",
                         "m.jsonl",
                         "--trace",
                         "t.json",
                         "--trace-steps",
                         "1",
                         "--heldout",
                         "heldout.txt",
                         "--eval-every",
                         "100",
                         "--threads",
                         "1",
                         "--ranks",
                         "1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("step   1/120  loss 5.5"), std::string::npos) << trained.err;
  EXPECT_NE(trained.err.find("step 100: held-out loss "), std::string::npos) << trained.err;
  for (const char *part : {"trained to step 120 in ", "checkpoint     c/step-00000120\n", "held-out loss ",
                           "byte bigram ", "difference ", " nats/byte ", " bits/byte "})
    EXPECT_NE(trained.out.find(part), std::string::npos) << part << "\n" << trained.out;
  EXPECT_TRUE(std::filesystem::exists(directory / "c/step-00000100/index.json"));
  EXPECT_FALSE(std::filesystem::exists(directory / "c/step-00000050"));

  Outcome evaluated = run({"eval", "p.braid", "--checkpoint", "c", "--data", "heldout.txt"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  auto loss = [](const std::string &text) {
    size_t at = text.find("held-out loss");
    return text.substr(at, text.find(" nats/byte") - at);
  };
  EXPECT_EQ(loss(evaluated.out), loss(trained.out));

  auto generate = [&](const std::string &seed, const std::string &temperature) {
    Outcome outcome =
        run({"generate", "p.braid", "--checkpoint", "c/step-00000120", "--prompt", "the strands", "--max-tokens", "40",
             "--temperature", temperature, "--top-k", "20", "--top-p", "0.9", "--seed", seed});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("prompt: 11 tokens, "), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("generated: 40 tokens, "), std::string::npos) << outcome.err;
    EXPECT_EQ(outcome.out.size(), 11u + 40 + 1);
    EXPECT_TRUE(outcome.out.starts_with("the strands")) << outcome.out;
    return outcome.out;
  };
  EXPECT_EQ(generate("1", "1"), generate("1", "1"));
  EXPECT_NE(generate("1", "1"), generate("2", "1"));
  EXPECT_EQ(generate("1", "0"), generate("2", "0"));
}

TEST_F(TrainTool, TracesAreWrittenWhereTheyAre) {
  auto train = [&](const std::string &trace, const std::string &metrics) {
    return run({"train", "p.braid", "--data", "train.txt", "--steps", "3", "--threads", "1", "--trace", trace,
                "--metrics", metrics});
  };
  // A bad path shows before anything is trained.
  Outcome refused = train("none/t.json", "m");
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("braid-run: error: cannot write none/t.json: No such file or directory"),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(refused.err.find("step "), std::string::npos) << refused.err;
  EXPECT_FALSE(std::filesystem::exists(directory / "m"));
  EXPECT_NE(train("m", "m").err.find("--trace and --metrics both name m: what one needs the other would overwrite"),
            std::string::npos);

  // A link stays a link, what it names is written.
  std::filesystem::create_symlink("target.json", directory / "link.json");
  ASSERT_EQ(train("link.json", "m").code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "link.json"));
  EXPECT_TRUE(nlohmann::json::parse(readText(directory / "target.json")).contains("traceEvents"));

  // A run that is refused leaves the trace of the one before as it was.
  auto saving = [&] {
    return run({"train", "p.braid", "--data", "train.txt", "--steps", "3", "--threads", "1", "--trace", "kept.json",
                "--checkpoint-dir", "kept"});
  };
  ASSERT_EQ(saving().code, 0);
  std::string kept = readText(directory / "kept.json");
  EXPECT_TRUE(nlohmann::json::parse(kept).contains("traceEvents"));
  EXPECT_NE(saving().err.find("kept already holds a checkpoint of step 3"), std::string::npos);
  EXPECT_EQ(readText(directory / "kept.json"), kept);
  // A shorter trace leaves nothing of a longer one.
  std::ofstream(directory / "kept.json") << "{\"traceEvents\": " << std::string(kept.size() * 2, 'x');
  ASSERT_EQ(train("kept.json", "m").code, 0);
  EXPECT_TRUE(nlohmann::json::parse(readText(directory / "kept.json")).contains("traceEvents"));

  // So does a device; one that takes nothing is an error after the training that it was to show.
  EXPECT_EQ(train("/dev/null", "m").code, 0);
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  if (!std::filesystem::is_character_file("/dev/full"))
    GTEST_SKIP() << "no /dev/full here";
  Outcome full = train("/dev/full", "m");
  EXPECT_EQ(full.code, 1);
  EXPECT_NE(full.out.find("trained to step 3"), std::string::npos) << full.out;
  EXPECT_NE(full.err.find("/dev/full: "), std::string::npos) << full.err;
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(TrainTool, SignalsSaveAndResumeContinues) {
  // A constant rate: the losses do not depend on --steps, and no run ends before its signal comes.
  auto arguments = [&](const std::string &metrics, const std::string &steps) {
    return std::vector<std::string>{"train",     "p.braid", "--data",    "train.txt", "--steps",  steps,
                                    "--lr",      "0.01",    "--min-lr",  "0.01",      "--warmup", "0",
                                    "--threads", "1",       "--metrics", metrics};
  };
  auto resumed = [&](const std::string &steps) {
    std::vector<std::string> result = arguments("m", steps);
    result.insert(result.end(), {"--checkpoint-dir", "c", "--resume"});
    return result;
  };
  std::signal(SIGHUP, SIG_DFL); // inherited; these tests may run under nohup
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) {
    uintmax_t before = signal != SIGTERM ? std::filesystem::file_size(directory / "m") : 0;
    pid_t child = start(resumed("1000000000"));
    while (!std::filesystem::exists(directory / "m") || std::filesystem::file_size(directory / "m") <= before + 2000)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    kill(child, signal);
    Outcome outcome = finish(child);
    EXPECT_EQ(outcome.code, 128 + signal) << outcome.err; // not all was done
    EXPECT_NE(outcome.out.find("stopped at step "), std::string::npos) << outcome.out;
    EXPECT_NE(outcome.out.find("continue with --resume"), std::string::npos) << outcome.out;
  }
  std::string steps = std::to_string(listCheckpoints(directory / "c")->back() + 5);
  Outcome last = run(resumed(steps));
  ASSERT_EQ(last.code, 0) << last.err;
  EXPECT_NE(last.err.find("resumed from c/step-"), std::string::npos) << last.err;
  ASSERT_EQ(run(arguments("whole.jsonl", steps)).code, 0);
  auto losses = [&](const std::string &name) {
    std::string result;
    std::istringstream lines(readText(directory / name));
    for (std::string line; std::getline(lines, line);)
      result += nlohmann::json::parse(line)["loss"].dump() + "\n";
    return result;
  };
  EXPECT_EQ(losses("m"), losses("whole.jsonl"));
}

TEST_F(TrainTool, CallsAnyFunction) {
  store<int64_t>("seed.npy", DType::i64, {1}, {7});
  ASSERT_EQ(run({"call", "p.braid", "@init", "--input", "seed=seed.npy", "--output", "embed.weight=w.npy",
                 "layers.{}.bias=b.npy", "layers.4.bias=b4.npy"})
                .code,
            0);
  std::vector<float> weight = load<float>("w.npy", {256, 256}), bias = load<float>("b.npy", {2, 256});
  std::vector<float> layer = load<float>("b4.npy", {256});
  EXPECT_TRUE(std::equal(layer.begin(), layer.end(), bias.begin() + 256));
  EXPECT_NE(weight[0], weight[1]);

  // One decode step from given parameters, or from the same made by the seed.
  store<int32_t>("token.npy", DType::i32, {1, 1}, {65});
  store<int32_t>("cu.npy", DType::i32, {1, 2}, {-5, 1});
  store<int32_t>("state.npy", DType::i32, {2}, {99, 5});
  std::vector<std::string> call = {
      "call", "p.braid", "decode_1", "--input", "tokens=token.npy", "cu_seqlens=cu.npy", "cache.state=state.npy"};
  std::vector<std::string> given = call, seeded = call;
  given.insert(given.end(), {"--input", "embed.weight=w.npy", "--input", "layers.{}.bias=b.npy", "--output",
                             "logits=l.npy", "cache.state=s.npy"});
  seeded.insert(seeded.end(), {"--output", "decode_1/logits=m.npy", "--seed", "7"});
  ASSERT_EQ(run(given).code, 0) << readText(directory / "err");
  ASSERT_EQ(run(seeded).code, 0) << readText(directory / "err");
  std::vector<float> logits = load<float>("l.npy", {1, 256});
  EXPECT_EQ(logits, load<float>("m.npy", {1, 256}));
  EXPECT_NEAR(logits[3], weight[65 * 256 + 3] + bias[3] + bias[256 + 3], 1.1e-3);
  EXPECT_EQ(load<int32_t>("s.npy", {2}), (std::vector<int32_t>{99 * 31 + 65, 6}));

  // Indices are checked before a kernel follows them.
  auto callError = [&](const std::string &input, const std::string &message) {
    std::vector<std::string> wrong = call;
    for (std::string &word : wrong)
      if (word.starts_with(input.substr(0, input.find('=') + 1)))
        word = input;
    expectError(wrong, message);
  };
  store<int32_t>("token256.npy", DType::i32, {1, 1}, {256});
  store<int32_t>("cu_long.npy", DType::i32, {1, 2}, {-5, 2});
  store<int32_t>("cu_late.npy", DType::i32, {1, 2}, {1, 1});
  callError("tokens=token256.npy", "token256.npy: tokens[0, 0] is 256, but the vocabulary has 0 to 255");
  callError("cu_seqlens=cu_long.npy", "cu_long.npy: cu_seqlens[0, 1] is 2, but a row has 1 tokens");
  callError("cu_seqlens=cu_late.npy", "cu_late.npy: cu_seqlens[0, 0] is 1: the first entry must be 0");
  std::vector<std::string> twice = call;
  twice.push_back("tokens=token256.npy");
  expectError(twice, "--input tokens is given twice: token.npy and token256.npy");
  store<int32_t>("labels.npy", DType::i32, {2, 16}, std::vector<int32_t>(32, -2));
  expectError(
      {"call", "p.braid", "eval_step", "--input", "tokens=gone.npy", "labels=labels.npy", "cu_seqlens=gone.npy"},
      "gone.npy: cannot open");
  store<int32_t>("tokens.npy", DType::i32, {2, 16}, std::vector<int32_t>(32, 7));
  expectError(
      {"call", "p.braid", "eval_step", "--input", "tokens=tokens.npy", "labels=labels.npy", "cu_seqlens=gone.npy"},
      "labels.npy: labels[0, 0] is -2, but the vocabulary has 0 to 255 (-1: not counted)");

  // --seed of @init is its input.
  ASSERT_EQ(run({"call", "p.braid", "@init", "--seed", "7", "--output", "embed.weight=w2.npy"}).code, 0)
      << readText(directory / "err");
  EXPECT_EQ(weight, load<float>("w2.npy", {256, 256}));

  store<float>("short.npy", DType::f32, {255}, std::vector<float>(255));
  expectError({"call", "p.braid", "@init", "--input", "seed=seed.npy", "layers.4.bias=short.npy"},
              "short.npy: holds f32 [255], but 'layers.4.bias' is f32 [256]");
  expectError({"call", "p.braid", "@init", "--input", "seed=token.npy"}, "holds i32 [1, 1], but 'seed' is i64 [1]");
  expectError({"call", "p.braid", "@init"}, "input 'seed' (i64 [1]) of @init is not given");
  expectError({"call", "p.braid", "@init", "--input", "seed"}, "--input seed: must be NAME=FILE.npy");
  expectError({"call", "p.braid", "@init", "--input", "sead=seed.npy"}, "there is no tensor 'sead'");
  expectError({"call", "p.braid", "@none"}, "no entry @none");
  expectError({"call", "p.braid", "@init", "--input", "seed=gone.npy"}, "gone.npy: cannot open");
}

TEST_F(TrainTool, ReadsTokensOfAnyVocabulary) {
  // The network holds 256 tokens; a program that does not call them bytes reads and writes numbers.
  BigramOptions numbers;
  numbers.metadata = {{"tokenizer", "none"}, {"vocab_size", "200"}};
  write("n.braid", numbers);
  std::string tokens, lines;
  for (int i = 0; i < 3000; ++i) {
    char token = static_cast<char>(i * i % 199);
    tokens += {token, '\0'};
    lines += i % 50 == 0 ? (i ? "]}\n{\"ids\": [" : "{\"ids\": [") : ",";
    lines += std::to_string(static_cast<unsigned char>(token));
  }
  writeText(directory / "t.u16", tokens);
  writeText(directory / "t.jsonl", lines + "]}\n");
  std::vector<std::string> rest = {"--steps", "20", "--threads", "1"};
  auto train = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"train", "n.braid"});
    arguments.insert(arguments.end(), rest.begin(), rest.end());
    return arguments;
  };
  Outcome trained = run(train({"--data", "t.u16", "--checkpoint-dir", "c", "--heldout", "t.u16"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("data: 3000 tokens in 1 document; 188 rows of 16, "), std::string::npos) << trained.err;
  for (const char *part : {" nats/token ", "over 2999 tokens", "token bigram "})
    EXPECT_NE(trained.out.find(part), std::string::npos) << part << "\n" << trained.out;
  trained = run(train({"--data", "t.jsonl", "--field", "ids"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.err.find("data: 3000 tokens in 60 documents; "), std::string::npos) << trained.err;
  Outcome evaluated = run({"eval", "n.braid", "--checkpoint", "c", "--data", "t.u16", "--separator", "4"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;

  Outcome generated =
      run({"generate", "n.braid", "--checkpoint", "c", "--prompt-tokens", "1,2,198", "--max-tokens", "4"});
  ASSERT_EQ(generated.code, 0) << generated.err;
  EXPECT_TRUE(generated.out.starts_with("1,2,198,")) << generated.out;
  EXPECT_EQ(std::count(generated.out.begin(), generated.out.end(), ','), 6) << generated.out;
  EXPECT_EQ(generated.out.find_first_not_of("0123456789,\n"), std::string::npos) << generated.out;
  Outcome bytes = run({"generate", "p.braid", "--checkpoint", "c", "--prompt-tokens", "104,105", "--max-tokens", "1"});
  EXPECT_TRUE(bytes.out.starts_with("104,105,")) << bytes.out << bytes.err;

  std::vector<std::string> generate = {"generate", "n.braid", "--checkpoint", "c", "--max-tokens", "4"};
  auto generateError = [&](std::vector<std::string> more, std::string_view part, int code = 1) {
    more.insert(more.begin(), generate.begin(), generate.end());
    expectError(more, part, code);
  };
  generateError({"--prompt", "a"},
                "its 200 tokens are not bytes: give their --tokenizer, or the prompt as --prompt-tokens 1,2,3");
  generateError({"--prompt-tokens", "1,200"}, "--prompt-tokens: token 1 is '200', but the vocabulary has 0 to 199");
  for (const char *wrong : {"1,x", "1,", "1,-1", "1,99999999999999999999"})
    generateError({"--prompt-tokens", wrong}, "--prompt-tokens: token 1 is '");
  generateError({"--prompt-tokens", ""}, "--prompt-tokens: ");
  generateError({}, "--prompt", 2);
  generateError({"--prompt", "a", "--prompt-tokens", "1"}, "--prompt", 2);

  // A file of prompts, a line of JSON each.
  writeText(directory / "p.jsonl", "[1, 2, 198]\n[7]");
  Outcome many = run({"generate", "n.braid", "--checkpoint", "c", "--prompts", "p.jsonl", "--max-tokens", "4"});
  ASSERT_EQ(many.code, 0) << many.err;
  EXPECT_TRUE(many.out.starts_with("{\"prompt\":[1,2,198],\"tokens\":[")) << many.out;
  EXPECT_NE(many.out.find("]}\n{\"prompt\":[7],\"tokens\":["), std::string::npos) << many.out;
  std::string list = many.out.substr(many.out.find("\"tokens\":[") + 10);
  EXPECT_EQ("1,2,198," + list.substr(0, list.find(']')) + "\n", generated.out);
  EXPECT_NE(many.err.find("prompt: 4 tokens, "), std::string::npos) << many.err;
  EXPECT_NE(many.err.find("generated: 8 tokens, "), std::string::npos) << many.err;
  // A text ends behind the separator: here what is drawn first and what is drawn second.
  nlohmann::json first = nlohmann::json::parse(many.out.substr(0, many.out.find('\n')));
  for (size_t length : {1, 2}) {
    int token = first["tokens"][length - 1];
    Outcome ended = run({"generate", "n.braid", "--checkpoint", "c", "--prompts", "p.jsonl", "--max-tokens", "4",
                         "--separator", std::to_string(token)});
    ASSERT_EQ(ended.code, 0) << ended.err;
    nlohmann::json line = nlohmann::json::parse(ended.out.substr(0, ended.out.find('\n')));
    std::vector<int> whole = first["tokens"], expected(whole.begin(), std::ranges::find(whole, token) + 1);
    EXPECT_EQ(line["tokens"], expected) << ended.out;
    EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 2) << ended.out;
  }
  generateError({"--prompt-tokens", "1", "--separator", "256"}, "--separator=256: must be a token from 0 to 255");
  auto promptsError = [&](std::string_view text, std::string_view part) {
    writeText(directory / "p.jsonl", text);
    generateError({"--prompts", "p.jsonl"}, part);
  };
  promptsError("[1]\n\"a\"\n",
               "p.jsonl:2: n.braid: its 200 tokens are not bytes: give their --tokenizer, or the prompt as [1, 2, 3]");
  promptsError("[1, 200]", "p.jsonl:1: token 1 is 200, but the vocabulary has 0 to 199");
  promptsError("[1, 18446744073709551615]", "p.jsonl:1: token 1 is 18446744073709551615, but");
  promptsError("[-1]", "p.jsonl:1: token 0 is -1, but the vocabulary has 0 to 199");
  for (const char *wrong : {"1.5", "\"1\"", "null"})
    promptsError(fmt::format("[{}]", wrong),
                 fmt::format("p.jsonl:1: token 0 is {}, but the vocabulary has the whole numbers 0 to 199", wrong));
  for (auto [wrong, shown] : {std::pair("1e0", "1.0"), {"999999999999999999999", "1e+21"}})
    promptsError(fmt::format("[3, {}]", wrong),
                 fmt::format("p.jsonl:1: token 1 is {}, but the vocabulary has the whole numbers 0 to 199", shown));
  for (auto [wrong, at] : {std::pair("[1", 3), {"[1] [2]", 5}, {"\xff", 1}, {"\"a\xff\"", 3}, {"a", 1}}) {
    promptsError(fmt::format("[1]\n \r\n{}\n", wrong), // lines that hold nothing are counted
                 fmt::format("p.jsonl:3: is no JSON, at character {}: ", at));
    EXPECT_NE(readText(directory / "err")
                  .find("; valid: a text in quotation marks, token numbers as [1, 2, 3], or messages as [{"),
              std::string::npos);
  }
  promptsError("[1e999]", "p.jsonl:1: is no JSON: ");
  promptsError(
      "1",
      "p.jsonl:1: is 1, no prompt; valid: a text in quotation marks, token numbers as [1, 2, 3], or messages as [{");
  promptsError("{\"prompt\": [1]}", "p.jsonl:1: has 'prompt'; valid: messages, tools, documents, chat_template_kwargs");
  promptsError("[[[1]]]", "p.jsonl:1: token 0 is a list, but the vocabulary has the whole numbers 0 to 199");
  promptsError("[" + std::string(100000, '[') + std::string(100000, ']') + "]",
               "p.jsonl:1: is nested deeper than 100 levels; valid: ");
  promptsError("[{\"content\": " + std::string(100000, '[') + std::string(100000, ']') + "}]",
               "p.jsonl:1: is nested deeper than 100 levels; valid: ");
  promptsError("[1]\n\n[]", "p.jsonl:3: the prompt is empty: ");
  writeText(directory / "p.jsonl", "[104, 105]\n\"a\"");
  expectError({"generate", "p.braid", "--checkpoint", "c", "--max-tokens", "1", "--prompts", "p.jsonl"},
              "p.jsonl:2: the prompt is a text, but those before it are token numbers; valid: all of one kind");
  writeText(directory / "p.jsonl", "[104, 105]");
  Outcome listed = run({"generate", "p.braid", "--checkpoint", "c", "--prompts", "p.jsonl", "--max-tokens", "1"});
  EXPECT_TRUE(listed.out.starts_with("{\"prompt\":[104,105],\"tokens\":[")) << listed.out << listed.err;
  for (const char *nothing : {"", "\n", " \t\r\n\n"})
    promptsError(nothing, "p.jsonl: holds no prompt: a line each, \"text\", [1, 2, 3] or [{");
  BigramOptions little = numbers;
  little.metadata.push_back({"context_len", "6"});
  write("l.braid", little);
  writeText(directory / "p.jsonl", "[1]\n\n[1, 2, 3]\n[1, 2, 3, 4]\n");
  expectError({"generate", "l.braid", "--checkpoint", "c", "--max-tokens", "4", "--prompts", "p.jsonl"},
              "p.jsonl:4: a prompt of 4 tokens and 4 more need a context of 7, but the program was compiled for 6");
  generateError({"--prompts", ""}, "--prompts: the name of the file is empty");
  generateError({"--prompts", "gone.jsonl"}, "gone.jsonl: cannot open");
  generateError({"--prompts", "p.jsonl", "--prompt-tokens", "1"}, "--prompt", 2);
  expectError(train({"--data", "train.txt"}),
              "train.txt: text is read as bytes, which need a vocabulary of 256 or more");
  writeText(directory / "big.u16", std::string("\x01\x00\xc8\x00", 4));
  expectError(train({"--data", "big.u16"}), "big.u16: byte 2: token 1 is 200, but the vocabulary has 0 to 199");
  expectError(train({"--data", "t.u16", "--format", "u8"}),
              "--format: \"u8\" is not known; valid: text, jsonl, u16, u32, npy", 2);
  expectError({"train", "p.braid", "--data", "train.txt", "--heldout", "t.jsonl", "--steps", "1"},
              "t.jsonl:1: has no field 'text'");
  expectError({"train", "p.braid", "--data", "/dev/zero", "--steps", "1"},
              "/dev/zero: is a device, not a regular file");
}

TEST_F(TrainTool, RunsRanksAsThreads) {
  BigramOptions two;
  two.dp = 2;
  two.batch = 1;
  write("two.braid", two);
  std::vector<std::string> rest = {"--data", "train.txt", "--steps", "30", "--metrics"};
  std::vector<std::string> one = {"train", "p.braid"},
                           both = {"train", "two.braid", "--ranks=2", "--checkpoint-dir", "c"};
  for (auto *arguments : {&one, &both})
    arguments->insert(arguments->end(), rest.begin(), rest.end());
  one.push_back("one.jsonl");
  both.push_back("both.jsonl");
  ASSERT_EQ(run(one).code, 0);
  ASSERT_EQ(run(both).code, 0) << readText(directory / "err");
  auto last = [&](const std::string &name) {
    std::istringstream lines(readText(directory / name));
    std::string line, result;
    while (std::getline(lines, line))
      result = line;
    return nlohmann::json::parse(result)["loss"].get<double>();
  };
  EXPECT_NEAR(last("one.jsonl"), last("both.jsonl"), 1e-4);
  // What two ranks saved, one rank reads.
  EXPECT_EQ(run({"eval", "p.braid", "--checkpoint", "c", "--data", "heldout.txt"}).code, 0);
  EXPECT_EQ(run({"eval", "two.braid", "--ranks=2", "--checkpoint", "c", "--data", "heldout.txt"}).code, 0);

  store<int64_t>("seed.npy", DType::i64, {1}, {7});
  for (std::string rank : {"0", "1"})
    store<float>("in" + rank + ".npy", DType::f32, {256}, std::vector<float>(256, rank == "0" ? 3.f : 4.f));
  ASSERT_EQ(run({"call", "two.braid", "@init", "--ranks=2", "--input", "seed=seed.npy", "d.layers.1.bias=in{rank}.npy",
                 "--output", "coordinate.ep=c{rank}.npy", "d.layers.{}.bias=out{rank}.npy"})
                .code,
            0)
      << readText(directory / "err");
  EXPECT_EQ(load<int32_t>("c1.npy", {1})[0], 1);
  EXPECT_EQ(load<float>("out0.npy", {2, 256})[0], 3);
  EXPECT_EQ(load<float>("out1.npy", {2, 256})[0], 4);
  expectError({"call", "two.braid", "@init", "--ranks=2", "--input", "seed=seed.npy", "--output", "embed.weight=w.npy"},
              "2 ranks would write the same file; put {rank} in its name");
  expectError({"train", "two.braid", "--data", "train.txt", "--steps", "1"}, "run it with --ranks=2");
  expectError({"generate", "two.braid", "--checkpoint", "c", "--prompt", "a", "--max-tokens", "1"}, "mesh of 2 ranks");
}

TEST_F(TrainTool, DescribesPrograms) {
  Outcome json = run({"info", "p.braid", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  auto info = nlohmann::json::parse(json.out);
  EXPECT_EQ(info["parameters"], 256 * 256 + 2 * 256);
  EXPECT_EQ(info["mesh"]["ranks"], 1);
  EXPECT_EQ(info["metadata"]["tokenizer"], "bytes");
  auto train = info["entries"][1];
  EXPECT_EQ(train["name"], "train_step");
  EXPECT_EQ(train["launches"], 4);
  EXPECT_EQ(train["kernels"]["bigram_adam"], 2);
  EXPECT_EQ(train["inputs"][0], (nlohmann::json{{"name", "tokens"}, {"dtype", "i32"}, {"shape", {2, 16}}}));
  EXPECT_EQ(info["tensors"][1]["name"], "layers.{}.bias");
  EXPECT_EQ(info["tensors"][1]["layers"], (std::vector<int>{1, 4}));
  uint64_t sum = 0;
  for (const auto &arena : info["memory"]["arenas"])
    sum += arena["bytes"].get<uint64_t>();
  EXPECT_EQ(info["memory"]["bytes_per_rank"], sum);

  BigramOptions two;
  two.dp = 2;
  write("two.braid", two);
  Outcome text = run({"info", "two.braid", "--functions"});
  ASSERT_EQ(text.code, 0) << text.err;
  for (const char *part : {"2 ranks; dp=2; experts ep=2", "@train_step", "2 x bigram_adam", "3 x all_reduce",
                           "x all_reduce over dp: ", "parameters   66048"})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << "\n" << text.out;
}

// A program for another machine can be looked at, but not run.
TEST_F(TrainTool, ProgramsForOtherProcessors) {
  std::string absent;
  for (const char *feature : {"amx-fp16", "avx512fp16", "amx-bf16", "avx512bf16", "avxvnni", "avx512f"})
    if (absent.empty() && !hasCpuFeature(feature))
      absent = feature;
  if (absent.empty())
    GTEST_SKIP() << "this CPU has every feature the test knows";
  BigramOptions options;
  options.cpuFeatures = {"sse2", absent};
  write("other.braid", options);
  std::string said = "the program needs CPU features this machine lacks: " + absent + ";";
  expectError({"train", "other.braid", "--data", "train.txt", "--steps", "1"}, said);
  expectError({"eval", "other.braid", "--checkpoint", "c", "--data", "train.txt"}, said);
  Outcome text = run({"info", "other.braid"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("cannot run here: this machine lacks " + absent + "\n"), std::string::npos) << text.out;
  Outcome json = run({"info", "other.braid", "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out)["missing_cpu_features"], (std::vector<std::string>{absent}));
}

TEST_F(TrainTool, SaysWhatIsWrong) {
  expectError({"info", "none.braid"}, "none.braid");
  writeText(directory / "junk.braid", "this is not a program");
  expectError({"info", "junk.braid"}, "junk.braid");
  expectError({"train", "p.braid"}, "--data is required (see braid-run train --help)", 2);
  expectError({"train", "p.braid", "--data", "train.txt", "--speed", "9"}, "--speed", 2);
  expectError({"train", "p.braid", "--data", "train.txt", "--steps", "5", "--save-every", "2"}, "--checkpoint-dir", 2);
  expectError({"train", "p.braid", "--data", "train.txt"},
              "p.braid does not say how many steps to train: give --steps");
  expectError({"train", "p.braid", "--data", "gone.txt", "--steps", "1"}, "gone.txt: cannot open");
  expectError({"eval", "p.braid", "--checkpoint", "c", "--data", "train.txt"}, "c: holds no checkpoint");
  expectError({"generate", "p.braid", "--checkpoint", "c", "--prompt", "x", "--max-tokens", "0"}, "--max-tokens", 2);
  expectError({"train", "p.braid", "--data", "train.txt", "--steps", "5", "--warmup", "6"},
              "a warm-up of 6 steps (--warmup) does not fit into the 5 of the training (--steps); valid: 0 to 5");
  ASSERT_EQ(run({"train", "p.braid", "--data", "train.txt", "--steps", "5", "--checkpoint-dir", "c"}).code, 0);
  expectError({"train", "p.braid", "--data", "train.txt", "--steps", "3", "--checkpoint-dir", "c", "--resume"},
              "cannot resume: the checkpoint is at step 5, past the 3 steps that --steps asks for (counted from the "
              "start of training); valid: 5 or more");
  Outcome done = run({"train", "p.braid", "--data", "train.txt", "--steps", "5", "--checkpoint-dir", "c", "--resume"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_NE(done.out.find("nothing to do: c/step-00000005 is at step 5 of 5"), std::string::npos) << done.out;
  expectError({"generate", "p.braid", "--checkpoint", "c", "--prompt", "", "--max-tokens", "1"}, "the prompt is empty");
  expectError({}, "subcommand", 2);
  for (const char *flag : {"--checkpoint-dir", "--metrics", "--trace"})
    expectError({"train", "p.braid", "--data", "train.txt", "--steps", "1", flag, ""}, std::string(flag) + ": is empty",
                2);
  expectError({"train", "p.braid", "--data", "train.txt", "--timeout", "0"},
              "--timeout: 0 is out of range; valid: 0.1 to ", 2);
  Outcome help = run({"train", "--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("--checkpoint-dir"), std::string::npos);
}

// Equal shapes, other model: it may be meant (a longer window), so it is said and not refused.
TEST_F(TrainTool, ACheckpointOfAnotherDescriptionIsRemarked) {
  auto describe = [&](const std::string &file, const std::string &model) {
    BigramOptions options;
    options.metadata = {{"model_json", model}};
    write(file, options);
  };
  describe(
      "a.braid",
      R"({"name": "a", "d_model": 8, "train": {"batch": 2}, "mixers": {"N": {"window": 64, "heads": 2, "state": "M = exp(g) M + k^T v"}}})");
  describe("same.braid", R"({"name": "b", "d_model": 8.0, /* */ "train": {"batch": 4}, "schedule": {"recompute": "all"},
                            "mixers": {"N": {"heads": 2, "window": 64, "decay_range": [1, 2], "state": " M=exp( g )  M +\tk^T v "}}})");
  describe(
      "other.braid",
      R"({"name": "a", "d_model": 8, "norm": {"eps": 1e-5}, "mixers": {"N": {"heads": 2, "window": 32, "state": "M = exp (g) M + k^T v"}}})");
  std::vector<std::string> train = {"train", "a.braid", "--data", "train.txt", "--steps", "1", "--checkpoint-dir", "c"};
  ASSERT_EQ(run(train).code, 0);
  std::string remark = "c/step-00000001 was written by a model that computes something else than other.braid: "
                       "mixers.N.state: \"M = exp(g) M + k^T v\" there, \"M = exp (g) M + k^T v\" here; "
                       "mixers.N.window: 64 there, 32 here; norm.eps: not given there, 1e-05 here\n";
  for (std::string program : {"same.braid", "other.braid"})
    for (std::vector<std::string> command :
         {std::vector<std::string>{"eval", program, "--checkpoint", "c", "--data", "heldout.txt"},
          {"generate", program, "--checkpoint", "c", "--prompt", "a", "--max-tokens", "1"},
          {"train", program, "--data", "train.txt", "--steps", "2", "--checkpoint-dir", "d", "--resume"}}) {
      SCOPED_TRACE(program + " " + command[0]);
      std::filesystem::remove_all(directory / "d");
      std::filesystem::copy(directory / "c", directory / "d", std::filesystem::copy_options::recursive);
      Outcome outcome = run(command);
      EXPECT_EQ(outcome.code, 0) << outcome.err;
      std::string expected = remark;
      expected[0] = command[0] == "train" ? 'd' : 'c';
      EXPECT_EQ(outcome.err.find(expected) != std::string::npos, program == "other.braid") << outcome.err;
      EXPECT_EQ(outcome.err.find("computes something else") != std::string::npos, program == "other.braid");
    }
}

// The same tensors, trained otherwise: what is compiled into the program holds from here on, what the checkpoint says holds before the program.
TEST_F(TrainTool, AnotherTrainingThanTheCheckpointsIsRemarked) {
  auto describe = [&](const std::string &file, const char *train, const char *rate, const char *warmup,
                      const char *seed) {
    BigramOptions options;
    options.metadata = {
        {"model_json", fmt::format(R"({{"train": {{{}}}}})", train)},
        {"model_defaults", R"({"train.clip_norm": 1, "train.beta1": 0.9, "train.min_learning_rate": 0})"},
        {"train.learning_rate", rate},
        {"train.min_learning_rate", "0"},
        {"train.warmup_steps", warmup},
        {"train.seed", seed}};
    write(file, options);
  };
  describe("one.braid", R"("weight_decay": 0.1, "learning_rate": 0.01, "warmup_steps": 2, "seed": 1, "batch": 2)",
           "0.01", "2", "1");
  describe(
      "two.braid",
      R"("weight_decay": 0.2, "clip_norm": 2, "beta1": 0.9, "learning_rate": 0.02, "warmup_steps": 3, "seed": 4, "batch": 4)",
      "0.02", "3", "4");
  ASSERT_EQ(
      run({"train", "one.braid", "--data", "train.txt", "--steps", "4", "--checkpoint-dir", "c", "--save-every", "1"})
          .code,
      0);
  auto resumed = [&](const char *program, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {"train", program,         "--data", "train.txt", "--checkpoint-dir",
                                        "c",     "--resume-step", "2"};
    command.insert(command.end(), more.begin(), more.end());
    Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err;
  };
  const std::string rate = "learning rate: 0.01 as before; the program says 0.02 (--lr chooses)\n";
  std::string same = resumed("one.braid"), other = resumed("two.braid"),
              chosen = resumed("two.braid", {"--lr", "0.02", "--warmup", "3"});
  for (const char *part : {"other settings", "as before"})
    EXPECT_EQ(same.find(part), std::string::npos) << same;
  for (const std::string &part :
       {std::string("c/step-00000002 was trained with other settings than two.braid goes on with: train.clip_norm: not "
                    "given (1) "
                    "there, 2 here; train.weight_decay: 0.1 there, 0.2 here\n"),
        rate, std::string("warm-up steps: 2 as before; the program says 3 (--warmup chooses)\n"),
        std::string("seed: 1 as before; the program says 4 (a training keeps its seed)\n")})
    EXPECT_NE(other.find(part), std::string::npos) << part << other;
  EXPECT_EQ(other.find("minimum"), std::string::npos) << other;
  for (const char *part : {"learning rate: 0.01 as", "warm-up steps"})
    EXPECT_EQ(chosen.find(part), std::string::npos) << chosen;
}

TEST_F(TrainTool, ARunWithoutACheckpointToGoOnFromSaysSo) {
  writeText(directory / "broken.txt", std::string(400, '\xff'));
  std::vector<std::string> train = {"train", "p.braid", "--data", "broken.txt", "--steps", "3", "--no-check-finite"};
  Outcome outcome = run(train); // where none is asked for
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out.find("checkpoint"), std::string::npos) << outcome.out;
  train.insert(train.end(), {"--checkpoint-dir", "c"});
  outcome = run(train);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("\nno checkpoint of step 3 was saved: its loss is nan and its gradient norm "),
            std::string::npos)
      << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("; there is none\n")) << outcome.out;
}

TEST_F(TrainTool, FlagsOfDrawsThatChangeNothingSaySo) {
  ASSERT_EQ(run({"train", "p.braid", "--data", "train.txt", "--steps", "1", "--checkpoint-dir", "c"}).code, 0);
  auto said = [&](std::vector<std::string> flags) {
    std::vector<std::string> command = {"generate", "p.braid", "--checkpoint", "c",
                                        "--prompt", "a",       "--max-tokens", "1"};
    command.insert(command.end(), flags.begin(), flags.end());
    Outcome outcome = run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.err.substr(0, outcome.err.find("prompt: "));
  };
  auto warning = [](const char *flag, const char *why) {
    return fmt::format("braid-run: warning: {} changes nothing: {}\n", flag, why);
  };
  const char *likeliest = "with --top-k=1 the most likely token is taken", *all = "there are 256 tokens to draw from";
  EXPECT_EQ(said({"--temperature", "1", "--top-k", "255", "--top-p", "0.9", "--seed", "3"}), "");
  EXPECT_EQ(
      said({"--top-k", "1"}),
      warning("--top-k=1", "with --temperature=0, the default, nothing is drawn: the most likely token is taken"));
  for (const char *count : {"256", "300"})
    EXPECT_EQ(said({"--temperature", "1", "--top-k", count}), warning(fmt::format("--top-k={}", count).c_str(), all));
  EXPECT_EQ(said({"--temperature", "0.5", "--top-k", "1", "--top-p", "0.9", "--seed", "3"}),
            warning("--top-p=0.9", likeliest) + warning("--seed=3", likeliest) +
                warning("--temperature=0.5", likeliest));
}

// Letters, and how often a pattern repeats, compute nothing; a default may be what the other one gives.
TEST(ModelDifferences, LayersByWhatTheyAre) {
  auto words = [](const char *there, const char *here) {
    ModelDifference difference = compareModels(there, here);
    return (difference.certain ? "" : "?") + difference.words;
  };
  const char *one = R"({"num_layers": 4, "layer_pattern": "NM", "mixers": {"N": {"heads": 2}, "M": {"heads": 4}}})";
  EXPECT_EQ(
      words(one, R"({"num_layers": 4, "layer_pattern": "NMNM", "mixers": {"M": {"heads": 4}, "N": {"heads": 2}}})"),
      "?");
  EXPECT_EQ(
      words(
          one,
          R"({"num_layers": 4, "layer_pattern": "AB", "mixers": {"B": {"heads": 4}, "A": {"heads": 2}, "C": {"heads": 8}}})"),
      "?");
  EXPECT_EQ(words(one, R"({"num_layers": 4, "layer_pattern": "AB", "mixers": {"A": {"heads": 4}, "B": {"heads": 4}}})"),
            "mixers.A.heads: 2 there, 4 here");
  EXPECT_EQ(
      words(one, R"({"num_layers": 4, "layer_pattern": "NMM", "mixers": {"N": {"heads": 2}, "M": {"heads": 4}}})"),
      "layer_pattern: \"NM\" there, \"NMM\" here");
  EXPECT_EQ(words(one, R"({"num_layers": 6, "layer_pattern": "NM", "mixers": {"N": {"heads": 2}, "M": {"heads": 4}}})"),
            "num_layers: 4 there, 6 here");
  EXPECT_EQ(words(R"({"num_layers": 2, "mixers": {"N": {"heads": 2}}})",
                  R"({"num_layers": 2, "layer_pattern": "Q", "mixers": {"Q": {"heads": 2, "bias": false}}})"),
            "?mixers.Q.bias: not given there, false here");
  EXPECT_EQ(words(R"({"num_layers": 2, "layer_pattern": "X", "mixers": {"N": {}}})",
                  R"({"num_layers": 0, "layer_pattern": 3})"),
            "layer_pattern: \"X\" there, 3 here; num_layers: 2 there, 0 here");
  // Layers without a part.
  const char *parts = R"({"num_layers": 4, "layer_pattern": "N--N", "mixers": {"N": {"heads": 2}}})";
  EXPECT_EQ(words(parts, R"({"num_layers": 4, "layer_pattern": "A--A", "mixers": {"A": {"heads": 2}}, "ffns": {}})"),
            "?");
  EXPECT_EQ(
      words(parts, R"({"num_layers": 4, "layer_pattern": "N--", "ffn_pattern": "--", "mixers": {"N": {"heads": 2}}})"),
      "?");
  EXPECT_EQ(words(parts, R"({"num_layers": 4, "layer_pattern": "N-", "mixers": {"N": {"heads": 2}}})"),
            "layer_pattern: \"N--N\" there, \"N-\" here");
  // Blocks that layers share.
  const char *shares =
      R"({"num_layers": 4, "inject_pattern": "-A-B", "injects": {"A": {"ffn": {"hidden": 2}}, "B": {}}})";
  EXPECT_EQ(
      words(shares,
            R"({"num_layers": 4, "inject_pattern": "-A-B-A", "injects": {"A": {"ffn": {"hidden": 3}}, "B": {}}})"),
      "injects.A.ffn.hidden: 2 there, 3 here");
  EXPECT_EQ(words(shares, R"({"num_layers": 4, "inject_pattern": "-A-A", "injects": {"A": {"ffn": {"hidden": 2}}}})"),
            "inject_pattern: \"-A-B\" there, \"-A-A\" here");
  // Mixers side by side.
  const std::string mixers = R"(, "mixers": {"N": {"heads": 2}, "M": {"heads": 4, "scale": 1}}})",
                    both = R"j({"num_layers": 3, "layer_pattern": "(NM)M")j" + mixers;
  auto beside = [&](const char *there) { return words(both.c_str(), there); };
  EXPECT_EQ(
      beside(
          R"j({"num_layers": 3, "layer_pattern": "(AB)B(AB)", "mixers": {"A": {"heads": 2}, "B": {"heads": 4, "scale": 1}}})j"),
      "?");
  EXPECT_EQ(
      beside(
          R"j({"num_layers": 3, "layer_pattern": "(AB)B", "mixers": {"A": {"heads": 2}, "B": {"heads": 4, "scale": 2}}})j"),
      "mixers.B.scale: 1 there, 2 here");
  EXPECT_EQ(beside((R"j({"num_layers": 3, "layer_pattern": "(MN)M")j" + mixers).c_str()),
            "layer_pattern: \"(NM)M\" there, \"(MN)M\" here; mixers.N.heads: 4 there, 2 here; mixers.M.heads: 2 "
            "there, 4 here; ..");
}

// What the frontend took for keys that are left out says what they are; another object that is left out may be another thing.
TEST(ModelDifferences, LeftOutKeysHaveTheirDefaults) {
  const char *defaults =
      R"({"mixers.A.window": 0, "mixers.A.rope.theta": 10000, "mixers.B.window": 8, "norm": {}, "norm.eps": 1e-6, "name": "model"})";
  auto words = [&](const char *there, const char *here) {
    ModelDifference difference = compareModels(there, here, defaults);
    return (difference.certain ? "" : "?") + difference.words;
  };
  const char *here = R"({"num_layers": 2, "layer_pattern": "AB", "mixers": {"A": {"rope": {}}, "B": {"window": 16}}})";
  auto there = [](const std::string &first, const std::string &second, const std::string &rest = "") {
    return R"({"num_layers": 2, "layer_pattern": "XY", "mixers": {"X": {)" + first + R"(}, "Y": {)" + second + "}}" +
           rest + "}";
  };
  EXPECT_EQ(words(there(R"("window": 0, "rope": {"theta": 10000.0})", R"("window": 16)").c_str(), here), "?");
  EXPECT_EQ(words(there(R"("rope": {})", R"("window": 16)", R"(, "norm": {"eps": 0.000001})").c_str(), here), "?");
  EXPECT_EQ(words(there(R"("window": 4)", R"("window": 16)").c_str(), here),
            "mixers.X.window: 4 there, not given (0) here");
  EXPECT_EQ(words(there("", "", R"(, "norm": {"eps": 1e-5})").c_str(), here),
            "mixers.B.window: not given (8) there, 16 here; norm.eps: 1e-05 there, not given (1e-06) here");
  EXPECT_EQ(
      words(
          there("", R"("window": 16)").c_str(),
          R"({"num_layers": 2, "layer_pattern": "AB", "mixers": {"A": {"rope": {"theta": 10000}}, "B": {"window": 16}}})"),
      "?mixers.A.rope.theta: not given there, 10000 here");
  EXPECT_EQ(words(there(R"("heads": 2)", R"("window": 16)").c_str(), here), "?mixers.X.heads: 2 there, not given here");
  EXPECT_EQ(words(there("", R"("window": 16)").c_str(),
                  R"({"num_layers": 2, "layer_pattern": "AB", "mixers": {"A": {}, "B": {}}, "norm": {"eps": 1e-6}})"),
            "mixers.Y.window: 16 there, not given (8) here");
}

} // namespace
} // namespace braid::runtime::test
