//===- CmdOps.td - the tables of a program, and the commands of an entry point -----------------------------------===//
#ifndef BRAID_CMD_OPS
#define BRAID_CMD_OPS

include "dialects/cmd/CmdAttrs.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Cmd_Op<string mnemonic, list<Trait> traits = []> : Op<Cmd_Dialect, mnemonic, traits>;

//===- Tables ------------------------------------------------------------------------------------------------------===//

def Cmd_ProgramOp : Cmd_Op<"program", [SymbolTable, IsolatedFromAbove, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "the program file";
  let description = [{
    Holds arenas, tensors, streams (the first is `compute`) and entries. Kernels are the `tile.kernel` functions of the
    enclosing module; mesh and metadata are the module's attributes braid.mesh and braid.metadata.
  }];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
}

class Cmd_TableOp<string mnemonic, list<Trait> traits = []> : Cmd_Op<mnemonic, !listconcat([HasParent<"ProgramOp">], traits)>;

def Cmd_ArenaOp : Cmd_TableOp<"arena", [Symbol]> {
  let summary = "one memory region of a rank";
  let description = [{
    `lower_bound`: the most bytes alive at one moment; no plan can be smaller. `stage`: only ranks of this stage of a pipeline have it; its name, and
    those of tensors in it and of entries of the stage, end with it, as in "parameters.stage1", which the program file leaves out.
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$bytes, DefaultValuedAttr<I64Attr, "256">:$align,
                   OptionalAttr<I64Attr>:$lower_bound, OptionalAttr<I64Attr>:$stage);
  let assemblyFormat = "$sym_name `bytes` $bytes (`lower_bound` $lower_bound^)? attr-dict";
  let hasVerifier = 1;
}

def Cmd_TensorOp : Cmd_TableOp<"tensor"> {
  let summary = "a named tensor: `type` is that of ONE layer, the buffer holds all of them";
  let description = [{
    ```mlir
    cmd.tensor "layers.{}.lsm.wq" parameter tensor<64x64xf32> at <@parameters, 0, 32768> {layers = array<i32: 0, 1>}
    ```
    `shards`: pairs [dimension, axis]. `of`, `slot`: as in the schema.
  }];
  let arguments = (ins StrAttr:$name, Cmd_Role:$role, TypeAttrOf<AnyRankedTensor>:$type, Cmd_BufferAttr:$buffer,
                   OptionalAttr<DenseI32ArrayAttr>:$layers, OptionalAttr<ArrayAttr>:$shards, OptionalAttr<StrAttr>:$of,
                   OptionalAttr<StrAttr>:$slot);
  let assemblyFormat = "$name $role $type `at` $buffer attr-dict";
  let hasVerifier = 1;
}

def Cmd_StreamOp : Cmd_TableOp<"stream", [Symbol]> {
  let summary = "a queue of commands in order; the first computes, others belong to a mesh axis or, without one, compute beside it";
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<StrAttr>:$axis);
  let assemblyFormat = "$sym_name (`axis` $axis^)? attr-dict";
}

def Cmd_EntryOp : Cmd_TableOp<"entry", [Symbol, SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "one callable function: its tensors by name, its commands in order";
  let arguments = (ins SymbolNameAttr:$sym_name, StrArrayAttr:$inputs, StrArrayAttr:$outputs,
                   DefaultValuedAttr<I64Attr, "0">:$events, OptionalAttr<I64Attr>:$stage);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name `inputs` $inputs `outputs` $outputs attr-dict-with-keyword $body";
}

//===- Commands ----------------------------------------------------------------------------------------------------===//

// `stream` absent: compute. `name` is what a person reads in errors and traces.
class Cmd_Command<string mnemonic, list<Trait> traits = []> :
    Cmd_Op<mnemonic, !listconcat([ParentOneOf<["EntryOp", "RepeatOp"]>], traits)>;
defvar commandFields = (ins OptionalAttr<FlatSymbolRefAttr>:$stream, OptionalAttr<StrAttr>:$name);

def Cmd_LaunchOp : Cmd_Command<"launch"> {
  let summary = "a kernel over a grid; arguments by parameter name";
  let description = [{
    A pointer parameter takes a #cmd.buffer, an i64 parameter (sizes and strides of buffers included: `q.dim1`) an i64, a
    float parameter an f32 or f64.
    ```mlir
    cmd.launch @add grid [4, 1, 1] args {x = #cmd.buffer<@io, 0, 64>, "x.dim0" = 16 : i64, y = #cmd.buffer<@io, 64, 64>}
    ```
  }];
  let arguments = !con((ins FlatSymbolRefAttr:$kernel, DenseI64ArrayAttr:$grid, DictionaryAttr:$args), commandFields);
  let assemblyFormat = "$kernel `grid` $grid `args` $args (`on` $stream^)? attr-dict";
  let hasVerifier = 1;
}

def Cmd_GemmOp : Cmd_Command<"gemm"> {
  let summary = "C = op(A) op(B) (+ C when accumulate), row-major, `batch` times; strides in elements";
  let description = [{
    `addend`: C = op(A) op(B) + addend instead, a matrix as wide as C with rows at C's distance, f32 or of C's type, that shares no byte with C.
    ```mlir
    cmd.gemm 8 x 32 x 64 a #cmd.buffer<@w, 0, 1024> ld 64 : bf16 b #cmd.buffer<@w, 1024, 4096> ld 64 : bf16
        c #cmd.buffer<@w, 5120, 512> ld 32 : bf16 add #cmd.buffer<@w, 6144, 1024> : f32 {transpose_b}
    ```
  }];
  let arguments = !con((ins I64Attr:$m, I64Attr:$n, I64Attr:$k, Cmd_BufferAttr:$a, Cmd_BufferAttr:$b, Cmd_BufferAttr:$c, I64Attr:$lda,
                   I64Attr:$ldb, I64Attr:$ldc, TypeAttr:$type_a, TypeAttr:$type_b, TypeAttr:$type_c, UnitAttr:$transpose_a,
                   UnitAttr:$transpose_b, UnitAttr:$accumulate, DefaultValuedAttr<I64Attr, "1">:$batch,
                   DefaultValuedAttr<I64Attr, "0">:$batch_stride_a, DefaultValuedAttr<I64Attr, "0">:$batch_stride_b,
                   DefaultValuedAttr<I64Attr, "0">:$batch_stride_c, OptionalAttr<Cmd_BufferAttr>:$addend, OptionalAttr<TypeAttr>:$type_addend,
                   DefaultValuedAttr<I64Attr, "0">:$batch_stride_addend), commandFields);
  let assemblyFormat = [{
    $m `x` $n `x` $k `a` $a `ld` $lda `:` $type_a `b` $b `ld` $ldb `:` $type_b `c` $c `ld` $ldc `:` $type_c
    (`add` $addend^ `:` $type_addend)? (`on` $stream^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Cmd_GroupedGemmOp : Cmd_Command<"grouped_gemm"> {
  let summary = "one GEMM per group of rows; the rows of a group are known on the device (Program.fbs)";
  let description = [{
    `addend` (kind rows): as of cmd.gemm.
  }];
  let arguments = !con((ins Cmd_GroupedKind:$kind, I64Attr:$groups, I64Attr:$max_rows, I64Attr:$m, I64Attr:$n, I64Attr:$k,
                   Cmd_BufferAttr:$a, Cmd_BufferAttr:$b, Cmd_BufferAttr:$c, Cmd_BufferAttr:$offsets, I64Attr:$lda, I64Attr:$ldb, I64Attr:$ldc,
                   TypeAttr:$type_a, TypeAttr:$type_b, TypeAttr:$type_c, UnitAttr:$transpose_b, UnitAttr:$accumulate,
                   OptionalAttr<Cmd_BufferAttr>:$addend, OptionalAttr<TypeAttr>:$type_addend), commandFields);
  let assemblyFormat = [{
    $kind `groups` $groups `rows` $max_rows `m` $m `n` $n `k` $k `a` $a `ld` $lda `:` $type_a `b` $b `ld` $ldb `:` $type_b
    `c` $c `ld` $ldc `:` $type_c (`add` $addend^ `:` $type_addend)? `offsets` $offsets (`on` $stream^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Cmd_CollectiveOp : Cmd_Command<"collective"> {
  let summary = "all ranks of an axis or a product of axes; counts name the live rows of the blocks of an all_to_all";
  let arguments = !con((ins Cmd_CollectiveKind:$kind, StrAttr:$axis, Cmd_BufferAttr:$send, Cmd_BufferAttr:$recv, TypeAttr:$dtype,
                   DefaultValuedAttr<I64Attr, "0">:$block_bytes, DefaultValuedAttr<I64Attr, "0">:$row_bytes,
                   OptionalAttr<Cmd_BufferAttr>:$send_counts, OptionalAttr<Cmd_BufferAttr>:$recv_counts,
                   DefaultValuedAttr<I64Attr, "0">:$counts_per_peer, UnitAttr:$cyclic, UnitAttr:$reverse,
                   DefaultValuedAttr<I64Attr, "1">:$distance), commandFields);
  let assemblyFormat = [{
    $kind $axis `send` $send `recv` $recv `:` $dtype (`send_counts` $send_counts^)? (`recv_counts` $recv_counts^)? (`on` $stream^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Cmd_CopyOp : Cmd_Command<"copy"> {
  let summary = "target <- source, equal bytes";
  let arguments = !con((ins Cmd_BufferAttr:$source, Cmd_BufferAttr:$target), commandFields);
  let assemblyFormat = "$source `to` $target (`on` $stream^)? attr-dict";
  let hasVerifier = 1;
}

def Cmd_FillOp : Cmd_Command<"fill"> {
  let summary = "every byte of target <- value";
  let arguments = !con((ins Cmd_BufferAttr:$target, DefaultValuedAttr<I64Attr, "0">:$value), commandFields);
  let assemblyFormat = "$target (`value` $value^)? (`on` $stream^)? attr-dict";
  let hasVerifier = 1;
}

def Cmd_RecordOp : Cmd_Command<"record"> {
  let summary = "the event has happened when the stream comes here";
  let arguments = !con((ins I64Attr:$event), commandFields);
  let assemblyFormat = "$event (`on` $stream^)? attr-dict";
}

def Cmd_WaitOp : Cmd_Command<"wait"> {
  let summary = "the stream goes on when the event has happened";
  let arguments = !con((ins I64Attr:$event), commandFields);
  let assemblyFormat = "$event (`on` $stream^)? attr-dict";
}

def Cmd_RepeatOp : Cmd_Command<"repeat", [SingleBlock, NoTerminator, NoRegionArguments]> {
  let summary = "the commands, `count` times; buffers move by their strides";
  let arguments = !con((ins I64Attr:$count), commandFields);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$count attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

//===- Between PlanMemory and LowerToCommands ----------------------------------------------------------------------===//

def Cmd_MaterializeOp : Op<Cmd_Dialect, "materialize", [AllTypesMatch<["source", "result"]>]> {
  let summary = "the value in a buffer of its own; a copy where PlanMemory could not make both buffers one";
  let arguments = (ins AnyRankedTensor:$source);
  let results = (outs AnyRankedTensor:$result);
  let assemblyFormat = "$source attr-dict `:` type($source)";
}

#endif // BRAID_CMD_OPS
