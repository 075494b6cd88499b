//===- ClusterFile.cpp - JSON to Cluster, and what exchanges cost on it -------------------------------------------===//
#include "tools/braid-plan/ClusterFile.h"

#include "frontend/Json.h"
#include "runtime/Program.h"
#include "tools/common/InputFile.h"

#include "llvm/Support/Path.h"

#include <cmath>
#include <map>

using namespace braid;
using namespace braid::json;
using namespace braid::plan;
using llvm::StringRef;

/// Of bytes and operations, per second too. Below, times of a step would no longer be numbers.
static constexpr double minRate = 1, maxRate = 1e24, minEfficiency = 1e-6;

static void requireNumber(Reader &r, StringRef key, double &value, double most, StringRef hint) {
  if (r.has(key))
    r.number(key, value, minRate, most);
  else
    r.require(key, hint);
}

static void readLink(Reader &parent, Errors &errors, StringRef key, bool needed, StringRef why, Link &link) {
  const Value *value = parent.objectAt(key);
  if (!value) {
    if (needed && !parent.has(key))
      parent.error(key, "is missing; " + why.str());
    return;
  }
  Reader r(*value, parent.pathOf(key), errors);
  requireNumber(r, "bandwidth", link.bandwidth, maxRate, "valid: bytes per second, at least 1");
  r.number("latency", link.latency, 0, 3600);
  r.number("processor_per_message", link.perMessage, 0, 3600);
  r.number("processor_per_byte", link.perByte, 0, 3600);
}

static void readKernels(Reader &d, Errors &errors, Device &device) {
  const Value *kernels = d.objectAt("kernels");
  if (!kernels)
    return;
  Reader all(*kernels, d.pathOf("kernels"), errors);
  for (const Field &field : kernels->fields) {
    const Value *value = all.objectAt(field.name);
    if (!value)
      continue;
    if (field.name.empty()) {
      all.error(field.name, "every kernel begins so; valid: efficiency and bandwidth_efficiency for all of them");
      continue;
    }
    Reader r(*value, all.pathOf(field.name), errors);
    Device::KernelRates &rates = device.kernels.emplace_back(Device::KernelRates{field.name});
    r.number("flops", rates.flops, minRate, maxRate);
    r.number("bandwidth", rates.bandwidth, minRate, maxRate);
    if (value->fields.empty())
      all.error(field.name, "says nothing; valid: {\"flops\": operations per second, \"bandwidth\": bytes per second}, "
                            "or one of both");
  }
}

static void readDevice(Reader &d, Errors &errors, Device &device) {
  d.string("name", device.name);
  if (const Value *flops = d.objectAt("flops")) {
    Reader f(*flops, d.pathOf("flops"), errors);
    requireNumber(f, "f32", device.f32Flops, maxRate, "valid: operations per second, at least 1");
    f.number("bf16", device.bf16Flops, minRate, maxRate);
    f.number("f64", device.f64Flops, minRate, maxRate);
  } else if (!d.has("flops")) {
    d.error("flops", "is missing; valid: {\"f32\": operations per second, ..}");
  }
  requireNumber(d, "bandwidth", device.bandwidth, maxRate, "valid: bytes per second, at least 1");
  requireNumber(d, "memory", device.memory, maxRate, "valid: bytes, at least 1");
  d.number("cache", device.cache, 0, maxRate);
  if (device.cache > 0 && !d.has("cache_bandwidth"))
    d.require("cache_bandwidth", "valid: bytes per second, at least 1, where cache is given");
  d.number("cache_bandwidth", device.cacheBandwidth, minRate, maxRate);
  if (device.cacheBandwidth > 0 && device.cache == 0)
    d.error("cache", "is missing; valid: the bytes that are read at cache_bandwidth");
  d.number("efficiency", device.efficiency, minEfficiency, 1);
  double ofBandwidth = device.efficiency;
  d.number("bandwidth_efficiency", ofBandwidth, minEfficiency, 1);
  device.bandwidthEfficiency = ofBandwidth;
  d.number("overhead", device.overhead, 0, 3600);
  d.choice("arch", device.arch, {"sm_90a", "sm_80"});
  d.integer("multiprocessors", device.multiprocessors, 1, 65536);
  readKernels(d, errors, device);
}

/// A file of its own, beside that of the cluster, which names it; false after a message.
static bool readDeviceFile(Reader &r, const std::string &name, StringRef clusterPath, DiagnosticFn error,
                           Cluster &cluster) {
  auto refuse = [&](const std::string &why) {
    r.error("device",
            describe(stringValue(name)) + " " + why +
                "; valid: the name of a file beside this one, or {\"flops\": .., \"bandwidth\": .., \"memory\": ..}");
    return false;
  };
  if (name.empty() || name.find('\0') != std::string::npos)
    return refuse("is no name of a file");
  llvm::SmallString<128> path;
  if (llvm::sys::path::is_relative(name))
    path = llvm::sys::path::parent_path(clusterPath);
  llvm::sys::path::append(path, name);
  llvm::Expected<std::string> text = readInput(path);
  if (!text)
    return refuse("is not there: " + llvm::toString(text.takeError()));
  std::optional<Value> root = parseObject(*text, path, error, "{\"flops\": .., \"bandwidth\": ..}");
  if (!root)
    return false;
  cluster.text += *text;
  Errors errors(*root, path, error);
  errors.doublePrecision = true;
  {
    Reader d(*root, "", errors);
    readDevice(d, errors, cluster.device);
  }
  return !errors.any();
}

std::optional<Cluster> plan::readCluster(const std::string &path) {
  auto error = [](const std::string &message) { printError(message); };
  std::optional<std::string> text = readFile(path);
  std::optional<Value> root = text ? parseObject(*text, path, error, "{\"device\": .., \"nodes\": ..}") : std::nullopt;
  if (!root)
    return std::nullopt;
  Errors errors(*root, path, error);
  errors.doublePrecision = true;
  Cluster cluster;
  cluster.text = *text;
  bool hasDevice = true;
  {
    Reader r(*root, "", errors);
    r.string("name", cluster.name);
    r.integer("nodes", cluster.nodes, 1, 65536);
    r.integer("ranks_per_node", cluster.ranksPerNode, 1, 4096);
    const Value *device = root->find("device");
    constexpr StringRef valid = "{\"flops\": .., \"bandwidth\": .., \"memory\": ..}, or the name of a file with that";
    if (!device) {
      r.error("device", "is missing; valid: " + valid.str());
    } else if (device->kind == Kind::string) {
      std::string name;
      r.string("device", name);
      hasDevice = readDeviceFile(r, name, path, error, cluster);
    } else if (device->kind == Kind::object) {
      Reader d(*r.objectAt("device"), "device", errors);
      readDevice(d, errors, cluster.device);
    } else {
      r.take("device");
      r.error("device", describe(*device) + " is no device; valid: " + valid.str());
    }
    const Value *links = r.objectAt("links");
    Value none;
    none.kind = Kind::object;
    none.line = root->line;
    Reader l(links ? *links : none, "links", errors);
    readLink(l, errors, "node", cluster.ranksPerNode > 1,
             "ranks_per_node is " + std::to_string(cluster.ranksPerNode) + ", which exchange over it", cluster.node);
    readLink(l, errors, "network", cluster.nodes > 1,
             "nodes is " + std::to_string(cluster.nodes) + ", which exchange over it", cluster.network);
  }
  return errors.any() || !hasDevice ? std::nullopt : std::optional(std::move(cluster));
}

void plan::chooseTarget(CompileOptions &compile, llvm::ArrayRef<std::string> given, Device &device) {
  auto isGiven = [&](StringRef flag) {
    return llvm::any_of(given, [&](StringRef word) { return word == flag || word.starts_with((flag + "=").str()); });
  };
  // Who names a processor means one.
  if (!device.arch.empty() && !isGiven("--target") && !isGiven("--cpu"))
    compile.target = "cuda";
  if (compile.target != "cuda")
    return device.runOnProcessor();
  if (!device.arch.empty() && !isGiven("--arch"))
    compile.arch = device.arch;
  if (!isGiven("--cpu"))
    compile.cpu = CompileOptions().cpu;
}

void Device::runOnProcessor() {
  kernels.clear();
  multiprocessors = 0;
}

double Device::seconds(StringRef dtype, double work, double bytes, StringRef kernel, double blocks) const {
  const KernelRates *own = nullptr;
  for (const KernelRates &rates : kernels)
    if (!kernel.empty() && kernel.starts_with(rates.begin) && (!own || own->begin.size() < rates.begin.size()))
      own = &rates;
  // A rate of another type is no rate of this one.
  double rate = own && own->flops > 0 ? std::min(own->flops, flops(dtype)) : flops(dtype) * efficiency;
  double memoryRate = own && own->bandwidth > 0     ? own->bandwidth
                      : cache > 0 && bytes <= cache ? cacheBandwidth * bandwidthEfficiency.value_or(efficiency)
                                                    : reachedBandwidth();
  auto all = static_cast<double>(multiprocessors);
  double share = blocks > 0 && blocks < all ? blocks / all : 1;
  return std::max(work / rate, bytes / memoryRate) / share;
}

double plan::processorSeconds(const Cluster &cluster, CollectiveKind kind, llvm::ArrayRef<uint32_t> members,
                              double bytes) {
  if (members.size() < 2)
    return 0;
  auto inFirst = [&](uint32_t rank) { return rank / cluster.ranksPerNode == members[0] / cluster.ranksPerNode; };
  double others = static_cast<double>(members.size()) - 1;
  double local = static_cast<double>(llvm::count_if(members, inFirst)) - 1, remote = others - local;
  // Sent and received; in front of the data each tells the other what it calls.
  auto both = [&](const Link &link, double messages, double amount) {
    return 2 * (2 * messages * link.perMessage + amount * link.perByte);
  };
  if (kind == CollectiveKind::shift)
    return remote > 0 ? both(cluster.network, 1, bytes) : both(cluster.node, 1, bytes);
  double part = bytes / static_cast<double>(members.size());
  double once = both(cluster.node, local, local * part) + both(cluster.network, remote, remote * part);
  return kind == CollectiveKind::allReduce ? 2 * once : once;
}

double plan::collectiveSeconds(const Cluster &cluster, CollectiveKind kind, llvm::ArrayRef<uint32_t> members,
                               double bytes) {
  auto size = static_cast<double>(members.size());
  if (members.size() < 2)
    return 0;
  std::map<int64_t, int64_t> perNode;
  for (uint32_t rank : members)
    ++perNode[rank / cluster.ranksPerNode];
  double local = 0; // members of the fullest node
  for (auto [node, count] : perNode)
    local = std::max(local, static_cast<double>(count));
  auto nodes = static_cast<double>(perNode.size());
  // Groups like this one that share the links of a node.
  double groups = static_cast<double>(cluster.ranksPerNode) / local;
  auto over = [](double amount, double bandwidth) { return amount > 0 ? amount / bandwidth : 0; };
  const Link &node = kind == CollectiveKind::allToAll && cluster.exchanges ? *cluster.exchanges : cluster.node;
  double latency = std::max(nodes > 1 ? cluster.network.latency : 0, local > 1 ? node.latency : 0);
  if (kind == CollectiveKind::shift) // the neighbours at the border of two nodes are the slowest, one of each group
    return latency +
           (nodes > 1 ? over(bytes * groups, cluster.network.bandwidth) : over(bytes, cluster.node.bandwidth));
  if (kind == CollectiveKind::allToAll) {
    double inside = bytes * (local - 1) / size, outside = bytes * (size - local) / size;
    // Both links work at the same time; what leaves a node comes from all its ranks.
    return std::ceil(std::log2(size)) * latency +
           std::max(over(inside, node.bandwidth),
                    over(outside * static_cast<double>(cluster.ranksPerNode), cluster.network.bandwidth));
  }
  // Rings: inside a node on everything, between nodes on each rank's share of it. An all-reduce is a reduce-scatter and
  // an all-gather.
  double halves = kind == CollectiveKind::allReduce ? 2 : 1;
  double seconds = over(bytes * (local - 1) / local, cluster.node.bandwidth) +
                   over(bytes * (nodes - 1) / nodes * groups, cluster.network.bandwidth);
  return halves * (seconds + std::ceil(std::log2(size)) * latency);
}

Cluster plan::clusterOf(const Machine &machine, int64_t ranks) {
  Cluster cluster;
  cluster.nodes = ranks;
  cluster.device.f32Flops = machine.flops;
  cluster.device.bandwidth = machine.bandwidth;
  cluster.device.overhead = machine.overhead;
  cluster.node = cluster.network = {machine.linkBandwidth, machine.linkLatency, 0, 0};
  return cluster;
}

Machine plan::machineOf(const Cluster &cluster, const Mesh &mesh, llvm::StringRef dtype) {
  runtime::MeshInfo ranks;
  for (auto [from, to] : {std::pair(&mesh.dense, &ranks.dense), std::pair(&mesh.expert, &ranks.expert)})
    for (const Mesh::Axis &axis : *from)
      to->push_back({axis.name, static_cast<uint32_t>(axis.size)});
  // What experts exchange, else what stages do.
  std::vector<uint32_t> members = ranks.members(0, "ep").value_or(std::vector<uint32_t>{0});
  CollectiveKind kind = CollectiveKind::allToAll;
  if (members.size() < 2) {
    members = ranks.members(0, "pp").value_or(std::vector<uint32_t>{0});
    kind = CollectiveKind::shift;
  }
  // Apart: of a large latency and a small time of the bytes the sum keeps only the first.
  Cluster instant = cluster;
  for (Link *link : {&instant.node, &instant.network, instant.exchanges ? &*instant.exchanges : nullptr})
    if (link)
      link->latency = 0;
  auto seconds = [&](const Cluster &on, double bytes) { return collectiveSeconds(on, kind, members, bytes); };
  const Device &device = cluster.device;
  Machine machine{device.flops(dtype) * device.efficiency, device.reachedBandwidth(), device.overhead, 1e10, 0};
  if (members.size() > 1) {
    machine.linkBandwidth = std::min(maxRate, 1e9 / seconds(instant, 1e9)); // what a description may say
    machine.linkLatency = seconds(cluster, 0);
  }
  return machine;
}
