//===- BraidInterfaces.td - what passes may ask of an op ---------------------------------------------------------===//
#ifndef BRAID_INTERFACES
#define BRAID_INTERFACES

include "mlir/IR/OpBase.td"

def Braid_TokenOpInterface : OpInterface<"TokenOpInterface"> {
  let cppNamespace = "::braid";
  let description = [{
    How an op meets tokens: what slicing (along T) and sharding (along B) need to know. The kind of a value as this op
    sees it (enum TokenKind in BraidDialect.h):
      token   [B, T, ...], row t depends on rows <= t at most through a carry;  state   [B, ...] carried from one slice to
      the next (operand = incoming, result with the same `carryOf` = outgoing);  whole   the same for all tokens (weights);
      rows    [1, R, ...] expert rows: R follows the number of tokens;  piece   a sum over tokens (weight gradients).
  }];
  let methods = [
    InterfaceMethod<"kind of an operand", "::braid::TokenKind", "operandKind", (ins "unsigned":$index)>,
    InterfaceMethod<"kind of a result", "::braid::TokenKind", "resultKind", (ins "unsigned":$index)>,
    InterfaceMethod<"carry: the operand that takes result `index` of the previous slice (of the following slice when carryReversed), or -1",
      "int", "carryOf", (ins "unsigned":$index), "", "return -1;">,
    InterfaceMethod<"carries run from the last slice to the first (gradients)", "bool", "carryReversed", (ins), "", "return false;">,
  ];
}

def Braid_RowsOpInterface : OpInterface<"RowsOpInterface", [Braid_TokenOpInterface]> {
  let cppNamespace = "::braid";
  let description = [{
    A row-wise op: row (b, t) of every result depends on row (b, t) of the token operands and on whole operands only.
    One method says what it computes on tiles; fusion, the kernel, slicing and the gradient (reverse mode over the very
    tile operations it emits) all follow from it. Tiles are [R, features...] for token values ([B, T, features...]) and
    the tensor's own shape for whole values.
  }];
  let methods = [
    InterfaceMethod<"emit the op on tiles", "void", "emitTile",
      (ins "::braid::TileEmitter &":$emitter, "::mlir::ValueRange":$operands, "::llvm::SmallVectorImpl<::mlir::Value> &":$results)>,
  ];
}

def Braid_DifferentiableOpInterface : OpInterface<"DifferentiableOpInterface"> {
  let cppNamespace = "::braid";
  let description = [{
    Reverse mode: given the cotangents of the results (null: zero), build gradient ops and report the cotangents of
    the operands. Values of the forward are named through the context, which saves them.
  }];
  let methods = [
    InterfaceMethod<"build the gradient", "::llvm::LogicalResult", "buildGradient", (ins "::braid::GradientContext &":$context)>,
  ];
}

def Braid_CollectiveOpInterface : OpInterface<"CollectiveOpInterface"> {
  let cppNamespace = "::braid";
  let description = [{
    A whole collective: operand 0 travels over the ranks of `axis` ("tp", or a product "dp*sp"), result 0 is what this rank gets.
    Attributes beyond kind and axis have the names of those of braid.comm.start, which is its first half.
  }];
  let methods = [
    InterfaceMethod<"which collective it is", "::braid::CollectiveKind", "getKind">,
    InterfaceMethod<"the axis, or product of axes", "::mlir::StringAttr", "getAxisAttr">,
  ];
}

#endif // BRAID_INTERFACES
