// The files of weights that other software wrote, by the names and shapes that a program's metadata "import" has for
// them: what is where, and whether it fits. ImportedWeights.cpp reads from them, ExportedWeights.cpp writes their like.
#pragma once

#include "runtime/io/Safetensors.h"
#include "runtime/train/BlockScales.h"
#include "runtime/train/CheckpointIndex.h"
#include "runtime/train/ImportMap.h"

#include <algorithm>
#include <memory>
#include <set>

namespace braid::runtime {

class ImportedFiles {
public:
  struct Place {
    const SafetensorsFile *file;
    const SafetensorsEntry *entry;
  };

  // How a tensor of the program is made.
  struct Recipe {
    const ImportedTensor *tensor;
    const std::string *name; // of the two that it may have, the one that the files have
    std::optional<int64_t> layer;
    int64_t experts = 1;
    std::vector<int64_t> shape; // of one expert
    int64_t tensors() const { // of theirs
      return !tensor->values.empty() ? 0 : tensor->stacked ? std::min<int64_t>(experts, 1) : experts;
    }
    std::string nameOf(int64_t expert) const { return fillName(*name, layer, expert); }
    // What an expert has of a tensor that fits: all of it, or its part of a stacked one.
    SafetensorsEntry partOf(const SafetensorsEntry &entry, int64_t expert) const;
  };

  // Opens all files of a directory; what they hold is known then. `program` must outlive this.
  static Expected<std::unique_ptr<ImportedFiles>> open(const Program &program, std::string directory);

  const std::string &directory() const { return path; }
  const ImportMap &importMap() const { return map; }
  const std::vector<std::unique_ptr<SafetensorsFile>> &files() const { return opened; }
  const std::map<std::string, Place> &places() const { return table; } // of every tensor
  const BlockScales &blockScales() const { return scales; }
  // Of a tensor whose elements are multiplied block by block what they are multiplied by; nullptr: of another. Those of MXFP4
  // stand in their file as columns of rows: what is read is to be transposed then.
  const Place *scalesOf(const std::string &name) const;
  Expected<Recipe> recipeOf(const LogicalTensor &tensor) const;
  // What ranks compare.
  ContentHash contents() const;

  // As TensorSource has them.
  Status checkNames(const std::vector<LogicalTensor> &tensors) const;
  Status check(const LogicalTensor &tensor) const;

private:
  ImportedFiles(const Program &program, std::string directory, ImportMap map)
      : program(program), path(std::move(directory)), map(std::move(map)) {}
  Status openAll();
  Status joinBlocks();
  Status openFile(const std::string &name, const std::set<std::string> *tensors);
  Status checkEqual(const std::string &one, const std::string &other) const;

  const Program &program;
  std::string path;
  ImportMap map;
  BlockScales scales;
  std::vector<std::unique_ptr<SafetensorsFile>> opened;
  std::map<std::string, Place> table;
  std::map<std::string, Place> scalesOfJoined; // by the name of what two tensors stand for
  std::vector<std::unique_ptr<BlockScales::Matrix>> joined;
};

} // namespace braid::runtime
