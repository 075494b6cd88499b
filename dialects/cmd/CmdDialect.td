//===- CmdDialect.td - the command dialect -----------------------------------------------------------------------===//
//
//   phase kernels --PlanMemory: cmd.program with arenas and tensors, a #cmd.buffer per value
//                 --LowerToCommands: one cmd.entry per entry function --ProgramWriter--> program.braid
//
// One op per table of runtime/schema/Program.fbs and nothing else: the writer translates without a decision, and a dump
// of phase `commands` shows exactly what the runtime will do.
//
//   CmdAttrs.td   #cmd.buffer, enums         CmdOps.td   program, arena, tensor, stream, entry, and the commands
//
//===-------------------------------------------------------------------------------------------------------------===//
#ifndef BRAID_CMD_DIALECT
#define BRAID_CMD_DIALECT

include "mlir/IR/OpBase.td"

def Cmd_Dialect : Dialect {
  let name = "cmd";
  let cppNamespace = "::braid::cmd";
  let summary = "Planned buffers, streams, events and commands: the program file as IR";
  let description = [{
    Enters: what LowerToCommands builds from launches, library calls, views and collectives. Leaves: the program file.
    `cmd.materialize` is the one op on tensors; it exists only between PlanMemory and LowerToCommands.
  }];
  let useDefaultAttributePrinterParser = 1;
}

#endif // BRAID_CMD_DIALECT
