//===- ToolMain.h - what mains of the compiler's tools do around their work ---------------------------------------===//
#ifndef TOOLS_COMMON_TOOLMAIN_H
#define TOOLS_COMMON_TOOLMAIN_H

#include "compiler/Diagnostics.h"
#include "tools/common/StandardStreams.h"
#include "tools/common/Version.h"
#include "tools/common/WordFlag.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <system_error>

namespace braid {

/// Before anything else; `name` stands in front of every message. 0, or 1 after a message.
inline int beginTool(const char *name) {
  setProgramName(name);
  if (!holdStandardStreams()) {
    printError("a standard stream is closed, and /dev/null cannot stand for it");
    return 1;
  }
  std::signal(SIGXFSZ, SIG_IGN); // a file over the limit of its size is an error of write() that names the file
  std::signal(SIGPIPE, SIG_IGN);
  return 0;
}

/// Parses the command line, does the work (0, or 1 after a message) and sees that what it printed has arrived. What a
/// main returns: 0 done, 1 it failed, 2 the command line was wrong.
inline int runTool(CLI::App &app, int argc, char **argv, llvm::function_ref<int()> work) {
  app.failure_message([](const CLI::App *app, const CLI::Error &error) {
    std::string command = app->get_name();
    for (const CLI::App *chosen : app->get_subcommands())
      command += " " + chosen->get_name();
    return app->get_name() + ": error: " + wordsOf(error) + " (see " + command + " --help)\n";
  });
  app.set_version_flag("--version", versionText(app.get_name()), "Print the version and the commit, and exit");
  if (std::string message = checkEmptyFlags(argc, argv); !message.empty()) {
    printError(message);
    return 2;
  }
  int code = 0, failed = 0; // errno
  std::ostringstream help; // goes the way of all other output, which knows why a write failed, however long a text is
  try {
    try {
      app.parse(argc, argv);
      code = work();
    } catch (const CLI::ParseError &error) {
      code = app.exit(error, help, std::cerr) == 0 ? 0 : 2;
      fmt::print("{}", help.str());
    }
  } catch (const std::system_error &error) { // of fmt::print
    code = 1;
    failed = error.code().value();
  }
  errno = 0;
  if (std::fflush(stdout) == 0 && !std::ferror(stdout))
    return code;
  failed = failed ? failed : errno; // the first one: what comes behind it says less
  printError("cannot write standard output" + (failed ? ": " + std::generic_category().message(failed) : ""));
  return 1;
}

} // namespace braid

#endif // TOOLS_COMMON_TOOLMAIN_H
