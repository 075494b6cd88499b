//===- CommandLowering.h - one entry function becoming a command list ---------------------------------------------===//
// Ops with planned buffers (cmd.results) become commands in their order. Kernels and products run on the stream
// `compute`; a collective on the stream of its mesh axis, between an event that compute records before it and one that
// the await waits for, and so what runs beside compute (cmd.beside). Errors: a kernel that is not there, operands that do not fit its parameters, slices with gaps
// that a library product or a collective cannot take.
#ifndef PASSES_LOWER_COMMANDLOWERING_H
#define PASSES_LOWER_COMMANDLOWERING_H

#include "dialects/braid/BraidDialect.h"
#include "dialects/cmd/CmdDialect.h"
#include "dialects/tile/TileDialect.h"
#include "passes/lower/PlannedBuffers.h"

#include "llvm/ADT/MapVector.h"

namespace braid {

/// Streams of the program beside `compute`: one per mesh axis that some collective uses, named after it, and one for
/// what computes beside it.
struct OtherStreams {
  llvm::SetVector<mlir::StringAttr> axes;
  bool beside = false;
};
inline constexpr llvm::StringLiteral kBesideStream = "beside";

class CommandLowering {
public:
  CommandLowering(mlir::func::FuncOp entry, mlir::SymbolTable &symbols, OtherStreams &streams)
      : entry(entry), symbols(symbols), streams(streams), builder(entry.getContext()) {}

  /// Appends the cmd.entry to the program.
  mlir::LogicalResult run(cmd::ProgramOp program);

private:
  mlir::LogicalResult lower(mlir::Block &block);
  mlir::LogicalResult lower(mlir::Operation &op);
  mlir::LogicalResult lower(tile::LaunchOp launch);
  mlir::LogicalResult lower(tile::GemmOp gemm);
  mlir::LogicalResult lower(tile::GroupedGemmOp gemm);
  mlir::LogicalResult lower(RepeatOp repeat);
  mlir::LogicalResult lower(CommStartOp start);
  mlir::LogicalResult lower(CommAwaitOp await);
  mlir::LogicalResult lower(CollectiveOpInterface op);
  void lower(cmd::MaterializeOp copy);

  /// The stream goes on behind all that compute was given so far.
  void follow(mlir::Location loc, mlir::FlatSymbolRefAttr stream);
  /// Returns the event that its end records.
  int64_t end(mlir::Location loc, mlir::FlatSymbolRefAttr stream);
  /// A collective on the stream of its axis, behind all that the compute stream was given so far. Returns the event
  /// that its end records.
  int64_t collective(mlir::Operation *op, CollectiveKind kind, mlir::StringAttr axis, mlir::ValueRange inputs,
                     mlir::Value result);
  /// Whether what it sends and receives lies in one piece, in rank order.
  static mlir::LogicalResult checkCollective(mlir::Operation *op, mlir::ValueRange inputs, mlir::Value result);

  static cmd::BufferAttr bufferOf(mlir::Value value) { return plannedBuffer(value); }
  mlir::StringAttr nameOf(mlir::Operation *op, llvm::StringRef fallback) const;

  mlir::func::FuncOp entry;
  mlir::SymbolTable &symbols;
  OtherStreams &streams;
  mlir::OpBuilder builder;
  int64_t events = 0;
  bool zeroFilled = false;
  llvm::DenseMap<mlir::Operation *, int64_t> ends; ///< of a start: the event of its end
};

} // namespace braid

#endif // PASSES_LOWER_COMMANDLOWERING_H
