// Checkpoints: DIR/step-00000123/ with index.json (CheckpointIndex.h), model*.safetensors (weights alone, readable by
// any safetensors tool) and optimizer*.safetensors; one pair per rank that owns something. DIR/latest names the newest.
// A checkpoint appears complete or not at all: it is written to a hidden directory, made durable, then renamed.
#pragma once

#include "runtime/train/CheckpointIndex.h"
#include "runtime/train/Rank.h"

#include <filesystem>
#include <optional>

namespace braid::runtime {

// The checkpoint that `path` means: a step directory itself, a directory whose `latest` names one, or one with weights
// that other software wrote (TensorSource.h).
Expected<std::string> resolveCheckpoint(const std::string &path);
// Steps of the complete checkpoints in a directory, ascending; a directory that does not exist has none.
Expected<std::vector<uint64_t>> listCheckpoints(const std::string &directory);
std::string checkpointName(uint64_t step); // step-00000123
// "c/step-00000100" or "c/step-00000100/": its parent and its step; no step: another directory.
std::pair<std::string, std::optional<uint64_t>> splitCheckpoint(std::filesystem::path path);
// The index of a step directory.
Expected<CheckpointIndex> readIndex(const std::string &checkpoint);
// The end of an error message: "; complete checkpoints in DIR: 8, 4; go on from one with ..", those of steps below
// `below`.
std::string describeComplete(const std::string &directory, uint64_t below = UINT64_MAX);

// Removes what runs left behind that were killed while they saved. The caller is the only writer of the directory.
Status removeUnfinished(const std::string &directory);

// Removes all but the newest `keep` of the checkpoints up to step `newest`. The caller is the only writer. What an error
// leaves half removed is removed with the next checkpoint.
Status pruneCheckpoints(const std::string &directory, uint64_t newest, int keep);

// Collective. Writes parameters and moments, moves `latest`, then removes the checkpoints of the steps `left`, which are of an end that
// the training has left, and all but the newest `keep` of the others up to this one. An error
// leaves `isComplete` true on rank 0 when the checkpoint is there all the same, and only what follows it failed.
// `tokenizerFiles`: the tokenizer.json that read the training's texts, and what lay beside it; empty: none did.
Status saveCheckpoint(Rank &rank, const std::string &directory, const CheckpointState &state, int keep,
                      bool *isComplete = nullptr, std::span<const uint64_t> left = {},
                      const std::map<std::string, std::string> &tokenizerFiles = {});

// What of a checkpoint is read: the weights as programs that serve want them; those of a training, with the masters of
// bf16 parameters; or the moments too.
enum class Restored { weights, masters, all };

// Fills that much; moments that are not read stay as they are. The tensors must be exactly those
// of the program, with their global shapes and dtypes; the mesh may be another, and f32 and bf16 stand for each other.
// Of weights that other software wrote the state says nothing, and all cannot be read.
// Collective: rank 0 decides which of a directory's checkpoints is the newest, and all must read the same.
Expected<CheckpointState> loadCheckpoint(Rank &rank, const std::string &path, Restored what);

} // namespace braid::runtime
