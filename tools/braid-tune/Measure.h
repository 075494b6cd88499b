//===- Measure.h - training steps of a program, timed and compared ------------------------------------------------===//
// braid-run trains, as it does for anybody: ranks are threads of one process of it, or whatever a launcher starts.
#ifndef TOOLS_BRAIDTUNE_MEASURE_H
#define TOOLS_BRAIDTUNE_MEASURE_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace braid::tune {

/// How a program is run.
struct Runner {
  std::string braidRun; ///< its path
  std::vector<std::string> launcher; ///< the words in front of it, "mpirun", "-n", "2"; empty: ranks are threads
  int64_t ranks = 1, threads = 1; ///< worker threads of a rank
  int64_t steps = 6; ///< of one run; the first pays for what is made once and is not timed
  std::string folder; ///< for data, metrics and logs; every rank sees it

  /// Made-up documents of several lengths, whose tokens have no order, so that routers see all experts; an error as
  /// text.
  std::optional<std::string> writeData(int64_t vocabulary) const;
};

struct Measurement {
  std::vector<double> seconds; ///< of every timed step of all runs
  std::vector<double> losses, gradNorms; ///< of every step of the last run

  double median() const; ///< seconds
  /// Half the width of the interval that holds the median of 95 of 100 such measurements (1.57 quartile distances by
  /// the root of their number); infinite below 4 steps, which show no spread.
  double spread() const;
};

/// Adds a run of the program to `result`: the same start and the same data every time. An error as text.
std::optional<std::string> measure(const Runner &runner, const std::string &program, Measurement &result);

/// How far what two programs compute may be apart, relative to its size, where they compute the same and only round
/// differently: they sum in other orders (f32; f64 of f64 programs), and activations are rounded to their type at other
/// places. With the unit roundoffs `s` of sums (2^-24, 2^-53) and `a` of activations (f32 2^-24, bf16 2^-8, f64 2^-53):
struct Tolerance {
  double loss = 0; ///< of step n times n, for every update adds its own: 32 s + 8 a / sqrt(tokens), a mean over tokens
  double gradient = 0; ///< of the norm of the first step, before updates make two models of one: 64 s + 2 a
};
/// `dtype` of activations: "f32", "bf16", "f64"; tokens of a step.
Tolerance toleranceOf(const std::string &dtype, int64_t tokens);

/// An error if two runs of one program, of the same start and data, have not the same bits.
std::optional<std::string> repetition(const Measurement &before, const Measurement &now);

/// What of `own` is not what `plain` computed, of the same start and data; empty: all of it is.
std::string disagreement(const Measurement &own, const Measurement &plain, const Tolerance &tolerance);

} // namespace braid::tune

#endif // TOOLS_BRAIDTUNE_MEASURE_H
