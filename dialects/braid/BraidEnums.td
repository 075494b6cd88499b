//===- BraidEnums.td - choices of model ops ----------------------------------------------------------------------===//
#ifndef BRAID_ENUMS
#define BRAID_ENUMS

include "mlir/IR/EnumAttr.td"

// Transition classes of lsm-family.md section 2 that a scan can have.
def Braid_LsmClass : I32EnumAttr<"LsmClass", "transition class of a scan", [
  I32EnumAttrCase<"I", 0>, I32EnumAttrCase<"S0", 1>, I32EnumAttrCase<"S", 2>, I32EnumAttrCase<"V", 3>,
  I32EnumAttrCase<"H", 4>, I32EnumAttrCase<"GH", 5>, I32EnumAttrCase<"VH", 6>, I32EnumAttrCase<"D", 7>,
  I32EnumAttrCase<"R", 8>, I32EnumAttrCase<"E", 9>]> { let cppNamespace = "::braid"; }

def Braid_CollectiveKind : I32EnumAttr<"CollectiveKind", "collective", [
  I32EnumAttrCase<"all_reduce", 0>, I32EnumAttrCase<"all_gather", 1>, I32EnumAttrCase<"reduce_scatter", 2>,
  I32EnumAttrCase<"all_to_all", 3>, I32EnumAttrCase<"shift", 4>]> { let cppNamespace = "::braid"; }

#endif // BRAID_ENUMS
