// Templates in the language of Jinja2, as far as chat templates use it (runtime/README.md says how far). What is not read
// is an error that names file, line and construct; whatever a template says, rendering it ends, and has bounds.
#pragma once

#include "runtime/Expected.h"

#include <nlohmann/json_fwd.hpp>

#include <ctime>
#include <memory>
#include <string>
#include <string_view>

namespace braid::runtime {

class Template {
public:
  // `path` is for errors.
  static Expected<Template> parse(std::string_view source, const std::string &path);

  // With the members of an object as its variables. `now`: what strftime_now says.
  Expected<std::string> render(const nlohmann::ordered_json &variables, std::time_t now) const;

  const std::string &path() const { return file; }

private:
  struct Parsed;

  std::string file;
  std::shared_ptr<const Parsed> parsed;
};

} // namespace braid::runtime
