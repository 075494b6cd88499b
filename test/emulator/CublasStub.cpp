//===- CublasStub.cpp - a libcublasLt.so.13 without a GPU, for tests ----------------------------------------------===//
//
// The functions of NVIDIA's library that braid-run calls, over CudaStub's streams and memory: products are plain loops, summed in double. What the
// library would refuse ends the process or is refused: layouts that do not fit each other, attributes of another size, an algorithm that
// is none of its own, a workspace that is not the device's. BRAID_STUB_FAIL=cublasLtMatmulAlgoGetHeuristic knows no algorithm.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "runtime/cuda/CublasLt.h"
#include "test/emulator/StubHooks.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

namespace cuda = braid::runtime::cuda;
namespace blas = braid::runtime::cuda::blas;

namespace braid::runtime::cuda {
struct cublasLtContext {};
struct cublasLtMatmulDesc {
  int32_t first = 0, second = 0; // CUBLAS_OP_N, CUBLAS_OP_T
};
struct cublasLtMatrixLayout {
  int type;
  int64_t rows, columns, leading; // column-major
  int32_t count = 1;
  int64_t offset = 0;

  size_t elementBytes() const { return type == blas::typeBf16 ? 2 : 4; }
  size_t bytes() const {
    return elementBytes() * static_cast<size_t>((count - 1) * offset + (columns - 1) * leading + rows);
  }
};
struct cublasLtMatmulPreference {
  uint64_t workspace = 0;
  uint32_t reduction = 7, alignment[4] = {256, 256, 256, 256};
};
} // namespace braid::runtime::cuda

namespace {

constexpr int success = 0, invalidValue = 7;
constexpr uint64_t mark = 0x6272616964; // of this library's algorithm; behind it what it was chosen for

[[noreturn]] void fail(const std::string &message) {
  std::fprintf(stderr, "cuBLASLt stub: %s\n", message.c_str());
  std::abort();
}

template <class T> bool read(T &target, const void *value, size_t bytes) {
  if (bytes != sizeof(T))
    return false;
  std::memcpy(&target, value, bytes);
  return true;
}

double element(const cuda::cublasLtMatrixLayout &layout, const void *data, int64_t index) {
  if (layout.type != blas::typeBf16)
    return static_cast<const float *>(data)[index];
  uint32_t bits = static_cast<uint32_t>(static_cast<const uint16_t *>(data)[index]) << 16;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void store(const cuda::cublasLtMatrixLayout &layout, void *data, int64_t index, double sum) {
  auto value = static_cast<float>(sum);
  if (layout.type != blas::typeBf16) {
    static_cast<float *>(data)[index] = value;
    return;
  }
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fff + ((bits >> 16) & 1); // to the nearest, ties to even
  static_cast<uint16_t *>(data)[index] = static_cast<uint16_t>(bits >> 16);
}

/// Rows and columns of op(matrix).
std::pair<int64_t, int64_t> turned(const cuda::cublasLtMatrixLayout &layout, int32_t how) {
  return how == blas::transpose ? std::pair(layout.columns, layout.rows) : std::pair(layout.rows, layout.columns);
}

bool fits(const cuda::cublasLtMatmulDesc &desc, const cuda::cublasLtMatrixLayout &a,
          const cuda::cublasLtMatrixLayout &b, const cuda::cublasLtMatrixLayout &d) {
  auto [m, k] = turned(a, desc.first);
  auto [depth, n] = turned(b, desc.second);
  bool types = a.type == b.type && (d.type == a.type || (a.type == blas::typeBf16 && d.type == blas::typeF32));
  return types && k == depth && d.rows == m && d.columns == n && a.count == d.count && b.count == d.count;
}

/// In place it is one layout; elsewhere another of the same type and sizes.
bool addsTo(const cuda::cublasLtMatrixLayout &c, const cuda::cublasLtMatrixLayout &d) {
  return c.type == d.type && c.rows == d.rows && c.columns == d.columns && c.count == d.count;
}

void multiply(const cuda::cublasLtMatmulDesc &desc, const cuda::cublasLtMatrixLayout &a, const void *dataA,
              const cuda::cublasLtMatrixLayout &b, const void *dataB, float beta, const cuda::cublasLtMatrixLayout &c,
              const void *dataC, const cuda::cublasLtMatrixLayout &d, void *dataD) {
  int64_t depth = turned(a, desc.first).second;
  auto at = [](const cuda::cublasLtMatrixLayout &layout, int32_t how, int64_t batch, int64_t row, int64_t column) {
    return batch * layout.offset +
           (how == blas::transpose ? row * layout.leading + column : column * layout.leading + row);
  };
  for (int64_t batch = 0; batch < d.count; ++batch)
    for (int64_t column = 0; column < d.columns; ++column)
      for (int64_t row = 0; row < d.rows; ++row) {
        int64_t target = at(d, blas::none, batch, row, column);
        double sum = beta == 0 ? 0 : beta * element(c, dataC, at(c, blas::none, batch, row, column));
        for (int64_t k = 0; k < depth; ++k)
          sum += element(a, dataA, at(a, desc.first, batch, row, k)) *
                 element(b, dataB, at(b, desc.second, batch, k, column));
        store(d, dataD, target, sum);
      }
}

} // namespace

extern "C" {

int cublasLtCreate(cuda::BlasHandle *handle) {
  *handle = new cuda::cublasLtContext;
  return success;
}

int cublasLtDestroy(cuda::BlasHandle handle) {
  delete handle;
  return success;
}

const char *cublasLtGetStatusString(int) { return "as the stub says"; }

int cublasLtMatmulDescCreate(cuda::MatmulDesc *desc, int compute, int scale) {
  if (compute != blas::computeF32 || scale != blas::typeF32)
    return blas::notSupported;
  *desc = new cuda::cublasLtMatmulDesc;
  return success;
}

int cublasLtMatmulDescSetAttribute(cuda::MatmulDesc desc, int attribute, const void *value, size_t bytes) {
  if (attribute != blas::descTransposeA && attribute != blas::descTransposeB)
    return invalidValue;
  return read(attribute == blas::descTransposeA ? desc->first : desc->second, value, bytes) ? success : invalidValue;
}

int cublasLtMatmulDescDestroy(cuda::MatmulDesc desc) {
  delete desc;
  return success;
}

int cublasLtMatrixLayoutCreate(cuda::MatrixLayout *layout, int type, uint64_t rows, uint64_t columns, int64_t leading) {
  if ((type != blas::typeF32 && type != blas::typeBf16) || rows == 0 || columns == 0 ||
      leading < static_cast<int64_t>(rows))
    return invalidValue;
  *layout = new cuda::cublasLtMatrixLayout{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), leading};
  return success;
}

int cublasLtMatrixLayoutSetAttribute(cuda::MatrixLayout layout, int attribute, const void *value, size_t bytes) {
  if (attribute == blas::layoutBatchCount)
    return read(layout->count, value, bytes) ? success : invalidValue;
  return attribute == blas::layoutBatchOffset && read(layout->offset, value, bytes) ? success : invalidValue;
}

int cublasLtMatrixLayoutDestroy(cuda::MatrixLayout layout) {
  delete layout;
  return success;
}

int cublasLtMatmulPreferenceCreate(cuda::MatmulPreference *preference) {
  *preference = new cuda::cublasLtMatmulPreference;
  return success;
}

int cublasLtMatmulPreferenceSetAttribute(cuda::MatmulPreference preference, int attribute, const void *value,
                                         size_t bytes) {
  if (attribute == blas::preferWorkspace)
    return read(preference->workspace, value, bytes) ? success : invalidValue;
  if (attribute == blas::preferReduction)
    return read(preference->reduction, value, bytes) ? success : invalidValue;
  if (attribute < blas::preferAlignment || attribute >= blas::preferAlignment + 4)
    return invalidValue;
  return read(preference->alignment[attribute - blas::preferAlignment], value, bytes) ? success : invalidValue;
}

int cublasLtMatmulPreferenceDestroy(cuda::MatmulPreference preference) {
  delete preference;
  return success;
}

int cublasLtMatmulAlgoGetHeuristic(cuda::BlasHandle, cuda::MatmulDesc desc, cuda::MatrixLayout a, cuda::MatrixLayout b,
                                   cuda::MatrixLayout c, cuda::MatrixLayout d, cuda::MatmulPreference preference,
                                   int requested, cuda::MatmulHeuristic *results, int *found) {
  const char *failing = std::getenv("BRAID_STUB_FAIL");
  if (requested < 1 || !addsTo(*c, *d) || !fits(*desc, *a, *b, *d))
    return invalidValue;
  // Sums in an order that changes from run to run are not asked for.
  if (preference->reduction & 1)
    fail("reductions in place have no fixed order");
  if (failing && std::string_view(failing) == "cublasLtMatmulAlgoGetHeuristic")
    return blas::notSupported;
  results[0] = {{{mark, preference->workspace, preference->alignment[0]}}, 0, 0, 1, {}};
  *found = 1;
  return success;
}

int cublasLtMatmul(cuda::BlasHandle, cuda::MatmulDesc desc, const void *alpha, const void *a,
                   cuda::MatrixLayout layoutA, const void *b, cuda::MatrixLayout layoutB, const void *beta,
                   const void *c, cuda::MatrixLayout layoutC, void *d, cuda::MatrixLayout layoutD,
                   const cuda::MatmulAlgorithm *algorithm, void *workspace, size_t workspaceBytes,
                   cuda::Stream stream) {
  if (algorithm->data[0] != mark || workspaceBytes < algorithm->data[1] || (layoutC == layoutD) != (c == d) ||
      !addsTo(*layoutC, *layoutD) || !fits(*desc, *layoutA, *layoutB, *layoutD) ||
      *static_cast<const float *>(alpha) != 1)
    return invalidValue;
  for (const void *matrix : {a, b, c, static_cast<const void *>(d), static_cast<const void *>(workspace)})
    if (reinterpret_cast<uintptr_t>(matrix) % algorithm->data[2] != 0)
      fail("a matrix is not at a multiple of " + std::to_string(algorithm->data[2]) + " bytes");
  braidStubCheck(workspace, workspaceBytes, "cublasLtMatmul, workspace", stream);
  braidStubCheck(a, layoutA->bytes(), "cublasLtMatmul, first operand", stream);
  braidStubCheck(b, layoutB->bytes(), "cublasLtMatmul, second operand", stream);
  braidStubCheck(c, layoutC->bytes(), "cublasLtMatmul, addend", stream);
  braidStubCheck(d, layoutD->bytes(), "cublasLtMatmul, result", stream);
  float kept = *static_cast<const float *>(beta); // read before the call returns, as the descriptors are
  braidStubPut(
      stream,
      [=, desc = *desc, layoutA = *layoutA, layoutB = *layoutB, layoutC = *layoutC, layoutD = *layoutD] {
        multiply(desc, layoutA, a, layoutB, b, kept, layoutC, c, layoutD, d);
      },
      "cublasLtMatmul", nullptr);
  return success;
}

} // extern "C"

// The functions above are what the runtime asks for.
#define BRAID_CUBLASLT_SAME(name, parameters)                                                                          \
  static_assert(std::is_same_v<decltype(&name), decltype(cuda::BlasLibrary::name)>, #name);
BRAID_CUBLASLT_FUNCTIONS(BRAID_CUBLASLT_SAME)
