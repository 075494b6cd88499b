#include "runtime/Status.h"

namespace braid::runtime {

std::string_view toString(ErrorCode code) {
  switch (code) {
  case ErrorCode::ok: return "ok";
  case ErrorCode::invalidArgument: return "invalid argument";
  case ErrorCode::notFound: return "not found";
  case ErrorCode::corruptFile: return "corrupt file";
  case ErrorCode::ioError: return "input/output error";
  case ErrorCode::unsupported: return "unsupported";
  case ErrorCode::deadlineExceeded: return "deadline exceeded";
  case ErrorCode::aborted: return "aborted";
  case ErrorCode::overflow: return "overflow";
  case ErrorCode::internal: return "internal error";
  }
  return "unknown";
}

} // namespace braid::runtime
