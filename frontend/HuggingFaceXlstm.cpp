//===- HuggingFaceXlstm.cpp - configs of xLSTM: a matrix memory in every layer, then a feed-forward ----------------===//
#include "frontend/HuggingFaceTranslation.h"
#include <cmath>

using namespace braid;
using namespace braid::json;
using llvm::StringRef;

/// A number above 0 that widths are multiplied by.
double Translation::widthFactor(StringRef key, double usual) {
  Value factor = get(key, numberValue(usual));
  if (factor.isNumber() && factor.number > 0 && factor.number <= 1024)
    return factor.number;
  errors.report(key, describe(factor) + " is not a number above 0 to 1024");
  return 0;
}

/// Features of one head of those that are so many times as wide as the model, rounded down.
Value Translation::headWidth(StringRef key, double usual, const Value &heads) {
  double factor = widthFactor(key, usual);
  std::string origin = (StringRef(hidden.origin).drop_front(prefix.size()) + " * " + key + " / num_heads").str();
  if (factor == 0 || !integerIn(hidden, INT32_MAX) || !integerIn(heads, INT32_MAX))
    return named(numberValue(int64_t(1)), origin); // reported where they are read
  auto width = static_cast<int64_t>(static_cast<double>(hidden.integer) * factor);
  if (width < heads.integer || width % heads.integer)
    errors.report(key,
                  llvm::formatv("{0} of {1} features are {2}, which num_heads {3} does not divide; valid: a multiple",
                                describe(numberValue(factor)), hidden.integer, width, heads.integer)
                      .str());
  return named(numberValue(std::max<int64_t>(1, width / heads.integer)), origin, hidden.line);
}

void Translation::layersOfXlstm(Value &mixers, std::string &pattern) {
  Value heads = get("num_heads", numberValue(family.heads));
  Value keys = headWidth("qk_dim_factor", 0.5, heads), values = headWidth("v_dim_factor", 1.0, heads);
  pattern = "M";
  mixers = object({{"M", object({{"kind", stringValue("mlstm")},
                                 {"heads", std::move(heads)},
                                 {"head_dim", std::move(keys)},
                                 {"value_dim", std::move(values)},
                                 {"gate_softcap", get("gate_soft_cap", numberValue(15.0))},
                                 {"norm_eps", get("norm_eps", numberValue(family.eps))}})}});
}

Value Translation::feedForwardOfXlstm(std::string &pattern) {
  double factor = widthFactor("ffn_proj_factor", 2.667);
  Value multiple = get("ffn_round_up_to_multiple_of", numberValue(int64_t(64)));
  int64_t width = 1;
  if (!integerIn(multiple, 1 << 20))
    errors.report("ffn_round_up_to_multiple_of", describe(multiple) + " is not an integer from 1 to 1048576");
  else if (factor > 0 && integerIn(hidden, INT32_MAX)) {
    auto step = static_cast<double>(multiple.integer);
    width = static_cast<int64_t>(std::floor((static_cast<double>(hidden.integer) * factor + step - 1) / step)) *
            multiple.integer;
    if (width < 1 || width > maxHidden) {
      errors.report(
          "ffn_proj_factor",
          llvm::formatv("{0} times hidden_size {1}, rounded up to a multiple of ffn_round_up_to_multiple_of {2}, "
                        "is {3}; valid: 1 to {4}",
                        describe(numberValue(factor)), hidden.integer, multiple.integer, width, maxHidden)
              .str());
      width = 1;
    }
  }
  pattern = "D";
  return object({{"D", object({{"kind", stringValue("dense")},
                               {"hidden", named(numberValue(width), "hidden_size * ffn_proj_factor", hidden.line)}})}});
}

/// sqrt(2 / (5 d)), d the model's width.
Value Translation::smallInit() {
  double width = hidden.isNumber() && hidden.number > 0 ? hidden.number : 1;
  return named(numberValue(std::sqrt(2 / (5 * width))), "hidden_size", hidden.line);
}

void Translation::fixedKeysOfXlstm() {
  // How it is computed, what types states have, initial values, and keys of versions before, which say the same as others.
  for (StringRef key :
       {"chunkwise_kernel", "sequence_kernel", "step_kernel", "mode", "chunk_size", "return_last_states",
        "autocast_kernel_dtype", "inference_state_dtype", "max_inference_chunksize", "norm_reduction_force_float32",
        "igate_bias_init_range", "force_bos_token_insert", "head_dim", "cell_norm_eps", "mlstm_round_up_to_multiple_of",
        "add_forward_backend_padding", "add_embedding_dropout", "forward_backend_name"})
    (void)take(key);
  for (StringRef key : {"use_bias", "add_qk_norm", "add_post_norm"})
    only(key, boolValue(false));
  for (StringRef key : {"add_out_norm", "add_post_blocks_norm"})
    only(key, boolValue(true));
  only("tie_word_embeddings", boolValue(false)); // transformers ties nothing
  only("eps", numberValue(1e-6)); // beside a bound that it does not change
  const Value *mode = take("weight_mode");
  fusesWeights = mode && isEqual(*mode, stringValue("fused"));
  if (mode && !fusesWeights && !isEqual(*mode, stringValue("single")))
    errors.report("weight_mode", describe(*mode) + " is not computed; valid: \"single\", \"fused\"");
}
