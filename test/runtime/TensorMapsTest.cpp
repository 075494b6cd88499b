// Tensor maps of launches: what the driver is asked for, what is refused, and whole launches on a stub of the driver.
#include "runtime/cuda/TensorMaps.h"
#include "test/emulator/StubHooks.h"
#include "test/runtime/TestProgram.h"

#include <cstring>

#include <dlfcn.h>

namespace braid::runtime::test {
namespace {

using cuda::TensorMap, cuda::TensorMaps, cuda::TensorMapType;

// A driver that notes what it is asked for, and is what `answer` says.
int answer = 0;
StubTensorMap asked;
int encode(TensorMap *map, TensorMapType type, unsigned rank, void *address, const uint64_t *sizes,
           const uint64_t *strides, const unsigned *box, const unsigned *steps, int interleave, int swizzle,
           int promotion, int fill) {
  asked = {};
  asked.address = reinterpret_cast<uint64_t>(address);
  asked.type = static_cast<uint32_t>(type);
  asked.rank = rank;
  for (unsigned i = 0; i < rank; ++i) {
    asked.sizes[i] = sizes[i];
    asked.box[i] = box[i];
    EXPECT_EQ(steps[i], 1u);
    if (i > 0)
      asked.strides[i - 1] = strides[i - 1];
  }
  EXPECT_EQ(interleave, 0);
  unsigned row = box[0] * (type == TensorMapType::f32 ? 4 : 2);
  EXPECT_EQ(swizzle, row == 128 ? 3 : row == 64 ? 2 : 1); // as many bytes
  EXPECT_EQ(promotion, 3); // 256 bytes
  EXPECT_EQ(fill, 0);
  std::memcpy(map, &asked, sizeof(asked));
  return answer;
}

constexpr size_t offsetOfParameter = 48;

cuda::Driver aDriver() {
  answer = 0;
  cuda::Driver driver;
  driver.cuTensorMapEncodeTiled = encode;
  driver.cuFuncGetParamInfo = [](cuda::Function, size_t, size_t *offset, size_t *bytes) {
    return *offset = offsetOfParameter, *bytes = 0, 0;
  };
  driver.cuDriverGetVersion = [](int *version) { return *version = 11080, 0; };
  driver.cuGetErrorName = driver.cuGetErrorString = [](int, const char **text) { return *text = "told", 0; };
  return driver;
}

// @k(x: bf16 pointer, y: f32 pointer, rows: i64, stride: i64), with one map unless a test adds more.
struct MappedKernel : schema::KernelT {
  MappedKernel(uint32_t param, std::vector<int64_t> sizes, std::vector<int64_t> strides, std::vector<uint32_t> box) {
    using K = schema::ParamKind;
    using D = schema::DType;
    name = "k";
    for (auto [name, kind, type] : {std::tuple("x", K::pointer, D::bf16), std::tuple("y", K::pointer, D::f32),
                                    std::tuple("rows", K::i64, D::u8), std::tuple("stride", K::i64, D::u8)}) {
      auto &made = *params.emplace_back(std::make_unique<schema::ParamT>());
      made.name = name, made.kind = kind, made.type = type;
    }
    add(param, std::move(sizes), std::move(strides), std::move(box));
  }

  void add(uint32_t param, std::vector<int64_t> sizes, std::vector<int64_t> strides, std::vector<uint32_t> box) {
    auto &map = *maps.emplace_back(std::make_unique<schema::TensorMapT>());
    map.param = param, map.sizes = std::move(sizes), map.strides = std::move(strides), map.box = std::move(box);
  }

  Expected<TensorMaps> on(const cuda::Driver &driver) const {
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(schema::Kernel::Pack(builder, this));
    return TensorMaps::create(driver, *flatbuffers::GetRoot<schema::Kernel>(builder.GetBufferPointer()), nullptr);
  }
};

constexpr int64_t ofRows = -1 - 2, ofStride = -1 - 3; // sizes and strides that are a parameter's

// Slots of a launch of it: the grid, x, y, rows, stride, scratch.
std::vector<int64_t> slots(int64_t x, int64_t y, int64_t rows, int64_t stride) {
  return {5, 1, 1, x, y, rows, stride, 0x9000};
}

// What the driver is asked for the last map, or a failed test.
StubTensorMap askedOf(const MappedKernel &kernel, const std::vector<int64_t> &slots) {
  cuda::Driver driver = aDriver();
  auto maps = kernel.on(driver);
  EXPECT_TRUE(maps) << maps.message();
  std::vector<std::byte> block(maps->blockBytes());
  Status status = maps->write(driver, slots, block.data());
  EXPECT_TRUE(status.ok()) << status.message();
  return asked;
}

std::string refusalOf(const MappedKernel &kernel, const std::vector<int64_t> &slots) {
  cuda::Driver driver = aDriver();
  auto maps = kernel.on(driver);
  EXPECT_TRUE(maps) << maps.message();
  std::vector<std::byte> block(maps->blockBytes());
  return maps->write(driver, slots, block.data()).message();
}

std::vector<uint64_t> firstOf(const uint64_t *values, size_t count) { return {values, values + count}; }

} // namespace

TEST(TensorMaps, DimensionsAreInnermostFirstAndStridesInBytes) {
  MappedKernel kernel(0, {3, ofRows, 96}, {ofStride, 96, 1}, {1, 16, 64});
  StubTensorMap map = askedOf(kernel, slots(0x1010, 0x2000, 17, 1640));
  EXPECT_EQ(map.address, 0x1010u);
  EXPECT_EQ(map.type, 9u); // bf16
  EXPECT_EQ(map.rank, 3u);
  EXPECT_EQ(firstOf(map.sizes, 3), (std::vector<uint64_t>{96, 17, 3}));
  EXPECT_EQ(firstOf(map.strides, 2), (std::vector<uint64_t>{192, 3280}));
  EXPECT_EQ(std::vector(map.box, map.box + 3), (std::vector<uint32_t>{64, 16, 1}));
}

TEST(TensorMaps, StandBehindSlotsFromTheNext128BytesOn) {
  MappedKernel kernel(0, {ofRows, 64}, {64, 1}, {8, 64});
  kernel.add(1, {ofRows, 32}, {ofStride, 1}, {8, 32});
  while (kernel.params.size() < 12)
    kernel.params.emplace_back(std::make_unique<schema::ParamT>())->name = "more";
  for (size_t more : {0, 1}) { // 16 slots, which end on 128 bytes, and 17
    if (more)
      kernel.params.emplace_back(std::make_unique<schema::ParamT>())->name = "more";
    cuda::Driver driver = aDriver();
    auto maps = kernel.on(driver);
    ASSERT_TRUE(maps) << maps.message();
    EXPECT_EQ(maps->blockBytes(), offsetOfParameter + (more ? 256u : 128u) + 256u);
    std::vector<int64_t> launched = slots(0x1000, 0x2000, 9, 64);
    launched.resize(16 + more, 0x9000);
    std::vector<uint64_t> found(maps->blockBytes() / 8, UINT64_MAX);
    ASSERT_TRUE(maps->write(driver, launched, reinterpret_cast<std::byte *>(found.data())).ok());
    std::vector<uint64_t> expected(offsetOfParameter / 8);
    expected.insert(expected.end(), launched.begin(), launched.end());
    expected.resize(offsetOfParameter / 8 + (more ? 32 : 16));
    for (auto [address, type, stride, box] : {std::tuple(0x1000, 9, 128, 64), std::tuple(0x2000, 7, 256, 32)}) {
      StubTensorMap map;
      map.address = static_cast<uint64_t>(address), map.type = static_cast<uint32_t>(type), map.rank = 2;
      map.sizes[0] = map.box[0] = static_cast<uint32_t>(box), map.sizes[1] = 9, map.box[1] = 8;
      map.strides[0] = static_cast<uint64_t>(stride);
      expected.resize(expected.size() + 16);
      std::memcpy(&expected[expected.size() - 16], &map, sizeof(map));
    }
    EXPECT_EQ(found, expected);
  }
}

TEST(TensorMaps, ADimensionOfSizeOneHasAStrideThatTheDriverTakes) {
  MappedKernel kernel(0, {2, ofRows, 1, 20}, {160, ofStride, 3, 1}, {1, 1, 1, 16});
  for (int64_t stride : {0, 7, -1}) {
    StubTensorMap map = askedOf(kernel, slots(0x1000, 0, 1, stride));
    EXPECT_EQ(firstOf(map.sizes, 4), (std::vector<uint64_t>{20, 1, 1, 2}));
    EXPECT_EQ(firstOf(map.strides, 3), (std::vector<uint64_t>{48, 48, 320})); // 20 elements are 40 bytes
  }
  // Of what is inside, no more than a stride can be.
  MappedKernel large(0, {1, ofRows, 64}, {0, ofStride, 1}, {1, 1, 64});
  StubTensorMap map = askedOf(large, slots(0x1000, 0, 1 << 20, 1 << 20));
  EXPECT_EQ(firstOf(map.strides, 2), (std::vector<uint64_t>{1 << 21, (uint64_t(1) << 40) - 16}));
}

TEST(TensorMaps, ABufferWithoutElementsIsNoError) {
  MappedKernel kernel(0, {4, ofRows, 64}, {ofStride, 64, 1}, {1, 8, 64});
  StubTensorMap map = askedOf(kernel, slots(0x1002, 0, 0, 1));
  EXPECT_EQ(map.address, 0x1000u);
  EXPECT_EQ(firstOf(map.sizes, 3), (std::vector<uint64_t>{1, 1, 1}));
  EXPECT_EQ(firstOf(map.strides, 2), (std::vector<uint64_t>{16, 16}));
}

TEST(TensorMaps, RefusesWhatBulkCopiesCannotDo) {
  MappedKernel kernel(1, {ofRows, 4, 32}, {ofStride, 32, 1}, {1, 4, 32});
  EXPECT_EQ(refusalOf(kernel, slots(0, 0x2008, 2, 128)),
            "kernel @k: tensor map of 'y': it begins at address 0x2008, 8 bytes behind a multiple of 16, on which "
            "buffers of bulk copies begin");
  EXPECT_EQ(refusalOf(kernel, slots(0, 0x2000, -2, 128)),
            "kernel @k: tensor map of 'y': dimension 0 of 3 has size -2; bulk copies take at most 4294967296");
  EXPECT_EQ(refusalOf(kernel, slots(0, 0x2000, (int64_t(1) << 32) + 1, 128)),
            "kernel @k: tensor map of 'y': dimension 0 of 3 has size 4294967297; bulk copies take at most 4294967296");
  EXPECT_EQ(refusalOf(kernel, slots(0, 0x2000, int64_t(1) << 32, 128)), "");
  for (int64_t stride : {int64_t(130), int64_t(0), int64_t(-128), int64_t(1) << 38, INT64_MAX})
    EXPECT_EQ(refusalOf(kernel, slots(0, 0x2000, 2, stride)),
              fmt::format("kernel @k: tensor map of 'y': dimension 0 of 3 has a stride of {} elements of 4 bytes; bulk "
                          "copies take multiples of 16 bytes, from 16 to 1099511627760",
                          stride));
  EXPECT_EQ(refusalOf(kernel, slots(0, 0x2000, 2, (int64_t(1) << 38) - 4)), "");
}

TEST(TensorMaps, RefusesBoxesThatAreLargerThanWhatTheyAreCutFrom) {
  MappedKernel rows(1, {2, ofRows, 32}, {ofStride, 32, 1}, {1, 4, 32});
  EXPECT_EQ(refusalOf(rows, slots(0, 0x2000, 3, 128)),
            "kernel @k: tensor map of 'y': dimension 1 of 3 has size 3, less than the 4 of a box");
  EXPECT_EQ(refusalOf(rows, slots(0, 0x2000, 4, 128)), "");
  MappedKernel columns(0, {8, ofRows}, {ofStride, 1}, {8, 64});
  EXPECT_EQ(refusalOf(columns, slots(0x1000, 0, 56, 64)),
            "kernel @k: tensor map of 'x': dimension 1 of 2 has size 56, less than the 64 of a box");
  EXPECT_EQ(refusalOf(columns, slots(0x1000, 0, 64, 64)), "");
}

TEST(TensorMaps, WithoutStridesAreRowMajor) {
  MappedKernel kernel(0, {3, ofRows, 96}, {}, {1, 16, 64});
  EXPECT_EQ(firstOf(askedOf(kernel, slots(0x1000, 0x2000, 17, 0)).strides, 2), (std::vector<uint64_t>{192, 17 * 192}));
  MappedKernel odd(0, {ofRows, 20}, {}, {16, 16});
  EXPECT_EQ(refusalOf(odd, slots(0x1000, 0x2000, 17, 0)),
            "kernel @k: tensor map of 'x': dimension 0 of 2 has a stride of 20 elements of 2 bytes; bulk copies take "
            "multiples of 16 bytes, from 16 to 1099511627760");
}

TEST(TensorMaps, HaveTheSwizzleOfTheirRows) {
  MappedKernel kernel(0, {ofRows, 96}, {ofStride, 1}, {16, 32}); // 64 bytes; what is asked for is seen in encode()
  EXPECT_EQ(askedOf(kernel, slots(0x1000, 0x2000, 17, 96)).box[0], 32u);
  kernel.add(1, {ofRows, 96}, {ofStride, 1}, {16, 8}); // 32 bytes
  EXPECT_EQ(askedOf(kernel, slots(0x1000, 0x2000, 17, 96)).box[0], 8u);
}

TEST(TensorMaps, TellWhatTheDriverSays) {
  MappedKernel kernel(0, {64}, {1}, {64});
  cuda::Driver driver = aDriver();
  auto maps = kernel.on(driver);
  ASSERT_TRUE(maps) << maps.message();
  std::vector<std::byte> block(maps->blockBytes());
  answer = 1;
  EXPECT_EQ(maps->write(driver, slots(0x1000, 0, 0, 0), block.data()).message(),
            "kernel @k: tensor map of 'x': cuTensorMapEncodeTiled: error 1 told (told)");
}

TEST(TensorMaps, AnOldDriverIsEnoughForKernelsWithout) {
  cuda::Driver driver = aDriver();
  driver.cuTensorMapEncodeTiled = nullptr;
  MappedKernel kernel(0, {64}, {1}, {64});
  EXPECT_EQ(kernel.on(driver).message(),
            "kernel @k has 1 tensor maps, but the driver is too old for them: it is for CUDA 11.8 and lacks "
            "cuTensorMapEncodeTiled or cuFuncGetParamInfo; valid: a driver for CUDA 12.4 or later");
  kernel.maps.clear();
  auto none = kernel.on(driver);
  ASSERT_TRUE(none) << none.message();
  EXPECT_TRUE(none->empty());
}

#ifdef BRAID_TEST_CUDA_STUBS

namespace {

class TensorMapsOnStub : public testing::Test {
protected:
  void SetUp() override {
    // Whoever opens the driver by its name afterwards gets this.
    ASSERT_TRUE(dlopen(BRAID_TEST_CUDA_STUBS "/libcuda.so.1", RTLD_NOW | RTLD_GLOBAL)) << dlerror();
    auto opened = cuda::Driver::open();
    ASSERT_TRUE(opened) << opened.message();
    driver = *opened;
  }

  const cuda::Driver *driver = nullptr;
};

// A program for a GPU: @read_parameters(out, count, rows), with maps of `out`, which begins at `offset` of its arena.
struct ReadParameters : TestProgram {
  ReadParameters(int64_t count, int64_t rows, uint64_t offset = 0) {
    addKernels();
    target = "cuda";
    arch = "sm_90a,emulated";
    kernels.resize(1);
    schema::KernelT &kernel = *kernels[0];
    kernel.name = "read_parameters";
    kernel.threads = 32;
    kernel.image_bytes = code->bytes.size();
    kernel.params.resize(3);
    kernel.params[0]->name = "out", kernel.params[0]->type = schema::DType::bf16, kernel.params[0]->written = true;
    for (size_t i : {1, 2})
      kernel.params[i]->name = i == 1 ? "count" : "rows", kernel.params[i]->kind = schema::ParamKind::i64;
    for (uint32_t box : {4, 8}) {
      auto &map = *kernel.maps.emplace_back(std::make_unique<schema::TensorMapT>());
      map.sizes = {-3, 64}, map.strides = {64, 1}, map.box = {box, 64};
    }
    arena("io", 4096);
    tensor("out", schema::DType::i64, {64}, 0, offset, schema::Role::output);
    entry("main",
          list(command(launch(0, {1, 1, 1}, arg("out", buffer(0, offset, 512)), arg("count", count), arg("rows", rows)),
                       "read")));
    entries[0]->outputs = {0};
  }
};

} // namespace

TEST_F(TensorMapsOnStub, ALaunchHasThemBehindItsSlots) {
  constexpr int64_t count = 16 + 2 * 16; // 7 slots, zeros, two maps
  ReadParameters program(count, 9);
  auto session = program.session();
  ASSERT_TRUE(session);
  for (int run = 0; run < 2; ++run) { // of what was recorded once
    runEntry(*session);
    auto out = values<int64_t>(*session, "out");
    ASSERT_EQ(out.size(), 64u);
    EXPECT_EQ(out[0] * out[1] * out[2], 1);
    EXPECT_EQ(out[4], count);
    EXPECT_EQ(out[5], 9);
    EXPECT_NE(out[6], 0); // the scratch's
    EXPECT_EQ(std::vector<int64_t>(out.begin() + 7, out.begin() + 16), std::vector<int64_t>(9));
    for (size_t i : {0, 1}) {
      StubTensorMap map;
      std::memcpy(&map, &out[16 + 16 * i], sizeof(map));
      EXPECT_EQ(map.mark, StubTensorMap::theMark);
      EXPECT_EQ(map.address, static_cast<uint64_t>(out[3]));
      EXPECT_EQ(firstOf(map.sizes, 2), (std::vector<uint64_t>{64, 9}));
      EXPECT_EQ(map.strides[0], 128u);
      EXPECT_EQ(map.box[1], i == 0 ? 4u : 8u);
    }
  }
}

TEST_F(TensorMapsOnStub, AnUnalignedBufferIsAnErrorThatNamesTheCommand) {
  ReadParameters program(1, 9, 8);
  auto parsed = program.parse();
  ASSERT_TRUE(parsed) << parsed.message();
  std::string message = Session::create(*parsed, {}).message();
  EXPECT_NE(message.find("'read'"), std::string::npos) << message;
  EXPECT_NE(message.find("kernel @read_parameters: tensor map of 'out': it begins at address 0x"), std::string::npos)
      << message;
  EXPECT_NE(message.find("8 bytes behind a multiple of 16"), std::string::npos) << message;
}

TEST_F(TensorMapsOnStub, LaunchesOfNoElementsRun) {
  ReadParameters program(1, 0, 8);
  auto session = program.session();
  ASSERT_TRUE(session);
  runEntry(*session);
  EXPECT_EQ(values<int64_t>(*session, "out")[0], 1);
}

// The stub refuses what the driver's documentation says is refused.
TEST_F(TensorMapsOnStub, TheStubKnowsTheRules) {
  struct Arguments {
    TensorMapType type = TensorMapType::bf16;
    unsigned rank = 3;
    uint64_t address = 0x1000, sizes[6] = {64, 8, 2}, strides[5] = {128, 1024};
    unsigned box[6] = {64, 8, 1}, steps[6] = {1, 1, 1};
    int interleave = 0, swizzle = 3, promotion = 3, fill = 0;
  };
  std::pair<int, std::function<void(Arguments &)>> cases[] = {
      {0, [](Arguments &) {}},
      {0, [](Arguments &a) { a.sizes[2] = uint64_t(1) << 32; }},
      {0, [](Arguments &a) { a.strides[1] = (uint64_t(1) << 40) - 16; }},
      {0, [](Arguments &a) { a.box[1] = 256; }},
      {0, [](Arguments &a) { a.box[0] = 8; }},
      {0, [](Arguments &a) { a.type = TensorMapType::f32, a.box[0] = 32; }},
      {1, [](Arguments &a) { a.type = TensorMapType::f32; }}, // rows of 256 bytes
      {0, [](Arguments &a) { a.box[0] = 32, a.swizzle = 2; }},
      {0, [](Arguments &a) { a.box[0] = 16, a.swizzle = 1; }},
      {1, [](Arguments &a) { a.swizzle = 2; }}, // rows of 128 bytes in a pattern of 64
      {1, [](Arguments &a) { a.box[0] = 32, a.swizzle = 1; }},
      {1, [](Arguments &a) { a.swizzle = 4; }},
      {1, [](Arguments &a) { a.type = static_cast<TensorMapType>(99); }},
      {1, [](Arguments &a) { a.rank = 0; }},
      {1, [](Arguments &a) { a.rank = 6; }},
      {1, [](Arguments &a) { a.address = 0x1008; }},
      {1, [](Arguments &a) { a.sizes[1] = 0; }},
      {1, [](Arguments &a) { a.sizes[1] = (uint64_t(1) << 32) + 1; }},
      {1, [](Arguments &a) { a.strides[0] = 136; }},
      {1, [](Arguments &a) { a.strides[1] = uint64_t(1) << 40; }},
      {1, [](Arguments &a) { a.box[2] = 0; }},
      {1, [](Arguments &a) { a.box[1] = 257; }},
      {1, [](Arguments &a) { a.box[0] = 4; }}, // rows of 8 bytes
      {1, [](Arguments &a) { a.steps[1] = 0; }},
      {1, [](Arguments &a) { a.steps[1] = 9; }},
      {1, [](Arguments &a) { a.fill = 2; }},
  };
  TensorMap map;
  for (size_t i = 0; i < std::size(cases); ++i) {
    Arguments a;
    cases[i].second(a);
    EXPECT_EQ(driver->cuTensorMapEncodeTiled(&map, a.type, a.rank, reinterpret_cast<void *>(a.address), a.sizes,
                                             a.strides, a.box, a.steps, a.interleave, a.swizzle, a.promotion, a.fill),
              cases[i].first)
        << "case " << i;
  }
}

#endif

} // namespace braid::runtime::test
