//===- Parameters.cpp - names, stacked shapes and keys ------------------------------------------------------------===//
#include "frontend/Parameters.h"

using namespace braid;

int64_t ModelTensor::elements() const {
  int64_t n = 1;
  for (int64_t d : shape)
    n *= d;
  return n;
}

static int64_t fnv1a(llvm::StringRef text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (unsigned char c : text)
    hash = (hash ^ c) * 0x100000001b3u;
  return static_cast<int64_t>(hash);
}

std::vector<int64_t> ModelTensor::keys() const {
  if (layers.empty())
    return {fnv1a(name)};
  std::vector<int64_t> keys;
  auto [before, after] = llvm::StringRef(name).split("{}");
  for (int32_t layer : layers)
    keys.push_back(fnv1a((before + llvm::Twine(layer) + after).str()));
  return keys;
}

Shape braid::stackedShape(const LayerGroup &group, const LayerRun &run, llvm::ArrayRef<int64_t> shape) {
  Shape stacked;
  if (group.rounds > 1)
    stacked.push_back(group.rounds);
  if (run.count > 1)
    stacked.push_back(run.count);
  stacked.append(shape.begin(), shape.end());
  return stacked;
}

ModelTensor braid::layerTensor(const LayerGroup &group, const LayerRun &run, llvm::StringRef prefix,
                               llvm::StringRef name, mlir::RankedTensorType type) {
  ModelTensor t;
  bool single = run.layers.size() == 1;
  std::string index = single ? std::to_string(run.layers.front()) : "{}";
  t.name = (prefix + "layers." + index + "." + name).str();
  t.shape = stackedShape(group, run, type.getShape());
  t.element = mlir::cast<mlir::FloatType>(type.getElementType());
  if (!single)
    t.layers = run.layers;
  return t;
}
