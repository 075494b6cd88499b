// What the runtime reads: program files, checkpoint indices, safetensors and NumPy files, training data, requests.
#include "test/fuzz/FuzzTargets.h"

#include "runtime/Program.h"
#include "runtime/data/PackedRows.h"
#include "runtime/data/ReadCorpus.h"
#include "runtime/io/JsonLines.h"
#include "runtime/io/Npy.h"
#include "runtime/io/Safetensors.h"
#include "runtime/io/Shape.h"
#include "runtime/serve/ApiRequest.h"
#include "runtime/template/Template.h"
#include "runtime/text/Tokenizer.h"
#include "runtime/train/CheckpointIndex.h"
#include "runtime/train/ImportMap.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sys/mman.h>
#include <unistd.h>

using namespace braid::runtime;

namespace braid::fuzz {
namespace {

std::vector<std::byte> copyOf(std::span<const uint8_t> bytes) {
  auto *data = reinterpret_cast<const std::byte *>(bytes.data());
  return {data, data + bytes.size()};
}

// The bytes as a file in memory.
std::string fileWith(std::span<const uint8_t> bytes) {
  static const int file = memfd_create("fuzz", 0);
  if (file < 0 || ftruncate(file, 0) != 0 ||
      pwrite(file, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    std::abort();
  return "/proc/self/fd/" + std::to_string(file);
}

// Below a hash that fits: the hash would refuse every change, and this is about structure.
void program(std::span<const uint8_t> bytes) {
  std::vector<std::byte> file = copyOf(bytes);
  Program::seal(file);
  auto parsed = Program::parse(std::move(file), "fuzz");
  if (!parsed)
    return;
  const Program &program = **parsed;
  for (uint32_t rank = 0; rank < std::min(program.mesh().worldSize(), 4u); ++rank)
    (void)logicalTensors(program, rank, /*moments=*/true).ok();
}

void checkpointIndex(std::span<const uint8_t> bytes) {
  std::string text(bytes.begin(), bytes.end());
  if (text.size() >= 3)
    text = CheckpointIndex::seal(text);
  auto parsed = CheckpointIndex::parse(text, "fuzz");
  if (parsed && !CheckpointIndex::parse(parsed->toJson(), "again"))
    std::abort(); // what is accepted can be written and read again
}

void safetensors(std::span<const uint8_t> bytes) {
  auto file = SafetensorsFile::open(fileWith(bytes));
  if (!file)
    return;
  std::vector<std::byte> target;
  for (const auto &[name, entry] : file->entries()) {
    target.resize(entry.bytes);
    if (!file->read(entry, target).ok())
      std::abort(); // the header was checked against the size of the file
  }
}

// A description's `import`, and what it makes of shapes.
void importMap(std::span<const uint8_t> bytes) {
  auto map = ImportMap::parse({reinterpret_cast<const char *>(bytes.data()), bytes.size()});
  if (!map || !*map)
    return;
  for (const auto &[name, tensor] : (*map)->weights) {
    auto [general, layer] = splitLayer(name);
    for (const std::string &theirs : {tensor.name, tensor.otherName})
      (void)(*map)->leaves(fillName(theirs, layer, 3));
    for (const std::vector<int64_t> &shape : {std::vector<int64_t>{}, {0, 4}, {64, 1, 4}, {int64_t(1) << 31, 4}}) {
      auto taken = importedShape(tensor, shape);
      if (!taken)
        continue;
      std::optional<int64_t> before = elementCount(shape), after = elementCount(*taken);
      if (!after || *after > std::max<int64_t>(*before, 1) || !joins(*taken, *taken))
        std::abort(); // a part is no more than the whole
    }
  }
}

void npy(std::span<const uint8_t> bytes) {
  auto array = readNpy(fileWith(bytes));
  if (!array)
    return;
  uint64_t elements = 1;
  for (int64_t extent : array->shape)
    elements *= static_cast<uint64_t>(extent);
  if (elements * sizeOf(array->dtype) != array->data.size())
    std::abort();
}

// A tokenizer.json, or ranks, an empty line and what lies beside them, or the World vocabulary; and what it makes of some texts and tokens.
void tokenizer(std::span<const uint8_t> bytes) {
  std::string_view text(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  size_t border = text.starts_with('{') ? text.npos : text.find("\n\n");
  auto read = text.starts_with("1 '") ? Tokenizer::parseWorld(text, "fuzz")
              : border == text.npos   ? Tokenizer::parse(text, "fuzz")
                                      : Tokenizer::parseRanks(text.substr(0, border), text.substr(border + 2), "fuzz");
  if (!read)
    return;
  TextEncoder encoder(*read);
  TextDecoder decoder(*read, /*special=*/true);
  for (std::string_view text :
       {"", " ", "  The braid's 3 strands,\r\n\tof 1234.5 <end> \u00e9\u4e2d\u6587\U0001f600 ab"}) {
    auto tokens = encoder.encode(text);
    if (!tokens)
      continue; // a search that takes too many steps
    for (int32_t token : *tokens) {
      if (token < 0 || token >= (*read)->vocabulary())
        std::abort();
      (void)decoder.add(token).ok();
    }
  }
  for (int32_t token = -1; token < 20; ++token)
    (void)decoder.add(token).ok();
}

// A template, and what it makes of a chat.
void chatTemplate(std::span<const uint8_t> bytes) {
  auto parsed = Template::parse({reinterpret_cast<const char *>(bytes.data()), bytes.size()}, "fuzz");
  if (!parsed)
    return;
  static const auto variables = nlohmann::ordered_json::parse(R"({"messages": [{"role": "system", "content": "Be."},
      {"role": "user", "content": "Hi <think>é"}, {"role": "assistant", "content": null, "tool_calls": [{"id": "123456789",
      "function": {"name": "f", "arguments": {"x": 1, "y": [1.5, true, null]}}}]}, {"role": "tool", "content": "42"}],
      "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}],
      "bos_token": "<s>", "eos_token": "</s>", "add_generation_prompt": true, "documents": null, "n": 7, "s": "a\nb"})");
  auto text = parsed->render(variables, 0);
  if (text && firstInvalidUtf8(*text))
    std::abort();
}

// The body of a request for a text, for the answer of a chat, for tokens and for what they stand for.
void request(std::span<const uint8_t> bytes) {
  std::string_view body(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  for (auto *read : {&readCompletion, &readChatCompletion})
    if (auto asked = (*read)(body); asked && (asked->prompts.empty() || asked->count < 1))
      std::abort();
  if (auto asked = readTokenize(body); asked && !asked->prompt.is_string() && !asked->prompt.is_object())
    std::abort();
  (void)readDetokenize(body);
}

// A regular expression, and behind the first newline the text in which it is looked for.
void pattern(std::span<const uint8_t> bytes) {
  std::string_view input(reinterpret_cast<const char *>(bytes.data()), bytes.size());
  std::string_view expression = input.substr(0, input.find('\n'));
  std::string_view text = input.substr(std::min(input.size(), expression.size() + 1));
  auto compiled = Pattern::compile(expression);
  if (!compiled || firstInvalidUtf8(text))
    return;
  size_t last = 0;
  (void)compiled
      ->forEachMatch(text,
                     [&](size_t begin, size_t end) {
                       if (begin < last || end < begin || end > text.size())
                         std::abort();
                       last = end;
                       return Status::success();
                     })
      .ok();
}

// Three bytes choose the format and where tokens are kept, the shape of rows and the vocabulary; the rest is the file.
// Then lines of metrics of a run that is resumed.
void data(std::span<const uint8_t> bytes) {
  if (bytes.size() < 3)
    return;
  std::span<const uint8_t> rest = bytes.subspan(3);
  int64_t length = 1 + bytes[1] % 32, documents = 1 + bytes[1] / 64;
  DataOptions options;
  options.format = static_cast<DataFormat>(bytes[0] % 5);
  options.bytes = bytes[2] % 2 == 0;
  if (bytes[2] % 4 > 1)
    options.separator = bytes[2] / 4;
  if (bytes[0] >= 128)
    options.memoryBytes = 0;
  const std::string paths[] = {fileWith(rest)};
  if (auto corpus = readCorpus(paths, options.bytes ? 256 : 70000, options)) {
    if (auto rows = PackedRows::pack(*corpus, length, documents)) {
      std::vector<int32_t> tokens(static_cast<size_t>(length)), labels(tokens);
      std::vector<int32_t> starts(static_cast<size_t>(documents) + 1);
      uint64_t labelled = 0;
      for (uint64_t row = 0; row < rows->size(); ++row) {
        if (!rows->fill(*corpus, row, tokens, labels, starts).ok())
          std::abort(); // nobody changes the file
        labelled +=
            static_cast<uint64_t>(std::count_if(labels.begin(), labels.end(), [](int32_t l) { return l >= 0; }));
      }
      if (labelled != rows->labels())
        std::abort();
    }
  }
  (void)dropLinesAfter(fileWith(rest), "step", 3).ok();
}

constexpr Target table[] = {{"program", program},
                            {"checkpoint-index", checkpointIndex},
                            {"safetensors", safetensors},
                            {"import", importMap},
                            {"npy", npy},
                            {"data", data},
                            {"tokenizer", tokenizer},
                            {"template", chatTemplate},
                            {"pattern", pattern},
                            {"request", request}};

} // namespace

const std::span<const Target> targets = table;

} // namespace braid::fuzz
