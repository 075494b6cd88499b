//===- CmdDialect.cpp - the command dialect: registration, sizes --------------------------------------------------===//
#include "dialects/cmd/CmdDialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace braid::cmd;

#include "dialects/cmd/CmdDialect.cpp.inc"
#include "dialects/cmd/CmdEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/cmd/CmdAttrs.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/cmd/CmdOps.cpp.inc"

void CmdDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/cmd/CmdAttrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/cmd/CmdOps.cpp.inc"
      >();
}

int64_t braid::cmd::elementBytes(Type element) { return llvm::divideCeil(element.getIntOrFloatBitWidth(), 8); }

int64_t braid::cmd::tensorBytes(RankedTensorType type) {
  return type.getNumElements() * elementBytes(type.getElementType());
}
