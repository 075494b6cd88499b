// The measurements as tables that read well in a terminal and as Markdown.
#pragma once

#include "test/benchmark/Machine.h"

namespace braid::benchmark {

std::string toMarkdown(const Json &report);

} // namespace braid::benchmark
