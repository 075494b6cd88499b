//===- BraidBases.td - base classes of model ops -----------------------------------------------------------------===//
#ifndef BRAID_BASES
#define BRAID_BASES

include "dialects/braid/BraidDialect.td"
include "dialects/braid/BraidInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

// Token operands are [B, T, ...]; operands whose name is in `wholeOperands` are whole.
class Braid_RowsOp<string mnemonic, list<Trait> traits = []> : Braid_Op<mnemonic, !listconcat([Pure,
    DeclareOpInterfaceMethods<Braid_RowsOpInterface>, DeclareOpInterfaceMethods<Braid_TokenOpInterface>,
    DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>], traits)> {
  let results = (outs AnyRankedTensor:$result);
  let hasVerifier = 1;
}

class Braid_TokenOp<string mnemonic, list<Trait> traits = []> : Braid_Op<mnemonic, !listconcat([Pure,
    DeclareOpInterfaceMethods<Braid_TokenOpInterface>], traits)> { let hasVerifier = 1; }
class Braid_DiffOp<string mnemonic, list<Trait> traits = []> :
    Braid_TokenOp<mnemonic, !listconcat([DeclareOpInterfaceMethods<Braid_DifferentiableOpInterface>], traits)>;

#endif // BRAID_BASES
