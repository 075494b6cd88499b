#include "runtime/train/ModelDifference.h"

#include "runtime/schema/LayerPattern.h"
#include "runtime/train/Checkpoint.h"
#include "runtime/train/TensorSource.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

// Keys of the description that change no function of the weights: of the whole model, and initial values of a mixer.
constexpr std::array modelKeys = {"name",          "dtype", "context_len", "decode_batch", "import",
                                  "max_documents", "init",  "train",       "schedule"};
constexpr std::array mixerKeys = {"decay_range", "step_range", "slopes"};
// Keys of `train` that are not compiled into what a step computes: a resumed run has them from its checkpoint or its program, and says so itself.
constexpr std::array runKeys = {"batch",        "seq_len",       "accumulation_steps", "steps",
                                "warmup_steps", "learning_rate", "min_learning_rate",  "seed"};
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

// Every value that is no object, by its path; `objects`: the paths of those that are.
void flatten(const Json &json, const std::string &path, std::map<std::string, Json> &values,
             std::set<std::string> &objects) {
  objects.insert(path);
  for (const auto &[key, value] : json.items()) {
    bool begins = path.ends_with(".parameters.")
                      ? !value.is_object()
                      : path.find(".parameters.") != std::string::npos && contains(beginKeys, key);
    if (begins || (path.empty() ? contains(modelKeys, key) : contains(mixerKeys, key)))
      continue;
    if (value.is_object())
      flatten(value, path + key + ".", values, objects);
    else
      values.emplace(path + key, value);
  }
}

bool isSame(const std::string &path, const Json &a, const Json &b) {
  if (a.is_string() && b.is_string() && isEquation(path))
    return withoutBlanks(a.get<std::string>()) == withoutBlanks(b.get<std::string>());
  return a == b;
}

// What of two descriptions is compared.
enum class Part { function, training };

struct Description {
  // By path, in which a kind of layer is "@" and the first one of that kind.
  std::map<std::string, Json> values;
  std::set<std::string> objects; // "", "mixers.", "mixers.@0."
  // Such beginnings of paths as the file has them: "mixers.@0." is "mixers.N.".
  std::map<std::string, std::string> shown;
  // Values that are not the file's, as the file has them: "layer_pattern" is "\"NM\"".
  std::map<std::string, std::string> asFile;
};

// Letters and how often a pattern repeats compute nothing, so kinds of layers are named by the first layer that has them, and a
// pattern is what all layers say. What the compiler would refuse stays as it is.
void nameByLayers(Json &json, const char *patternKey, const char *kindsKey, Description &description) {
  constexpr int64_t mostLayers = 1 << 16;
  constexpr char none = '-'; // in the place of a letter: no such part
  auto layers = json.find("num_layers"), kinds = json.find(kindsKey), given = json.find(patternKey);
  // No layer has such a part: as if there were no such keys.
  if ((kinds == json.end() || (kinds->is_object() && kinds->empty())) &&
      (given == json.end() ||
       (given->is_string() && given->get<std::string>().find_first_not_of(none) == std::string::npos))) {
    json.erase(kindsKey);
    json.erase(patternKey);
    return;
  }
  if (layers == json.end() || !layers->is_number_integer() || kinds == json.end() || !kinds->is_object())
    return;
  std::string pattern = given != json.end() && given->is_string() ? given->get<std::string>() : "";
  if (given == json.end() && kinds->size() == 1)
    pattern = kinds->begin().key();
  auto count = layers->get<int64_t>();
  if (pattern.empty() || count < 1 || count > mostLayers)
    return;
  std::map<char, std::string> names;
  Json named = Json::object(), all = Json::array();
  std::vector<std::string> lettersOf = layersOfPattern(pattern);
  for (int64_t layer = 0; layer < count; ++layer) {
    const std::string &letters = lettersOf[static_cast<size_t>(layer) % lettersOf.size()];
    if (letters == std::string(1, none)) {
      all.push_back(letters);
      continue;
    }
    Json sideBySide = Json::array(); // mostly one
    for (size_t place = 0; place < letters.size(); ++place) {
      std::string letter(1, letters[place]);
      auto kind = kinds->find(letter);
      if (kind == kinds->end())
        return;
      auto [name, isNew] =
          names.emplace(letters[place], place == 0 ? fmt::format("@{}", layer) : fmt::format("@{}+{}", layer, place));
      sideBySide.push_back(name->second);
      if (!isNew)
        continue;
      named[name->second] = *kind;
      description.shown[fmt::format("{}.{}.", kindsKey, name->second)] = fmt::format("{}.{}.", kindsKey, letter);
    }
    all.push_back(std::move(sideBySide));
  }
  description.asFile[patternKey] = fmt::format("\"{}\"", pattern);
  json[kindsKey] = std::move(named);
  json[patternKey] = std::move(all);
}

Json parse(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false, /*ignore_comments=*/true);
}

std::optional<Description> describe(Json json, Part part) {
  if (!json.is_object())
    return std::nullopt;
  Description description;
  if (part == Part::training) {
    description.objects.insert("");
    if (auto train = json.find("train"); train != json.end() && train->is_object())
      flatten(*train, "train.", description.values, description.objects);
    return description;
  }
  nameByLayers(json, "layer_pattern", "mixers", description);
  nameByLayers(json, "ffn_pattern", "ffns", description);
  nameByLayers(json, "inject_pattern", "injects", description);
  flatten(json, "", description.values, description.objects);
  return description;
}

// By path, with layers named as those of the model. An object that says, left out, what an empty one does has the key
// `emptyKey`.
constexpr const char *emptyKey = "{}";
std::map<std::string, Json> defaultsOf(const Json &model, std::string_view text, Part part) {
  Json all = parse(text), named = Json::object();
  if (!all.is_object() || !model.is_object())
    return {};
  static constexpr std::array naming = {"num_layers", "layer_pattern", "ffn_pattern", "inject_pattern"};
  for (const auto &[path, value] : all.items()) {
    if (contains(naming, path))
      continue;
    Json *at = &named;
    std::string_view rest = path;
    for (size_t dot; at->is_object() && (dot = rest.find('.')) != rest.npos; rest.remove_prefix(dot + 1)) {
      Json &next = (*at)[std::string(rest.substr(0, dot))];
      at = &(next.is_null() ? next = Json::object() : next);
    }
    if (at->is_object() && value.is_object())
      (*at)[std::string(rest)][emptyKey] = true;
    else if (at->is_object())
      (*at)[std::string(rest)] = value;
  }
  for (const char *key : naming)
    if (auto given = model.find(key); given != model.end())
      named[key] = *given;
  auto description = describe(std::move(named), part);
  for (const char *key : naming)
    description->values.erase(key);
  return std::move(description->values);
}

// "mixers.@0." of "mixers.@0.window".
std::string objectOf(const std::string &path) {
  size_t dot = path.rfind('.');
  return dot == path.npos ? "" : path.substr(0, dot + 1);
}

std::string asText(const Json &value) { return value.dump(-1, ' ', true, Json::error_handler_t::replace); }

std::string valueText(const Description &description, const std::string &path) {
  if (auto found = description.asFile.find(path); found != description.asFile.end())
    return found->second;
  auto found = description.values.find(path);
  return found == description.values.end() ? "not given" : asText(found->second);
}

std::string pathText(const Description &description, const std::string &path) {
  for (const auto &[begin, file] : description.shown)
    if (path.starts_with(begin))
      return file + path.substr(begin.size());
  return path;
}

ModelDifference compare(std::string_view there, std::string_view here, std::string_view defaultsText, Part part) {
  Json ownJson = parse(here);
  std::map<std::string, Json> defaults = defaultsOf(ownJson, defaultsText, part);
  auto saved = describe(parse(there), part), own = describe(std::move(ownJson), part);
  if (!saved || !own)
    return {};
  std::map<std::string, Json> all = saved->values;
  all.insert(own->values.begin(), own->values.end());
  // What it says that a key is left out; null: that is not known, or the whole object is and may say another thing then
  // than an empty one.
  auto leftOut = [&](const Description &of, const std::string &path) -> const Json * {
    auto found = defaults.find(path);
    std::string object = objectOf(path);
    bool asEmpty = of.objects.contains(object) || defaults.contains(object + emptyKey);
    return found != defaults.end() && asEmpty ? &found->second : nullptr;
  };
  // What both say comes first: that one of them computes something else is certain.
  std::vector<std::string> differ, missing;
  for (const auto &[path, value] : all) {
    auto a = saved->values.find(path), b = own->values.find(path);
    bool isHere = b != own->values.end();
    if (a == saved->values.end() || !isHere) {
      const Json *other = leftOut(isHere ? *saved : *own, path);
      if (!other)
        missing.push_back(path);
      else if (!isSame(path, value, *other))
        differ.push_back(path);
    } else if (!isSame(path, a->second, b->second) && valueText(*saved, path) != valueText(*own, path))
      differ.push_back(path);
  }
  // Of a training what each run decides for itself is said where it does.
  ModelDifference difference;
  for (std::vector<std::string> *paths : {&differ, &missing})
    std::erase_if(*paths, [&](const std::string &path) {
      bool isRun = part == Part::training && contains(runKeys, path.substr(path.find('.') + 1));
      if (isRun)
        difference.ofRun.insert(path);
      return isRun;
    });
  difference.certain = !differ.empty();
  differ.insert(differ.end(), missing.begin(), missing.end());
  constexpr size_t most = 3;
  for (size_t i = 0; i < std::min(differ.size(), most); ++i) {
    const std::string &path = differ[i];
    auto shown = [&](const Description &description) {
      const Json *value = description.values.contains(path) ? nullptr : leftOut(description, path);
      return valueText(description, path) + (value ? " (" + asText(*value) + ")" : "");
    };
    difference.words +=
        fmt::format("{}{}: {} there, {} here", i == 0 ? "" : "; ",
                    pathText(own->values.contains(path) ? *own : *saved, path), shown(*saved), shown(*own));
  }
  if (differ.size() > most)
    difference.words += "; ..";
  return difference;
}

} // namespace

ModelDifference compareModels(std::string_view there, std::string_view here, std::string_view defaults) {
  return compare(there, here, defaults, Part::function);
}

ModelDifference compareTraining(std::string_view there, std::string_view here, std::string_view defaults) {
  return compare(there, here, defaults, Part::training);
}

Expected<std::string> remarkOtherModel(const Program &program, const std::string &checkpoint) {
  BRAID_ASSIGN(std::string directory, resolveCheckpoint(checkpoint));
  if (isImported(directory))
    return std::string(); // of the model that wrote it the shapes are known, and they fit
  BRAID_ASSIGN(CheckpointIndex index, readIndex(directory));
  ModelDifference difference = compareModels(index.modelJson, program.metadata("model_json").value_or(""),
                                             program.metadata("model_defaults").value_or(""));
  if (difference.words.empty())
    return std::string();
  if (difference.certain)
    return fmt::format("{} was written by a model that computes something else than {}: {}", directory, program.path(),
                       difference.words);
  return fmt::format("{} was written by a model that may compute something else than {}: {} (a key that is not given "
                     "has its default)",
                     directory, program.path(), difference.words);
}

} // namespace braid::runtime
