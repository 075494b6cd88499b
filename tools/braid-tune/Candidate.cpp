//===- Candidate.cpp - one way to run a model, predicted and measured ---------------------------------------------===//
#include "tools/braid-tune/Candidate.h"

#include "runtime/train/Trainer.h"
#include "tools/braid-plan/Forecast.h"

#include <fmt/format.h>

#include <fstream>
#include <random>

using namespace braid;
using namespace braid::tune;
using runtime::Program;

CompileOptions Candidate::apply(CompileOptions options) const {
  options.pipeline = pipeline;
  options.overlapDegree = overlapDegree;
  options.slicing = slicing;
  options.chunkSize = chunkSize;
  if (!spAlgorithm.empty())
    options.spAlgorithm = spAlgorithm;
  return options;
}

Json Candidate::toJson() const {
  Json json = {{"pipeline", pipeline}, {"overlap_degree", overlapDegree}};
  if (slicing != "uniform")
    json["slicing"] = slicing;
  if (chunkSize)
    json["chunk_size"] = chunkSize;
  if (!spAlgorithm.empty())
    json["sp_algorithm"] = spAlgorithm;
  return json;
}

std::string Candidate::text() const {
  std::string text = pipeline == "none" ? "none" : fmt::format("{} degree {}", pipeline, overlapDegree);
  if (slicing != "uniform")
    text += ", " + slicing;
  if (chunkSize)
    text += fmt::format(", chunks of {}", chunkSize);
  if (!spAlgorithm.empty())
    text += ", " + spAlgorithm;
  return text;
}

std::optional<double> tune::predict(const CompileJob &job, const Candidate &candidate, const plan::Cluster &cluster,
                                    llvm::function_ref<plan::Experts(int64_t)> experts) {
  CompileJob own = job;
  own.options = candidate.apply(job.options);
  std::optional<std::vector<uint8_t>> bytes = compileTables(own);
  if (!bytes)
    return std::nullopt;
  auto *begin = reinterpret_cast<const std::byte *>(bytes->data());
  auto program = Program::parse({begin, begin + bytes->size()}, job.input);
  if (!program.ok())
    return std::nullopt;
  return plan::forecast(**program, (*program)->findEntry("train_step") ? "train_step" : "accumulate_step", cluster,
                        experts)
      .measures.makespan;
}

bool tune::build(const CompileJob &job, const Candidate &candidate, const std::string &file) {
  CompileJob own = job;
  own.options = candidate.apply(job.options);
  own.output = file;
  return compile(own);
}

std::optional<std::string> tune::measure(const std::string &file, int64_t steps, int threads, Measurement &result) {
  auto program = Program::load(file);
  if (!program.ok())
    return program.status().message();
  auto vocabulary = runtime::vocabularyOf(**program);
  if (!vocabulary.ok())
    return vocabulary.status().message();
  // Documents of several lengths; tokens without any order, so that routers see all experts.
  runtime::Corpus corpus(*vocabulary, /*text=*/*vocabulary == 256), nothing(*vocabulary, *vocabulary == 256);
  std::mt19937 random(1);
  for (int document = 0; document < 256; ++document) {
    std::vector<uint32_t> tokens(64 + random() % 1024);
    for (uint32_t &token : tokens)
      token = random() % static_cast<uint32_t>(*vocabulary);
    corpus.append(tokens);
    corpus.endDocument();
  }
  runtime::TrainOptions options;
  options.steps = steps;
  options.warmupSteps = 0;
  options.seed = 1;
  options.metricsPath = file + ".jsonl";
  runtime::RankOptions ranks;
  ranks.ranks = static_cast<int>((*program)->mesh().worldSize());
  ranks.threads = threads;
  runtime::Status status = runtime::runRanks(*program, ranks, [&](runtime::Rank &rank) -> runtime::Status {
    return runtime::train(rank, options, corpus, nothing).status();
  });
  if (!status.ok())
    return status.message();
  double before = 0;
  std::ifstream metrics(options.metricsPath);
  for (std::string line; std::getline(metrics, line);) {
    Json step = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!step.is_object() || !step.contains("seconds") || !step["loss"].is_number())
      return fmt::format("{}: a step has neither time nor loss: {}", options.metricsPath, line);
    // Since the begin of the run; the first step pays for what is made once.
    double now = step["seconds"];
    if (!result.losses.empty())
      result.seconds.push_back(now - before);
    before = now;
    result.losses.push_back(step["loss"]);
  }
  return std::nullopt;
}
