// Weights for other software: those of a checkpoint in the form of a directory that it wrote for the same model, by the
// program's metadata "import" (ImportMap.h) turned round.
#pragma once

#include "runtime/Program.h"

#include <atomic>

namespace braid::runtime {

struct Exported {
  std::string checkpoint; // the one that was read
  size_t tensors = 0, filled = 0; // in the files; of these with weights of ours
  size_t files = 0;
  std::vector<std::string> notFinite; // weights of ours that hold NaN or infinity, which are written as they are
  std::vector<std::string> copied, left; // names of others: config, tokenizer; and what has no place beside new weights
  std::vector<std::string> kept; // names of files of the checkpoint that others lack: a chat template
};

// Writes `output`, which must be no file and no directory that holds anything; it appears whole or not at all. Its
// files, and in them names, types, shapes and places of tensors, are those of `like`, whose tensors must all be weights
// of the program, each row of them once, or be named "equal" or "unread". What of `like` is no file of weights is
// copied; directories, and weights in other files, are left. `checkpoint`: as loadCheckpoint takes it. Where `stop` is true
// when one of our weights would be written next, that is an error and nothing is left behind.
Expected<Exported> exportWeights(const Program &program, const std::string &checkpoint, const std::string &like,
                                 const std::string &output, const std::atomic<bool> *stop = nullptr);

} // namespace braid::runtime
