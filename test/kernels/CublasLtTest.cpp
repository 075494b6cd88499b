//===- CublasLtTest.cpp - matrix products of programs for GPUs by a stub of cuBLASLt ------------------------------===//
//
// What no small model's program has: several products in one call, at strides, with rows longer than their matrix. The stub (test/emulator/CublasStub.cpp)
// reads matrices as the library's documentation has them, column by column.
//
//===-------------------------------------------------------------------------------------------------------------===//
#include "runtime/cuda/CublasLt.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include <dlfcn.h>

namespace braid::runtime::cuda {
namespace {

constexpr int64_t spare = 3; // elements that belong to nothing, behind every row

enum class Sum { none, inPlace, apart };

/// One operand as it lies in memory: `count` matrices of `rows` x `columns`, a stride apart that is no multiple of them.
struct Matrices {
  int64_t rows, columns, count, gap = 5; // between matrices
  std::vector<float> values = std::vector<float>(static_cast<size_t>(count * stride()));

  int64_t leading() const { return columns + spare; }
  int64_t stride() const { return rows * leading() + gap; }
  size_t bytes() const { return values.size() * sizeof(float); }
  float &at(int64_t batch, int64_t row, int64_t column, bool turned = false) {
    return values[static_cast<size_t>(batch * stride() + (turned ? column : row) * leading() +
                                      (turned ? row : column))];
  }
};

class CublasLtTest : public testing::Test {
protected:
  void SetUp() override {
    // Whoever opens the libraries by their names afterwards gets these.
    for (const char *stub : {BRAID_TEST_CUDA_STUBS "/libcuda.so.1", BRAID_TEST_CUDA_STUBS "/libcublasLt.so.13"})
      ASSERT_TRUE(dlopen(stub, RTLD_NOW | RTLD_GLOBAL)) << dlerror();
    auto opened = Driver::open();
    ASSERT_TRUE(opened.ok()) << opened.message();
    driver = *opened;
    Context context = nullptr;
    ASSERT_EQ(driver->cuDevicePrimaryCtxRetain(&context, 0), success);
    ASSERT_EQ(driver->cuCtxSetCurrent(context), success);
    ASSERT_EQ(driver->cuStreamCreate(&stream, streamNonBlocking), success);
    ASSERT_EQ(driver->cuMemAlloc_v2(&workspace, CublasLt::workspaceBytes), success);
  }

  void TearDown() override {
    for (Address address : allocations)
      driver->cuMemFree_v2(address);
    driver->cuMemFree_v2(workspace);
    driver->cuStreamDestroy_v2(stream);
  }

  std::byte *onDevice(const Matrices &from) {
    Address address = 0;
    EXPECT_EQ(driver->cuMemAlloc_v2(&address, from.bytes()), success);
    EXPECT_EQ(driver->cuMemcpyHtoDAsync_v2(address, from.values.data(), from.bytes(), stream), success);
    allocations.push_back(address);
    return reinterpret_cast<std::byte *>(address);
  }

  const Driver *driver = nullptr;
  Stream stream = nullptr;
  Address workspace = 0;
  std::vector<Address> allocations;
};

TEST_F(CublasLtTest, BatchesAtStridesAndLongRows) {
  auto products = CublasLt::create();
  ASSERT_TRUE(products.ok()) << products.message();
  std::mt19937 random(7);
  std::uniform_real_distribution<float> uniform(-1, 1);
  constexpr int64_t m = 4, n = 6, k = 5, batch = 3;
  for (bool transposeA : {false, true})
    for (bool transposeB : {false, true})
      for (Sum kind : {Sum::none, Sum::inPlace, Sum::apart}) {
        bool accumulate = kind == Sum::inPlace, adds = kind == Sum::apart;
        Matrices a{transposeA ? k : m, transposeA ? m : k, batch}, b{transposeB ? n : k, transposeB ? k : n, batch},
            c{m, n, batch}, addend{m, n, batch, 11};
        for (Matrices *each : {&a, &b, &c, &addend})
          for (float &value : each->values)
            value = uniform(random);
        GemmDesc desc;
        desc.shape.m = m;
        desc.shape.n = n;
        desc.shape.k = k;
        desc.shape.lda = a.leading();
        desc.shape.ldb = b.leading();
        desc.shape.ldc = c.leading();
        desc.shape.transposeA = transposeA;
        desc.shape.transposeB = transposeB;
        desc.shape.accumulate = accumulate;
        desc.shape.typeA = desc.shape.typeB = desc.shape.typeC = DType::f32;
        desc.batch = batch;
        desc.batchStrideA = a.stride();
        desc.batchStrideB = b.stride();
        desc.batchStrideC = c.stride();
        if (adds)
          desc.shape.addend = DType::f32;
        desc.batchStrideAddend = addend.stride();
        auto number = (*products)->prepare(desc, 4);
        ASSERT_TRUE(number.ok()) << number.message();
        std::byte *result = onDevice(c);
        Status status = (*products)->run(*number, stream, onDevice(a), onDevice(b), result,
                                         adds ? onDevice(addend) : nullptr, workspace);
        ASSERT_TRUE(status.ok()) << status.message();
        Matrices found = c;
        ASSERT_EQ(
            driver->cuMemcpyDtoHAsync_v2(found.values.data(), reinterpret_cast<Address>(result), c.bytes(), stream),
            success);
        ASSERT_EQ(driver->cuStreamSynchronize(stream), success);

        Matrices expected = c; // what belongs to no matrix stays
        for (int64_t i = 0; i < batch; ++i)
          for (int64_t row = 0; row < m; ++row)
            for (int64_t column = 0; column < n; ++column) {
              double sum = accumulate ? c.at(i, row, column) : adds ? addend.at(i, row, column) : 0;
              for (int64_t inner = 0; inner < k; ++inner)
                sum += double(a.at(i, row, inner, transposeA)) * b.at(i, inner, column, transposeB);
              expected.at(i, row, column) = static_cast<float>(sum);
            }
        for (size_t i = 0; i < expected.values.size(); ++i)
          ASSERT_NEAR(found.values[i], expected.values[i], 1e-6)
              << "element " << i << ", A " << transposeA << ", B " << transposeB << ", sum " << static_cast<int>(kind);
      }
}

TEST_F(CublasLtTest, RefusesAnAddendOfAnotherType) {
  auto products = CublasLt::create();
  ASSERT_TRUE(products.ok()) << products.message();
  GemmDesc desc;
  desc.shape = {4, 6, 5, 5, 6, 6, false, false, false, DType::bf16, DType::bf16, DType::bf16, DType::f32};
  auto number = (*products)->prepare(desc, 4);
  ASSERT_FALSE(number.ok());
  EXPECT_NE(number.message().find("cuBLASLt adds only what has the type of the result, not f32 to bf16"),
            std::string::npos)
      << number.message();
}

} // namespace
} // namespace braid::runtime::cuda
