//===- Version.h - what --version says ----------------------------------------------------------------------------===//
#ifndef TOOLS_COMMON_VERSION_H
#define TOOLS_COMMON_VERSION_H

#include <string>

namespace braid {

/// "0123456789ab", and
/// "braid-run 0.1.0, commit 0123456789ab"; "+changes" behind the commit: of sources that differ from it.
std::string commitText();
std::string versionText(const std::string &tool);

} // namespace braid

#endif // TOOLS_COMMON_VERSION_H
