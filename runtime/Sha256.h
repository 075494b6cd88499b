// SHA-256 (FIPS 180-4) of a byte range, for the code inside a program file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace braid::runtime {

// Lower-case hexadecimal, 64 characters.
std::string sha256(std::span<const std::byte> data);

} // namespace braid::runtime
