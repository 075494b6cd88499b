//===- GradientContext.h - what an op sees while its gradient is built --------------------------------------------===//
// Reverse mode: from the cotangents of its results, dy, an op adds J^T dy to the cotangent of every operand that
// somebody wants (wanted), with J the derivative at the forward's values. A cotangent has the shape of its value; that
// of a weight is summed over all tokens and may be wider than the weight (gradientElement). An op that cannot says so
// with emitOpError and fails.
#ifndef DIALECTS_BRAID_GRADIENTCONTEXT_H
#define DIALECTS_BRAID_GRADIENTCONTEXT_H

#include "dialects/braid/BraidDialect.h"
#include "mlir/IR/Builders.h"

namespace braid {

/// Implemented by Differentiate. `builder` stands where the backward grows; values of the forward must be named through
/// saved(), which makes them available there (and marks them as kept).
class GradientContext {
public:
  virtual ~GradientContext() = default;
  virtual mlir::OpBuilder &builder() = 0;
  virtual mlir::Value saved(mlir::Value forward) = 0;
  /// Cotangent of a forward value summed so far, or null (zero).
  virtual mlir::Value cotangent(mlir::Value forward) = 0;
  /// As above, a zero constant instead of null.
  virtual mlir::Value cotangentOrZero(mlir::Value forward) = 0;
  /// Whether anybody needs the cotangent of this forward value.
  virtual bool wanted(mlir::Value forward) = 0;
  virtual void add(mlir::Value forward, mlir::Value cotangent) = 0;
  /// Element type of the gradient of a weight: f32 (f64 in f64 programs); by option that of the weight.
  virtual mlir::Type gradientElement(mlir::Type weight) = 0;
};

} // namespace braid

#endif // DIALECTS_BRAID_GRADIENTCONTEXT_H
