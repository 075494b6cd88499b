//===- Attributes.cpp - what the attributes of modules, entries and their values must be --------------------------===//
// BraidDialect.h says what each means. Passes read them without looking again, so text that has others is refused here.
#include "dialects/braid/BraidDialect.h"
#include "dialects/braid/PassAttributes.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace braid;

bool braid::dividesHead(func::FuncOp entry) {
  auto isBroadcast = [](Attribute role) { return role && cast<StringAttr>(role).getValue() == kStageBroadcast; };
  for (unsigned i = 0; i < entry.getNumArguments(); ++i)
    if (isBroadcast(entry.getArgAttr(i, attrs::role)))
      return true;
  for (unsigned i = 0; i < entry.getNumResults(); ++i)
    if (isBroadcast(entry.getResultAttr(i, attrs::role)))
      return true;
  return false;
}

bool braid::isZeroBubble(Operation *entry) {
  auto order = entry->getAttrOfType<StringAttr>(attrs::stageOrder);
  return order && order.getValue() == kOrderZeroBubble;
}

std::optional<int64_t> braid::stageOf(Operation *entry) {
  auto stage = entry->getAttrOfType<IntegerAttr>(attrs::stage);
  return stage ? std::optional(stage.getInt()) : std::nullopt;
}

std::string braid::stagedName(StringRef name, std::optional<int64_t> stage) {
  return stage ? (name + ".stage" + Twine(*stage)).str() : name.str();
}

StringRef braid::unstagedName(StringRef name, std::optional<int64_t> stage) {
  if (stage)
    name.consume_back(stagedName("", stage));
  return name;
}

std::string braid::stagePair(int64_t first, int64_t second) {
  return ("pp[" + Twine(first) + "," + Twine(second) + "]").str();
}

namespace {
/// One attribute, and the words that every complaint about it begins with.
struct Attributed {
  Operation *op;
  NamedAttribute attr;
  std::string owner; ///< "", "argument 3 ", "result 0 "

  InFlightDiagnostic error() const { return op->emitOpError() << owner << attr.getName().getValue() << " "; }
  InFlightDiagnostic mustBe(const Twine &what) const {
    return error() << "must be " << what << ", but is " << attr.getValue();
  }
};
} // namespace

/// [{axis = "dp", size = 2 : i64}, ..], no axis twice.
static LogicalResult verifyView(const Attributed &of, StringRef view, Attribute axes) {
  auto list = dyn_cast<ArrayAttr>(axes);
  if (!list)
    return of.error() << "needs a list of axes as " << view << ", but has " << axes;
  llvm::StringSet<> names;
  for (Attribute entry : list) {
    auto axis = dyn_cast<DictionaryAttr>(entry);
    auto name = axis ? axis.getAs<StringAttr>("axis") : StringAttr();
    auto size = axis ? axis.getAs<IntegerAttr>("size") : IntegerAttr();
    if (!name || !size || !size.getType().isSignlessInteger(64) || size.getInt() < 1 || size.getInt() > (1 << 20))
      return of.error() << "needs {axis = \"name\", size = N : i64} with N of 1 to 1048576 in " << view << ", but has "
                        << entry;
    if (!names.insert(name.getValue()).second)
      return of.error() << "has axis \"" << name.getValue() << "\" twice in " << view;
  }
  return success();
}

static LogicalResult verifyMesh(const Attributed &of) {
  auto mesh = dyn_cast<DictionaryAttr>(of.attr.getValue());
  if (!mesh)
    return of.mustBe("{dense = [..], expert = [..]}");
  for (NamedAttribute view : mesh) {
    if (view.getName() != "dense" && view.getName() != "expert")
      return of.error() << "has the view \"" << view.getName().getValue() << "\"; there are dense and expert";
    if (failed(verifyView(of, view.getName(), view.getValue())))
      return failure();
  }
  // Two views of the same ranks; who leaves one out says nothing of its ranks.
  auto ranks = [&](StringRef view) {
    int64_t product = 1;
    if (auto axes = mesh.getAs<ArrayAttr>(view))
      for (auto axis : axes.getAsRange<DictionaryAttr>())
        product = std::min(product * axis.getAs<IntegerAttr>("size").getInt(), int64_t(1) << 40); // sizes end at 2^20
    return product;
  };
  auto named = [&](StringRef view) { return mesh.getAs<ArrayAttr>(view) && !mesh.getAs<ArrayAttr>(view).empty(); };
  if (named("dense") && named("expert") && ranks("dense") != ranks("expert"))
    return of.error() << "has " << ranks("dense") << " ranks in dense but " << ranks("expert")
                      << " in expert; valid: the same ranks in both views";
  return success();
}

static bool isSpAlgorithm(Attribute value) {
  auto word = dyn_cast<StringAttr>(value);
  return word && llvm::is_contained({"auto", "ring", "all_gather", "scan"}, word.getValue());
}

/// What an op along `axis` knows of its place: an argument of its function.
static LogicalResult verifySequence(const Attributed &of) {
  auto place = dyn_cast<DictionaryAttr>(of.attr.getValue());
  auto axis = place ? place.getAs<StringAttr>("axis") : StringAttr();
  auto coordinate = place ? place.getAs<IntegerAttr>("coordinate") : IntegerAttr();
  if (!axis || !coordinate || !coordinate.getType().isSignlessInteger(64) || coordinate.getInt() < 0)
    return of.mustBe("{axis = \"name\", coordinate = N : i64} with the number N of an argument");
  if (Attribute algorithm = place.get("algorithm"); algorithm && !isSpAlgorithm(algorithm))
    return of.error() << "holds algorithm = " << algorithm << "; valid: auto, ring, all_gather or scan";
  return success();
}

static LogicalResult verifyMachine(const Attributed &of) {
  auto fields = dyn_cast<DictionaryAttr>(of.attr.getValue());
  if (!fields)
    return of.mustBe("a dictionary of rates and times");
  for (NamedAttribute field : fields) {
    StringRef name = field.getName().getValue();
    bool rate = llvm::is_contained({"flops", "bandwidth", "link_bandwidth"}, name);
    if (!rate && name != "overhead" && name != "link_latency")
      return of.error() << "holds " << name << "; valid: flops, bandwidth, overhead, link_bandwidth and link_latency";
    auto value = dyn_cast<FloatAttr>(field.getValue());
    if (!value || !value.getType().isF64() || !value.getValue().isFinite() || value.getValueAsDouble() < 0 ||
        (rate && value.getValueAsDouble() == 0))
      return of.error() << "holds " << name << " = " << field.getValue() << "; valid: an f64 "
                        << (rate ? "above 0" : "of at least 0");
  }
  return success();
}

/// The signature of an entry is what the host binds: tensors of known size.
static LogicalResult verifyEntry(const Attributed &of) {
  auto function = dyn_cast<func::FuncOp>(of.op);
  if (!isa<UnitAttr>(of.attr.getValue()) || !function)
    return of.error() << "marks functions, and has no value";
  if (!function.isPublic() || function.isExternal())
    return of.error() << "marks what the host calls; valid: on a public function with a body";
  auto verify = [&](TypeRange types, StringRef what) -> LogicalResult {
    for (auto [i, type] : llvm::enumerate(types))
      if (auto tensor = dyn_cast<RankedTensorType>(type);
          !tensor || !tensor.hasStaticShape() || !tensor.getElementType().isIntOrFloat())
        return of.op->emitOpError()
               << what << i
               << " must be a tensor of static shape and of integers or floats, as all values of an entry, but is "
               << type;
    return success();
  };
  if (failed(verify(function.getArgumentTypes(), "argument ")))
    return failure();
  return verify(function.getResultTypes(), "result ");
}

LogicalResult BraidDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  Attributed of{op, attr, ""};
  Attribute value = attr.getValue();
  StringRef name = attr.getName();
  if (name == attrs::mesh)
    return verifyMesh(of);
  if (name == attrs::entry)
    return verifyEntry(of);
  if (name == attrs::sequence)
    return verifySequence(of);
  if (name == attrs::machine)
    return verifyMachine(of);
  if (name == attrs::phase && !isa<StringAttr>(value))
    return of.mustBe("a phase's name");
  if (name == attrs::maxDocuments)
    if (auto count = dyn_cast<IntegerAttr>(value); !count || count.getValue().slt(1))
      return of.mustBe("a number of at least 1");
  if (name == attrs::stage)
    if (auto number = dyn_cast<IntegerAttr>(value); !number || number.getValue().isNegative())
      return of.mustBe("the number of a stage, at least 0");
  if (name == attrs::microBatches)
    if (auto count = dyn_cast<IntegerAttr>(value); !count || count.getValue().slt(1))
      return of.mustBe("a number of at least 1");
  if (name == attrs::stageOrder)
    if (auto order = dyn_cast<StringAttr>(value); !order || !llvm::is_contained(kStageOrders, order.getValue()))
      return of.mustBe("1F1B or ZB-H1");
  if (name == attrs::spAlgorithm && !isSpAlgorithm(value))
    return of.mustBe("auto, ring, all_gather or scan");
  if (name == attrs::expertRoom)
    if (auto room = dyn_cast<FloatAttr>(value); !room || !(room.getValueAsDouble() >= 1))
      return of.mustBe("a number of at least 1");
  if (name == attrs::metadata) {
    auto entries = dyn_cast<DictionaryAttr>(value);
    if (!entries || !llvm::all_of(entries, [](NamedAttribute entry) { return isa<StringAttr>(entry.getValue()); }))
      return of.mustBe("a dictionary of texts");
  }
  return success();
}

/// "experts", or "heads*16": heads of 16 elements each; "" for what nobody divides.
static bool isDimName(StringRef text) {
  auto [name, unit] = text.split('*');
  int64_t size = 1;
  return !text.contains('*') || (!name.empty() && !unit.getAsInteger(10, size) && size >= 1);
}

static LogicalResult verifyDims(const Attributed &of, ArrayRef<int64_t> shape) {
  auto dims = dyn_cast<ArrayAttr>(of.attr.getValue());
  if (!dims)
    return of.mustBe("a list of texts");
  for (Attribute entry : dims) {
    auto text = dyn_cast<StringAttr>(entry);
    if (!text || !isDimName(text.getValue()))
      return of.error() << "holds " << entry
                        << "; valid: \"name\", or \"name*N\" for groups of N elements, N at least 1";
  }
  if (dims.size() > shape.size()) // what is not named is not divided
    return of.error() << "names " << dims.size() << " dimensions, but there are " << shape.size()
                      << " (that of the layers not counted)";
  return success();
}

static LogicalResult verifyShards(const Attributed &of, ArrayRef<int64_t> shape) {
  auto shards = dyn_cast<ArrayAttr>(of.attr.getValue());
  if (!shards)
    return of.mustBe("a list of [dimension, \"axis\"]");
  for (Attribute entry : shards) {
    auto pair = dyn_cast<ArrayAttr>(entry);
    auto dim = pair && pair.size() == 2 ? dyn_cast<IntegerAttr>(pair[0]) : IntegerAttr();
    if (!dim || dim.getValue().getBitWidth() > 64 || !isa<StringAttr>(pair[1]))
      return of.error() << "holds " << entry << "; valid: [dimension, \"axis\"]";
    if (int64_t cut = dim.getValue().getSExtValue(); cut < 0 || cut >= static_cast<int64_t>(shape.size()))
      return of.error() << "cuts dimension " << cut << " of " << shape.size() << " (that of the layers not counted)";
  }
  return success();
}

static LogicalResult verifyValue(const Attributed &of, Type type, DictionaryAttr all, unsigned arguments) {
  Attribute value = of.attr.getValue();
  StringRef name = of.attr.getName();
  if (name == attrs::name || name == attrs::of || name == attrs::slot)
    return isa<StringAttr>(value) ? success() : LogicalResult(of.mustBe("a text"));
  if (name == attrs::decay || name == attrs::trained)
    return isa<BoolAttr>(value) ? success() : LogicalResult(of.mustBe("true or false"));
  if (name == attrs::rateScale || name == attrs::correctionRate)
    return isa<FloatAttr>(value) ? success() : LogicalResult(of.mustBe("a floating-point number"));
  if (name == attrs::role) {
    auto role = dyn_cast<StringAttr>(value);
    if (!role || !llvm::is_contained({"parameter", "moment", "gradient", "input", "output", "cache", kStageInput.data(),
                                      kStageOutput.data(), kStageCotangent.data(), kStageBroadcast.data()},
                                     role.getValue()))
      return of.mustBe("parameter, moment, gradient, input, output, cache, or (of a stage) stage_input, stage_output, "
                       "stage_cotangent or stage_broadcast");
    return success();
  }
  if (name == attrs::alias) {
    auto argument = dyn_cast<IntegerAttr>(value);
    if (!argument || argument.getValue().slt(0) || argument.getValue().sge(arguments))
      return of.mustBe("the index of one of " + Twine(arguments) + " arguments");
    return success();
  }
  if (name == attrs::layers) {
    auto layers = dyn_cast<DenseI32ArrayAttr>(value);
    if (!layers || layers.empty() || llvm::any_of(layers.asArrayRef(), [](int32_t layer) { return layer < 0; }))
      return of.mustBe("array<i32: ..> of layer indices from 0 on");
    return success();
  }
  if (name != attrs::dims && name != attrs::shards)
    return success();
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor)
    return of.error() << "describes a tensor, but the value is " << type;
  ArrayRef<int64_t> shape = tensor.getShape();
  if (all && all.contains(attrs::layers)) {
    if (shape.empty())
      return of.error() << "stands with " << attrs::layers
                        << ", whose values have a dimension of layers, but the value is " << type;
    shape = shape.drop_front();
  }
  return name == attrs::dims ? verifyDims(of, shape) : verifyShards(of, shape);
}

LogicalResult BraidDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned index, NamedAttribute attr) {
  auto function = dyn_cast<func::FuncOp>(op);
  if (!function)
    return success();
  return verifyValue({op, attr, "argument " + std::to_string(index) + " "}, function.getArgumentTypes()[index],
                     function.getArgAttrDict(index), function.getNumArguments());
}

LogicalResult BraidDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned index, NamedAttribute attr) {
  auto function = dyn_cast<func::FuncOp>(op);
  if (!function)
    return success();
  return verifyValue({op, attr, "result " + std::to_string(index) + " "}, function.getResultTypes()[index],
                     function.getResultAttrDict(index), function.getNumArguments());
}
