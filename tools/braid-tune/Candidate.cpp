//===- Candidate.cpp - one way to run a model, compiled and predicted ---------------------------------------------===//
#include "tools/braid-tune/Candidate.h"

#include "runtime/MachineMemory.h"
#include "tools/braid-plan/Forecast.h"

#include "llvm/Support/xxhash.h"

#include <fmt/format.h>

using namespace braid;
using namespace braid::tune;

CompileOptions Candidate::apply(CompileOptions options) const {
  options.remarks = false; // one of many
  options.given.clear();
  options.pipeline = pipeline;
  options.overlapDegree = overlapDegree;
  if (!overlapDegrees.empty())
    options.overlapDegrees = overlapDegrees;
  options.slicing = slicing;
  options.chunkSize = chunkSize;
  if (!spAlgorithm.empty())
    options.spAlgorithm = spAlgorithm;
  if (!stageOrder.empty())
    options.stageOrder = stageOrder;
  return options;
}

Json Candidate::toJson() const {
  Json json = {{"pipeline", pipeline}, {"overlap_degree", overlapDegree}};
  if (!overlapDegrees.empty())
    json["overlap_degrees"] = overlapDegrees;
  if (slicing != "uniform")
    json["slicing"] = slicing;
  if (chunkSize)
    json["chunk_size"] = chunkSize;
  if (!spAlgorithm.empty())
    json["sp_algorithm"] = spAlgorithm;
  if (!stageOrder.empty())
    json["stage_order"] = stageOrder;
  return json;
}

std::string Candidate::text() const {
  std::string text = pipeline == "none" ? "none" : fmt::format("{} degree {}", pipeline, overlapDegree);
  if (!overlapDegrees.empty())
    text += ", layers " + overlapDegrees;
  if (slicing != "uniform")
    text += ", " + slicing;
  if (chunkSize)
    text += fmt::format(", chunks of {}", chunkSize);
  if (!spAlgorithm.empty())
    text += ", " + spAlgorithm;
  if (!stageOrder.empty())
    text += ", " + stageOrder;
  return text;
}

/// Who does what for how long, after whom.
static uint64_t hashOf(const schedule::Problem &problem) {
  std::string text;
  for (const schedule::Task &task : problem.tasks) {
    text += fmt::format("{}|{}|{}|", task.name, task.stream, task.duration);
    for (int64_t before : task.after)
      text += fmt::format("{},", before);
  }
  return llvm::xxh3_64bits(text);
}

/// Why it does not fit: what the stage that needs most needs too much; empty: it fits.
static std::string memoryExcess(const plan::Forecast &forecast, const plan::Device &device) {
  auto most = llvm::max_element(forecast.stages, [](auto &a, auto &b) { return a.memory < b.memory; });
  if (static_cast<double>(most->memory) <= device.memory)
    return "";
  auto room = static_cast<uint64_t>(device.memory);
  return fmt::format("it does not fit: a rank{} needs {}, {} more than the {} of {}",
                     forecast.stages.size() == 1 ? "" : fmt::format(" of stage {}", most - forecast.stages.begin()),
                     runtime::formatBytes(most->memory), runtime::formatBytes(most->memory - room),
                     runtime::formatBytes(room), device.name);
}

bool tune::predict(const CompileJob &job, Candidate &candidate, const plan::Cluster &cluster) {
  CompileJob own = job;
  own.options = candidate.apply(job.options);
  std::optional<std::vector<uint8_t>> bytes = compileTables(own);
  if (!bytes)
    return false;
  std::shared_ptr<const runtime::Program> program = plan::programOf(*bytes, job.input);
  if (!program)
    return false;
  std::vector<std::string> entries = plan::defaultEntries(*program);
  std::optional<plan::Forecast> forecast = plan::forecast(*program, entries, cluster);
  std::optional<plan::Step> step = forecast ? plan::stepOf(*program, entries, *forecast, cluster) : std::nullopt;
  if (!step)
    return false;
  candidate.predicted = step->measures.makespan;
  candidate.tasks = hashOf(forecast->problem);
  candidate.dropped = memoryExcess(*forecast, cluster.device);
  return true;
}

bool tune::build(const CompileJob &job, const Candidate &candidate, const std::string &file) {
  CompileJob own = job;
  own.options = candidate.apply(job.options);
  own.output = file;
  return compile(own);
}
