// CublasLt: matrix products of NVIDIA's library, opened when a program that asks for them is run (--gemm=cublaslt) and never linked. Names,
// numbers and signatures are those of its interface (cublasLt.h, 12 and 13; test/runtime/CublasHeaderTest.cpp compares them
// where the header is); nothing of its headers is needed to build.
//
// Which of the library's algorithms a product gets is decided once, when the session is made, by the library's own heuristic: nothing is
// timed. Sums that are split over blocks are put together in the compute type, in the workspace, so that two runs give the
// same bits.
#pragma once

#include "runtime/cpu/Gemm.h"
#include "runtime/cuda/CudaDriver.h"

#include <memory>
#include <vector>

namespace braid::runtime::cuda {

using BlasHandle = struct cublasLtContext *;
using MatmulDesc = struct cublasLtMatmulDesc *;
using MatrixLayout = struct cublasLtMatrixLayout *;
using MatmulPreference = struct cublasLtMatmulPreference *;
struct MatmulAlgorithm {
  uint64_t data[8];
};
struct MatmulHeuristic {
  MatmulAlgorithm algorithm;
  size_t workspaceBytes;
  int state; // 0: this algorithm can be used
  float waves;
  int reserved[4];
};

namespace blas {
constexpr int success = 0, notSupported = 15;
constexpr int computeF32 = 68; // in f32, products of f32 operands too: no TF32
constexpr int typeF32 = 0, typeBf16 = 14;
constexpr int32_t none = 0, transpose = 1;
constexpr int descTransposeA = 3, descTransposeB = 4;
constexpr int layoutBatchCount = 5, layoutBatchOffset = 6;
constexpr int preferWorkspace = 1, preferReduction = 3, preferAlignment = 5; // of A; those of B, C and D follow
constexpr uint32_t reduceInComputeType = 2;
} // namespace blas

#define BRAID_CUBLASLT_FUNCTIONS(X)                                                                                    \
  X(cublasLtCreate, (BlasHandle * handle))                                                                             \
  X(cublasLtDestroy, (BlasHandle handle))                                                                              \
  X(cublasLtMatmulDescCreate, (MatmulDesc * desc, int compute, int scale))                                             \
  X(cublasLtMatmulDescSetAttribute, (MatmulDesc desc, int attribute, const void *value, size_t bytes))                 \
  X(cublasLtMatmulDescDestroy, (MatmulDesc desc))                                                                      \
  X(cublasLtMatrixLayoutCreate, (MatrixLayout * layout, int type, uint64_t rows, uint64_t columns, int64_t leading))   \
  X(cublasLtMatrixLayoutSetAttribute, (MatrixLayout layout, int attribute, const void *value, size_t bytes))           \
  X(cublasLtMatrixLayoutDestroy, (MatrixLayout layout))                                                                \
  X(cublasLtMatmulPreferenceCreate, (MatmulPreference * preference))                                                   \
  X(cublasLtMatmulPreferenceSetAttribute,                                                                              \
    (MatmulPreference preference, int attribute, const void *value, size_t bytes))                                     \
  X(cublasLtMatmulPreferenceDestroy, (MatmulPreference preference))                                                    \
  X(cublasLtMatmulAlgoGetHeuristic,                                                                                    \
    (BlasHandle handle, MatmulDesc desc, MatrixLayout a, MatrixLayout b, MatrixLayout c, MatrixLayout d,               \
     MatmulPreference preference, int requested, MatmulHeuristic *results, int *found))                                \
  X(cublasLtMatmul,                                                                                                    \
    (BlasHandle handle, MatmulDesc desc, const void *alpha, const void *a, MatrixLayout layoutA, const void *b,        \
     MatrixLayout layoutB, const void *beta, const void *c, MatrixLayout layoutC, void *d, MatrixLayout layoutD,       \
     const MatmulAlgorithm *algorithm, void *workspace, size_t workspaceBytes, Stream stream))

struct BlasLibrary {
#define BRAID_CUBLASLT_MEMBER(name, parameters) int(*name) parameters = nullptr;
  BRAID_CUBLASLT_FUNCTIONS(BRAID_CUBLASLT_MEMBER)
#undef BRAID_CUBLASLT_MEMBER
  const char *(*cublasLtGetStatusString)(int status) = nullptr;

  // Opened once in a process, and never closed. An error names the library that cannot be opened, or what it lacks.
  static Expected<const BlasLibrary *> open();
  // Success, or an error with the name of the call and what the library says.
  Status check(int status, const char *call) const;
};

// The products of a program. The device's context is current where it is used.
class CublasLt {
public:
  // What NVIDIA recommends for Hopper.
  static constexpr uint64_t workspaceBytes = uint64_t(32) << 20;

  static Expected<std::unique_ptr<CublasLt>> create();
  ~CublasLt();
  CublasLt(const CublasLt &) = delete;
  CublasLt &operator=(const CublasLt &) = delete;

  // Chooses how a product is done, for matrices at multiples of `alignment` bytes; equal ones share it. -> its number. An error says the
  // product (sizes, types) that the library does not do.
  Expected<uint32_t> prepare(const GemmDesc &desc, uint32_t alignment);
  // Puts it on the stream. Allocates nothing, waits for nothing.
  Status run(uint32_t product, Stream stream, const std::byte *a, const std::byte *b, std::byte *c,
             const std::byte *addend, Address workspace) const;

private:
  struct Product;
  explicit CublasLt(const BlasLibrary &library);
  Status make(const GemmDesc &desc, uint32_t alignment, Product &product) const;

  const BlasLibrary &library;
  BlasHandle handle = nullptr;
  std::vector<std::unique_ptr<Product>> products;
};

} // namespace braid::runtime::cuda
