//===- CmdAttrs.td - buffers and choices of commands -------------------------------------------------------------===//
#ifndef BRAID_CMD_ATTRS
#define BRAID_CMD_ATTRS

include "dialects/cmd/CmdDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Cmd_BufferAttr : AttrDef<Cmd_Dialect, "Buffer"> {
  let mnemonic = "buffer";
  let summary = "bytes [offset, offset + bytes) of an arena, moved by one stride per enclosing repeat";
  let description = [{
    `strides` are bytes per iteration of the repeats around the command, outermost first; missing ones are 0. They may
    be negative: a reversed walk starts at the last element.
    ```mlir
    #cmd.buffer<@saved, 4096, 1024, strides = [2048]>
    ```
  }];
  let parameters = (ins "::mlir::FlatSymbolRefAttr":$arena, "int64_t":$offset, "int64_t":$bytes,
                        OptionalArrayRefParameter<"int64_t">:$strides);
  let assemblyFormat = "`<` $arena `,` $offset `,` $bytes (`,` `strides` `=` `[` $strides^ `]`)? `>`";
  let genVerifyDecl = 1;
}

def Cmd_WorkAttr : AttrDef<Cmd_Dialect, "Work"> {
  let mnemonic = "work";
  let summary = "what an op must do at least, counted from its shapes: FLOPs, bytes; and how it was decided to do it";
  let description = [{
    CountWork writes it as `cmd.work` on model ops, Outline shares it among the launches and library calls that an op becomes,
    LowerToCommands hands it on to the commands.
    ```mlir
    #cmd.work<"add + rms_norm", flops = 655360, bytes = 1573376, "2 row-wise ops fused: one pass over 1024 rows">
    ```
    `rows`: that many rows of experts, all that their buffer has room for, are counted; only those are computed that came. `fixed`: bytes, of
    all, that do not follow those rows: weights, and what tokens have.
  }];
  let parameters = (ins StringRefParameter<"the op">:$op, "int64_t":$flops, "int64_t":$bytes,
                        StringRefParameter<"why this kernel">:$choice, DefaultValuedParameter<"int64_t", "0">:$rows,
                        DefaultValuedParameter<"int64_t", "0">:$fixed);
  let assemblyFormat = "`<` $op `,` `flops` `=` $flops `,` `bytes` `=` $bytes `,` $choice (`,` `rows` `=` $rows^)? (`,` `fixed` `=` $fixed^)? `>`";
  let genVerifyDecl = 1;
}

// The values equal those of the schema.
def Cmd_Role : I32EnumAttr<"Role", "role of a named tensor", [
  I32EnumAttrCase<"parameter", 0>, I32EnumAttrCase<"moment", 1>, I32EnumAttrCase<"gradient", 2>,
  I32EnumAttrCase<"input", 3>, I32EnumAttrCase<"output", 4>, I32EnumAttrCase<"cache", 5>]> {
  let cppNamespace = "::braid::cmd";
}
def Cmd_GroupedKind : I32EnumAttr<"GroupedKind", "what a grouped GEMM computes per group", [
  I32EnumAttrCase<"rows", 0>, I32EnumAttrCase<"weight", 1>]> { let cppNamespace = "::braid::cmd"; }
def Cmd_CollectiveKind : I32EnumAttr<"CollectiveKind", "collective", [
  I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"all_gather", 1>, I32EnumAttrCase<"reduce_scatter", 2>,
  I32EnumAttrCase<"all_to_all", 3>, I32EnumAttrCase<"shift", 4>]> { let cppNamespace = "::braid::cmd"; }

#endif // BRAID_CMD_ATTRS
