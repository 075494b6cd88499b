//===- StructureKernels.cpp - document starts, copies where a view is not contiguous, constants -------------------===//
#include "passes/analysis/Views.h"
#include "passes/outline/OutlineFamilies.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace braid {
namespace {

constexpr int64_t kBlock = 256;

/// start(t) = the largest cu_seqlens[d] <= t (they ascend), relative to `begin`; INT32_MAX past the last entry.
LogicalResult documents(DocumentsOp op, OutlineContext &context) {
  constexpr int64_t width = 64;
  int64_t batch = shapeOf(op.getResult())[0], tokens = shapeOf(op.getResult())[1],
          entries = shapeOf(op.getCuSeqlens())[1];
  bool sharded = static_cast<bool>(op.getCoordinate());
  std::string kernel =
      context.kernel(sharded ? "documents_sp" : "documents", {"token", "batch"}, [&](KernelBuilder &k) {
        Var edges = k.buffer("cu_seqlens", k.i32(), {kDynamic, kDynamic}),
            starts = k.buffer("starts", k.i32(), {kDynamic, kDynamic});
        Var entries = k.index("entries"), tokens = k.index("tokens"), begin = cast(k.index("begin"), k.i32());
        if (sharded)
          begin = begin + k.at(k.buffer("coordinate", k.i32(), {1}), {0}) * cast(tokens, k.i32());
        Var first = k.program(0) * width, b = k.program(1);
        Var t = k.iota({width}, 0) + cast(first, k.i32()) + begin;
        Var none = k.tile({width}, k.i32()) + k.at(edges, {b, 0});
        Vars start = k.loop(0, entries, 1, {none}, [&](Var d, ArrayRef<Var> found) {
          Var edge = splat(k.at(edges, {b, d}), {width});
          return Vars{select(le(edge, t), edge, found[0])};
        });
        Var valid = lt(t, k.at(edges, {b, entries - 1}));
        Var result = select(valid, start[0] - begin, std::numeric_limits<int32_t>::max());
        k.store(result, starts, {b, first}, {.limit = tokens});
      });
  auto launch = context.launch(op, kernel, {ceilDiv(tokens, width), batch});
  launch.arg("cu_seqlens", op.getCuSeqlens());
  if (sharded)
    launch.arg("coordinate", op.getCoordinate());
  launch.result("starts", op.getResult().getType());
  launch.index("entries", entries).index("tokens", tokens).index("begin", op.getBegin());
  context.replace(op, launch.run());
  return success();
}

/// A tensor cut at `dim`: [dimensions before, everything from dim on].
SmallVector<int64_t> cutAt(Value v, int64_t dim) {
  return {product(shapeOf(v).take_front(dim)), product(shapeOf(v).drop_front(dim))};
}

/// y[o, i] = x[o, begin + i]
LogicalResult copySlice(SliceOp op, OutlineContext &context) {
  if (isContiguous(op.getResult()))
    return success(); // a view
  int64_t dim = op.getDim(), inner = product(shapeOf(op.getSource()).drop_front(dim + 1));
  Type element = tensorType(op.getSource()).getElementType();
  SmallVector<int64_t> from = cutAt(op.getSource(), dim), to = cutAt(op.getResult(), dim);
  std::string kernel = context.kernel("slice_" + typeName(element), {"block", "row"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, kDynamic}), y = k.buffer("y", element, {kDynamic, kDynamic});
    Var begin = k.index("begin"), end = k.index("end"), first = k.program(0) * kBlock, o = k.program(1);
    k.store(k.load(x, {o, begin + first}, {kBlock}, {.limit = end}), y, {o, first}, {.limit = k.size(y, 1)});
  });
  Value source = context.view(op, op.getSource(), from);
  context.replace(op, context.launch(op, kernel, {ceilDiv(to[1], kBlock), to[0]})
                          .arg("x", source)
                          .result("y", tensorType(op.getResult()).clone(to))
                          .index("begin", op.getBegin() * inner)
                          .index("end", op.getBegin() * inner + to[1])
                          .run());
  return success();
}

/// y[o, begin + i] = x[o, i]: in the buffer of `into`, or in one that holds nothing else yet.
Value insert(Operation *op, Value x, Value into, RankedTensorType type, int64_t dim, int64_t begin,
             OutlineContext &context) {
  int64_t inner = product(type.getShape().drop_front(dim + 1));
  Type element = type.getElementType();
  SmallVector<int64_t> from = cutAt(x, dim), to = {from[0], product(type.getShape().drop_front(dim))};
  std::string kernel = context.kernel(
      std::string(into ? "insert_" : "insert_first_") + typeName(element), {"block", "row"}, [&](KernelBuilder &k) {
        Var x = k.buffer("x", element, {kDynamic, kDynamic});
        if (into)
          k.buffer("into", element, {kDynamic, kDynamic});
        Var y = k.buffer("y", element, {kDynamic, kDynamic}), begin = k.index("begin"), end = k.index("end");
        Var first = k.program(0) * kBlock, o = k.program(1);
        k.store(k.load(x, {o, first}, {kBlock}, {.limit = k.size(x, 1)}), y, {o, begin + first}, {.limit = end});
      });
  Value source = context.view(op, x, from), target = into ? context.view(op, into, to) : Value();
  auto launch = context.launch(op, kernel, {ceilDiv(from[1], kBlock), from[0]});
  launch.arg("x", source);
  if (into)
    launch.arg("into", target);
  launch.result("y", type.clone(to), into ? "into" : "")
      .index("begin", begin * inner)
      .index("end", begin * inner + from[1]);
  return context.view(op, launch.run()[0], type.getShape());
}

LogicalResult copyInsert(InsertOp op, OutlineContext &context) {
  context.replace(op,
                  insert(op, op.getX(), op.getInto(), tensorType(op.getResult()), op.getDim(), op.getBegin(), context));
  return success();
}

/// Part after part, so that there is one kernel for any number of them.
LogicalResult copyConcat(ConcatOp op, OutlineContext &context) {
  if (concatOffset(op, 0))
    return success(); // the parts lie one after the other
  int64_t begin = 0;
  Value result;
  for (Value part : op.getSources()) {
    result = insert(op, part, result, tensorType(op.getResult()), op.getDim(), begin, context);
    begin += shapeOf(part)[op.getDim()];
  }
  context.replace(op, result);
  return success();
}

/// y[o, i] = x[o, c size + i]
LogicalResult copyShard(ShardOp op, OutlineContext &context) {
  Type element = tensorType(op.getX()).getElementType();
  SmallVector<int64_t> from = cutAt(op.getX(), op.getDim()), to = cutAt(op.getResult(), op.getDim());
  std::string kernel = context.kernel("shard_" + typeName(element), {"block", "row"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, kDynamic}), coordinate = k.buffer("coordinate", k.i32(), {1});
    Var y = k.buffer("y", element, {kDynamic, kDynamic}), size = k.index("size");
    Var first = k.program(0) * kBlock, o = k.program(1);
    Var begin = cast(k.at(coordinate, {0}), k.builder.getIndexType()) * size;
    k.store(k.load(x, {o, begin + first}, {kBlock}, {.limit = begin + size}), y, {o, first}, {.limit = size});
  });
  context.replace(op, context.launch(op, kernel, {ceilDiv(to[1], kBlock), to[0]})
                          .arg("x", context.view(op, op.getX(), from))
                          .arg("coordinate", op.getCoordinate())
                          .result("y", tensorType(op.getResult()).clone(to))
                          .index("size", to[1])
                          .run());
  return success();
}

/// y[i] = ids[i] - c size where that is 0 to size - 1, else -1
LogicalResult localIds(LocalIdsOp op, OutlineContext &context) {
  int64_t count = product(shapeOf(op.getIds()));
  std::string kernel = context.kernel("local_ids", {"block"}, [&](KernelBuilder &k) {
    Var ids = k.buffer("ids", k.i32(), {kDynamic}), coordinate = k.buffer("coordinate", k.i32(), {1});
    Var y = k.buffer("y", k.i32(), {kDynamic}), count = k.index("count"), size = cast(k.index("size"), k.i32());
    Var first = k.program(0) * kBlock;
    Var id = k.load(ids, {first}, {kBlock}, {.limit = count}) - k.at(coordinate, {0}) * size;
    k.store(select(both(ge(id, 0), lt(id, size)), id, id.like(-1)), y, {first}, {.limit = count});
  });
  context.replace(op, context.launch(op, kernel, {ceilDiv(count, kBlock)})
                          .arg("ids", context.view(op, op.getIds(), {count}))
                          .arg("coordinate", op.getCoordinate())
                          .result("y", tensorType(op.getResult()).clone({count}))
                          .index("count", count)
                          .index("size", op.getSize())
                          .run());
  return success();
}

/// y[b, :] = x[b, n - 1, :], n the tokens of row b that are not padding; 0 where there are none.
LogicalResult lastToken(LastTokenOp op, OutlineContext &context) {
  Type element = tensorType(op.getX()).getElementType();
  int64_t batch = shapeOf(op.getX())[0], width = shapeOf(op.getX())[2], columns = divisorUpTo(width, kBlock);
  std::string name = llvm::formatv("last_token_d{0}_{1}", width, typeName(element));
  std::string kernel = context.kernel(name, {"column", "batch"}, [&](KernelBuilder &k) {
    Var x = k.buffer("x", element, {kDynamic, kDynamic, width});
    Var documents = k.buffer("documents", k.i32(), {kDynamic, kDynamic}), y = k.buffer("y", element, {kDynamic, width});
    Var column = k.program(0) * columns, b = k.program(1), length = tokensOf(k, documents, b);
    Var row = k.load(x, {b, length - 1.0, column}, {1, columns}, {.limit = length});
    k.store(row, y, {b, column});
  });
  Value y = context.launch(op, kernel, {width / columns, batch})
                .arg("x", op.getX())
                .arg("documents", op.getDocuments())
                .result("y", RankedTensorType::get({batch, width}, element))
                .run()[0];
  context.replace(op, context.view(op, y, shapeOf(op.getResult())));
  return success();
}

/// y[i] = x[i] count - begin; INT32_MAX stays
LogicalResult scaleDocuments(ScaleDocumentsOp op, OutlineContext &context) {
  int64_t size = product(shapeOf(op.getDocuments()));
  std::string kernel = context.kernel("scale_documents", {"block"}, [&](KernelBuilder &k) {
    Var documents = k.buffer("documents", k.i32(), {kDynamic}), y = k.buffer("y", k.i32(), {kDynamic});
    Var size = k.index("size"), count = cast(k.index("count"), k.i32()), begin = cast(k.index("begin"), k.i32());
    Var first = k.program(0) * kBlock;
    Var x = k.load(documents, {first}, {kBlock}, {.limit = size});
    constexpr int32_t none = std::numeric_limits<int32_t>::max();
    k.store(select(ge(x, none), x, x * count - begin), y, {first}, {.limit = size});
  });
  context.replace(op, context.launch(op, kernel, {ceilDiv(size, kBlock)})
                          .arg("documents", context.view(op, op.getDocuments(), {size}))
                          .result("y", tensorType(op.getResult()).clone({size}))
                          .index("size", size)
                          .index("count", op.getCount())
                          .index("begin", op.getBegin())
                          .run());
  return success();
}

LogicalResult constant(arith::ConstantOp op, OutlineContext &context) {
  auto value = dyn_cast<DenseElementsAttr>(op.getValue());
  if (!value || !value.isSplat())
    return op.emitOpError("of different values has no kernel");
  auto type = cast<RankedTensorType>(op.getType());
  bool isFloat = isa<FloatType>(type.getElementType());
  double number =
      isFloat ? value.getSplatValue<APFloat>().convertToDouble() : value.getSplatValue<APInt>().getSExtValue();
  context.replace(op, fillWith(op, type, number, context));
  return success();
}

} // namespace

Var tokensOf(KernelBuilder &k, Var documents, Var b) {
  Var tokens = k.size(documents, 1), none = k.constant(k.i32(), 0);
  double padding = std::numeric_limits<int32_t>::max();
  auto count = [&] {
    Var count = k.loop(0, tokens, kBlock, {none}, [&](Var t, ArrayRef<Var> now) -> Vars {
      Var starts = k.load(documents, {b, t}, {kBlock}, {.limit = tokens}),
          inside = lt(k.iota({kBlock}, 0), cast(tokens - t, k.i32()));
      return {now[0] + sum(cast(both(inside, lt(starts, padding)), k.i32()), 0)};
    })[0];
    return Vars{cast(count, k.builder.getIndexType())};
  };
  // Where the last token is not padding, none is.
  return k.when(lt(k.at(documents, {b, tokens - 1.0}), padding), [&] { return Vars{tokens}; }, count)[0];
}

Value fillWith(Operation *op, RankedTensorType type, double value, OutlineContext &context) {
  int64_t size = product(type.getShape());
  Type element = type.getElementType();
  bool isFloat = isa<FloatType>(element);
  std::string kernel = context.kernel("fill_" + typeName(element), {"block"}, [&](KernelBuilder &k) {
    Var y = k.buffer("y", element, {kDynamic}), size = k.index("size");
    Var value = isFloat ? k.scalar("value", k.f64()) : k.index("value");
    k.store(splat(cast(value, element), {kBlock}), y, {k.program(0) * kBlock}, {.limit = size});
  });
  auto launch = context.launch(op, kernel, {ceilDiv(size, kBlock)});
  launch.result("y", type.clone({size})).index("size", size);
  if (isFloat)
    launch.scalar("value", value, Float64Type::get(op->getContext()));
  else
    launch.index("value", static_cast<int64_t>(value));
  return context.view(op, launch.run()[0], type.getShape());
}

LogicalResult outlineStructure(Operation *op, OutlineContext &context) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](DocumentsOp documentsOp) { return documents(documentsOp, context); })
      .Case([&](ScaleDocumentsOp scale) { return scaleDocuments(scale, context); })
      .Case([&](SliceOp slice) { return copySlice(slice, context); })
      .Case([&](ShardOp shard) { return copyShard(shard, context); })
      .Case([&](LocalIdsOp ids) { return localIds(ids, context); })
      .Case([&](LastTokenOp last) { return lastToken(last, context); })
      .Case([&](ConcatOp concat) { return copyConcat(concat, context); })
      .Case([&](InsertOp insertOp) { return copyInsert(insertOp, context); })
      .Case([&](arith::ConstantOp constantOp) { return constant(constantOp, context); });
}

} // namespace braid
