//===- LoopWorkTest.cpp - cycles counted by hand, beside those that programCycles counts --------------------------===//
#include "passes/lower/LoopWork.h"

#include "dialects/tile/TileDialect.h"
#include "passes/lower/LowerKernels.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Parser/Parser.h"

#include <gtest/gtest.h>

using namespace mlir;
using namespace braid;

namespace {

class LoopWork : public ::testing::Test {
protected:
  LoopWork() {
    context.loadDialect<arith::ArithDialect, func::FuncDialect, math::MathDialect, memref::MemRefDialect,
                        scf::SCFDialect, vector::VectorDialect, tile::TileDialect, LLVM::LLVMDialect>();
  }
  func::FuncOp parse(const std::string &body) {
    std::string text = "func.func @f(%args: i64, %begin: i64, %end: i64) {\n"
                       "  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n"
                       "  %c4 = arith.constant 4 : index\n  %c16 = arith.constant 16 : index\n"
                       "  %m = memref.alloca() : memref<64xf32>\n  %u = arith.index_cast %args : i64 to index\n"
                       "  %v = vector.load %m[%c0] : memref<64xf32>, vector<16xf32>\n" +
                       body + "  return\n}\n";
    module = parseSourceString<ModuleOp>(text, &context);
    return module ? module->lookupSymbol<func::FuncOp>("f") : func::FuncOp();
  }
  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

constexpr IssueRates rates{0.5, 0.5, 1, 4, 0};
constexpr double before = 0.5; // the load in front of every body

TEST_F(LoopWork, LongestOfComputeLoadAndStore) {
  std::string fma = "  %r = vector.fma %v, %v, %v : vector<16xf32>\n",
              store = "  vector.store %v, %m[%c0] : memref<64xf32>, vector<16xf32>\n";
  EXPECT_EQ(programCycles(parse(fma), rates, 1), 0.5);
  EXPECT_EQ(programCycles(parse(fma + store), rates, 1), 1);
  std::string more = fma;
  for (const char *name : {"%a", "%b", "%d"})
    more += "  " + std::string(name) + " = arith.addf %v, %v : vector<16xf32>\n";
  EXPECT_EQ(programCycles(parse(more + store), rates, 1), 2);
  // Polynomials, and none of the index arithmetic.
  EXPECT_EQ(programCycles(parse("  %e = math.exp %v : vector<16xf32>\n  %i = arith.addi %c1, %c4 : index\n"), rates, 1),
            6);
  EXPECT_EQ(programCycles(parse("  %e = math.log %v : vector<16xf32>\n"), rates, 1), 8.5);
  // What is asked for takes the place of a load.
  EXPECT_EQ(programCycles(parse("  memref.prefetch %m[%c0], read, locality<2>, data : memref<64xf32>\n"), rates, 1), 1);
}

TEST_F(LoopWork, TripsOfLoops) {
  std::string store = "vector.store %v, %m[%c0] : memref<64xf32>, vector<16xf32>";
  // 4 x 16 stores; 4 + 8 + 12 + 16, counted by the mean of the outer counter; a bound that nobody knows.
  EXPECT_EQ(programCycles(
                parse("scf.for %i = %c0 to %c16 step %c4 { scf.for %j = %c0 to %c16 step %c1 { " + store + " } }\n"),
                rates, 1),
            before + 64);
  EXPECT_EQ(programCycles(parse("scf.for %i = %c0 to %c16 step %c4 { %e = arith.addi %i, %c4 : index  scf.for %j = %c0 "
                                "to %e step %c1 { " +
                                store + " } }\n"),
                          rates, 1),
            before + 40);
  EXPECT_EQ(programCycles(parse("scf.for %i = %c0 to %u step %c1 { " + store + " }\n"), rates, 7), before + 7);
  EXPECT_EQ(programCycles(parse("scf.for %i = %c0 to %u step %c4 { " + store + " }\n"), rates, 7), before + 2);
  // One that says how far it walks in the mean, whatever its bounds: 7 times 8 by 4, 7 times 1 by 4.
  auto walking = [&](StringRef bound, int64_t walk) {
    return programCycles(parse("scf.for %i = %c0 to %u step %c1 { scf.for %j = %i to " + bound.str() + " step %c4 { " +
                               store + " } {tile.mean_walk = " + std::to_string(walk) + " : i64} }\n"),
                         rates, 7);
  };
  EXPECT_EQ(walking("%u", 8), before + 14);
  EXPECT_EQ(walking("%c16", 1), before + 1.75);
  // Of the programs of the grid one is counted.
  EXPECT_EQ(
      programCycles(parse("%b = arith.index_cast %begin : i64 to index  %e = arith.index_cast %end : i64 to index\n"
                          "scf.for %i = %b to %e step %c1 { " +
                          store + " }\n"),
                    rates, 7),
      before + 1);
  // A sum waits for the one before.
  EXPECT_EQ(programCycles(parse("%s = scf.for %i = %c0 to %c16 step %c1 iter_args(%x = %v) -> vector<16xf32> {\n"
                                "  %y = arith.addf %x, %v : vector<16xf32>  scf.yield %y : vector<16xf32> }\n"),
                          rates, 1),
            before + 64);
}

/// Of a branch the first way is counted; a warp issues as a whole, and warps beside each other share the units.
TEST_F(LoopWork, BranchesAndWarps) {
  std::string store = "vector.store %v, %m[%c0] : memref<64xf32>, vector<16xf32>",
              condition = "%b = arith.cmpi slt, %u, %c4 : index\n",
              both = condition + "scf.if %b { " + store + " } else { " + store + " " + store + " }\n",
              one = condition + "scf.if %b { " + store + " }\n";
  EXPECT_EQ(programCycles(parse(both), rates, 1), before + 1);
  EXPECT_EQ(programCycles(parse(both), rates, 1, /*otherwise=*/true), before + 2);
  EXPECT_EQ(programCycles(parse(one), rates, 1, /*otherwise=*/true), before + 1); // there is no other way
  std::string only = condition + "scf.if %b { " + store + " } else { }\n";
  EXPECT_EQ(programCycles(parse(only), rates, 1, /*otherwise=*/true),
            before + 1); // nor is there one where nothing is done
  std::string likely = condition + "scf.if %b { " + store + " } else { " + store + " " + store + " } {braid.likely}\n";
  EXPECT_EQ(programCycles(parse(likely), rates, 1, /*otherwise=*/true), before + 1);
  // On a GPU lanes are computed one after the other, and stored at once.
  IssueRates turns = rates;
  turns.lanesInTurn = true;
  std::string add = "%y = arith.addf %v, %v : vector<16xf32>\n";
  EXPECT_EQ(programCycles(parse(add), turns, 1), 16 * programCycles(parse(add), rates, 1));
  EXPECT_EQ(programCycles(parse(store), turns, 1), programCycles(parse(store), rates, 1));
  EXPECT_EQ(IssueRates::block(1).compute, IssueRates::block(32).compute);
  EXPECT_EQ(IssueRates::block(128).compute, 4 * IssueRates::block(32).compute);
}

/// What is loaded for a matrix unit is loaded, what waits for it is free; only its product is computed.
TEST_F(LoopWork, MatrixUnit) {
  context.loadDialect<NVVM::NVVMDialect>();
  std::string fetch =
      "  %p = llvm.inttoptr %begin : i64 to !llvm.ptr<3>  %g = llvm.inttoptr %end : i64 to !llvm.ptr<1>\n"
      "  nvvm.cp.async.shared.global %p, %g, 16, cache = cg : !llvm.ptr<3>, !llvm.ptr<1>\n"
      "  nvvm.cp.async.commit.group\n  nvvm.cp.async.wait.group 0\n";
  func::FuncOp f = parse(fetch);
  ASSERT_TRUE(f);
  EXPECT_EQ(programCycles(f, rates, 1), before + 0.5);
}

/// A product of 64 x 64 x 64 in vectors of 16 needs 64 * 64 * 4 multiply-adds, two a cycle, and little else.
TEST_F(LoopWork, Product) {
  module = parseSourceString<ModuleOp>(R"(
func.func @f(%x: memref<64x64xf32> {tile.name = "x"}, %y: memref<64x64xf32> {tile.name = "y"}) attributes {tile.kernel, tile.grid = ["block"]} {
  %c0 = arith.constant 0 : index
  %zero = arith.constant dense<0.0> : vector<64x64xf32>
  %v = tile.load %x[%c0, %c0] {dims = array<i64: 0, 1>} : memref<64x64xf32>, vector<64x64xf32>
  %d = tile.dot %v, %v, %zero : vector<64x64xf32>, vector<64x64xf32>, vector<64x64xf32>
  tile.store %d, %y[%c0, %c0] {dims = array<i64: 0, 1>} : vector<64x64xf32>, memref<64x64xf32>
  return
})",
                                       &context);
  ASSERT_TRUE(module);
  ASSERT_TRUE(succeeded(lowerTilesToLoops(*module, 64, false)));
  double cycles = programCycles(module->lookupSymbol<func::FuncOp>("f"), IssueRates::core(), 1);
  EXPECT_GE(cycles, 64 * 64 * 4 / 2);
  EXPECT_LE(cycles, 1.2 * 64 * 64 * 4 / 2);
}

} // namespace
