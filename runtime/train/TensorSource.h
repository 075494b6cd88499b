// Where weights come from: a checkpoint of ours (CheckpointLoad.cpp), or one that other software wrote
// (ImportedWeights.cpp). A loader asks for what a rank holds, tensor by tensor.
#pragma once

#include "runtime/train/CheckpointIndex.h"
#include "runtime/train/Rank.h"

#include <memory>

namespace braid::runtime {

class TensorSource {
public:
  virtual ~TensorSource() = default;
  // Whether it has exactly these tensors, the model's; where moments are not asked for, it may have them all the same.
  virtual Status checkNames(const std::vector<LogicalTensor> &tensors, bool moments) = 0;
  // Whether its tensor of that name is such a one: type, shape, role.
  virtual Status check(const LogicalTensor &tensor) = 0;
  // This rank's piece as tensor.dtype; it has been checked.
  virtual Status read(const LogicalTensor &tensor, std::span<std::byte> out) = 0;
  virtual CheckpointState state() const = 0;
};

// " (and 3 more)" behind the first of several names.
std::string andMore(size_t count);

// Whether a directory holds weights as other software writes them: model.safetensors or model.safetensors.index.json,
// and neither a checkpoint nor checkpoints of ours, which go first.
bool isImported(const std::string &path);
// The weights of such a directory, by the names that the program's metadata "import" has for them. With a rank
// collective: all must see the same files.
Expected<std::unique_ptr<TensorSource>> openImported(const Program &program, const std::string &directory,
                                                     Rank *rank = nullptr);
// For one process that runs nothing: the weights of such a directory, or of a checkpoint of ours, of any mesh.
Expected<std::unique_ptr<TensorSource>> openWeights(const Program &program, const std::string &directory);

} // namespace braid::runtime
