#include "runtime/train/ModelDifference.h"

#include "runtime/train/Checkpoint.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

// Keys of the description that change no function of the weights: of the whole model, and initial values of a mixer.
constexpr std::array modelKeys = {"name",          "dtype", "context_len", "decode_batch",
                                  "max_documents", "init",  "train",       "schedule"};
constexpr std::array mixerKeys = {"decay_range", "step_range", "slopes"};
// Of a stated recurrence's parameters: where they begin. Their names and shapes are what they are.
constexpr std::array beginKeys = {"value", "values", "log_uniform", "softplus_inverse"};

template <size_t N> bool contains(const std::array<const char *, N> &keys, const std::string &key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

bool isWord(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; }

// An equation as it is read: blanks count between words, and between a name and a parenthesis, which it would call.
std::string withoutBlanks(const std::string &text) {
  std::string result;
  bool blank = false;
  for (char c : text) {
    if (c == ' ' || c == '\t') {
      blank = true;
      continue;
    }
    bool counts = blank && !result.empty() && isWord(result.back()) && (isWord(c) || c == '(');
    result += counts ? std::string{' ', c} : std::string{c};
    blank = false;
  }
  return result;
}

bool isEquation(const std::string &path) {
  return path.starts_with("mixers.") &&
         (path.ends_with(".state") || path.ends_with(".output") || path.find(".inputs.") != std::string::npos);
}

// Every value that is no object, by its path.
void flatten(const Json &json, const std::string &path, std::map<std::string, Json> &values) {
  for (const auto &[key, value] : json.items()) {
    bool begins = path.ends_with(".parameters.")
                      ? !value.is_object()
                      : path.find(".parameters.") != std::string::npos && contains(beginKeys, key);
    if (begins || (path.empty() ? contains(modelKeys, key) : contains(mixerKeys, key)))
      continue;
    if (value.is_object())
      flatten(value, path + key + ".", values);
    else
      values.emplace(path + key, value);
  }
}

bool isSame(const std::string &path, const Json &a, const Json &b) {
  if (a.is_string() && b.is_string() && isEquation(path))
    return withoutBlanks(a.get<std::string>()) == withoutBlanks(b.get<std::string>());
  return a == b;
}

std::optional<std::map<std::string, Json>> valuesOf(std::string_view description) {
  Json json = Json::parse(description, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
  if (!json.is_object())
    return std::nullopt;
  std::map<std::string, Json> values;
  flatten(json, "", values);
  return values;
}

} // namespace

std::string describeModelDifference(std::string_view there, std::string_view here) {
  auto saved = valuesOf(there), own = valuesOf(here);
  if (!saved || !own)
    return "";
  auto text = [](const std::map<std::string, Json> &values, const std::string &path) {
    auto found = values.find(path);
    return found == values.end() ? "not given" : found->second.dump(-1, ' ', true, Json::error_handler_t::replace);
  };
  std::map<std::string, Json> all = *saved;
  all.insert(own->begin(), own->end());
  std::string result;
  size_t count = 0;
  for (const auto &[path, value] : all) {
    auto a = saved->find(path), b = own->find(path);
    if (a != saved->end() && b != own->end() && isSame(path, a->second, b->second))
      continue;
    constexpr size_t most = 3;
    if (++count <= most)
      result +=
          fmt::format("{}{}: {} there, {} here", count == 1 ? "" : "; ", path, text(*saved, path), text(*own, path));
    else if (count == most + 1)
      result += "; ..";
  }
  return result;
}

Expected<std::string> remarkOtherModel(const Program &program, const std::string &checkpoint) {
  BRAID_ASSIGN(std::string directory, resolveCheckpoint(checkpoint));
  BRAID_ASSIGN(CheckpointIndex index, readIndex(directory));
  std::string difference = describeModelDifference(index.modelJson, program.metadata("model_json").value_or(""));
  if (difference.empty())
    return difference;
  return fmt::format("{} was written by a model that computes something else than {}: {}", directory, program.path(),
                     difference);
}

} // namespace braid::runtime
