//===- NamedTensors.h - the tensors that are known outside ---------------------------------------------------------===//
// One table for all entry functions: equal names are one tensor, so all entries work on one parameter arena. Inputs and
// outputs whose names stand for different shapes in different entries are called <entry>/<name>.
#ifndef PASSES_LOWER_NAMEDTENSORS_H
#define PASSES_LOWER_NAMEDTENSORS_H

#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"

#include "llvm/ADT/MapVector.h"

namespace braid {

struct NamedTensor {
  std::string name;
  cmd::Role role;
  mlir::RankedTensorType type; ///< of one layer
  mlir::DenseI32ArrayAttr layers;
  mlir::ArrayAttr shards;
  mlir::StringAttr of, slot;
  mlir::func::FuncOp entry; ///< the first that names it
  mlir::Location loc;
  int64_t offset = 0; ///< in its arena

  int64_t bytes() const { return cmd::tensorBytes(type) * (layers ? layers.size() : 1); }
  llvm::StringRef arena() const;
  bool sameShape(const NamedTensor &other) const { return type == other.type && layers == other.layers; }
};

class NamedTensors {
public:
  /// Reads the attributes of arguments and results of these functions; offsets are assigned.
  static mlir::FailureOr<NamedTensors> collect(llvm::ArrayRef<mlir::func::FuncOp> entries);

  const NamedTensor &argument(mlir::func::FuncOp entry, unsigned i) const { return lookup(entry, {false, i}); }
  const NamedTensor &result(mlir::func::FuncOp entry, unsigned i) const { return lookup(entry, {true, i}); }
  llvm::ArrayRef<NamedTensor> all() const { return tensors; }
  /// Bytes of a fixed arena: parameters, optimizer, gradients, io, cache.
  int64_t arenaBytes(llvm::StringRef arena) const { return arenas.lookup(arena); }

private:
  using Place = std::pair<bool, unsigned>; // is a result, number
  const NamedTensor &lookup(mlir::func::FuncOp entry, Place place) const {
    return tensors[places.lookup({entry.getOperation(), {place.first, place.second}})];
  }

  std::vector<NamedTensor> tensors;
  llvm::StringMap<int64_t> arenas;
  llvm::DenseMap<std::pair<mlir::Operation *, std::pair<unsigned, unsigned>>, unsigned> places;
};

} // namespace braid

#endif // PASSES_LOWER_NAMEDTENSORS_H
