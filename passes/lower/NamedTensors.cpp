//===- NamedTensors.cpp - the tensors that are known outside ------------------------------------------------------===//
#include "passes/lower/NamedTensors.h"

using namespace mlir;
using namespace braid;

static StringRef arenaOf(cmd::Role role) {
  switch (role) {
  case cmd::Role::parameter: return "parameters";
  case cmd::Role::moment: return "optimizer";
  case cmd::Role::gradient: return "gradients";
  case cmd::Role::cache: return "cache";
  case cmd::Role::input:
  case cmd::Role::output: return "io";
  }
  llvm_unreachable("role");
}

std::string NamedTensor::arena() const { return stagedName(arenaOf(role), stageOf(entry)); }

/// What the attributes of one argument or result say.
static FailureOr<NamedTensor> read(func::FuncOp entry, bool isResult, unsigned i) {
  std::string where = (isResult ? "result " : "argument ") + std::to_string(i);
  auto get = [&](StringRef name) { return isResult ? entry.getResultAttr(i, name) : entry.getArgAttr(i, name); };
  auto type = cast<RankedTensorType>(isResult ? entry.getResultTypes()[i] : entry.getArgumentTypes()[i]);
  NamedTensor tensor{"",    isResult ? cmd::Role::output : cmd::Role::input,           type, {}, {}, {}, {},
                     entry, isResult ? entry.getLoc() : entry.getArgument(i).getLoc(), 0,    {}};
  auto name = dyn_cast_or_null<StringAttr>(get(attrs::name));
  if (!name)
    return entry.emitOpError() << where << " has no " << attrs::name, failure();
  tensor.name = name.str();
  // Types and words of attributes are verified where they stand (dialects/braid/Attributes.cpp).
  if (auto role = dyn_cast_or_null<StringAttr>(get(attrs::role))) {
    std::optional<cmd::Role> known = cmd::symbolizeRole(role.getValue());
    if (!known) // of a stage, whose micro-batches nobody has put in order
      return entry.emitOpError() << where << " '" << tensor.name << "' has " << attrs::role << " " << role
                                 << ", which goes from stage to stage; run braid-pipeline-stages first",
             failure();
    tensor.role = *known;
  }
  if (Attribute layers = get(attrs::layers)) {
    tensor.layers = cast<DenseI32ArrayAttr>(layers);
    // Nested repeats stack twice: the leading dimensions together count the layers.
    ArrayRef<int64_t> shape = type.getShape();
    int64_t count = 1;
    do {
      count *= shape.empty() ? 0 : shape.front();
      shape = shape.drop_front(shape.empty() ? 0 : 1);
    } while (count && count < tensor.layers.size());
    if (count != tensor.layers.size())
      return entry.emitOpError() << where << " '" << tensor.name << "' is stacked over " << tensor.layers.size()
                                 << " layers but is " << type,
             failure();
    tensor.type = RankedTensorType::get(shape, type.getElementType());
  }
  tensor.shards = dyn_cast_or_null<ArrayAttr>(get(attrs::shards));
  tensor.of = dyn_cast_or_null<StringAttr>(get(attrs::of));
  tensor.slot = dyn_cast_or_null<StringAttr>(get(attrs::slot));
  return tensor;
}

static std::string shown(const NamedTensor &tensor) {
  std::string text;
  llvm::raw_string_ostream(text) << cmd::stringifyRole(tensor.role) << ' ' << tensor.type << " in "
                                 << (tensor.layers ? tensor.layers.size() : 1) << " layer(s)";
  return text;
}

std::string NamedTensor::key() const {
  std::string text = name;
  llvm::raw_string_ostream os(text);
  for (int32_t layer : layerList())
    os << ' ' << layer;
  return text;
}

LogicalResult NamedTensors::mention(func::FuncOp entry, bool isResult, unsigned i, llvm::StringMap<unsigned> &seen,
                                    std::vector<Mention> &mentions) {
  FailureOr<NamedTensor> tensor = failure();
  if (auto alias = isResult ? entry.getResultAttrOfType<IntegerAttr>(i, attrs::alias) : IntegerAttr()) {
    // Written to the argument's buffer: it is that tensor, whatever else it says.
    if (entry.getResultTypes()[i] != entry.getArgumentTypes()[alias.getInt()])
      return entry.emitOpError("result ")
             << i << " is " << entry.getResultTypes()[i] << " but argument " << alias.getInt()
             << ", whose buffer it takes, is " << entry.getArgumentTypes()[alias.getInt()];
    tensor = read(entry, false, alias.getInt());
  } else {
    tensor = read(entry, isResult, i);
  }
  if (failed(tensor))
    return failure();
  auto [at, fresh] = seen.try_emplace(tensor->key(), mentions.size());
  if (!fresh) {
    const Mention &other = mentions[at->second];
    if (other.isResult == isResult)
      return entry.emitOpError() << "names two " << (isResult ? "results" : "arguments") << " '" << tensor->name << "'";
    if (!other.tensor.sameKind(*tensor))
      return entry.emitOpError("argument ")
             << other.number << " and result " << i << " are both called '" << tensor->name << "' but are "
             << shown(other.tensor) << " and " << shown(*tensor);
    at->second = mentions.size();
  }
  mentions.push_back({*tensor, entry, isResult, i});
  return success();
}

/// Equal names must be equal tensors; inputs and outputs that differ from entry to entry get the entry's name in front.
LogicalResult NamedTensors::reconcile(std::vector<Mention> &mentions) {
  auto isIo = [](const NamedTensor &tensor) {
    return tensor.role == cmd::Role::input || tensor.role == cmd::Role::output;
  };
  llvm::StringMap<const NamedTensor *> first;
  llvm::StringMap<bool> perEntry;
  for (const Mention &mention : mentions) {
    const NamedTensor &tensor = mention.tensor, &other = *first.try_emplace(tensor.key(), &tensor).first->second;
    if (other.sameKind(tensor))
      continue;
    if (!isIo(other) || !isIo(tensor)) {
      auto error = func::FuncOp(mention.entry).emitOpError("'")
                   << tensor.name << "' is " << shown(tensor) << " but in @" << func::FuncOp(other.entry).getSymName()
                   << " it is " << shown(other);
      error.attachNote(other.loc) << "named here";
      return failure();
    }
    perEntry[tensor.name] = true;
  }
  for (Mention &mention : mentions)
    if (perEntry.lookup(mention.tensor.name))
      mention.tensor.name =
          (unstagedName(mention.entry.getSymName(), stageOf(mention.entry)) + "/" + mention.tensor.name).str();
  return success();
}

/// The name of one layer's tensor; a name without braces stays.
static std::string ofLayer(StringRef name, int32_t layer) {
  if (!name.contains("{}"))
    return name.str();
  auto [before, after] = name.split("{}");
  return (before + Twine(layer) + after).str();
}

/// Tensors of one name: their places in the arena, and what the file calls them.
LogicalResult NamedTensors::group() {
  llvm::StringMap<unsigned> byName;
  for (auto [id, tensor] : llvm::enumerate(tensors)) {
    auto [at, fresh] = byName.try_emplace(tensor.name, groups.size());
    if (fresh)
      groups.emplace_back();
    groups[at->second].push_back(id);
  }
  for (const std::vector<unsigned> &group : groups) {
    const NamedTensor &first = tensors[group.front()];
    llvm::DenseMap<int32_t, const NamedTensor *> owners;
    bool alike = true;
    for (unsigned id : group) {
      NamedTensor &tensor = tensors[id];
      alike &= tensor.sameKind(first) && tensor.shards == first.shards;
      for (int32_t layer : tensor.layerList())
        if (auto [at, fresh] = owners.try_emplace(layer, &tensor); !fresh) {
          auto error = tensor.entry.emitOpError("layer ") << layer << " of '" << tensor.name << "' is in two stacks";
          error.attachNote(at->second->loc) << "here in one of " << at->second->layers.size() << " layers";
          return failure();
        }
    }
    bool aligned = false;
    for (unsigned id : group) {
      NamedTensor &tensor = tensors[id];
      int64_t &end = arenas[arenaOf(tensor.role)];
      tensor.offset = alike && aligned ? end : llvm::alignTo(end, 64);
      end = tensor.offset + tensor.bytes();
      aligned = true;
      if (alike)
        tensor.fileNames = {tensor.name};
      else
        for (int32_t layer : tensor.layerList())
          tensor.fileNames.push_back(ofLayer(tensor.name, layer));
    }
  }
  return success();
}

std::vector<FileTensor> NamedTensors::fileTensors() const {
  std::vector<FileTensor> list;
  for (const std::vector<unsigned> &group : groups) {
    const NamedTensor &first = tensors[group.front()];
    std::string of = first.of ? first.of.str() : "";
    if (first.fileNames.front() == first.name) {
      FileTensor file{first.name, &first, {}, first.offset, 0, of};
      for (unsigned id : group) {
        file.bytes += tensors[id].bytes();
        llvm::append_range(file.layers, tensors[id].layerList());
      }
      list.push_back(file);
      continue;
    }
    for (unsigned id : group)
      for (auto [i, layer] : llvm::enumerate(tensors[id].layerList())) {
        int64_t bytes = cmd::tensorBytes(tensors[id].type);
        list.push_back({ofLayer(tensors[id].name, layer),
                        &tensors[id],
                        {},
                        tensors[id].offset + static_cast<int64_t>(i) * bytes,
                        bytes,
                        ofLayer(of, layer)});
      }
  }
  return list;
}

FailureOr<NamedTensors> NamedTensors::collect(ArrayRef<func::FuncOp> entries) {
  std::vector<Mention> mentions;
  for (func::FuncOp entry : entries) {
    llvm::StringMap<unsigned> seen; // mentions of this entry by key
    for (unsigned i = 0; i < entry.getNumArguments(); ++i)
      if (failed(mention(entry, false, i, seen, mentions)))
        return failure();
    for (unsigned i = 0; i < entry.getNumResults(); ++i)
      if (failed(mention(entry, true, i, seen, mentions)))
        return failure();
  }
  if (failed(reconcile(mentions)))
    return failure();
  NamedTensors table;
  llvm::StringMap<unsigned> byKey;
  for (const Mention &mention : mentions) {
    auto [at, fresh] = byKey.try_emplace(mention.tensor.key(), table.tensors.size());
    table.places[{mention.entry, {mention.isResult, mention.number}}] = at->second;
    if (fresh) {
      table.tensors.push_back(mention.tensor);
      continue;
    }
    // One entry may know more than another.
    NamedTensor &known = table.tensors[at->second];
    known.shards = known.shards ? known.shards : mention.tensor.shards;
    known.of = known.of ? known.of : mention.tensor.of;
    known.slot = known.slot ? known.slot : mention.tensor.slot;
  }
  if (failed(table.group()))
    return failure();
  return table;
}
