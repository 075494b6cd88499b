// braid-run as a process, on the bigram network, in a directory of its own.
#pragma once

#include "test/runtime/TrainFixture.h"

#include "runtime/io/Npy.h"

#include <cstdlib>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace braid::runtime::test {

// Beside the test's own binary.
inline std::string toolPath() { return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "braid-run"; }

struct Outcome {
  int code = -1;
  std::string out, err;
};

struct ProcessOptions {
  std::vector<std::string> environment; // {"NAME=value"}, added to that of the test
  std::string out;                      // where standard output goes; empty: a file that finish() reads
  void (*prepare)() = nullptr;          // called in the new process
};

class TrainTool : public testing::Test {
protected:
  void SetUp() override {
    if (!std::filesystem::exists(toolPath()))
      GTEST_SKIP() << toolPath() << " is not built";
    write("p.braid", {});
    writeText(directory / "train.txt", sampleText(4000));
    writeText(directory / "heldout.txt", sampleText(1000, 9));
  }

  void write(const std::string &name, const BigramOptions &options) {
    std::vector<std::byte> bytes = bigramProgram(options);
    writeText(directory / name, {reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  }

  pid_t start(std::vector<std::string> arguments, ProcessOptions options = {}) {
    arguments.insert(arguments.begin(), "braid-run");
    std::vector<char *> pointers;
    for (std::string &argument : arguments)
      pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::string tool = toolPath(), err = directory / "err", home = directory.str();
    std::string out = options.out.empty() ? directory / "out" : options.out;
    pid_t child = fork();
    if (child == 0) {
      for (std::string &variable : options.environment)
        putenv(variable.data());
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 1);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), 2);
      if (options.prepare)
        options.prepare();
      if (chdir(home.c_str()) == 0)
        execv(tool.c_str(), pointers.data());
      _exit(127);
    }
    return child;
  }

  Outcome finish(pid_t child) {
    int status = 0;
    waitpid(child, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), readText(directory / "out"),
            readText(directory / "err")};
  }

  Outcome run(std::vector<std::string> arguments, ProcessOptions options = {}) {
    return finish(start(std::move(arguments), std::move(options)));
  }

  void expectError(std::vector<std::string> arguments, std::string_view part, int code = 1) {
    Outcome outcome = run(std::move(arguments));
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_TRUE(outcome.err.starts_with("braid-run: error: ")) << outcome.err;
    EXPECT_NE(outcome.err.find(part), std::string::npos) << outcome.err;
  }

  template <class T> std::vector<T> load(const std::string &name, std::vector<int64_t> shape) {
    auto array = readNpy(directory / name);
    EXPECT_TRUE(array) << array.message();
    EXPECT_EQ(array->shape, shape);
    std::vector<T> result(array->data.size() / sizeof(T));
    std::memcpy(result.data(), array->data.data(), array->data.size());
    return result;
  }

  template <class T> void store(const std::string &name, DType dtype, std::vector<int64_t> shape, std::vector<T> data) {
    EXPECT_TRUE(writeNpy(directory / name, dtype, shape, std::as_bytes(std::span(data))).ok());
  }

  TemporaryDirectory directory;
};

} // namespace braid::runtime::test
