#include "runtime/template/ChatTemplate.h"
#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"

#include <filesystem>
#include <fmt/ranges.h>

namespace braid::runtime {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

static Status checkObjects(const OrderedJson &list, std::string_view what) {
  if (!list.is_array())
    return Status::error("{} is {}; valid: a list", what, shownValue(list));
  for (size_t i = 0; i < list.size(); ++i)
    if (!list[i].is_object())
      return Status::error("{}[{}] is {}; valid: an object", what, i, shownValue(list[i]));
  return Status::success();
}

Expected<Chat> chatOf(const OrderedJson &value) {
  Chat chat;
  if (value.is_array()) {
    chat.messages = value;
  } else if (value.is_object()) {
    for (const auto &[key, member] : value.items()) {
      if (key == "messages")
        chat.messages = member;
      else if (key == "tools")
        chat.tools = member;
      else if (key == "documents")
        chat.documents = member;
      else if (key == "chat_template_kwargs")
        chat.variables = member;
      else
        return Status::error("has '{}'; valid: messages, tools, documents, chat_template_kwargs", escaped(key));
    }
  } else {
    return Status::error("is {}; valid: a list of messages, or an object with one", shownValue(value));
  }
  BRAID_TRY(checkObjects(chat.messages, "messages"));
  if (chat.messages.empty())
    return Status::error("messages is empty; valid: at least one message");
  for (auto [list, what] : {std::pair(&chat.tools, "tools"), {&chat.documents, "documents"}})
    if (!list->is_null())
      BRAID_TRY(checkObjects(*list, what));
  if (!chat.variables.is_object())
    return Status::error("chat_template_kwargs is {}; valid: an object", shownValue(chat.variables));
  return chat;
}

// ---- Reading --------------------------------------------------------------------------------------------------------

static Expected<Json> readObject(const std::string &path) {
  if (!pathExists(path))
    return Json::object();
  BRAID_ASSIGN(std::string text, readTextFile(path));
  Expected<Json> json = parseJsonObject(text);
  return json ? std::move(json) : Expected<Json>(json.status().withContext(path));
}

Expected<ChatTemplate> ChatTemplate::load(const std::string &directory, const std::string &file) {
  ChatTemplate result;
  BRAID_ASSIGN(result.config, readObject(directory + "/tokenizer_config.json"));
  BRAID_TRY(result.readTokens(directory));
  if (file.empty()) {
    BRAID_TRY(result.readTemplates(directory));
  } else {
    BRAID_ASSIGN(std::string source, readTextFile(file));
    BRAID_TRY(result.add("default", source, file));
  }
  result.config.clear();
  return result;
}

Status ChatTemplate::add(const std::string &name, std::string_view source, const std::string &path) {
  BRAID_ASSIGN(Template parsed, Template::parse(source, path));
  templates.insert_or_assign(name, std::move(parsed));
  return Status::success();
}

// A token is its text, or an object with it.
static std::optional<std::string> textOfToken(const Json &token) {
  if (token.is_string())
    return token.get<std::string>();
  if (token.is_object())
    if (auto content = token.find("content"); content != token.end() && content->is_string())
      return content->get<std::string>();
  return std::nullopt;
}

Status ChatTemplate::readTokens(const std::string &directory) {
  BRAID_ASSIGN(Json more, readObject(directory + "/special_tokens_map.json"));
  auto extra = config.find("extra_special_tokens");
  static const Json none = Json::object();
  for (const Json *tokens : {&std::as_const(config), &std::as_const(more),
                             extra != config.end() && extra->is_object() ? &std::as_const(*extra) : &none})
    for (const auto &[name, token] : tokens->items())
      if (name.ends_with("_token") && !specialTokens.contains(name))
        if (std::optional<std::string> text = textOfToken(token))
          specialTokens[name] = *std::move(text);
  return Status::success();
}

Status ChatTemplate::readTemplates(const std::string &directory) {
  std::string main = directory + "/chat_template.jinja", others = directory + "/additional_chat_templates";
  std::error_code unknown;
  if (pathExists(main)) {
    BRAID_ASSIGN(std::string source, readTextFile(main));
    BRAID_TRY(add("default", source, main));
  }
  if (std::filesystem::is_directory(others, unknown)) {
    BRAID_ASSIGN(std::vector<std::string> names, listDirectory(others));
    for (const std::string &name : names)
      if (name.ends_with(".jinja")) {
        BRAID_ASSIGN(std::string source, readTextFile(others + "/" + name));
        BRAID_TRY(add(name.substr(0, name.size() - 6), source, others + "/" + name));
      }
  }
  auto said = config.find("chat_template");
  if (!templates.empty() || said == config.end() || said->is_null())
    return templates.empty() ? Status::error(ErrorCode::notFound,
                                             "{}: holds no chat template: neither chat_template.jinja nor "
                                             "chat_template in tokenizer_config.json is there",
                                             directory)
                             : Status::success();
  std::string place = directory + "/tokenizer_config.json";
  if (said->is_string())
    return add("default", said->get<std::string>(), place + ": chat_template");
  auto text = [](const Json &entry, const char *key) {
    auto found = entry.is_object() ? entry.find(key) : entry.end();
    return found != entry.end() && found->is_string() ? &found->get_ref<const std::string &>() : nullptr;
  };
  for (const Json &entry : said->is_array() ? *said : Json::array({nullptr})) {
    const std::string *name = text(entry, "name"), *source = text(entry, "template");
    if (!name || !source)
      return Status::error(ErrorCode::corruptFile,
                           "{}: chat_template is {}; valid: a text, or a list of objects with name and template", place,
                           shownValue(OrderedJson(*said)));
    BRAID_TRY(add(*name, *source, fmt::format("{}: chat_template '{}'", place, escaped(*name))));
  }
  return Status::success();
}

std::optional<std::string> ChatTemplate::endToken() const {
  auto token = specialTokens.find("eos_token");
  return token == specialTokens.end() ? std::nullopt : std::optional(token->get<std::string>());
}

// ---- Rendering ------------------------------------------------------------------------------------------------------

// Members that are null are left out, and what a message reasons has the names that templates ask for.
static OrderedJson plainMessage(const OrderedJson &message) {
  OrderedJson kept = OrderedJson::object();
  for (const auto &[key, value] : message.items())
    if (!value.is_null())
      kept[key] = value;
  for (const char *name : {"reasoning_content", "thinking", "reasoning"}) {
    auto found = kept.find(name);
    if (found == kept.end())
      continue;
    OrderedJson reasoning = *found, named = OrderedJson::object();
    named["thinking"] = reasoning;
    for (const auto &[key, value] : kept.items())
      named[key] = value;
    named["reasoning_content"] = reasoning;
    return named;
  }
  return kept;
}

Expected<std::string> ChatTemplate::render(const Chat &chat, std::time_t now) const {
  auto found = templates.find("tool_use");
  if (chat.tools.is_null() || found == templates.end())
    found = templates.find("default");
  if (found == templates.end()) {
    std::vector<std::string> names;
    for (const auto &[name, parsed] : templates)
      names.push_back(escaped(name));
    return Status::error(ErrorCode::unsupported, "{}; valid: --chat-template",
                         names.empty()
                             ? "there is no chat template"
                             : fmt::format("of the chat templates {} none is the default", fmt::join(names, ", ")));
  }
  OrderedJson variables = specialTokens;
  for (const auto &[name, value] : chat.variables.items()) {
    static constexpr std::string_view ofChat[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (std::ranges::find(ofChat, std::string_view(name)) != std::end(ofChat))
      return Status::error("chat_template_kwargs: '{}' is what the chat itself is; valid: other names", name);
    variables[name] = value;
  }
  OrderedJson messages = OrderedJson::array();
  for (const OrderedJson &message : chat.messages)
    messages.push_back(plainMessage(message));
  variables["messages"] = std::move(messages);
  variables["tools"] = chat.tools;
  variables["documents"] = chat.documents;
  variables["add_generation_prompt"] = true;
  return found->second.render(variables, now);
}

} // namespace braid::runtime
