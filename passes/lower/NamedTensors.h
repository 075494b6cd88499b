//===- NamedTensors.h - the tensors that are known outside --------------------------------------------------------===//
// One table for all entry functions (of a stage of a pipeline): equal names are one tensor, so all entries work on one parameter arena. Inputs and
// outputs whose names stand for different shapes in different entries are called <entry>/<name>.
#ifndef PASSES_LOWER_NAMEDTENSORS_H
#define PASSES_LOWER_NAMEDTENSORS_H

#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"

#include "llvm/ADT/MapVector.h"

namespace braid {

/// One argument or result of entry functions, the same in all that name it: a single tensor, or one stack of equal
/// layers.
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
  std::vector<std::string> fileNames; ///< the tensors of the program that cover it

  llvm::ArrayRef<int32_t> layerList() const { return layers ? layers.asArrayRef() : llvm::ArrayRef<int32_t>(); }
  int64_t bytes() const { return cmd::tensorBytes(type) * (layers ? layers.size() : 1); }
  std::string arena() const; ///< of its entry's stage, where there are stages
  bool sameKind(const NamedTensor &other) const { return role == other.role && type == other.type; }
  std::string key() const; ///< name and layers: two stacks may share a name
};

/// A tensor as the program file lists it. Stacks with one name (the norms of two kinds of layers) lie one after the
/// other and are one tensor; where their shapes differ, every layer is a tensor of its own.
struct FileTensor {
  std::string name;
  const NamedTensor *first; ///< role, type, shards, arena
  std::vector<int32_t> layers;
  int64_t offset, bytes;
  std::string of;
};

class NamedTensors {
public:
  /// Reads the attributes of arguments and results of these functions; offsets are assigned.
  static mlir::FailureOr<NamedTensors> collect(llvm::ArrayRef<mlir::func::FuncOp> entries);

  const NamedTensor &argument(mlir::func::FuncOp entry, unsigned i) const { return lookup(entry, 0, i); }
  const NamedTensor &result(mlir::func::FuncOp entry, unsigned i) const { return lookup(entry, 1, i); }
  std::vector<FileTensor> fileTensors() const;
  /// Bytes of a fixed arena: parameters, optimizer, gradients, io, cache.
  int64_t arenaBytes(llvm::StringRef arena) const { return arenas.lookup(arena); }

private:
  struct Mention {
    NamedTensor tensor;
    mlir::func::FuncOp entry;
    bool isResult;
    unsigned number;
  };
  static mlir::LogicalResult mention(mlir::func::FuncOp entry, bool isResult, unsigned i,
                                     llvm::StringMap<unsigned> &seen, std::vector<Mention> &mentions);
  static mlir::LogicalResult reconcile(std::vector<Mention> &mentions);
  mlir::LogicalResult group();
  const NamedTensor &lookup(mlir::func::FuncOp entry, unsigned isResult, unsigned i) const {
    return tensors[places.lookup({entry.getOperation(), {isResult, i}})];
  }

  std::vector<NamedTensor> tensors;
  std::vector<std::vector<unsigned>> groups; ///< tensors of one name
  llvm::StringMap<int64_t> arenas;
  llvm::DenseMap<std::pair<mlir::Operation *, std::pair<unsigned, unsigned>>, unsigned> places;
};

} // namespace braid

#endif // PASSES_LOWER_NAMEDTENSORS_H
