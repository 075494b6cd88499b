// Training that is killed, or whose disk fails, at any call that changes a file: the checkpoints that are there are
// whole, and the run that resumes ends with the bits of a run that nothing happened to. Moments are chosen by counting
// calls (fixture/FaultInjector.c), not by a clock.
#include "test/runtime/ToolFixture.h"

#include "runtime/train/Checkpoint.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <linux/capability.h>
#include <random>
#include <sstream>
#include <sys/prctl.h>
#include <sys/resource.h>

namespace braid::runtime::test {
namespace {

class TrainFault : public TrainTool {
protected:
  void SetUp() override {
    TrainTool::SetUp();
    if (IsSkipped())
      return;
    whole = runTo("whole");
    ASSERT_EQ(whole.code, 0) << whole.err;
    ASSERT_EQ(listCheckpoints(directory / "whole")->back(), 6u);
    calls = countCalls();
    ASSERT_GT(calls, 40) << "the fault injector saw too few calls: was it loaded?";
  }

  std::vector<std::string> arguments(const std::string &name, bool resume = true) const {
    std::vector<std::string> result = {"train",        program,     "--data",           "train.txt", "--steps", steps,
                                       "--save-every", saveEvery,   "--checkpoint-dir", name,        "--keep",  "1",
                                       "--metrics",    name + ".m", "--threads",        "1",         "--lr",    "0.05",
                                       "--ranks",      ranks};
    if (resume)
      result.push_back("--resume");
    return result;
  }

  // Always with the injector, so that fsync costs nothing.
  Outcome runTo(const std::string &name, int call = 0, const std::string &kind = "none", bool log = false) {
    return finish(startTo(name, call, kind, log));
  }
  pid_t startTo(const std::string &name, int call = 0, const std::string &kind = "none", bool log = false) {
    std::vector<std::string> environment = {std::string("LD_PRELOAD=") + BRAID_TEST_FAULTS,
                                            "BRAID_FAULT_AT=" + std::to_string(call), "BRAID_FAULT=" + kind};
    if (log)
      environment.push_back("BRAID_FAULT_LOG=" + (directory / "calls"));
    return start(arguments(name), {.environment = std::move(environment), .out = "", .prepare = nullptr});
  }

  int countCalls() {
    Outcome counted = runTo("counted", 0, "none", /*log=*/true);
    EXPECT_EQ(counted.code, 0) << counted.err;
    std::string log = readText(directory / "calls");
    return static_cast<int>(std::count(log.begin(), log.end(), '\n'));
  }

  static bool isFull() {
    const char *full = std::getenv("BRAID_FULL");
    return full && std::string_view(full) == "1";
  }

  // Every one in the full tier, else some that a fixed seed chooses and both ends.
  std::vector<int> someCalls(size_t count, uint32_t seed) const {
    std::vector<int> all(static_cast<size_t>(calls));
    for (int i = 0; i < calls; ++i)
      all[static_cast<size_t>(i)] = i + 1;
    if (isFull())
      return all;
    std::shuffle(all.begin(), all.end(), std::mt19937(seed));
    all.resize(std::min(count, all.size()));
    all.push_back(calls);
    return all;
  }

  // Whatever has the name of a checkpoint can be loaded.
  void expectWholeCheckpoints(const std::string &name) {
    auto parsed = Program::load(directory / program);
    ASSERT_TRUE(parsed) << parsed.message();
    auto steps = listCheckpoints(directory / name);
    ASSERT_TRUE(steps) << steps.message();
    for (uint64_t step : *steps)
      onRanks(*parsed, [&](Rank &rank) -> Status {
        BRAID_ASSIGN(CheckpointState state,
                     loadCheckpoint(rank, directory / (name + "/" + checkpointName(step)), Restored::all));
        EXPECT_EQ(state.step, step);
        return Status::success();
      });
    if (!steps->empty())
      EXPECT_TRUE(resolveCheckpoint(directory / name)) << resolveCheckpoint(directory / name).message();
  }

  std::vector<double> losses(const std::string &name) {
    std::vector<double> result;
    std::istringstream lines(readText(directory / (name + ".m")));
    for (std::string line; std::getline(lines, line);)
      result.push_back(nlohmann::json::parse(line)["loss"].get<double>());
    return result;
  }

  // The end of a run is that of the run that nothing happened to, in every byte.
  void expectSameEnd(const std::string &name) {
    std::string step = checkpointName(std::stoull(steps));
    EXPECT_EQ(*listDirectory(directory / name), *listDirectory(directory / "whole"));
    std::vector<std::string> files = *listDirectory(directory / ("whole/" + step));
    EXPECT_EQ(*listDirectory(directory / (name + "/" + step)), files);
    for (const std::string &file : files)
      EXPECT_TRUE(readText(directory / ("whole/" + step + "/" + file)) ==
                  readText(directory / (name + "/" + step + "/" + file)))
          << file;
    EXPECT_EQ(losses(name), losses("whole"));
  }

  void forget(const std::string &name) {
    std::filesystem::remove_all(directory / name);
    std::filesystem::remove(directory / (name + ".m"));
    std::filesystem::remove(directory / "calls");
  }

  std::string program = "p.braid", ranks = "1", steps = "6", saveEvery = "2";
  Outcome whole;
  int calls = 0;
};

TEST_F(TrainFault, KilledAtAnyCallItResumesWithTheSameBits) {
  for (int call : someCalls(24, 1)) {
    SCOPED_TRACE("killed at call " + std::to_string(call));
    Outcome killed = runTo("c", call, "kill");
    EXPECT_EQ(killed.code, 128 + SIGKILL) << killed.err;
    expectWholeCheckpoints("c");
    Outcome resumed = runTo("c");
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    expectSameEnd("c");
    forget("c");
  }
}

// Also while it recovers, and with two ranks that write at the same time.
TEST_F(TrainFault, KilledAgainAndAgainItEndsWithTheSameBits) {
  for (uint32_t seed = 1; seed <= 3; ++seed) {
    std::mt19937 random(seed);
    int kills = 0;
    Outcome outcome;
    do {
      outcome = runTo("c", 1 + static_cast<int>(random() % static_cast<uint32_t>(calls)), "kill");
      ASSERT_TRUE(outcome.code == 0 || outcome.code == 128 + SIGKILL) << outcome.code << outcome.err;
      kills += outcome.code != 0;
      expectWholeCheckpoints("c");
    } while (outcome.code != 0 && kills < 12);
    ASSERT_EQ(runTo("c").code, 0);
    expectSameEnd("c");
    forget("c");
  }
}

// From outside, at any moment and not only at calls: a few, hundreds in the full tier, or BRAID_KILLS of them. Moments
// are drawn from BRAID_SEED, else from a new seed in every run, and whatever they hit, the same must hold.
TEST_F(TrainFault, KilledFromOutsideAtAnyMomentItEndsWithTheSameBits) {
  forget("whole");
  steps = "30";
  saveEvery = "1";
  whole = runTo("whole");
  ASSERT_EQ(whole.code, 0) << whole.err;
  const char *wanted = std::getenv("BRAID_KILLS"), *seedText = std::getenv("BRAID_SEED");
  long kills = wanted ? std::strtol(wanted, nullptr, 10) : isFull() ? 300 : 6;
  long killed = 0, ended = 0, most = 20 * kills + 20;
  auto seed = seedText ? static_cast<uint32_t>(std::strtoul(seedText, nullptr, 10)) : std::random_device()();
  SCOPED_TRACE("BRAID_SEED=" + std::to_string(seed));
  std::mt19937 random(seed);
  for (long run = 0; killed < kills && run < most; ++run) {
    pid_t child = startTo("c");
    usleep(static_cast<useconds_t>(random() % 120000));
    kill(child, SIGKILL);
    Outcome outcome = finish(child);
    ASSERT_TRUE(outcome.code == 0 || outcome.code == 128 + SIGKILL) << outcome.code << outcome.err;
    killed += outcome.code != 0;
    expectWholeCheckpoints("c");
    if (outcome.code == 0) {
      ++ended;
      expectSameEnd("c");
      forget("c");
    }
    if (HasFailure())
      return;
  }
  ASSERT_EQ(runTo("c").code, 0);
  expectSameEnd("c");
  std::printf("%ld kills (BRAID_SEED=%u), %ld trainings came to their end between them\n", killed, seed, ended + 1);
}

TEST_F(TrainFault, TwoRanksKilledResumeWithTheSameBits) {
  BigramOptions two;
  two.dp = 2;
  two.batch = 1;
  write("two.braid", two);
  program = "two.braid";
  ranks = "2";
  forget("whole");
  forget("counted");
  ASSERT_EQ(runTo("whole").code, 0);
  calls = countCalls();
  for (int call : someCalls(8, 2)) {
    SCOPED_TRACE("killed at call " + std::to_string(call));
    Outcome killed = runTo("c", call, "kill");
    EXPECT_EQ(killed.code, 128 + SIGKILL) << killed.err;
    expectWholeCheckpoints("c");
    ASSERT_EQ(runTo("c").code, 0);
    expectSameEnd("c");
    forget("c");
  }
}

TEST_F(TrainFault, AFailingDiskIsAnErrorAndLosesNothing) {
  for (const char *kind : {"error", "full"}) {
    int failed = 0;
    for (int call : someCalls(12, 3)) {
      SCOPED_TRACE(std::string(kind) + " at call " + std::to_string(call));
      Outcome outcome = runTo("c", call, kind);
      // What only names the holder of a lock, or tidies up after an error, may fail unseen.
      if (outcome.code != 0) {
        ++failed;
        EXPECT_EQ(outcome.code, 1);
        EXPECT_NE(outcome.err.find("braid-run: error: "), std::string::npos) << outcome.err;
        const char *reason = std::string_view(kind) == "full" ? "No space left on device" : "Input/output error";
        EXPECT_NE(outcome.err.find(reason), std::string::npos) << outcome.err;
      }
      expectWholeCheckpoints("c");
      Outcome resumed = runTo("c");
      ASSERT_EQ(resumed.code, 0) << resumed.err;
      expectSameEnd("c");
      forget("c");
    }
    EXPECT_GE(failed, 6) << kind;
  }
}

// What only stays too long, or is only not named, is said as what it is.
TEST_F(TrainFault, WhatFollowsACheckpointMayFail) {
  std::string log = readText(directory / "calls");
  auto callOf = [&](std::string_view name, int which) {
    std::istringstream lines(log);
    for (std::string line; std::getline(lines, line);)
      if (line.find(name) != std::string::npos && --which == 0)
        return std::stoi(line);
    ADD_FAILURE() << name << " is not in\n" << log;
    return 0;
  };
  Outcome outcome = runTo("c", callOf(" rename counted/.tmp-old-", 1), "error");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step 5: older checkpoints were not removed: cannot write c/.tmp-old-step-00000002: "
                             "Input/output error; the next checkpoint tries again"),
            std::string::npos)
      << outcome.err;
  expectSameEnd("c");
  forget("c");

  outcome = runTo("c", callOf(" open counted/latest.tmp", 2), "error");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("the checkpoint of step 4 was saved, but c/latest does not name it (--resume-step=4 "
                             "does): cannot write c/latest.tmp: Input/output error\n"),
            std::string::npos)
      << outcome.err;
  ASSERT_EQ(runTo("c").code, 0);
  expectSameEnd("c");
}

// Held-out data have proved the last checkpoint, and no other follows.
TEST_F(TrainFault, OlderCheckpointsMayStayBehindTheLastStep) {
  auto tested = [&](const std::string &name, const std::vector<std::string> &fault) {
    std::vector<std::string> words = arguments(name), environment = {std::string("LD_PRELOAD=") + BRAID_TEST_FAULTS};
    words.insert(words.end(), {"--heldout", "train.txt"});
    environment.insert(environment.end(), fault.begin(), fault.end());
    return run(words, {.environment = environment, .out = "", .prepare = nullptr});
  };
  std::filesystem::remove(directory / "calls");
  ASSERT_EQ(tested("c", {"BRAID_FAULT_LOG=" + (directory / "calls")}).code, 0);
  EXPECT_EQ(*listCheckpoints(directory / "c"), std::vector<uint64_t>{6});
  std::istringstream lines(readText(directory / "calls"));
  int last = 0;
  for (std::string line; std::getline(lines, line);)
    if (line.find(" rename c/.tmp-old-") != std::string::npos)
      last = std::stoi(line);
  forget("c");
  Outcome outcome = tested("c", {"BRAID_FAULT=error", "BRAID_FAULT_AT=" + std::to_string(last)});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("step 6: older checkpoints were not removed: cannot write c/.tmp-old-step-00000004: "
                             "Input/output error; a run that resumes tries again"),
            std::string::npos)
      << outcome.err;
  EXPECT_EQ(*listCheckpoints(directory / "c"), (std::vector<uint64_t>{4, 6}));
}

// The first look follows the locking; before each checkpoint there is one, and one before older ones are removed.
TEST_F(TrainFault, ALockThatCannotBeSeenIsNotLost) {
  auto looking = [&](const std::string &how) {
    return run(arguments("c"),
               {.environment = {std::string("LD_PRELOAD=") + BRAID_TEST_FAULTS, "BRAID_FAULT_STAT=" + how},
                .out = "",
                .prepare = nullptr});
  };
  Outcome outcome = looking("3"); // behind the first checkpoint
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(
      outcome.err.find("step 3: older checkpoints were not removed: c/.lock: cannot look at it: Input/output error; "
                       "the next checkpoint tries again"),
      std::string::npos)
      << outcome.err;
  expectSameEnd("c");
  forget("c");
  outcome = looking("4"); // before the second
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.err.find("the checkpoint of step 4 was not saved: c/.lock: cannot look at it: Input/output error; "
                             "the last checkpoint is c/step-00000002\n"),
            std::string::npos)
      << outcome.err;
  ASSERT_EQ(runTo("c").code, 0);
  expectSameEnd("c");
  forget("c");
  outcome = looking("other");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err.find("locked again"), std::string::npos) << outcome.err;
  expectSameEnd("c");
}

// What a person watches is no reason to lose a training: a line that cannot be written is written with the next one.
TEST_F(TrainFault, AMetricsFileThatFailsForAWhileEndsComplete) {
  std::string log = readText(directory / "calls");
  forget("c");
  std::istringstream lines(log);
  int call = 0;
  for (std::string line; std::getline(lines, line) && !call;) // the first write behind the opening of the file
    if (int number = std::stoi(line); line.ends_with(" open counted.m"))
      call = number + 1;
  ASSERT_GT(call, 0) << log;
  Outcome outcome = runTo("c", call, "error");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  for (const char *part :
       {"step 1: cannot write c.m: Input/output error; the training goes on, and its lines wait for room",
        "step 2: c.m can be written again; 0 of its lines are lost"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << "\n" << outcome.err;
  expectSameEnd("c");
}

// A limit on the size of files, by the kernel instead of the injector: no signal, an error with the file's name.
TEST_F(TrainFault, AFileTooLargeIsAnError) {
  Outcome outcome = run(arguments("c"), {.environment = {}, .out = "", .prepare = [] {
                                           rlimit limit{100 << 10, 100 << 10}; // the weights have 260 kB
                                           setrlimit(RLIMIT_FSIZE, &limit);
                                         }});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_NE(outcome.err.find("the checkpoint of step 2 was not saved: "), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("model.safetensors: File too large"), std::string::npos) << outcome.err;
  EXPECT_EQ(listCheckpoints(directory / "c")->size(), 0u);
  ASSERT_EQ(runTo("c").code, 0);
  expectSameEnd("c");
}

TEST_F(TrainFault, ADirectoryThatCannotBeWrittenShowsAtOnce) {
  writeText(directory / "file", "x");
  expectError(arguments("file"), "cannot write file: Not a directory");
  expectError(arguments("file/c"), "cannot write file/c: Not a directory");
  expectError(arguments("/proc/none"), "cannot write /proc/none: No such file or directory");
  std::filesystem::create_directory(directory / "c");
  std::filesystem::permissions(directory / "c", std::filesystem::perms(0555));
  // Root may write it too, unless that right is taken away.
  auto asOthers = [] { prctl(PR_CAPBSET_DROP, CAP_DAC_OVERRIDE); };
  Outcome outcome = run(arguments("c"), {.environment = {}, .out = "", .prepare = asOthers});
  if (outcome.code == 0 && geteuid() == 0)
    GTEST_SKIP() << "root writes read-only directories here";
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.err, "braid-run: error: cannot write c/.lock: Permission denied\n");
}

TEST_F(TrainFault, TwoRunsDoNotShareADirectory) {
  auto lock = DirectoryLock::acquire(directory / "whole");
  ASSERT_TRUE(lock) << lock.message();
  expectError(arguments("whole"),
              fmt::format("whole: another training run (process {}) writes its checkpoints there", getpid()));
}

TEST_F(TrainFault, WhatWasPrintedHasArrived) {
  for (std::vector<std::string> command :
       {std::vector<std::string>{"info", "p.braid"}, {"info", "p.braid", "--json"}, arguments("full")}) {
    Outcome outcome = run(command, {.environment = {}, .out = "/dev/full", .prepare = nullptr});
    EXPECT_EQ(outcome.code, 1) << command[0];
    EXPECT_NE(outcome.err.find("cannot write standard output: No space left on device"), std::string::npos)
        << outcome.err;
  }
  Outcome outcome = run({"train", "p.braid", "--data", "train.txt", "--steps", "2", "--metrics", "/dev/full",
                         "--checkpoint-dir", "c", "--ranks", "1"});
  EXPECT_EQ(outcome.code, 1);
  for (const char *part :
       {"step 1: cannot write /dev/full: No space left on device; the training goes on, and its lines wait",
        "braid-run: error: the last lines of the metrics are missing: cannot write /dev/full: No space"})
    EXPECT_NE(outcome.err.find(part), std::string::npos) << part << outcome.err;
  EXPECT_EQ(*listCheckpoints(directory / "c"), std::vector<uint64_t>{2}); // the training is not lost
}

} // namespace
} // namespace braid::runtime::test
