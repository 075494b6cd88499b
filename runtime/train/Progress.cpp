#include "runtime/train/Progress.h"
#include "runtime/io/Words.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <fmt/format.h>
#include <unistd.h>

namespace braid::runtime {

namespace {
constexpr double terminalInterval = 0.1; // seconds between redraws
constexpr double logInterval = 10;       // seconds between lines of a log
} // namespace

std::string formatDuration(double seconds) {
  if (!(seconds < 1e8))
    return "?";
  auto whole = static_cast<uint64_t>(std::max(seconds, 0.0) + 0.5);
  if (whole < 60)
    return fmt::format("{}s", whole);
  if (whole < 3600)
    return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m", whole / 3600, whole / 60 % 60);
}

std::string formatQuantity(double value) {
  constexpr const char *suffixes[] = {"", "k", "M", "G", "T"};
  size_t power = 0;
  while (value >= 999.5 && power < 4) {
    value /= 1000;
    ++power;
  }
  return fmt::format("{:.{}f}{}", value, power == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2, suffixes[power]);
}

Progress::Progress(std::FILE *out, uint64_t first, uint64_t total)
    : out(out), terminal(out && ::isatty(::fileno(out))), first(first), total(total) {}

Progress::~Progress() {
  if (lineOpen)
    write("\n");
}

void Progress::write(std::string_view text) {
  if (firstError)
    return;
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), out) != text.size() || std::fflush(out) != 0)
    firstError = errno ? errno : EIO;
}

std::string Progress::render(const Step &step) const {
  double remaining = secondsPerStep * static_cast<double>(total - step.step);
  int width = static_cast<int>(fmt::formatted_size("{}", total));
  return fmt::format("step {:>{}}/{}  loss {:.4f}  grad {:.3g}  lr {:.3g}  {} tokens/s  ETA {}", step.step, width,
                     total, shown(step.loss), shown(step.gradNorm), step.learningRate, formatQuantity(rate),
                     formatDuration(remaining));
}

void Progress::update(const Step &step) {
  // Averages over about the last ten seconds; the first step, which warms caches, counts least.
  double elapsed = std::max(step.seconds - lastSeconds, 1e-9);
  lastSeconds = step.seconds;
  double weight = step.step <= first + 2 ? 1 : 1 - std::exp(-elapsed / 10);
  rate += weight * (step.tokens / elapsed - rate);
  secondsPerStep += weight * (elapsed - secondsPerStep);
  if (!out)
    return;
  bool last = step.step == total;
  double interval = terminal ? terminalInterval : logInterval;
  if (!last && lastPrinted >= 0 && step.seconds - lastPrinted < interval)
    return;
  lastPrinted = step.seconds;
  std::string line = render(step);
  if (terminal) {
    write(fmt::format("\r{}\x1b[K{}", line, last ? "\n" : ""));
    lineOpen = !last;
  } else {
    write(line + "\n");
  }
}

void Progress::message(std::string_view text) {
  if (!out)
    return;
  write(fmt::format("{}{}\n", lineOpen ? "\r\x1b[K" : "", text));
  lineOpen = false;
  lastPrinted = -1; // draw the line again at the next step
}

} // namespace braid::runtime
