// Builds small program files for the runtime tests with the flatbuffers object API. Fields stay accessible, so a test
// can break exactly one of them.
#pragma once

#include "runtime/Program.h"
#include "runtime/Session.h"
#include "runtime/Sha256.h"
#include "runtime/schema/Program_generated.h"

#include <gtest/gtest.h>

#include <fstream>

namespace braid::runtime::test {

using CommandPtr = std::unique_ptr<schema::CommandT>;
using BufferPtr = std::unique_ptr<schema::BufferT>;
using ArgPtr = std::unique_ptr<schema::ArgT>;

inline BufferPtr buffer(uint32_t arena, uint64_t offset, uint64_t bytes, std::vector<int64_t> strides = {}) {
  auto result = std::make_unique<schema::BufferT>();
  result->arena = arena;
  result->offset = offset;
  result->bytes = bytes;
  result->strides = std::move(strides);
  return result;
}

inline ArgPtr arg(const std::string &name, BufferPtr value) {
  auto result = std::make_unique<schema::ArgT>();
  result->name = name;
  schema::BufferValueT holder;
  holder.buffer = std::move(value);
  result->value.Set(std::move(holder));
  return result;
}

inline ArgPtr arg(const std::string &name, int64_t value) {
  auto result = std::make_unique<schema::ArgT>();
  result->name = name;
  schema::I64ValueT holder;
  holder.value = value;
  result->value.Set(std::move(holder));
  return result;
}

inline ArgPtr arg(const std::string &name, double value) {
  auto result = std::make_unique<schema::ArgT>();
  result->name = name;
  schema::FloatValueT holder;
  holder.value = value;
  result->value.Set(std::move(holder));
  return result;
}

template <class Body> CommandPtr command(Body body, std::string name = "", uint32_t stream = 0) {
  auto result = std::make_unique<schema::CommandT>();
  result->stream = stream;
  result->name = std::move(name);
  result->body.Set(std::move(body));
  return result;
}

template <class... Commands> std::vector<CommandPtr> list(Commands... commands) {
  std::vector<CommandPtr> result;
  (result.push_back(std::move(commands)), ...);
  return result;
}

template <class... Args> schema::LaunchT launch(uint32_t kernel, std::vector<uint64_t> grid, Args... args) {
  schema::LaunchT result;
  result.kernel = kernel;
  result.grid = std::move(grid);
  (result.args.push_back(std::move(args)), ...);
  return result;
}

inline schema::CopyT copy(BufferPtr source, BufferPtr target) {
  schema::CopyT result;
  result.source = std::move(source);
  result.target = std::move(target);
  return result;
}

inline schema::FillT fill(BufferPtr target, uint8_t value) {
  schema::FillT result;
  result.target = std::move(target);
  result.value = value;
  return result;
}

inline schema::RepeatT repeat(int64_t count, std::vector<CommandPtr> commands) {
  schema::RepeatT result;
  result.count = count;
  result.commands = std::move(commands);
  return result;
}

inline schema::RecordT recordEvent(uint32_t event) {
  schema::RecordT result;
  result.event = event;
  return result;
}

inline schema::WaitT waitEvent(uint32_t event) {
  schema::WaitT result;
  result.event = event;
  return result;
}

inline schema::CollectiveT collective(schema::CollectiveKind kind, const std::string &axis, BufferPtr send,
                                      BufferPtr recv, schema::DType type = schema::DType::f32) {
  schema::CollectiveT result;
  result.kind = kind;
  result.axis = axis;
  result.send = std::move(send);
  result.recv = std::move(recv);
  result.dtype = type;
  return result;
}

// Kernels of fixture/Kernels.c, in the order TestProgram declares them.
enum TestKernel : uint32_t { addScaled, ranges, coordinates, append, waitFor, deepStack };

struct TestProgram : schema::ProgramT {
  TestProgram() {
    name = "test";
    target = "cpu";
    stream("compute");
  }

  uint32_t arena(const std::string &name, uint64_t bytes, uint32_t align = 256) {
    arenas.push_back(std::make_unique<schema::ArenaT>());
    arenas.back()->name = name;
    arenas.back()->bytes = bytes;
    arenas.back()->align = align;
    return static_cast<uint32_t>(arenas.size() - 1);
  }

  schema::TensorT &tensor(const std::string &name, schema::DType type, std::vector<int64_t> shape, uint32_t arena,
                          uint64_t offset, schema::Role role = schema::Role::input, std::vector<int32_t> layers = {}) {
    auto result = std::make_unique<schema::TensorT>();
    result->name = name;
    result->dtype = type;
    result->bytes = sizeOf(static_cast<DType>(type)) * (layers.empty() ? 1 : layers.size());
    for (int64_t extent : shape)
      result->bytes *= static_cast<uint64_t>(extent);
    result->shape = std::move(shape);
    result->arena = arena;
    result->offset = offset;
    result->role = role;
    result->layers = std::move(layers);
    tensors.push_back(std::move(result));
    return *tensors.back();
  }

  void stream(const std::string &name, const std::string &axis = "") {
    streams.push_back(std::make_unique<schema::StreamT>());
    streams.back()->name = name;
    streams.back()->axis = axis;
  }

  void axis(const std::string &name, uint32_t size, bool expert = false) {
    if (!mesh)
      mesh = std::make_unique<schema::MeshT>();
    auto &view = expert ? mesh->expert : mesh->dense;
    view.push_back(std::make_unique<schema::AxisT>());
    view.back()->name = name;
    view.back()->size = size;
  }

  schema::EntryT &entry(const std::string &name, std::vector<CommandPtr> commands, uint32_t events = 0) {
    entries.push_back(std::make_unique<schema::EntryT>());
    entries.back()->name = name;
    entries.back()->commands = std::move(commands);
    entries.back()->events = events;
    return *entries.back();
  }

  // Declares the fixture's kernels and embeds its shared object.
  void addKernels() {
    using K = schema::ParamKind;
    auto declare = [&](const std::string &name, std::vector<std::pair<const char *, K>> params) {
      kernels.push_back(std::make_unique<schema::KernelT>());
      kernels.back()->name = name;
      for (auto [param, kind] : params) {
        kernels.back()->params.push_back(std::make_unique<schema::ParamT>());
        kernels.back()->params.back()->name = param;
        kernels.back()->params.back()->kind = kind;
        kernels.back()->params.back()->written = param == std::string_view("out") ||
                                                 param == std::string_view("counts") ||
                                                 param == std::string_view("target");
      }
    };
    declare("add_scaled", {{"x", K::pointer}, {"y", K::pointer}, {"out", K::pointer}, {"scale", K::f32}});
    declare("ranges", {{"out", K::pointer}, {"counts", K::pointer}});
    declare("coordinates", {{"out", K::pointer}, {"base", K::i64}, {"gain", K::f64}});
    declare("append", {{"source", K::pointer}, {"target", K::pointer}});
    declare("wait_for", {{"flag", K::pointer}, {"out", K::pointer}});
    declare("deep_stack", {{"out", K::pointer}});
    std::ifstream file(BRAID_TEST_KERNELS, std::ios::binary);
    code = std::make_unique<schema::BlobT>();
    code->name = "kernels.so";
    code->bytes.assign(std::istreambuf_iterator<char>(file), {});
    code->sha256 = sha256(std::as_bytes(std::span(code->bytes)));
    ASSERT_FALSE(code->bytes.empty()) << BRAID_TEST_KERNELS;
  }

  bool checkMemory = checksMemory; // of its sessions; a check sees joined launches one by one

  std::vector<std::byte> bytes() const {
    flatbuffers::FlatBufferBuilder builder;
    schema::FinishProgramBuffer(builder, schema::Program::Pack(builder, this));
    auto *data = reinterpret_cast<const std::byte *>(builder.GetBufferPointer());
    std::vector<std::byte> result(data, data + builder.GetSize());
    Program::seal(result);
    return result;
  }

  Expected<std::shared_ptr<const Program>> parse() const { return Program::parse(bytes(), "test.braid"); }

  // A single-rank session, or a failed test and null.
  std::unique_ptr<Session> session(int threads = 1) const {
    auto program = parse();
    if (!program) {
      ADD_FAILURE() << program.message();
      return nullptr;
    }
    SessionOptions options;
    options.threads = threads;
    options.checkMemory = checkMemory;
    auto session = Session::create(*program, options);
    if (!session) {
      ADD_FAILURE() << session.message();
      return nullptr;
    }
    return *std::move(session);
  }
};

// Runs an entry by name; a test fails with the error's text.
inline void runEntry(Session &session, const std::string &name = "main") {
  auto entry = session.entry(name);
  ASSERT_TRUE(entry) << entry.message();
  Status status = session.run(*entry);
  ASSERT_TRUE(status.ok()) << status.message();
}

template <class T> std::span<T> values(Session &session, std::string_view name) {
  auto view = session.tensor(name);
  EXPECT_TRUE(view) << view.message();
  return view->as<T>();
}

} // namespace braid::runtime::test
