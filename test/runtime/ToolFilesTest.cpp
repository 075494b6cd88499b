// What braid-run reads and writes: no output in the place of an input, numbers in their range, damaged checkpoints,
// what cannot be written or allocated.
#include "test/runtime/ToolFixture.h"

#include "runtime/train/Checkpoint.h"

#include <nlohmann/json.hpp>

#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>

namespace braid::runtime::test {
namespace {

class ToolFiles : public TrainTool {
protected:
  std::vector<std::string> train(std::vector<std::string> more) const {
    std::vector<std::string> all = {"train", "p.braid", "--data", "train.txt", "--steps", "2", "--threads", "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // Refused, and no file has other bytes than before.
  void expectKept(std::vector<std::string> arguments, std::string_view part) {
    auto contents = [&] {
      std::map<std::string, std::string> files;
      for (const auto &entry : std::filesystem::recursive_directory_iterator(directory.str()))
        if (std::string name = entry.path().filename(); entry.is_regular_file() && name != "out" && name != "err")
          files[entry.path()] = readText(entry.path());
      return files;
    };
    auto before = contents();
    expectError(std::move(arguments), part);
    EXPECT_TRUE(contents() == before) << part;
  }
};

TEST_F(ToolFiles, OutputsNeverTakeThePlaceOfInputs) {
  ASSERT_EQ(run(train({"--checkpoint-dir", "c"})).code, 0);
  std::filesystem::create_symlink("train.txt", directory / "link");
  std::filesystem::create_hard_link(directory / "c/step-00000002/model.safetensors", directory / "hard");
  std::filesystem::create_directory(directory / "d");
  writeText(directory / "d/a.txt", sampleText(300));
  for (std::string flag : {"--metrics", "--trace"}) {
    expectKept(train({flag, "train.txt"}), flag + " and --data both name train.txt");
    expectKept(train({flag, "./train.txt"}), flag + " ./train.txt and --data train.txt are the same file");
    expectKept(train({flag, "link"}), flag + " link and --data train.txt are the same file");
    expectKept(train({flag, "p.braid"}), flag + " and the program both name p.braid");
    expectKept(train({flag, "heldout.txt", "--heldout", "heldout.txt"}), "--heldout both name heldout.txt");
    expectKept(train({flag, "d/m", "--data", "d"}), flag + " d/m: lies in d, of which --data reads every file");
    expectKept(train({flag, "hard", "--checkpoint-dir", "c", "--resume"}),
               "hard and --checkpoint-dir c/step-00000002/");
    for (std::string name : {"c/latest", "c/.lock", "c/step-00000002/m", "c/step-00000009"})
      expectKept(train({flag, name, "--checkpoint-dir", "c", "--resume"}),
                 name + (name.starts_with("c/step") ? ": that is a name of the checkpoints in c" : ""));
  }
  expectKept(train({"--metrics", "m", "--trace", "./m"}), "--trace ./m and --metrics m are the same file");
  expectKept(train({"--data", "d", "--checkpoint-dir", "d/c"}), "--checkpoint-dir d/c: lies in d");
  EXPECT_FALSE(std::filesystem::exists(directory / "m"));

  store<int64_t>("seed.npy", DType::i64, {1}, {7});
  std::vector<std::string> call = {"call", "p.braid", "@init", "--input", "seed=seed.npy", "--output"};
  auto output = [&](std::vector<std::string> names) {
    std::vector<std::string> all = call;
    all.insert(all.end(), names.begin(), names.end());
    return all;
  };
  expectKept(output({"embed.weight=w.npy", "layers.4.bias=./w.npy"}),
             "--output layers.4.bias ./w.npy and --output embed.weight w.npy are the same file");
  expectKept(output({"embed.weight=seed.npy"}), "--output embed.weight and --input seed both name seed.npy");
  expectKept(output({"embed.weight=p.braid"}), "--output embed.weight and the program both name p.braid");
  expectKept(output({"embed.weight=c/latest", "--checkpoint", "c"}), "c/latest");

  // What the shell opened for appending.
  static std::string appended;
  appended = directory / "heldout.txt";
  std::string before = readText(appended);
  Outcome outcome =
      run({"eval", "p.braid", "--checkpoint", "c", "--data", "heldout.txt"},
          {.environment = {}, .out = "", .prepare = [] { dup2(open(appended.c_str(), O_WRONLY | O_APPEND), 1); }});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("standard output goes to heldout.txt (--data)"), std::string::npos) << outcome.err;
  EXPECT_EQ(readText(appended), before);
  // Devices hold nothing; names beside the checkpoints are free.
  EXPECT_EQ(run(train({"--metrics", "/dev/null", "--trace", "/dev/null"})).code, 0);
  EXPECT_EQ(run(train({"--metrics", "c/m.jsonl", "--checkpoint-dir", "c", "--resume"})).code, 0);
  EXPECT_EQ(run(train({"--metrics", "d/.m", "--data", "d"})).code, 0);
}

TEST_F(ToolFiles, NumbersHaveTheirRange) {
  std::string what; // is wrong
  auto wrong = [&](std::vector<std::string> arguments, const std::string &flag, std::vector<std::string> values,
                   const std::string &range) {
    for (const std::string &value : values) {
      std::vector<std::string> all = arguments;
      all.push_back(flag + "=" + value);
      std::string quote = what == "is out of range" ? "" : "\"";
      expectError(all, fmt::format("{}: {}{}{} {}; valid: {}", flag, quote, value, quote, what, range), 2);
    }
  };
  std::vector<std::string> base = {"train", "p.braid", "--data", "train.txt"}, init = {"call", "p.braid", "@init"},
                           generate = {"generate", "p.braid", "--checkpoint", "c", "--prompt", "x"}, one = generate;
  one.insert(one.end(), {"--max-tokens", "1"});
  std::string huge = "99999999999999999999", seeds = "0 to 18446744073709551615";
  std::vector<std::string> steps = {"--steps", "--save-every", "--keep", "--trace-steps", "--eval-every"};
  what = "is out of range";
  for (const std::string &flag : steps)
    wrong(base, flag, {"0", "-1", "2147483648", huge}, "1 to 2147483647");
  wrong(base, "--warmup", {"-1", huge}, "0 to 2147483647");
  wrong(base, "--accumulation-steps", {"0", "65537"}, "1 to 65536");
  wrong(base, "--seed", {"-1", huge}, seeds);
  wrong(base, "--ranks", {"0", "4097"}, "1 to 4096");
  wrong(base, "--threads", {"0", "257", huge}, "1 to 256");
  wrong(base, "--separator", {"-1", huge}, "0 to 2147483647");
  wrong(base, "--lr", {"0", "-1", "1e-40", "101", "nan", "inf"}, "1e-12 to 100");
  wrong(base, "--min-lr", {"-1", "101"}, "0 to 100");
  wrong(generate, "--max-tokens", {"0", huge}, "1 to 2147483647");
  wrong(one, "--temperature", {"-1", "nan", "1e7"}, "0 to 1000000");
  wrong(one, "--top-k", {"-1", huge}, "0 to 2147483647");
  wrong(one, "--top-p", {"0", "1.5"}, "above 0 to 1");
  wrong(init, "--seed", {"-1", huge}, seeds);
  what = "is not an integer";
  for (const std::string &flag : steps)
    wrong(base, flag, {"x", "1e3"}, "1 to 2147483647");
  wrong(base, "--warmup", {"1.5"}, "0 to 2147483647");
  wrong(one, "--top-k", {"x"}, "0 to 2147483647");
  wrong(init, "--seed", {"x"}, seeds);
  what = "is not a number";
  wrong(base, "--lr", {"fast"}, "1e-12 to 100");
  wrong(one, "--top-p", {"x"}, "above 0 to 1");
  expectError({"call", "p.braid", "@init", "--seed", "7", "--input", "seed=seed.npy"},
              "--seed=7 sets the inputs of @init: leave --input seed away, or --seed");
}

TEST_F(ToolFiles, DamagedCheckpointsNameThoseThatAreWhole) {
  auto save = [&](const std::string &steps) {
    return run({"train", "p.braid", "--data", "train.txt", "--steps", steps, "--save-every", "2", "--checkpoint-dir",
                "c", "--keep", "9", "--threads", "1", "--resume"});
  };
  ASSERT_EQ(save("6").code, 0);
  std::string whole =
      "c: 4, 2; go on from one with train --resume-step=4, or name it with --checkpoint=c/step-00000004";
  std::vector<std::string> resume = {"train", "p.braid",   "--data", "train.txt", "--steps", "7", "--checkpoint-dir",
                                     "c",     "--threads", "1",      "--resume"};
  std::vector<std::string> eval = {"eval", "p.braid", "--checkpoint", "c", "--data", "heldout.txt"};
  std::string index = readText(directory / "c/step-00000006/index.json");
  auto expectBoth = [&](std::string_view part) {
    for (const auto &command : {resume, eval}) {
      expectError(command, part);
      EXPECT_NE(readText(directory / "err").find(whole), std::string::npos) << readText(directory / "err");
    }
  };
  writeText(directory / "c/step-00000006/index.json", index.substr(0, index.size() / 2));
  expectBoth(fmt::format("c/step-00000006/index.json: is not JSON, at byte {} of {} (line ", index.size() / 2,
                         index.size() / 2));
  EXPECT_NE(readText(directory / "err").find("the file looks truncated; complete earlier checkpoints in c: "),
            std::string::npos);
  writeText(directory / "c/step-00000006/index.json", "");
  expectBoth("c/step-00000006/index.json: is empty: 0 bytes and no JSON");
  std::filesystem::remove(directory / "c/step-00000006/index.json");
  expectBoth("c/latest: names c/step-00000006, which has no index.json; complete checkpoints in c: 4, 2; ");
  eval[3] = "c/step-00000006";
  expectError(
      eval,
      "c/step-00000006: has no index.json, so it is no whole checkpoint; complete earlier checkpoints in c: 4, 2");
  eval[3] = "c";
  writeText(directory / "c/latest", "nonsense");
  expectBoth("c/latest: holds 'nonsense', which is not the name of a checkpoint; complete checkpoints in c: 4, 2; ");

  writeText(directory / "c/latest", std::string_view("a\0\x1b[2J\xff", 7));
  expectBoth("c/latest: holds 'a\\u0000\\u001b[2J\\ufffd', which is not the name of a checkpoint; ");

  // What it says to do works; a checkpoint that lost half of a file is not offered.
  std::filesystem::resize_file(directory / "c/step-00000004/model.safetensors", 1000);
  expectError(resume, "complete checkpoints in c: 2; ");
  resume.back() = "--resume-step=4";
  expectError(resume, "model.safetensors: has 1000 bytes, but index.json says");
  EXPECT_NE(readText(directory / "err").find("complete earlier checkpoints in c: 2; "), std::string::npos);
  resume.back() = "--resume-step=3";
  expectError(resume, "c: there is no checkpoint of step 3 (--resume-step); complete checkpoints in c: 2; ");
  resume.back() = "--resume-step=2";
  Outcome resumed = run(resume);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_NE(resumed.err.find("resumed from c/step-00000002 (step 2)"), std::string::npos) << resumed.err;
  EXPECT_EQ(readText(directory / "c/latest"), "step-00000007\n");

  // Weights alone are read by eval: the optimizer's file may be damaged.
  std::filesystem::resize_file(directory / "c/step-00000007/optimizer.safetensors", 1000);
  EXPECT_EQ(run(eval).code, 0) << readText(directory / "err");
}

TEST_F(ToolFiles, WhatIsNoFileIsAnError) {
  ASSERT_EQ(mkfifo((directory / "fifo").c_str(), 0600), 0);
  expectError(train({"--data", "fifo"}), "fifo: is a pipe, not a regular file");
  expectError({"info", "/dev/zero"}, "/dev/zero: not a Braid program");
  expectError({"info", directory.str()}, "is it a directory?");
  std::filesystem::create_directories(directory / "c/step-00000001");
  ASSERT_EQ(mkfifo((directory / "c/step-00000001/index.json").c_str(), 0600), 0);
  expectError({"eval", "p.braid", "--checkpoint", "c/step-00000001", "--data", "train.txt"}, "index.json: is a pipe");
  std::filesystem::create_symlink("/dev/zero", directory / "c/latest");
  expectError({"eval", "p.braid", "--checkpoint", "c", "--data", "train.txt"}, "c/latest: is a device");
  // Files of any size that hold nothing: nothing of that size is allocated.
  auto sparse = [&](const std::string &name, std::string_view begin) {
    writeText(directory / name, begin);
    std::filesystem::resize_file(directory / name, uintmax_t(1) << 42);
  };
  std::filesystem::remove(directory / "c/latest");
  std::filesystem::remove(directory / "c/step-00000001/index.json");
  sparse("c/step-00000001/index.json", "{");
  expectError({"eval", "p.braid", "--checkpoint", "c", "--data", "train.txt"}, "has 4398046511104 bytes; at most");
  std::string header = "{'descr': '<i8', 'fortran_order': False, 'shape': (549755813872,), }";
  header.resize(117, ' ');
  sparse("seed.npy", std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + "\n");
  expectError({"call", "p.braid", "@init", "--input", "seed=seed.npy"}, "seed.npy: holds i64 [549755813872], but");
}

TEST_F(ToolFiles, MemoryThatIsNotThereIsSaid) {
  BigramOptions large;
  large.workspaceBytes = uint64_t(1) << 44;
  write("large.braid", large);
  expectError({"train", "large.braid", "--data", "train.txt", "--steps", "1"},
              "large.braid: out of memory: the program needs ");
  std::string said = readText(directory / "err");
  for (const char *part :
       {"the largest arenas are 'workspace' 16.0 TiB", "but the machine has ", "--activation-budget", "--decode-batch"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_EQ(run({"info", "large.braid"}).code, 0);
  // What does not train needs none of it.
  ASSERT_EQ(run(train({"--checkpoint-dir", "c"})).code, 0);
  Outcome evaluated = run({"eval", "large.braid", "--checkpoint", "c", "--data", "heldout.txt"});
  EXPECT_EQ(evaluated.code, 0) << evaluated.err;
  Outcome generated = run({"generate", "large.braid", "--checkpoint", "c", "--prompt", "x", "--max-tokens", "4"});
  EXPECT_EQ(generated.code, 0) << generated.err;
  EXPECT_EQ(generated.out, run({"generate", "p.braid", "--checkpoint", "c", "--prompt", "x", "--max-tokens", "4"}).out);
}

TEST_F(ToolFiles, StandardOutputThatCannotBeWrittenIsAnError) {
  auto to = [&](std::vector<std::string> arguments, const std::string &out) {
    return run(std::move(arguments), {.environment = {}, .out = out, .prepare = nullptr});
  };
  ASSERT_EQ(run(train({"--checkpoint-dir", "c"})).code, 0);
  std::vector<std::vector<std::string>> commands = {
      {"--help"},
      {"train", "--help"},
      {"info", "p.braid"},
      {"info", "p.braid", "--json"},
      {"eval", "p.braid", "--checkpoint", "c", "--data", "heldout.txt"},
      {"generate", "p.braid", "--checkpoint", "c", "--prompt", "x", "--max-tokens", "4"},
      {"generate", "p.braid", "--checkpoint", "c", "--prompts", "p.jsonl", "--max-tokens", "4"}};
  writeText(directory / "p.jsonl", "\"x\"\n\"y\"\n\"z\"\n");
  for (const std::vector<std::string> &command : commands) {
    Outcome outcome = to(command, "/dev/full");
    EXPECT_EQ(outcome.code, 1) << command[0];
    EXPECT_NE(outcome.err.find("braid-run: error: cannot write standard output: No space left on device\n"),
              std::string::npos)
        << command[0] << "\n"
        << outcome.err;
    // Nobody reads the pipe.
    outcome = run(command, {.environment = {}, .out = "", .prepare = [] {
                              int ends[2];
                              if (pipe(ends) == 0 && close(ends[0]) == 0)
                                dup2(ends[1], 1);
                            }});
    EXPECT_EQ(outcome.code, 1) << command[0];
    EXPECT_NE(outcome.err.find("braid-run: error: cannot write standard output: Broken pipe\n"), std::string::npos)
        << command[0] << "\n"
        << outcome.err;
  }
}

// Progress that nobody sees ends no training: it is saved, and only the status tells.
TEST_F(ToolFiles, ATrainingOutlivesItsWatcher) {
  auto closedPipe = [] {
    int ends[2];
    if (pipe(ends) == 0 && close(ends[0]) == 0)
      dup2(ends[1], 2);
  };
  auto fullDisk = [] { dup2(open("/dev/full", O_WRONLY), 2); };
  for (void (*prepare)() : {static_cast<void (*)()>(closedPipe), static_cast<void (*)()>(fullDisk)}) {
    Outcome outcome =
        run(train({"--checkpoint-dir", "c", "--resume"}), {.environment = {}, .out = "", .prepare = prepare});
    EXPECT_EQ(outcome.code, 1);
    EXPECT_NE(outcome.out.find("checkpoint     c/step-00000002"), std::string::npos) << outcome.out;
    EXPECT_EQ(listCheckpoints(directory / "c")->back(), 2u);
    std::filesystem::remove_all(directory / "c");
  }
}

} // namespace
} // namespace braid::runtime::test
