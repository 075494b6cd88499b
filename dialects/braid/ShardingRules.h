//===- ShardingRules.h - which dimensions of an op's values are the same index ------------------------------------===//
// What a sharding pass must know of an op, and nothing of a mesh. A value is written as one letter per dimension; equal
// letters are the same index; the last letter stands for all dimensions that are left (they are flattened, the first of
// them is the slowest). Extra letters are dropped, so "btfg" serves [B, T], too.
//
//   linear         bti io -> bto      i is summed over: cut operands give partial sums
//   rms_norm       btf f -> btf       f is whole: the norm needs all of it
//   lsm.scan       bthk .. -> bthv    t is a sequence: tokens see those before them
//
// An index that only operands have is summed over. Capital letters belong to one dimension of one value, which is
// whole. Ops without a row here get a rule that is always right: rows of the batch are apart, everything else is whole.
#ifndef DIALECTS_BRAID_SHARDINGRULES_H
#define DIALECTS_BRAID_SHARDINGRULES_H

#include "dialects/braid/BraidDialect.h"

namespace braid {

struct ShardingRule {
  llvm::SmallVector<std::string> operands, results;
  std::string whole; ///< letters that cannot be cut
  std::string sequence; ///< letters along which an entry depends on others: cut only by a lowering of the op's own
  std::string chosen; ///< letters that rows choose from (experts): cut operands do not make partial sums
  std::string apart; ///< letters of one of several products: the other results have nothing to do with them
  char grouped = 0; ///< a letter of `groups` equal parts that are apart: cut between them; the attribute follows
  int64_t groups = 1;
  /// Operands whose pending sums the results may keep. The operands of a list are added to each other, so they must be
  /// pending over the same axes; of several lists one at a time (a product of two pending sums is not one).
  llvm::SmallVector<llvm::SmallVector<unsigned>> linear;

  /// Not summed over where a result lacks it.
  bool isApart(char letter) const {
    return chosen.find(letter) != std::string::npos || apart.find(letter) != std::string::npos;
  }
  bool isWhole(char letter) const { return llvm::isUpper(letter) || whole.find(letter) != std::string::npos; }
};

ShardingRule shardingRule(mlir::Operation *op);

} // namespace braid

#endif // DIALECTS_BRAID_SHARDINGRULES_H
