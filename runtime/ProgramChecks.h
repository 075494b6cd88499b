// The semantic rules of a program file, in three parts; Program::load runs all of them on a verified flatbuffer.
#pragma once

#include "runtime/Program.h"

namespace braid::runtime {

// Deeper nests of repeats are refused: sessions keep iteration counters in fixed arrays.
inline constexpr size_t maxRepeatDepth = 8;

// The verifier of flatbuffers looks at where a vector begins, not at the alignment of its elements.
template <class Vector> bool elementsAligned(const Vector *vector) {
  return !vector || reinterpret_cast<uintptr_t>(vector->Data()) % sizeof(typename Vector::return_type) == 0;
}

// Arenas, mesh, tensors, kernels, streams, entry signatures.
Status checkTables(const Program &program);
// The command list of one entry; returns the number of commands in it.
Status checkEntry(const Program &program, uint32_t entry, EntryInfo &found);
// Hash of the code, CPU features of this machine.
Status checkCode(const Program &program);

} // namespace braid::runtime
