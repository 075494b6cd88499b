//===- ModelImport.cpp - what other software calls the weights of a model -----------------------------------------===//
#include "frontend/ModelImport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/FormatVariadic.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

static constexpr StringRef layerHole = "{layer}", expertHole = "{expert}";
static constexpr int64_t maxRows = 1 << 30;

/// [first, last + 1] of rows.
static bool isRange(const Value &rows) {
  return rows.kind == Kind::array && rows.items.size() == 2 &&
         llvm::all_of(rows.items, [](const Value &v) { return v.kind == Kind::integer; }) &&
         0 <= rows.items[0].integer && rows.items[0].integer < rows.items[1].integer &&
         rows.items[1].integer <= maxRows;
}

/// [first, step] of columns, or [first, step, count].
static bool isColumns(const Value &columns) {
  if (columns.kind != Kind::array || columns.items.size() < 2 || columns.items.size() > 3 ||
      !llvm::all_of(columns.items, [](const Value &v) { return v.kind == Kind::integer; }))
    return false;
  int64_t first = columns.items[0].integer, step = columns.items[1].integer,
          count = columns.items.size() == 3 ? columns.items[2].integer : 1;
  return 0 <= first && 1 <= count && step <= maxRows && first < step && count <= step - first;
}

/// A list as the file has it, when it is short.
static std::string describeRange(const Value &rows) {
  constexpr size_t most = 4;
  if (rows.kind != Kind::array)
    return describe(rows);
  std::string text;
  for (const Value &item : llvm::ArrayRef(rows.items).take_front(most))
    text += (text.empty() ? "" : ", ") + describe(item);
  return "[" + text + (rows.items.size() > most ? ", ..]" : "]");
}

static void checkName(StringRef ours, StringRef theirs, const std::string &path, Errors &errors) {
  if (theirs.empty())
    errors.report(path, "is empty; valid: the name of a tensor");
  for (StringRef hole : {layerHole, expertHole})
    if (theirs.count(hole) > 1)
      errors.report(path, "\"" + shownText(theirs, 80) + "\" has " + hole.str() + " more than once; valid: once");
  bool isOfAll = ours.contains(layerHole);
  if (isOfAll != theirs.contains(layerHole))
    errors.report(path, "\"" + shownText(theirs, 80) + "\" " +
                            (isOfAll ? "has no {layer}, so all layers would have one tensor; valid: with {layer}"
                                     : "has {layer}, but stands for one tensor; valid: without"));
}

void braid::readImport(const Value &object, ModelSpec &spec, Errors &errors) {
  Reader r(object, "import", errors);
  spec.imported.emplace();
  if (const Value *weights = r.objectAt("weights"))
    for (const Field &field : weights->fields) {
      std::string path = r.pathOf("weights") + "." + field.name;
      ImportedWeight &weight = spec.imported->emplace_back(ImportedWeight{field.name});
      if (field.value.kind == Kind::string) {
        weight.ofExperts = StringRef(field.value.string).contains(expertHole);
        checkName(field.name, field.value.string, path, errors);
        continue;
      }
      if (field.value.kind != Kind::object) {
        errors.report(path, describe(field.value) + " is no name of a tensor; valid: \"model.norm.weight\", or "
                                                    "{\"name\": .., \"transposed\": true}");
        continue;
      }
      Reader w(field.value, path, errors);
      if (w.has("values")) {
        std::vector<double> values;
        weight.isConstant = true;
        w.numbers("values", values, -1e6, 1e6, maxHeads);
        continue;
      }
      std::string name;
      if (w.require("name", "valid: the name of a tensor"))
        w.string("name", name);
      weight.ofExperts = StringRef(name).contains(expertHole);
      checkName(field.name, name, w.pathOf("name"), errors);
      std::string other;
      if (w.take("or")) {
        w.string("or", other);
        checkName(field.name, other, w.pathOf("or"), errors);
        if (StringRef(other).contains(expertHole) != weight.ofExperts)
          w.error("or", "\"" + shownText(other, 80) + "\" and \"" + shownText(name, 80) +
                            "\" do not both have {expert}; valid: two names with it, or two without");
      }
      // Defaults of so many keys are not worth their place in every program.
      bool flag = false;
      if (w.take("transposed"))
        w.boolean("transposed", flag);
      int64_t groups = 1;
      if (w.take("groups"))
        w.integer("groups", groups, 1, maxRows);
      double plus = 0;
      if (w.take("plus"))
        w.number("plus", plus, -1e6, 1e6);
      double times = 1;
      if (w.take("times"))
        w.number("times", times, -1e6, 1e6);
      if (times == 0)
        w.error("times", "0 leaves nothing of a weight; valid: another number");
      const Value *rows = w.take("rows");
      if (rows && !isRange(*rows))
        w.error("rows", describeRange(*rows) +
                            llvm::formatv(" is no range of rows; valid: [first, last + 1] of the rows of a group, two "
                                          "integers from 0 to {0}, the second above the first",
                                          maxRows)
                                .str());
      if (w.has("groups") && !rows)
        w.error("groups", "changes nothing without rows; valid: together with rows");
      if (w.take("stacked"))
        w.boolean("stacked", weight.stacked);
      if (const Value *columns = w.take("columns"); columns && (rows || !isColumns(*columns)))
        w.error("columns",
                describeRange(*columns) + (rows ? " stands beside rows; valid: one of the two keys"
                                                : " is no choice of columns; valid: [first, step] or [first, step, "
                                                  "count], integers from 0 upwards, the count of 1 or more within a "
                                                  "step"));
      if (weight.stacked && weight.ofExperts)
        w.error("stacked", "true of the name \"" + shownText(name, 80) +
                               "\", of which every expert has a tensor; valid: without stacked, or a name without "
                               "{expert}");
    }
  if (const Value *equal = r.objectAt("equal"))
    for (const Field &field : equal->fields)
      if (field.value.kind != Kind::string)
        errors.report(r.pathOf("equal") + "." + field.name,
                      describe(field.value) + " is no name of a tensor; valid: that of the tensor it is a copy of");
  if (const Value *unread = r.take("unread"))
    if (unread->kind != Kind::array ||
        !llvm::all_of(unread->items, [](const Value &v) { return v.kind == Kind::string; }))
      r.error("unread", describe(*unread) + " is no list of names; valid: [\"mtp.*\"], where * stands for any text");
}

namespace {

/// Compares the names of an `import` with the weights of a model.
class ImportCheck {
public:
  ImportCheck(const std::vector<ImportedWeight> &weights, DiagnosticFn error) : weights(weights), error(error) {
    for (const ImportedWeight &weight : weights)
      uses.try_emplace(weight.name, Use{&weight, {}, {}, false});
  }
  void parameter(const ModelTensor &parameter);
  /// Whether all is right, once all parameters have been seen.
  bool finish();

private:
  struct Use {
    const ImportedWeight *weight;
    std::string first, last; ///< of the names that stand before this general one
    bool used = false;
  };
  void report(const std::string &message) {
    isRight = false;
    error("import.weights: " + message);
  }
  void use(Use &use, const ModelTensor &parameter) {
    bool hasExperts = !parameter.dims.empty() && parameter.dims.front() == "experts";
    if (use.weight->isConstant && parameter.trained && !use.used)
      report("'" + use.weight->name + "' has values, but is trained; valid: the name of a tensor");
    if (use.weight->ofExperts && !hasExperts && !use.used)
      report("'" + use.weight->name + "' has a name with {expert}, but no experts; valid: a name without {expert}");
    else if (use.weight->stacked && !hasExperts && !use.used)
      report("'" + use.weight->name + "' is stacked, but has no experts; valid: without stacked");
    use.used = true;
  }
  void ofLayer(const std::string &layer, StringRef after, const ModelTensor &parameter);

  const std::vector<ImportedWeight> &weights;
  DiagnosticFn error;
  llvm::StringMap<Use> uses; ///< by our name
  bool isRight = true;
};

} // namespace

void ImportCheck::ofLayer(const std::string &layer, StringRef after, const ModelTensor &parameter) {
  std::string special = ("layers." + layer + after).str(), general = ("layers." + layerHole + after).str();
  auto own = uses.find(special), all = uses.find(general);
  if (own != uses.end()) {
    use(own->second, parameter);
    if (all != uses.end())
      (all->second.first.empty() ? all->second.first : all->second.last) = special;
  } else if (all != uses.end()) {
    use(all->second, parameter);
  } else {
    report("lacks '" + general + "', a weight of layer " + layer + "; valid: a name for every weight of the model");
  }
}

void ImportCheck::parameter(const ModelTensor &parameter) {
  StringRef name = parameter.name;
  if (name.consume_front("layers.")) {
    auto [number, after] = name.split('.');
    std::string rest = ("." + after).str();
    if (number != "{}")
      return ofLayer(number.str(), rest, parameter);
    for (int32_t layer : parameter.layers)
      ofLayer(std::to_string(layer), rest, parameter);
  } else if (auto found = uses.find(name); found != uses.end()) {
    use(found->second, parameter);
  } else {
    report("lacks '" + parameter.name + "'; valid: a name for every weight of the model");
  }
}

bool ImportCheck::finish() {
  for (const ImportedWeight &weight : weights) {
    const Use &use = uses.find(weight.name)->second;
    std::string shown = "'" + shownText(weight.name, 80) + "'";
    bool isGeneral = StringRef(weight.name).contains(layerHole);
    if (use.used)
      continue;
    if (!use.first.empty())
      report(shown + " is left without a layer: " +
             (use.last.empty() ? "'" + use.first + "' names the only one"
                               : "'" + use.first + "' to '" + use.last + "' name all that have such a weight") +
             "; valid: without " + shown + ", or without the name of a layer that it shall stand for");
    else
      report(shown + " is no weight of the model; valid: " +
             (isGeneral ? "names that braid-run info --all lists, with {layer}"
                        : "embed.weight, layers.{layer}.norm1.weight, .."));
  }
  return isRight;
}

llvm::LogicalResult braid::checkImport(const ModelSpec &spec, llvm::ArrayRef<ModelTensor> parameters,
                                       DiagnosticFn error) {
  if (!spec.imported)
    return llvm::success();
  ImportCheck check(*spec.imported, error);
  for (const ModelTensor &parameter : parameters)
    check.parameter(parameter);
  return llvm::success(check.finish());
}
