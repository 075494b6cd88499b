// CommandBuffers: which bytes of the arenas a command reads and writes, as the program says. Not for run time: for
// those who watch it.
#pragma once

#include "runtime/Program.h"
#include "runtime/schema/Program_generated.h"

namespace braid::runtime {

// Calls f(buffer, written, type) for every buffer of a command. `written`: null for one that is only read, else the
// name of the kernel's argument, empty where there is none. `type`: u8 where it is not said.
template <class F> void forEachBuffer(const Program &program, const schema::Command &command, F &&f) {
  auto type = [](schema::DType dtype) { return static_cast<DType>(dtype); };
  if (const auto *launch = command.body_as_Launch()) {
    const auto *kernel = program.file().kernels()->Get(launch->kernel());
    if (!launch->args() || !kernel->params())
      return;
    for (const auto *arg : *launch->args()) {
      const auto *pointer = arg->value_as_BufferValue();
      if (!pointer)
        continue;
      for (const auto *param : *kernel->params())
        if (param->name()->string_view() == arg->name()->string_view())
          f(*pointer->buffer(), param->written() ? arg->name()->c_str() : nullptr, type(param->type()));
    }
  } else if (const auto *gemm = command.body_as_Gemm()) {
    f(*gemm->a(), nullptr, type(gemm->type_a()));
    f(*gemm->b(), nullptr, type(gemm->type_b()));
    if (gemm->addend())
      f(*gemm->addend(), nullptr, type(gemm->type_addend()));
    f(*gemm->c(), "", type(gemm->type_c()));
  } else if (const auto *grouped = command.body_as_GroupedGemm()) {
    f(*grouped->a(), nullptr, type(grouped->type_a()));
    f(*grouped->b(), nullptr, type(grouped->type_b()));
    f(*grouped->offsets(), nullptr, DType::i32);
    if (grouped->addend())
      f(*grouped->addend(), nullptr, type(grouped->type_addend()));
    f(*grouped->c(), "", type(grouped->type_c()));
  } else if (const auto *collective = command.body_as_Collective()) {
    f(*collective->send(), nullptr, type(collective->dtype()));
    f(*collective->recv(), "", type(collective->dtype()));
  } else if (const auto *copy = command.body_as_Copy()) {
    f(*copy->source(), nullptr, DType::u8);
    f(*copy->target(), "", DType::u8);
  } else if (const auto *fill = command.body_as_Fill()) {
    f(*fill->target(), "", DType::u8);
  }
}

// Where a buffer begins in its arena, in these iterations of the repeats around its command.
inline uint64_t offsetAt(const schema::Buffer &buffer, std::span<const int64_t> iterations) {
  auto offset = static_cast<int64_t>(buffer.offset());
  if (buffer.strides())
    for (size_t i = 0; i < std::min<size_t>(buffer.strides()->size(), iterations.size()); ++i)
      offset += buffer.strides()->Get(static_cast<flatbuffers::uoffset_t>(i)) * iterations[i];
  return static_cast<uint64_t>(offset);
}

// Arenas that hold nothing between two runs: no tensor has a name in them, or with `gradients` only gradients do.
inline std::vector<bool> scratchArenas(const Program &program, bool gradients) {
  std::vector<bool> scratch(program.arenas().size(), true);
  for (const TensorInfo &tensor : program.tensors())
    if (!gradients || tensor.role != Role::gradient)
      scratch[tensor.arena] = false;
  return scratch;
}

} // namespace braid::runtime
