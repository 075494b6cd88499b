# How a room becomes a library. A room lists its folders; every .cpp in them is taken, so a new source needs no edit.

# Repository root and build root: #include "runtime/Expected.h", #include "dialects/braid/BraidOps.h.inc".
add_library(braid-common INTERFACE)
target_include_directories(braid-common INTERFACE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
# -fPIC for executables too: the precompiled header serves libraries and tools only if their flags agree.
target_compile_options(braid-common INTERFACE -fPIC -Wall -Wextra -Wno-unused-parameter -fvisibility-inlines-hidden
  -ffunction-sections -fdata-sections)
target_link_options(braid-common INTERFACE -Wl,--gc-sections -Wl,--as-needed)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  # Without the timestamp ccache can hash the precompiled header.
  target_compile_options(braid-common INTERFACE "SHELL:-Xclang -fno-pch-timestamp" -fcolor-diagnostics)
endif()
if(BRAID_WERROR)
  target_compile_options(braid-common INTERFACE -Werror)
endif()
if(BRAID_SANITIZE)
  target_compile_options(braid-common INTERFACE -fsanitize=${BRAID_SANITIZE} -fno-omit-frame-pointer -g1
    -fno-sanitize-recover=all)
  target_link_options(braid-common INTERFACE -fsanitize=${BRAID_SANITIZE})
  if(BRAID_SANITIZE MATCHES address)
    # Kernels and libraries are not instrumented: runtime/MemoryCheck.h looks at what they wrote.
    target_compile_definitions(braid-common INTERFACE BRAID_CHECK_MEMORY)
  endif()
endif()

# braid_sources(<variable> <folder>...): the .cpp files of these folders (`*`: every subfolder), sorted.
function(braid_sources variable)
  set(sources)
  foreach(folder ${ARGN})
    file(GLOB found CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${folder}/*.cpp)
    list(APPEND sources ${found})
  endforeach()
  list(SORT sources)
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# braid_library(<name> FOLDERS <folder>... LINK <library>... [SOURCES <generated or special files>...] [COMPILER])
# COMPILER: a room that includes MLIR (its flags, its precompiled header). A room without sources is an INTERFACE
# library, so that everything configures and links while it is empty.
function(braid_library name)
  cmake_parse_arguments(ARG "COMPILER" "" "FOLDERS;LINK;SOURCES" ${ARGN})
  braid_sources(sources ${ARG_FOLDERS})
  list(APPEND sources ${ARG_SOURCES})
  if(NOT sources)
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE braid-common ${ARG_LINK})
    return()
  endif()
  add_library(${name} STATIC ${sources})
  target_link_libraries(${name} PUBLIC braid-common ${ARG_LINK})
  if(ARG_COMPILER)
    braid_use_compiler_flags(${name})
  endif()
endfunction()

# braid_precompiled_headers(<target> HEADERS <header>... LINK <library>... [OPTIONS <flag>...]): a library that owns headers
# which others are given by braid_use_precompiled(); those must have its flags.
function(braid_precompiled_headers target)
  cmake_parse_arguments(ARG "" "" "HEADERS;LINK;OPTIONS" ${ARGN})
  if(BRAID_USE_PCH)
    file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/pch/${target}.cpp CONTENT "// The owner of precompiled headers.\n")
    add_library(${target} STATIC ${PROJECT_BINARY_DIR}/pch/${target}.cpp)
    target_link_libraries(${target} PRIVATE braid-common ${ARG_LINK})
    target_compile_options(${target} PRIVATE ${ARG_OPTIONS})
    target_precompile_headers(${target} PRIVATE ${ARG_HEADERS})
  endif()
endfunction()

# Of sources without MLIR.
set(BRAID_STANDARD_HEADERS <fmt/format.h> <nlohmann/json.hpp> <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstring>
  <filesystem> <fstream> <functional> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view>
  <thread> <unordered_map> <variant> <vector>)

# braid_use_precompiled(<target> <owner>)
function(braid_use_precompiled target owner)
  if(BRAID_USE_PCH)
    target_precompile_headers(${target} REUSE_FROM ${owner})
  endif()
endfunction()

# braid_compiler_flags(): the flags of MLIR as an interface library, and its precompiled headers.
macro(braid_compiler_flags)
  add_library(braid-mlir INTERFACE)
  target_include_directories(braid-mlir SYSTEM INTERFACE ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})
  separate_arguments(llvm_definitions NATIVE_COMMAND ${LLVM_DEFINITIONS})
  target_compile_options(braid-mlir INTERFACE ${llvm_definitions})
  if(NOT LLVM_ENABLE_RTTI)
    target_compile_options(braid-mlir INTERFACE -fno-rtti)
  endif()
  if(BRAID_SANITIZE)
    # MLIR itself is not instrumented, and vptr wants the type information of classes that its libraries keep to
    # themselves. -O1: a third of the time to compile.
    target_compile_options(braid-mlir INTERFACE -fno-sanitize=vptr -O1)
  endif()
  # Only the two shared libraries: mixed with static MLIR archives every type would exist twice.
  target_link_libraries(braid-mlir INTERFACE MLIR LLVM)

  # Headers that nearly every compiler source includes.
  set(BRAID_MLIR_HEADERS
      <mlir/Dialect/Affine/IR/AffineOps.h> <mlir/Dialect/Arith/IR/Arith.h> <mlir/Dialect/Func/IR/FuncOps.h>
      <mlir/Dialect/LLVMIR/LLVMDialect.h> <mlir/Dialect/Linalg/IR/Linalg.h> <mlir/Dialect/Math/IR/Math.h>
      <mlir/Dialect/MemRef/IR/MemRef.h> <mlir/Dialect/SCF/IR/SCF.h> <mlir/Dialect/Tensor/IR/Tensor.h>
      <mlir/Dialect/Vector/IR/VectorOps.h>
      <mlir/Bytecode/BytecodeOpInterface.h> <mlir/IR/Builders.h> <mlir/IR/BuiltinOps.h> <mlir/IR/BuiltinTypes.h>
      <mlir/IR/Dialect.h> <mlir/IR/DialectImplementation.h> <mlir/IR/IRMapping.h> <mlir/IR/Matchers.h>
      <mlir/IR/OpDefinition.h> <mlir/IR/OpImplementation.h> <mlir/IR/PatternMatch.h> <mlir/IR/SymbolTable.h>
      <mlir/Interfaces/FunctionInterfaces.h> <mlir/Interfaces/InferTypeOpInterface.h>
      <mlir/Interfaces/SideEffectInterfaces.h> <mlir/Pass/Pass.h> <mlir/Pass/PassManager.h>
      <mlir/Transforms/DialectConversion.h> <mlir/Transforms/GreedyPatternRewriteDriver.h>
      <llvm/ADT/TypeSwitch.h> <llvm/Support/FormatVariadic.h> <llvm/Support/raw_ostream.h>
      <map> <memory> <optional> <string> <vector>)
  braid_precompiled_headers(braid-pch HEADERS ${BRAID_MLIR_HEADERS} LINK braid-mlir OPTIONS -fno-exceptions)
endmacro()

# braid_use_compiler_flags(<target>): no exceptions, and precompiled headers: MLIR's, and above the dialects theirs too.
function(braid_use_compiler_flags target)
  target_link_libraries(${target} PUBLIC braid-mlir)
  target_compile_options(${target} PRIVATE -fno-exceptions)
  if(TARGET braid-dialects-pch)
    braid_use_precompiled(${target} braid-dialects-pch)
  else()
    braid_use_precompiled(${target} braid-pch)
  endif()
endfunction()

# braid_find_backends(): BRAID_HAVE_{CUDA,MPI,NCCL} in the caller's scope and as compile definitions (0 or 1). CUDA: what
# the compiler needs of the toolkit is in BRAID_CUDA_DEFINITIONS and BRAID_CUDA_INCLUDE_DIRS; nothing links it, its
# libraries are opened when they are needed.
function(braid_find_backends)
  set(found_CUDA OFF)
  set(found_MPI OFF)
  set(found_NCCL OFF)
  if(NOT BRAID_ENABLE_CUDA STREQUAL OFF)
    find_package(CUDAToolkit QUIET)
    set(library "${CUDAToolkit_BIN_DIR}/../nvvm/libdevice/libdevice.10.bc")
    if(CUDAToolkit_FOUND)
      find_file(BRAID_NVJITLINK_HEADER nvJitLink.h PATHS ${CUDAToolkit_INCLUDE_DIRS} NO_DEFAULT_PATH)
      if(BRAID_NVJITLINK_HEADER AND EXISTS "${library}")
        set(found_CUDA ON)
      else()
        message(STATUS "CUDA toolkit in ${CUDAToolkit_BIN_DIR}: without nvJitLink.h or ${library}, not used")
      endif()
    endif()
    if(found_CUDA)
      set(BRAID_CUDA_DEFINITIONS BRAID_CUDA_MAJOR=${CUDAToolkit_VERSION_MAJOR}
        BRAID_CUDA_LIBRARIES="${CUDAToolkit_LIBRARY_DIR}" BRAID_CUDA_ASSEMBLER="${CUDAToolkit_BIN_DIR}/ptxas"
        BRAID_CUDA_DEVICE_LIBRARY="${library}" PARENT_SCOPE)
      set(BRAID_CUDA_INCLUDE_DIRS ${CUDAToolkit_INCLUDE_DIRS} PARENT_SCOPE)
    endif()
  endif()
  if(NOT BRAID_ENABLE_MPI STREQUAL OFF)
    find_package(MPI QUIET COMPONENTS C)
    set(found_MPI ${MPI_C_FOUND})
  endif()
  if(found_CUDA AND NOT BRAID_ENABLE_NCCL STREQUAL OFF)
    find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS}) # a test compares it with NcclApi.h
    if(NCCL_INCLUDE_DIR)
      set(found_NCCL ON)
    endif()
  endif()
  foreach(backend CUDA MPI NCCL)
    if(found_${backend})
      set(have 1)
    else()
      set(have 0)
      if(BRAID_ENABLE_${backend} STREQUAL ON)
        message(FATAL_ERROR "Braid: BRAID_ENABLE_${backend}=ON, but ${backend} was not found")
      endif()
    endif()
    message(STATUS "Braid: ${backend} backend: ${have}")
    set(BRAID_HAVE_${backend} ${have} PARENT_SCOPE)
    target_compile_definitions(braid-common INTERFACE BRAID_HAVE_${backend}=${have})
  endforeach()
endfunction()
