// The semantic rules of a program file, in parts; Program::load runs all of them on a verified flatbuffer.
#pragma once

#include "runtime/Program.h"

namespace braid::schema {
struct Arg;
struct Kernel;
} // namespace braid::schema

namespace braid::runtime {

// Deeper nests of repeats are refused: sessions keep iteration counters in fixed arrays.
inline constexpr size_t maxRepeatDepth = 8;

// The verifier of flatbuffers looks at where a vector begins, not at the alignment of its elements.
template <class Vector> bool elementsAligned(const Vector *vector) {
  return !vector || reinterpret_cast<uintptr_t>(vector->Data()) % sizeof(typename Vector::return_type) == 0;
}

// What a rule says of a file that breaks it.
template <class... Args> Status corrupt(fmt::format_string<Args...> format, Args &&...args) {
  return Status::error(ErrorCode::corruptFile, format, std::forward<Args>(args)...);
}

// What has to hold before tables are cut into those of the stages: whose is what. How many stages there are (StageChecks.cpp).
Expected<uint32_t> countStages(const schema::Program &file, const MeshInfo &mesh);
// Of one stage: arenas, mesh, tensors, kernels, streams, entry signatures.
Status checkTables(const Program &program);
// Of all stages, each of which was checked: parameters that two of them have are one tensor, and what they call together all
// of them call, in one order.
Status checkTogether(const Program &program);
// Over all ranks. Of a file that makes no sense sizes saturate.
std::vector<int64_t> globalShape(const Program &program, const TensorInfo &tensor);
// The command list of one entry of the program; its commands and reach are set.
Status checkEntry(const Program &program, EntryInfo &entry);
// What a kernel asks of the arguments of its launches (LaunchChecks.cpp).
class LaunchRules {
public:
  // Of a kernel whose parameters have been looked at. An error names the parameter or the bound.
  Status read(const schema::Kernel &kernel);
  // Of a launch: an argument of the right kind for every parameter, in their order, and its grid. An error names the
  // argument and both numbers.
  Status check(const schema::Kernel &kernel, std::span<const schema::Arg *const> args,
               std::span<const int64_t> grid) const;

private:
  static constexpr uint32_t noParam = UINT32_MAX;
  struct Term { // a number, or the parameter that gives it
    int64_t value;
    uint32_t param;
  };
  struct Pointer {
    bool known = false; // its sizes are in the file
    std::vector<Term> sizes, strides; // no strides: row-major
  };
  static std::string shapeOf(const Pointer &pointer, std::span<const schema::Arg *const> args);
  std::vector<Pointer> pointers; // by parameter
};

// Hash of the code, CPU features of this machine.
Status checkCode(const Program &program);

} // namespace braid::runtime
