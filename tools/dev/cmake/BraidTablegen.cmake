# braid_tablegen(<file.td> [DIALECT <namespace>] [KINDS <kind>...])
#
# Generates declarations (.h.inc) and definitions (.cpp.inc) beside the .td in the build tree, and adds them to the
# variable BRAID_TABLEGEN_OUTPUTS of the caller. The kinds follow from the end of the file name; KINDS overrides:
#
#   XDialect.td     dialect             XDialect.{h,cpp}.inc
#   XOps.td         ops                 XOps.{h,cpp}.inc       each Ops.td has its own list (GET_OP_LIST)
#   XAttrs.td       enums attrs         XEnums.{h,cpp}.inc  XAttrs.{h,cpp}.inc
#   XTypes.td       types               XTypes.{h,cpp}.inc
#   XEnums.td       enums               XEnums.{h,cpp}.inc
#   XInterfaces.td  op attr type ifaces XOpInterfaces, XAttrInterfaces, XTypeInterfaces.{h,cpp}.inc
#   XPatterns.td    rewriters           XPatterns.inc
#   Passes.td       passes              Passes.h.inc
#   other           none (only included by others)
#
# With KINDS the part of the name before Dialect/Ops/Attrs/... is the stem: BraidOps.td with KINDS ops types gives
# BraidOps.*.inc and BraidTypes.*.inc. An Ops.td must not include another Ops.td: its ops would be generated twice.

set(BRAID_TABLEGEN_SUFFIXES "Dialect|Ops|Attrs|Types|Enums|OpInterfaces|Interfaces|Patterns")

function(braid_tablegen_one output flags td)
  get_filename_component(folder ${output} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  file(RELATIVE_PATH name ${PROJECT_BINARY_DIR} ${output})
  add_custom_command(OUTPUT ${output}
    COMMAND ${MLIR_TABLEGEN_EXE} ${flags} ${td} -I ${PROJECT_SOURCE_DIR} -I ${CMAKE_CURRENT_SOURCE_DIR}
            -I ${MLIR_INCLUDE_DIR_ONE} --write-if-changed -o ${output} -d ${output}.d
    DEPENDS ${td} DEPFILE ${output}.d COMMENT "Generating ${name}" VERBATIM)
endfunction()

function(braid_tablegen td)
  cmake_parse_arguments(ARG "" "DIALECT" "KINDS" ${ARGN})
  get_filename_component(td ${td} ABSOLUTE BASE_DIR ${CMAKE_CURRENT_SOURCE_DIR})
  get_filename_component(name ${td} NAME_WE)
  get_filename_component(folder ${td} DIRECTORY)
  file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${folder})
  set(MLIR_INCLUDE_DIR_ONE ${MLIR_INCLUDE_DIRS})
  list(GET MLIR_INCLUDE_DIR_ONE 0 MLIR_INCLUDE_DIR_ONE)
  if(NOT ARG_DIALECT)
    get_filename_component(ARG_DIALECT ${folder} NAME)
  endif()

  set(kinds ${ARG_KINDS})
  if(NOT kinds)
    if(name MATCHES "Dialect$")
      set(kinds dialect)
    elseif(name MATCHES "Ops$")
      set(kinds ops)
    elseif(name MATCHES "Attrs$")
      set(kinds enums attrs)
    elseif(name MATCHES "Types$")
      set(kinds types)
    elseif(name MATCHES "Enums$")
      set(kinds enums)
    elseif(name MATCHES "Interfaces$")
      set(kinds op_interfaces attr_interfaces type_interfaces)
    elseif(name MATCHES "Patterns$")
      set(kinds rewriters)
    elseif(name MATCHES "Passes$")
      set(kinds passes)
    endif()
  endif()

  string(REGEX REPLACE "(${BRAID_TABLEGEN_SUFFIXES})$" "" stem ${name})
  set(base ${PROJECT_BINARY_DIR}/${folder}/${stem})
  set(outputs)
  macro(both suffix decls defs)
    braid_tablegen_one(${base}${suffix}.h.inc "${decls}" ${td})
    braid_tablegen_one(${base}${suffix}.cpp.inc "${defs}" ${td})
    list(APPEND outputs ${base}${suffix}.h.inc ${base}${suffix}.cpp.inc)
  endmacro()
  foreach(kind ${kinds})
    if(kind STREQUAL "dialect")
      both(Dialect "-gen-dialect-decls;-dialect=${ARG_DIALECT}" "-gen-dialect-defs;-dialect=${ARG_DIALECT}")
    elseif(kind STREQUAL "ops")
      both(Ops -gen-op-decls -gen-op-defs)
    elseif(kind STREQUAL "attrs")
      both(Attrs "-gen-attrdef-decls;-attrdefs-dialect=${ARG_DIALECT}"
                 "-gen-attrdef-defs;-attrdefs-dialect=${ARG_DIALECT}")
    elseif(kind STREQUAL "types")
      both(Types "-gen-typedef-decls;-typedefs-dialect=${ARG_DIALECT}"
                 "-gen-typedef-defs;-typedefs-dialect=${ARG_DIALECT}")
    elseif(kind STREQUAL "enums")
      both(Enums -gen-enum-decls -gen-enum-defs)
    elseif(kind STREQUAL "op_interfaces")
      both(OpInterfaces -gen-op-interface-decls -gen-op-interface-defs)
    elseif(kind STREQUAL "attr_interfaces")
      both(AttrInterfaces -gen-attr-interface-decls -gen-attr-interface-defs)
    elseif(kind STREQUAL "type_interfaces")
      both(TypeInterfaces -gen-type-interface-decls -gen-type-interface-defs)
    elseif(kind STREQUAL "rewriters")
      braid_tablegen_one(${base}Patterns.inc -gen-rewriters ${td})
      list(APPEND outputs ${base}Patterns.inc)
    elseif(kind STREQUAL "passes")
      braid_tablegen_one(${base}.h.inc "-gen-pass-decls;-name;Braid" ${td})
      list(APPEND outputs ${base}.h.inc)
    else()
      message(FATAL_ERROR "braid_tablegen(${name}.td): unknown kind '${kind}'")
    endif()
  endforeach()
  list(APPEND BRAID_TABLEGEN_OUTPUTS ${outputs})
  set(BRAID_TABLEGEN_OUTPUTS ${BRAID_TABLEGEN_OUTPUTS} PARENT_SCOPE)
endfunction()
