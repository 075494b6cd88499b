// A catalogue: one malformed program per rule of the file format, each with the sentence a person reads.
#include "test/runtime/TestProgram.h"

#include "runtime/schema/ProgramTrailer.h"

#include <functional>
#include <random>

using namespace braid::runtime;
using namespace braid::runtime::test;
namespace schema = braid::schema;

namespace {

// One of everything, and valid.
struct Sample : TestProgram {
  Sample() {
    addKernels();
    axis("dp", 2);
    axis("tp", 1);
    axis("edp", 1, true);
    axis("ep", 2, true);
    stream("dp", "dp");
    arena("parameters", 4096);
    arena("io", 4096);
    tensor("layers.{}.w", schema::DType::f32, {4, 8}, 0, 0, schema::Role::parameter, {0, 2});
    tensors[0]->shards.push_back(std::make_unique<schema::ShardT>());
    tensors[0]->shards[0]->axis = "tp";
    tensor("x", schema::DType::f32, {64}, 1, 0);
    auto &moment = tensor("layers.{}.w.first", schema::DType::f32, {4, 8}, 0, 1024, schema::Role::moment, {0, 2});
    moment.of = "layers.{}.w";
    moment.slot = "first";

    schema::GemmT gemm;
    gemm.m = 4, gemm.n = 8, gemm.k = 16;
    gemm.lda = 16, gemm.ldb = 8, gemm.ldc = 8;
    gemm.a = buffer(1, 0, 4 * 16 * 4);
    gemm.b = buffer(1, 0, 16 * 8 * 4);
    gemm.c = buffer(0, 0, 4 * 8 * 4);
    schema::GroupedGemmT grouped;
    grouped.groups = 2, grouped.max_rows = 8, grouped.n = 4, grouped.k = 4;
    grouped.lda = 4, grouped.ldb = 4, grouped.ldc = 4;
    grouped.a = buffer(1, 0, 128);
    grouped.b = buffer(1, 0, 128);
    grouped.c = buffer(0, 0, 128);
    grouped.offsets = buffer(1, 0, 12);
    auto exchange = collective(schema::CollectiveKind::all_to_all, "ep", buffer(0, 0, 256), buffer(0, 256, 256));
    exchange.block_bytes = 128;
    exchange.row_bytes = 32;
    exchange.counts_per_peer = 2;
    exchange.send_counts = buffer(1, 0, 16);
    exchange.recv_counts = buffer(1, 16, 16);
    entry("main",
          list(command(launch(addScaled, {8, 2, 2}, arg("x", buffer(1, 0, 128)), arg("y", buffer(1, 128, 128)),
                              arg("out", buffer(1, 256, 128)), arg("scale", 2.0)),
                       "first"),
               command(repeat(4, list(command(copy(buffer(0, 3072, 256, {-1024}), buffer(1, 0, 256, {256})), "move"),
                                      command(fill(buffer(1, 0, 16), 0))))),
               command(std::move(gemm), "project"), command(std::move(grouped), "experts"), command(recordEvent(0)),
               command(waitEvent(0), "", 1),
               command(collective(schema::CollectiveKind::all_reduce, "dp", buffer(0, 0, 256), buffer(0, 0, 256)),
                       "sum", 1),
               command(recordEvent(1), "", 1), command(waitEvent(1)), command(std::move(exchange), "dispatch")),
          2);
    entries[0]->inputs = {1};
    entries[0]->outputs = {0};
    auto pair = std::make_unique<schema::KeyValueT>();
    pair->key = "batch";
    pair->value = "4";
    metadata.push_back(std::move(pair));
  }

  // A valid tensor map of 'coordinates', which is for a GPU then.
  schema::TensorMapT &theMap() {
    target = "cuda";
    for (auto &kernel : kernels)
      kernel->threads = 32, kernel->image_bytes = code->bytes.size();
    kernels[coordinates]->params[0]->type = schema::DType::f32;
    auto &map = *kernels[coordinates]->maps.emplace_back(std::make_unique<schema::TensorMapT>());
    map.sizes = {-2, 32}, map.strides = {-2, 1}, map.box = {8, 32}; // -2: the value of 'base'
    return map;
  }

  // Its kernel says what it asks of launches: x is [4, 8], and a program takes two of its rows.
  schema::KernelT &theKernel() {
    schema::KernelT &kernel = *kernels[addScaled];
    kernel.params[0]->type = schema::DType::f32, kernel.params[0]->sizes = {-1, 8};
    kernel.params.push_back(std::make_unique<schema::ParamT>());
    kernel.params.back()->name = "x.dim0", kernel.params.back()->kind = schema::ParamKind::i64;
    theLaunch().args.push_back(arg("x.dim0", int64_t(4)));
    theLaunch().grid = {2, 1, 1};
    theBound(0, true).of = 0, kernel.bounds[0]->per = 2;
    return kernel;
  }
  schema::BoundT &theBound(uint32_t number, bool extent) {
    auto &bound = *kernels[addScaled]->bounds.emplace_back(std::make_unique<schema::BoundT>());
    bound.param = number, bound.extent = extent;
    return bound;
  }
  // Rows of x that do not follow each other.
  void theStride(int64_t stride) {
    theKernel().params[0]->strides = {-1, 1};
    kernels[addScaled]->params.push_back(std::make_unique<schema::ParamT>());
    kernels[addScaled]->params.back()->name = "x.stride0",
    kernels[addScaled]->params.back()->kind = schema::ParamKind::i64;
    theLaunch().args.push_back(arg("x.stride0", stride));
  }

  schema::CommandT &at(size_t i) { return *entries[0]->commands[i]; }
  schema::LaunchT &theLaunch() { return *at(0).body.AsLaunch(); }
  schema::CopyT &theCopy() { return *at(1).body.AsRepeat()->commands[0]->body.AsCopy(); }
  schema::GemmT &theGemm() { return *at(2).body.AsGemm(); }
  schema::GroupedGemmT &theGroupedGemm() { return *at(3).body.AsGroupedGemm(); }
  schema::CollectiveT &theSum() { return *at(6).body.AsCollective(); }
  schema::CollectiveT &theExchange() { return *at(9).body.AsCollective(); }
};

struct Case {
  const char *sentence;
  std::function<void(Sample &)> damage;
};

const Case cases[] = {
    // Tables
    {"program version 7; this runtime reads version 1", [](Sample &p) { p.version = 7; }},
    {"arena 'io' is declared twice", [](Sample &p) { p.arenas[0]->name = "io"; }},
    {"arena 'io': alignment 48 is not a power of two", [](Sample &p) { p.arenas[1]->align = 48; }},
    {"arena 'io': 9223372036854775808 bytes exceed the limit", [](Sample &p) { p.arenas[1]->bytes = 1ull << 63; }},
    {"mesh dense: axis 'dp' is declared twice", [](Sample &p) { p.axis("dp", 2); }},
    {"mesh dense: axis 'dp' has size 0", [](Sample &p) { p.mesh->dense[0]->size = 0; }},
    {"mesh dense: more than 1048576 ranks", [](Sample &p) { p.mesh->dense[0]->size = 4000000000; }},
    {"mesh dense: 'a*b' cannot be an axis name", [](Sample &p) { p.axis("a*b", 1); }},
    {"the dense mesh has 2 ranks but the expert mesh has 6", [](Sample &p) { p.mesh->expert[0]->size = 3; }},
    {"axis 'tp' has size 1 in the dense mesh but 2 in the expert mesh", [](Sample &p) { p.mesh->expert[1]->name = "tp"; }},
    {"tensor 'x' is declared twice", [](Sample &p) { p.tensor("x", schema::DType::f32, {1}, 1, 0); }},
    {"tensor 'coordinate.sp': the mesh has no axis 'sp'", [](Sample &p) { p.tensor("coordinate.sp", schema::DType::i32, {1}, 1, 0, schema::Role::input); }},
    {"tensor 'f/coordinate.dp' is i64 [1], but a coordinate is i32 [1]", [](Sample &p) { p.tensor("f/coordinate.dp", schema::DType::i64, {1}, 1, 0, schema::Role::input); }},
    {"tensor 'x': unknown dtype 77", [](Sample &p) { p.tensors[1]->dtype = static_cast<schema::DType>(77); }},
    {"tensor 'x': unknown role 9", [](Sample &p) { p.tensors[1]->role = static_cast<schema::Role>(9); }},
    {"tensor 'x': arena 2 of 2", [](Sample &p) { p.tensors[1]->arena = 2; }},
    {"tensor 'x': negative extent -64", [](Sample &p) { p.tensors[1]->shape[0] = -64; }},
    {"tensor 'x': its shape is larger than any arena", [](Sample &p) { p.tensors[1]->shape = {1 << 30, 1 << 30, 1 << 30, 16}; }},
    {"tensor 'x': its shape needs 256 bytes but it declares 255", [](Sample &p) { p.tensors[1]->bytes = 255; }},
    {"tensor 'x': bytes [4000, 4000 + 256) leave arena 'io' of 4096 bytes", [](Sample &p) { p.tensors[1]->offset = 4000; }},
    {"tensor 'x': bytes [18446744073709551612, ", [](Sample &p) { p.tensors[1]->offset = UINT64_MAX - 3; }},
    {"tensor 'x': offset 2 is not a multiple of its element size 4", [](Sample &p) { p.tensors[1]->offset = 2; }},
    {"tensor 'x{}': 0 layers, so its name must not hold {}", [](Sample &p) { p.tensors[1]->name = "x{}"; }},
    {"tensor 'w': 2 layers, so its name must hold {}", [](Sample &p) { p.tensors[0]->name = "w"; }},
    {"tensor 'layers.{}.w': layer 2 is negative or listed twice", [](Sample &p) { p.tensors[0]->layers = {2, 2}; }},
    {"tensor 'layers.{}.w': shard of dimension 2 of 2", [](Sample &p) { p.tensors[0]->shards[0]->dim = 2; }},
    {"tensor 'layers.{}.w': the mesh has no axis 'pp'", [](Sample &p) { p.tensors[0]->shards[0]->axis = "pp"; }},
    {"tensor 'x': shape [64] has no rows for positions, which its slot says",
     [](Sample &p) { p.tensors[1]->role = schema::Role::cache, p.tensors[1]->slot = "positions"; }},
    {"moment slot 'third' is none of first, second, low, master", [](Sample &p) { p.tensors[2]->slot = "third"; }},
    {"the master of 'layers.{}.w' (f32 ", [](Sample &p) { p.tensors[2]->slot = "master"; }},
    {"but the low of 'layers.{}.w' (f32 ", [](Sample &p) { p.tensors[2]->slot = "low"; }},
    {"tensor 'layers.{}.w.first': 'layers.{}.w' has no second moment in f32 or bf16 that is cut as this is",
     [](Sample &p) {
       for (auto i : {0, 2}) // of two bytes an element, and whole
         p.tensors[i]->bytes /= 2, p.tensors[i]->shards.clear();
       p.tensors[0]->dtype = schema::DType::bf16, p.tensors[2]->dtype = schema::DType::i16, p.tensors[2]->slot = "low";
     }},
    {"tensor 'layers.{}.w.first' belongs to 'v', which does not exist", [](Sample &p) { p.tensors[2]->of = "v"; }},
    {"kernel 'ranges' is declared twice", [](Sample &p) { p.kernels[0]->name = "ranges"; }},
    {"kernel 'add_scaled': parameter 'x' is declared twice", [](Sample &p) { p.kernels[0]->params[1]->name = "x"; }},
    {"kernel 'add_scaled': parameter 'x' has unknown kind 9", [](Sample &p) { p.kernels[0]->params[0]->kind = static_cast<schema::ParamKind>(9); }},
    {"kernel 'add_scaled': parameter 'x' names 2 axes but has 1 sizes",
     [](Sample &p) { p.kernels[0]->params[0]->axes = {"row", "token"}, p.kernels[0]->params[0]->sizes = {4}; }},
    {"kernel 'add_scaled': its image, 0 bytes at 0, is not within", [](Sample &p) { p.target = "cuda"; }},
    {"kernel 'add_scaled': 0 threads; a block has 1 to 1024",
     [](Sample &p) { p.target = "cuda", p.kernels[0]->image_bytes = 1; }},
    {"kernel 'add_scaled': clusters of 9 blocks; valid: 1 to 8",
     [](Sample &p) { p.target = "cuda", p.kernels[0]->image_bytes = 1, p.kernels[0]->threads = 32, p.kernels[0]->cluster = 9; }},
    {"kernel 'add_scaled': 1073741825 bytes of scratch; a block has at most 1073741824",
     [](Sample &p) { p.kernels[0]->scratch_bytes = (1 << 30) + 1; }},
    {"kernel 'coordinates': 1 tensor maps, but target cpu has none; valid: cuda",
     [](Sample &p) { p.theMap(), p.target = "cpu"; }},
    {"kernel 'coordinates': 7 slots and 31 tensor maps take 4224 bytes of parameters; a launch has at most 4096",
     [](Sample &p) { for (int i = 0; i < 31; ++i) p.theMap(); }},
    {"kernel 'coordinates': 513 slots and 0 tensor maps take 4104 bytes of parameters; a launch has at most 4096",
     [](Sample &p) {
       p.theMap(), p.kernels[coordinates]->maps.clear();
       auto &params = p.kernels[coordinates]->params;
       while (params.size() < 509)
         (params.emplace_back(std::make_unique<schema::ParamT>()))->name = fmt::format("more{}", params.size());
     }},
    {"kernel 'coordinates': tensor map 1: parameter 3 of 3", [](Sample &p) { p.theMap(), p.theMap().param = 3; }},
    {"kernel 'coordinates': tensor map 0: parameter 'base' is no pointer", [](Sample &p) { p.theMap().param = 1; }},
    {"tensor map 0: parameter 'out' has elements of type f64, but bulk copies bring bf16 or f32",
     [](Sample &p) { p.theMap(), p.kernels[coordinates]->params[0]->type = schema::DType::f64; }},
    {"tensor map 0: parameter 'out' has elements of type unknown, but",
     [](Sample &p) { p.theMap(), p.kernels[coordinates]->params[0]->type = static_cast<schema::DType>(77); }},
    {"tensor map 0: 'out' has 3 sizes, 2 strides and 2 extents of a box", [](Sample &p) { p.theMap().sizes = {2, 2, 32}; }},
    {"tensor map 0: 'out' has 2 sizes, 1 strides and 2 extents of a box", [](Sample &p) { p.theMap().strides = {1}; }},
    {"tensor map 0: 'out' has 2 sizes, 2 strides and 1 extents of a box", [](Sample &p) { p.theMap().box = {32}; }},
    {"tensor map 0: 'out' has 0 dimensions; valid: 1 to 5",
     [](Sample &p) { auto &map = p.theMap(); map.sizes = {}, map.strides = {}, map.box = {}; }},
    {"tensor map 0: 'out' has 6 dimensions; valid: 1 to 5",
     [](Sample &p) { auto &map = p.theMap(); map.sizes.resize(6), map.strides.resize(6), map.box.resize(6); }},
    {"tensor map 0: a size of 'out' is that in parameter 3 of 3", [](Sample &p) { p.theMap().sizes[0] = -4; }},
    {"tensor map 0: a stride of 'out' is that in parameter 9223372036854775807 of 3",
     [](Sample &p) { p.theMap().strides[0] = INT64_MIN; }},
    {"tensor map 0: a size of 'out' is that in parameter 'gain', which is no i64",
     [](Sample &p) { p.theMap().sizes[1] = -3; }},
    {"tensor map 0: a stride of 'out' is that in parameter 'out', which is no i64",
     [](Sample &p) { p.theMap().strides[0] = -1; }},
    {"tensor map 0: the last stride of 'out' is 2, not 1", [](Sample &p) { p.theMap().strides[1] = 2; }},
    {"tensor map 0: the last stride of 'out' is -2, not 1", [](Sample &p) { p.theMap().strides[1] = -2; }},
    {"tensor map 0: a box of 'out' has 0 elements in a dimension; valid: 1 to 256",
     [](Sample &p) { p.theMap().box[0] = 0; }},
    {"tensor map 0: a box of 'out' has 257 elements in a dimension; valid: 1 to 256",
     [](Sample &p) { p.theMap().box[0] = 257; }},
    {"tensor map 0: a row of the box of 'out' has 256 bytes; valid: 128, 64, 32",
     [](Sample &p) { p.theMap().box[1] = 64; }},
    {"tensor map 0: a row of the box of 'out' has 16 bytes; valid: 128, 64, 32",
     [](Sample &p) { p.theMap().box[1] = 4; }},
    {"kernel 'add_scaled': parameter 'x' has elements of unknown type 77",
     [](Sample &p) { p.theKernel().params[0]->type = static_cast<schema::DType>(77); }},
    {"kernel 'add_scaled': parameter 'scale' has sizes, but is no pointer", [](Sample &p) { p.theKernel().params[3]->sizes = {4}; }},
    {"kernel 'add_scaled': parameter 'y': dim0 is -1, and no i64 parameter 'y.dim0' gives it", [](Sample &p) { p.theKernel().params[1]->sizes = {-1}; }},
    {"kernel 'add_scaled': parameter 'x': dim0 is -2, and no", [](Sample &p) { p.theKernel().params[0]->sizes[0] = -2; }},
    {"kernel 'add_scaled': parameter 'x' has 2 sizes but 1 strides", [](Sample &p) { p.theKernel().params[0]->strides = {8}; }},
    {"kernel 'add_scaled': bound 1 is of parameter 5 of 5", [](Sample &p) { p.theKernel(), p.theBound(5, false); }},
    {"kernel 'add_scaled': bound 1 is of extent 3 of 3", [](Sample &p) { p.theKernel(), p.theBound(3, true); }},
    {"kernel 'add_scaled': bound 1 is of parameter 'scale', which is no i64", [](Sample &p) { p.theKernel(), p.theBound(3, false); }},
    {"kernel 'add_scaled': bound 0 is dimension 2 of parameter 0, which the kernel has not", [](Sample &p) { p.theKernel().bounds[0]->dim = 2; }},
    {"kernel 'add_scaled': bound 0 is dimension 0 of parameter 1, which the kernel has not", [](Sample &p) { p.theKernel().bounds[0]->of = 1; }},
    {"kernel 'add_scaled': bound 0: a size / 0 * 1; valid: 1 and more", [](Sample &p) { p.theKernel().bounds[0]->per = 0; }},
    {"kernel 'add_scaled': bound 0: a size / parameter 3, which is no i64 of the kernel", [](Sample &p) { p.theKernel().bounds[0]->per_param = 3; }},
    {"6 kernels but no code", [](Sample &p) { p.code.reset(); }},
    {"no streams: stream 0 must be compute", [](Sample &p) { p.streams.clear(); }},
    {"stream 0 'compute' must be compute, but has axis 'dp'", [](Sample &p) { p.streams[0]->axis = "dp"; }},
    {"stream 1 'dp': the mesh has no axis 'qp'", [](Sample &p) { p.streams[1]->axis = "qp"; }},
    {"stream 2 'more': axis 'dp' already has a stream", [](Sample &p) { p.stream("more", "dp"); }},
    {"entry 'main' is declared twice", [](Sample &p) { p.entry("main", {}); }},
    {"entry 'main': input tensor 3 of 3", [](Sample &p) { p.entries[0]->inputs = {3}; }},
    {"entry 'main': output tensor 9 of 3", [](Sample &p) { p.entries[0]->outputs = {9}; }},
    {"entry 'main': 4000000000 events exceed the limit", [](Sample &p) { p.entries[0]->events = 4000000000; }},
    // Commands
    {"entry 'main' command 0 'first': stream 2 of 2", [](Sample &p) { p.at(0).stream = 2; }},
    {"entry 'main' command 0 'first': unknown or missing command body (type 0)", [](Sample &p) { p.at(0).body.Reset(); }},
    {"command 0 'first': a launch must be on a stream that computes, not on stream 1 'dp'", [](Sample &p) { p.at(0).stream = 1; }},
    {"command 0 'first': only a launch right behind a launch can be joined to it", [](Sample &p) { p.at(0).joined = true; }},
    {"command 2 'project': only a launch right behind a launch can be joined to it", [](Sample &p) { p.at(2).joined = true; }},
    {"command 2 'project': a gemm must be on stream 0", [](Sample &p) { p.at(2).stream = 1; }},
    {"command 2 'project': a gemm must be on stream 0, not on stream 2 'beside'", [](Sample &p) { p.stream("beside", ""), p.at(2).stream = 2; }},
    {"command 6 'sum': a collective of axis 'dp' on stream 2 of axis ''", [](Sample &p) { p.stream("beside", ""), p.at(6).stream = 2; }},
    {"command 3 'experts': a grouped_gemm must be on stream 0", [](Sample &p) { p.at(3).stream = 1; }},
    {"command 0 'first': kernel 6 of 6", [](Sample &p) { p.theLaunch().kernel = 6; }},
    {"command 0 'first' (kernel 'add_scaled'): a grid has 3 extents, not 2", [](Sample &p) { p.theLaunch().grid.pop_back(); }},
    {"grid extent 18446744073709551615 exceeds", [](Sample &p) { p.theLaunch().grid[2] = UINT64_MAX; }},
    {"the grid has more than 1099511627776 programs", [](Sample &p) { p.theLaunch().grid = {1 << 20, 1 << 20, 2}; }},
    {"the kernel has no parameter 'z'", [](Sample &p) { p.theLaunch().args[0]->name = "z"; }},
    {"argument 'x' is given twice", [](Sample &p) { p.theLaunch().args[1]->name = "x"; }},
    {"parameter 'x' has no argument (3 arguments for 4 parameters)", [](Sample &p) { p.theLaunch().args.erase(p.theLaunch().args.begin()); }},
    {"argument 'x' is a I64Value but the parameter is of kind pointer", [](Sample &p) { p.theLaunch().args[0] = arg("x", int64_t(1)); }},
    {"argument 'scale' is a BufferValue but the parameter is of kind f32", [](Sample &p) { p.theLaunch().args[3] = arg("scale", buffer(0, 0, 4)); }},
    {"argument 'x' has no value", [](Sample &p) { p.theLaunch().args[0]->value.Reset(); }},
    {"buffer 'x': arena 5 of 2", [](Sample &p) { p.theLaunch().args[0] = arg("x", buffer(5, 0, 4)); }},
    {"buffer 'x': 8 bytes at offset 5000 leave arena 'io' of 4096 bytes", [](Sample &p) { p.theLaunch().args[0] = arg("x", buffer(1, 5000, 8)); }},
    {"buffer 'x': its repeats reach byte 4100 of arena 'io', which has 4096", [](Sample &p) { p.theLaunch().args[0] = arg("x", buffer(1, 4000, 100)); }},
    {"(kernel 'add_scaled'): its grid has no programs, but 128 bytes are written by it", [](Sample &p) { p.theLaunch().grid = {0, 1, 1}; }},
    {"(kernel 'add_scaled'): its grid has 1048577 programs, but they write 128 bytes", [](Sample &p) { p.theLaunch().grid = {1048577, 1, 1}; }},
    {"(kernel 'add_scaled'): argument 'x' of 5x8 f32 needs 160 bytes but its buffer has 128", [](Sample &p) { p.theKernel(), p.theLaunch().args[4] = arg("x.dim0", int64_t(5)); }},
    {"argument 'x' of 4x8 f32 needs 128 bytes but its buffer has 124", [](Sample &p) { p.theKernel(), p.theLaunch().args[0] = arg("x", buffer(1, 0, 124)); }},
    {"argument 'x' of 3x8 f32 needs 96 bytes but its buffer has 128",
     [](Sample &p) { p.theKernel().params[0]->exact = true, p.theLaunch().args[4] = arg("x.dim0", int64_t(3)); }},
    {"(kernel 'add_scaled'): buffer 'x': offset, strides or arena alignment is not a multiple of the element size 4",
     [](Sample &p) { p.theKernel(), p.theLaunch().args[0] = arg("x", buffer(1, 1, 128)); }},
    {"argument 'x' of 9223372036854775807x8 f32 needs 4503599627370500 bytes", [](Sample &p) { p.theKernel(), p.theLaunch().args[4] = arg("x.dim0", INT64_MAX); }},
    {"argument 'x.dim0' is -1; a size is not negative", [](Sample &p) { p.theKernel(), p.theLaunch().args[4] = arg("x.dim0", int64_t(-1)); }},
    {"argument 'x' of 4x8 f32 needs 140 bytes but its buffer has 128", [](Sample &p) { p.theStride(9); }},
    {"argument 'x.stride0' is -9; a stride is not negative", [](Sample &p) { p.theStride(-9); }},
    {"extent 0 of its grid is 3, but 'x' has size 4 in dimension 0, of which the kernel takes 2 at a time, so at most 2", [](Sample &p) { p.theKernel(), p.theLaunch().grid[0] = 3; }},
    {"extent 0 of its grid is 2, but 'x' has size 4 in dimension 0, of which the kernel takes 8 at a time, so at most 1", [](Sample &p) { p.theKernel().bounds[0]->per_param = 4; }},
    {"extent 0 of its grid is 1, but 'x' has size 4 in dimension 0, of which the kernel takes 2 at a time, so 2", [](Sample &p) { p.theKernel().bounds[0]->whole = true, p.theLaunch().grid[0] = 1; }},
    {"extent 1 of its grid is 2, but the kernel takes at most 1", [](Sample &p) { p.theKernel(), p.theBound(1, true).most = 1, p.theLaunch().grid[1] = 2; }},
    {"argument 'x.dim0' is 4, but the kernel takes 5 and more", [](Sample &p) { p.theKernel(), p.theBound(4, false).least = 5; }},
    {"argument 'x.dim0' is 4, but 'x' has size 8 in dimension 1, of which the kernel takes 3 at a time, so at most 3",
     [](Sample &p) { p.theKernel(); auto &bound = p.theBound(4, false); bound.of = 0, bound.dim = 1, bound.per = 3; }},
    {"command 0 'first': micro-batch -2; valid: 0 on, or -1 for none", [](Sample &p) { p.at(0).micro_batch = -2; }},
    {"command 0 'first': 2 layers, but not as many iterations of its 0 enclosing repeats", [](Sample &p) { p.at(0).layers = {0, 1}; }},
    {"command 1.0 'move': 3 layers, but not as many iterations of its 1 enclosing repeats", [](Sample &p) { p.at(1).body.AsRepeat()->commands[0]->layers = {0, 1, 2}; }},
    {"buffer 'x': 1 strides but 0 enclosing repeats", [](Sample &p) { p.theLaunch().args[0] = arg("x", buffer(1, 0, 4, {8})); }},
    {"command 1.0 'move': buffer 'source': its repeats reach 256 bytes before arena 'parameters'", [](Sample &p) { p.theCopy().source->offset = 2816; }},
    {"command 1.0 'move': buffer 'target': its repeats reach byte 5632 of arena 'io', which has 4096", [](Sample &p) { p.theCopy().target->strides = {1792}; }},
    {"its repeats reach 18446744073709551615 bytes before", [](Sample &p) { p.theCopy().source->strides = {INT64_MIN}; }},
    {"its repeats reach byte 18446744073709551615", [](Sample &p) { p.theCopy().target->strides = {INT64_MAX}; }},
    {"command 1.0 'move': copy of 256 bytes to 128 bytes", [](Sample &p) { p.theCopy().target->bytes = 128; }},
    {"command 1: repeat count -1, allowed is 0 to", [](Sample &p) { p.at(1).body.AsRepeat()->count = -1; }},
    {"repeats nest deeper than 8",
     [](Sample &p) {
       for (int i = 0; i < 9; ++i)
         p.entries[0]->commands = list(command(repeat(1, std::move(p.entries[0]->commands))));
     }},
    {"command 2 'project': m is -1, allowed is 0 to", [](Sample &p) { p.theGemm().m = -1; }},
    {"command 2 'project': k is 4611686018427387904, allowed is 0", [](Sample &p) { p.theGemm().k = int64_t(1) << 62; }},
    {"command 2 'project': lda is 15 but a row of 'a' has 16 elements", [](Sample &p) { p.theGemm().lda = 15; }},
    {"'b' (16 x 8, ld 9, batch 1) needs 572 bytes but its buffer has 512", [](Sample &p) { p.theGemm().ldb = 9; }},
    {"lda is 16 but a row of 'a' has", [](Sample &p) { p.theGemm().transpose_a = true; p.theGemm().m = 17; }},
    {"batch_stride_c is 4, so the 2 results of 8 columns overlap", [](Sample &p) { p.theGemm().batch = 2; p.theGemm().batch_stride_c = 4; p.theGemm().c->bytes = 512; }},
    {"batch_stride_a is -1, allowed is 0", [](Sample &p) { p.theGemm().batch_stride_a = -1; }},
    {"buffer 'a': unknown dtype 8", [](Sample &p) { p.theGemm().type_a = static_cast<schema::DType>(8); }},
    {"buffer 'a': offset, strides or arena alignment is not a multiple of the element size 4", [](Sample &p) { p.theGemm().a->offset = 2; }},
    {"command 2 'project': adds an addend and accumulates", [](Sample &p) { p.theGemm().addend = buffer(1, 0, 128); p.theGemm().accumulate = true; }},
    {"'addend' is bf16 but C is f32; valid: that type or f32", [](Sample &p) { p.theGemm().addend = buffer(1, 0, 128); p.theGemm().type_addend = schema::DType::bf16; }},
    {"'addend' (4 x 8, ld 8, batch 1) needs 128 bytes but its buffer has 64", [](Sample &p) { p.theGemm().addend = buffer(1, 0, 64); }},
    {"command 2 'project': k is 0, allowed is 1", [](Sample &p) { p.theGemm().addend = buffer(1, 0, 128); p.theGemm().k = 0; }},
    {"command 3 'experts': 'addend' (8 x 4, ld 4, batch 1) needs 128 bytes but its buffer has 64", [](Sample &p) { p.theGroupedGemm().addend = buffer(1, 0, 64); }},
    {"an addend has no meaning for kind weight", [](Sample &p) { p.theGroupedGemm().kind = schema::GroupedKind::weight; p.theGroupedGemm().m = 4; p.theGroupedGemm().addend = buffer(1, 0, 128); }},
    {"command 3 'experts': groups is 0, allowed is 1", [](Sample &p) { p.theGroupedGemm().groups = 0; }},
    {"unknown kind 5 of grouped_gemm", [](Sample &p) { p.theGroupedGemm().kind = static_cast<schema::GroupedKind>(5); }},
    {"'offsets' of 2 groups needs 12 bytes but its buffer has 8", [](Sample &p) { p.theGroupedGemm().offsets->bytes = 8; }},
    {"'b' (4 x 4, ld 4, batch 3) needs 192 bytes but its buffer has 128", [](Sample &p) { p.theGroupedGemm().groups = 3; p.theGroupedGemm().offsets->bytes = 16; }},
    {"'a' (9 x 4, ld 4, batch 1) needs 144 bytes but its buffer has 128", [](Sample &p) { p.theGroupedGemm().max_rows = 9; }},
    {"transpose_b has no meaning for kind weight", [](Sample &p) { p.theGroupedGemm().kind = schema::GroupedKind::weight; p.theGroupedGemm().m = 4; p.theGroupedGemm().transpose_b = true; }},
    {"'b' of 4 rows with ld -4611686018427387904 is out of range", [](Sample &p) { p.theGroupedGemm().ldb = INT64_MIN / 2; }},
    {"command 6 'sum': the mesh has no axis 'sp'", [](Sample &p) { p.theSum().axis = "sp"; }},
    {"a collective of axis 'ep' on stream 1 of axis 'dp'", [](Sample &p) { p.theSum().axis = "ep"; }},
    {"unknown kind 6 of collective", [](Sample &p) { p.theSum().kind = static_cast<schema::CollectiveKind>(6); }},
    {"all_reduce over 2 ranks of 'dp': 'recv' has 128 bytes, expected 256", [](Sample &p) { p.theSum().recv->bytes = 128; }},
    {"all_gather over 2 ranks of 'dp': 'recv' has 256 bytes, expected 512", [](Sample &p) { p.theSum().kind = schema::CollectiveKind::all_gather; }},
    {"reduce_scatter over 2 ranks of 'dp': 'send' has 256 bytes, expected 512", [](Sample &p) { p.theSum().kind = schema::CollectiveKind::reduce_scatter; }},
    {"shift over 2 ranks of 'dp': 'recv' has 128 bytes, expected 256", [](Sample &p) { p.theSum().kind = schema::CollectiveKind::shift; p.theSum().recv->bytes = 128; }},
    {"command 6 'sum': cyclic, reverse and distance belong to shift, not to all_reduce", [](Sample &p) { p.theSum().reverse = true; }},
    {"no sum over u8", [](Sample &p) { p.theSum().dtype = schema::DType::u8; }},
    {"no sum over i16", [](Sample &p) { p.theSum().dtype = schema::DType::i16; }},
    {"254 bytes are not whole elements of f32", [](Sample &p) { p.theSum().send->bytes = p.theSum().recv->bytes = 254; }},
    {"all_to_all: 2 blocks of 129 bytes exceed 'send' (256 bytes) or 'recv' (256 bytes)", [](Sample &p) { p.theExchange().block_bytes = 129; }},
    {"all_to_all has only one of send_counts and recv_counts", [](Sample &p) { p.theExchange().recv_counts.reset(); }},
    {"all_to_all with counts needs counts_per_peer (2) and row_bytes (0)", [](Sample &p) { p.theExchange().row_bytes = 0; }},
    {"'recv_counts' needs 16 bytes but its buffer has 12", [](Sample &p) { p.theExchange().recv_counts->bytes = 12; }},
    {"command 4: event 2 of 2", [](Sample &p) { p.at(4).body.AsRecord()->event = 2; }},
    {"command 8: event 7 of 2", [](Sample &p) { p.at(8).body.AsWait()->event = 7; }},
    {"command 7: event 0 is recorded on stream 0 and on stream 1", [](Sample &p) { p.at(7).body.AsRecord()->event = 0; }},
    {"command 8: event 1 is never recorded", [](Sample &p) { p.at(7).body.AsRecord()->event = 0; p.at(7).stream = 0; }},
    // Code
    {"code 'kernels.so': its SHA-256 is ", [](Sample &p) { p.code->bytes[1000] ^= 1; }},
};

} // namespace

TEST(Program, ReadsTables) {
  Sample sample;
  auto loaded = sample.parse();
  ASSERT_TRUE(loaded) << loaded.message();
  const Program &program = **loaded;
  EXPECT_EQ(program.name(), "test");
  EXPECT_EQ(program.entries()[0].commands, 12u);
  EXPECT_EQ(*program.metadata("batch"), "4");
  EXPECT_FALSE(program.metadata("none"));
  EXPECT_EQ(program.mesh().worldSize(), 2u);
  const TensorInfo *w = program.findTensor("layers.{}.w");
  ASSERT_TRUE(w);
  EXPECT_EQ(w->layerName(1), "layers.2.w");
  EXPECT_EQ(w->layerBytes(), 128u);
  EXPECT_EQ(w->layerElements(), 32);
  EXPECT_EQ(program.findCompanion("layers.{}.w", Role::moment, "first"), program.findTensor("layers.{}.w.first"));
  EXPECT_EQ(program.findCompanion("layers.{}.w", Role::gradient), nullptr);
  EXPECT_EQ(program.findEntry("other"), nullptr);
}

TEST(Program, RefusesEveryBrokenRule) {
  for (const Case &broken : cases) {
    Sample sample;
    broken.damage(sample);
    auto loaded = sample.parse();
    if (loaded) {
      ADD_FAILURE() << "accepted, expected: " << broken.sentence;
      continue;
    }
    EXPECT_NE(loaded.message().find(broken.sentence), std::string::npos)
        << "expected: " << broken.sentence << "\n     got: " << loaded.message();
    EXPECT_EQ(loaded.message().rfind("test.braid: ", 0), 0u) << loaded.message();
  }
}

// What the cases of launches damage is valid, and so is what touches no more than is there.
TEST(Program, LaunchesWithinWhatTheirKernelAsks) {
  auto accepted = [](auto &&change) {
    Sample sample;
    change(sample);
    return sample.parse().status().message();
  };
  EXPECT_EQ(accepted([](Sample &p) { p.theKernel(); }), "");
  EXPECT_EQ(accepted([](Sample &p) { p.theStride(8); }), "");
  EXPECT_EQ(accepted([](Sample &p) { p.theKernel(), p.theLaunch().args[4] = arg("x.dim0", int64_t(3)); }), "");
  EXPECT_EQ(accepted([](Sample &p) {
              p.theKernel().bounds[0]->times = 3; // ceil(4 / 2) * 3
              p.theLaunch().grid[0] = 6;
            }),
            "");
  EXPECT_EQ(accepted([](Sample &p) { // nothing is there, and nobody looks at it
              p.theKernel().bounds.clear();
              p.theLaunch().args[0] = arg("x", buffer(1, 0, 0)), p.theLaunch().args[4] = arg("x.dim0", int64_t(0));
            }),
            "");
}

TEST(Program, RefusesWhatIsNoProgram) {
  auto parse = [](std::vector<std::byte> bytes) { return Program::parse(std::move(bytes), "f").message(); };
  EXPECT_EQ(parse({}), "f: not a Braid program: 0 bytes");
  EXPECT_EQ(parse(std::vector<std::byte>(100)),
            "f: not a Braid program: the file identifier is not BRD1; braid-compile makes one of a model description");
  std::vector<std::byte> bytes = Sample().bytes();
  std::vector<std::byte> half(bytes.begin(), bytes.begin() + bytes.size() / 2);
  EXPECT_EQ(parse(half), fmt::format("f: the file of {} bytes does not end with its content hash: it is truncated, or "
                                     "was written by an older braid-compile",
                                     half.size()));
  Program::seal(half);
  EXPECT_EQ(parse(half), "f: the file is damaged (flatbuffer verification failed)");
  std::vector<std::byte> hole = bytes;
  hole.erase(hole.begin() + 20);
  EXPECT_EQ(parse(hole),
            fmt::format("f: the file is damaged: it has {} bytes, but was written with {}", hole.size(), bytes.size()));
  EXPECT_EQ(Program::load("/does/not/exist.braid").message(), "/does/not/exist.braid: No such file or directory");
  EXPECT_EQ(Program::load("/").status().code(), ErrorCode::ioError);
}

// Any changed bit is found, wherever it is.
TEST(Program, FindsEveryFlippedBit) {
  const std::vector<std::byte> good = Sample().bytes();
  for (size_t i = 0; i < good.size(); i += 7) {
    std::vector<std::byte> bad = good;
    bad[i] ^= static_cast<std::byte>(1 << i % 8);
    EXPECT_EQ(Program::parse(std::move(bad), "f").status().code(), ErrorCode::corruptFile) << "byte " << i;
  }
}

// A vector of 8-byte numbers that begins 4 bytes too early: found by fuzzing, nothing but a sanitizer would notice.
TEST(Program, RefusesNumbersThatAreNotAligned) {
  std::vector<std::byte> bytes = Sample().bytes();
  bytes.resize(bytes.size() - schema::ProgramTrailer::bytes);
  auto *begin = reinterpret_cast<uint8_t *>(bytes.data());
  const auto *shape = schema::GetProgram(begin)->tensors()->Get(0)->shape();
  auto vector = static_cast<size_t>(reinterpret_cast<const uint8_t *>(shape) - begin);
  int moved = 0;
  for (size_t at = 0; at + 4 <= vector; at += 4) // the offset that leads to it
    if (flatbuffers::ReadScalar<uint32_t>(begin + at) == vector - at) {
      flatbuffers::WriteScalar<uint32_t>(begin + at, static_cast<uint32_t>(vector - at - 4));
      ++moved;
    }
  ASSERT_GE(moved, 1);
  flatbuffers::WriteScalar<uint32_t>(begin + vector - 4, 0); // the new length
  Program::seal(bytes);
  Status status = Program::parse(std::move(bytes), "f").status();
  EXPECT_NE(status.message().find("the numbers of its shape are not aligned"), std::string::npos) << status.message();
}

// Flipped bytes below a hash that fits are refused or harmless; the sanitizers see the rest. The code is left out: its
// hash would catch all.
TEST(Program, SurvivesRandomDamage) {
  Sample sample;
  sample.code->bytes.resize(16);
  sample.code->sha256 = sha256(std::as_bytes(std::span(sample.code->bytes)));
  std::vector<std::byte> good = sample.bytes();
  ASSERT_TRUE(Program::parse(good, "f"));
  good.resize(good.size() - schema::ProgramTrailer::bytes);
  std::mt19937 random(3);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bad = good;
    for (unsigned flips = 1 + random() % 4; flips-- > 0;)
      bad[random() % bad.size()] = static_cast<std::byte>(random() % 4 ? random() : random() % 2 * 255);
    Program::seal(bad);
    accepted += Program::parse(std::move(bad), "f").ok();
  }
  EXPECT_LT(accepted, 20000);
}
