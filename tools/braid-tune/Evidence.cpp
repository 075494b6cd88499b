//===- Evidence.cpp - what a choice of a schedule holds for -------------------------------------------------------===//
#include "tools/braid-tune/Evidence.h"

#include "frontend/ModelSpec.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/xxhash.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <thread>

using namespace braid;
using namespace braid::tune;

std::string tune::hashOf(llvm::StringRef text) { return fmt::format("{:016x}", llvm::xxh3_64bits(text)); }

std::string tune::machineName() {
  std::ifstream info("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(info, line);)
    if (line.starts_with("model name")) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  return fmt::format("{} x {}", std::thread::hardware_concurrency(), model);
}

std::vector<std::string> tune::changesSince(const Json &schedule, const Json &identity) {
  std::vector<std::string> changes;
  Json tuned = schedule.value(evidenceKey, Json());
  if (!tuned.is_object())
    return changes;
  auto text = [](const Json &value, const char *absent) {
    return value.is_null() ? std::string(absent) : value.dump();
  };
  for (const auto &[key, now] : identity.items())
    if (Json before = tuned.value(key, Json()); before != now)
      changes.push_back(fmt::format("{} was {}, is {}", key, text(before, "not known"), text(now, "not asked for")));
  if (Json chosen = tuned.value(chosenKey, Json()), is = choiceOf(schedule);
      nlohmann::json(chosen) != nlohmann::json(is)) // in any order
    changes.push_back(fmt::format("the choice was {}, is {}", text(chosen, "not known"), is.dump()));
  if (Json rates = tuned.value(ratesKey, Json()), are = schedule.value("machine", Json());
      !rates.is_null() && nlohmann::json(rates) != nlohmann::json(are))
    changes.push_back(fmt::format("schedule.machine was {}, is {}", rates.dump(), text(are, "not there")));
  return changes;
}

std::string tune::untriedDegrees(const Json &schedule, llvm::ArrayRef<int64_t> degrees) {
  Json tried = schedule.value(evidenceKey, Json::object()).value(degreesKey, Json());
  llvm::SmallVector<llvm::StringRef> words;
  std::string text = tried.is_string() ? tried.get<std::string>() : "";
  llvm::StringRef(text).split(words, ',');
  std::vector<int64_t> missing;
  for (int64_t degree : degrees)
    if (degree > 1 && !llvm::is_contained(words, std::to_string(degree)))
      missing.push_back(degree);
  return missing.empty() ? ""
                         : fmt::format("degrees was {}, without {} (--degrees)",
                                       tried.is_null() ? "not known" : tried.dump(), fmt::join(missing, ", "));
}

/// What flags say in the place of keys that a search takes as they are in the file.
static std::vector<std::string> changesByFlags(const Json &model, const CompileOptions &options) {
  ModelSpec defaults;
  std::vector<std::string> changes;
  auto compare = [&](const char *path, const auto &flag, const Json &otherwise) {
    if (!flag)
      return;
    Json before = model.value(Json::json_pointer(path), otherwise);
    std::string name = llvm::StringRef(path).drop_front().str();
    std::replace(name.begin(), name.end(), '/', '.');
    if (Json now = *flag; now != before)
      changes.push_back(
          fmt::format("{} was {}, is {}", name, before.is_null() ? "not there" : before.dump(), now.dump()));
  };
  compare("/dtype", options.dtype, defaults.dtype);
  compare("/train/accumulation_steps", options.accumulationSteps, defaults.train.accumulationSteps);
  compare("/train/micro_batches", options.microBatches, Json());
  compare("/schedule/stage_layers", options.stageLayers, Json());
  compare("/schedule/head_stages", options.headStages, defaults.schedule.headStages);
  compare("/train/gradient_dtype", options.gradientDtype, defaults.train.gradientDtype);
  compare("/train/moment_dtype", options.momentDtype, defaults.train.momentDtype);
  compare("/schedule/recompute", options.recompute, "none");
  compare("/schedule/activation_budget", options.activationBudget, Json());
  compare("/schedule/expert_room", options.expertRoom, Json());
  return changes;
}

std::string tune::staleWarning(const std::string &path, const CompileOptions &options, const std::string &cluster) {
  bool given = !options.pipeline.empty() || options.overlapDegree != 0 || options.overlapDegrees ||
               !options.slicing.empty() || options.chunkSize != 0 || options.spAlgorithm || options.stageOrder;
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/true);
  if (given || !file || !llvm::StringRef(path).ends_with(".json"))
    return "";
  std::string text = (*file)->getBuffer().str();
  Json model = Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  Json schedule = model.is_object() ? model.value("schedule", Json()) : Json();
  Json tuned = schedule.is_object() ? schedule.value(evidenceKey, Json()) : Json();
  Json kind = tuned.is_object() ? tuned.value("kind", Json()) : Json();
  bool measured = kind == Json("measured");
  if (!measured && kind != Json("predicted"))
    return ""; // nothing was tuned, or what is wrong is the compiler's to say
  Json train = model.value("train", Json::object());
  auto asked = [&](const char *key, std::optional<int64_t> flag) -> Json {
    return flag ? Json(*flag) : train.is_object() ? train.value(key, Json()) : Json();
  };
  Json identity = {{"mesh", options.mesh}, {"description", hashOf(withoutChoice(text))}};
  for (auto [key, flag] : {std::pair("batch", options.batch), std::pair("seq_len", options.seqLen)})
    if (Json now = asked(key, flag); !now.is_null())
      identity[key] = now;
  if (measured && cluster.empty() && options.target == "cpu" && options.cpu == "native")
    identity["machine"] = machineName();
  if (!measured && !cluster.empty())
    identity["machine"] = cluster;
  std::vector<std::string> changes = changesSince(schedule, identity);
  for (std::string &change : changesByFlags(model, options))
    changes.push_back(std::move(change));
  if (changes.empty())
    return "";
  return fmt::format("{}: schedule.tuned is stale, this schedule was chosen for something else: {}; braid-tune chooses "
                     "again",
                     path, fmt::join(changes, "; "));
}
