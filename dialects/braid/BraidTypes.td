//===- BraidTypes.td - types of the model dialect ----------------------------------------------------------------===//
#ifndef BRAID_TYPES
#define BRAID_TYPES

include "dialects/braid/BraidDialect.td"
include "mlir/IR/AttrTypeBase.td"

def Braid_Future : TypeDef<Braid_Dialect, "Future"> {
  let mnemonic = "future";
  let summary = "a collective under way; its tensors exist only after `braid.comm.await`";
  let parameters = (ins OptionalArrayRefParameter<"::mlir::Type">:$results);
  let assemblyFormat = "(`<` $results^ `>`)?";
}

#endif // BRAID_TYPES
