//===- Measure.cpp - braid-run as a child, its metrics, and what they say -----------------------------------------===//
#include "tools/braid-tune/Measure.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <random>

using namespace braid::tune;

//===- Running ----------------------------------------------------------------------------------------------------===//

/// Of every step: large enough that an update that is missing shows in the next loss, too small to make more of what
/// rounding leaves (a training at its usual rate is another one after a few steps).
static constexpr const char *learningRate = "1e-5";
/// The token that ends a document; documents hold the others.
static constexpr uint32_t separator = 0;

std::optional<std::string> Runner::writeData(int64_t vocabulary) const {
  std::ofstream file(folder + "/data.u32", std::ios::binary);
  std::mt19937 random(1);
  auto others = static_cast<uint32_t>(std::max<int64_t>(vocabulary - 1, 1));
  for (int document = 0; document < 256; ++document) {
    std::vector<uint32_t> tokens(64 + random() % 1024);
    for (uint32_t &token : tokens)
      token = vocabulary > 1 ? 1 + random() % others : separator;
    tokens.back() = separator;
    file.write(reinterpret_cast<const char *>(tokens.data()), static_cast<std::streamsize>(4 * tokens.size()));
  }
  return file.flush() ? std::nullopt : std::optional("cannot write " + folder + "/data.u32");
}

/// What a command that failed had to say: its error, else the last of its lines.
static std::string complaint(const std::string &log) {
  auto text = llvm::MemoryBuffer::getFile(log);
  llvm::SmallVector<llvm::StringRef> lines;
  if (text)
    (*text)->getBuffer().split(lines, '\n', -1, /*KeepEmpty=*/false);
  auto *error = llvm::find_if(lines, [](llvm::StringRef line) { return line.contains("error:"); });
  llvm::StringRef said = error != lines.end() ? *error : lines.empty() ? "it printed nothing" : lines.back();
  return llvm::json::fixUTF8(said);
}

/// Output and errors go to `log`. An error as text.
static std::optional<std::string> execute(const std::vector<std::string> &words, const std::string &log) {
  llvm::ErrorOr<std::string> program = llvm::sys::findProgramByName(words.front());
  if (!program)
    return words.front() + ": " + program.getError().message();
  std::vector<llvm::StringRef> arguments(words.begin(), words.end());
  std::optional<llvm::StringRef> streams[] = {llvm::StringRef(), log, log};
  llvm::sys::fs::remove(log); // a redirection writes over what is there
  std::string message;
  int code = llvm::sys::ExecuteAndWait(*program, arguments, std::nullopt, streams, 0, 0, &message);
  if (code == 0)
    return std::nullopt;
  if (code < 0) // it did not start, or a signal ended it
    return fmt::format("{}: {}; {}", words.front(), message, complaint(log));
  return fmt::format("{} ended with {}: {}", words.front(), code, complaint(log));
}

std::optional<std::string> braid::tune::measure(const Runner &runner, const std::string &program, Measurement &result) {
  std::string metrics = program + ".jsonl";
  std::vector<std::string> words = runner.launcher;
  words.insert(words.end(), {runner.braidRun, "train", program, "--data", runner.folder + "/data.u32", "--format=u32",
                             fmt::format("--separator={}", separator), fmt::format("--steps={}", runner.steps),
                             "--warmup=0", fmt::format("--lr={}", learningRate), "--seed=1",
                             fmt::format("--threads={}", runner.threads), "--metrics=" + metrics});
  if (runner.launcher.empty())
    words.push_back(fmt::format("--ranks={}", runner.ranks));
  llvm::sys::fs::remove(metrics);
  if (auto error = execute(words, program + ".log"))
    return error;
  result.losses.clear();
  result.gradNorms.clear();
  double before = 0;
  std::ifstream file(metrics);
  for (std::string line; std::getline(file, line);) {
    auto step = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    auto number = [&](const char *key) {
      return step.is_object() && step.contains(key) && step[key].is_number() ? step[key].get<double>()
                                                                             : std::numeric_limits<double>::quiet_NaN();
    };
    // Seconds since the begin of the run.
    double now = number("seconds"), loss = number("loss"), norm = number("grad_norm");
    if (!std::isfinite(now) || !std::isfinite(loss) || !std::isfinite(norm))
      return fmt::format("a step has no time, loss or gradient norm: {}", line);
    if (!result.losses.empty())
      result.seconds.push_back(now - before);
    before = now;
    result.losses.push_back(loss);
    result.gradNorms.push_back(norm);
  }
  if (static_cast<int64_t>(result.losses.size()) != runner.steps)
    return fmt::format("{} steps of {} are in its metrics", result.losses.size(), runner.steps);
  return std::nullopt;
}

//===- Times ------------------------------------------------------------------------------------------------------===//

/// The value with `share` of the others below it, between neighbours in proportion.
static double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  double at = share * static_cast<double>(values.size() - 1);
  auto below = static_cast<size_t>(at);
  size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (at - static_cast<double>(below)) * (values[above] - values[below]);
}

double Measurement::median() const { return quantile(seconds, 0.5); }

double Measurement::spread() const {
  if (seconds.size() < 4)
    return std::numeric_limits<double>::infinity();
  return 1.57 * (quantile(seconds, 0.75) - quantile(seconds, 0.25)) / std::sqrt(static_cast<double>(seconds.size()));
}

//===- Results ----------------------------------------------------------------------------------------------------===//

Tolerance braid::tune::toleranceOf(const std::string &dtype, int64_t tokens) {
  double sums = dtype == "f64" ? 0x1p-53 : 0x1p-24, activations = dtype == "bf16" ? 0x1p-8 : sums;
  return {.loss = 32 * sums + 8 * activations / std::sqrt(static_cast<double>(tokens)),
          .gradient = 64 * sums + 2 * activations};
}

std::optional<std::string> braid::tune::repetition(const Measurement &before, const Measurement &now) {
  for (size_t i = 0; i < now.losses.size(); ++i)
    if (before.losses[i] != now.losses[i] || before.gradNorms[i] != now.gradNorms[i])
      return fmt::format("two runs of the same program differ: step {} has loss {:.9g} and gradient norm {:.9g}, then "
                         "{:.9g} and {:.9g}",
                         i + 1, before.losses[i], before.gradNorms[i], now.losses[i], now.gradNorms[i]);
  return std::nullopt;
}

std::string braid::tune::disagreement(const Measurement &own, const Measurement &plain, const Tolerance &tolerance) {
  auto compare = [](const char *what, size_t step, double mine, double theirs, double most) -> std::string {
    double apart = mine == theirs ? 0 : std::abs(mine / theirs - 1);
    if (apart <= most)
      return "";
    return fmt::format(
        "its {} of step {} is {:.9g}, that of the unsliced program {:.9g}: {:.1e} apart, rounding explains "
        "{:.1e}",
        what, step, mine, theirs, apart, most);
  };
  std::string found = compare("gradient norm", 1, own.gradNorms.front(), plain.gradNorms.front(), tolerance.gradient);
  for (size_t i = 0; i < plain.losses.size() && found.empty(); ++i)
    found = compare("loss", i + 1, own.losses[i], plain.losses[i], static_cast<double>(i + 1) * tolerance.loss);
  return found;
}
