// Stands in for the parts of the runtime that call oneDNN and MPI, in braid-run-bundled: programs for CPUs with matrix
// products, and ranks that are processes, are refused.
#include "runtime/comm/MpiWorld.h"
#include "runtime/cpu/Matmul.h"
#include "runtime/cpu/WidenedMatmul.h"

namespace braid::runtime {
namespace {

Status noOneDnn() {
  return Status::error(ErrorCode::unsupported,
                       "this braid-run has no oneDNN, which matrix products of programs for CPUs "
                       "need; valid: a program compiled with --target=cuda");
}

} // namespace

Expected<std::unique_ptr<MatmulCache>> MatmulCache::create(int threads, bool) {
  std::unique_ptr<MatmulCache> cache(new MatmulCache());
  cache->streams.resize(threads);
  return cache;
}
MatmulCache::~MatmulCache() = default;
Expected<const Matmul *> MatmulCache::get(const MatmulShape &) { return noOneDnn(); }
Expected<bool> MatmulCache::fastWhileWhole(const MatmulShape &) { return noOneDnn(); }
Status MatmulCache::finish() { return Status::success(); }
std::string matmulInstructions() { return "none"; }
Matmul::~Matmul() = default;
bool Matmul::run(int, const void *, const void *, void *, const void *) const { return false; }

Expected<std::unique_ptr<Processes>> startMpi(std::string startedBy) {
  return Status::error(ErrorCode::unsupported,
                       "this braid-run has no MPI, but {} started several processes; valid: "
                       "one, or --launcher=threads",
                       startedBy);
}
Expected<std::unique_ptr<CommunicatorGroup>> connectMpi(const MeshInfo &, const MpiOptions &) {
  return startMpi("a launcher").status();
}
std::string mpiLibrary() { return "none"; }

} // namespace braid::runtime
