#include "tools/braid-run/Prompts.h"
#include "runtime/generate/Generator.h"
#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"
#include "runtime/train/ImportedConfig.h"
#include "runtime/train/TensorSource.h"

#include <charconv>

namespace braid::run {

using namespace braid::runtime;

namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

// What a checkpoint holds of them is what its training had.
Status checkKept(const std::string &directory) {
  if (!pathExists(directory + "/index.json"))
    return Status::success();
  BRAID_ASSIGN(CheckpointIndex index, readIndex(directory));
  for (std::string_view name : ChatTemplate::files) {
    auto known = index.files.find(name);
    if (known == index.files.end())
      continue;
    std::string path = fmt::format("{}/{}", directory, name);
    BRAID_ASSIGN(FileContent content, fileContent(path));
    if (content.hash != known->second.hash)
      return Status::error(ErrorCode::corruptFile,
                           "{}: has hash {}, but that with which {} was trained had {}; valid: --chat-template", path,
                           content.hash.hex(), directory, known->second.hash.hex());
  }
  return Status::success();
}

constexpr size_t mostDepth = 100;
constexpr std::string_view validPrompts =
    "valid: a text in quotation marks, token numbers as [1, 2, 3], or messages as [{\"role\": \"user\", \"content\": "
    "\"text\"}]";

// 1,2,3
Expected<Tokens> tokensOfList(std::string_view list, int64_t vocabulary) {
  Tokens tokens;
  for (std::string_view rest = list;;) {
    std::string_view text = rest.substr(0, rest.find(','));
    int32_t token = -1;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), token);
    if (error != std::errc() || end != text.data() + text.size() || token < 0 || token >= vocabulary)
      return Status::error("--prompt-tokens: token {} is '{}', but the vocabulary has 0 to {}", tokens.size(), text,
                           vocabulary - 1);
    tokens.push_back(token);
    if (text.size() == rest.size())
      return tokens;
    rest.remove_prefix(text.size() + 1);
  }
}

// A line of --prompts.
Expected<Tokens> tokensOfLine(std::string_view line, PromptReader &reader, std::optional<std::string> &text) {
  if (jsonDepth(line) > mostDepth)
    return Status::error("is nested deeper than {} levels; {}", mostDepth, validPrompts);
  Json value;
  try {
    value = Json::parse(line);
  } catch (const Json::exception &error) {
    const auto *place = dynamic_cast<const Json::parse_error *>(&error);
    return Status::error("is no JSON{}: {}; {}", place ? fmt::format(", at character {}", place->byte) : "",
                         jsonReason(error), validPrompts);
  }
  return reader.tokensOf(value, text);
}

Expected<Prompts> promptsOfFile(const std::string &path, PromptReader &reader) {
  if (path.empty())
    return Status::error("--prompts: the name of the file is empty");
  BRAID_ASSIGN(std::string file, readTextFile(path));
  Prompts prompts;
  size_t number = 0;
  for (std::string_view rest = file; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) // as in data: an empty line holds nothing
      continue;
    std::optional<std::string> text;
    Expected<Tokens> tokens = tokensOfLine(line, reader, text);
    if (!tokens)
      return tokens.status().withContext(fmt::format("{}:{}", path, number));
    if (!prompts.tokens.empty() && text.has_value() != prompts.text)
      return Status::error("{}:{}: the prompt is {}, but those before it are {}; valid: all of one kind", path, number,
                           text ? "a text" : "token numbers", prompts.text ? "texts" : "token numbers");
    prompts.text = text.has_value();
    if (text)
      prompts.texts.push_back(*std::move(text));
    prompts.tokens.push_back(std::move(*tokens));
    prompts.lines.push_back(number);
  }
  if (prompts.tokens.empty())
    return Status::error("{}: holds no prompt: a line each, \"text\", [1, 2, 3] or [{{\"role\": .., \"content\": ..}}]",
                         path);
  return prompts;
}

// --chat and --system.
Expected<Tokens> tokensOfChat(const PromptFlags &flags, PromptReader &reader, std::string &text) {
  Json messages = Json::array();
  if (flags.system)
    messages.push_back({{"role", "system"}, {"content", *flags.system}});
  messages.push_back({{"role", "user"}, {"content", *flags.chat}});
  BRAID_ASSIGN(text, reader.textOf(messages));
  return reader.tokensOf(text, "--prompt-tokens 1,2,3", /*whole=*/false);
}

Expected<Prompts> promptsOf(const PromptFlags &flags, PromptReader &reader) {
  if (flags.prompts)
    return promptsOfFile(*flags.prompts, reader);
  Prompts prompts;
  prompts.text = flags.prompt || flags.chat;
  if (!prompts.text) {
    BRAID_ASSIGN(Tokens tokens, tokensOfList(flags.promptTokens, reader.vocabulary));
    prompts.tokens.push_back(std::move(tokens));
    return prompts;
  }
  std::string text = flags.prompt.value_or("");
  Expected<Tokens> tokens =
      flags.chat ? tokensOfChat(flags, reader, text) : reader.tokensOf(text, "--prompt-tokens 1,2,3");
  if (!tokens)
    return tokens.status().withContext(flags.chat ? "--chat" : "--prompt");
  prompts.tokens.push_back(*std::move(tokens));
  prompts.texts.push_back(std::move(text));
  return prompts;
}

} // namespace

PromptReader::PromptReader(const PromptFlags &flags, const Program *program, int64_t vocabulary, const Texts &texts)
    : vocabulary(vocabulary), now(std::time(nullptr)), flags(flags), program(program), texts(texts) {
  if (texts.tokenizer)
    encoder.emplace(texts.tokenizer);
}

Expected<Tokens> PromptReader::tokensOf(std::string_view text, std::string_view instead, bool whole) {
  BRAID_TRY(texts.unread);
  if (!encoder) {
    BRAID_ASSIGN(bool bytes, readsBytes(*program));
    if (!bytes)
      return Status::error(ErrorCode::unsupported,
                           "{}: its {} tokens are not bytes: give their --tokenizer, or the prompt as {}",
                           program->path(), vocabulary, instead);
    return byteTokens(text);
  }
  BRAID_ASSIGN(Tokens tokens, encoder->encode(text, whole));
  for (int32_t token : tokens)
    if (token >= vocabulary)
      return Status::error("the tokenizer {} makes token {} of the prompt, but the vocabulary of {} has 0 to {}",
                           texts.tokenizer->path(), token, program ? program->path() : texts.tokenizer->path(),
                           vocabulary - 1);
  return tokens;
}

Expected<Tokens> PromptReader::tokensOf(const Json &value, std::optional<std::string> &text, bool whole) {
  if (value.is_string()) {
    text = value.get<std::string>();
    return tokensOf(*text, "[1, 2, 3]", whole);
  }
  if (value.is_object() || (value.is_array() && !value.empty() && value[0].is_object())) {
    BRAID_ASSIGN(text, textOf(value));
    return tokensOf(*text, "[1, 2, 3]", /*whole=*/false);
  }
  if (!value.is_array())
    return Status::error("is {}, no prompt; {}", shownValue(value), validPrompts);
  Tokens tokens;
  for (const Json &token : value) {
    if (!token.is_number_integer())
      return Status::error("token {} is {}, but the vocabulary has the whole numbers 0 to {}", tokens.size(),
                           shownValue(token), vocabulary - 1);
    if (token < 0 || token >= vocabulary)
      return Status::error("token {} is {}, but the vocabulary has 0 to {}", tokens.size(), shownValue(token),
                           vocabulary - 1);
    tokens.push_back(token.get<int32_t>());
  }
  return tokens;
}

Expected<std::string> PromptReader::textOf(const Json &value) {
  BRAID_ASSIGN(Chat chat, chatOf(value));
  BRAID_TRY(loadTemplate());
  for (const auto &[name, member] : variables.items())
    if (!chat.variables.contains(name))
      chat.variables[name] = member;
  return chatTemplate->render(chat, now);
}

std::optional<int32_t> PromptReader::endOfAnswer() const {
  std::optional<std::string> end = chatTemplate ? chatTemplate->endToken() : std::nullopt;
  return end && texts.tokenizer ? texts.tokenizer->tokenOf(*end) : std::nullopt;
}

Status PromptReader::loadTemplate() {
  if (chatTemplate)
    return Status::success();
  if (flags.kwargs) {
    if (jsonDepth(*flags.kwargs) <= mostDepth)
      variables = Json::parse(*flags.kwargs, nullptr, /*allow_exceptions=*/false);
    else
      variables = nullptr;
    if (!variables.is_object())
      return Status::error("--chat-template-kwargs: is no JSON object; valid: {{\"enable_thinking\": false}}");
  }
  if (flags.chatTemplate.empty()) {
    BRAID_TRY(texts.missing); // whose weights are not there has no template either
    BRAID_TRY(checkKept(texts.directory));
  }
  Expected<ChatTemplate> read = ChatTemplate::load(texts.directory, flags.chatTemplate);
  if (!read)
    return flags.chatTemplate.empty() && read.status().code() == ErrorCode::notFound
               ? Status::error(ErrorCode::notFound, "{}; valid: --chat-template FILE", read.message())
               : read.status();
  chatTemplate = *std::move(read);
  return Status::success();
}

Expected<Tokens> endsOf(const std::optional<std::string> &separator, const Texts &texts, const std::string &checkpoint,
                        std::optional<int32_t> endOfAnswer) {
  BRAID_ASSIGN(std::optional<int64_t> token, separatorOf(separator, texts));
  if (token)
    return Tokens{static_cast<int32_t>(*token)};
  Expected<std::string> directory = resolveCheckpoint(checkpoint);
  Tokens ends;
  if (directory && isImported(*directory)) {
    BRAID_ASSIGN(ends, endTokensOf(*directory));
  }
  if (ends.empty() && endOfAnswer)
    ends.push_back(*endOfAnswer);
  return ends;
}

Expected<Prompts> readPrompts(const PromptFlags &flags, const Program *program, int64_t vocabulary,
                              const Texts &texts) {
  PromptReader reader(flags, program, vocabulary, texts);
  BRAID_ASSIGN(Prompts prompts, promptsOf(flags, reader));
  prompts.chats = reader.readChats();
  prompts.endOfAnswer = reader.endOfAnswer();
  return prompts;
}

void addChatOptions(CLI::App &command, CLI::Option_group &group, PromptFlags &flags, const std::string &ofPrompts) {
  CLI::Option *chat =
      group
          .add_option("--chat", flags.chat,
                      "Message of a user to answer, written as the chat template says that lies beside the tokenizer "
                      "(chat_template.jinja, or chat_template of tokenizer_config.json)")
          ->type_name("TEXT");
  group
      .add_option("--prompts", flags.prompts,
                  "Many of them: a line of JSON each, \"text\", [1, 2, 3], messages as [{\"role\": \"user\", "
                  "\"content\": \"text\"}], or an object with messages and, if wanted, tools, documents, "
                  "chat_template_kwargs. " +
                      ofPrompts)
      ->type_name("FILE");
  command.add_option("--system", flags.system, "Message of the system in front of that of --chat")
      ->needs(chat)
      ->type_name("TEXT");
  addTemplateOptions(command, flags);
}

void addTemplateOptions(CLI::App &command, PromptFlags &flags) {
  flags.chatTemplateFlag = command
                               .add_option("--chat-template", flags.chatTemplate,
                                           "Jinja template of chats, instead of that beside the tokenizer")
                               ->type_name("FILE");
  flags.kwargsFlag = command
                         .add_option("--chat-template-kwargs", flags.kwargs,
                                     "What else the template may ask for: '{\"enable_thinking\": false}'")
                         ->type_name("JSON");
}

} // namespace braid::run
