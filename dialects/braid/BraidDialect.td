//===- BraidDialect.td - the model dialect -----------------------------------------------------------------------===//
//
//   frontend --> [model] --Differentiate--> [train] --ApplySharding--> [sharded] --ExpandSlices, Weave--> [scheduled]
//            --ChunkTiling--> [chunked] --Outline--> [kernels] (tile) --LowerToCommands--> [commands] (cmd)
//
// Tensors of static shape, plain SSA. Token tensors are [B, T, ...]; expert rows are [1, R, ...]; states are [B, ...].
// Weights are ordinary operands: a layer is a private function that takes the weights of ONE layer, `braid.repeat` walks
// the stacked weights of equal layers (like a scan: carried values, stacked inputs, stacked results).
// What a tensor is called outside, and whether the host, a checkpoint or the optimizer sees it, stands in attributes of
// the entry function's arguments and results (BraidDialect.h).
//
//   BraidDialect.td     this page        BraidTypes.td       future
//   BraidEnums.td       choices          BraidInterfaces.td  what passes may ask of an op
//   StructureOps.td     repeat, views    RowsOps.td          norms, gates, activations, rotations (row-wise, fused)
//   LinearOps.td        GEMM users, embedding, loss            LsmOps.td, AttnOps.td, MoeOps.td    the three strands
//   CommOps.td          collectives      TrainOps.td         optimizer, initialisation
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_DIALECT
#define BRAID_DIALECT

include "mlir/IR/OpBase.td"

def Braid_Dialect : Dialect {
  let name = "braid";
  let cppNamespace = "::braid";
  let summary = "Models of linear sequence modelling, attention and experts, from logical tensors to woven slices";
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1; // Attributes.cpp
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect"];
}

// No `?` in any operand or result: every verifier and pass behind it may read sizes.
def Braid_StaticShapes : NativeOpTrait<"StaticShapes"> { let cppNamespace = "::braid"; }

class Braid_Op<string mnemonic, list<Trait> traits = []> :
    Op<Braid_Dialect, mnemonic, !listconcat([Braid_StaticShapes], traits)> {
  let assemblyFormat = "operands attr-dict `:` functional-type(operands, results)";
}

#endif // BRAID_DIALECT
