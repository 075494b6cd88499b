#include "runtime/cpu/WidenedMatmul.h"

#include <cstdlib>
#include <sys/mman.h>

namespace braid::runtime {
namespace {

std::string_view toString(dnnl_status_t status) {
  switch (status) {
  case dnnl_success: return "success";
  case dnnl_out_of_memory: return "out of memory";
  case dnnl_invalid_arguments: return "invalid arguments";
  case dnnl_unimplemented: return "unimplemented";
  case dnnl_iterator_ends: return "no implementation";
  case dnnl_runtime_error: return "runtime error";
  case dnnl_not_required: return "not required";
  }
  return "unknown";
}

// dnnl_data_type_undef: oneDNN has no matmul of this type.
dnnl_data_type_t toDnnl(DType type) {
  switch (type) {
  case DType::f32: return dnnl_f32;
  case DType::bf16: return dnnl_bf16;
  case DType::f64:
  case DType::i32:
  case DType::i64:
  case DType::u8:
  case DType::i16: return dnnl_data_type_undef;
  }
  return dnnl_data_type_undef;
}

dnnl_status_t describe(dnnl_memory_desc_t &desc, int64_t rows, int64_t cols, int64_t leading, bool transposed,
                       DType type) {
  dnnl_dims_t dims = {rows, cols};
  dnnl_dims_t strides = {leading, 1};
  if (transposed)
    std::swap(strides[0], strides[1]);
  return dnnl_memory_desc_init_by_strides(&desc, 2, dims, toDnnl(type), strides);
}

} // namespace

std::string matmulInstructions() { return fmt::format("{:#x}", static_cast<int>(dnnl_get_effective_cpu_isa())); }

Matmul::Matmul() = default;

Matmul::~Matmul() {
  for (ThreadArgs &thread : threads)
    for (dnnl_exec_arg_t &arg : thread.args)
      if (arg.memory)
        dnnl_memory_destroy(arg.memory);
  if (primitive)
    dnnl_primitive_destroy(primitive);
}

bool Matmul::run(int thread, const void *a, const void *b, void *c, const void *addend) const {
  if (widened)
    return widened->run(thread, a, b, c, addend);
  const ThreadArgs &args = threads[thread];
  return dnnl_memory_set_data_handle(args.args[0].memory, const_cast<void *>(a)) == dnnl_success &&
         dnnl_memory_set_data_handle(args.args[1].memory, const_cast<void *>(b)) == dnnl_success &&
         dnnl_memory_set_data_handle(args.args[2].memory, c) == dnnl_success &&
         (!adds || dnnl_memory_set_data_handle(args.args[3].memory, const_cast<void *>(addend)) == dnnl_success) &&
         dnnl_primitive_execute(primitive, args.stream, args.count, args.args) == dnnl_success;
}

Expected<std::unique_ptr<MatmulCache>> MatmulCache::create(int threads, bool widenBf16) {
  std::unique_ptr<MatmulCache> cache(new MatmulCache());
  cache->widenBf16 = widenBf16;
  dnnl_status_t status = dnnl_engine_create(&cache->engine, dnnl_cpu, 0);
  for (int i = 0; i < threads && status == dnnl_success; ++i) {
    dnnl_stream_t stream = nullptr;
    status = dnnl_stream_create(&stream, cache->engine, dnnl_stream_default_flags);
    if (status == dnnl_success)
      cache->streams.push_back(stream);
  }
  if (status != dnnl_success)
    return Status::error(ErrorCode::unsupported, "oneDNN cannot use this CPU: {}", toString(status));
  return cache;
}

MatmulCache::~MatmulCache() {
  primitives.clear();
  for (dnnl_stream_t stream : streams)
    dnnl_stream_destroy(stream);
  if (engine)
    dnnl_engine_destroy(engine);
  for (auto *list : {&scratch, &widenedScratch})
    for (void *memory : *list)
      std::free(memory);
}

// oneDNN writes its kernels into pages of 256 KB, a few for each primitive, and where it is given none it writes to nowhere.
static bool hasRoomForCode() {
  constexpr size_t bytes = size_t(4) << 20;
  void *pages = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return pages != MAP_FAILED && munmap(pages, bytes) == 0;
}

dnnl_status_t MatmulCache::makePrimitive(const MatmulShape &shape, Matmul &matmul) {
  if (!hasRoomForCode())
    return dnnl_out_of_memory;
  dnnl_memory_desc_t a, b, c, addend;
  dnnl_status_t status = describe(a, shape.m, shape.k, shape.lda, shape.transposeA, shape.typeA);
  if (status == dnnl_success)
    status = describe(b, shape.k, shape.n, shape.ldb, shape.transposeB, shape.typeB);
  if (status == dnnl_success)
    status = describe(c, shape.m, shape.n, shape.ldc, false, shape.typeC);
  if (status == dnnl_success && shape.addend)
    status = describe(addend, shape.m, shape.n, shape.ldc, false, *shape.addend);
  if (status != dnnl_success)
    return status;

  dnnl_primitive_attr_t attributes = nullptr;
  dnnl_post_ops_t postOps = nullptr;
  dnnl_primitive_desc_t description = nullptr;
  dnnl_matmul_desc_t operation;
  status = dnnl_primitive_attr_create(&attributes);
  if (status == dnnl_success)
    status = dnnl_primitive_attr_set_scratchpad_mode(attributes, dnnl_scratchpad_mode_user);
  if (status == dnnl_success && (shape.accumulate || shape.addend)) {
    status = dnnl_post_ops_create(&postOps);
    if (status == dnnl_success)
      status = shape.addend ? dnnl_post_ops_append_binary(postOps, dnnl_binary_add, &addend)
                            : dnnl_post_ops_append_sum(postOps, 1.0f);
    if (status == dnnl_success)
      status = dnnl_primitive_attr_set_post_ops(attributes, postOps);
  }
  if (status == dnnl_success)
    status = dnnl_matmul_desc_init(&operation, &a, &b, nullptr, &c);
  if (status == dnnl_success)
    status = dnnl_primitive_desc_create(&description, &operation, attributes, engine, nullptr);
  if (status == dnnl_success)
    status = dnnl_primitive_create(&matmul.primitive, description);

  const dnnl_memory_desc_t *scratchpad = nullptr;
  if (status == dnnl_success) {
    scratchpad = dnnl_primitive_desc_query_md(description, dnnl_query_scratchpad_md, 0);
    matmul.scratchBytes = scratchpad ? dnnl_memory_desc_get_size(scratchpad) : 0;
    const char *name = nullptr;
    if (dnnl_primitive_desc_query(description, dnnl_query_impl_info_str, 0, &name) == dnnl_success && name)
      matmul.implementationName = name;
  }
  matmul.adds = shape.addend.has_value();
  std::vector<std::pair<int, const dnnl_memory_desc_t *>> args = {
      {DNNL_ARG_SRC, &a}, {DNNL_ARG_WEIGHTS, &b}, {DNNL_ARG_DST, &c}};
  if (shape.addend)
    args.emplace_back(DNNL_ARG_ATTR_MULTIPLE_POST_OP(0) | DNNL_ARG_SRC_1, &addend);
  if (matmul.scratchBytes)
    args.emplace_back(DNNL_ARG_SCRATCHPAD, scratchpad);
  for (size_t i = 0; i < streams.size() && status == dnnl_success; ++i) {
    Matmul::ThreadArgs &thread = matmul.threads.emplace_back();
    thread.stream = streams[i];
    thread.count = static_cast<int>(args.size());
    for (size_t arg = 0; arg < args.size() && status == dnnl_success; ++arg) {
      thread.args[arg].arg = args[arg].first;
      status = dnnl_memory_create(&thread.args[arg].memory, args[arg].second, engine, DNNL_MEMORY_NONE);
    }
  }
  if (description)
    dnnl_primitive_desc_destroy(description);
  if (postOps)
    dnnl_post_ops_destroy(postOps);
  if (attributes)
    dnnl_primitive_attr_destroy(attributes);
  return status;
}

Expected<const Matmul *> MatmulCache::get(const MatmulShape &shape) {
  if (auto found = primitives.find(shape); found != primitives.end())
    return found->second.get();
  auto fail = [&](dnnl_status_t status) {
    return Status::error(ErrorCode::unsupported, "no matmul of {} x {} -> {} ({} x {} x {}) in oneDNN: {}",
                         runtime::toString(shape.typeA), runtime::toString(shape.typeB), runtime::toString(shape.typeC),
                         shape.m, shape.n, shape.k, toString(status));
  };
  for (DType type : {shape.typeA, shape.typeB, shape.typeC})
    if (toDnnl(type) == dnnl_data_type_undef)
      return fail(dnnl_unimplemented);

  auto isBf16 = [](DType type) { return type == DType::bf16; };
  bool halves = isBf16(shape.typeA) || isBf16(shape.typeB) || isBf16(shape.typeC); // an addend: only where C is
  std::unique_ptr<Matmul> matmul(new Matmul());
  dnnl_status_t status = widenBf16 && halves ? dnnl_unimplemented : makePrimitive(shape, *matmul);
  // oneDNN has bf16 for AVX-512 and AMX only; its reference loops are a hundred times slower than widening.
  bool reference = matmul->implementationName.starts_with("ref");
  if (halves && (status == dnnl_unimplemented || reference)) {
    matmul.reset(new Matmul());
    BRAID_ASSIGN(matmul->widened, WidenedMatmul::create(shape, *this, widenedScratch));
    matmul->implementationName = "widened";
    status = dnnl_success;
  }
  if (status != dnnl_success)
    return fail(status);
  return primitives.emplace(shape, std::move(matmul)).first->second.get();
}

Expected<bool> MatmulCache::fastWhileWhole(const MatmulShape &shape) {
  if (!shape.dense() || shape.typeA != DType::bf16 || threads() > 4)
    return false;
  BRAID_ASSIGN(const Matmul *matmul, get(shape));
  return matmul->implementation().find("amx") != std::string_view::npos;
}

Status MatmulCache::allocate(std::vector<void *> &perThread, size_t bytes) {
  bytes = (bytes + 4095) / 4096 * 4096;
  for (size_t i = 0; i < streams.size(); ++i) {
    void *memory = std::aligned_alloc(4096, bytes);
    if (!memory)
      return Status::error(ErrorCode::ioError, "cannot allocate {} bytes of matmul scratch memory", bytes);
    perThread.push_back(memory);
  }
  return Status::success();
}

Status MatmulCache::finish() {
  size_t bytes = 0;
  bool anyWidened = false;
  for (const auto &[shape, matmul] : primitives) {
    bytes = std::max(bytes, matmul->scratchBytes);
    anyWidened |= matmul->widened != nullptr;
  }
  if (anyWidened)
    BRAID_TRY(allocate(widenedScratch, WidenedMatmul::scratchBytes));
  if (bytes == 0)
    return Status::success();
  BRAID_TRY(allocate(scratch, bytes));
  for (const auto &[shape, matmul] : primitives)
    for (size_t i = 0; matmul->scratchBytes && i < streams.size(); ++i)
      if (dnnl_memory_set_data_handle(matmul->threads[i].args[matmul->threads[i].count - 1].memory, scratch[i]) !=
          dnnl_success)
        return Status::error(ErrorCode::internal, "oneDNN refused its scratch memory");
  return Status::success();
}

} // namespace braid::runtime
