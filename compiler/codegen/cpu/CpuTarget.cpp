//===- CpuTarget.cpp - which processor kernels are compiled for ---------------------------------------------------===//
#include "compiler/codegen/cpu/CpuTarget.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"

using namespace braid;

static const std::vector<std::string> kV3 = {"avx",   "avx2",   "bmi",  "bmi2",   "f16c",   "fma",  "lzcnt",
                                             "movbe", "popcnt", "sse3", "sse4.1", "sse4.2", "ssse3"};
static const std::vector<std::string> kV4 = {"avx512bw", "avx512cd", "avx512dq", "avx512f", "avx512vl"};

std::vector<std::string> braid::hostFeatures() {
  std::vector<std::string> features;
  for (const auto &feature : llvm::sys::getHostCPUFeatures())
    if (feature.second)
      features.push_back(feature.first().str());
  llvm::sort(features);
  return features;
}

bool CpuTarget::has(llvm::StringRef feature) const { return llvm::is_contained(features, feature); }

llvm::Expected<CpuTarget> CpuTarget::parse(llvm::StringRef name) {
  CpuTarget target{name.str(), kV3};
  if (name == "x86-64-v3")
    return target;
  if (name == "x86-64-v4") {
    llvm::append_range(target.features, kV4);
    return target;
  }
  if (name != "native")
    return llvm::createStringError("unknown CPU target '" + name + "': native, x86-64-v3 or x86-64-v4");
  std::vector<std::string> host = hostFeatures();
  auto covers = [&](const std::vector<std::string> &wanted) {
    return llvm::all_of(wanted, [&](const std::string &feature) { return llvm::is_contained(host, feature); });
  };
  if (!covers(kV3))
    target.features.clear();
  else if (covers(kV4)) {
    llvm::append_range(target.features, kV4);
    for (const char *extra : {"avx512bf16", "avx512vnni"})
      if (llvm::is_contained(host, extra))
        target.features.push_back(extra);
  }
  return target;
}
