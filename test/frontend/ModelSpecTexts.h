//===- ModelSpecTexts.h - a description, edited and read ---------------------------------------------------------===//
#ifndef TEST_FRONTEND_MODELSPECTEXTS_H
#define TEST_FRONTEND_MODELSPECTEXTS_H

#include "frontend/ModelSpec.h"

#include <gtest/gtest.h>

namespace braid::texts {

inline const std::string base = R"({
  // a comment
  "name": "base", "vocab_size": 256, "d_model": 64, "num_layers": 4, "layer_pattern": "LN", "ffn_pattern": "MD",
  "mixers": {
    "L": {"kind": "gla", "heads": 4, "head_dim": 16},
    "N": {"kind": "attention", "heads": 8, "kv_heads": 2, "head_dim": 8}
  },
  "ffns": {
    "M": {"kind": "moe", "num_experts": 8, "top_k": 2, "expert_hidden": 32},
    "D": {"kind": "dense", "hidden": 128} /* another */
  },
  "train": {"batch": 2, "seq_len": 32}
})";

struct Parsed {
  bool ok;
  ModelSpec spec;
  std::vector<std::string> errors;
};

inline Parsed parse(const std::string &text) {
  Parsed parsed;
  auto spec = parseModelSpec(text, "m.json", [&](const std::string &message) { parsed.errors.push_back(message); });
  parsed.ok = succeeded(spec);
  if (parsed.ok)
    parsed.spec = *spec;
  EXPECT_EQ(parsed.ok, parsed.errors.empty());
  return parsed;
}

inline std::string edited(const std::string &from, const std::string &to) {
  std::string text = base;
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

} // namespace braid::texts

#endif // TEST_FRONTEND_MODELSPECTEXTS_H
