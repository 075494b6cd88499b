// What a person watches while a model trains: one line that redraws itself on a terminal, a line now and then
// elsewhere. Nobody who watches (a closed pipe, a full disk) is no reason to end a training: error() tells in the end.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

namespace braid::runtime {

class Progress {
public:
  // `out` may be null: silent. `first` is the number of steps that were done before.
  Progress(std::FILE *out, uint64_t first, uint64_t total);
  ~Progress();

  struct Step {
    uint64_t step;
    double loss, gradNorm, learningRate;
    double tokens;  // of this step, all ranks
    double seconds; // since the run began
  };
  void update(const Step &step);
  // A whole line of its own.
  void message(std::string_view text);
  double tokensPerSecond() const { return rate; }
  // errno of the first write that failed; 0: none. Nothing is written after it.
  int error() const { return firstError; }

private:
  std::string render(const Step &step) const;
  void write(std::string_view text);

  std::FILE *out;
  bool terminal;
  uint64_t first, total;
  double rate = 0, secondsPerStep = 0;
  double lastSeconds = 0, lastPrinted = -1;
  bool lineOpen = false;
  int firstError = 0;
};

// "42s", "3m 20s", "2h 05m".
std::string formatDuration(double seconds);
// "950", "12.3k", "4.56M".
std::string formatQuantity(double value);

} // namespace braid::runtime
