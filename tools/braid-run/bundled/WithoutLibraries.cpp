// Stands in for the parts of the runtime that call oneDNN, MPI and cpp-httplib, and for tokenizers and chat templates with
// what matches and normalizes their texts, in braid-run-bundled: programs for CPUs with matrix products, ranks that are
// processes, tokenizers and serving are refused.
#include "runtime/comm/MpiWorld.h"
#include "runtime/cpu/Matmul.h"
#include "runtime/cpu/WidenedMatmul.h"
#include "runtime/serve/HttpServer.h"
#include "runtime/template/ChatTemplate.h"
#include "runtime/text/Tokenizer.h"
#include "runtime/text/Utf8.h"

namespace braid::runtime {
namespace {

Status noOneDnn() {
  return Status::error(ErrorCode::unsupported,
                       "this braid-run has no oneDNN, which matrix products of programs for CPUs "
                       "need; valid: a program compiled with --target=cuda");
}

Status noTokenizers() {
  return Status::error(ErrorCode::unsupported, "this braid-run has no tokenizers; valid: tokens instead of text");
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

Expected<std::shared_ptr<const Tokenizer>> Tokenizer::load(const std::string &) { return noTokenizers(); }
std::optional<int32_t> Tokenizer::tokenOf(std::string_view) const { return std::nullopt; }
ContentHash Tokenizer::hash() const { return {}; }
Expected<std::vector<int32_t>> TextEncoder::encode(std::string_view, bool) { return noTokenizers(); }
Expected<std::string> TextDecoder::add(int32_t) { return noTokenizers(); }
TextEncoders::TextEncoders(std::shared_ptr<const Tokenizer>, unsigned) {}
Expected<std::vector<std::vector<int32_t>>> TextEncoders::encode(std::span<const std::string>, size_t &) {
  return noTokenizers();
}

Expected<Chat> chatOf(const nlohmann::ordered_json &) { return noTokenizers(); }
Expected<ChatTemplate> ChatTemplate::load(const std::string &, const std::string &) { return noTokenizers(); }
Expected<std::string> ChatTemplate::render(const Chat &, std::time_t) const { return noTokenizers(); }
std::optional<std::string> ChatTemplate::endToken() const { return std::nullopt; }

struct HttpServer::Impl {};
std::optional<size_t> firstInvalidUtf8(std::string_view) { return std::nullopt; } // of texts that are served
HttpServer::~HttpServer() = default;
Expected<std::unique_ptr<HttpServer>> HttpServer::listen(const std::string &, int) {
  return Status::error(ErrorCode::unsupported, "this braid-run has no HTTP server; valid: generate");
}
int HttpServer::port() const { return 0; }
void HttpServer::start(Api &, size_t) {}
void HttpServer::stop() {}

} // namespace braid::runtime
