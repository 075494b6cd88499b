//===- ScheduleCommand.cpp - braid-plan schedule: stage times -> order, makespan, exposure ------------------------===//
#include "schedule/Draw.h"
#include "schedule/Verify.h"
#include "tools/braid-plan/Commands.h"
#include "tools/braid-plan/StagesFile.h"
#include "tools/common/InputFile.h"
#include "tools/common/IntegerFlag.h"
#include "tools/common/WordFlag.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <numeric>

using namespace braid;
using namespace braid::schedule;
using Json = nlohmann::ordered_json;

namespace {

struct Options {
  std::string stages, pipeline;
  bool json = false;
  int64_t width = 100; ///< characters of the text
  plan::Pictures pictures;
};

Json toJson(const Plan &plan, const Measures &measures) {
  Json streams = Json::object(), tasks = Json::array();
  for (size_t s = 0; s < plan.problem.streams.size(); ++s) {
    Json names = Json::array();
    for (int64_t task : plan.schedule.orders[s])
      names.push_back(plan.problem.tasks[task].name);
    streams[plan.problem.streams[s]] = std::move(names);
  }
  std::vector<size_t> byStart(plan.problem.tasks.size());
  std::iota(byStart.begin(), byStart.end(), size_t(0));
  std::sort(byStart.begin(), byStart.end(), [&](size_t a, size_t b) {
    auto key = [&](size_t task) { return std::tuple(plan.schedule.start[task], plan.schedule.end[task], task); };
    return key(a) < key(b);
  });
  for (size_t task : byStart)
    tasks.push_back({{"name", plan.problem.tasks[task].name},
                     {"stream", plan.problem.streams[plan.problem.tasks[task].stream]},
                     {"start", plan.schedule.start[task]},
                     {"end", plan.schedule.end[task]}});
  return {{"makespan", measures.makespan},
          {"compute_busy", measures.computeBusy},
          {"exposed_comm", measures.exposedComm},
          {"bubble", measures.bubble},
          {"lower_bound", plan.lowerBound},
          {"optimal", plan.optimal},
          {"chosen", plan.how},
          {"streams", std::move(streams)},
          {"tasks", std::move(tasks)}};
}

void printText(const Plan &plan, const Measures &measures, int64_t width) {
  fmt::print("{}\n", drawText(plan.problem, plan.schedule, width));
  fmt::print("order          {}\n", plan.how);
  fmt::print("makespan       {:.6g}   lower bound {:.6g}{}\n", measures.makespan, plan.lowerBound,
             plan.optimal ? "; no order of these slices is faster" : "");
  fmt::print("compute busy   {:.6g}\n", measures.computeBusy);
  fmt::print("exposed comm   {:.6g}\n", measures.exposedComm);
  fmt::print("bubble         {:.1f} %\n", 100 * measures.bubble);
}

int run(const Options &options) {
  if (int code = options.pictures.check(NamedFile{"--stages " + options.stages, options.stages}))
    return code;
  std::optional<std::string> text = readFile(options.stages);
  if (!text)
    return 1;
  std::optional<Stages> stages =
      plan::parseStages(*text, options.stages, [](const std::string &message) { plan::fail(message); });
  if (!stages)
    return 1;
  if (!options.pipeline.empty())
    stages->pipeline = *parsePipeline(options.pipeline);
  Plan result = planStages(*stages);
  // A wrong plan would be a wrong answer that looks right.
  for (const std::string &error : verify(result.problem, result.schedule))
    return plan::fail("the schedule of " + options.stages + " is not proved: " + error);
  Measures measures = measure(result.problem, result.schedule);
  if (int code = options.pictures.write(result.problem, result.schedule,
                                        std::string(pipelineNames[static_cast<size_t>(stages->pipeline)]) + ", " +
                                            std::string(directionNames[static_cast<size_t>(stages->direction)]),
                                        /*unitSeconds=*/1e-3))
    return code;
  if (options.json)
    fmt::print("{}\n", toJson(result, measures).dump(1));
  else
    printText(result, measures, options.width);
  return 0;
}

} // namespace

plan::Action plan::addSchedule(CLI::App &command) {
  auto options = std::make_shared<Options>();
  command.add_option("--stages", options->stages, "times of every stage and slice (tools/README.md)")
      ->required()
      ->type_name("S.json");
  oneOf(command.add_option("--schedule", options->pipeline,
                           "instead of the file's: none, moe, aAaM, 1A1M, cross-block or best"),
        pipelineNames)
      ->type_name("NAME");
  CLI::Option *json = command.add_flag("--json", options->json, "print everything as JSON, for programs to read");
  options->pictures.addOptions(command);
  integerIn(command.add_option("--width", options->width, "characters of the drawing (default 100)"), 20, 10000)
      ->excludes(json);
  return [options] { return run(*options); };
}
