//===- Mesh.cpp - named axes of the ranks -------------------------------------------------------------------------===//
#include "passes/analysis/Mesh.h"
#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace braid;

static llvm::Error invalid(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Ranks of a product of axes of one view; nothing when it lacks one of them.
static std::optional<int64_t> sizeIn(ArrayRef<Mesh::Axis> view, StringRef product) {
  int64_t size = 1;
  SmallVector<StringRef> names;
  product.split(names, '*');
  for (StringRef name : names) {
    const auto *axis = llvm::find_if(view, [&](const Mesh::Axis &a) { return a.name == name; });
    if (axis == view.end() || llvm::count(names, name) != 1)
      return std::nullopt;
    size *= axis->size;
  }
  return size;
}

/// Whether it is "pp[i,j]" of two of the stages.
static bool isPair(ArrayRef<Mesh::Axis> view, StringRef text) {
  int64_t first = 0, second = 0, stages = sizeIn(view, "pp").value_or(1);
  return text.consume_front("pp[") && !text.consumeInteger(10, first) && text.consume_front(",") &&
         !text.consumeInteger(10, second) && text == "]" && first != second && first >= 0 && second >= 0 &&
         first < stages && second < stages;
}

bool Mesh::has(StringRef axis) const { return sizeIn(dense, axis) || sizeIn(expert, axis) || isPair(dense, axis); }

int64_t Mesh::size(StringRef axis) const {
  if (isPair(dense, axis))
    return 2;
  for (auto *view : {&dense, &expert})
    if (auto size = sizeIn(*view, axis))
      return *size;
  return 1;
}

int64_t Mesh::world() const {
  int64_t product = 1;
  for (const Axis &a : dense)
    product *= a.size;
  return product;
}

llvm::Expected<Mesh> Mesh::parse(StringRef text) {
  llvm::StringMap<int64_t> sizes;
  SmallVector<StringRef> parts;
  if (!text.empty())
    text.split(parts, ',');
  for (StringRef part : parts) {
    auto [name, value] = part.split('=');
    int64_t size = 0;
    if (part.empty())
      return invalid("a comma stands before, behind or between no axes; valid: dp=2,ep=2");
    if (!llvm::is_contained({"dp", "sp", "tp", "ep", "etp", "edp", "pp"}, name))
      return invalid("there is no axis \"" + name + "\"; valid: dp=N, sp=N, tp=N, pp=N, ep=N, etp=N (edp follows)");
    if (!part.contains('='))
      return invalid("axis " + name + " has no size; valid: " + name + "=N with N of 1 to " + llvm::Twine(maxAxisSize));
    if (value.starts_with("0") || value.getAsInteger(10, size) || size < 1 || size > maxAxisSize)
      return invalid("axis " + name + " has size \"" + value + "\"; valid: 1 to " + llvm::Twine(maxAxisSize));
    if (!sizes.try_emplace(name, size).second)
      return invalid("axis " + name + " is given twice; valid: once");
  }
  auto at = [&](StringRef name) { return sizes.count(name) ? sizes[name] : 1; };
  int64_t dp = at("dp"), sp = at("sp"), tp = at("tp"), ep = at("ep"), ranks = dp * sp * tp;
  // Experts are split like everything else on the ranks of tp, where ep leaves room.
  int64_t etp = sizes.count("etp") ? sizes["etp"] : ranks % (ep * tp) == 0 ? tp : 1;
  if (ranks % (ep * etp))
    return invalid("ep etp = " + llvm::Twine(ep * etp) + " does not divide dp sp tp = " + llvm::Twine(ranks) +
                   "; valid: " + (ranks == 1 ? "1" : "a divisor") +
                   ", so that both views have the same ranks (dp sp tp = edp ep etp): experts lie on the "
                   "ranks of dp, sp and tp, as in dp=" +
                   llvm::Twine(ep * etp) + ",ep=" + llvm::Twine(ep) + (etp > 1 ? ",etp=" + llvm::Twine(etp) : ""));
  // What tools print may be given, too.
  int64_t edp = ranks / (ep * etp);
  if (sizes.count("edp") && sizes["edp"] != edp)
    return invalid("axis edp has size \"" + llvm::Twine(sizes["edp"]) + "\", but dp sp tp / (ep etp) is " +
                   llvm::Twine(edp) + "; valid: " + llvm::Twine(edp) + ", or nothing: it follows");
  Mesh mesh;
  mesh.dense = {{"pp", at("pp")}, {"dp", dp}, {"sp", sp}, {"tp", tp}};
  mesh.expert = {{"pp", at("pp")}, {"edp", edp}, {"ep", ep}, {"etp", etp}};
  return mesh;
}

Mesh Mesh::of(ModuleOp module) {
  Mesh mesh;
  auto attr = module->getAttrOfType<DictionaryAttr>(attrs::mesh);
  if (!attr)
    return mesh;
  for (auto [key, view] : {std::pair(StringRef("dense"), &mesh.dense), {StringRef("expert"), &mesh.expert}})
    if (auto axes = attr.getAs<ArrayAttr>(key))
      for (auto axis : axes.getAsRange<DictionaryAttr>())
        view->push_back({axis.getAs<StringAttr>("axis").str(), axis.getAs<IntegerAttr>("size").getInt()});
  return mesh;
}

DictionaryAttr Mesh::toAttr(MLIRContext *context) const {
  Builder b(context);
  auto view = [&](ArrayRef<Axis> axes) {
    SmallVector<Attribute> list;
    for (const Axis &a : axes)
      list.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("axis", b.getStringAttr(a.name)), b.getNamedAttr("size", b.getI64IntegerAttr(a.size))}));
    return b.getArrayAttr(list);
  };
  return b.getDictionaryAttr({b.getNamedAttr("dense", view(dense)), b.getNamedAttr("expert", view(expert))});
}
