#include "runtime/cuda/CublasLt.h"

#include <dlfcn.h>

namespace braid::runtime::cuda {

#define BRAID_BLAS(call, ...) BRAID_TRY(library.check(library.call(__VA_ARGS__), #call))

namespace {

// The interface has been the same since 12.
constexpr const char *libraryNames[] = {"libcublasLt.so.13", "libcublasLt.so.12"};

struct OpenedBlas {
  BlasLibrary library;
  Status status = Status::success();
};

Status load(BlasLibrary &functions) {
  void *library = nullptr;
  const char *opened = nullptr;
  std::string reasons;
  for (const char *name : libraryNames) {
    if (!library && (library = dlopen(name, RTLD_NOW | RTLD_LOCAL)))
      opened = name;
    if (!library)
      if (const char *reason = dlerror())
        reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", reason);
  }
  if (!library)
    return Status::error(ErrorCode::unsupported,
                         "the program's matrix products are cuBLASLt's, and neither {} nor {} can be opened ({}); "
                         "valid: a machine with CUDA's libraries (LD_LIBRARY_PATH says where they are), or a program "
                         "compiled with --gemm=kernels",
                         libraryNames[0], libraryNames[1], reasons);
  const char *missing = nullptr;
  auto find = [&](auto &function, const char *name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (!function && !missing)
      missing = name;
  };
#define BRAID_CUBLASLT_FIND(name, parameters) find(functions.name, #name);
  BRAID_CUBLASLT_FUNCTIONS(BRAID_CUBLASLT_FIND)
#undef BRAID_CUBLASLT_FIND
  find(functions.cublasLtGetStatusString, "cublasLtGetStatusString");
  if (missing)
    return Status::error(ErrorCode::unsupported,
                         "{} is no cuBLASLt, or too old a one: it lacks {}; valid: that of CUDA 12 or "
                         "13, or a program compiled with --gemm=kernels",
                         opened, missing);
  return Status::success();
}

} // namespace

Expected<const BlasLibrary *> BlasLibrary::open() {
  static const OpenedBlas *opened = [] {
    auto *made = new OpenedBlas; // lives as long as what the library began
    made->status = load(made->library);
    return made;
  }();
  BRAID_TRY(opened->status);
  return &opened->library;
}

Status BlasLibrary::check(int status, const char *call) const {
  if (status == blas::success)
    return Status::success();
  return Status::error(ErrorCode::ioError, "{}: error {} {}", call, status, cublasLtGetStatusString(status));
}

// Row-major C = op(A) op(B) is column-major C^T = op(B)^T op(A)^T: the library's first operand is B, its second A, and what lies
// transposed for us does for it.
struct CublasLt::Product {
  GemmDesc desc;
  uint32_t alignment;
  MatmulDesc matmul = nullptr;
  MatrixLayout first = nullptr, second = nullptr, result = nullptr, addend = nullptr;
  MatmulAlgorithm algorithm = {};
};

CublasLt::CublasLt(const BlasLibrary &library) : library(library) {}

Expected<std::unique_ptr<CublasLt>> CublasLt::create() {
  BRAID_ASSIGN(const BlasLibrary *library, BlasLibrary::open());
  std::unique_ptr<CublasLt> made(new CublasLt(*library));
  BRAID_TRY(library->check(library->cublasLtCreate(&made->handle), "cublasLtCreate"));
  return made;
}

CublasLt::~CublasLt() {
  for (const auto &product : products) {
    for (MatrixLayout layout : {product->first, product->second, product->result, product->addend})
      if (layout)
        library.cublasLtMatrixLayoutDestroy(layout);
    if (product->matmul)
      library.cublasLtMatmulDescDestroy(product->matmul);
  }
  if (handle)
    library.cublasLtDestroy(handle);
}

Expected<uint32_t> CublasLt::prepare(const GemmDesc &desc, uint32_t alignment) {
  for (size_t i = 0; i < products.size(); ++i)
    if (products[i]->desc == desc && products[i]->alignment == alignment)
      return static_cast<uint32_t>(i);
  products.push_back(std::make_unique<Product>(Product{.desc = desc, .alignment = alignment}));
  const MatmulShape &shape = desc.shape;
  BRAID_TRY(make(desc, alignment, *products.back())
                .withContext(fmt::format("a product {} x {} x {}{} of {} and {} into {}", shape.m, shape.n, shape.k,
                                         desc.batch > 1 ? fmt::format(", {} times,", desc.batch) : "",
                                         toString(shape.typeA), toString(shape.typeB), toString(shape.typeC))));
  return static_cast<uint32_t>(products.size() - 1);
}

Status CublasLt::make(const GemmDesc &desc, uint32_t alignment, Product &product) const {
  const MatmulShape &shape = desc.shape;
  for (DType type : {shape.typeA, shape.typeB, shape.typeC})
    if (type != DType::f32 && type != DType::bf16)
      return Status::error(ErrorCode::unsupported, "{}: cuBLASLt is asked for f32 and bf16 only", toString(type));
  if (shape.addend.value_or(shape.typeC) != shape.typeC)
    return Status::error(ErrorCode::unsupported, "cuBLASLt adds only what has the type of the result, not {} to {}",
                         toString(*shape.addend), toString(shape.typeC));
  if (shape.m <= 0 || shape.n <= 0 || shape.k <= 0)
    return Status::error(ErrorCode::unsupported, "cuBLASLt is asked for sizes of at least 1 only");
  BRAID_BLAS(cublasLtMatmulDescCreate, &product.matmul, blas::computeF32, blas::typeF32);
  auto set = [&](int attribute, bool transposed) {
    int32_t value = transposed ? blas::transpose : blas::none;
    return library.check(library.cublasLtMatmulDescSetAttribute(product.matmul, attribute, &value, sizeof(value)),
                         "cublasLtMatmulDescSetAttribute");
  };
  BRAID_TRY(set(blas::descTransposeA, shape.transposeB));
  BRAID_TRY(set(blas::descTransposeB, shape.transposeA));

  // `rows` and `columns` as stored, row-major: for the library it is columns x rows.
  auto layout = [&](MatrixLayout &made, DType type, int64_t rows, int64_t columns, int64_t leading, int64_t stride) {
    BRAID_BLAS(cublasLtMatrixLayoutCreate, &made, type == DType::bf16 ? blas::typeBf16 : blas::typeF32,
               static_cast<uint64_t>(columns), static_cast<uint64_t>(rows), leading);
    if (desc.batch == 1)
      return Status::success();
    auto count = static_cast<int32_t>(desc.batch);
    BRAID_BLAS(cublasLtMatrixLayoutSetAttribute, made, blas::layoutBatchCount, &count, sizeof(count));
    BRAID_BLAS(cublasLtMatrixLayoutSetAttribute, made, blas::layoutBatchOffset, &stride, sizeof(stride));
    return Status::success();
  };
  bool turnedA = shape.transposeA, turnedB = shape.transposeB;
  BRAID_TRY(layout(product.first, shape.typeB, turnedB ? shape.n : shape.k, turnedB ? shape.k : shape.n, shape.ldb,
                   desc.batchStrideB));
  BRAID_TRY(layout(product.second, shape.typeA, turnedA ? shape.k : shape.m, turnedA ? shape.m : shape.k, shape.lda,
                   desc.batchStrideA));
  BRAID_TRY(layout(product.result, shape.typeC, shape.m, shape.n, shape.ldc, desc.batchStrideC));
  if (shape.addend)
    BRAID_TRY(layout(product.addend, shape.typeC, shape.m, shape.n, shape.ldc, desc.batchStrideAddend));

  MatmulPreference preference = nullptr;
  BRAID_BLAS(cublasLtMatmulPreferenceCreate, &preference);
  struct Release {
    const BlasLibrary &library;
    MatmulPreference preference;
    ~Release() { library.cublasLtMatmulPreferenceDestroy(preference); }
  } release{library, preference};
  auto prefer = [&](int attribute, auto value) {
    return library.check(library.cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)),
                         "cublasLtMatmulPreferenceSetAttribute");
  };
  BRAID_TRY(prefer(blas::preferWorkspace, workspaceBytes));
  BRAID_TRY(prefer(blas::preferReduction, blas::reduceInComputeType));
  for (int matrix = 0; matrix < 4; ++matrix)
    BRAID_TRY(prefer(blas::preferAlignment + matrix, alignment));

  MatmulHeuristic best = {};
  int found = 0;
  int status = library.cublasLtMatmulAlgoGetHeuristic(handle, product.matmul, product.first, product.second,
                                                      product.addend ? product.addend : product.result, product.result,
                                                      preference, 1, &best, &found);
  if (status == blas::notSupported || (status == blas::success && (found < 1 || best.state != blas::success)))
    return Status::error(ErrorCode::unsupported,
                         "cuBLASLt has no algorithm for it; valid: a program compiled with --gemm=kernels");
  BRAID_TRY(library.check(status, "cublasLtMatmulAlgoGetHeuristic"));
  product.algorithm = best.algorithm;
  return Status::success();
}

Status CublasLt::run(uint32_t number, Stream stream, const std::byte *a, const std::byte *b, std::byte *c,
                     const std::byte *addend, Address workspace) const {
  const Product &product = *products[number];
  float one = 1, kept = product.desc.shape.accumulate || product.addend ? 1 : 0;
  BRAID_BLAS(cublasLtMatmul, handle, product.matmul, &one, b, product.first, a, product.second, &kept,
             product.addend ? addend : c, product.addend ? product.addend : product.result, c, product.result,
             &product.algorithm, reinterpret_cast<void *>(workspace), workspaceBytes, stream);
  return Status::success();
}

} // namespace braid::runtime::cuda
