//===- ShardingRules.cpp - one row per op -------------------------------------------------------------------------===//
#include "dialects/braid/ShardingRules.h"
#include "dialects/braid/InnerTraits.h"
#include "dialects/braid/ScanTraits.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid;

static int64_t rankOf(Value v) { return cast<RankedTensorType>(v.getType()).getRank(); }

namespace {

/// Letters of dimensions that have nothing to do with any other.
class Fresh {
public:
  std::string take(int64_t count) {
    std::string letters;
    for (int64_t i = 0; i < count; ++i)
      letters += next <= 'Z' ? next++ : 'Z';
    return letters;
  }

private:
  char next = 'A';
};

/// Row-wise ops: x  a token value, one letter per dimension;  w  over the trailing dimensions;  h  one per head;
/// k  tokens with last letters of their own;  d  tokens only;  c  over the last dimension.  last: the op needs all of
/// the last dimension of x.  linear: of its first operand.
struct RowsRow {
  StringLiteral operands, result;
  bool last = false, linear = false;
};

const RowsRow *rowsRow(StringRef op) {
  static const llvm::StringMap<RowsRow> table = {
      {"braid.add", {"x", "x", false, true}},
      {"braid.mul", {"xx", "x"}},
      {"braid.scale", {"x", "x", false, true}},
      {"braid.offset", {"x", "x"}},
      {"braid.clamp", {"x", "x"}},
      {"braid.bias", {"xw", "x"}},
      {"braid.weighted", {"xw", "x", false, true}},
      {"braid.activation", {"x", "x"}},
      {"braid.softmax", {"x", "x", true}},
      {"braid.log_sum_exp", {"x", "d", true}},
      {"braid.token_loss", {"ddd", "d"}},
      {"braid.log_sigmoid", {"x", "x"}},
      {"braid.log_decay", {"xhw", "x"}},
      {"braid.bounded_gate", {"xh", "x"}},
      {"braid.rms_norm", {"xw", "x", true}},
      {"braid.layer_norm", {"xww", "x", true}},
      {"braid.l2_norm", {"x", "x", true}},
      {"braid.gated_norm", {"xxw", "x", true}},
      {"braid.rope", {"xd", "x", true}},
      {"braid.repeat_heads", {"x", "x"}},
      {"braid.feature_map", {"x", "x", true}},
      {"braid.append_one", {"x", "x", true}},
      {"braid.divide_by_last", {"x", "x", true}},
      {"braid.drop_last", {"x", "x", true}},
      {"braid.take_last", {"x", "x", true}},
      {"braid.inner", {"xx", "x", true}},
      {"braid.dot", {"xw", "x", true, true}},
      {"braid.cast", {"x", "x", false, true}},
      {"braid.moe.route", {"x", "k", true}},
      {"braid.moe.route_weights", {"xk", "k", true}},
      {"braid.moe.router_loss", {"xcd", "d", true}},
      {"braid.moe.renormalize", {"xx", "x", true}},
      {"braid.moe.correct", {"xx", "x", true}},
  };
  auto it = table.find(op);
  return it == table.end() ? nullptr : &it->second;
}

bool isOneHead(Value v) { return cast<RankedTensorType>(v.getType()).getDimSize(2) == 1; }

/// The rule of a row-wise op by name, which is all that its gradient knows.
ShardingRule rowsRule(StringRef name, ValueRange operands, RankedTensorType result, DictionaryAttr attributes) {
  static constexpr StringLiteral tokens = "btfgh";
  ShardingRule rule;
  if (name == "braid.element_decay") { // x [B, T, H, K] times a_log [H, N, K]
    rule.operands = {"btfh", "fgh"};
    rule.results = {"btfgh"};
    return rule;
  }
  const RowsRow *row = rowsRow(name);
  Fresh fresh;
  if (!row) { // rows of the batch and tokens are apart, features together
    for (auto [i, operand] : llvm::enumerate(operands)) {
      bool isToken = rowsOperandKind(name, i) == TokenKind::token;
      rule.operands.push_back((isToken ? "bt" : "") + fresh.take(rankOf(operand) - (isToken ? 2 : 0)));
    }
    rule.results.push_back("bt" + fresh.take(result.getRank() - 2));
    return rule;
  }
  std::string x = tokens.take_front(rankOf(operands.front())).str();
  auto letters = [&](char kind, int64_t rank) -> std::string {
    switch (kind) {
    case 'x': return tokens.take_front(rank).str();
    case 'w': return StringRef(x).take_back(std::min<int64_t>(rank, x.size() - 2)).str();
    case 'h': return "f";
    case 'k': return "bt" + std::string(1, 'y');
    case 'd': return "bt";
    default: return x.substr(x.size() - 1);
    }
  };
  bool perHead = attributes && attributes.contains("per_head");
  for (auto [i, operand] : llvm::enumerate(operands)) {
    char kind = row->operands[std::min(i, row->operands.size() - 1)];
    rule.operands.push_back(letters(perHead && kind == 'w' ? 'h' : kind, rankOf(operand)));
  }
  rule.results.push_back(letters(row->result[0], result.getRank()));
  if (name == "braid.repeat_heads" && isOneHead(operands[0]))
    rule.operands[0][2] = 'y'; // one head becomes all of them, wherever they are
  auto groups = attributes ? attributes.getAs<IntegerAttr>("groups") : IntegerAttr();
  if (row->last && x.size() > 2) {
    if (groups && groups.getInt() > 1) {
      rule.grouped = x.back();
      rule.groups = groups.getInt();
    } else {
      rule.whole = x.substr(x.size() - 1);
    }
  }
  if (row->linear) {
    SmallVector<unsigned> together = {0};
    if (name == "braid.add")
      together.assign(llvm::to_vector(llvm::seq<unsigned>(0, operands.size())));
    rule.linear.push_back(together);
  }
  return rule;
}

ShardingRule rowsGradRule(RowsGradOp op) {
  auto result = cast<RankedTensorType>(op.getCotangents().front().getType());
  ShardingRule forward = rowsRule(op.getOp(), op.getInputs(), result, op.getOpAttributes()), rule = forward;
  for (size_t i = 0; i < op.getCotangents().size(); ++i)
    rule.operands.push_back(forward.results[0]);
  rule.results.clear();
  for (int64_t operand : op.getWanted())
    rule.results.push_back(forward.operands[operand]);
  rule.linear.clear();
  const RowsRow *row = rowsRow(op.getOp());
  if (row && row->linear) // every result is linear in the cotangent
    rule.linear.push_back({static_cast<unsigned>(op.getInputs().size())});
  return rule;
}

/// "bti io -> bto": operands, then results.
ShardingRule rule(StringRef text, StringRef whole = "", StringRef sequence = "") {
  ShardingRule rule;
  auto [operands, results] = text.split("->");
  for (auto [part, list] : {std::pair(operands, &rule.operands), {results, &rule.results}}) {
    SmallVector<StringRef> words;
    part.split(words, ' ', -1, false);
    for (StringRef word : words)
      list->push_back(word == "1" ? "" : word.str());
  }
  rule.whole = whole.str();
  rule.sequence = sequence.str();
  return rule;
}

/// The letter of the output of one of several weights.
std::string output(size_t i) { return std::string(1, static_cast<char>('0' + i)); }
std::string matrix(std::string in, std::string out, bool transposed) { return transposed ? out + in : in + out; }

/// Sums over several products: dx = sum_k dy_k w_k^T.
template <typename Op> ShardingRule gradDataRule(Op op, std::string tokens, std::string experts, bool transposed) {
  ShardingRule r;
  for (size_t i = 0; i < op.getDys().size(); ++i)
    r.operands.push_back(tokens + output(i));
  if (!experts.empty())
    r.operands.push_back(experts);
  for (size_t i = 0; i < op.getWeights().size(); ++i)
    r.operands.push_back(experts + matrix("i", output(i), transposed));
  r.results.push_back(tokens + "i");
  r.chosen = experts;
  return r;
}
template <typename Op> ShardingRule gradWeightRule(Op op, std::string tokens, std::string experts, bool transposed) {
  ShardingRule r;
  r.chosen = experts;
  r.operands.push_back(tokens + "i");
  if (!experts.empty())
    r.operands.push_back(experts);
  for (size_t i = 0; i < op.getDys().size(); ++i) {
    r.operands.push_back(tokens + output(i));
    r.results.push_back(experts + matrix("i", output(i), transposed));
    r.apart += output(i);
  }
  return r;
}

/// Scans: q, k, v, gates, initial_state, documents, [do, dfinal_state].
/// What every update of every token has; u: the updates.
template <typename Op> std::string ofUpdates(Op op, StringRef features) {
  return ((hasUpdates(op.getK()) ? "btu" : "bt") + features).str();
}
template <typename Op> SmallVector<std::string> gatesOf(Op op) {
  SmallVector<std::string> gates; // per head; per token and head; and key channel; and element of the state
  std::string all = ofUpdates(op, "hkv");
  for (Value v : {op.getLogDecay(), op.getBeta(), op.getA(), op.getB()})
    if (v)
      gates.push_back(rankOf(v) == 1                                 ? "h"
                      : v == op.getLogDecay() && decaysByProduct(op) ? "hkv"
                                                                     : all.substr(0, rankOf(v)));
  if (op.getValueDecay())
    gates.push_back(ofUpdates(op, "hv"));
  return gates;
}
template <typename Op> ShardingRule scanRule(Op op) {
  ShardingRule r;
  r.whole = "kvu";
  r.sequence = "t";
  r.operands = {"bthk", ofUpdates(op, "hk"), ofUpdates(op, "hv")};
  r.operands.append(gatesOf(op));
  r.operands.append({"bhkv", "bt"});
  return r;
}

/// Inner steps: q, k, v, the other operands, initial_state, documents. The rows of a state are planes of keys.
template <typename Op> ShardingRule innerRule(Op op) {
  ShardingRule r;
  r.whole = "kvr";
  r.sequence = "t";
  r.operands = {"bthk", "bthk", "bthv"};
  for (const InnerOther &other : innerOthers(op))
    r.operands.push_back(!other.whole ? "bth" : rankOf(other.value) == 2 ? "hv" : "hkv");
  r.operands.append({"bhrv", "bt"});
  return r;
}

/// Keys are the tokens themselves, where no others stand before them and they do not stand in a cache. Features that keys share have one head, of which
/// every head is a part: its cotangent is a sum.
template <typename Op> ShardingRule attentionRule(Op op, StringRef text) {
  std::string letters = text.str();
  if (op.getCoordinate())
    letters.insert(letters.find("->"), "1 ");
  if (!op.getShared().empty()) {
    letters.insert(letters.find("->"), "bthr bsir ");
    if (std::is_same_v<Op, AttnCausalGradOp>)
      letters += " bthr bsir";
  }
  if constexpr (std::is_same_v<Op, AttnCausalOp>)
    if (op.getSinks())
      letters.insert(letters.find("->"), "h ");
  auto tokens = [](Value v) { return cast<RankedTensorType>(v.getType()).getDimSize(1); };
  if (tokens(op.getQ()) == tokens(op.getK()) && !op->hasAttr("cache"))
    std::replace(letters.begin(), letters.end(), 's', 't');
  return rule(letters, "dvri", "ts");
}

/// What is right for every op that knows tokens: rows of the batch are apart.
ShardingRule tokenRule(TokenOpInterface op) {
  ShardingRule r;
  Fresh fresh;
  auto letters = [&](TokenKind kind, Value v) -> std::string {
    int64_t rank = rankOf(v);
    switch (kind) {
    case TokenKind::token: return rank < 2 ? fresh.take(rank) : "bt" + fresh.take(rank - 2);
    case TokenKind::state: return "b" + fresh.take(rank - 1);
    case TokenKind::whole:
    case TokenKind::rows:
    case TokenKind::piece: return fresh.take(rank);
    }
    llvm_unreachable("kind");
  };
  for (auto [i, operand] : llvm::enumerate(op->getOperands()))
    r.operands.push_back(letters(op.operandKind(i), operand));
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    r.results.push_back(letters(op.resultKind(i), result));
  r.sequence = "t";
  return r;
}

} // namespace

ShardingRule braid::shardingRule(Operation *op) {
  auto positions = [](Operation *op, int64_t dim) {
    std::string letters;
    for (int64_t i = 0, rank = rankOf(op->getResult(0)); i < rank; ++i)
      letters += static_cast<char>('a' + i);
    ShardingRule r;
    r.operands.assign(op->getNumOperands(), letters);
    r.results = {letters};
    r.whole = dim < 0 ? "" : letters.substr(dim, 1);
    r.linear.push_back(llvm::to_vector(llvm::seq<unsigned>(0, op->getNumOperands())));
    return r;
  };
  return llvm::TypeSwitch<Operation *, ShardingRule>(op)
      .Case([](RowsGradOp grad) { return rowsGradRule(grad); })
      .Case([&](AddOp add) { return positions(add, -1); })
      .Case([](RowsOpInterface rows) {
        return rowsRule(rows->getName().getStringRef(), rows->getOperands(),
                        cast<RankedTensorType>(rows->getResult(0).getType()), rows->getAttrDictionary());
      })
      .Case([&](SliceOp slice) { return positions(slice, slice.getDim()); })
      .Case([&](ConcatOp concat) { return positions(concat, concat.getDim()); })
      .Case([](LinearOp linear) {
        ShardingRule r;
        r.operands.push_back("bti");
        for (size_t i = 0; i < linear.getWeights().size(); ++i) {
          r.operands.push_back(matrix("i", output(i), linear.getTransposed()));
          r.results.push_back("bt" + output(i));
          r.apart += output(i);
        }
        return r;
      })
      .Case([](HeadLinearOp linear) {
        if (cast<RankedTensorType>(linear.getWeight().getType()).getRank() == 3)
          return linear.getTransposed() ? rule("bthe hre -> bthr", "er") : rule("bthr hre -> bthe", "er");
        return linear.getTransposed() ? rule("bthe rh -> bthr", "er") : rule("bthr rh -> bthe", "er");
      })
      .Case([](HeadLinearGradWeightOp) { return rule("bthr bthe -> hre", "er"); })
      .Case([](LinearGradDataOp grad) { return gradDataRule(grad, "bt", "", grad.getTransposed()); })
      .Case([](LinearGradWeightOp grad) { return gradWeightRule(grad, "bt", "", grad.getTransposed()); })
      .Case([](MoeGroupedLinearOp linear) {
        ShardingRule r;
        r.operands = {"ari", "e"};
        for (size_t i = 0; i < linear.getWeights().size(); ++i) {
          r.operands.push_back("ei" + output(i));
          r.results.push_back("ar" + output(i));
          r.apart += output(i);
        }
        r.chosen = "e";
        return r;
      })
      .Case([](MoeGroupedLinearGradDataOp grad) { return gradDataRule(grad, "ar", "e", false); })
      .Case([](MoeGroupedLinearGradWeightOp grad) { return gradWeightRule(grad, "ar", "e", false); })
      .Case([](MoeGroupBiasOp bias) { // sums may be pending: Sharder::rewriteGroupBias
        ShardingRule r = rule(bias.getCoordinate() ? "arm e em 1 -> arm" : "arm e em -> arm");
        r.chosen = "e";
        r.linear.push_back({0});
        return r;
      })
      .Case([](MoeGroupBiasGradOp) {
        ShardingRule r = rule("arm e -> em");
        r.chosen = "e";
        return r;
      })
      .Case([](EmbedOp) { return rule("bt vm -> btm"); })
      .Case([](EmbedGradOp) { return rule("bt btm -> vm"); })
      .Case([](ShortConvOp) { return rule("btc cj bt bnc -> btc bnc", "jn", "t"); })
      .Case([](ShortConvGradOp) { return rule("btc cj bt bnc btc bnc -> btc cj bnc", "jn", "t"); })
      .Case([](CrossEntropyOp) { return rule("btv bt -> 1 1 bt", "v"); })
      .Case([](CrossEntropyGradOp) { return rule("btv bt bt 1 -> btv", "v"); })
      .Case([](LinearCrossEntropyOp loss) {
        return rule(loss.getTransposed() ? "btm vm bt -> 1 1" : "btm mv bt -> 1 1", "mv");
      })
      .Case([](LinearCrossEntropyGradOp loss) {
        return rule(loss.getTransposed() ? "btm vm bt 1 -> btm vm 1" : "btm mv bt 1 -> btm mv 1", "mv");
      })
      .Case([](LinearScoresOp scores) {
        return rule(scores.getTransposed() ? "btm vm bt 1 -> bt bt bt bt" : "btm mv bt 1 -> bt bt bt bt", "mv");
      })
      .Case([](SumOp sum) {
        ShardingRule r = rule("btfgh -> 1");
        r.linear.push_back({0});
        return r;
      })
      .Case([](SumGradOp) { return rule("1 -> bt"); })
      .Case([](DocumentsOp documents) { return rule(documents.getCoordinate() ? "bD 1 -> bt" : "bD -> bt", "", "t"); })
      .Case([](LastTokenOp) { return rule("btm bt -> bum", "tu"); })
      .Case([](StackOp stack) {
        std::string each = StringRef("btfghij").take_front(rankOf(stack.getSources().front())).str();
        ShardingRule r;
        r.operands.assign(stack.getSources().size(), each);
        r.results = {"btu" + each.substr(2)};
        r.whole = "u";
        return r;
      })
      .Case([](PickOp pick) {
        std::string each = StringRef("btfghij").take_front(rankOf(pick.getResult())).str();
        ShardingRule r;
        r.operands = {"btu" + each.substr(2)};
        r.results = {each};
        r.whole = "u";
        return r;
      })
      .Case([](LsmScanOp scan) {
        ShardingRule r = scanRule(scan);
        r.results = {"bthv", "bhkv"};
        return r;
      })
      .Case([](LsmScanGradOp grad) {
        ShardingRule r = scanRule(grad);
        r.operands.append({"bthv", "bhkv"});
        r.results = {"bthk", ofUpdates(grad, "hk"), ofUpdates(grad, "hv")};
        for (const std::string &gate : gatesOf(grad))
          if (gate != "h") // constants of the model are not trained
            r.results.push_back(gate);
        r.results.push_back("bhkv");
        return r;
      })
      .Case([](LsmInnerStepOp step) {
        ShardingRule r = innerRule(step);
        r.results = {"bthv", "bhrv"};
        return r;
      })
      .Case([](LsmInnerStepGradOp grad) {
        ShardingRule r = innerRule(grad);
        r.results.assign(r.operands.begin(), r.operands.end() - 1); // all but documents
        r.operands.append({"bthv", "bhrv"});
        return r;
      })
      // Query heads and the fewer heads of k and v they read are cut alike: they are groups of neighbours. One head of
      // k and v is read by all: what it gets from heads on several ranks is a sum.
      .Case([](AttnCausalOp a) {
        return attentionRule(a,
                             isOneHead(a.getK()) ? "bthd bsgd bsgv bt -> bthv bht" : "bthd bshd bshv bt -> bthv bht");
      })
      .Case([](AttnCausalGradOp a) {
        return attentionRule(a, isOneHead(a.getK()) ? "bthd bsgd bsgv bt bthv bht bthv -> bthd bsgd bsgv"
                                                    : "bthd bshd bshv bt bthv bht bthv -> bthd bshd bshv");
      })
      .Case([](AttnSinkGradOp) { return rule("h bthv bht bthv -> h", "v"); })
      .Case([](AttnMergeOp) { return rule("bthv bht bthv bht -> bthv bht"); })
      .Case([](AttnAppendOp) { return rule("bshd bthd bt -> bshd", "d", "ts"); })
      .Case([](MoeDropOp drop) {
        ShardingRule r;
        r.operands.push_back("btk");
        if (drop.getWeights())
          r.operands.push_back("btk");
        r.operands.append({"bt", "bu"});
        r.results = {"btk", "e", "e", "bu"};
        if (drop.getDrawKeys()) {
          r.operands.push_back("bw");
          r.results.push_back("bw");
        }
        r.whole = "kuwe";
        r.sequence = "t";
        return r;
      })
      .Case([](MoePlanOp) { return rule("btk bt -> r btk e n 1 1", "ke"); })
      .Case([](MoeDispatchOp) { return rule("btm r btk 1 -> arm", "k"); })
      .Case([](MoeCombineOp combine) {
        ShardingRule r = rule(combine.getWeights() ? "arm btk r btk 1 -> btm arm" : "arm r btk 1 -> btm arm", "k");
        r.linear.push_back({0});
        return r;
      })
      .Case([](MoeCombineGradOp) { return rule("btm arm btk r btk 1 -> arm btk", "k"); })
      .Case([](MoeRowWeightsOp) { return rule("btk r btk -> ar", "k"); })
      .Case([](MoeRowWeightsGradOp) {
        ShardingRule r = rule("ar btk -> btk", "k");
        r.linear.push_back({0});
        return r;
      })
      .Case([](AdamwOp adamw) {
        ShardingRule r = rule("abcdef abcdef abcdef abcdef 1 1 1 -> abcdef abcdef abcdef");
        if (adamw.getLow()) {
          r.operands.push_back("abcdef");
          r.results.push_back("abcdef");
        }
        return r;
      })
      .Case([](TokenOpInterface tokens) { return tokenRule(tokens); })
      .Default([](Operation *op) {
        ShardingRule r;
        Fresh fresh;
        for (Value v : op->getOperands())
          r.operands.push_back(fresh.take(rankOf(v)));
        for (Value v : op->getResults())
          r.results.push_back(fresh.take(rankOf(v)));
        return r;
      });
}
