// Changes one number of a program file, below a hash that fits, and lets the runtime load and run what it then is, in a
// process of its own. Whatever the number, the file is refused or it runs; a signal, a process that does not end or one
// that takes memory without bound is a finding. Numbers are found by the schema's own description, so that a field that
// is new is looked at too.
//
//   braid-fuzz-numbers PROGRAM.braid.. [--schema=F.bfbs] [--per-kind=N] [--every=N] [--seed=N] [--only=TEXT] [--skip=TEXT] [--keep=DIR]
//                      [--all]
//
// A kind of number is a field of a table, of arguments of kernels their name and what the kernel does besides. Of every
// N-th kind some are changed, each to another of the values below. Prints a line per finding (or with --all for every
// change), then a line of counts per file; --keep keeps the files of findings.
// Buffers of i32 that a kernel reads (chunks of rows, experts of tokens) are kinds of their own: at another place in memory there are
// other numbers, to whose rows kernels go without a look (runtime/README.md). Where that ends a process it was led elsewhere, and is no finding.
#include "runtime/Program.h"
#include "runtime/data/ReadCorpus.h"
#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"
#include "runtime/schema/ProgramTrailer.h"
#include "runtime/schema/Program_generated.h"
#include "runtime/train/Trainer.h"

#include <flatbuffers/reflection.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace braid::runtime;
namespace schema = braid::schema;

namespace {

struct Number {
  std::string kind, path;
  uint8_t *at;
  reflection::BaseType type;
};

constexpr const char *kLeads = "places"; // in front of the kinds of a buffer of such numbers

std::string_view shortName(std::string_view name) { return name.substr(name.rfind('.') + 1); }

// What a kernel does, without sizes and hashes: "short_conv" of "short_conv_d64_k4_f32".
std::string workOf(std::string_view kernel) {
  std::string work;
  for (size_t at = 0; at < kernel.size();) {
    std::string_view word = kernel.substr(at, kernel.find('_', at) - at);
    at += word.size() + 1;
    bool sized = word.size() > 1 && std::any_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (!sized)
      work += (work.empty() ? "" : "_") + std::string(word);
  }
  return work;
}

// Every number of a file whose fields are all written out.
class NumberFinder {
public:
  NumberFinder(const reflection::Schema &types, const schema::Program &program) : types(types), program(program) {}

  std::vector<Number> find(uint8_t *file) {
    table(*types.root_table(), *flatbuffers::GetMutableRoot<flatbuffers::Table>(file), "", "");
    return std::move(numbers);
  }

private:
  using Table = flatbuffers::Table;
  const reflection::Schema &types;
  const schema::Program &program;
  std::vector<Number> numbers;
  uint32_t kernel = 0; // of the launch at hand
  bool leads = false; // of the argument at hand: its numbers are places

  /// Whether the kernel at hand reads i32 there, and nothing else.
  bool isLedBy(const std::string &argument) const {
    if (kernel >= program.kernels()->size() || !program.kernels()->Get(kernel)->params())
      return false;
    for (const schema::Param *param : *program.kernels()->Get(kernel)->params())
      if (param->name()->str() == argument)
        return param->kind() == schema::ParamKind::pointer && param->type() == schema::DType::i32 && !param->written();
    return false;
  }

  void add(const std::string &kind, const std::string &path, uint8_t *at, reflection::BaseType type) {
    numbers.push_back({kind, path, at, type});
  }

  // `of`: the kernel and argument that the table belongs to.
  void table(const reflection::Object &object, Table &table, const std::string &path, std::string of) {
    std::string_view name = shortName(object.name()->string_view());
    if (name == "Launch") {
      auto &launch = reinterpret_cast<const schema::Launch &>(table);
      if (launch.kernel() < program.kernels()->size())
        of = workOf(program.kernels()->Get(launch.kernel())->name()->string_view());
      kernel = launch.kernel();
    } else if (name == "Arg") {
      std::string argument = reinterpret_cast<const schema::Arg &>(table).name()->str();
      of += "(" + argument + ")";
      leads = isLedBy(argument);
    } else if (name == "Buffer") {
      of = leads ? kLeads : ""; // one kind, however many kernels there are
      leads = false;
    }
    for (const reflection::Field *field : *object.fields()) {
      // Of a union's type and a list's length one kind is enough.
      bool isNumber = field->type()->base_type() != reflection::UType;
      std::string kind = (of.empty() || !isNumber ? "" : of + " ") + std::string(name) + "." + field->name()->str();
      this->field(*field, table, kind, path + (path.empty() ? "" : ".") + field->name()->str(), of);
    }
  }

  void field(const reflection::Field &field, Table &table, const std::string &kind, const std::string &path,
             const std::string &of) {
    uint8_t *at = table.GetAddressOf(field.offset());
    if (!at)
      return;
    auto type = field.type()->base_type();
    auto objectOf = [&](int index) -> const reflection::Object & { return *types.objects()->Get(index); };
    auto pointed = [](uint8_t *from) { return from + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(from); };
    switch (type) {
    case reflection::String: {
      // Numbers are texts in metadata.
      auto *text = reinterpret_cast<flatbuffers::String *>(pointed(at));
      if (kind != "KeyValue.value")
        return;
      std::string key = reinterpret_cast<const schema::KeyValue &>(table).key()->str();
      uint32_t number = 0;
      for (uint32_t i = 0; i < text->size(); ++i)
        if (isdigit(text->Get(i)) && (i == 0 || !isdigit(text->Get(i - 1))))
          add("metadata " + key, path + " '" + key + "' number " + std::to_string(number++),
              const_cast<uint8_t *>(text->Data()) + i, reflection::String);
      return;
    }
    case reflection::Obj:
      this->table(objectOf(field.type()->index()), *reinterpret_cast<Table *>(pointed(at)), path, of);
      return;
    case reflection::Union: {
      const reflection::Enum &members = *types.enums()->Get(field.type()->index());
      int64_t chosen = *table.GetAddressOf(static_cast<flatbuffers::voffset_t>(field.offset() - sizeof(uint16_t)));
      for (const reflection::EnumVal *member : *members.values())
        if (member->value() == chosen && member->union_type()->base_type() == reflection::Obj)
          this->table(objectOf(member->union_type()->index()), *reinterpret_cast<Table *>(pointed(at)),
                      path + "(" + member->name()->str() + ")", of);
      return;
    }
    case reflection::Vector: return vector(*field.type(), pointed(at), kind, path, of);
    default: add(kind, path, at, type);
    }
  }

  void vector(const reflection::Type &type, uint8_t *at, const std::string &kind, const std::string &path,
              const std::string &of) {
    add(kind.substr(kind.rfind(' ') + 1) + " length", path + " length", at, reflection::UInt);
    uint32_t count = flatbuffers::ReadScalar<uint32_t>(at);
    if (kind == "Blob.bytes")
      return;
    for (uint32_t i = 0; i < count; ++i) {
      std::string here = path + "[" + std::to_string(i) + "]";
      uint8_t *element = at + 4 + i * flatbuffers::GetTypeSize(type.element());
      if (type.element() == reflection::Obj)
        table(*types.objects()->Get(type.index()),
              *reinterpret_cast<Table *>(element + flatbuffers::ReadScalar<flatbuffers::uoffset_t>(element)), here, of);
      else if (type.element() != reflection::String)
        add(kind, here, element, type.element());
    }
  }
};

constexpr int changes = 9;

// The number as it is after change `which`, or nothing where that is no change. `other`: another of its kind.
std::optional<int64_t> changed(int64_t now, int which, int64_t other) {
  auto from = static_cast<uint64_t>(now), to = from; // they wrap
  switch (which) {
  case 0: to = 0; break;
  case 1: to = from + 1; break;
  case 2: to = from * 2; break;
  case 3: to = static_cast<uint64_t>(other); break;
  case 4: to = from - 1; break;
  case 5: to = uint64_t(1) << 40; break;
  case 6: to = UINT64_MAX; break;
  case 7: to = static_cast<uint64_t>(now / 2); break;
  case 8: to = from + 1000; break;
  }
  return to == from ? std::nullopt : std::optional(static_cast<int64_t>(to));
}

int64_t read(const Number &number) {
  if (number.type == reflection::String)
    return std::strtoll(reinterpret_cast<const char *>(number.at), nullptr, 10);
  return flatbuffers::GetAnyValueI(number.type, number.at);
}

// Metadata keeps its length: what does not fit is cut in front.
void write(const Number &number, int64_t value) {
  if (number.type == reflection::String) {
    size_t digits = 0;
    while (isdigit(number.at[digits]))
      ++digits;
    std::string text = std::to_string(value < 0 ? INT64_MAX : value);
    text = text.size() < digits ? std::string(digits - text.size(), '0') + text : text.substr(text.size() - digits);
    std::copy(text.begin(), text.end(), number.at);
  } else if (number.type == reflection::Float) {
    flatbuffers::WriteScalar(number.at, static_cast<float>(value));
  } else if (number.type == reflection::Double) {
    flatbuffers::WriteScalar(number.at, static_cast<double>(value));
  } else {
    std::copy_n(reinterpret_cast<const uint8_t *>(&value), flatbuffers::GetTypeSize(number.type), number.at);
  }
}

enum Outcome : uint8_t { refused, failed, ran }; // how far a process came
struct Report {
  Outcome outcome = refused;
  const char *doing = "load";
  char message[400] = "";
};

void note(Report &report, const Status &status) {
  std::snprintf(report.message, sizeof report.message, "%s", status.message().c_str());
}

// What braid-run does with a program, in this process.
Status execute(const std::vector<std::byte> &file, const std::string &text, int ranks, Report &report) {
  RankOptions options;
  options.ranks = ranks;
  options.threads = 1;
  options.timeout = std::chrono::seconds(2);
  auto has = [](const Program &program, std::string_view name) { return program.findEntry(name) != nullptr; };
  auto corpusOf = [&](const Program &program) -> Expected<Corpus> {
    BRAID_ASSIGN(int64_t vocabulary, vocabularyOf(program));
    const std::string paths[] = {text};
    DataOptions data;
    BRAID_ASSIGN(data.bytes, readsBytes(program));
    data.format = data.bytes ? DataFormat::text : DataFormat::u16;
    return readCorpus(paths, vocabulary, data);
  };
  {
    report.doing = "train";
    BRAID_ASSIGN(auto program, Program::parse(file, "changed.braid", trains));
    report.outcome = failed;
    if (has(*program, "train_step") || has(*program, "accumulate_step")) {
      BRAID_ASSIGN(Corpus corpus, corpusOf(*program));
      BRAID_ASSIGN(Corpus none, readCorpus({}, 256, {}));
      TrainOptions train;
      train.steps = 1;
      train.warmupSteps = 0;
      BRAID_TRY(runRanks(program, options,
                         [&](Rank &rank) { return braid::runtime::train(rank, train, corpus, none).status(); }));
    }
  }
  report.doing = "eval";
  BRAID_ASSIGN(auto evaluated, Program::parse(file, "changed.braid", evaluates));
  if (has(*evaluated, "eval_step")) {
    BRAID_ASSIGN(Corpus corpus, corpusOf(*evaluated));
    BRAID_TRY(runRanks(evaluated, options, [&](Rank &rank) -> Status {
      BRAID_ASSIGN(Evaluator evaluator, Evaluator::bind(rank));
      return evaluator.evaluate(corpus).status();
    }));
  }
  report.doing = "generate";
  BRAID_ASSIGN(auto generated, Program::parse(file, "changed.braid", serves));
  if (checkGenerates(*generated).ok() && generated->mesh().worldSize() == 1)
    BRAID_TRY(runRanks(generated, options, [&](Rank &rank) -> Status {
      BRAID_ASSIGN(Generator generator, Generator::bind(rank.session()));
      std::vector<int32_t> prompt(static_cast<size_t>(std::clamp<int64_t>(generator.contextLength() - 3, 1, 40)), 1);
      BRAID_TRY(checkPrompt(generator, prompt, 3));
      if (Generator::Piece piece{0, prompt, prompt}; generator.checkScores().ok()) {
        BRAID_TRY(generator.feed(std::span(&piece, 1)));
        generator.reset();
      }
      return generate(generator, std::vector(3, prompt), 3, {}, generator.vocabulary(),
                      [](size_t, int32_t) { return AfterToken::goOn; })
          .status();
    }));
  report.outcome = ran;
  return Status::success();
}

struct Options {
  std::vector<std::string> programs;
  std::string schema = BRAID_TEST_SCHEMA, only, skip, keep;
  uint64_t perKind = 1, every = 1, seed = 1;
  bool all = false; // print every change
};

std::vector<std::byte> readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) {
    std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
    std::exit(2);
  }
  auto *data = reinterpret_cast<const std::byte *>(text.data());
  return {data, data + text.size()};
}

// The file again with every field in it, also those that have their default.
std::vector<std::byte> writtenOut(const std::vector<std::byte> &file) {
  auto *data = file.data();
  std::unique_ptr<schema::ProgramT> program(schema::GetProgram(data)->UnPack());
  flatbuffers::FlatBufferBuilder builder;
  builder.ForceDefaults(true);
  schema::FinishProgramBuffer(builder, schema::Program::Pack(builder, program.get()));
  auto *bytes = reinterpret_cast<const std::byte *>(builder.GetBufferPointer());
  return {bytes, bytes + builder.GetSize()};
}

// Runs a sealed file in a process of its own. The words for what is wrong, empty for nothing.
std::string tryFile(const std::vector<std::byte> &file, const std::string &text, int ranks, Report &report) {
  constexpr unsigned seconds = 4;
  constexpr rlim_t memory = rlim_t(6) << 30;
  pid_t child = fork();
  if (child == 0) {
    for (auto [what, most] : {std::pair(RLIMIT_AS, memory), {RLIMIT_CPU, rlim_t(seconds)}, {RLIMIT_CORE, rlim_t(0)}}) {
      rlimit limit{most, most};
      if (!checksMemory || what != RLIMIT_AS)
        setrlimit(what, &limit);
    }
    alarm(3 * seconds);
    std::freopen("/dev/null", "w", stderr);
    Status status = execute(file, text, ranks, report);
    note(report, status);
    _exit(0);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) != child)
    std::abort();
  if (WIFSIGNALED(status))
    return WTERMSIG(status) == SIGALRM || WTERMSIG(status) == SIGKILL || WTERMSIG(status) == SIGXCPU
               ? std::string("does not end")
               : std::string("signal ") + strsignal(WTERMSIG(status));
  return WEXITSTATUS(status) ? "exit status " + std::to_string(WEXITSTATUS(status)) : "";
}

// Findings.
size_t change(const std::string &path, const Options &options, const reflection::Schema &types, Report &report) {
  std::vector<std::byte> original = readFile(path);
  original.resize(original.size() - schema::ProgramTrailer::bytes);
  std::vector<std::byte> file = writtenOut(original);
  int ranks = 1;
  std::string text = "/proc/self/fd/" + std::to_string(memfd_create("text", 0));
  {
    std::vector<std::byte> sealed = file;
    Program::seal(sealed);
    auto program = Program::parse(sealed, path);
    if (!program) {
      std::fprintf(stderr, "%s\n", program.message().c_str());
      std::exit(2);
    }
    ranks = static_cast<int>((*program)->mesh().worldSize());
    auto vocabulary = vocabularyOf(**program);
    std::ofstream data(text, std::ios::binary);
    auto size = static_cast<uint32_t>(vocabulary ? *vocabulary : 2);
    for (uint32_t i = 0; i < 600; ++i) // u16 below the vocabulary; as bytes it is a text too
      data.put(static_cast<char>((i * i + i / 7) % std::min(size, 128u))).put(0);
  }
  std::vector<Number> numbers =
      NumberFinder(types, *schema::GetProgram(file.data())).find(reinterpret_cast<uint8_t *>(file.data()));
  std::map<std::string, std::vector<const Number *>> kinds;
  for (const Number &number : numbers)
    kinds[number.kind].push_back(&number);

  auto attempt = [&](std::vector<std::byte> &bytes) {
    std::vector<std::byte> sealed = bytes;
    Program::seal(sealed);
    report = Report();
    return tryFile(sealed, text, ranks, report);
  };
  if (std::string wrong = attempt(file); !wrong.empty() || report.outcome != ran) {
    std::printf("%s: as it is: %s %s\n", path.c_str(), wrong.c_str(), report.message);
    return 1;
  }
  size_t outcomes[3] = {}, findings = 0, elsewhere = 0, tried = 0, round = 0;
  std::mt19937_64 random(options.seed);
  uint64_t place = options.seed;
  for (const auto &[kind, all] : kinds) {
    if (place++ % options.every != 0 || kind.find(options.only) == std::string::npos ||
        (!options.skip.empty() && kind.find(options.skip) != std::string::npos))
      continue;
    for (uint64_t i = 0; i < options.perKind; ++i) {
      const Number &number = *all[random() % all.size()];
      int64_t now = read(number), other = read(*all[random() % all.size()]);
      std::optional<int64_t> to;
      for (int j = 0; j < changes && !to; ++j)
        to = changed(now, static_cast<int>(round++ % changes), other);
      if (!to)
        continue;
      write(number, *to);
      if (read(number) == now) { // too large for its type
        write(number, now);
        continue;
      }
      std::string wrong = attempt(file);
      int64_t shown = read(number);
      ++tried;
      ++outcomes[report.outcome];
      bool led = wrong.starts_with("signal") && kind.starts_with(kLeads);
      elsewhere += led;
      findings += !led && !wrong.empty();
      if ((!wrong.empty() && !led) || options.all)
        std::printf("%s: %s = %lld, was %lld [%s]: %s %s%s\n", path.c_str(), number.path.c_str(),
                    static_cast<long long>(shown), static_cast<long long>(now), kind.c_str(), report.doing,
                    wrong.empty() ? (report.outcome == ran ? "ran" : "refused: ") : wrong.c_str(),
                    wrong.empty() ? report.message : "");
      if (!wrong.empty() && !led && !options.keep.empty()) {
        std::vector<std::byte> sealed = file;
        Program::seal(sealed);
        std::ofstream(options.keep + "/" + std::to_string(findings) + ".braid", std::ios::binary)
            .write(reinterpret_cast<const char *>(sealed.data()), static_cast<std::streamsize>(sealed.size()));
      }
      std::fflush(stdout);
      write(number, now);
    }
  }
  std::printf("%s: %zu numbers of %zu kinds, %zu changed: %zu refused when loaded, %zu later, %zu led elsewhere, %zu "
              "ran; %zu findings\n",
              path.c_str(), numbers.size(), kinds.size(), tried, outcomes[refused],
              outcomes[failed] - findings - elsewhere, elsewhere, outcomes[ran], findings);
  return findings;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    std::string_view argument = argv[i];
    size_t equals = argument.find('=');
    std::string_view name = argument.substr(0, equals);
    std::string value(equals == std::string_view::npos ? "" : argument.substr(equals + 1));
    if (!argument.starts_with("--"))
      options.programs.emplace_back(argument);
    else if (name == "--schema")
      options.schema = value;
    else if (name == "--per-kind")
      options.perKind = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--every")
      options.every = std::max<uint64_t>(std::strtoull(value.c_str(), nullptr, 10), 1);
    else if (name == "--seed")
      options.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (name == "--only")
      options.only = value;
    else if (name == "--skip")
      options.skip = value;
    else if (name == "--keep")
      options.keep = value;
    else if (name == "--all")
      options.all = true;
    else
      return std::fprintf(stderr, "unknown argument %s\n", argv[i]), 2;
  }
  std::vector<std::byte> schema = readFile(options.schema);
  // Processes say here how far they came.
  void *shared = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED)
    return 2;
  auto &report = *new (shared) Report();
  size_t findings = 0;
  for (const std::string &program : options.programs)
    findings += change(program, options, *reflection::GetSchema(schema.data()), report);
  return findings ? 1 : 0;
}
