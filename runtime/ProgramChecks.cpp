// Rules about the tables of a program. Commands are checked in CommandChecks.cpp.
#include "runtime/ProgramChecks.h"

#include "runtime/Sha256.h"
#include "runtime/io/Shape.h"
#include "runtime/schema/Limits.h"
#include "runtime/schema/Program_generated.h"

#include <algorithm>
#include <bit>
#include <unordered_set>

namespace braid::runtime {
namespace {

constexpr uint32_t maxWorldSize = 1 << 20;

using Names = std::unordered_set<std::string_view>;

Status checkArenas(const Program &program) {
  Names names;
  for (const ArenaInfo &arena : program.arenas()) {
    if (!program.owns(arena))
      continue;
    if (!names.insert(arena.name).second)
      return corrupt("arena '{}' is declared twice", arena.name);
    if (arena.bytes > maxArenaBytes)
      return corrupt("arena '{}': {} bytes exceed the limit of {}", arena.name, arena.bytes, maxArenaBytes);
    if (!std::has_single_bit(arena.align) || arena.align > (1u << 30))
      return corrupt("arena '{}': alignment {} is not a power of two up to {}", arena.name, arena.align, 1u << 30);
  }
  return Status::success();
}

// The product of the axes' sizes.
Expected<uint32_t> checkView(const std::vector<AxisInfo> &view, std::string_view viewName) {
  Names names;
  uint64_t world = 1;
  for (const AxisInfo &axis : view) {
    if (axis.name.empty() || axis.name.find_first_of("*[") != std::string::npos)
      return corrupt("mesh {}: '{}' cannot be an axis name", viewName, axis.name);
    if (!names.insert(axis.name).second)
      return corrupt("mesh {}: axis '{}' is declared twice", viewName, axis.name);
    if (axis.size == 0)
      return corrupt("mesh {}: axis '{}' has size 0", viewName, axis.name);
    world *= axis.size;
    if (world > maxWorldSize)
      return corrupt("mesh {}: more than {} ranks", viewName, maxWorldSize);
  }
  return static_cast<uint32_t>(world);
}

Status checkMesh(const MeshInfo &mesh) {
  BRAID_ASSIGN(uint32_t dense, checkView(mesh.dense, "dense"));
  BRAID_ASSIGN(uint32_t expert, checkView(mesh.expert, "expert"));
  if (!mesh.expert.empty() && dense != expert)
    return corrupt("the dense mesh has {} ranks but the expert mesh has {}", dense, expert);
  // An axis of both views (pp) must mean the same ranks.
  MeshInfo expertOnly{mesh.expert, {}};
  for (const AxisInfo &axis : mesh.dense)
    if (auto size = expertOnly.size(axis.name)) {
      if (*size != axis.size)
        return corrupt("axis '{}' has size {} in the dense mesh but {} in the expert mesh", axis.name, axis.size,
                       *size);
      if (*expertOnly.members(0, axis.name) != *mesh.members(0, axis.name))
        return corrupt("axis '{}' joins different ranks in the dense and the expert mesh", axis.name);
    }
  return Status::success();
}

Status checkAxis(const Program &program, const TensorInfo &tensor, std::string_view axis) {
  if (!program.mesh().size(axis))
    return corrupt("tensor '{}': the mesh has no axis '{}'", tensor.name, axis);
  if (axis.find('[') != std::string_view::npos)
    return corrupt("tensor '{}': '{}' is a pair of stages; valid: an axis that every rank is on", tensor.name, axis);
  return Status::success();
}

Status checkTensor(const Program &program, const TensorInfo &tensor) {
  if (tensor.dtype > DType::i16)
    return corrupt("tensor '{}': unknown dtype {}", tensor.name, static_cast<int>(tensor.dtype));
  if (tensor.role > Role::cache)
    return corrupt("tensor '{}': unknown role {}", tensor.name, static_cast<int>(tensor.role));
  unsigned __int128 bytes = sizeOf(tensor.dtype) * tensor.layerCount();
  for (int64_t extent : tensor.shape) {
    if (extent < 0)
      return corrupt("tensor '{}': negative extent {}", tensor.name, extent);
    bytes *= static_cast<uint64_t>(extent);
    if (bytes > maxArenaBytes)
      return corrupt("tensor '{}': its shape is larger than any arena", tensor.name);
  }
  if (bytes != tensor.bytes)
    return corrupt("tensor '{}': its shape needs {} bytes but it declares {}", tensor.name,
                   static_cast<uint64_t>(bytes), tensor.bytes);
  const ArenaInfo &arena = program.arenas()[tensor.arena];
  if (tensor.offset > arena.bytes || tensor.bytes > arena.bytes - tensor.offset)
    return corrupt("tensor '{}': bytes [{}, {} + {}) leave arena '{}' of {} bytes", tensor.name, tensor.offset,
                   tensor.offset, tensor.bytes, arena.name, arena.bytes);
  if (tensor.offset % sizeOf(tensor.dtype))
    return corrupt("tensor '{}': offset {} is not a multiple of its element size {}", tensor.name, tensor.offset,
                   sizeOf(tensor.dtype));
  bool hasBraces = tensor.name.find("{}") != std::string::npos;
  if (hasBraces != !tensor.layers.empty())
    return corrupt("tensor '{}': {} layers, so its name must {}hold {{}}", tensor.name, tensor.layers.size(),
                   hasBraces ? "not " : "");
  std::unordered_set<int32_t> layers;
  for (int32_t layer : tensor.layers)
    if (layer < 0 || !layers.insert(layer).second)
      return corrupt("tensor '{}': layer {} is negative or listed twice", tensor.name, layer);
  if (auto axis = tensor.coordinateAxis()) {
    BRAID_TRY(checkAxis(program, tensor, *axis));
    if (tensor.dtype != DType::i32 || tensor.bytes != sizeof(int32_t))
      return corrupt("tensor '{}' is {} {}, but a coordinate is i32 [1]", tensor.name, toString(tensor.dtype),
                     formatShape(tensor.shape));
  }
  for (const ShardInfo &shard : tensor.shards) {
    if (shard.dim >= tensor.shape.size())
      return corrupt("tensor '{}': shard of dimension {} of {}", tensor.name, shard.dim, tensor.shape.size());
    BRAID_TRY(checkAxis(program, tensor, shard.axis));
  }
  bool isLow = tensor.role == Role::moment && tensor.slot == "low";
  bool isMaster = tensor.role == Role::moment && tensor.slot == "master";
  if (tensor.role == Role::cache && tensor.slot == "positions" && (tensor.shape.size() < 2 || tensor.shape[1] < 1))
    return corrupt("tensor '{}': shape {} has no rows for positions, which its slot says", tensor.name,
                   formatShape(tensor.shape));
  if (tensor.role == Role::moment && tensor.slot != "first" && tensor.slot != "second" && !isLow && !isMaster)
    return corrupt("tensor '{}': moment slot '{}' is none of first, second, low, master", tensor.name, tensor.slot);
  if (tensor.role == Role::moment || !tensor.of.empty()) {
    // Two stacks may share a name ("layers.{}.norm1.weight" of two kinds of layers); the layers tell which is meant.
    const TensorInfo *parameter = nullptr;
    for (const TensorInfo &other : program.tensors())
      if (other.name == tensor.of && other.layers == tensor.layers)
        parameter = &other;
    if (!parameter)
      return corrupt("tensor '{}' belongs to '{}', which does not exist", tensor.name, tensor.of);
    // Ranks may share the master of a parameter that each of them holds whole: only the shapes over all ranks are
    // equal.
    std::vector<int64_t> own = globalShape(program, tensor), whole = globalShape(program, *parameter);
    if ((isMaster || isLow) && (parameter->role != Role::parameter || parameter->dtype != DType::bf16 ||
                                tensor.dtype != (isLow ? DType::i16 : DType::f32) || own != whole))
      return corrupt("tensor '{}' is {} {}, but the {} of '{}' ({} {}) must be {} and of a bf16 parameter's shape",
                     tensor.name, toString(tensor.dtype), formatShape(own), tensor.slot, parameter->name,
                     toString(parameter->dtype), formatShape(whole), isLow ? "i16" : "f32");
    // The sign of the second moment belongs to the master too.
    const TensorInfo *second = isLow ? program.momentOf(*parameter, "second") : nullptr;
    auto sameShard = [](const ShardInfo &a, const ShardInfo &b) { return a.dim == b.dim && a.axis == b.axis; };
    if (isLow &&
        (!second || (second->dtype != DType::f32 && second->dtype != DType::bf16) || second->shape != tensor.shape ||
         !std::equal(second->shards.begin(), second->shards.end(), tensor.shards.begin(), tensor.shards.end(),
                     sameShard)))
      return corrupt("tensor '{}': '{}' has no second moment in f32 or bf16 that is cut as this is", tensor.name,
                     parameter->name);
  }
  return Status::success();
}

Status checkTensors(const Program &program) {
  std::unordered_set<std::string> names; // as checkpoints see them, one per layer
  for (const TensorInfo &tensor : program.tensors()) {
    BRAID_TRY(checkTensor(program, tensor));
    if (tensor.layers.empty() && !names.insert(tensor.name).second)
      return corrupt("tensor '{}' is declared twice", tensor.name);
    for (size_t i = 0; i < tensor.layers.size(); ++i)
      if (!names.insert(tensor.layerName(i)).second)
        return corrupt("tensor '{}' is declared twice", tensor.layerName(i));
  }
  return Status::success();
}

// What the driver would refuse of any launch; the rest depends on its arguments (cuda/TensorMaps).
Status checkTensorMap(const schema::Kernel &kernel, const schema::TensorMap &map) {
  size_t params = kernel.params() ? kernel.params()->size() : 0;
  if (map.param() >= params)
    return corrupt("parameter {} of {}", map.param(), params);
  const schema::Param &param = *kernel.params()->Get(map.param());
  auto type = static_cast<DType>(param.type());
  if (param.kind() != schema::ParamKind::pointer)
    return corrupt("parameter '{}' is no pointer", param.name()->string_view());
  if (type != DType::bf16 && type != DType::f32)
    return corrupt("parameter '{}' has elements of type {}, but bulk copies bring bf16 or f32",
                   param.name()->string_view(), type > DType::i16 ? "unknown" : toString(type));
  size_t rank = map.sizes()->size();
  size_t strides = map.strides() ? map.strides()->size() : rank; // absent: row-major
  if (strides != rank || map.box()->size() != rank)
    return corrupt("'{}' has {} sizes, {} strides and {} extents of a box", param.name()->string_view(), rank, strides,
                   map.box()->size());
  if (constexpr size_t most = 5; rank == 0 || rank > most)
    return corrupt("'{}' has {} dimensions; valid: 1 to {}", param.name()->string_view(), rank, most);
  for (const auto *list : {map.sizes(), map.strides()}) {
    if (!list)
      continue;
    for (int64_t entry : *list) {
      const char *what = list == map.sizes() ? "size" : "stride";
      if (entry >= 0)
        continue;
      auto named = static_cast<uint64_t>(-1 - entry);
      if (named >= params)
        return corrupt("a {} of '{}' is that in parameter {} of {}", what, param.name()->string_view(), named, params);
      if (const auto *other = kernel.params()->Get(static_cast<uint32_t>(named));
          other->kind() != schema::ParamKind::i64)
        return corrupt("a {} of '{}' is that in parameter '{}', which is no i64", what, param.name()->string_view(),
                       other->name()->string_view());
    }
  }
  auto last = static_cast<uint32_t>(rank - 1);
  if (int64_t stride = map.strides() ? map.strides()->Get(last) : 1; stride != 1)
    return corrupt("the last stride of '{}' is {}, not 1", param.name()->string_view(), stride);
  for (uint32_t extent : *map.box())
    if (constexpr uint32_t most = 256; extent == 0 || extent > most)
      return corrupt("a box of '{}' has {} elements in a dimension; valid: 1 to {}", param.name()->string_view(),
                     extent, most);
  if (size_t row = map.box()->Get(last) * sizeOf(type); row != 128 && row != 64 && row != 32)
    return corrupt("a row of the box of '{}' has {} bytes; valid: 128, 64, 32", param.name()->string_view(), row);
  return Status::success();
}

Status checkTensorMaps(const Program &program, const schema::Kernel &kernel) {
  size_t maps = kernel.maps() ? kernel.maps()->size() : 0;
  if (maps > 0 && program.target() != "cuda")
    return corrupt("kernel '{}': {} tensor maps, but target {} has none; valid: cuda", kernel.name()->string_view(),
                   maps, program.target());
  for (uint32_t i = 0; i < maps; ++i)
    BRAID_TRY(checkTensorMap(kernel, *kernel.maps()->Get(i))
                  .withContext(fmt::format("kernel '{}': tensor map {}", kernel.name()->string_view(), i)));
  return Status::success();
}

Status checkParameterBytes(const Program &program, const schema::Kernel &kernel) {
  constexpr int64_t beside = 4; // those of the grid and of scratch
  int64_t slots = beside + (kernel.params() ? kernel.params()->size() : 0),
          maps = kernel.maps() ? kernel.maps()->size() : 0;
  if (int64_t bytes = parameterBytes(slots, maps); program.target() == "cuda" && bytes > maxParameterBytes)
    return corrupt("kernel '{}': {} slots and {} tensor maps take {} bytes of parameters; a launch has at most {}",
                   kernel.name()->string_view(), slots, maps, bytes, maxParameterBytes);
  return Status::success();
}

Status checkKernels(const Program &program) {
  Names kernels;
  for (const auto *kernel : *program.file().kernels()) {
    std::string_view name = kernel->name()->string_view();
    if (!kernels.insert(name).second)
      return corrupt("kernel '{}' is declared twice", name);
    // Sums could wrap: the end is compared by what is left.
    if (uint64_t size = program.code().size();
        program.target() == "cuda" && (kernel->image_bytes() == 0 || kernel->image_bytes() > size ||
                                       kernel->image_offset() > size - kernel->image_bytes()))
      return corrupt("kernel '{}': its image, {} bytes at {}, is not within the {} bytes of code", name,
                     kernel->image_bytes(), kernel->image_offset(), size);
    if (program.target() == "cuda" && (kernel->threads() == 0 || kernel->threads() > 1024))
      return corrupt("kernel '{}': {} threads; a block has 1 to 1024", name, kernel->threads());
    if (program.target() == "cuda" && (kernel->cluster() == 0 || kernel->cluster() > 8))
      return corrupt("kernel '{}': clusters of {} blocks; valid: 1 to 8", name, kernel->cluster());
    if (constexpr uint64_t most = 1 << 30; kernel->scratch_bytes() > most)
      return corrupt("kernel '{}': {} bytes of scratch; a block has at most {}", name, kernel->scratch_bytes(), most);
    Names params;
    if (kernel->params())
      for (const auto *param : *kernel->params()) {
        if (!params.insert(param->name()->string_view()).second)
          return corrupt("kernel '{}': parameter '{}' is declared twice", name, param->name()->string_view());
        if (param->kind() > schema::ParamKind::MAX)
          return corrupt("kernel '{}': parameter '{}' has unknown kind {}", name, param->name()->string_view(),
                         static_cast<int>(param->kind()));
        size_t axes = param->axes() ? param->axes()->size() : 0, sizes = param->sizes() ? param->sizes()->size() : 0;
        if (axes != sizes && axes > 0)
          return corrupt("kernel '{}': parameter '{}' names {} axes but has {} sizes", name,
                         param->name()->string_view(), axes, sizes);
      }
    BRAID_TRY(checkTensorMaps(program, *kernel));
    BRAID_TRY(checkParameterBytes(program, *kernel));
    BRAID_TRY(LaunchRules().read(*kernel).withContext(fmt::format("kernel '{}'", name)));
  }
  if (!kernels.empty() && !program.file().code())
    return corrupt("{} kernels but no code", kernels.size());
  return Status::success();
}

Status checkStreams(const Program &program) {
  if (program.streams().empty())
    return corrupt("no streams: stream 0 must be compute");
  if (!program.streams()[0].axis.empty())
    return corrupt("stream 0 '{}' must be compute, but has axis '{}'", program.streams()[0].name,
                   program.streams()[0].axis);
  Names axes;
  for (size_t i = 1; i < program.streams().size(); ++i) {
    const StreamInfo &stream = program.streams()[i];
    if (stream.axis.empty())
      continue; // computes beside stream 0
    if (!program.mesh().size(stream.axis))
      return corrupt("stream {} '{}': the mesh has no axis '{}'", i, stream.name, stream.axis);
    if (!axes.insert(stream.axis).second)
      return corrupt("stream {} '{}': axis '{}' already has a stream", i, stream.name, stream.axis);
  }
  return Status::success();
}

Status checkEntries(const Program &program) {
  Names names;
  for (const EntryInfo &entry : program.entries()) {
    if (!names.insert(entry.name).second)
      return corrupt("entry '{}' is declared twice", entry.name);
    if (entry.events > (1u << 20))
      return corrupt("entry '{}': {} events exceed the limit of {}", entry.name, entry.events, 1u << 20);
  }
  return Status::success();
}

} // namespace

// Of the logical tensor that the ranks' pieces make up; its own shards have been checked. Of a file that makes no sense
// the sizes saturate.
std::vector<int64_t> globalShape(const Program &program, const TensorInfo &tensor) {
  std::vector<int64_t> shape = tensor.shape;
  for (const ShardInfo &shard : tensor.shards)
    if (shard.dim < shape.size() &&
        __builtin_mul_overflow(shape[shard.dim], program.mesh().size(shard.axis).value_or(1), &shape[shard.dim]))
      shape[shard.dim] = INT64_MAX;
  return shape;
}

Status checkTables(const Program &program) {
  BRAID_TRY(checkArenas(program));
  if (program.ownStage() == 0)
    BRAID_TRY(checkMesh(program.mesh()));
  BRAID_TRY(checkTensors(program));
  if (program.ownStage() == 0) {
    BRAID_TRY(checkKernels(program));
    BRAID_TRY(checkStreams(program));
  }
  return checkEntries(program);
}

Status checkCode(const Program &program) {
  if (!program.file().code())
    return Status::success();
  std::string hash = sha256(program.code());
  if (hash != program.codeHash())
    return corrupt("code '{}': its SHA-256 is {} but the file declares {}", program.file().code()->name()->str(), hash,
                   program.codeHash());
  return Status::success();
}

} // namespace braid::runtime
