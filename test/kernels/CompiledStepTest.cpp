//===- CompiledStepTest.cpp - what a training step of a compiled model may not do ---------------------------------===//
// A step allocates nothing of its own and reads nothing of the program file: everything it needs was resolved when the
// session was made, so no name is looked up. The file's pages are taken away while steps run.
#include "compiler/Driver.h"
#include "runtime/io/TensorNames.h"
#include "runtime/train/Random.h"
#include "runtime/train/Rank.h"
#include "test/runtime/AllocationCounter.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace braid;
using namespace braid::runtime;

namespace {

constexpr const char *modelText = R"({
  "name": "step", "vocab_size": 64, "d_model": 32, "num_layers": 3, "layer_pattern": "GNG", "ffn_pattern": "M",
  "context_len": 32, "max_documents": 2,
  "mixers": {"G": {"kind": "gated_deltanet", "heads": 2, "head_dim": 16},
             "N": {"kind": "attention", "heads": 2, "head_dim": 16}},
  "ffns": {"M": {"kind": "moe", "num_experts": 4, "top_k": 2, "expert_hidden": 32}},
  "train": {"batch": 4, "seq_len": 32}
})";

/// Takes read access to the whole pages of a range away while it lives.
class Unreadable {
public:
  Unreadable(const std::byte *data, size_t bytes) {
    uintptr_t page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE)), from = reinterpret_cast<uintptr_t>(data);
    begin = (from + page - 1) / page * page;
    end = (from + bytes) / page * page;
    taken = begin < end && mprotect(reinterpret_cast<void *>(begin), end - begin, PROT_NONE) == 0;
  }
  ~Unreadable() {
    if (taken)
      mprotect(reinterpret_cast<void *>(begin), end - begin, PROT_READ | PROT_WRITE);
  }
  size_t bytes() const { return taken ? end - begin : 0; }

private:
  uintptr_t begin = 0, end = 0;
  bool taken = false;
};

class CompiledStep : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "braid-step-XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder = pattern;
    std::ofstream(folder / "model.json") << modelText;
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  void compile(const CompileOptions &options);
  void check(int ranks, int threads);

  std::filesystem::path folder;
};

/// Random tokens, other ones in every step so that routes differ; two documents a row.
void fillBatch(const BatchBinding &batch, int rank, int step) {
  for (int64_t row = 0; row < batch.batch; ++row)
    (void)batch.fillRow(row, [&](auto tokens, auto labels, auto documents) {
      for (int64_t i = 0; i < batch.seqLen; ++i) {
        auto bits = randomBits(5, RandomStream::sampling, ((rank * 100 + step) * 100 + row) * 1000 + i);
        tokens[i] = static_cast<int32_t>(bits % 64);
        labels[i] = static_cast<int32_t>(bits / 64 % 64);
      }
      std::ranges::fill(documents, static_cast<int32_t>(batch.seqLen));
      documents[0] = 0;
      documents[1] = 7 + step;
      return Status::success();
    });
}

void CompiledStep::compile(const CompileOptions &options) {
  ASSERT_TRUE(braid::compile({folder / "model.json", folder / "step.braid", options}));
}

void CompiledStep::check(int ranks, int threads) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << threads << " threads");
  std::string path = folder / "step.braid";
  std::ifstream in(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(in)), {});
  auto view = std::as_bytes(std::span(text));
  std::vector<std::byte> file(view.begin(), view.end());
  const std::byte *data = file.data();
  size_t bytes = file.size();
  Expected<std::shared_ptr<const Program>> program = Program::parse(std::move(file), path);
  ASSERT_TRUE(program) << program.message();
  auto *hash = reinterpret_cast<const std::byte *>((*program)->codeHash().data());
  ASSERT_TRUE(hash >= data && hash < data + bytes) << "the program's bytes have moved";

  Status status = runRanks(*program, {ranks, threads}, [&](Rank &rank) -> Status {
    Session &session = rank.session();
    BRAID_TRY(initialize(rank, 1));
    BRAID_ASSIGN(const EntryInfo *entry, findEntry(**program, "train_step"));
    BRAID_ASSIGN(BatchBinding batch, BatchBinding::bind(session, *entry));
    BRAID_ASSIGN(TensorView learningRate, scalarInput(session, *entry, "learning_rate", DType::f32));
    BRAID_ASSIGN(TensorView number, scalarInput(session, *entry, "step", DType::i32));
    BRAID_ASSIGN(TensorView loss, scalarOutput(session, *entry, "loss", DType::f32));
    auto step = [&](int i) -> Status {
      fillBatch(batch, rank.index(), i);
      learningRate.as<float>()[0] = 1e-3f;
      number.as<int32_t>()[0] = i;
      return session.run(batch.entry);
    };
    for (int i : {1, 2}) // first touches of thread-local state, and the runs that MemoryCheck looks at
      BRAID_TRY(step(i));

    std::optional<Unreadable> unreadable;
    BRAID_TRY(rank.barrier("before"));
    if (rank.isFirst()) {
      unreadable.emplace(data, bytes);
      EXPECT_GT(unreadable->bytes(), bytes / 2);
    }
    BRAID_TRY(rank.barrier("taken"));
    int64_t before = test::allocations();
    Status all = Status::success();
    for (int i = 3; i <= 7 && all.ok(); ++i)
      all = step(i);
    int64_t after = test::allocations();
    BRAID_TRY(rank.barrier("after"));
    unreadable.reset();
    BRAID_TRY(std::move(all));
    if (test::countsAllocations())
      EXPECT_EQ(after - before, 0) << "rank " << rank.index();
    EXPECT_TRUE(std::isfinite(loss.as<float>()[0]));
    EXPECT_GT(loss.as<float>()[0], 1);
    return Status::success();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(CompiledStep, AllocatesAndLooksUpNothing) {
  CompileOptions options;
  compile(options);
  for (int threads : {1, 2})
    check(1, threads);
}

TEST_F(CompiledStep, AllocatesAndLooksUpNothingInBf16OnTwoRanks) {
  CompileOptions options;
  options.dtype = "bf16";
  options.mesh = "dp=2,ep=2";
  options.pipeline = "1A1M";
  options.overlapDegree = 3;
  compile(options);
  check(2, 1);
}

} // namespace
