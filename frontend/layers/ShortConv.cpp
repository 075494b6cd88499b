//===- ShortConv.cpp - a gated short convolution ------------------------------------------------------------------===//
//   y = (c * (conv(b * z) [+ bias])) wo [+ bo]      b, c, z = x wb [+ bb], x wc [+ bc], x wz [+ bz]
// LFM2 (Liquid AI 2025). The only state is the last tokens of b * z.
#include "frontend/layers/LsmParts.h"

using namespace mlir;
using namespace braid;

Value braid::buildShortConv(LayerBuilder &b, Value x, const ShortConvSpec &spec) {
  Dim channels(spec.width ? spec.width : b.spec.dModel, "hidden");
  static constexpr StringRef names[] = {"b", "c", "z"};
  Projections p(b);
  for (StringRef name : names)
    p.add(name, {channels}, /*wide=*/false, name == "z" ? MatrixRole::value : MatrixRole::query);
  p.run(x);
  if (spec.projectionBias)
    for (StringRef name : names)
      p.replace(name, b.bias(name, p[name], b.weight(("lsm.b" + name).str(), {channels}, Init::constant(0.0))));
  Value taken = convolve(b, spec.conv, "z", b.mul("z_gated", p["z"], p["b"]), channels.name);
  Value y = b.linear("lsm_out", b.mul("o", taken, p["c"]), b.matrix("lsm.wo", channels, b.embed(), MatrixRole::output),
                     {b.spec.dModel});
  return spec.outputBias ? b.bias("lsm_out", y, b.weight("lsm.bo", {b.embed()}, Init::constant(0.0))) : y;
}
