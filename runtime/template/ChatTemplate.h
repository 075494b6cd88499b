// Messages as the text that an instruct model was trained to answer: by the chat template beside its tokenizer, as
// transformers' apply_chat_template does.
#pragma once

#include "runtime/template/Template.h"

#include <nlohmann/json.hpp>

#include <map>
#include <optional>

namespace braid::runtime {

struct Chat {
  nlohmann::ordered_json messages;  // a list of objects
  nlohmann::ordered_json tools;     // a list, or null
  nlohmann::ordered_json documents; // the same
  nlohmann::ordered_json variables = nlohmann::ordered_json::object(); // others of the template: enable_thinking
};

// A list of messages, or {"messages": [..], "tools": [..], "documents": [..], "chat_template_kwargs": {..}}.
Expected<Chat> chatOf(const nlohmann::ordered_json &value);

class ChatTemplate {
public:
  // `file` has the template; where it is empty that of `directory`: chat_template.jinja, else what tokenizer_config.json
  // says, and those of additional_chat_templates. Special tokens are those of tokenizer_config.json there.
  static Expected<ChatTemplate> load(const std::string &directory, const std::string &file = "");

  // Ends where the answer begins (add_generation_prompt). `now`: the time that a template may ask for.
  Expected<std::string> render(const Chat &chat, std::time_t now) const;

  // What ends an answer, if that is said.
  std::optional<std::string> endToken() const;

  // The names of files beside a tokenizer.json that say how chats are read.
  static constexpr std::string_view files[] = {"chat_template.jinja", "special_tokens_map.json",
                                               "tokenizer_config.json"};

private:
  Status readTokens(const std::string &directory);
  Status readTemplates(const std::string &directory);
  Status add(const std::string &name, std::string_view source, const std::string &path);

  std::map<std::string, Template> templates; // by name: default, tool_use
  nlohmann::ordered_json specialTokens = nlohmann::ordered_json::object(); // bos_token and so on: their texts
  nlohmann::json config = nlohmann::json::object(); // tokenizer_config.json
};

} // namespace braid::runtime
