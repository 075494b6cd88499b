// The driver's functions as the runtime declares them, against the toolkit's header where there is one.
#include "runtime/cuda/CudaDriver.h"
#include "test/runtime/fixture/Alike.h"

#include <gtest/gtest.h>

#if __has_include(<cuda.h>)
#include <cuda.h>
#endif

namespace braid::runtime::cuda {
namespace {

#if __has_include(<cuda.h>)

#define BRAID_CUDA_ALIKE(name, parameters)                                                                             \
  static_assert(test::Alike<decltype(Driver::name), decltype(&::name)>::value,                                         \
                #name " has another signature in cuda.h");
BRAID_CUDA_FUNCTIONS(BRAID_CUDA_ALIKE)
BRAID_CUDA_NEWER_FUNCTIONS(BRAID_CUDA_ALIKE)
#undef BRAID_CUDA_ALIKE

TEST(CudaDriver, NumbersAreThoseOfTheToolkit) {
  EXPECT_EQ(success, CUDA_SUCCESS);
  EXPECT_EQ(noDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(notReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(static_cast<int>(DeviceAttribute::multiprocessors), CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(static_cast<int>(DeviceAttribute::capabilityMajor), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(static_cast<int>(DeviceAttribute::capabilityMinor), CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(static_cast<int>(DeviceAttribute::sharedBytesOptIn), CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(static_cast<int>(FunctionAttribute::dynamicSharedBytes), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(static_cast<int>(LaunchAttributeId::programmaticStreamSerialization),
            CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) && sizeof(LaunchConfig) == sizeof(CUlaunchConfig));
  static_assert(offsetof(LaunchAttribute, value) == offsetof(CUlaunchAttribute, value) &&
                offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream) &&
                offsetof(LaunchConfig, attributeCount) == offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(streamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(eventDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(captureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  static_assert(sizeof(TensorMap) == sizeof(CUtensorMap) && alignof(TensorMap) >= alignof(CUtensorMap));
  EXPECT_EQ(static_cast<int>(TensorMapType::f32), CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
  EXPECT_EQ(static_cast<int>(TensorMapType::bf16), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(interleaveNone, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(swizzle32Bytes, CU_TENSOR_MAP_SWIZZLE_32B);
  EXPECT_EQ(swizzle64Bytes, CU_TENSOR_MAP_SWIZZLE_64B);
  EXPECT_EQ(swizzle128Bytes, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(promotion256Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
  EXPECT_EQ(fillZeros, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  EXPECT_EQ(launchParamEnd, CU_LAUNCH_PARAM_END);
  EXPECT_EQ(launchParamBuffer, CU_LAUNCH_PARAM_BUFFER_POINTER);
  EXPECT_EQ(launchParamBufferSize, CU_LAUNCH_PARAM_BUFFER_SIZE);
}

#endif

TEST(CudaDriver, VersionsReadAsPeopleWriteThem) {
  EXPECT_EQ(versionText(13000), "13.0");
  EXPECT_EQ(versionText(12040), "12.4");
}

} // namespace
} // namespace braid::runtime::cuda
