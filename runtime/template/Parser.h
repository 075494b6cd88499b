#pragma once

#include "runtime/template/Syntax.h"

#include <string_view>

namespace braid::runtime::jinja {

// "12: 'include' is not read; read are .."
Expected<Block> parseTemplate(std::string_view source);

} // namespace braid::runtime::jinja
