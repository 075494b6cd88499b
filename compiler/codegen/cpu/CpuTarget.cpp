//===- CpuTarget.cpp - which processor kernels are compiled for ---------------------------------------------------===//
#include "compiler/codegen/cpu/CpuTarget.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
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

/// What kernels can make use of beyond a level.
static const std::vector<std::string> kExtra = {"avx512bf16", "avx512vnni"};

llvm::Expected<BlockLimits> braid::parseEmulated(llvm::StringRef option, llvm::StringRef keyword, BlockLimits limits) {
  constexpr int64_t least = 16;
  llvm::StringRef number = option.drop_front(keyword.size());
  if (!number.empty() && (!number.consume_front("=") || number.getAsInteger(10, limits.sharedBytes) ||
                          limits.sharedBytes < least || limits.sharedBytes % least != 0))
    return llvm::createStringError("'" + option + "' is no size of a block's shared memory; valid: " + keyword +
                                   "=N with N bytes, a multiple of 16");
  return limits;
}

llvm::Expected<CpuTarget> CpuTarget::parse(llvm::StringRef name) {
  auto [level, added] = name.split(',');
  CpuTarget target{name.str(), kV3, std::nullopt};
  std::vector<std::string> host = hostFeatures();
  auto covers = [&](const std::vector<std::string> &wanted) {
    return llvm::all_of(wanted, [&](const std::string &feature) { return llvm::is_contained(host, feature); });
  };
  if (level == "x86-64-v4") {
    llvm::append_range(target.features, kV4);
  } else if (level == "native") {
    if (!covers(kV3))
      target.features.clear();
    else if (covers(kV4)) {
      llvm::append_range(target.features, kV4);
      for (const std::string &extra : kExtra)
        if (llvm::is_contained(host, extra))
          target.features.push_back(extra);
    }
  } else if (level != "x86-64-v3") {
    return llvm::createStringError("unknown CPU target '" + level + "': native, x86-64-v3 or x86-64-v4");
  }
  llvm::SmallVector<llvm::StringRef> names;
  if (level.size() < name.size())
    added.split(names, ',');
  for (llvm::StringRef feature : names) {
    if (feature == "threads" || feature.starts_with("threads=")) {
      llvm::Expected<BlockLimits> limits = parseEmulated(feature, "threads", {int64_t(227) << 10, /*wgmma=*/true});
      if (!limits)
        return limits.takeError();
      target.emulated = *limits;
      continue;
    }
    if (!llvm::is_contained(kExtra, feature))
      return llvm::createStringError("unknown CPU feature '" + feature + "'; valid: " + llvm::join(kExtra, ", "));
    if (!target.has("avx512f"))
      return llvm::createStringError("CPU feature '" + feature + "' needs AVX-512, which " + level + " lacks" +
                                     (level == "native" ? " here" : "") + "; valid: x86-64-v4," + feature);
    if (!target.has(feature))
      target.features.push_back(feature.str());
  }
  return target;
}
