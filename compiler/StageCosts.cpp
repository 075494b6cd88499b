//===- StageCosts.cpp - what layers cost, before they are shared out among stages ---------------------------------===//
//
//   a product x w       forward, and dx = dy w^T        max(FLOPs / rate, (tokens + w) / bandwidth) each
//                       dw = x^T dy, onto the sum       max(FLOPs / rate, (tokens + 2 dw) / bandwidth), dw in f32
//   attention           forward, and 2.5 times its FLOPs
//   a part of the head  logits twice: what all stages need of them, before their gradients
//   all else            three times its bytes, of which a kernel keeps half to itself where ops of rows follow each other
//
// Of few tokens for each weight, as many experts and small micro-batches have them, bytes of weights are what a stage waits for, and FLOPs would
// count a head of many words far too high.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "compiler/StageCosts.h"

#include "dialects/cmd/CmdDialect.h"
#include "passes/analysis/Work.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace braid;

namespace {

double bytesOf(ValueRange values) {
  double bytes = 0;
  for (Value value : values)
    if (auto type = dyn_cast<RankedTensorType>(value.getType()); type && type.hasStaticShape())
      bytes += static_cast<double>(cmd::tensorBytes(type));
  return bytes;
}

class Seconds {
public:
  Seconds(const Machine &machine, const Mesh &mesh)
      : machine(machine), ranks(static_cast<double>(mesh.world()) / static_cast<double>(mesh.size("pp"))),
        tp(static_cast<double>(mesh.size("tp"))), experts(static_cast<double>(mesh.size("ep") * mesh.size("etp"))) {}

  double ofLayer(func::FuncOp layer) const {
    double seconds = 0;
    layer.walk([&](Operation *op) {
      if (op->hasTrait<OpTrait::IsTerminator>() || isa<func::FuncOp, ReshapeOp>(op))
        return;
      auto flops = static_cast<double>(flopsOf(op, /*maxDocuments=*/1));
      double bytes = bytesOf(op->getOperands()) + bytesOf(op->getResults());
      seconds += llvm::TypeSwitch<Operation *, double>(op)
                     .Case([&](LinearOp l) { return product(flops, bytes, l.getWeights(), tp); })
                     .Case([&](HeadLinearOp l) { return product(flops, bytes, l.getWeight(), tp); })
                     .Case([&](MoeGroupedLinearOp l) { return product(flops, bytes, l.getWeights(), experts); })
                     .Case([&](AttnCausalOp) { return time(3.5 * flops / ranks, 3.5 * bytes / ranks); })
                     .Default([&](Operation *) {
                       return time(3 * flops / ranks, (isa<RowsOpInterface>(op) ? 1.5 : 3) * bytes / ranks);
                     });
    });
    return seconds;
  }

  double ofHead(int64_t tokens, int64_t features, int64_t words, int64_t parts) const {
    double own = static_cast<double>(words) / static_cast<double>(parts);
    double flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(features) * own / ranks;
    constexpr double weight = 2, each = 2; // bytes of bf16: a weight's, and a logit's, which exists in blocks
    double elements = static_cast<double>(features) * own / tp;
    double logits = each * static_cast<double>(tokens) * own / ranks;
    return products(flops, logits, weight * elements, elements) +
           (parts > 1 ? time(flops, logits + weight * elements) : 0);
  }

  /// Messages of x, forward and back. With parts of the head: from the last stage to each other one, the logsumexp of all, and the sum of the cotangents,
  /// a ring there and back in as many turns as double the ranks.
  double ofExchanges(int64_t tokens, int64_t features, int64_t parts) const {
    constexpr double each = 2; // bytes of bf16
    double bytes = each * static_cast<double>(tokens) * static_cast<double>(features) / (ranks / tp),
           message = machine.linkLatency + bytes / machine.linkBandwidth, turns = std::ceil(std::log2(parts));
    if (parts == 1)
      return 2 * message;
    return 2 * message + static_cast<double>(parts - 1) * message + 3 * turns * machine.linkLatency +
           2 * bytes / machine.linkBandwidth;
  }

private:
  double time(double flops, double bytes) const { return std::max(flops / machine.flops, bytes / machine.bandwidth); }
  double products(double flops, double tokenBytes, double weightBytes, double elements) const {
    constexpr double sum = 2 * 4; // of f32, read and written
    return 2 * time(flops, tokenBytes + weightBytes) + time(flops, tokenBytes + sum * elements);
  }
  /// `parts`: ranks that share the weights.
  double product(double flops, double bytes, ValueRange weights, double parts) const {
    double elements = 0, weightBytes = bytesOf(weights);
    for (Value weight : weights)
      elements += static_cast<double>(cast<RankedTensorType>(weight.getType()).getNumElements());
    return products(flops / ranks, (bytes - weightBytes) / ranks, weightBytes / parts, elements / parts);
  }

  Machine machine;
  double ranks, tp, experts;
};

} // namespace

StageCosts braid::stageCosts(const Machine &machine, const Mesh &mesh) {
  Seconds seconds(machine, mesh);
  return {
      [=](func::FuncOp layer) { return seconds.ofLayer(layer); },
      [=](int64_t tokens, int64_t features, int64_t words, int64_t parts) {
        return seconds.ofHead(tokens, features, words, parts);
      },
      [=](int64_t tokens, int64_t features, int64_t parts) { return seconds.ofExchanges(tokens, features, parts); }};
}
