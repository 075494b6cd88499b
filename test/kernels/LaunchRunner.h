//===- LaunchRunner.h - runs a function of model ops through its kernels ------------------------------------------===//
//
//   LaunchRunner runner(text);                   // text: a module with @main over model ops (lsm.scan_grad,
//   attn.causal, ..) std::vector<Tensor> out = runner.run(inputs);
//
// The module goes through chunk tiling, outlining and code generation; then the launches of @main are executed one
// after the other, every program on this thread. What a session does with a plan, without the plan.
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef TEST_KERNELS_LAUNCHRUNNER_H
#define TEST_KERNELS_LAUNCHRUNNER_H

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace braid::test {

/// A dense tensor; values as double or i32, converted at the border.
struct Tensor {
  enum class Type { f32, f64, i32 };
  Type type = Type::f32;
  std::vector<int64_t> shape;
  std::vector<double> values;

  Tensor() = default;
  Tensor(Type type, std::vector<int64_t> shape, std::vector<double> values = {});
  int64_t elements() const;
  /// tensor<2x3xf32>
  std::string typeText() const;
};

class LaunchRunner {
public:
  explicit LaunchRunner(const std::string &module);
  ~LaunchRunner();
  /// What went wrong; empty: ready.
  const std::string &error() const { return message; }
  std::vector<Tensor> run(const std::vector<Tensor> &inputs);
  /// Names of the kernels launched, in order.
  std::vector<std::string> launches() const;

  struct State;

private:
  std::unique_ptr<State> state;
  std::string message;
};

} // namespace braid::test

#endif // TEST_KERNELS_LAUNCHRUNNER_H
