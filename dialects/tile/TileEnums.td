//===- TileEnums.td - choices of tile ops ------------------------------------------------------------------------===//
#ifndef BRAID_TILE_ENUMS
#define BRAID_TILE_ENUMS

include "mlir/IR/EnumAttr.td"

def Tile_ReduceKind : I32EnumAttr<"ReduceKind", "how a reduction combines", [
  I32EnumAttrCase<"add", 0>, I32EnumAttrCase<"max", 1>, I32EnumAttrCase<"min", 2>]> { let cppNamespace = "::braid::tile"; }
def Tile_Keep : I32EnumAttr<"Keep", "part of a square tile that survives a mask", [
  I32EnumAttrCase<"lower", 0>, I32EnumAttrCase<"strict_lower", 1>, I32EnumAttrCase<"upper", 2>, I32EnumAttrCase<"strict_upper", 3>]> {
  let cppNamespace = "::braid::tile"; }

#endif // BRAID_TILE_ENUMS
