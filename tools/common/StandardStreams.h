//===- StandardStreams.h - standard streams that are closed -------------------------------------------------------===//
#ifndef TOOLS_COMMON_STANDARDSTREAMS_H
#define TOOLS_COMMON_STANDARDSTREAMS_H

#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

namespace braid {

/// A standard stream that is closed would be the next file that is opened, and get what is meant for people. What stands for it cannot be
/// written, so whoever prints learns that nobody reads it. False where nothing can stand for it.
inline bool holdStandardStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF && open("/dev/null", O_RDONLY) != stream)
      return false;
  return true;
}

} // namespace braid

#endif // TOOLS_COMMON_STANDARDSTREAMS_H
