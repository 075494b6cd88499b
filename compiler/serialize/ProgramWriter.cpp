//===- ProgramWriter.cpp - phase `commands` -> the bytes of a program file ----------------------------------------===//
#include "compiler/serialize/ProgramWriter.h"

#include "compiler/serialize/KernelBounds.h"
#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/analysis/Mesh.h"
#include "passes/lower/KernelSignature.h"
#include "runtime/schema/Limits.h"
#include "runtime/schema/ProgramTrailer.h"
#include "runtime/schema/Program_generated.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;
using namespace braid;

namespace fb = flatbuffers;

namespace {

template <class T> using Offsets = std::vector<fb::Offset<T>>;

class Writer {
public:
  Writer(ModuleOp module, cmd::ProgramOp program, const ProgramParts &parts)
      : module(module), program(program), parts(parts) {}

  FailureOr<std::vector<uint8_t>> run() {
    FailureOr<Offsets<schema::Arena>> arenaTable = writeArenas();
    if (failed(arenaTable))
      return failure();
    auto streamTable = writeStreams();
    FailureOr<Offsets<schema::Tensor>> tensorTable = writeTensors();
    auto kernelTable = writeKernels();
    if (failed(tensorTable))
      return failure();
    Offsets<schema::Entry> entryTable;
    for (auto entry : program.getOps<cmd::EntryOp>()) {
      auto written = writeEntry(entry);
      if (failed(written))
        return failure();
      entryTable.push_back(*written);
    }
    fb::Offset<schema::Blob> code;
    llvm::ArrayRef<char> images = parts.kernels.empty() ? parts.code : llvm::ArrayRef(cubins);
    if (!images.empty()) {
      llvm::ArrayRef<uint8_t> bytes(reinterpret_cast<const uint8_t *>(images.data()), images.size());
      // Loaders map the code from the file: page alignment costs little.
      builder.ForceVectorAlignment(bytes.size(), 1, 16);
      auto vector = builder.CreateVector(bytes.data(), bytes.size());
      code = schema::CreateBlob(builder, builder.CreateString(parts.kernels.empty() ? "kernels.so" : "kernels.cubin"),
                                vector, string(llvm::toHex(llvm::SHA256::hash(bytes), /*LowerCase=*/true)));
    }
    std::vector<std::string> features = parts.cpuFeatures;
    llvm::sort(features);
    auto name = string(programName()), target = string(parts.target);
    auto cpu = builder.CreateVectorOfStrings(features);
    auto mesh = writeMesh();
    auto metadata = writeMetadata();
    auto arenas = builder.CreateVector(*arenaTable);
    auto tensors = builder.CreateVector(*tensorTable);
    auto kernels = builder.CreateVector(kernelTable);
    auto streams = builder.CreateVector(streamTable);
    auto entries = builder.CreateVector(entryTable);
    auto arch = parts.arch.empty() ? fb::Offset<fb::String>() : string(parts.arch);
    schema::ProgramBuilder root(builder);
    root.add_version(1);
    root.add_name(name);
    root.add_target(target);
    root.add_cpu_features(cpu);
    root.add_arenas(arenas);
    root.add_tensors(tensors);
    root.add_kernels(kernels);
    root.add_streams(streams);
    root.add_entries(entries);
    if (!code.IsNull())
      root.add_code(code);
    root.add_mesh(mesh);
    root.add_metadata(metadata);
    if (!arch.IsNull())
      root.add_arch(arch);
    root.add_cuda_driver(parts.cudaDriver);
    schema::FinishProgramBuffer(builder, root.Finish());
    return std::vector<uint8_t>(builder.GetBufferPointer(), builder.GetBufferPointer() + builder.GetSize());
  }

private:
  fb::Offset<fb::String> string(StringRef text) { return builder.CreateString(text.data(), text.size()); }

  std::string programName() {
    if (auto metadata = module->getAttrOfType<DictionaryAttr>(attrs::metadata))
      if (auto name = metadata.getAs<StringAttr>("model_name"))
        return name.str();
    return module.getSymName().value_or("program").str();
  }

  //===- Tables
  //----------------------------------------------------------------------------------------------------===//

  FailureOr<Offsets<schema::Arena>> writeArenas() {
    Offsets<schema::Arena> table;
    for (auto arena : program.getOps<cmd::ArenaOp>()) {
      if (static_cast<uint64_t>(arena.getBytes()) > maxArenaBytes)
        return arena.emitError("arena '")
                   << arena.getSymName() << "' of a rank has " << arena.getBytes() << " bytes; valid: at most "
                   << maxArenaBytes << ", with a smaller batch or sequence length, or more ranks",
               failure();
      arenas[arena.getSymName()] = table.size();
      std::optional<int64_t> stage = arena.getStage();
      stages[arena.getSymName()] = stage;
      table.push_back(schema::CreateArena(builder, string(unstagedName(arena.getSymName(), stage)), arena.getBytes(),
                                          arena.getAlign(), arena.getLowerBound().value_or(0),
                                          static_cast<int32_t>(stage.value_or(-1))));
    }
    return table;
  }

  Offsets<schema::Stream> writeStreams() {
    Offsets<schema::Stream> table;
    for (auto stream : program.getOps<cmd::StreamOp>()) {
      streams[stream.getSymName()] = table.size();
      auto axis = stream.getAxis() ? string(*stream.getAxis()) : fb::Offset<fb::String>();
      table.push_back(schema::CreateStream(builder, string(stream.getSymName()), axis));
    }
    return table;
  }

  FailureOr<Offsets<schema::Tensor>> writeTensors() {
    Offsets<schema::Tensor> table;
    for (auto tensor : program.getOps<cmd::TensorOp>()) {
      tensors[tensor.getName()] = table.size();
      auto type = cast<RankedTensorType>(tensor.getType());
      auto dtype = dtypeOf(tensor, type.getElementType());
      if (failed(dtype))
        return failure();
      Offsets<schema::Shard> shards;
      if (tensor.getShards())
        for (auto pair : tensor.getShards()->getAsRange<ArrayAttr>())
          shards.push_back(schema::CreateShard(builder, cast<IntegerAttr>(pair[0]).getInt(),
                                               string(cast<StringAttr>(pair[1]).getValue())));
      auto name = string(unstagedName(tensor.getName(), stages.lookup(tensor.getBuffer().getArena().getValue())));
      auto shape = builder.CreateVector(type.getShape().data(), type.getShape().size());
      ArrayRef<int32_t> layerList = tensor.getLayers().value_or(ArrayRef<int32_t>());
      auto layers = builder.CreateVector(layerList.data(), layerList.size());
      auto shardTable = builder.CreateVector(shards);
      auto of = tensor.getOf() ? string(*tensor.getOf()) : fb::Offset<fb::String>();
      auto slot = tensor.getSlot() ? string(*tensor.getSlot()) : fb::Offset<fb::String>();
      cmd::BufferAttr buffer = tensor.getBuffer();
      table.push_back(schema::CreateTensor(builder, name, static_cast<schema::Role>(tensor.getRole()), *dtype, shape,
                                           arenas.lookup(buffer.getArena().getValue()), buffer.getOffset(),
                                           buffer.getBytes(), layers, shardTable, of, slot));
    }
    return table;
  }

  Offsets<schema::Kernel> writeKernels() {
    Offsets<schema::Kernel> table;
    std::pair<size_t, size_t> image; // where the kernel's is, and its size
    llvm::StringMap<SmallVector<cmd::LaunchOp>> launches;
    program.walk([&](cmd::LaunchOp launch) { launches[launch.getKernel()].push_back(launch); });
    for (auto kernel : module.getOps<func::FuncOp>()) {
      if (!kernel->hasAttr(tile::kKernelAttr))
        continue;
      signatures.push_back(KernelSignature::of(kernel));
      kernels[kernel.getSymName()] = table.size();
      Offsets<schema::Param> params;
      SmallVector<cmd::LaunchOp> own = launches.lookup(kernel.getSymName());
      for (const KernelSlot &slot : signatures.back().slots) {
        BlockArgument argument = kernel.getArgument(slot.argument);
        auto buffer = dyn_cast<MemRefType>(argument.getType());
        bool pointer = slot.kind == SlotKind::pointer && buffer;
        fb::Offset<fb::Vector<fb::Offset<fb::String>>> axes;
        fb::Offset<fb::Vector<int64_t>> sizes, strides;
        if (auto names = kernel.getArgAttrOfType<ArrayAttr>(slot.argument, tile::kAxesAttr); names && pointer) {
          Offsets<fb::String> list;
          for (auto axis : names.getAsRange<StringAttr>())
            list.push_back(builder.CreateSharedString(axis.str()));
          axes = builder.CreateVector(list);
        }
        auto numbers = [&](ArrayRef<int64_t> list) {
          SmallVector<int64_t> copy(list);
          llvm::replace(copy, ShapedType::kDynamic, int64_t(-1));
          return builder.CreateVector(copy.data(), copy.size());
        };
        if (pointer)
          sizes = numbers(buffer.getShape());
        if (auto layout = buffer ? dyn_cast<StridedLayoutAttr>(buffer.getLayout()) : nullptr)
          strides = numbers(layout.getStrides());
        params.push_back(schema::CreateParam(builder, string(slot.name), static_cast<schema::ParamKind>(slot.kind),
                                             pointer ? elementType(buffer.getElementType()).value_or(schema::DType::u8)
                                                     : schema::DType::u8,
                                             pointer && isWrittenByKernel(argument), axes, sizes, strides,
                                             pointer && fillsItsBuffers(kernel, slot, own)));
      }
      auto list = builder.CreateVector(params);
      auto name = string(kernel.getSymName());
      auto bounds = writeBounds(kernelBounds(kernel, signatures.back(), own));
      if (parts.kernels.empty()) {
        schema::KernelBuilder made(builder);
        made.add_name(name);
        made.add_params(list);
        made.add_bounds(bounds);
        table.push_back(made.Finish());
        continue;
      }
      const CudaKernel &compiled = parts.kernels[table.size()];
      assert(compiled.name == kernel.getSymName() && "kernels are compiled in their order");
      if (!compiled.cubin.empty()) {
        cubins.resize(llvm::alignTo(cubins.size(), 16));
        image = {cubins.size(), compiled.cubin.size()};
        cubins.insert(cubins.end(), compiled.cubin.begin(), compiled.cubin.end());
      }
      fb::Offset<fb::Vector<fb::Offset<schema::TensorMap>>> maps;
      if (!compiled.maps.empty()) {
        Offsets<schema::TensorMap> list;
        for (const TensorMap &map : compiled.maps) {
          SmallVector<uint32_t> box(map.box.begin(), map.box.end());
          auto sizes = builder.CreateVector(map.sizes.data(), map.sizes.size());
          auto strides = map.strides.empty() ? 0 : builder.CreateVector(map.strides.data(), map.strides.size());
          list.push_back(schema::CreateTensorMap(builder, static_cast<uint32_t>(map.param), sizes, strides,
                                                 builder.CreateVector(box.data(), box.size())));
        }
        maps = builder.CreateVector(list);
      }
      table.push_back(schema::CreateKernel(builder, name, list, compiled.threads, compiled.sharedBytes,
                                           compiled.registers, compiled.spillBytes, compiled.stackBytes, image.first,
                                           image.second, compiled.scratchBytes, maps, compiled.waits, compiled.cluster,
                                           bounds));
    }
    return table;
  }

  fb::Offset<fb::Vector<fb::Offset<schema::Bound>>> writeBounds(ArrayRef<KernelBound> bounds) {
    if (bounds.empty())
      return {};
    Offsets<schema::Bound> table;
    for (const KernelBound &bound : bounds)
      table.push_back(schema::CreateBound(builder, bound.number, bound.extent, bound.least,
                                          static_cast<int32_t>(bound.of), static_cast<uint32_t>(bound.dimension),
                                          bound.per, bound.times, static_cast<int32_t>(bound.perSlot), bound.most,
                                          bound.whole));
    return builder.CreateVector(table);
  }

  fb::Offset<schema::Mesh> writeMesh() {
    Mesh mesh = Mesh::of(module);
    auto view = [&](ArrayRef<Mesh::Axis> axes) {
      Offsets<schema::Axis> table;
      for (const Mesh::Axis &axis : axes)
        table.push_back(schema::CreateAxis(builder, string(axis.name), axis.size));
      return builder.CreateVector(table);
    };
    auto dense = view(mesh.dense), expert = view(mesh.expert);
    return schema::CreateMesh(builder, dense, expert);
  }

  fb::Offset<fb::Vector<fb::Offset<schema::KeyValue>>> writeMetadata() {
    Offsets<schema::KeyValue> table;
    if (auto metadata = module->getAttrOfType<DictionaryAttr>(attrs::metadata))
      for (NamedAttribute entry : metadata) {
        std::string text;
        if (auto value = dyn_cast<StringAttr>(entry.getValue()))
          text = value.str();
        else
          llvm::raw_string_ostream(text) << entry.getValue();
        auto key = string(entry.getName().getValue()), value = string(text);
        table.push_back(schema::CreateKeyValue(builder, key, value));
      }
    return builder.CreateVector(table);
  }

  //===- Commands
  //--------------------------------------------------------------------------------------------------===//

  static std::optional<schema::DType> elementType(Type type) {
    if (type.isF32())
      return schema::DType::f32;
    if (type.isBF16())
      return schema::DType::bf16;
    if (type.isF64())
      return schema::DType::f64;
    if (type.isInteger(32))
      return schema::DType::i32;
    if (type.isInteger(64))
      return schema::DType::i64;
    if (type.isInteger(8))
      return schema::DType::u8;
    if (type.isInteger(16))
      return schema::DType::i16;
    return std::nullopt;
  }

  FailureOr<schema::DType> dtypeOf(Operation *op, Type type) {
    if (std::optional<schema::DType> known = elementType(type))
      return *known;
    op->emitOpError("the program file has no element type ") << type;
    return failure();
  }

  fb::Offset<schema::Buffer> buffer(cmd::BufferAttr attr) {
    if (!attr)
      return {};
    fb::Offset<fb::Vector<int64_t>> strides;
    if (!attr.getStrides().empty())
      strides = builder.CreateVector(attr.getStrides().data(), attr.getStrides().size());
    return schema::CreateBuffer(builder, arenas.lookup(attr.getArena().getValue()), attr.getOffset(), attr.getBytes(),
                                strides);
  }

  FailureOr<fb::Offset<schema::Entry>> writeEntry(cmd::EntryOp entry) {
    auto indices = [&](ArrayAttr names) {
      std::vector<uint32_t> list;
      for (auto name : names.getAsRange<StringAttr>())
        list.push_back(tensors.lookup(name.getValue()));
      return builder.CreateVector(list);
    };
    auto commands = writeList(entry.getBody().front());
    if (failed(commands))
      return failure();
    std::optional<int64_t> stage = entry.getStage();
    auto name = string(unstagedName(entry.getSymName(), stage));
    auto inputs = indices(entry.getInputs()), outputs = indices(entry.getOutputs());
    return schema::CreateEntry(builder, name, inputs, outputs, *commands, entry.getEvents(),
                               static_cast<int32_t>(stage.value_or(-1)));
  }

  FailureOr<fb::Offset<fb::Vector<fb::Offset<schema::Command>>>> writeList(Block &block) {
    Offsets<schema::Command> list;
    for (Operation &op : block) {
      auto body = writeBody(&op);
      if (failed(body))
        return failure();
      auto stream = op.getAttrOfType<FlatSymbolRefAttr>("stream");
      auto name = op.getAttrOfType<StringAttr>("name");
      auto text = name ? string(name.getValue()) : fb::Offset<fb::String>();
      auto work = writeWork(op.getAttrOfType<cmd::WorkAttr>(cmd::kWorkAttr));
      fb::Offset<fb::Vector<int32_t>> layers;
      if (auto attr = op.getAttrOfType<DenseI32ArrayAttr>(cmd::kLayersAttr))
        layers = builder.CreateVector(attr.asArrayRef().data(), attr.size());
      auto microBatch = op.getAttrOfType<IntegerAttr>(cmd::kMicroBatchAttr);
      list.push_back(schema::CreateCommand(builder, stream ? streams.lookup(stream.getValue()) : 0, body->first,
                                           body->second, text, work, layers, op.hasAttr(cmd::kJoinedAttr),
                                           microBatch ? static_cast<int32_t>(microBatch.getInt()) : -1));
    }
    return builder.CreateVector(list);
  }

  fb::Offset<schema::Work> writeWork(cmd::WorkAttr work) {
    if (!work)
      return {};
    auto op = builder.CreateSharedString(work.getOp().data(), work.getOp().size());
    return schema::CreateWork(builder, op, work.getFlops(), work.getBytes(), work.getRows(), work.getFixed());
  }

  using Body = std::pair<schema::Body, fb::Offset<void>>;

  FailureOr<Body> writeBody(Operation *op) {
    return llvm::TypeSwitch<Operation *, FailureOr<Body>>(op)
        .Case<cmd::LaunchOp, cmd::GemmOp, cmd::GroupedGemmOp, cmd::CollectiveOp, cmd::RepeatOp>(
            [&](auto op) { return write(op); })
        .Case([&](cmd::CopyOp copy) {
          auto source = buffer(copy.getSource()), target = buffer(copy.getTarget());
          return Body{schema::Body::Copy, schema::CreateCopy(builder, source, target).Union()};
        })
        .Case([&](cmd::FillOp fill) {
          return Body{schema::Body::Fill,
                      schema::CreateFill(builder, buffer(fill.getTarget()), fill.getValue()).Union()};
        })
        .Case([&](cmd::RecordOp record) {
          return Body{schema::Body::Record, schema::CreateRecord(builder, record.getEvent()).Union()};
        })
        .Case([&](cmd::WaitOp wait) {
          return Body{schema::Body::Wait, schema::CreateWait(builder, wait.getEvent()).Union()};
        })
        .DefaultUnreachable("the verifier of cmd.program knows the commands");
  }

  FailureOr<Body> write(cmd::LaunchOp launch) {
    auto kernel = kernels.find(launch.getKernel());
    if (kernel == kernels.end())
      return launch.emitOpError("@") << launch.getKernel() << " is no kernel of this module", failure();
    Offsets<schema::Arg> args;
    for (const KernelSlot &slot : signatures[kernel->second].slots) {
      Attribute value = launch.getArgs().get(slot.name);
      if (!value)
        return launch.emitOpError("has no argument '") << slot.name << "' of @" << launch.getKernel(), failure();
      auto bad = [&](StringRef wanted) {
        launch.emitOpError("argument '") << slot.name << "' of @" << launch.getKernel() << " must be " << wanted
                                         << ", is " << value;
        return failure();
      };
      auto name = string(slot.name);
      if (slot.kind == SlotKind::pointer) {
        auto attr = dyn_cast<cmd::BufferAttr>(value);
        if (!attr)
          return bad("a buffer");
        args.push_back(schema::CreateArg(builder, name, schema::Value::BufferValue,
                                         schema::CreateBufferValue(builder, buffer(attr)).Union()));
      } else if (slot.kind == SlotKind::i64) {
        auto attr = dyn_cast<IntegerAttr>(value);
        if (!attr)
          return bad("an integer");
        args.push_back(schema::CreateArg(builder, name, schema::Value::I64Value,
                                         schema::CreateI64Value(builder, attr.getInt()).Union()));
      } else {
        auto attr = dyn_cast<FloatAttr>(value);
        if (!attr)
          return bad("a float");
        args.push_back(schema::CreateArg(builder, name, schema::Value::FloatValue,
                                         schema::CreateFloatValue(builder, attr.getValueAsDouble()).Union()));
      }
    }
    std::vector<uint64_t> extents(launch.getGrid().begin(), launch.getGrid().end());
    auto grid = builder.CreateVector(extents);
    auto list = builder.CreateVector(args);
    return Body{schema::Body::Launch, schema::CreateLaunch(builder, kernel->second, grid, list).Union()};
  }

  /// Of a product that adds nothing: no buffer, and a type that nobody reads.
  template <typename Op> FailureOr<std::pair<flatbuffers::Offset<schema::Buffer>, schema::DType>> addendOf(Op op) {
    if (!op.getAddend())
      return std::pair(flatbuffers::Offset<schema::Buffer>(), schema::DType());
    auto type = dtypeOf(op, *op.getTypeAddend());
    if (failed(type))
      return failure();
    return std::pair(buffer(*op.getAddend()), *type);
  }

  FailureOr<Body> write(cmd::GemmOp gemm) {
    auto a = dtypeOf(gemm, gemm.getTypeA()), b = dtypeOf(gemm, gemm.getTypeB()), c = dtypeOf(gemm, gemm.getTypeC());
    auto addend = addendOf(gemm);
    if (failed(a) || failed(b) || failed(c) || failed(addend))
      return failure();
    auto bufferA = buffer(gemm.getA()), bufferB = buffer(gemm.getB()), bufferC = buffer(gemm.getC());
    return Body{schema::Body::Gemm,
                schema::CreateGemm(builder, gemm.getM(), gemm.getN(), gemm.getK(), bufferA, bufferB, bufferC,
                                   gemm.getLda(), gemm.getLdb(), gemm.getLdc(), gemm.getTransposeA(),
                                   gemm.getTransposeB(), gemm.getAccumulate(), gemm.getBatch(), gemm.getBatchStrideA(),
                                   gemm.getBatchStrideB(), gemm.getBatchStrideC(), *a, *b, *c, addend->first,
                                   addend->second, gemm.getBatchStrideAddend())
                    .Union()};
  }

  FailureOr<Body> write(cmd::GroupedGemmOp gemm) {
    auto a = dtypeOf(gemm, gemm.getTypeA()), b = dtypeOf(gemm, gemm.getTypeB()), c = dtypeOf(gemm, gemm.getTypeC());
    auto addend = addendOf(gemm);
    if (failed(a) || failed(b) || failed(c) || failed(addend))
      return failure();
    auto bufferA = buffer(gemm.getA()), bufferB = buffer(gemm.getB()), bufferC = buffer(gemm.getC()),
         offsets = buffer(gemm.getOffsets());
    return Body{schema::Body::GroupedGemm,
                schema::CreateGroupedGemm(builder, static_cast<schema::GroupedKind>(gemm.getKind()), gemm.getGroups(),
                                          gemm.getMaxRows(), gemm.getM(), gemm.getN(), gemm.getK(), bufferA, bufferB,
                                          bufferC, offsets, gemm.getLda(), gemm.getLdb(), gemm.getLdc(),
                                          gemm.getTransposeB(), gemm.getAccumulate(), *a, *b, *c, addend->first,
                                          addend->second)
                    .Union()};
  }

  FailureOr<Body> write(cmd::CollectiveOp collective) {
    auto dtype = dtypeOf(collective, collective.getDtype());
    if (failed(dtype))
      return failure();
    auto axis = string(collective.getAxis());
    auto send = buffer(collective.getSend()), recv = buffer(collective.getRecv());
    auto sendCounts = buffer(collective.getSendCountsAttr()), recvCounts = buffer(collective.getRecvCountsAttr());
    auto name = collective.getName() ? string(*collective.getName()) : fb::Offset<fb::String>();
    return Body{schema::Body::Collective,
                schema::CreateCollective(builder, static_cast<schema::CollectiveKind>(collective.getKind()), axis, send,
                                         recv, *dtype, collective.getBlockBytes(), collective.getRowBytes(), sendCounts,
                                         recvCounts, collective.getCountsPerPeer(), name, collective.getCyclic(),
                                         collective.getReverse(), static_cast<uint32_t>(collective.getDistance()))
                    .Union()};
  }

  FailureOr<Body> write(cmd::RepeatOp repeat) {
    auto commands = writeList(repeat.getBody().front());
    if (failed(commands))
      return failure();
    return Body{schema::Body::Repeat, schema::CreateRepeat(builder, repeat.getCount(), *commands).Union()};
  }

  ModuleOp module;
  cmd::ProgramOp program;
  const ProgramParts &parts;
  fb::FlatBufferBuilder builder{1 << 20};
  llvm::StringMap<uint32_t> arenas, streams, tensors, kernels;
  llvm::StringMap<std::optional<int64_t>> stages; ///< of arenas
  std::vector<KernelSignature> signatures;
  std::vector<char> cubins; ///< of all kernels, one behind the other
};

} // namespace

FailureOr<std::vector<uint8_t>> braid::writeProgram(ModuleOp module, const ProgramParts &parts) {
  auto programs = llvm::to_vector(module.getOps<cmd::ProgramOp>());
  assert(programs.size() == 1 && "VerifyPhase counts them");
  FailureOr<std::vector<uint8_t>> bytes = Writer(module, programs.front(), parts).run();
  if (failed(bytes))
    return failure();
  fb::Verifier verifier(bytes->data(), bytes->size(), /*max_depth=*/64, /*max_tables=*/1u << 28);
  if (!schema::VerifyProgramBuffer(verifier))
    return module.emitError("the written program does not verify"), failure();
  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(*bytes);
  llvm::append_range(*bytes, schema::ProgramTrailer{bytes->size(), hash.high64, hash.low64}.encode());
  return bytes;
}
