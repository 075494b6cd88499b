//===- TrainKernels.cpp - gradient norm, clipping, AdamW, accumulation --------------------------------------------===//
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/outline/MasterParts.h"
#include "passes/outline/OutlineFamilies.h"
#include "passes/outline/RandomRounding.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;

namespace braid {
namespace {

LogicalResult sumSquares(SumSquaresOp op, OutlineContext &context) {
  Type element = tensorType(op.getResult()).getElementType();
  SmallVector<Value> parts = llvm::map_to_vector(op.getXs(), [&](Value x) {
    Value squares = context.squares.lookup(x);
    return partialSums(op, squares ? squares : x, /*squared=*/!squares, element, context);
  });
  Value all = parts.front();
  if (parts.size() > 1) {
    int64_t size = 0;
    for (Value part : parts)
      size += shapeOf(part)[0];
    context.rewriter.setInsertionPoint(op);
    all = ConcatOp::create(context.rewriter, op.getLoc(), RankedTensorType::get({size}, element), parts, 0);
  }
  context.replace(op, sumAll(op, all, element, context));
  return success();
}

LogicalResult clipScale(ClipScaleOp op, OutlineContext &context) {
  Type element = tensorType(op.getNorm()).getElementType();
  std::string kernel = context.kernel("clip_scale_" + typeName(element), {"all"}, [&](KernelBuilder &k) {
    Var squares = k.buffer("sum_squares", element, {1}), norm = k.buffer("norm", element, {1}),
        scale = k.buffer("scale", element, {1});
    Var most = k.scalar("max_norm", element), n = sqrt(k.at(squares, {0}));
    k.put(n, norm, {0});
    k.put(select(gt(most, 0), min(most / (n + 1e-6), 1.0), n.like(1)), scale, {0});
  });
  context.replace(op, context.launch(op, kernel, {1})
                          .arg("sum_squares", op.getSumSquares())
                          .result("norm", op.getNorm().getType())
                          .result("scale", op.getScale().getType())
                          .scalar("max_norm", op.getMaxNorm().convertToDouble(), element)
                          .run());
  return success();
}

/// sum += part
LogicalResult accumulate(AddOp op, OutlineContext &context) {
  constexpr int64_t block = 1024, blocks = 8;
  Value sum = op.getSources()[0], part = op.getSources()[1];
  Type element = tensorType(sum).getElementType(), added = tensorType(part).getElementType();
  int64_t size = product(shapeOf(sum));
  std::string name = "accumulate_" + typeName(element) + (added != element ? "_" + typeName(added) : "");
  std::string kernel = context.kernel(name, {"block"}, [&](KernelBuilder &k) {
    Var before = k.buffer("sum", element, {kDynamic}), x = k.buffer("part", added, {kDynamic});
    Var after = k.buffer("new_sum", element, {kDynamic}), size = k.index("size");
    Var start = k.program(0) * (block * blocks);
    k.loop(start, min(start + block * blocks, size), block, [&](Var i) {
      Var y = k.load(before, {i}, {block}, {.limit = size}) + cast(k.load(x, {i}, {block}, {.limit = size}), element);
      k.store(y, after, {i}, {.limit = size});
    });
  });
  Value flatSum = context.view(op, sum, {size}), flatPart = context.view(op, part, {size});
  context.replace(op, context.launch(op, kernel, {ceilDiv(size, block * blocks)})
                          .arg("sum", flatSum)
                          .arg("part", flatPart)
                          .result("new_sum", flatSum.getType(), "sum")
                          .index("size", size)
                          .run());
  return success();
}

LogicalResult adamw(AdamwOp op, OutlineContext &context) {
  constexpr int64_t block = 1024, blocks = 8;
  Type weight = tensorType(op.getParameter()).getElementType(),
       gradient = tensorType(op.getGradient()).getElementType();
  Type moment = tensorType(op.getFirst()).getElementType(),
       rateType = tensorType(op.getLearningRate()).getElementType();
  bool rounds = moment.isBF16(); // at random
  Type real = rounds ? Type(Float32Type::get(op.getContext())) : moment;
  Type scaleType = tensorType(op.getScale()).getElementType();
  int64_t size = product(shapeOf(op.getParameter()));
  bool master = static_cast<bool>(op.getLow()); // the parameter and `low`
  std::string name = "adamw_" + typeName(weight) + (gradient != weight ? "_" + typeName(gradient) : "") +
                     (master ? "_master" : "") + (rounds ? "_moments_bf16" : "");
  std::string kernel = context.kernel(name, {"block"}, [&](KernelBuilder &k) {
    Var parameter = k.buffer("parameter", weight, {kDynamic}), grad = k.buffer("gradient", gradient, {kDynamic});
    Var first = k.buffer("first", moment, {kDynamic}), second = k.buffer("second", moment, {kDynamic});
    Var rate = k.buffer("learning_rate", rateType, {1}), step = k.buffer("step", k.i32(), {1}),
        scale = k.buffer("scale", scaleType, {1});
    Type i16 = k.builder.getI16Type();
    Var low = master ? k.buffer("low", i16, {kDynamic}) : Var();
    Var newParameter = k.buffer("new_parameter", weight, {kDynamic});
    Var newFirst = k.buffer("new_first", moment, {kDynamic}), newSecond = k.buffer("new_second", moment, {kDynamic});
    Var newLow = master ? k.buffer("new_low", i16, {kDynamic}) : Var();
    Var size = k.index("size"), beta1 = k.scalar("beta1", real), beta2 = k.scalar("beta2", real);
    Var rest1 = k.scalar("rest1", real), rest2 = k.scalar("rest2", real), eps = k.scalar("eps", real);
    Var decay = k.scalar("weight_decay", real), log1 = k.scalar("log_beta1", k.f64()),
        log2 = k.scalar("log_beta2", k.f64());
    // 1 / (1 - beta^step) in f64: in f32 the difference loses five digits at step 1.
    Var number = k.at(step, {0}), t = cast(number, k.f64());
    auto correction = [&](Var logBeta) {
      Var power = t * logBeta;
      return cast(-1.0 / power.with(math::ExpM1Op::create(k.builder, power)), real);
    };
    Var correct1 = correction(log1), correct2 = correction(log2);
    Var lr = cast(k.at(rate, {0}), real), factor = cast(k.at(scale, {0}), real),
        start = k.program(0) * (block * blocks);
    k.loop(start, min(start + block * blocks, size), block, [&](Var i) {
      auto load = [&](Var x) { return k.load(x, {i}, {block}, {.limit = size}); };
      auto read = [&](Var x) { return cast(load(x), real); };
      Var before = read(second), g = read(grad) * factor;
      Var w = master ? joinMaster(k, load(parameter), load(low), before) : read(parameter);
      Var m = read(first) * beta1 + g * rest1, v = (master ? abs(before) : before) * beta2 + g * g * rest2;
      w = w - (m * correct1 / (sqrt(v * correct2) + eps) + w * decay) * lr;
      if (rounds) {
        Var random = hashBits(k, bitcast(m, k.i32()), bitcast(v, k.i32()), number);
        m = roundRandomly(k, m, random);
        v = roundRandomly(k, v, shiftRight(random, 16));
      }
      if (master) {
        MasterParts parts = splitMaster(k, w);
        k.store(parts.high, newParameter, {i}, {.limit = size});
        k.store(parts.low, newLow, {i}, {.limit = size});
        v = bitcast(either(bitcast(v, k.i32()), parts.sign), real);
      } else {
        k.store(cast(w, weight), newParameter, {i}, {.limit = size});
      }
      k.store(cast(m, moment), newFirst, {i}, {.limit = size});
      k.store(cast(v, moment), newSecond, {i}, {.limit = size});
    });
  });
  auto flat = [&](Value v) { return context.view(op, v, {size}); };
  Value parameter = flat(op.getParameter()), grad = flat(op.getGradient()), first = flat(op.getFirst()),
        second = flat(op.getSecond()), low = master ? flat(op.getLow()) : Value();
  double beta1 = op.getBeta1().convertToDouble(), beta2 = op.getBeta2().convertToDouble();
  auto launch = context.launch(op, kernel, {ceilDiv(size, block * blocks)});
  launch.arg("parameter", parameter)
      .arg("gradient", grad)
      .arg("first", first)
      .arg("second", second)
      .arg("learning_rate", op.getLearningRate())
      .arg("step", op.getStep())
      .arg("scale", op.getScale());
  if (master)
    launch.arg("low", low);
  launch.result("new_parameter", parameter.getType(), "parameter")
      .result("new_first", first.getType(), "first")
      .result("new_second", second.getType(), "second");
  if (master)
    launch.result("new_low", low.getType(), "low");
  auto f64 = Float64Type::get(op.getContext());
  context.replace(op, launch.index("size", size)
                          .scalar("beta1", beta1, real)
                          .scalar("beta2", beta2, real)
                          .scalar("rest1", 1 - beta1, real)
                          .scalar("rest2", 1 - beta2, real)
                          .scalar("eps", op.getEps().convertToDouble(), real)
                          .scalar("weight_decay", op.getWeightDecay().convertToDouble(), real)
                          .scalar("log_beta1", std::log(beta1), f64)
                          .scalar("log_beta2", std::log(beta2), f64)
                          .run());
  return success();
}

} // namespace

LogicalResult outlineTrain(Operation *op, OutlineContext &context) {
  return TypeSwitch<Operation *, LogicalResult>(op)
      .Case([&](SumSquaresOp squares) { return sumSquares(squares, context); })
      .Case([&](AddOp add) { return accumulate(add, context); })
      .Case([&](ClipScaleOp clip) { return clipScale(clip, context); })
      .Case([&](AdamwOp step) { return adamw(step, context); });
}

} // namespace braid
