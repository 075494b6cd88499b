//===- ModelImport.cpp - what other software calls the weights of a model -----------------------------------------===//
#include "frontend/ModelImport.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

static constexpr StringRef layerHole = "{layer}", expertHole = "{expert}";
static constexpr int64_t maxRows = 1 << 30;

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
      spec.imported->push_back(field.name);
      if (field.value.kind == Kind::string) {
        checkName(field.name, field.value.string, path, errors);
        continue;
      }
      if (field.value.kind != Kind::object) {
        errors.report(path, describe(field.value) + " is no name of a tensor; valid: \"model.norm.weight\", or "
                                                    "{\"name\": .., \"transposed\": true}");
        continue;
      }
      Reader w(field.value, path, errors);
      std::string name;
      if (w.require("name", "valid: the name of a tensor"))
        w.string("name", name);
      checkName(field.name, name, w.pathOf("name"), errors);
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
      const Value *rows = w.take("rows");
      bool isRange = rows && rows->kind == Kind::array && rows->items.size() == 2 &&
                     llvm::all_of(rows->items, [](const Value &v) { return v.kind == Kind::integer; }) &&
                     0 <= rows->items[0].integer && rows->items[0].integer < rows->items[1].integer &&
                     rows->items[1].integer <= maxRows;
      if (rows && !isRange)
        w.error("rows", describe(*rows) + " is no range; valid: [first, last + 1] of the rows of a group");
      if (w.has("groups") && !rows)
        w.error("groups", "changes nothing without rows; valid: together with rows");
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

llvm::LogicalResult braid::checkImport(const ModelSpec &spec, llvm::ArrayRef<NamedTensor> parameters,
                                       DiagnosticFn error) {
  if (!spec.imported)
    return llvm::success();
  llvm::StringSet<> left;
  for (const std::string &name : *spec.imported)
    left.insert(name);
  const llvm::StringSet<> given = left;
  bool isRight = true;
  auto take = [&](const std::string &layer, StringRef before, StringRef after) {
    for (const std::string &number : {layer, layerHole.str()}) {
      std::string name = (before + number + after).str();
      if (given.contains(name)) {
        left.erase(name);
        return;
      }
    }
    isRight = false;
    error("import.weights: lacks '" + (before + layerHole + after).str() + "', a weight of layer " + layer +
          "; valid: a name for every weight of the model");
  };
  for (const NamedTensor &parameter : parameters) {
    StringRef name = parameter.name;
    if (name.consume_front("layers.")) {
      auto [number, after] = name.split('.');
      std::string rest = ("." + after).str();
      if (number == "{}")
        for (int32_t layer : parameter.layers)
          take(std::to_string(layer), "layers.", rest);
      else
        take(number.str(), "layers.", rest);
    } else if (given.contains(name)) {
      left.erase(name);
    } else {
      isRight = false;
      error("import.weights: lacks '" + parameter.name + "'; valid: a name for every weight of the model");
    }
  }
  for (const std::string &name : *spec.imported)
    if (left.contains(name)) {
      isRight = false;
      error("import.weights: '" + shownText(name, 80) + "' is no weight of the model; valid: " +
            (name.find(layerHole) == std::string::npos ? "embed.weight, layers.{layer}.norm1.weight, .."
                                                       : "names that braid-run info --all lists, with {layer}"));
    }
  return llvm::success(isRight);
}
