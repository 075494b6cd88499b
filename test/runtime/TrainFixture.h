// A byte-bigram network (fixture/TrainKernels.c) as a program with every entry point of a language model.
#pragma once

#include "test/runtime/TestProgram.h"

#include "runtime/train/Rank.h"

#include <filesystem>

namespace braid::runtime::test {

struct BigramOptions {
  uint32_t dp = 1;
  uint32_t pp =
      1; // every stage has all of it, all tensors are tied; in training the first passes on what the others update with
  int64_t batch = 2; // rows per rank
  int64_t seqLen = 16;
  int64_t sequences = 1; // that generation continues at a time
  int64_t positions = 0; // of a second cache, which holds the tokens themselves; 0: there is none
  std::vector<int32_t> layers = {1, 4}; // of the stacked bias
  std::vector<std::pair<std::string, std::string>> metadata;
  std::vector<std::string> cpuFeatures;
  int64_t microBatches = 0; // that train_step is told the shares of; 0: it is not
  uint64_t workspaceBytes = 0; // of one more arena, whose last byte train_step writes
};

// Entries init, train_step, eval_step, prefill_4, prefill_8, decode_<sequences>. Inputs that several entries share under the same
// name but with other shapes are called <entry>/tokens, as the compiler does.
std::vector<std::byte> bigramProgram(const BigramOptions &options = {});

// A fresh directory that is removed with the object.
class TemporaryDirectory {
public:
  TemporaryDirectory();
  ~TemporaryDirectory();
  std::string operator/(const std::string &name) const { return (path / name).string(); }
  std::string str() const { return path.string(); }

private:
  std::filesystem::path path;
};

std::string readText(const std::string &path);
void writeText(const std::string &path, std::string_view text);

// English-like text that a bigram model can learn something about.
std::string sampleText(size_t bytes, uint32_t seed = 1);
// A tiktoken.model: "th" and "the", then every byte in order, so a is token 99.
std::string ranksOfBytes();

std::shared_ptr<const Program> parseProgram(std::vector<std::byte> bytes);

// Runs `body` on every rank of the program and fails the test when it fails.
void onRanks(const std::shared_ptr<const Program> &program, const std::function<Status(Rank &)> &body);

} // namespace braid::runtime::test
