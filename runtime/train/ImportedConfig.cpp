#include "runtime/train/ImportedConfig.h"

#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/schema/PythonJson.h"

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

// "rope_scaling.factor": of an object in the object.
const Json *find(const Json &config, std::string_view path) {
  const Json *at = &config;
  while (true) {
    size_t dot = path.find('.');
    auto found = at->find(std::string(path.substr(0, dot))); // end() of what is no object
    if (found == at->end())
      return nullptr;
    at = &*found;
    if (dot == path.npos)
      return at;
    path.remove_prefix(dot + 1);
  }
}

constexpr size_t mostShown = 80;

std::string textOf(const Json &value) {
  return value.is_structured() ? value.dump(-1, ' ', /*ensure_ascii=*/true) : shownValue(value);
}

std::string shown(const Json &value) {
  std::string text = textOf(value);
  return value.is_structured() && text.size() > mostShown ? text.substr(0, mostShown) + ".." : text;
}

// Goes down to where two that are not equal differ first, as long as they have the same items: "[2].window_size".
std::string goToDifference(const Json *&one, const Json *&other) {
  std::string place;
  while (one->type() == other->type() && one->is_structured() && one->size() == other->size()) {
    auto a = one->begin(), b = other->begin();
    while (*a == *b && (one->is_array() || a.key() == b.key()))
      ++a, ++b;
    if (one->is_object() && a.key() != b.key())
      break;
    place += one->is_array() ? fmt::format("[{}]", a - one->begin()) : fmt::format(".{}", escaped(a.key()));
    one = &*a;
    other = &*b;
  }
  return place;
}

// A number that JSON does not have, which transformers writes as {"__float__": "Infinity"}, is the string, in lists too.
Json plain(const Json &value) {
  if (value.is_object() && value.size() == 1 && value.contains("__float__"))
    return value["__float__"];
  if (!value.is_array())
    return value;
  Json items = Json::array();
  for (const Json &item : value)
    items.push_back(item.is_array() ? item : plain(item));
  return items;
}

// None where there is no such file.
Expected<std::optional<Json>> readConfig(const std::string &path) {
  if (!pathExists(path))
    return std::optional<Json>();
  BRAID_ASSIGN(std::string text, readTextFile(path));
  auto config = parseJsonObject(quoteBareWords(text));
  BRAID_TRY(config.status().withContext(path));
  return std::optional<Json>(*std::move(config));
}

} // namespace

Expected<BlockScales> blockScalesOf(const std::string &directory) {
  std::string path = directory + "/config.json";
  BRAID_ASSIGN(std::optional<Json> config, readConfig(path));
  BlockScales scales;
  if (!config || !config->contains("quantization_config") || (*config)["quantization_config"].is_null())
    return scales;
  const Json &how = (*config)["quantization_config"];
  auto wrong = [&](std::string_view key, const Json &value) {
    return Status::error(ErrorCode::unsupported,
                         "{}: quantization_config{} is {}, and weights in that form are not read; valid: "
                         "{{\"quant_method\": \"fp8\", \"weight_block_size\": [rows, columns], ..}}, "
                         "{{\"quant_method\": \"mxfp4\"}}, or null",
                         path, key, shown(value));
  };
  if (!how.is_object())
    return wrong("", how);
  Json method = how.value("quant_method", Json());
  if (method == "mxfp4")
    return BlockScales{.rows = 1, .columns = BlockScales::ofMxfp4, .isMxfp4 = true};
  if (method != "fp8")
    return wrong(".quant_method", method);
  if (Json format = how.value("fmt", Json("e4m3")); format != "e4m3")
    return wrong(".fmt", format);
  Json block = how.value("weight_block_size", Json::array({128u, 128u})); // as transformers has it
  auto isSize = [](const Json &size) {
    return size.is_number_unsigned() && size.get<uint64_t>() - 1 < uint64_t(1) << 30;
  };
  if (!block.is_array() || block.size() != 2 || !isSize(block[0]) || !isSize(block[1]))
    return wrong(".weight_block_size", block);
  scales.rows = block[0].get<int64_t>();
  scales.columns = block[1].get<int64_t>();
  return scales;
}

Expected<std::vector<int32_t>> endTokensOf(const std::string &directory) {
  for (const char *name : {"generation_config.json", "config.json"}) {
    std::string path = fmt::format("{}/{}", directory, name);
    BRAID_ASSIGN(std::optional<Json> config, readConfig(path));
    auto said = config ? config->find("eos_token_id") : Json::iterator();
    if (!config || said == config->end() || said->is_null())
      continue;
    std::vector<int32_t> tokens;
    for (const Json &token : said->is_array() ? *said : Json::array({*said})) {
      if (!token.is_number_unsigned() || token.get<uint64_t>() > INT32_MAX)
        return Status::error(ErrorCode::corruptFile, "{}: eos_token_id is {}; valid: a token, or a list of tokens",
                             path, shown(*said));
      tokens.push_back(token.get<int32_t>());
    }
    return tokens;
  }
  return std::vector<int32_t>();
}

Expected<ImportedDraws> drawsOf(const std::string &directory) {
  std::string path = directory + "/generation_config.json";
  BRAID_ASSIGN(std::optional<Json> config, readConfig(path));
  ImportedDraws draws;
  if (!config)
    return draws;
  auto read = [&](const char *key, auto &&isValid, std::string_view valid) -> Expected<std::optional<double>> {
    auto said = config->find(key);
    if (said == config->end() || said->is_null())
      return std::optional<double>();
    double number = said->is_number() ? said->get<double>() : NAN;
    if (!isValid(number))
      return Status::error(ErrorCode::corruptFile, "{}: {} is {}; valid: {}", path, key, shown(*said), valid);
    return std::optional(number);
  };
  BRAID_ASSIGN(draws.repetitionPenalty,
               read("repetition_penalty", [](double x) { return x >= 1e-3 && x <= 1e3; }, "0.001 to 1000"));
  if (config->value("do_sample", Json()) == false)
    return draws;
  BRAID_ASSIGN(draws.temperature, read("temperature", [](double x) { return x >= 0 && x <= 1e6; }, "0 and more"));
  BRAID_ASSIGN(draws.topP, read("top_p", [](double x) { return x > 0 && x <= 1; }, "above 0, up to 1"));
  BRAID_ASSIGN(draws.minP, read("min_p", [](double x) { return x >= 0 && x <= 1; }, "0 to 1"));
  BRAID_ASSIGN(std::optional<double> topK,
               read(
                   "top_k", [](double x) { return x >= 0 && x <= INT32_MAX && x == std::floor(x); },
                   "a whole number, 0 and more"));
  if (topK)
    draws.topK = static_cast<int64_t>(*topK);
  for (const char *key : {"encoder_repetition_penalty", "typical_p"})
    if (config->value(key, Json(1)) != 1)
      draws.others.emplace_back(key);
  for (const char *key : {"epsilon_cutoff", "eta_cutoff", "no_repeat_ngram_size"})
    if (Json said = config->value(key, Json(0)); !said.is_null() && said != 0)
      draws.others.emplace_back(key);
  return draws;
}

Status checkConfig(const Program &program, const std::string &directory) {
  std::optional<std::string_view> compiled = program.metadata("model_config");
  std::string path = directory + "/config.json";
  if (!compiled)
    return Status::success();
  BRAID_ASSIGN(std::optional<Json> config, readConfig(path));
  if (!config || !config->contains("model_type"))
    return Status::success();
  Json entries = Json::parse(*compiled, nullptr, /*allow_exceptions=*/false);
  auto damaged = [&] {
    return Status::error(ErrorCode::corruptFile, "{}: metadata 'model_config' is no list of keys and values",
                         program.path());
  };
  if (!entries.is_array())
    return damaged();
  for (const Json &entry : entries) {
    if (!entry.is_object() || !entry.contains("keys") || !entry["keys"].is_array() || entry["keys"].empty() ||
        !std::ranges::all_of(entry["keys"], &Json::is_string) || !entry.contains("value") ||
        !entry.contains("absent") || (entry.contains("same") && !entry["same"].is_array()))
      return damaged();
    const Json &value = entry["value"];
    const Json *said = nullptr;
    std::string key = entry["keys"][0].get<std::string>();
    for (const Json &name : entry["keys"]) {
      said = find(*config, name.get_ref<const std::string &>());
      if (said && said->is_null())
        said = entry.contains("null") ? &entry["null"] : nullptr;
      if (said) {
        key = name.get<std::string>();
        break;
      }
    }
    const Json there = plain(said ? *said : entry["absent"]);
    if (there == plain(value) ||
        (entry.contains("same") && std::ranges::find(entry["same"], there) != entry["same"].end()))
      continue;
    std::string place = escaped(key);
    const Json *theirs = said ? said : &entry["absent"], *ours = &value;
    if (said && std::max(textOf(*theirs).size(), textOf(*ours).size()) > mostShown)
      place += goToDifference(theirs, ours);
    return Status::error(
        "{}: {} is {}{}, but program {} was compiled with {}; valid: a program compiled from this config, or "
        "weights that lie beside the other",
        path, place, said ? "" : "left out, which says ", shown(*theirs), program.path(), shown(*ours));
  }
  return Status::success();
}

} // namespace braid::runtime
