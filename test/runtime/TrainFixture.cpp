#include "test/runtime/TrainFixture.h"

#include <fstream>
#include <map>
#include <sstream>
#include <unistd.h>

namespace braid::runtime::test {

namespace {

using K = schema::ParamKind;
using T = schema::DType;
using R = schema::Role;
constexpr int64_t V = 256;

class BigramBuilder {
public:
  explicit BigramBuilder(const BigramOptions &options) : options(options) {}

  std::vector<std::byte> build() {
    program.name = "bigram";
    program.cpu_features = options.cpuFeatures;
    if (options.pp > 1)
      program.axis("pp", options.pp);
    if (options.dp > 1) {
      program.axis("dp", options.dp);
      if (options.pp > 1)
        program.axis("pp", options.pp, /*expert=*/true);
      program.axis("ep", options.dp, /*expert=*/true);
      program.stream("dp", "dp");
    }
    declareKernels();
    for (uint32_t stage = 0; stage < options.pp; ++stage)
      addStage(static_cast<int32_t>(stage));
    std::map<std::string, std::string> metadata = {{"model_name", "bigram"},
                                                   {"model_json", "{\"name\": \"bigram\" /* comment */}"},
                                                   {"tokenizer", "bytes"},
                                                   {"vocab_size", "256"}};
    for (const auto &[key, value] : options.metadata)
      metadata[key] = value;
    for (const auto &[key, value] : metadata) {
      program.metadata.push_back(std::make_unique<schema::KeyValueT>());
      program.metadata.back()->key = key;
      program.metadata.back()->value = value;
    }
    return program.bytes();
  }

private:
  struct Ref {
    uint32_t index, arena;
    uint64_t offset, bytes;
  };

  void addStage(int32_t number) {
    stage = static_cast<uint32_t>(number);
    firstArena = static_cast<uint32_t>(program.arenas.size());
    std::fill(std::begin(used), std::end(used), 0);
    size_t firstEntry = program.entries.size();
    program.arena("parameters", 1 << 20);
    program.arena("optimizer", 1 << 21);
    program.arena("gradients", 1 << 20);
    program.arena("io", 1 << 20);
    program.arena("cache", 8192);
    if (options.workspaceBytes)
      program.arena("workspace", options.workspaceBytes);
    declareTensors();
    addInit();
    addTrainStep();
    addEvalStep();
    if (options.pp == 1) {
      for (int64_t length : {4, 8})
        addAdvance("prefill_" + std::to_string(length), length);
      addAdvance("decode_" + std::to_string(options.sequences), 1);
      for (int64_t length : {4, 8})
        addScore(length);
      return;
    }
    for (size_t i = firstArena; i < program.arenas.size(); ++i)
      program.arenas[i]->stage = number;
    for (size_t i = firstEntry; i < program.entries.size(); ++i)
      program.entries[i]->stage = number;
  }

  void declareKernels() {
    program.addKernels(); // the library, and kernels this program does not call
    program.kernels.clear();
    kernel("bigram_init", {{"seed", K::pointer}, {"out", K::pointer}, {"salt", K::i64}});
    kernel("bigram_loss", {{"tokens", K::pointer},
                           {"labels", K::pointer},
                           {"weight", K::pointer},
                           {"bias", K::pointer},
                           {"dweight", K::pointer},
                           {"dbias", K::pointer},
                           {"sums", K::pointer},
                           {"count", K::i64},
                           {"layers", K::i64},
                           {"backward", K::i64}});
    kernel("bigram_finish", {{"sums", K::pointer},
                             {"dweight", K::pointer},
                             {"dbias", K::pointer},
                             {"loss", K::pointer},
                             {"aux_loss", K::pointer},
                             {"grad_norm", K::pointer},
                             {"layers", K::i64}});
    kernel("bigram_adam", {{"x", K::pointer},
                           {"d", K::pointer},
                           {"first", K::pointer},
                           {"second", K::pointer},
                           {"learning_rate", K::pointer},
                           {"step", K::pointer}});
    kernel("bigram_eval", {{"sums", K::pointer}, {"loss_sum", K::pointer}, {"valid_tokens", K::pointer}});
    kernel("bigram_advance", {{"tokens", K::pointer},
                              {"cu_seqlens", K::pointer},
                              {"weight", K::pointer},
                              {"bias", K::pointer},
                              {"state", K::pointer},
                              {"logits", K::pointer},
                              {"history", K::pointer},
                              {"count", K::i64},
                              {"layers", K::i64},
                              {"positions", K::i64}});
    kernel("bigram_score", {{"tokens", K::pointer},
                            {"labels", K::pointer},
                            {"cu_seqlens", K::pointer},
                            {"weight", K::pointer},
                            {"bias", K::pointer},
                            {"state", K::pointer},
                            {"losses", K::pointer},
                            {"likeliest_losses", K::pointer},
                            {"likeliest", K::pointer},
                            {"history", K::pointer},
                            {"count", K::i64},
                            {"layers", K::i64},
                            {"positions", K::i64}});
  }

  void kernel(const std::string &name, std::vector<std::pair<const char *, K>> params) {
    program.kernels.push_back(std::make_unique<schema::KernelT>());
    program.kernels.back()->name = name;
    for (auto [param, kind] : params) {
      program.kernels.back()->params.push_back(std::make_unique<schema::ParamT>());
      program.kernels.back()->params.back()->name = param;
      program.kernels.back()->params.back()->kind = kind;
      // What the tripwire looks at.
      bool integer = std::string_view(param) == "tokens" || std::string_view(param) == "labels";
      program.kernels.back()->params.back()->type = integer ? T::i32 : T::f32;
      program.kernels.back()->params.back()->written =
          name == "bigram_loss" && (std::string_view(param).starts_with("d") || std::string_view(param) == "sums");
    }
  }

  Ref place(const std::string &name, T type, std::vector<int64_t> shape, uint32_t arena, R role,
            std::vector<int32_t> layers = {}) {
    uint64_t &next = used[arena];
    schema::TensorT &tensor =
        program.tensor(name, type, std::move(shape), firstArena + arena, next, role, std::move(layers));
    Ref ref{static_cast<uint32_t>(program.tensors.size() - 1), firstArena + arena, next, tensor.bytes};
    next = (next + tensor.bytes + 255) / 256 * 256;
    return ref;
  }

  Ref moment(const std::string &of, const std::string &slot, std::vector<int64_t> shape, std::vector<int32_t> layers) {
    Ref ref = place(of + "/" + slot, T::f32, std::move(shape), 1, R::moment, std::move(layers));
    program.tensors[ref.index]->of = of;
    program.tensors[ref.index]->slot = slot;
    return ref;
  }

  Ref gradient(const std::string &of, std::vector<int64_t> shape, std::vector<int32_t> layers) {
    Ref ref = place("d." + of, T::f32, std::move(shape), 2, R::gradient, std::move(layers));
    program.tensors[ref.index]->of = of;
    return ref;
  }

  void declareTensors() {
    const std::string w = "embed.weight", b = "layers.{}.bias";
    weight = place(w, T::f32, {V, V}, 0, R::parameter);
    bias = place(b, T::f32, {V}, 0, R::parameter, options.layers);
    weightFirst = moment(w, "first", {V, V}, {});
    weightSecond = moment(w, "second", {V, V}, {});
    biasFirst = moment(b, "first", {V}, options.layers);
    biasSecond = moment(b, "second", {V}, options.layers);
    dweight = gradient(w, {V, V}, {});
    dbias = gradient(b, {V}, options.layers);
    sums = place("sums", T::f32, {2}, 2, R::gradient);
    if (options.pp > 1)
      dropped = place("dropped", T::f32, {V, V}, 2, R::gradient);
    state = place("cache.state", T::i32, rows({2}), 4, R::cache);
    history = state;
    if (options.positions > 0) {
      history = place("cache.history", T::i32, rows({options.positions, 1}), 4, R::cache);
      program.tensors[history.index]->slot = "positions";
    }
  }

  static BufferPtr buf(const Ref &ref) { return buffer(ref.arena, ref.offset, ref.bytes); }
  int64_t layerCount() const { return static_cast<int64_t>(options.layers.size()); }

  void finishEntry(const std::string &name, std::vector<CommandPtr> commands, std::vector<Ref> inputs,
                   std::vector<Ref> outputs, uint32_t events = 0) {
    schema::EntryT &entry = program.entry(name, std::move(commands), events);
    for (const Ref &ref : inputs)
      entry.inputs.push_back(ref.index);
    for (const Ref &ref : outputs)
      entry.outputs.push_back(ref.index);
  }

  void addInit() {
    Ref seed = place("seed", T::i64, {1}, 3, R::input);
    std::vector<Ref> inputs = {seed};
    if (options.dp > 1)
      inputs.push_back(place("coordinate.ep", T::i32, {1}, 3, R::input));
    uint64_t layers = static_cast<uint64_t>(layerCount());
    auto commands = list(
        command(launch(0, {V * V, 1, 1}, arg("seed", buf(seed)), arg("out", buf(weight)), arg("salt", int64_t(0)))),
        command(launch(0, {V * layers, 1, 1}, arg("seed", buf(seed)), arg("out", buf(bias)), arg("salt", V * V))));
    finishEntry("init", std::move(commands), inputs, {});
  }

  CommandPtr loss(const Ref &tokens, const Ref &labels, bool backward) {
    return command(launch(
        1, {1, 1, 1}, arg("tokens", buf(tokens)), arg("labels", buf(labels)), arg("weight", buf(weight)),
        arg("bias", buf(bias)), arg("dweight", buf(dweight)), arg("dbias", buf(dbias)), arg("sums", buf(sums)),
        arg("count", options.batch * options.seqLen), arg("layers", layerCount()), arg("backward", int64_t(backward))));
  }

  void reduce(std::vector<CommandPtr> &commands, std::vector<Ref> refs) {
    if (options.dp == 1)
      return;
    commands.push_back(command(recordEvent(0)));
    commands.push_back(command(waitEvent(0), "", 1));
    for (const Ref &ref : refs)
      commands.push_back(command(collective(schema::CollectiveKind::all_reduce, "dp", buf(ref), buf(ref)), "sum", 1));
    commands.push_back(command(recordEvent(1), "", 1));
    commands.push_back(command(waitEvent(1)));
  }

  CommandPtr adam(const Ref &x, const Ref &d, const Ref &first, const Ref &second, const Ref &rate, const Ref &step) {
    return command(launch(3, {x.bytes / 4, 1, 1}, arg("x", buf(x)), arg("d", buf(d)), arg("first", buf(first)),
                          arg("second", buf(second)), arg("learning_rate", buf(rate)), arg("step", buf(step))));
  }

  void addTrainStep() {
    Ref tokens = place("tokens", T::i32, {options.batch, options.seqLen}, 3, R::input);
    Ref labels = place("labels", T::i32, {options.batch, options.seqLen}, 3, R::input);
    Ref documents = place("cu_seqlens", T::i32, {options.batch, 3}, 3, R::input);
    Ref rate = place("learning_rate", T::f32, {1}, 3, R::input);
    Ref step = place("step", T::i32, {1}, 3, R::input);
    Ref lossOut = place("loss", T::f32, {1}, 3, R::output);
    Ref aux = place("aux_loss", T::f32, {1}, 3, R::output);
    Ref norm = place("grad_norm", T::f32, {1}, 3, R::output);
    std::vector<CommandPtr> commands;
    if (stage == 0) {
      for (int i = 0; options.pp > 1 && i < 3;
           ++i) // its loss comes later in its list than what comes from it in others'
        commands.push_back(command(fill(buf(sums), 0)));
      commands.push_back(loss(tokens, labels, /*backward=*/true));
      reduce(commands, {sums, dweight, dbias});
    }
    for (uint32_t from : {stage - 1, stage})
      if (from < options.pp - 1)
        for (const Ref &ref : {sums, dweight, dbias}) {
          BufferPtr end = buffer(dropped.arena, dropped.offset, ref.bytes);
          std::string axis = fmt::format("pp[{},{}]", from, from + 1);
          commands.push_back(command(from == stage
                                         ? collective(schema::CollectiveKind::shift, axis, buf(ref), std::move(end))
                                         : collective(schema::CollectiveKind::shift, axis, std::move(end), buf(ref))));
        }
    commands.push_back(command(launch(2, {1, 1, 1}, arg("sums", buf(sums)), arg("dweight", buf(dweight)),
                                      arg("dbias", buf(dbias)), arg("loss", buf(lossOut)), arg("aux_loss", buf(aux)),
                                      arg("grad_norm", buf(norm)), arg("layers", layerCount()))));
    commands.push_back(adam(weight, dweight, weightFirst, weightSecond, rate, step));
    commands.push_back(adam(bias, dbias, biasFirst, biasSecond, rate, step));
    if (options.workspaceBytes)
      commands.push_back(command(fill(buffer(firstArena + 5, options.workspaceBytes - 1, 1), 0)));
    std::vector<Ref> inputs = {tokens, labels, documents, rate, step};
    if (options.microBatches) {
      inputs.push_back(place("loss_scale", T::f32, {1}, 3, R::input));
      inputs.push_back(place("aux_scale", T::f32, {options.microBatches}, 3, R::input));
    }
    finishEntry("train_step", std::move(commands), inputs, {lossOut, aux, norm}, 2);
  }

  void addEvalStep() {
    Ref tokens = place("eval_step/tokens", T::i32, {options.batch, options.seqLen}, 3, R::input);
    Ref labels = place("eval_step/labels", T::i32, {options.batch, options.seqLen}, 3, R::input);
    Ref documents = place("eval_step/cu_seqlens", T::i32, {options.batch, 3}, 3, R::input);
    Ref lossSum = place("loss_sum", T::f32, {1}, 3, R::output);
    Ref valid = place("valid_tokens", T::f32, {1}, 3, R::output);
    auto commands = list(loss(tokens, labels, /*backward=*/false));
    reduce(commands, {sums});
    commands.push_back(command(
        launch(4, {1, 1, 1}, arg("sums", buf(sums)), arg("loss_sum", buf(lossSum)), arg("valid_tokens", buf(valid)))));
    finishEntry("eval_step", std::move(commands), {tokens, labels, documents}, {lossSum, valid}, 2);
  }

  // One sequence has its state without a dimension of rows.
  std::vector<int64_t> rows(std::vector<int64_t> shape) const {
    if (options.sequences > 1)
      shape.insert(shape.begin(), options.sequences);
    return shape;
  }

  void addAdvance(const std::string &name, int64_t length) {
    Ref tokens = place(name + "/tokens", T::i32, {options.sequences, length}, 3, R::input);
    Ref documents = place(name + "/cu_seqlens", T::i32, {options.sequences, 2}, 3, R::input);
    Ref logits = place(name + "/logits", T::f32, {options.sequences, V}, 3, R::output);
    auto commands =
        list(command(launch(5, {static_cast<uint64_t>(options.sequences), 1, 1}, arg("tokens", buf(tokens)),
                            arg("cu_seqlens", buf(documents)), arg("weight", buf(weight)), arg("bias", buf(bias)),
                            arg("state", buf(state)), arg("logits", buf(logits)), arg("history", buf(history)),
                            arg("count", length), arg("layers", layerCount()), arg("positions", options.positions))));
    finishEntry(name, std::move(commands), {tokens, documents}, {logits});
  }

  void addScore(int64_t length) {
    std::string name = "score_" + std::to_string(length);
    Ref tokens = place(name + "/tokens", T::i32, {options.sequences, length}, 3, R::input);
    Ref labels = place(name + "/labels", T::i32, {options.sequences, length}, 3, R::input);
    Ref documents = place(name + "/cu_seqlens", T::i32, {options.sequences, 2}, 3, R::input);
    Ref losses = place(name + "/losses", T::f32, {options.sequences, length}, 3, R::output);
    Ref likeliestLosses = place(name + "/likeliest_losses", T::f32, {options.sequences, length}, 3, R::output);
    Ref likeliest = place(name + "/likeliest", T::i32, {options.sequences, length}, 3, R::output);
    auto commands = list(command(launch(
        6, {static_cast<uint64_t>(options.sequences), 1, 1}, arg("tokens", buf(tokens)), arg("labels", buf(labels)),
        arg("cu_seqlens", buf(documents)), arg("weight", buf(weight)), arg("bias", buf(bias)), arg("state", buf(state)),
        arg("losses", buf(losses)), arg("likeliest_losses", buf(likeliestLosses)), arg("likeliest", buf(likeliest)),
        arg("history", buf(history)), arg("count", length), arg("layers", layerCount()),
        arg("positions", options.positions))));
    finishEntry(name, std::move(commands), {tokens, labels, documents}, {losses, likeliestLosses, likeliest});
  }

  const BigramOptions &options;
  TestProgram program;
  uint32_t stage = 0, firstArena = 0; // of the stage
  uint64_t used[5] = {};
  Ref weight, bias, weightFirst, weightSecond, biasFirst, biasSecond, dweight, dbias, sums, state, history;
  Ref dropped; // what comes at an end of a pair that only sends, and what goes at the other
};

} // namespace

std::vector<std::byte> bigramProgram(const BigramOptions &options) { return BigramBuilder(options).build(); }

TemporaryDirectory::TemporaryDirectory() {
  std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
  EXPECT_NE(mkdtemp(name.data()), nullptr);
  path = name;
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

std::string ranksOfBytes() {
  std::string ranks = "dGg= 0\ndGhl 1\n";
  constexpr std::string_view digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int byte = 0; byte < 256; ++byte)
    ranks += fmt::format("{}{}== {}\n", digits[byte >> 2], digits[(byte & 3) << 4], byte + 2);
  return ranks;
}

std::string readText(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void writeText(const std::string &path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  EXPECT_TRUE(file.flush()) << path;
}

std::string sampleText(size_t bytes, uint32_t seed) {
  static constexpr std::string_view words[] = {"the ",   "braid ", "of ",   "three ",  "strands ", "holds ",  "and ",
                                               "turns ", "while ", "each ", "waits, ", "never ",   "alone.\n"};
  std::string text;
  while (text.size() < bytes) {
    seed = seed * 1664525 + 1013904223;
    text += words[(seed >> 16) % std::size(words)];
  }
  text.resize(bytes);
  return text;
}

std::shared_ptr<const Program> parseProgram(std::vector<std::byte> bytes) {
  auto program = Program::parse(std::move(bytes), "bigram.braid");
  EXPECT_TRUE(program) << program.message();
  return program ? *program : nullptr;
}

void onRanks(const std::shared_ptr<const Program> &program, const std::function<Status(Rank &)> &body) {
  ASSERT_TRUE(program);
  RankOptions options;
  options.ranks = static_cast<int>(program->mesh().worldSize());
  options.threads = 1;
  Status status = runRanks(program, options, body);
  EXPECT_TRUE(status.ok()) << status.message();
}

} // namespace braid::runtime::test
