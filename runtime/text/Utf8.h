// Text in UTF-8: whether it is, what its characters are, and its normal forms (Unicode Standard Annex 15).
#pragma once

#include "runtime/Expected.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace braid::runtime {

// Where the first byte stands that is no UTF-8: overlong forms, surrogates and what lies beyond U+10FFFF are none.
std::optional<size_t> firstInvalidUtf8(std::string_view text);

// Of valid UTF-8: how many bytes the character has that begins a text, and where its last one begins. Neither is empty.
size_t firstCharacterBytes(std::string_view text);
size_t lastCharacterBegin(std::string_view text);
// The character that begins a text.
char32_t firstCharacter(std::string_view text);
void appendCharacter(std::string &text, char32_t character);

// Unicode's White_Space.
bool isBlank(char32_t character);
// What \w means: letters, marks, decimal digits and what joins words.
bool isOfWord(char32_t character);

// Whether Python prints it as it is.
bool isPrintable(char32_t character);
// Python's str.isspace(): blanks, and the separators of ASCII.
bool isPythonSpace(char32_t character);
// The full mappings of Unicode; a sigma that ends a word is a final one.
std::string upperCase(std::string_view text);
std::string lowerCase(std::string_view text);
// The first letter of each word in upper, its others in lower case, as Python's str.title().
std::string titleCase(std::string_view text);

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };
Expected<std::string> normalized(std::string_view text, NormalForm form);

} // namespace braid::runtime
