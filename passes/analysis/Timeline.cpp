//===- Timeline.cpp - an entry function as one line of moments ----------------------------------------------------===//
#include "passes/analysis/Timeline.h"

#include "dialects/cmd/CmdDialect.h"

using namespace mlir;
using namespace braid;

const RepeatScope *RepeatScope::at(const RepeatScope *scope, unsigned depth) {
  while (scope && scope->depth > depth)
    scope = scope->parent;
  return scope && scope->depth == depth ? scope : nullptr;
}

CommAwaitOp braid::awaitOf(CommStartOp start) {
  if (!start.getFuture().hasOneUse())
    return {};
  return dyn_cast<CommAwaitOp>(*start.getFuture().user_begin());
}

bool braid::runsBeside(Operation *op) { return op->hasAttr(cmd::kBesideAttr) && op->hasAttr(cmd::kLayersAttr); }

Timeline::Timeline(func::FuncOp entry) { number(entry.getBody().front(), nullptr); }

void Timeline::number(Block &block, const RepeatScope *scope) {
  scopes[&block] = scope;
  for (Operation &op : block) {
    moments[&op] = ++last;
    auto repeat = dyn_cast<RepeatOp>(op);
    if (!repeat)
      continue;
    int64_t begin = last;
    storage.push_back({repeat, scope, scope ? scope->depth + 1 : 0, begin, ++last, 0, 0});
    RepeatScope &body = storage.back();
    number(repeat.getBody().front(), &body);
    body.end = ++last;
    body.results = ++last;
  }
  if (!scope)
    ++last;
}

int64_t Timeline::defined(Value value) const {
  if (auto argument = dyn_cast<BlockArgument>(value)) {
    const RepeatScope *scope = scopes.lookup(argument.getOwner());
    return scope ? scope->first : 0;
  }
  if (auto repeat = value.getDefiningOp<RepeatOp>())
    return bodyOf(repeat)->results;
  return at(value.getDefiningOp());
}

int64_t Timeline::underWay(CommStartOp start) const {
  CommAwaitOp await = awaitOf(start);
  if (!await)
    return at(start);
  int64_t until = at(await);
  for (Operation *user : await->getUsers())
    if (auto next = dyn_cast<CommStartOp>(user);
        next && next->getBlock() == start->getBlock() && next.getAxisAttr() != start.getAxisAttr())
      until = std::max(until, underWay(next));
  return until;
}

/// The last op behind this one before those of another layer begin, or a repeat.
int64_t Timeline::layerEnd(Operation *op) const {
  Attribute layers = op->getAttr(cmd::kLayersAttr);
  int64_t end = at(op);
  for (Operation *next = op->getNextNode(); next && !isa<RepeatOp>(next); next = next->getNextNode()) {
    Attribute own = next->getAttr(cmd::kLayersAttr);
    if (own && own != layers)
      break;
    end = own ? at(next) : end;
  }
  return end;
}

int64_t Timeline::lastUse(OpOperand &use) const {
  Block *home = use.get().getParentBlock();
  Operation *user = use.getOwner(), *here = home->findAncestorOpInBlock(*user);
  if (here != user) // inside a repeat that the value comes from outside of
    return bodyOf(cast<RepeatOp>(here))->end;
  if (auto yield = dyn_cast<YieldOp>(user)) {
    const RepeatScope *scope = scopes.lookup(home);
    return use.getOperandNumber() < RepeatOp(scope->op).getCarried() ? scope->end : at(user);
  }
  if (auto start = dyn_cast<CommStartOp>(user))
    return underWay(start);
  return runsBeside(user) ? layerEnd(user) : at(user);
}

Segment Timeline::live(Value value) const {
  Segment segment{defined(value), defined(value)};
  for (OpOperand &use : value.getUses())
    segment.end = std::max(segment.end, lastUse(use));
  return segment;
}
