#include "tools/common/Version.h"

#include "tools/Commit.h" // written at every build

std::string braid::commitText() { return BRAID_COMMIT; }

std::string braid::versionText(const std::string &tool) { return tool + " " BRAID_VERSION ", commit " + commitText(); }
