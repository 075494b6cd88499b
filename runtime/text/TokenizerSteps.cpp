// The steps of tokenizer.json: normalizer, pre_tokenizer, decoder.
#include "runtime/io/JsonText.h"
#include "runtime/text/TokenizerReader.h"

#include <algorithm>

namespace braid::runtime {

namespace {

using Json = nlohmann::json;

constexpr int mostDepth = 16; // of lists in lists

// What GPT-2 cuts by.
constexpr std::string_view wordsOfGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// \w+|[^\w\s]+ with the \w of Unicode.
constexpr std::string_view wordsAndOthers =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";
constexpr std::string_view punctuation = R"([!-/:-@\[-`{-~\p{P}])";

// Calls visit(fields, type) for the step, or for each of a list of them.
template <class Visit>
Status forEachStep(const Json &value, const std::string &at, const char *list, Visit visit, int depth = 0) {
  if (depth == mostDepth)
    return Status::error(ErrorCode::corruptFile, "{}: lists within lists, {} deep", at, depth);
  BRAID_ASSIGN(TokenizerFields fields, TokenizerFields::of(value, at));
  BRAID_ASSIGN(std::string type, fields.text("type"));
  if (type != "Sequence")
    return visit(fields, std::string_view(type));
  BRAID_ASSIGN(const Json *steps, fields.list(list));
  for (size_t i = 0; i < steps->size(); ++i)
    BRAID_TRY(forEachStep((*steps)[i], fmt::format("{}[{}]", fields.at(list), i), list, visit, depth + 1));
  return Status::success();
}

// {"String": ".."} or {"Regex": ".."}
Expected<Pattern> patternOf(const TokenizerFields &step) {
  BRAID_ASSIGN(TokenizerFields fields, step.object("pattern"));
  bool literal = !fields.lacks("String");
  BRAID_ASSIGN(std::string source, fields.text(literal ? "String" : "Regex"));
  if (literal && source.empty())
    return fields.wrong("String", "a text that is not empty");
  Expected<Pattern> pattern = literal ? Pattern::literal(source) : Pattern::compile(source);
  return pattern ? std::move(pattern) : Expected<Pattern>(pattern.status().withContext(step.at("pattern")));
}

// Of what the reader itself writes.
Expected<Split> splitBy(std::string_view expression, Delimiter delimiter, bool inverted = false) {
  BRAID_ASSIGN(Pattern pattern, Pattern::compile(expression));
  return Split{std::move(pattern), delimiter, inverted};
}

Expected<Delimiter> delimiterOf(const TokenizerFields &step, std::string_view otherwise = "") {
  BRAID_ASSIGN(std::string name, otherwise.empty() ? step.text("behavior") : step.textOr("behavior", otherwise));
  constexpr std::pair<std::string_view, Delimiter> names[] = {{"Removed", Delimiter::removed},
                                                              {"Isolated", Delimiter::isolated},
                                                              {"MergedWithPrevious", Delimiter::mergedWithPrevious},
                                                              {"MergedWithNext", Delimiter::mergedWithNext},
                                                              {"Contiguous", Delimiter::contiguous}};
  for (auto [known, delimiter] : names)
    if (name == known)
      return delimiter;
  return step.unread("behavior", name, "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

Status addNormalizer(const TokenizerFields &step, std::string_view type, Normalizer &normalizer) {
  constexpr std::pair<std::string_view, NormalForm> forms[] = {
      {"NFC", NormalForm::nfc}, {"NFD", NormalForm::nfd}, {"NFKC", NormalForm::nfkc}, {"NFKD", NormalForm::nfkd}};
  for (auto [name, form] : forms)
    if (type == name) {
      normalizer.steps.emplace_back(form);
      return Status::success();
    }
  if (type == "Replace") {
    BRAID_ASSIGN(Pattern pattern, patternOf(step));
    BRAID_ASSIGN(std::string content, step.text("content"));
    normalizer.steps.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Prepend") {
    BRAID_ASSIGN(std::string text, step.text("prepend"));
    normalizer.steps.emplace_back(Prepend{std::move(text)});
  } else if (type == "Strip") {
    BRAID_ASSIGN(bool left, step.flagOr("strip_left", true));
    BRAID_ASSIGN(bool right, step.flagOr("strip_right", true));
    normalizer.steps.emplace_back(Strip{left, right});
  } else if (type == "ByteLevel") {
    normalizer.steps.emplace_back(BytesToLetters());
  } else {
    return step.unread("type", type, "Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, ByteLevel");
  }
  return Status::success();
}

Expected<Metaspace> metaspaceOf(const TokenizerFields &step) {
  BRAID_ASSIGN(std::string replacement, step.textOr("replacement", "\u2581"));
  if (replacement.empty())
    return step.wrong("replacement", "a character");
  // Files of earlier versions have a flag instead.
  BRAID_ASSIGN(bool adds, step.flagOr("add_prefix_space", true));
  BRAID_ASSIGN(std::string scheme, step.textOr("prepend_scheme", adds ? "always" : "never"));
  BRAID_ASSIGN(bool split, step.flagOr("split", true));
  using Prefix = Metaspace::Prefix;
  constexpr std::pair<std::string_view, Prefix> schemes[] = {
      {"always", Prefix::always}, {"first", Prefix::first}, {"never", Prefix::never}};
  for (auto [name, prefix] : schemes)
    if (scheme == name)
      return Metaspace{std::move(replacement), prefix, split};
  return step.unread("prepend_scheme", scheme, "always, first, never");
}

Status addPreTokenizer(const TokenizerFields &step, std::string_view type, PreTokenizer &preTokenizer) {
  auto add = [&](Expected<Split> split) {
    if (split)
      preTokenizer.steps.emplace_back(*std::move(split));
    return split.status();
  };
  if (type == "Split") {
    BRAID_ASSIGN(Pattern pattern, patternOf(step));
    BRAID_ASSIGN(Delimiter delimiter, delimiterOf(step));
    BRAID_ASSIGN(bool inverted, step.flagOr("invert", false));
    return add(Split{std::move(pattern), delimiter, inverted});
  }
  if (type == "ByteLevel") {
    BRAID_ASSIGN(bool prefix, step.flagOr("add_prefix_space", true));
    BRAID_ASSIGN(bool words, step.flagOr("use_regex", true));
    if (prefix)
      preTokenizer.steps.emplace_back(PrefixBlank());
    if (words)
      BRAID_TRY(add(splitBy(wordsOfGpt2, Delimiter::isolated)));
    preTokenizer.steps.emplace_back(BytesToLetters());
    return Status::success();
  }
  if (type == "Metaspace") {
    BRAID_ASSIGN(Metaspace metaspace, metaspaceOf(step));
    preTokenizer.steps.emplace_back(std::move(metaspace));
    return Status::success();
  }
  if (type == "Digits") {
    BRAID_ASSIGN(bool single, step.flagOr("individual_digits", false));
    return add(splitBy(R"(\p{N})", single ? Delimiter::isolated : Delimiter::contiguous));
  }
  if (type == "Punctuation") {
    BRAID_ASSIGN(Delimiter delimiter, delimiterOf(step, "Isolated"));
    return add(splitBy(punctuation, delimiter));
  }
  if (type == "WhitespaceSplit")
    return add(splitBy(R"(\s)", Delimiter::removed));
  if (type == "Whitespace")
    return add(splitBy(wordsAndOthers, Delimiter::removed, /*inverted=*/true));
  if (type == "CharDelimiterSplit") {
    BRAID_ASSIGN(std::string delimiter, step.text("delimiter"));
    if (delimiter.empty())
      return step.wrong("delimiter", "a character");
    BRAID_ASSIGN(Pattern pattern, Pattern::literal(delimiter));
    return add(Split{std::move(pattern), Delimiter::removed, false});
  }
  return step.unread("type", type,
                     "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, WhitespaceSplit, Whitespace, "
                     "CharDelimiterSplit");
}

// Texts come token by token: what looks at more than one of them must be the last.
Status addDecoder(const TokenizerFields &step, std::string_view type, Decoder &decoder) {
  if (!decoder.steps.empty() && std::holds_alternative<WordEnd>(decoder.steps.back()))
    return step.unread("type", type, "nothing behind BPEDecoder");
  bool fused = std::any_of(decoder.steps.begin(), decoder.steps.end(),
                           [](const DecoderStep &known) { return std::holds_alternative<Fuse>(known); });
  if (fused && type != "Strip")
    return step.unread("type", type, "Strip alone behind Fuse");
  if (type == "ByteLevel") {
    decoder.steps.emplace_back(LettersToBytes());
  } else if (type == "Replace") {
    BRAID_ASSIGN(Pattern pattern, patternOf(step));
    BRAID_ASSIGN(std::string content, step.text("content"));
    decoder.steps.emplace_back(ReplaceInToken{std::move(pattern), std::move(content)});
  } else if (type == "ByteFallback") {
    decoder.steps.emplace_back(BytesOfTokens());
  } else if (type == "Fuse") {
    decoder.steps.emplace_back(Fuse());
  } else if (type == "Strip") {
    BRAID_ASSIGN(std::string content, step.textOr("content", " "));
    BRAID_ASSIGN(int64_t start, step.numberOr("start", 0));
    BRAID_ASSIGN(int64_t stop, step.numberOr("stop", 0));
    if (content.empty())
      return step.wrong("content", "a character");
    if (stop != 0)
      return step.unread("stop", fmt::format("{}", stop), "0");
    decoder.steps.emplace_back(StripBegin{std::move(content), static_cast<size_t>(start)});
  } else if (type == "Metaspace") {
    BRAID_ASSIGN(Metaspace metaspace, metaspaceOf(step));
    decoder.steps.emplace_back(
        MetaspaceToBlank{std::move(metaspace.replacement), metaspace.prefix != Metaspace::Prefix::never});
  } else if (type == "BPEDecoder") {
    BRAID_ASSIGN(std::string suffix, step.textOr("suffix", "</w>"));
    if (suffix.empty())
      return step.wrong("suffix", "a text that is not empty");
    decoder.steps.emplace_back(WordEnd{std::move(suffix)});
  } else {
    return step.unread("type", type, "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, BPEDecoder");
  }
  return Status::success();
}

} // namespace

Expected<Normalizer> readNormalizer(const TokenizerFields &top) {
  Normalizer normalizer;
  if (!top.lacks("normalizer"))
    BRAID_TRY(forEachStep(
        top.value()["normalizer"], "normalizer", "normalizers",
        [&](const TokenizerFields &step, std::string_view type) { return addNormalizer(step, type, normalizer); }));
  return normalizer;
}

Expected<PreTokenizer> readPreTokenizer(const TokenizerFields &top) {
  PreTokenizer preTokenizer;
  if (!top.lacks("pre_tokenizer"))
    BRAID_TRY(forEachStep(
        top.value()["pre_tokenizer"], "pre_tokenizer", "pretokenizers",
        [&](const TokenizerFields &step, std::string_view type) { return addPreTokenizer(step, type, preTokenizer); }));
  return preTokenizer;
}

Expected<Decoder> readDecoder(const TokenizerFields &top) {
  Decoder decoder;
  decoder.blanks = top.lacks("decoder");
  if (!decoder.blanks)
    BRAID_TRY(forEachStep(
        top.value()["decoder"], "decoder", "decoders",
        [&](const TokenizerFields &step, std::string_view type) { return addDecoder(step, type, decoder); }));
  return decoder;
}

} // namespace braid::runtime
