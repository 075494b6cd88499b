// Rank: what the host code of training and evaluation sees of the world: this rank's session and the agreement of all
// ranks. Every rank runs the same host code (SPMD); rank 0 alone prints and writes shared files.
#pragma once

#include "runtime/Communicator.h"
#include "runtime/Session.h"
#include "runtime/comm/Processes.h"
#include "runtime/data/Corpus.h"
#include "runtime/schema/SequenceLayout.h"

#include <functional>

namespace braid::runtime {

class Rank {
public:
  Rank(Session &session, CommunicatorGroup *comm) : sessionRef(session), comm(comm) {}

  Session &session() { return sessionRef; }
  const Program &program() const { return sessionRef.program(); }
  int index() const { return sessionRef.rank(); }
  int worldSize() const { return sessionRef.worldSize(); }
  bool isFirst() const { return index() == 0; }
  // Data parallelism: the rows of the global batch are split over dp.
  int64_t dpSize() const;
  int64_t dpCoordinate() const;

  // Collective. True when `flag` is true on any rank; also a barrier. `name` appears in errors.
  Expected<bool> any(bool flag, const char *name);
  // Collective. `all` receives the bytes of every rank, in rank order.
  Status gather(std::span<const std::byte> own, std::span<std::byte> all, const char *name);
  // Collective. What the first rank brings.
  Expected<std::string> fromFirst(std::string bytes, const char *name);
  // Collective. Success when every rank brings the same values: (what it is called in the error, as text; what stands
  // behind 63 characters does not count). Ranks that are processes were started one by one and read files of their own.
  struct Value {
    const char *what;
    std::string text;
  };
  Status agree(std::span<const Value> values, const char *name);
  Status barrier(const char *name) { return any(false, name).status(); }

private:
  Session &sessionRef;
  CommunicatorGroup *comm;
};

// Rank::agree, of ranks that have no session (yet).
Status agreeOn(Communicator &world, std::span<const Rank::Value> values, const char *name);

struct RankOptions {
  int ranks = 1; // threads of this process that act as ranks; must equal the program's mesh
  int threads = 0; // worker threads per rank; 0: all cores / ranks
  // How long a rank waits for another in one collective: by then a rank is lost. Long enough for rank 0 to write a
  // large checkpoint while the others wait.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  // Ranks are processes, this one is one of them, and `ranks` means nothing; null: ranks are threads. Not owned.
  Processes *processes = nullptr;
  std::string command = {}; // what processes were started to do: all the same
  // Ranks that are threads: called when one has failed and another does not return within `timeout` plus `grace`, so
  // that a function that hangs does not hold the process. Not called: what hangs is waited for.
  std::function<void(const Status &)> stuck = nullptr;

  // Whether this process speaks for all of them: prints and writes files that exist once.
  bool speaks() const { return !processes || processes->rank() == 0; }
};

// Creates the sessions and runs `body` on every rank of this process. When one rank fails, the others are told and end
// too; the error is that of the rank that failed first in rank order.
Status runRanks(std::shared_ptr<const Program> program, const RankOptions &options,
                const std::function<Status(Rank &)> &body);

// Runs entry `init`: parameters (and masters) from the seed, the same on every mesh; other moments zero.
Status initialize(Rank &rank, uint64_t seed);

// The tokens, labels, cu_seqlens and draw_keys of an entry; this rank's rows, and along sp its part of each.
struct BatchBinding {
  EntryId entry;
  int64_t batch = 0, seqLen = 0; // seqLen: tokens of a row on all ranks
  SequenceLayout layout;
  int64_t spCoordinate = 0;
  std::span<int32_t> tokens, labels, cuSeqlens;
  int64_t documentStride = 0; // entries of cu_seqlens per row
  std::span<int64_t> drawKeys; // empty: the entry draws nothing
  std::vector<const TensorInfo *> inputs; // of those

  static Expected<BatchBinding> bind(Session &session, const EntryInfo &entry);
  // `fill(tokens, labels, cuSeqlens)` writes the whole row; this rank keeps its part.
  template <typename Fill> auto fillRow(int64_t row, Fill &&fill) const {
    std::span<int32_t> documents = cuSeqlens.subspan(row * documentStride, documentStride);
    if (layout.ranks == 1)
      return fill(tokens.subspan(row * seqLen, seqLen), labels.subspan(row * seqLen, seqLen), documents);
    auto status = fill(std::span<int32_t>(rowTokens), std::span<int32_t>(rowLabels), documents);
    keepPart(row);
    return status;
  }
  // What layers that draw (experts with drop_policy "random") draw for the sample in this row, whichever rank holds it.
  void setDraw(int64_t row, uint64_t sample, uint64_t seed) const;

private:
  void keepPart(int64_t row) const;
  mutable std::vector<int32_t> rowTokens, rowLabels; // a whole row, where ranks along sp share it
};

// Named inputs and outputs of one element.
Expected<TensorView> scalarInput(Session &session, const EntryInfo &entry, std::string_view name, DType dtype);
Expected<TensorView> scalarOutput(Session &session, const EntryInfo &entry, std::string_view name, DType dtype);

// Tokens of the program, from its metadata; 256 when it does not say.
Expected<int64_t> vocabularyOf(const Program &program);
// True when the program reads bytes, or tokens of which the first 256 can be bytes.
Expected<bool> readsBytes(const Program &program);
// Success when the host can feed the program: it knows f32 scalars.
Status checkDType(const Program &program);
// Success when the program can read this data.
Status checkTokens(const Program &program, const Corpus &corpus);
// A number from the program's metadata; absent: nothing; not a number: an error that quotes it.
Expected<std::optional<double>> metadataNumber(const Program &program, std::string_view key);
// What layers keep for their backward, of the stage at hand.
struct Activations {
  uint64_t kept, all; // bytes of a rank; all: with nothing computed again
  int64_t percent; // of the layers' forward that is
};
// Nothing: it trains nothing, or does not say.
Expected<std::optional<Activations>> activationsOf(const Program &program);

} // namespace braid::runtime
