// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of launches and library products say.

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{grid must have 1 to 3 extents, has 4}}
  %0 = tile.launch @k grid [1, 1, 1, 1](%a) {arg_names = ["a"], inplace = array<i64: -1>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{grid must have 1 to 3 extents, has 0}}
  %0 = tile.launch @k grid [](%a) {arg_names = ["a"], inplace = array<i64: -1>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{grid extent -1 is negative}}
  %0 = tile.launch @k grid [4, -1](%a) {arg_names = ["a"], inplace = array<i64: -1>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{has 1 operands but 2 arg_names}}
  %0 = tile.launch @k grid [1](%a) {arg_names = ["a", "b"], inplace = array<i64: -1>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{has 1 results but 0 result_names}}
  %0 = tile.launch @k grid [1](%a) {arg_names = ["a"], inplace = array<i64: -1>, result_names = [], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{has 1 results but inplace has 2 entries}}
  %0 = tile.launch @k grid [1](%a) {arg_names = ["a"], inplace = array<i64: -1, -1>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{inplace[0] = 1 but there are 1 operands}}
  %0 = tile.launch @k grid [1](%a) {arg_names = ["a"], inplace = array<i64: 1>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x64xf32>
  return
}

// -----

// expected-note @+1 {{operand 0 defined here}}
func.func @f(%a: tensor<2x64xf32>) {
  // expected-error @+1 {{result 0 is 'tensor<2x32xf32>' but shares the buffer of operand 0 of type 'tensor<2x64xf32>'}}
  %0 = tile.launch @k grid [1](%a) {arg_names = ["a"], inplace = array<i64: 0>, result_names = ["y"], scalars = {}} : (tensor<2x64xf32>) -> tensor<2x32xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{a_columns = 0 but must be at least 1}}
  %0 = tile.gemm %a, %b {a_columns = 0 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{b_columns = -1 but must be at least 1}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = -1 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{a_columns = 63 is no product of trailing dimensions of 'tensor<2x64xf32>'}}
  %0 = tile.gemm %a, %b {a_columns = 63 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{b_columns = 5 is no product of trailing dimensions of 'tensor<64x16xf32>'}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = 5 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{c_columns = 15 is no product of trailing dimensions of 'tensor<2x16xf32>'}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 15 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{c defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>, %c: tensor<16x2xf32>) {
  // expected-error @+1 {{result is 'tensor<2x16xf32>' but c is 'tensor<16x2xf32>'}}
  %0 = tile.gemm %a, %b, %c {a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>, tensor<16x2xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<32x16xf32>) {
  // expected-error @+1 {{inner dimension mismatch: op(a) has 64 columns but op(b) has 32 rows}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<32x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{inner dimension mismatch: op(a) has 64 columns but op(b) has 16 rows}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 16 : i64, transpose_b} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{a defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{row mismatch: op(a) has 2 rows but the result has 3}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<3x16xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{column mismatch: op(b) has 16 columns but the result has 8}}
  %0 = tile.gemm %a, %b {a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 8 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%a: tensor<32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{a must have rank 3, has rank 2}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<32x16xf32>, tensor<4x16x24xf32>, tensor<5xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<16x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{b must have rank 3, has rank 2}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<1x32x16xf32>, tensor<16x24xf32>, tensor<5xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{result must have rank 3, has rank 2}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<5xi32>) -> tensor<32x24xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<1x5xi32>) {
  // expected-error @+1 {{offsets must have rank 1, has rank 2}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<1x5xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xf32>) {
  // expected-error @+1 {{offsets must be i32, is 'f32'}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<5xf32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{c defined here}}
func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xi32>, %c: tensor<1x32x24xbf16>) {
  // expected-error @+1 {{result is 'tensor<1x32x24xf32>' but c is 'tensor<1x32x24xbf16>'}}
  %0 = tile.grouped_gemm %a, %b, %offsets, %c : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<5xi32>, tensor<1x32x24xbf16>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{transpose_b has no meaning for weight}}
  %0 = tile.grouped_gemm %a, %b, %offsets {weight, transpose_b} : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<5xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{offsets defined here}}
func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<4xi32>) {
  // expected-error @+1 {{offsets has 4 entries but there are 4 groups}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<4xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<1x31x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{row mismatch: a has 32 rows but b has 31}}
  %0 = tile.grouped_gemm %a, %b, %offsets {weight} : (tensor<1x32x16xf32>, tensor<1x31x24xf32>, tensor<5xi32>) -> tensor<4x16x24xf32>
  return
}

// -----

// expected-note @+1 {{b defined here}}
func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{inner dimension mismatch: a has 16 columns but op(b) has 24 rows}}
  %0 = tile.grouped_gemm %a, %b, %offsets {transpose_b} : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<5xi32>) -> tensor<1x32x24xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<4x16x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{result is [1, 32, 25] but the product is [1, 32, 24]}}
  %0 = tile.grouped_gemm %a, %b, %offsets : (tensor<1x32x16xf32>, tensor<4x16x24xf32>, tensor<5xi32>) -> tensor<1x32x25xf32>
  return
}

// -----

func.func @f(%a: tensor<1x32x16xf32>, %b: tensor<1x32x24xf32>, %offsets: tensor<5xi32>) {
  // expected-error @+1 {{result is [4, 24, 16] but the product is [4, 16, 24]}}
  %0 = tile.grouped_gemm %a, %b, %offsets {weight} : (tensor<1x32x16xf32>, tensor<1x32x24xf32>, tensor<5xi32>) -> tensor<4x24x16xf32>
  return
}

// -----

func.func @apart_from_nothing(%a: tensor<2x64xf32>, %b: tensor<64x16xf32>) {
  // expected-error @+1 {{'tile.gemm' op apart says where the result lies from c, but there is no c}}
  %0 = tile.gemm %a, %b {apart, a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xf32>, tensor<64x16xf32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{c defined here}}
func.func @narrower_c(%a: tensor<2x64xbf16>, %b: tensor<64x16xbf16>, %c: tensor<2x16xbf16>) {
  // expected-error @+1 {{'tile.gemm' op result is 'tensor<2x16xf32>' but c is 'tensor<2x16xbf16>'}}
  %0 = tile.gemm %a, %b, %c {apart, a_columns = 64 : i64, b_columns = 16 : i64, c_columns = 16 : i64} : (tensor<2x64xbf16>, tensor<64x16xbf16>, tensor<2x16xbf16>) -> tensor<2x16xf32>
  return
}

// -----

func.func @weights_apart(%a: tensor<1x32x16xf32>, %b: tensor<1x32x24xf32>, %offsets: tensor<5xi32>, %c: tensor<4x16x24xf32>) {
  // expected-error @+1 {{'tile.grouped_gemm' op apart has no meaning for weight}}
  %0 = tile.grouped_gemm %a, %b, %offsets, %c {weight, apart} : (tensor<1x32x16xf32>, tensor<1x32x24xf32>, tensor<5xi32>, tensor<4x16x24xf32>) -> tensor<4x16x24xf32>
  return
}
