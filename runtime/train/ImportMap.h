// What other software calls the weights of a model, and how it keeps them: the key `import` of its description
// (models/README.md), which is in the program.
#pragma once

#include "runtime/Expected.h"

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace braid::runtime {

struct ImportedTensor {
  std::string name; // with "{layer}" and "{expert}" where their numbers stand; of each expert an own tensor
  std::string otherName; // what some files call it instead; or nothing
  // Of each of so many equal groups of rows (of its first dimension) these: [first, last). Nothing: all.
  int64_t groups = 1;
  std::optional<std::array<int64_t, 2>> rows;
  // Instead: of the last dimension in every `step` columns so many from `first`.
  struct Columns {
    int64_t first, step, count = 1;
  };
  std::optional<Columns> columns;
  bool transposed = false; // the first dimension of what is left becomes the last
  float times = 1, plus = 0; // ours are theirs times + plus
  std::vector<float> values; // instead of a tensor: what every row of ours holds, its last dimension
  bool stacked = false; // the first dimension counts experts; what is said of rows and dimensions is said of one

  bool ofExperts() const; // each has a tensor of its own, or a part of one
};

// A name with its numbers.
std::string fillName(std::string name, std::optional<int64_t> layer, int64_t expert);

struct ImportMap {
  std::map<std::string, ImportedTensor, std::less<>> weights; // by ours: embed.weight, layers.{layer}.attn.wq
  std::vector<std::array<std::string, 2>> equal; // tensors of theirs that must be the same where both are there
  std::vector<std::string> unread; // names of tensors that are left alone; "*" stands for any text

  // Of a description; one without the key has none.
  static Expected<std::optional<ImportMap>> parse(std::string_view description);
  bool leaves(std::string_view name) const;
};

// "layers.3.attn.wq": "layers.{layer}.attn.wq" and 3; of another name itself.
std::pair<std::string, std::optional<int64_t>> splitLayer(std::string_view name);

// The shape of what is taken of a tensor (of one expert of a stacked one) of this shape; an error says why nothing is.
Expected<std::vector<int64_t>> importedShape(const ImportedTensor &tensor, const std::vector<int64_t> &shape);
// What is taken of a tensor of this shape: of `units` (rows, or with columns elements) in each of `groups` those from `first` to before `last`.
struct TakenUnits {
  size_t groups, units, first, last;
  size_t all() const { return groups * units; }
};
TakenUnits takenUnits(const ImportedTensor &tensor, const std::vector<int64_t> &shape);
// Whether elements in order can be of either shape: one joins dimensions of the other ([64, 16] and [1024]; not [16, 64]).
bool joins(const std::vector<int64_t> &a, const std::vector<int64_t> &b);
// Whether what is transposed into `taken` ends where dimensions of ours do: rows that are none ([1, 64, 64], [4096]) turn nothing.
bool turns(const ImportedTensor &tensor, const std::vector<int64_t> &taken, const std::vector<int64_t> &ours);

} // namespace braid::runtime
