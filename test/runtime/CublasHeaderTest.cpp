// runtime/cuda/CublasLt.h states NVIDIA's interface once more: here it is compared with its header, where there is one.
#if __has_include(<cublasLt.h>)
#include "runtime/cuda/CublasLt.h"
#include "test/runtime/fixture/Alike.h"

#include <cstddef>
#include <cublasLt.h>
#include <type_traits>

namespace ours = braid::runtime::cuda;
namespace blas = braid::runtime::cuda::blas;

static_assert(blas::success == CUBLAS_STATUS_SUCCESS && blas::notSupported == CUBLAS_STATUS_NOT_SUPPORTED);
static_assert(blas::computeF32 == CUBLAS_COMPUTE_32F && blas::typeF32 == CUDA_R_32F && blas::typeBf16 == CUDA_R_16BF);
static_assert(blas::none == CUBLAS_OP_N && blas::transpose == CUBLAS_OP_T);
static_assert(sizeof(cublasOperation_t) == sizeof(blas::none));
static_assert(blas::descTransposeA == CUBLASLT_MATMUL_DESC_TRANSA &&
              blas::descTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(blas::layoutBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT &&
              blas::layoutBatchOffset == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(blas::preferWorkspace == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES &&
              blas::preferReduction == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK &&
              blas::preferAlignment == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
              blas::preferAlignment + 1 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES &&
              blas::preferAlignment + 2 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES &&
              blas::preferAlignment + 3 == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES &&
              blas::reduceInComputeType == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
static_assert(sizeof(ours::MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t) &&
              sizeof(ours::MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t) &&
              offsetof(ours::MatmulHeuristic, workspaceBytes) ==
                  offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize) &&
              offsetof(ours::MatmulHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));

#define BRAID_CUBLASLT_ALIKE(name, parameters)                                                                         \
  static_assert(braid::runtime::test::Alike<decltype(ours::BlasLibrary::name), decltype(&name)>::value, #name);
BRAID_CUBLASLT_FUNCTIONS(BRAID_CUBLASLT_ALIKE)
#endif
