//===- Placement.cpp - placements, and the table from logical dimensions to axes ----------------------------------===//
#include "passes/shard/Placement.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace braid;

static constexpr StringLiteral kOrder[] = {"pp", "dp", "sp", "tp", "edp", "ep", "etp"};
static constexpr size_t kDenseAxes = 4;

static size_t place(StringRef axis) { return llvm::find(kOrder, axis) - std::begin(kOrder); }

bool Placement::isWhole() const {
  return pending.empty() && llvm::all_of(dims, [](const Axes &axes) { return axes.empty(); });
}

Axes Placement::cuts() const {
  Axes all;
  for (const Axes &axes : dims)
    all.append(axes);
  return all;
}

std::string Placement::text() const {
  std::string text;
  for (const Axes &axes : dims)
    text += "[" + llvm::join(axes, " ") + "]";
  return pending.empty() ? text : text + " pending " + llvm::join(pending, " ");
}

Placement Placement::dropFront() const {
  Placement p = *this;
  p.dims.erase(p.dims.begin());
  return p;
}

Placement Placement::stacked() const {
  Placement p = *this;
  p.dims.insert(p.dims.begin(), Axes());
  return p;
}

int64_t braid::partsOf(const Mesh &mesh, ArrayRef<StringRef> axes) {
  int64_t parts = 1;
  for (StringRef axis : axes)
    parts *= mesh.size(axis);
  return parts;
}

Axes braid::inMeshOrder(ArrayRef<StringRef> axes) {
  Axes sorted(axes);
  llvm::sort(sorted, [](StringRef a, StringRef b) { return place(a) < place(b); });
  sorted.erase(llvm::unique(sorted), sorted.end());
  return sorted;
}

SmallVector<Axes> braid::productsOf(ArrayRef<StringRef> axes) {
  SmallVector<Axes> products;
  for (StringRef axis : llvm::reverse(axes)) {
    bool joins = !products.empty() && place(axis) < place(products.back().front()) &&
                 (place(axis) < kDenseAxes) == (place(products.back().front()) < kDenseAxes);
    if (!joins)
      products.emplace_back();
    products.back().insert(products.back().begin(), axis);
  }
  return products;
}

std::string braid::productName(ArrayRef<StringRef> axes) { return llvm::join(axes, "*"); }

DimName DimName::parse(StringRef text) {
  DimName dim;
  auto [name, unit] = text.split('*');
  dim.name = name;
  if (unit.getAsInteger(10, dim.unit))
    dim.unit = 1;
  return dim;
}

Axes braid::axesOfDim(const Mesh &mesh, StringRef name) {
  if (name == "stage_vocab") { // words of a head that all stages share
    Axes axes = {"pp", "tp"};
    llvm::erase_if(axes, [&](StringRef axis) { return mesh.size(axis) == 1; });
    return axes;
  }
  static constexpr std::pair<StringLiteral, StringLiteral> table[] = {
      {"batch", "dp"},    {"sequence", "sp"}, {"vocab", "tp"},   {"heads", "tp"},
      {"kv_heads", "tp"}, {"hidden", "tp"},   {"experts", "ep"}, {"expert_hidden", "etp"}};
  for (auto [dim, axis] : table)
    if (dim == name && mesh.size(axis) > 1)
      // Where tp and etp are the same ranks, they have one name.
      return {axis == "etp" && mesh.size("etp") == mesh.size("tp") ? StringRef("tp") : StringRef(axis)};
  return {};
}
