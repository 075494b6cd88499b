// Status: success, or an error with a category and a sentence that names the culprit and both numbers.
// Nothing in the runtime throws across a room or exits; tools turn a Status into an exit code.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

namespace braid::runtime {

enum class ErrorCode : unsigned char {
  ok,
  invalidArgument,  // the caller asked for something that cannot be
  notFound,         // no entry, tensor, axis, file of that name
  corruptFile,      // a program or checkpoint file breaks a rule of its format
  ioError,          // the operating system refused
  unsupported,      // valid, but not on this machine or in this build
  deadlineExceeded, // a peer did not arrive in time
  aborted,          // another rank failed first
  overflow,         // a bound declared before the run was exceeded
  internal,         // our own bug
};

std::string_view toString(ErrorCode code);

class [[nodiscard]] Status {
public:
  static Status success() { return Status(); }

  template <class... Args> static Status error(ErrorCode code, fmt::format_string<Args...> format, Args &&...args) {
    return Status(code, fmt::format(format, std::forward<Args>(args)...));
  }
  // Without a category: invalidArgument.
  template <class... Args> static Status error(fmt::format_string<Args...> format, Args &&...args) {
    return Status(ErrorCode::invalidArgument, fmt::format(format, std::forward<Args>(args)...));
  }

  bool ok() const { return errorCode == ErrorCode::ok; }
  ErrorCode code() const { return errorCode; }
  // Empty on success.
  const std::string &message() const { return text; }

  // The same error with `prefix: ` in front, for callers that know more (a file name, a rank); success stays success.
  Status withContext(std::string_view prefix) const {
    return ok() ? Status() : Status(errorCode, fmt::format("{}: {}", prefix, text));
  }

private:
  Status() = default;
  Status(ErrorCode code, std::string text) : errorCode(code), text(std::move(text)) {}

  ErrorCode errorCode = ErrorCode::ok;
  std::string text;
};

} // namespace braid::runtime

// Returns the error of `expression` (a Status) from the enclosing function, which returns Status or Expected<T>.
#define BRAID_TRY(expression)                                                                                          \
  do {                                                                                                                 \
    if (::braid::runtime::Status braidStatus = (expression); !braidStatus.ok())                                        \
      return braidStatus;                                                                                              \
  } while (false)
