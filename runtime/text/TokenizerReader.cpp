#include "runtime/text/TokenizerReader.h"

#include "runtime/io/File.h"
#include "runtime/io/JsonText.h"

#include <algorithm>
#include <filesystem>

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

constexpr int mostProcessors = 64;

// "a b", of which neither part has a blank, or ["a", "b"].
Expected<std::pair<std::string, std::string>> pairOf(const Json &value, size_t rank) {
  if (value.is_string()) {
    const std::string &text = value.get_ref<const std::string &>();
    size_t blank = text.find(' ');
    if (blank != std::string::npos && text.find(' ', blank + 1) == std::string::npos)
      return std::pair(text.substr(0, blank), text.substr(blank + 1));
  } else if (value.is_array() && value.size() == 2 && value[0].is_string() && value[1].is_string()) {
    return std::pair(value[0].get<std::string>(), value[1].get<std::string>());
  }
  return Status::error(ErrorCode::corruptFile,
                       "model.merges[{}]: is {}; valid: two tokens, as \"a b\" or [\"a\", \"b\"]", rank,
                       shownValue(value));
}

bool isToken(const Json &value) { return value.is_number_unsigned() && value.get<uint64_t>() <= INT32_MAX; }

// What the processor puts around a text.
Status addProcessor(const Json &value, const std::string &at, std::vector<int32_t> &prefix,
                    std::vector<int32_t> &suffix, bool &adds, int &left) {
  if (--left < 0)
    return Status::error(ErrorCode::corruptFile, "{}: more than {} processors", at, mostProcessors);
  BRAID_ASSIGN(TokenizerFields fields, TokenizerFields::of(value, at));
  BRAID_ASSIGN(std::string type, fields.text("type"));
  if (type == "Sequence") {
    BRAID_ASSIGN(const Json *processors, fields.list("processors"));
    for (size_t i = 0; i < processors->size(); ++i)
      BRAID_TRY(addProcessor((*processors)[i], fmt::format("{}[{}]", fields.at("processors"), i), prefix, suffix, adds,
                             left));
    return Status::success();
  }
  if (type == "ByteLevel") // says where tokens stand in the text
    return Status::success();
  std::vector<int32_t> before, behind;
  if (type == "RobertaProcessing" || type == "BertProcessing") {
    for (auto [key, tokens] : {std::pair("cls", &before), std::pair("sep", &behind)}) {
      BRAID_ASSIGN(const Json *token, fields.list(key));
      if (token->size() != 2 || !isToken((*token)[1]))
        return fields.wrong(key, "a text and its token");
      tokens->push_back((*token)[1].get<int32_t>());
    }
  } else if (type == "TemplateProcessing") {
    BRAID_ASSIGN(const Json *parts, fields.list("single"));
    BRAID_ASSIGN(TokenizerFields specials, fields.object("special_tokens"));
    int texts = 0;
    for (size_t i = 0; i < parts->size(); ++i) {
      BRAID_ASSIGN(TokenizerFields part,
                   TokenizerFields::of((*parts)[i], fmt::format("{}[{}]", fields.at("single"), i)));
      if (part.lacks("SpecialToken")) {
        BRAID_ASSIGN(TokenizerFields text, part.object("Sequence"));
        BRAID_ASSIGN(std::string which, text.text("id"));
        if (which != "A")
          return text.unread("id", which, "A");
        ++texts;
        continue;
      }
      BRAID_ASSIGN(TokenizerFields special, part.object("SpecialToken"));
      BRAID_ASSIGN(std::string name, special.text("id"));
      BRAID_ASSIGN(TokenizerFields entry, specials.object(name.c_str()));
      BRAID_ASSIGN(const Json *tokens, entry.list("ids"));
      for (const Json &token : *tokens) {
        if (!isToken(token))
          return entry.wrong("ids", "a list of tokens");
        (texts ? behind : before).push_back(token.get<int32_t>());
      }
    }
    if (texts != 1)
      return Status::error(ErrorCode::unsupported, "{}: has the text {} times; valid: once", fields.at("single"),
                           texts);
  } else {
    return fields.unread("type", type, "Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing");
  }
  // Of several the library's result depends on what each makes of the tokens of those before.
  if (adds)
    return Status::error(ErrorCode::unsupported, "{}: is the second that adds tokens; valid: one", at);
  adds = true;
  prefix = std::move(before);
  suffix = std::move(behind);
  return Status::success();
}

} // namespace

Expected<AddedToken> readAddedToken(const TokenizerFields &fields) {
  AddedToken token;
  BRAID_ASSIGN(token.content, fields.text("content"));
  BRAID_ASSIGN(token.singleWord, fields.flagOr("single_word", false));
  BRAID_ASSIGN(token.leftStrip, fields.flagOr("lstrip", false));
  BRAID_ASSIGN(token.rightStrip, fields.flagOr("rstrip", false));
  BRAID_ASSIGN(token.special, fields.flagOr("special", false));
  BRAID_ASSIGN(token.normalized, fields.flagOr("normalized", !token.special));
  return token;
}

namespace {

Expected<std::vector<AddedToken>> readAddedTokens(const TokenizerFields &top, const BytePairs &model) {
  std::vector<AddedToken> result;
  if (top.lacks("added_tokens"))
    return result;
  BRAID_ASSIGN(const Json *tokens, top.list("added_tokens"));
  auto next = static_cast<int64_t>(model.texts().size());
  int64_t greatest = -1; // of those that were added
  for (size_t i = 0; i < tokens->size(); ++i) {
    BRAID_ASSIGN(TokenizerFields fields, TokenizerFields::of((*tokens)[i], fmt::format("added_tokens[{}]", i)));
    BRAID_ASSIGN(AddedToken token, readAddedToken(fields));
    BRAID_ASSIGN(int64_t number, fields.number("id"));
    token.token = static_cast<int32_t>(number);
    if (std::optional<int32_t> known = model.tokenOf(token.content); known && *known != token.token)
      return Status::error(ErrorCode::corruptFile, "{}: '{}' has number {} here, but {} in model.vocab", fields.at(),
                           escaped(token.content), token.token, *known);
    if (auto other = model.texts().find(token.token); other != model.texts().end() && other->second != token.content)
      return Status::error(ErrorCode::corruptFile, "{}: number {} is '{}' here, but '{}' in model.vocab", fields.at(),
                           token.token, escaped(token.content), escaped(other->second));
    // Hugging Face's tokenizers gives new ones the numbers that follow, whatever the file says.
    if (!model.tokenOf(token.content)) {
      auto known = std::find_if(result.begin(), result.end(),
                                [&](const AddedToken &other) { return other.content == token.content; });
      int64_t expected = known != result.end() ? known->token : std::max<int64_t>(next, greatest + 1);
      if (token.token != expected)
        return Status::error(ErrorCode::unsupported,
                             "{}: '{}' has number {}, but model.vocab and the tokens before it give {}; valid: that",
                             fields.at(), escaped(token.content), token.token, expected);
    }
    greatest = std::max<int64_t>(greatest, token.token);
    result.push_back(std::move(token));
  }
  return result;
}

} // namespace

Expected<BytePairs> readBytePairs(const TokenizerFields &top) {
  BRAID_ASSIGN(TokenizerFields fields, top.object("model"));
  BRAID_ASSIGN(std::string type, fields.textOr("type", fields.lacks("merges") ? "" : "BPE"));
  if (type != "BPE")
    return fields.unread("type", type, "BPE");
  if (!fields.lacks("dropout") && fields.value()["dropout"] != 0)
    return fields.unread("dropout", shownValue(fields.value()["dropout"]), "null");
  BRAID_ASSIGN(TokenizerFields vocab, fields.object("vocab"));
  std::vector<std::pair<std::string, int32_t>> vocabulary;
  vocabulary.reserve(vocab.value().size());
  for (const auto &[text, number] : vocab.value().items()) {
    BRAID_ASSIGN(int64_t token, vocab.number(text.c_str()));
    vocabulary.emplace_back(text, static_cast<int32_t>(token));
  }
  BRAID_ASSIGN(const Json *merges, fields.list("merges"));
  std::vector<std::pair<std::string, std::string>> pairs;
  pairs.reserve(merges->size());
  for (size_t rank = 0; rank < merges->size(); ++rank) {
    BRAID_ASSIGN(auto pair, pairOf((*merges)[rank], rank));
    pairs.push_back(std::move(pair));
  }
  BytePairs::Options options;
  if (!fields.lacks("unk_token")) {
    BRAID_ASSIGN(options.unknown, fields.text("unk_token"));
  }
  BRAID_ASSIGN(options.wordPrefix, fields.textOr("continuing_subword_prefix", ""));
  BRAID_ASSIGN(options.wordSuffix, fields.textOr("end_of_word_suffix", ""));
  BRAID_ASSIGN(options.fuseUnknown, fields.flagOr("fuse_unk", false));
  BRAID_ASSIGN(options.bytes, fields.flagOr("byte_fallback", false));
  BRAID_ASSIGN(options.wholePieces, fields.flagOr("ignore_merges", false));
  Expected<BytePairs> model = BytePairs::make(std::move(vocabulary), pairs, std::move(options));
  return model ? std::move(model) : Expected<BytePairs>(model.status().withContext("model"));
}

TokenizerReader::Result TokenizerReader::readJson(std::string_view text, const std::string &path) {
  BRAID_ASSIGN(Json json, parseJsonObject(text));
  BRAID_ASSIGN(TokenizerFields top, TokenizerFields::of(json, ""));
  auto result = std::make_shared<Tokenizer>();
  result->sourceFiles = {{std::string(Tokenizer::files[0]), path, contentHash(std::as_bytes(std::span(text)))}};
  BRAID_ASSIGN(BytePairs pairs, readBytePairs(top));
  BRAID_ASSIGN(result->normalizer, readNormalizer(top));
  BRAID_ASSIGN(result->preTokenizer, readPreTokenizer(top));
  BRAID_ASSIGN(result->decoder, readDecoder(top));
  BRAID_ASSIGN(std::vector<AddedToken> added, readAddedTokens(top, pairs));
  result->model = std::move(pairs);
  BRAID_ASSIGN(result->added, AddedTokens::make(std::move(added), result->normalizer));
  if (!top.lacks("post_processor")) {
    int left = mostProcessors;
    bool adds = false;
    BRAID_TRY(
        addProcessor(json["post_processor"], "post_processor", result->prefixTokens, result->suffixTokens, adds, left));
  }
  return whole(std::move(result));
}

TokenizerReader::Result TokenizerReader::whole(std::shared_ptr<Tokenizer> tokenizer) {
  int32_t greatest = -1;
  for (const auto &[token, name] : tokenizer->texts())
    greatest = std::max(greatest, token);
  for (const AddedToken &token : tokenizer->added.all())
    greatest = std::max(greatest, token.token);
  tokenizer->vocabularySize = int64_t(greatest) + 1;
  for (const std::vector<int32_t> *tokens : {&tokenizer->prefixTokens, &tokenizer->suffixTokens})
    for (int32_t token : *tokens)
      if (token < 0 || token > greatest)
        return Status::error(ErrorCode::corruptFile, "post_processor: adds token {}, but there are 0 to {}", token,
                             greatest);
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view json, const std::string &path) {
  Expected<std::shared_ptr<const Tokenizer>> tokenizer = TokenizerReader::readJson(json, path);
  return tokenizer ? std::move(tokenizer) : tokenizer.status().withContext(path);
}

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::parseRanks(std::string_view ranks, std::string_view config,
                                                                 const std::string &path) {
  return TokenizerReader::readRanks(ranks, config, path);
}

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::parseWorld(std::string_view vocabulary, const std::string &path) {
  Expected<std::shared_ptr<const Tokenizer>> tokenizer = TokenizerReader::readWorld(vocabulary, path);
  return tokenizer ? std::move(tokenizer) : tokenizer.status().withContext(path);
}

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string &path) {
  std::error_code error;
  std::string file = path;
  if (std::filesystem::is_directory(path, error)) {
    std::optional<std::string> inside = fileIn(path);
    if (!inside)
      return Status::error(ErrorCode::notFound, "{}: holds no {}, {} or {}", path, files[0], files[1], files[2]);
    file = *std::move(inside);
  }
  BRAID_ASSIGN(std::string text, readTextFile(file));
  std::string name = std::filesystem::path(file).filename();
  if ((name.starts_with("rwkv_vocab") && name.ends_with(".txt")) || text.starts_with("1 '"))
    return parseWorld(text, file);
  if (!name.ends_with(".tiktoken") && name != files[1])
    return parse(text, file);
  std::string beside = std::filesystem::path(file).replace_filename(ranksConfig);
  Expected<std::string> config = readTextFile(beside);
  if (!config)
    return Status::error(config.status().code(), "{}: its texts are cut as {} beside it says: {}", file, ranksConfig,
                         config.message());
  return parseRanks(text, *config, file);
}

} // namespace braid::runtime
