// Expected<T>: a value, or the Status that says why there is none.
#pragma once

#include "runtime/Status.h"

#include <cassert>
#include <type_traits>
#include <utility>
#include <variant>

namespace braid::runtime {

template <class T> class [[nodiscard]] Expected {
public:
  // An error; `status` must not be success.
  Expected(Status status) : state(std::move(status)) { assert(!error().ok() && "Expected made from a success"); }
  template <class U = T>
    requires(std::is_convertible_v<U &&, T> && !std::is_same_v<std::remove_cvref_t<U>, Expected> &&
             !std::is_same_v<std::remove_cvref_t<U>, Status>)
  Expected(U &&value) : state(std::in_place_index<0>, std::forward<U>(value)) {}

  explicit operator bool() const { return state.index() == 0; }
  bool ok() const { return state.index() == 0; }

  T &operator*() & { return value(); }
  const T &operator*() const & { return value(); }
  T &&operator*() && { return std::move(value()); }
  T *operator->() { return &value(); }
  const T *operator->() const { return &value(); }

  // Success when there is a value.
  Status status() const { return ok() ? Status::success() : error(); }
  const std::string &message() const { return error().message(); }

private:
  T &value() {
    assert(ok() && "no value in this Expected");
    return *std::get_if<0>(&state);
  }
  const T &value() const {
    assert(ok() && "no value in this Expected");
    return *std::get_if<0>(&state);
  }
  const Status &error() const {
    assert(!ok() && "no error in this Expected");
    return *std::get_if<1>(&state);
  }

  std::variant<T, Status> state;
};

} // namespace braid::runtime

#define BRAID_CONCAT_INNER(a, b) a##b
#define BRAID_CONCAT(a, b) BRAID_CONCAT_INNER(a, b)
// BRAID_ASSIGN(auto program, Program::load(path)): declares or assigns, or returns the error.
#define BRAID_ASSIGN(target, expression) BRAID_ASSIGN_IMPL(BRAID_CONCAT(braidExpected, __LINE__), target, expression)
#define BRAID_ASSIGN_IMPL(temporary, target, expression)                                                               \
  auto temporary = (expression);                                                                                       \
  if (!temporary)                                                                                                      \
    return temporary.status();                                                                                         \
  target = *std::move(temporary)
