// Prompts of a command: texts, token numbers, and chats, which a template turns into texts.
#pragma once

#include "runtime/template/ChatTemplate.h"
#include "tools/braid-run/Commands.h"

namespace braid::run {

struct PromptFlags {
  std::optional<std::string> prompt, prompts, chat, system, kwargs;
  std::string promptTokens; // 1,2,3
  std::string chatTemplate; // a file; empty: beside the tokenizer
  const CLI::Option *chatTemplateFlag = nullptr, *kwargsFlag = nullptr;
};

// --chat, --system, --prompts, --chat-template and --chat-template-kwargs; `group` has what says which prompts.
void addChatOptions(CLI::App &command, CLI::Option_group &group, PromptFlags &flags, const std::string &ofPrompts);

// The last two of them.
void addTemplateOptions(CLI::App &command, PromptFlags &flags);

// What turns prompts into tokens: a tokenizer, or they are bytes; of chats a template before that. Of one thread.
class PromptReader {
public:
  using Json = nlohmann::ordered_json;
  using Tokens = std::vector<int32_t>;
  // `program`: whose bytes texts are where no tokenizer reads them; null: none. Tokens are below `vocabulary`.
  PromptReader(const PromptFlags &flags, const runtime::Program *program, int64_t vocabulary, const Texts &texts);

  // `instead`: how tokens are given. `whole`: with what is put around a text.
  runtime::Expected<Tokens> tokensOf(std::string_view text, std::string_view instead, bool whole = true);
  // Of "text", [1, 2, 3] or a chat; `text`: that of the first and last; `whole`: of the first.
  runtime::Expected<Tokens> tokensOf(const Json &value, std::optional<std::string> &text, bool whole = true);
  // The text of a chat.
  runtime::Expected<std::string> textOf(const Json &value);

  // Reads the template, if it was not; chats do that, too.
  runtime::Status loadTemplate();
  bool readChats() const { return chatTemplate.has_value(); }
  // That the template's files name.
  std::optional<int32_t> endOfAnswer() const;

  const int64_t vocabulary;
  std::time_t now; // that templates may ask for

private:
  const PromptFlags &flags;
  const runtime::Program *program;
  const Texts &texts;
  std::optional<runtime::TextEncoder> encoder;
  std::optional<runtime::ChatTemplate> chatTemplate;
  Json variables = Json::object();
};

// Behind which tokens a text ends: --separator, or what lies beside weights that other software wrote; else, of chats, what
// lies beside their template.
runtime::Expected<std::vector<int32_t>> endsOf(const std::optional<std::string> &separator, const Texts &texts,
                                               const std::string &checkpoint, std::optional<int32_t> endOfAnswer);

struct Prompts {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::string> texts; // where they were given as texts or chats; then so are continuations
  std::vector<size_t> lines; // of the file, from 1, for each
  bool text = false;
  bool chats = false; // some are
  std::optional<int32_t> endOfAnswer; // that the template's files name
};

runtime::Expected<Prompts> readPrompts(const PromptFlags &flags, const runtime::Program *program, int64_t vocabulary,
                                       const Texts &texts);

} // namespace braid::run
