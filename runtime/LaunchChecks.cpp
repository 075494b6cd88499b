// Rules about the arguments of a launch, as far as the file says what its kernel asks of them: kernels do not check what
// they are given. A parameter's buffer holds what its sizes say, and numbers are within the kernel's bounds.
#include "runtime/ProgramChecks.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <unordered_map>

namespace braid::runtime {

Status LaunchRules::read(const schema::Kernel &kernel) {
  size_t params = kernel.params() ? kernel.params()->size() : 0;
  std::unordered_map<std::string_view, uint32_t> index;
  for (uint32_t i = 0; i < params; ++i)
    index.emplace(kernel.params()->Get(i)->name()->string_view(), i);
  pointers.assign(params, {});
  for (uint32_t i = 0; i < params; ++i) {
    const schema::Param &param = *kernel.params()->Get(i);
    std::string_view name = param.name()->string_view();
    if (param.type() > schema::DType::MAX)
      return corrupt("parameter '{}' has elements of unknown type {}", name, static_cast<int>(param.type()));
    if (!elementsAligned(param.sizes()) || !elementsAligned(param.strides()))
      return corrupt("the sizes of parameter '{}' are not aligned", name);
    if (!param.sizes())
      continue;
    if (param.kind() != schema::ParamKind::pointer)
      return corrupt("parameter '{}' has sizes, but is no pointer", name);
    if (param.strides() && param.strides()->size() != param.sizes()->size())
      return corrupt("parameter '{}' has {} sizes but {} strides", name, param.sizes()->size(),
                     param.strides()->size());
    Pointer &pointer = pointers[i];
    pointer.known = true;
    for (uint32_t d = 0; d < param.sizes()->size(); ++d) {
      auto number = [&](int64_t value, const char *what) -> Expected<Term> {
        if (value >= 0)
          return Term{value, noParam};
        auto found = index.find(fmt::format("{}.{}{}", name, what, d));
        if (value != -1 || found == index.end() ||
            kernel.params()->Get(found->second)->kind() != schema::ParamKind::i64)
          return corrupt("parameter '{}': {}{} is {}, and no i64 parameter '{}.{}{}' gives it", name, what, d, value,
                         name, what, d);
        return Term{0, found->second};
      };
      BRAID_ASSIGN(Term size, number(param.sizes()->Get(d), "dim"));
      pointer.sizes.push_back(size);
      auto strided = index.find(fmt::format("{}.stride{}", name, d)); // files of before Param.strides
      if (param.strides()) {
        BRAID_ASSIGN(Term stride, number(param.strides()->Get(d), "stride"));
        pointer.strides.push_back(stride);
      } else if (strided != index.end()) {
        pointer.known = false;
      }
    }
  }
  for (uint32_t i = 0; kernel.bounds() && i < kernel.bounds()->size(); ++i) {
    const schema::Bound &bound = *kernel.bounds()->Get(i);
    uint32_t count = bound.extent() ? 3 : static_cast<uint32_t>(params);
    if (bound.param() >= count)
      return corrupt("bound {} is of {} {} of {}", i, bound.extent() ? "extent" : "parameter", bound.param(), count);
    if (!bound.extent() && kernel.params()->Get(bound.param())->kind() != schema::ParamKind::i64)
      return corrupt("bound {} is of parameter '{}', which is no i64", i,
                     kernel.params()->Get(bound.param())->name()->string_view());
    if (bound.of() < -1 || (bound.of() >= 0 && (static_cast<size_t>(bound.of()) >= params ||
                                                bound.dim() >= pointers[static_cast<size_t>(bound.of())].sizes.size())))
      return corrupt("bound {} is dimension {} of parameter {}, which the kernel has not", i, bound.dim(), bound.of());
    if (bound.per() < 1 || bound.times() < 1)
      return corrupt("bound {}: a size / {} * {}; valid: 1 and more", i, bound.per(), bound.times());
    if (int32_t by = bound.per_param();
        by < -1 || (by >= 0 && (static_cast<size_t>(by) >= params ||
                                kernel.params()->Get(static_cast<uint32_t>(by))->kind() != schema::ParamKind::i64)))
      return corrupt("bound {}: a size / parameter {}, which is no i64 of the kernel", i, by);
  }
  return Status::success();
}

Status LaunchRules::check(const schema::Kernel &kernel, std::span<const schema::Arg *const> args,
                          std::span<const int64_t> grid) const {
  auto value = [&](const Term &term) {
    return term.param == noParam ? term.value : args[term.param]->value_as_I64Value()->value();
  };
  auto nameOf = [&](uint32_t param) { return kernel.params()->Get(param)->name()->string_view(); };
  for (uint32_t i = 0; i < pointers.size(); ++i) {
    const Pointer &pointer = pointers[i];
    if (!pointer.known)
      continue;
    auto type = static_cast<DType>(kernel.params()->Get(i)->type());
    // The last element, counted up from the innermost dimension. Saturates: what is larger than any arena is not there.
    constexpr int64_t most = int64_t(1) << 50;
    int64_t stride = 1, last = 0;
    bool empty = false;
    for (size_t d = pointer.sizes.size(); d-- > 0;) {
      int64_t size = value(pointer.sizes[d]);
      if (size < 0)
        return corrupt("argument '{}.dim{}' is {}; a size is not negative", nameOf(i), d, size);
      empty |= size == 0;
      if (!pointer.strides.empty())
        stride = value(pointer.strides[d]);
      if (stride < 0)
        return corrupt("argument '{}.stride{}' is {}; a stride is not negative", nameOf(i), d, stride);
      int64_t reach = 0;
      if (size > 1 && (__builtin_mul_overflow(size - 1, stride, &reach) || reach > most))
        reach = most;
      last = std::min(last + reach, most);
      if (pointer.strides.empty() && (__builtin_mul_overflow(stride, size, &stride) || stride > most))
        stride = most;
    }
    uint64_t bytes = args[i]->value_as_BufferValue()->buffer()->bytes();
    auto needed = empty ? 0 : static_cast<uint64_t>(last + 1) * sizeOf(type);
    if (needed > bytes || (needed < bytes && kernel.params()->Get(i)->exact()))
      return corrupt("argument '{}' of {} {} needs {} bytes but its buffer has {}", nameOf(i), shapeOf(pointer, args),
                     toString(type), needed, bytes);
  }
  // Programs write different bytes. Some may find nothing left to write, where there is little.
  constexpr uint64_t few = 1 << 20;
  uint64_t programs = static_cast<uint64_t>(grid[0]) * static_cast<uint64_t>(grid[1]) * static_cast<uint64_t>(grid[2]),
           written = 0;
  bool known = false;
  for (uint32_t i = 0; i < pointers.size(); ++i)
    if (kernel.params()->Get(i)->written() && args[i]->value_as_BufferValue()) {
      known = true;
      written += args[i]->value_as_BufferValue()->buffer()->bytes();
    }
  if (known && programs == 0 && written > 0)
    return corrupt("its grid has no programs, but {} bytes are written by it", written);
  if (known && programs > std::max(written, few))
    return corrupt("its grid has {} programs, but they write {} bytes", programs, written);
  for (uint32_t i = 0; kernel.bounds() && i < kernel.bounds()->size(); ++i) {
    const schema::Bound &bound = *kernel.bounds()->Get(i);
    int64_t number = bound.extent() ? grid[bound.param()] : value({0, bound.param()});
    auto what = [&] {
      return bound.extent() ? fmt::format("extent {} of its grid", bound.param())
                            : fmt::format("argument '{}'", nameOf(bound.param()));
    };
    if (number < bound.least())
      return corrupt("{} is {}, but the kernel takes {} and more", what(), number, bound.least());
    if (number > bound.most())
      return corrupt("{} is {}, but the kernel takes at most {}", what(), number, bound.most());
    if (bound.of() < 0)
      continue;
    int64_t size = value(pointers[static_cast<size_t>(bound.of())].sizes[bound.dim()]), per = bound.per(), most = 0;
    if (bound.per_param() >= 0 &&
        (__builtin_mul_overflow(per, std::max<int64_t>(value({0, static_cast<uint32_t>(bound.per_param())}), 1), &per)))
      per = INT64_MAX;
    int64_t parts = size / per + (size % per != 0);
    if (__builtin_mul_overflow(parts, bound.times(), &most))
      most = INT64_MAX;
    most = std::max(most, bound.least());
    if (number > most || (number < most && bound.whole()))
      return corrupt("{} is {}, but '{}' has size {} in dimension {}, of which the kernel takes {}{}{}", what(), number,
                     nameOf(static_cast<uint32_t>(bound.of())), size, bound.dim(),
                     per == 1 ? "" : fmt::format("{} at a time, so ", per), bound.whole() ? "" : "at most ", most);
  }
  return Status::success();
}

std::string LaunchRules::shapeOf(const Pointer &pointer, std::span<const schema::Arg *const> args) {
  std::string text;
  for (const Term &size : pointer.sizes)
    text += fmt::format("{}{}", text.empty() ? "" : "x",
                        size.param == noParam ? size.value : args[size.param]->value_as_I64Value()->value());
  return text;
}

} // namespace braid::runtime
