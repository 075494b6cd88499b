//===- SlicesCommand.cpp - braid-plan slices: where a sequence is cut ---------------------------------------------===//
#include "frontend/ModelSpec.h"
#include "schedule/Slicing.h"
#include "tools/braid-plan/Commands.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/NumberFlag.h"
#include "tools/common/WordFlag.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

using namespace braid;
using namespace braid::schedule;

namespace {

struct Options {
  int64_t length = 0, degree = 0, align = 0;
  AttentionCost cost;
  std::string slicing = "uniform";
  double experts = 1, comm = 1, overhead = 0;
  bool json = false;
  /// Flags that not every slicing reads, what they say and the slicings that do.
  struct Partial {
    const CLI::Option *flag;
    const char *says;
    std::vector<std::string> readers;
  };
  std::vector<Partial> partial;
};

std::vector<int64_t> slice(const Options &options) {
  int64_t align = options.align ? options.align : defaultAlignment(options.length, options.degree);
  switch (*parseSlicing(options.slicing)) {
  case Slicing::uniform: return uniformSlices(options.length, options.degree);
  case Slicing::time_uniform: return timeUniformSlices(options.length, options.degree, options.cost);
  case Slicing::balanced: return balancedSlices(options.length, options.degree, options.cost, align);
  case Slicing::simulated:
    return simulatedSlices(options.length, options.degree,
                           {options.cost, 1, options.comm, options.experts, options.comm, options.overhead}, align);
  }
  return {};
}

int run(const Options &options) {
  if (options.degree > options.length)
    return plan::fail("--degree=" + llvm::Twine(options.degree) + " exceeds --length=" + llvm::Twine(options.length) +
                      "; valid: 1 to " + llvm::Twine(options.length));
  if (options.cost.heads > options.cost.dModel)
    return plan::fail("--heads=" + llvm::Twine(options.cost.heads) + " exceeds --d-model=" +
                      llvm::Twine(options.cost.dModel) + "; valid: 1 to " + llvm::Twine(options.cost.dModel));
  if (options.align > options.length / options.degree)
    return plan::fail("--align=" + llvm::Twine(options.align) + " leaves no " + llvm::Twine(options.degree) +
                      " slices (--degree) of --length=" + llvm::Twine(options.length) + "; valid: 1 to " +
                      llvm::Twine(options.length / options.degree));
  constexpr int64_t mostSimulated = 64; // every candidate is simulated, and each takes longer the more slices there are
  if (options.slicing == "simulated" && options.degree > mostSimulated)
    return plan::fail("--degree=" + llvm::Twine(options.degree) + " with --slicing=simulated; valid: 1 to " +
                      llvm::Twine(mostSimulated) + ", or another slicing");
  for (const Options::Partial &p : options.partial)
    if (p.flag->count() > 0 && !llvm::is_contained(p.readers, options.slicing))
      return plan::fail(p.flag->get_name() + "=" + p.flag->results().back() + " " + p.says +
                        ", and --slicing=" + options.slicing +
                        " does not ask; valid: with --slicing=" + fmt::format("{}", fmt::join(p.readers, " or ")));
  std::vector<int64_t> slices = slice(options);
  if (options.json) {
    fmt::print("{}\n", nlohmann::ordered_json{{"slices", slices}}.dump());
    return 0;
  }
  fmt::print("slice     tokens      from        to   share of the mixer\n");
  int64_t begin = 0;
  double all = options.cost.of(0, options.length);
  for (size_t i = 0; i < slices.size(); ++i) {
    fmt::print("{:>5} {:>10} {:>9} {:>9}   {:>6.2f} %\n", i, slices[i], begin, begin + slices[i],
               100 * options.cost.of(begin, begin + slices[i]) / all);
    begin += slices[i];
  }
  return 0;
}

} // namespace

plan::Action plan::addSlices(CLI::App &command) {
  auto options = std::make_shared<Options>();
  integerIn(command.add_option("--length", options->length, "tokens of the sequence"), 1, maxTokens)->required();
  integerIn(command.add_option("--degree", options->degree, "slices"), 1, 1024)->required();
  integerIn(command.add_option("--d-model", options->cost.dModel, "width of the model"), 1, maxWidth)->required();
  integerIn(command.add_option("--heads", options->cost.heads, "attention heads"), 1, maxWidth)->required();
  oneOf(command.add_option("--slicing", options->slicing, "uniform (default), time_uniform, balanced or simulated"),
        slicingNames)
      ->type_name("NAME");
  CLI::Option *align = command.add_option("--align", options->align,
                                          "balanced and simulated cut at multiples of so many tokens (default: 64, "
                                          "less where a slice would hold fewer than four)");
  integerIn(align, 1, maxTokens);
  options->partial.push_back({align, "says at multiples of how many tokens to cut", {"balanced", "simulated"}});
  auto ratio = [&](const char *flag, double &value, const char *help) {
    CLI::Option *option = numberIn(command.add_option(flag, value, help), From::least, 0, 1e6);
    options->partial.push_back({option, "says what takes how long", {"simulated"}});
  };
  ratio("--experts", options->experts, "simulated: time of the experts of all tokens; the mixer takes 1 (default 1)");
  ratio("--comm", options->comm, "simulated: time of one exchange of all tokens (default 1)");
  ratio("--overhead", options->overhead, "simulated: time that every task costs by itself (default 0)");
  command.add_flag("--json", options->json, "print {\"slices\": [..]}");
  return [options] { return run(*options); };
}
