// The regular expressions of tokenizer.json. They are written for Oniguruma with the syntax of Ruby; here PCRE2 matches
// them, so what the two read differently is rewritten first (\s, \w, \h, &&, (?m:), {,n}), or refused.
#pragma once

#include "runtime/Expected.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace braid::runtime {

class Pattern {
public:
  static Expected<Pattern> compile(std::string_view expression);
  // Exactly this text, which is not empty.
  static Expected<Pattern> literal(std::string_view text);

  // The matches in valid UTF-8, from left to right; none begins where the one before it ended and is empty. An error: one
  // of `visit`, or a search that takes more steps than a limit. Any number of threads at once.
  Status forEachMatch(std::string_view text, const std::function<Status(size_t begin, size_t end)> &visit) const;

private:
  static Expected<Pattern> make(std::string_view expression, std::string_view translated, uint32_t options);

  std::string source; // for messages
  std::shared_ptr<const pcre2_real_code_8> code;
};

// What PCRE2 is given for an expression of Oniguruma's.
Expected<std::string> translatedPattern(std::string_view expression);

} // namespace braid::runtime
