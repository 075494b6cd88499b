// A model of one recurrence in its own notation, from the parts that tests give.
#ifndef TEST_FRONTEND_RECURRENCETEXTS_H
#define TEST_FRONTEND_RECURRENCETEXTS_H

#include "frontend/ModelSpec.h"
#include "frontend/Recurrence.h"
#include <gtest/gtest.h>
#include <regex>

namespace braid {

struct Text {
  std::string state = "M = exp(g) M + k^T v", output = "o = q M", inputs{}, parameters{}, more{};
};

inline std::string description(const Text &text) {
  std::string inputs = text.inputs.empty() ? R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)",
      "g": "log_sigmoid(linear(x))")j"
                                           : text.inputs;
  return R"j({"vocab_size": 256, "d_model": 64, "num_layers": 1, "layer_pattern": "R", "ffns": {"D": {"kind": "dense", "hidden": 64}},
    "mixers": {"R": {"kind": "recurrence", "heads": 4, "head_dim": 8, "value_dim": 16, "state": ")j" +
         text.state + R"j(", "output": ")j" + text.output + R"j(", "inputs": {)j" + inputs + "}" +
         (text.parameters.empty() ? "" : R"j(, "parameters": {)j" + text.parameters + "}") + text.more + "}}}";
}

inline std::vector<std::string> errorsOf(const std::string &text) {
  std::vector<std::string> errors;
  auto spec = parseModelSpec(text, "m", [&](const std::string &message) { errors.push_back(message); });
  EXPECT_EQ(succeeded(spec), errors.empty());
  return errors;
}

inline std::shared_ptr<const recurrence::Recurrence> read(const Text &text) {
  std::string all;
  auto spec = parseModelSpec(description(text), "m", [&](const std::string &message) { all += message + "\n"; });
  EXPECT_TRUE(succeeded(spec)) << all;
  return succeeded(spec) ? std::get<RecurrenceSpec>(spec->mixers.at('R')).recurrence : nullptr;
}

inline const std::string delta =
    R"j("q": "linear(x)", "k": "l2_norm(linear(x))", "v": "linear(x)", "b": "sigmoid(linear(x))")j";
inline const std::string gatedDelta = delta + R"j(, "g": "log_sigmoid(linear(x))")j";
inline const std::string plain = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)")j";
inline const std::string twoGates = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "log_sigmoid(linear(x))")j";
inline const std::string steps = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", "r": "sigmoid(linear(x))")j";
inline const std::string step = "M = M - r grad(l2(k M - v))";
inline const std::string lowRank = plain + R"j(, "g": "log_sigmoid(linear(x))", "c": "linear(x)", "h": "-c")j";

/// Definitions of the names in equations.
inline std::string inputsOf(const std::string &equations) {
  const std::pair<const char *, const char *> definitions[] = {{"q", "linear(x)"},
                                                               {"k", "linear(x)"},
                                                               {"v", "linear(x)"},
                                                               {"c", "linear(x)"},
                                                               {"p", "linear(x)"},
                                                               {"u", "linear(x)"},
                                                               {"a", "sigmoid(linear(x))"},
                                                               {"b", "sigmoid(linear(x))"},
                                                               {"s", "sigmoid(linear(x, per=head))"},
                                                               {"g", "log_sigmoid(linear(x))"},
                                                               {"h", "log_sigmoid(linear(x))"}};
  std::string inputs;
  for (auto [name, text] : definitions)
    if (std::regex_search(equations, std::regex(std::string("\\b") + name + "\\b")))
      inputs += std::string(inputs.empty() ? "" : ", ") + "\"" + name + "\": \"" + text + "\"";
  return inputs;
}

} // namespace braid

#endif // TEST_FRONTEND_RECURRENCETEXTS_H
