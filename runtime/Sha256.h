// SHA-256 (FIPS 180-4) of a byte range, for the code inside a program file.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace braid::runtime {

// Lower-case hexadecimal, 64 characters. portable: not by the processor's own instructions, where it has some (five times as long).
std::string sha256(std::span<const std::byte> data, bool portable = false);

} // namespace braid::runtime
