// Texts in the making, as many at a time as a generator has sequences. A text is a prompt that is read and tokens that are
// drawn behind it, one a round; when it ends another takes its sequence. Caches say nothing of other sequences, so a text
// is, up to rounding, what it is alone. All ranks of a program make the same calls and draw the same tokens.
#pragma once

#include "runtime/generate/Generator.h"
#include "runtime/generate/Sampler.h"

#include <deque>
#include <optional>

namespace braid::runtime {

struct ContinuationOptions {
  // Prompts are read a bucket at a time, and a round goes on with texts that have been read; otherwise prompts are read to
  // their ends first, which takes fewer rounds in all, and others wait.
  bool readsBeside = false;
  // A sequence keeps the tokens that it has read, and a prompt that begins with all of them goes on from there. Where a
  // prompt is cut then depends on what came before, and its numbers are rounded accordingly.
  bool reuses = false;
  // Of states that are kept besides, from which prompts go on likewise: a prompt's before its last call, and where it leaves
  // what it has in common with an earlier one. With `readsBeside` and `reuses`.
  size_t stateBytes = 0;
  size_t choices = SIZE_MAX; // tokens at and above it are never drawn
};

class Continuations {
public:
  struct Text {
    std::vector<int32_t> prompt;
    int64_t maxTokens = 0; // 0: the prompt is read, and that is all
    SamplerOptions sampler;
    bool scoresPrompt = false; // generator.scores() of all tokens of the prompt but the first
  };

  Continuations(Generator &generator, const ContinuationOptions &options);

  size_t sequences() const { return places.size(); }
  size_t room() const; // sequences without a text
  bool empty() const { return room() == sequences(); }

  // Gives a text a sequence, of which there must be one. `id`: no other text's that goes on. How many tokens of the prompt
  // are read already.
  Expected<size_t> begin(uint64_t id, Text text);
  void end(uint64_t id);

  // Sees when a prompt has been read, before a token is drawn, with the scores of all its tokens but the first, or of none.
  // It may end the text.
  using OnRead = std::function<void(uint64_t id, std::span<const TokenScore> scores)>;
  void onRead(OnRead sees) { readSeen = std::move(sees); }

  // A round. `emit` sees each token that is drawn, or why none could be, with the logits of all tokens; that text goes on
  // unless it has maxTokens. False: `emit` has answered endAll, and the rest of the round was left out.
  using Emit = std::function<AfterToken(uint64_t id, const Expected<int32_t> &token, std::span<const float> logits)>;
  Expected<bool> step(const Emit &emit);

  // Since the beginning. Tokens that were fed or drawn; `reused` ones of prompts were not fed. Rounds that read of prompts
  // are promptSeconds but for their draws.
  struct Counts {
    uint64_t promptTokens = 0, reusedTokens = 0, drawnTokens = 0;
    size_t states = 0, stateBytes = 0; // that are kept
    double promptSeconds = 0, decodeSeconds = 0;
  };
  const Counts &counts() const { return total; }

private:
  struct Running {
    uint64_t id;
    Text text;
    Sampler sampler;
    size_t read; // tokens of the prompt
    size_t shared; // tokens with which an earlier prompt began, too
    std::vector<TokenScore> scores; // so far
    int64_t drawn = 0;
    int32_t token = 0; // the last one
    Status status = Status::success(); // of the draw
    // How far the prompt is read with scores, and how far in all.
    size_t scoredEnd() const { return text.scoresPrompt ? text.prompt.size() - 1 : 0; }
    size_t readEnd() const { return text.maxTokens == 0 && scoredEnd() > 0 ? scoredEnd() : text.prompt.size(); }
    bool isScored() const { return read < scoredEnd(); } // what is read next
  };
  // What a sequence has read. Where all of it was scored there is a score behind each token; that of the last one is of
  // `next`.
  struct Read {
    std::vector<int32_t> tokens;
    std::vector<TokenScore> scores;
    int32_t next = -1;
    bool beginsThat(const Text &text) const;
  };
  struct Place {
    std::optional<Running> running;
    Read read; // where it is reused
    uint64_t used = 0; // when it began its last text
  };
  struct Kept {
    Read read;
    Generator::State state;
    uint64_t used; // when it was made, or a prompt went on from it: by `uses`
    bool hasProven = false; // a prompt did
  };
  size_t placeFor(const Text *text, size_t &reused) const;
  Kept *keptFor(const Text &text);
  size_t sharedWith(std::span<const int32_t> prompt) const;
  Status keep(size_t at);
  void use(Kept &kept);
  void forget(std::vector<Kept>::iterator state);
  Status gather();
  Expected<Generator::Piece> nextPiece(size_t at);
  void draw(std::span<const size_t> of);

  Generator &generator;
  ContinuationOptions options;
  std::vector<Place> places;
  std::vector<Kept> states;
  std::deque<std::vector<int32_t>> recent; // prompts
  std::vector<Generator::Piece> pieces; // of a round
  OnRead readSeen;
  uint64_t begun = 0, uses = 0;
  Counts total;
};

} // namespace braid::runtime
