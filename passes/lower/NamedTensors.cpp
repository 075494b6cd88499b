//===- NamedTensors.cpp - the tensors that are known outside -------------------------------------------------------===//
#include "passes/lower/NamedTensors.h"

using namespace mlir;
using namespace braid;

StringRef NamedTensor::arena() const {
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

/// What the attributes of one argument or result say.
static FailureOr<NamedTensor> read(func::FuncOp entry, bool isResult, unsigned i) {
  std::string where = (isResult ? "result " : "argument ") + std::to_string(i);
  auto get = [&](StringRef name) { return isResult ? entry.getResultAttr(i, name) : entry.getArgAttr(i, name); };
  Type whole = isResult ? entry.getResultTypes()[i] : entry.getArgumentTypes()[i];
  auto type = dyn_cast<RankedTensorType>(whole);
  if (!type || !type.hasStaticShape())
    return entry.emitOpError() << where << " must be a tensor of static shape, is " << whole, failure();
  NamedTensor tensor{"", isResult ? cmd::Role::output : cmd::Role::input, type, {}, {}, {}, {}, entry,
                     isResult ? entry.getLoc() : entry.getArgument(i).getLoc()};
  auto name = dyn_cast_or_null<StringAttr>(get(attrs::name));
  if (!name)
    return entry.emitOpError() << where << " has no " << attrs::name, failure();
  tensor.name = name.str();
  if (Attribute role = get(attrs::role)) {
    auto text = dyn_cast<StringAttr>(role);
    auto symbol = text ? cmd::symbolizeRole(text.getValue()) : std::nullopt;
    if (!symbol)
      return entry.emitOpError() << where << " '" << tensor.name << "' has the unknown role " << role, failure();
    tensor.role = *symbol;
  }
  if (Attribute layers = get(attrs::layers)) {
    tensor.layers = dyn_cast<DenseI32ArrayAttr>(layers);
    if (!tensor.layers || tensor.layers.empty())
      return entry.emitOpError() << where << " '" << tensor.name << "': " << attrs::layers << " must be array<i32: ..>, is "
                                 << layers,
             failure();
    if (type.getRank() == 0 || type.getDimSize(0) != tensor.layers.size())
      return entry.emitOpError() << where << " '" << tensor.name << "' is stacked over " << tensor.layers.size()
                                 << " layers but is " << type,
             failure();
    tensor.type = RankedTensorType::get(type.getShape().drop_front(), type.getElementType());
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

FailureOr<NamedTensors> NamedTensors::collect(ArrayRef<func::FuncOp> entries) {
  // Every mention, then equal names together.
  struct Mention {
    NamedTensor tensor;
    func::FuncOp entry;
    Place place;
  };
  std::vector<Mention> mentions;
  for (func::FuncOp entry : entries) {
    llvm::StringMap<unsigned> seen; // mentions of this entry by name
    auto mention = [&](bool isResult, unsigned i) -> LogicalResult {
      FailureOr<NamedTensor> tensor = failure();
      auto alias = isResult ? entry.getResultAttrOfType<IntegerAttr>(i, attrs::alias) : IntegerAttr();
      if (alias) {
        // Written to the argument's buffer: it is that tensor, whatever else it says.
        if (alias.getInt() < 0 || alias.getInt() >= entry.getNumArguments())
          return entry.emitOpError("result ") << i << ": " << attrs::alias << " = " << alias.getInt() << " of "
                                              << entry.getNumArguments() << " arguments";
        if (entry.getResultTypes()[i] != entry.getArgumentTypes()[alias.getInt()])
          return entry.emitOpError("result ") << i << " is " << entry.getResultTypes()[i] << " but argument " << alias.getInt()
                                              << ", whose buffer it takes, is " << entry.getArgumentTypes()[alias.getInt()];
        tensor = read(entry, false, alias.getInt());
      } else {
        tensor = read(entry, isResult, i);
      }
      if (failed(tensor))
        return failure();
      auto [at, fresh] = seen.try_emplace(tensor->name, mentions.size());
      if (!fresh) {
        const Mention &other = mentions[at->second];
        if (other.place.first == isResult)
          return entry.emitOpError() << "names two " << (isResult ? "results" : "arguments") << " '" << tensor->name << "'";
        if (other.tensor.role != tensor->role || !other.tensor.sameShape(*tensor))
          return entry.emitOpError("argument ") << other.place.second << " and result " << i << " are both called '"
                                                << tensor->name << "' but are " << shown(other.tensor) << " and "
                                                << shown(*tensor);
        at->second = mentions.size();
      }
      mentions.push_back({*tensor, entry, {isResult, i}});
      return success();
    };
    for (unsigned i = 0; i < entry.getNumArguments(); ++i)
      if (failed(mention(false, i)))
        return failure();
    for (unsigned i = 0; i < entry.getNumResults(); ++i)
      if (failed(mention(true, i)))
        return failure();
  }

  auto isIo = [](const NamedTensor &tensor) { return tensor.role == cmd::Role::input || tensor.role == cmd::Role::output; };
  llvm::StringMap<const Mention *> first;
  llvm::StringMap<bool> perEntry;
  for (const Mention &mention : mentions) {
    auto [at, fresh] = first.try_emplace(mention.tensor.name, &mention);
    const NamedTensor &other = at->second->tensor;
    if (other.role == mention.tensor.role && other.sameShape(mention.tensor))
      continue;
    if (!isIo(other) || !isIo(mention.tensor)) {
      auto error = func::FuncOp(mention.entry).emitOpError("'") << mention.tensor.name << "' is " << shown(mention.tensor)
                                                                << " but in @" << func::FuncOp(other.entry).getSymName()
                                                                << " it is " << shown(other);
      error.attachNote(other.loc) << "named here";
      return failure();
    }
    perEntry[mention.tensor.name] = true;
  }

  NamedTensors table;
  llvm::StringMap<unsigned> byName;
  for (Mention &mention : mentions) {
    NamedTensor &tensor = mention.tensor;
    if (perEntry.lookup(tensor.name))
      tensor.name = mention.entry.getSymName().str() + "/" + tensor.name;
    auto [at, fresh] = byName.try_emplace(tensor.name, table.tensors.size());
    table.places[{mention.entry.getOperation(), {mention.place.first, mention.place.second}}] = at->second;
    if (!fresh) {
      NamedTensor &known = table.tensors[at->second];
      known.shards = known.shards ? known.shards : tensor.shards;
      known.of = known.of ? known.of : tensor.of;
      known.slot = known.slot ? known.slot : tensor.slot;
      continue;
    }
    int64_t &end = table.arenas[tensor.arena()];
    tensor.offset = llvm::alignTo(end, 64);
    end = tensor.offset + tensor.bytes();
    table.tensors.push_back(tensor);
  }
  return table;
}
