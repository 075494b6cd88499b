// Matmul: one oneDNN matmul primitive of a fixed shape, executed by any thread of a rank without allocating arguments.
// oneDNN runs single-threaded here; Gemm and GroupedGemm split their work over the pool in pieces of prepared shapes.
#pragma once

#include "runtime/Program.h"

#include <dnnl.h>

#include <compare>
#include <map>
#include <optional>

namespace braid::runtime {

// C = op(A) op(B) (+ C, or + an addend of C's leading dimension and of C's type or f32), row-major; leading dimensions in elements of the matrices as stored.
struct MatmulShape {
  int64_t m, n, k, lda, ldb, ldc;
  bool transposeA, transposeB, accumulate;
  DType typeA, typeB, typeC;
  std::optional<DType> addend = {}; // its type
  auto operator<=>(const MatmulShape &) const = default;

  // No gaps between rows.
  bool dense() const { return lda == (transposeA ? m : k) && ldb == (transposeB ? k : n) && ldc == n; }
};

// Which instructions oneDNN may use on this machine, as its number (dnnl_cpu_isa_t): what products are summed with.
std::string matmulInstructions();

class MatmulCache;
class WidenedMatmul;

class Matmul {
public:
  ~Matmul();
  Matmul(const Matmul &) = delete;
  Matmul &operator=(const Matmul &) = delete;

  // Executes on thread `thread` of the cache's count; different threads may do so at the same time.
  // False: oneDNN refused (a bug; shapes were accepted when the primitive was made).
  bool run(int thread, const void *a, const void *b, void *c, const void *addend = nullptr) const;
  // oneDNN's name of the implementation, e.g. brg:avx512_core_amx_bf16; "widened": oneDNN has none for this CPU.
  std::string_view implementation() const { return implementationName; }

private:
  friend class MatmulCache;
  Matmul();

  struct ThreadArgs {
    dnnl_stream_t stream = nullptr; // the cache's
    dnnl_exec_arg_t args[5] = {}; // A, B, C, then the addend and the scratch memory where there are any
    int count = 3;
  };

  dnnl_primitive_t primitive = nullptr;
  size_t scratchBytes = 0;
  bool adds = false; // an addend
  std::string implementationName;
  std::vector<ThreadArgs> threads;
  std::unique_ptr<WidenedMatmul> widened; // instead of a primitive
};

// The primitives of a session, shared by equal shapes. All get() calls come before finish(), all runs after it.
class MatmulCache {
public:
  // `widenBf16`: as on a CPU for which oneDNN has no bf16 (tests).
  static Expected<std::unique_ptr<MatmulCache>> create(int threads, bool widenBf16 = false);
  ~MatmulCache();

  int threads() const { return static_cast<int>(streams.size()); }
  Expected<const Matmul *> get(const MatmulShape &shape);
  // oneDNN 2.6 multiplies with AMX only where operands have no gaps between rows. Its other path for bf16 is four times
  // slower there, so cutting such a matmul over a few threads in a way that leaves gaps loses.
  Expected<bool> fastWhileWhole(const MatmulShape &shape);
  // Allocates the scratch memory all primitives of a thread share.
  Status finish();
  size_t size() const { return primitives.size(); }

private:
  MatmulCache() = default;
  dnnl_status_t makePrimitive(const MatmulShape &shape, Matmul &matmul);
  Status allocate(std::vector<void *> &perThread, size_t bytes);

  bool widenBf16 = false;
  dnnl_engine_t engine = nullptr;
  std::vector<dnnl_stream_t> streams;
  std::map<MatmulShape, std::unique_ptr<Matmul>> primitives;
  std::vector<void *> scratch, widenedScratch;
};

} // namespace braid::runtime
