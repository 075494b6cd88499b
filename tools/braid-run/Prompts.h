// Prompts of a command: texts, token numbers, and chats, which a template turns into texts.
#pragma once

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

struct Prompts {
  std::vector<std::vector<int32_t>> tokens;
  std::vector<std::string> texts; // where they were given as texts or chats; then so are continuations
  std::vector<size_t> lines; // of the file, from 1, for each
  bool text = false;
  bool chats = false; // some are
  std::optional<int32_t> endOfAnswer; // that the template's files name
};

// `program`: whose bytes texts are where no tokenizer reads them; null: none. Tokens are below `vocabulary`.
runtime::Expected<Prompts> readPrompts(const PromptFlags &flags, const runtime::Program *program, int64_t vocabulary,
                                       const Texts &texts);

} // namespace braid::run
