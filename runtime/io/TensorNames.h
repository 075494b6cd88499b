// Names that people write, resolved to tensors of a program.
//   tokens            an input or output of an entry, by its last path component (the file may call it
//   train_step/tokens) layers.{}.lsm.wq  the whole stacked buffer, shape [layers, ...] layers.3.lsm.wq   one layer of
//   it, by the absolute layer index
#pragma once

#include "runtime/Session.h"

#include <set>

namespace braid::runtime {

struct TensorRef {
  const TensorInfo *info = nullptr;
  std::optional<size_t> layer; // position in info->layers; absent: the whole buffer

  std::vector<int64_t> shape() const; // with the leading layer dimension for a whole stacked buffer
  uint64_t bytes() const { return layer ? info->layerBytes() : info->bytes; }
  TensorView view(Session &session) const;
};

// The tensor of `list` (an entry's inputs or outputs) called `name`, or whose last path component it is; nullptr if
// none.
const TensorInfo *findByLastComponent(const Program &program, std::span<const uint32_t> list, std::string_view name);

// The same with an error that lists what there is.
Expected<const TensorInfo *> entryInput(const Program &program, const EntryInfo &entry, std::string_view name);
Expected<const TensorInfo *> entryOutput(const Program &program, const EntryInfo &entry, std::string_view name);

// Checks an entry's tensor against what the host will put there or read from it: dtype and number of dimensions.
Status checkTensor(const EntryInfo &entry, const TensorInfo &tensor, DType dtype, size_t rank);

// Inputs and outputs of `entry` first, then every tensor of the program.
Expected<TensorRef> findTensor(const Program &program, const EntryInfo *entry, std::string_view name);

// The layers whose weights a program, or the view of a stage, has: stacks of them, and those that stand alone ("layers.3.lsm.wq").
std::set<int32_t> layersOf(const Program &program);

// Names of all entries, for messages.
std::string entryNames(const Program &program);
Expected<const EntryInfo *> findEntry(const Program &program, std::string_view name);

} // namespace braid::runtime
