//===- CudaDriver.h - is there a GPU that could run a program? ----------------------------------------------------===//
#ifndef RUNTIME_CUDADRIVER_H
#define RUNTIME_CUDADRIVER_H

#include "runtime/Status.h"

namespace braid::runtime {

/// Opens NVIDIA's driver (libcuda.so.1) and counts its devices. Not ok: the driver could not be opened or started, or has
/// no device; the message says which, and the driver's error number. The driver is never linked: programs of ours start
/// on machines without one.
Status checkCudaDevice();

} // namespace braid::runtime

#endif // RUNTIME_CUDADRIVER_H
