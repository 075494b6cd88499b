//===- ClusterFile.h - devices and links as a file ----------------------------------------------------------------===//
#ifndef TOOLS_BRAIDPLAN_CLUSTERFILE_H
#define TOOLS_BRAIDPLAN_CLUSTERFILE_H

#include "compiler/CompileOptions.h"
#include "frontend/ModelSpec.h"
#include "passes/analysis/Machine.h"
#include "passes/analysis/Mesh.h"
#include "runtime/Communicator.h"

namespace braid::plan {

/// models/clusters/README.md says what each key means. Rates per second, times in seconds.
struct Device {
  std::string name = "device";
  double f32Flops = 0, bf16Flops = 0, f64Flops = 0; ///< of matrix products; 0: as fast as f32
  double bandwidth = 0; ///< bytes of its own memory
  double memory = 0; ///< bytes
  double efficiency = 1; ///< share of the rates that kernels reach
  double overhead = 0; ///< of every command
  std::optional<double> bandwidthEfficiency; ///< of the bandwidth, where that is another share
  std::string arch; ///< of a GPU: what its programs are compiled for, as braid-compile --arch; empty: a processor
  int64_t multiprocessors = 0; ///< a kernel of fewer blocks reaches that share of its rates; 0: not known
  double cache = 0, cacheBandwidth = 0; ///< a command that touches at most so many bytes finds them there; 0: none
  /// What kernels whose names begin so reach, where that is known by itself; 0: what others do.
  struct KernelRates {
    std::string begin;
    double flops = 0, bandwidth = 0;
  };
  std::vector<KernelRates> kernels;
  double flops(llvm::StringRef dtype) const {
    double rate = dtype == "bf16" ? bf16Flops : dtype == "f64" ? f64Flops : f32Flops;
    return rate > 0 ? rate : f32Flops;
  }
  double reachedBandwidth() const { return bandwidth * bandwidthEfficiency.value_or(efficiency); }
  /// For a program of CPUs: what is known of a GPU's kernels says nothing of it.
  void runOnProcessor();
  /// Seconds of a command. `kernel`: which it launches, as `blocks` blocks; empty: none.
  double seconds(llvm::StringRef dtype, double work, double bytes, llvm::StringRef kernel = "",
                 double blocks = 0) const;
};

using runtime::CollectiveKind;

struct Link {
  double bandwidth = 0; ///< bytes in each direction: of one device inside a node, of a whole node between nodes
  double latency = 0; ///< of one message
  /// Seconds of the rank's own processor, which computes meanwhile that much less: of a message sent or received, of a
  /// byte. 0: a network card does it.
  double perMessage = 0, perByte = 0;
};

struct Cluster {
  std::string name = "cluster";
  int64_t nodes = 1, ranksPerNode = 1;
  Device device;
  Link node, network;
  /// What all-to-alls inside a node take, where that is known by itself; not in a file.
  std::optional<Link> exchanges;
  std::string text; ///< all that was read
  int64_t ranks() const { return nodes * ranksPerNode; }
};

/// The file, and that of its device where it names one; nothing after messages.
std::optional<Cluster> readCluster(const std::string &path);

/// Of a program that is looked at: the target that was asked for (`given`: flags, "--target=cpu"), else that of the cluster's devices.
/// What is known of a device's kernels is not of a program for CPUs.
void chooseTarget(CompileOptions &compile, llvm::ArrayRef<std::string> given, Device &device);

/// Seconds of a collective in which each of the ranks `members` sends `bytes` in all (all_to_all: to all members,
/// itself included; shift: to one other rank; the others: the size of the whole, of which a rank gives or gets its
/// part). Every rank of the cluster runs
/// one like it at the same time, so ranks of a node share its link to the network.
double collectiveSeconds(const Cluster &cluster, CollectiveKind kind, llvm::ArrayRef<uint32_t> members, double bytes);

/// What the compiler chooses by on these ranks: rates that kernels reach, and what an exchange between the ranks of ep
/// takes; without such ranks a message between stages.
Machine machineOf(const Cluster &cluster, const Mesh &mesh, llvm::StringRef dtype);

/// Ranks that are such a machine each: the other way round.
Cluster clusterOf(const Machine &machine, int64_t ranks);

/// Seconds of a rank's own processor for what it sends and receives in such a collective.
double processorSeconds(const Cluster &cluster, CollectiveKind kind, llvm::ArrayRef<uint32_t> members, double bytes);

} // namespace braid::plan

#endif // TOOLS_BRAIDPLAN_CLUSTERFILE_H
