// index.json of a checkpoint: logical tensors (per layer, global shapes) and the pieces that make them up, so that any
// mesh can read what any other mesh wrote; and where training stood.
//
//   {"format": "braid-checkpoint", "version": 3, "program": "...", "step": 123, "data_position": 984, "seed": 1, ...,
//    "tensors": {"layers.3.lsm.wq": {"role": "parameter", "dtype": "f32", "shape": [64, 64],
//                                    "pieces": [{"file": "model.safetensors", "offset": [0, 0], "shape": [64, 64]}]},
//                "layers.3.lsm.wq.first": {"role": "moment", ...}, ...},
//    "files": {"model.safetensors": {"bytes": 16520, "hash": "99aa06d3014798d86001c324468d497f"}, ...},
//    "content_hash": "06b05ab6733a618578af5f94892f3950"}
//
// Inside its file a piece has the logical name of its tensor. Hashes are XXH3 with 128 bits, as `xxhsum -H2` prints
// them: of the files, and in the last line of all that stands before it.
#pragma once

#include "runtime/Program.h"
#include "runtime/io/File.h"

#include <map>

namespace braid::runtime {

// A name that stays in its directory: no path, nothing hidden.
bool isPlainName(std::string_view name);

// What a resumed run needs besides the tensors.
struct CheckpointState {
  uint64_t step = 0;         // completed optimizer steps
  uint64_t dataPosition = 0; // samples (rows) consumed
  uint64_t seed = 0;
  // What the rows were packed from and how: the position means nothing in others.
  int64_t seqLen = 0, maxDocuments = 0;
  uint64_t corpusTokens = 0, corpusDocuments = 0, corpusHash = 0;
  double learningRate = 0, minLearningRate = 0;
  uint64_t warmupSteps = 0, steps = 0; // steps: of the whole training, the length of the schedule
  uint64_t accumulationSteps = 1;      // batches of a step
  uint64_t stepSamples = 0;            // samples of a step, of all its batches and ranks
};

struct CheckpointPiece {
  std::string file; // a plain name in the checkpoint's directory
  std::vector<int64_t> offset, shape;
};

struct CheckpointTensor {
  Role role = Role::parameter;
  DType dtype = DType::f32;
  std::vector<int64_t> shape; // global
  std::vector<CheckpointPiece> pieces;
};

struct CheckpointIndex {
  CheckpointState state;
  // tokenizer: "bytes", "none", or one of the files, of `tokenizerFiles`, by which the training read its texts.
  std::string program, tokenizer, modelJson;
  std::map<std::string, CheckpointTensor, std::less<>> tensors;
  std::map<std::string, FileContent, std::less<>>
      files; // every file that a piece names, the tokenizer, and what lay beside it

  std::string toJson() const;
  static constexpr std::string_view tokenizerFiles[] = {"tokenizer.json", "tiktoken.model", "rwkv_vocab_v20230424.txt"},
                                    templateFile = "chat_template.jinja";
  // Adds the line with the content hash to a JSON object whose last line is "}".
  static std::string seal(std::string json);
  // Checks everything that can be checked without the files: types, bounds, and that the pieces of every tensor cover
  // it exactly once. `path` is for errors.
  static Expected<CheckpointIndex> parse(std::string_view text, const std::string &path);
};

// One logical tensor as a rank of a program holds it.
struct LogicalTensor {
  std::string name; // layers.3.lsm.wq; moments: layers.3.lsm.wq.first
  Role role = Role::parameter;
  // Where its values are; of a bf16 parameter with moments its master: slot "low", or "master".
  const TensorInfo *info = nullptr;
  DType dtype = DType::f32; // in files
  size_t layer = 0; // position in the stacked buffer
  std::vector<int64_t> shape; // global
  std::vector<int64_t> offset, localShape; // this rank's piece
  // Of a master: the bf16 parameter, which is the master rounded. This rank may hold more of it than of the master.
  const TensorInfo *rounded = nullptr;
  std::vector<int64_t> roundedOffset, roundedShape;
  // Of a master in parts (`info` is "low"): the second moment, whose signs are a part.
  const TensorInfo *second = nullptr;
  bool signsOfMaster = false; // a second moment with such signs: files have it without
  bool owned =
      false; // this rank writes the piece: the lowest rank that holds these bytes, in the first stage that has it
};

// All parameters, and with `moments` the optimizer's moments, of a rank, in the view of its stage. With moments a bf16 parameter
// stands for its master, so that checkpoints of f32 and bf16 programs hold the same tensors.
Expected<std::vector<LogicalTensor>> logicalTensors(const Program &program, uint32_t rank, bool moments);
// Those of the model, each once: of every stage as its first rank has it.
Expected<std::vector<LogicalTensor>> modelTensors(const Program &program, bool moments);

} // namespace braid::runtime
