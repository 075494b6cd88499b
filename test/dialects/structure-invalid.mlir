// RUN: braid-opt %s --split-input-file --verify-diagnostics
// What the verifiers of structure ops say; and that shapes are static, for all model ops.

func.func @f(%x: tensor<2x?x4xf32>) {
  // expected-error @+1 {{'braid.scale' op operand 0 is 'tensor<2x?x4xf32>' but shapes must be static}}
  %0 = braid.scale %x {value = 1.0 : f64} : (tensor<2x?x4xf32>) -> tensor<2x3x4xf32>
  return
}

// -----

func.func @f(%x: tensor<2x3x4xf32>) {
  // expected-error @+1 {{'braid.scale' op result 0 is 'tensor<2x?x4xf32>' but shapes must be static}}
  %0 = braid.scale %x {value = 1.0 : f64} : (tensor<2x3x4xf32>) -> tensor<2x?x4xf32>
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{count is 0 but must be at least 1}}
  %0 = braid.repeat %x {count = 0 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    braid.yield %a : (tensor<4xf32>) -> ()
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{carried is 2 but there are 1 inputs}}
  %0 = braid.repeat %x {count = 2 : i64, carried = 2 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    braid.yield %a : (tensor<4xf32>) -> ()
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{carried is -1 but there are 1 inputs}}
  %0 = braid.repeat %x {count = 2 : i64, carried = -1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    braid.yield %a : (tensor<4xf32>) -> ()
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{body takes 2 values but there are 1 inputs}}
  %0 = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    braid.yield %a : (tensor<4xf32>) -> ()
  }
  return
}

// -----

// expected-note @+1 {{input defined here}}
func.func @f(%x: tensor<4xf32>, %w: tensor<3x4xf32>) {
  // expected-error @+1 {{body argument 1 is 'tensor<4xf32>' but input 1 is 'tensor<3x4xf32>' (stacked) with count 2}}
  %0 = braid.repeat %x, %w {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>, tensor<3x4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    braid.yield %a : (tensor<4xf32>) -> ()
  }
  return
}

// -----

// expected-note @+1 {{input defined here}}
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{body argument 0 is 'tensor<5xf32>' but input 0 is 'tensor<4xf32>' (carried) with count 2}}
  %0 = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<5xf32>):
    braid.yield %x : (tensor<4xf32>) -> ()
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{body must end with braid.yield}}
  %0 = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    %b = braid.add %a : (tensor<4xf32>) -> tensor<4xf32>
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{body yields 2 values but there are 1 results, 1 of them carried}}
  %0 = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<4xf32> {
  ^bb0(%a: tensor<4xf32>):
    braid.yield %a, %a : (tensor<4xf32>, tensor<4xf32>) -> ()
  }
  return
}

// -----

// expected-note @+1 {{input defined here}}
func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{result 0 is 'tensor<5xf32>' but carried input 0 is 'tensor<4xf32>'}}
  %0 = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> tensor<5xf32> {
  ^bb0(%a: tensor<4xf32>):
    braid.yield %a : (tensor<4xf32>) -> ()
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{result 1 is 'tensor<3x4xf32>' but the body yields 'tensor<4xf32>' with count 2}}
  %0:2 = braid.repeat %x {count = 2 : i64, carried = 1 : i64} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) {
  ^bb0(%a: tensor<4xf32>):
    // expected-note @+1 {{yielded value defined here}}
    %b = braid.add %a : (tensor<4xf32>) -> tensor<4xf32>
    braid.yield %a, %b : (tensor<4xf32>, tensor<4xf32>) -> ()
  }
  return
}

// -----

func.func @f(%x: tensor<4xf32>) {
  // expected-error @+1 {{'braid.yield' op expects parent op 'braid.repeat'}}
  braid.yield %x : (tensor<4xf32>) -> ()
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{element type mismatch: result holds 'bf16' but source holds 'f32'}}
  %0 = braid.reshape %source : (tensor<2x4xf32>) -> tensor<8xbf16>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{source has 8 elements but result has 9}}
  %0 = braid.reshape %source : (tensor<2x4xf32>) -> tensor<9xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{element type mismatch: result holds 'f64' but source holds 'f32'}}
  %0 = braid.slice %source {dim = 1 : i64, begin = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x2xf64>
  return
}

// -----

func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{result has rank 1 but must have 2}}
  %0 = braid.slice %source {dim = 1 : i64, begin = 0 : i64} : (tensor<2x4xf32>) -> tensor<2xf32>
  return
}

// -----

func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{dim 2 is outside rank 2}}
  %0 = braid.slice %source {dim = 2 : i64, begin = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{dim -1 is outside rank 2}}
  %0 = braid.slice %source {dim = -1 : i64, begin = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{dimension mismatch: result has 1 but source has 2}}
  %0 = braid.slice %source {dim = 1 : i64, begin = 0 : i64} : (tensor<2x4xf32>) -> tensor<1x2xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{takes 2 from 3 on but dimension 1 has 4}}
  %0 = braid.slice %source {dim = 1 : i64, begin = 3 : i64} : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{takes 2 from 9223372036854775807 on but dimension 1 has 4}}
  %0 = braid.slice %source {dim = 1 : i64, begin = 9223372036854775807 : i64} : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%source: tensor<2x4xf32>) {
  // expected-error @+1 {{takes 2 from -1 on but dimension 1 has 4}}
  %0 = braid.slice %source {dim = 1 : i64, begin = -1 : i64} : (tensor<2x4xf32>) -> tensor<2x2xf32>
  return
}

// -----

func.func @f() {
  // expected-error @+1 {{has no sources}}
  %0 = "braid.concat"() {dim = 0 : i64} : () -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%a: tensor<2x4xf32>) {
  // expected-error @+1 {{dim 2 is outside rank 2}}
  %0 = braid.concat %a {dim = 2 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%a: tensor<2x4xf32>, %source: tensor<2x4xf64>) {
  // expected-error @+1 {{element type mismatch: result holds 'f32' but source holds 'f64'}}
  %0 = braid.concat %a, %source {dim = 0 : i64} : (tensor<2x4xf32>, tensor<2x4xf64>) -> tensor<4x4xf32>
  return
}

// -----

func.func @f(%a: tensor<2x4xf32>, %b: tensor<4xf32>) {
  // expected-error @+1 {{source has rank 1 but must have 2}}
  %0 = braid.concat %a, %b {dim = 0 : i64} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<4x4xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @f(%a: tensor<2x4xf32>, %source: tensor<2x5xf32>) {
  // expected-error @+1 {{dimension mismatch: result has 4 but source has 5}}
  %0 = braid.concat %a, %source {dim = 0 : i64} : (tensor<2x4xf32>, tensor<2x5xf32>) -> tensor<4x4xf32>
  return
}

// -----

func.func @f(%a: tensor<2x4xf32>, %b: tensor<2x4xf32>) {
  // expected-error @+1 {{sources have 4 along dimension 0 but result has 5}}
  %0 = braid.concat %a, %b {dim = 0 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<5x4xf32>
  return
}

// -----

func.func @f(%cu: tensor<3xi32>) {
  // expected-error @+1 {{cu_seqlens has rank 1 but must have 2}}
  %0 = braid.documents %cu : (tensor<3xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%cu: tensor<2x3xi32>) {
  // expected-error @+1 {{result has rank 1 but must have 2}}
  %0 = braid.documents %cu : (tensor<2x3xi32>) -> tensor<8xi32>
  return
}

// -----

func.func @f(%cu: tensor<2x3xi64>) {
  // expected-error @+1 {{cu_seqlens must hold i32 but holds 'i64'}}
  %0 = braid.documents %cu : (tensor<2x3xi64>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%cu: tensor<2x3xi32>) {
  // expected-error @+1 {{result must hold i32 but holds 'f32'}}
  %0 = braid.documents %cu : (tensor<2x3xi32>) -> tensor<2x8xf32>
  return
}

// -----

func.func @f(%cu: tensor<2x3xi32>) {
  // expected-error @+1 {{begin is -4 but must be at least 0}}
  %0 = braid.documents %cu {begin = -4 : i64} : (tensor<2x3xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%cu: tensor<2x1xi32>) {
  // expected-error @+1 {{cu_seqlens has 1 entries per row but needs at least 2}}
  %0 = braid.documents %cu : (tensor<2x1xi32>) -> tensor<2x8xi32>
  return
}

// -----

// expected-note @+1 {{cu_seqlens defined here}}
func.func @f(%cu_seqlens: tensor<3x3xi32>) {
  // expected-error @+1 {{batch mismatch: result has 2 but cu_seqlens has 3}}
  %0 = braid.documents %cu_seqlens : (tensor<3x3xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{4 parts (count) do not divide the 6 entries of dimension 0}}
  %0 = braid.shard %x, %c {count = 4 : i64, dim = 0 : i64} : (tensor<6x4xf32>, tensor<1xi32>) -> tensor<1x4xf32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{result is 2x4 but a part of x is 3x4}}
  %0 = braid.shard %x, %c {count = 2 : i64, dim = 0 : i64} : (tensor<6x4xf32>, tensor<1xi32>) -> tensor<2x4xf32>
  return
}

// -----

func.func @f(%x: tensor<6x4xf32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{dim 2 is outside rank 2}}
  %0 = braid.shard %x, %c {count = 2 : i64, dim = 2 : i64} : (tensor<6x4xf32>, tensor<1xi32>) -> tensor<6x4xf32>
  return
}

// -----

func.func @f(%ids: tensor<2x8xi32>, %c: tensor<2xi32>) {
  // expected-error @+1 {{coordinate must have one element but is 2}}
  %0 = braid.local_ids %ids, %c {size = 4 : i64} : (tensor<2x8xi32>, tensor<2xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%ids: tensor<2x8xi32>, %c: tensor<1xi32>) {
  // expected-error @+1 {{size is 0 but must be at least 1}}
  %0 = braid.local_ids %ids, %c {size = 0 : i64} : (tensor<2x8xi32>, tensor<1xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>, %into: tensor<2x6xf32>) {
  // expected-error @+1 {{puts 4 from 3 on but dimension 1 has 6}}
  %0 = braid.insert %x, %into {begin = 3 : i64, dim = 1 : i64} : (tensor<2x4xf32>, tensor<2x6xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @f(%x: tensor<2x4xf32>) {
  // expected-error @+1 {{dim 2 is outside rank 2}}
  %0 = braid.insert %x {begin = 0 : i64, dim = 2 : i64} : (tensor<2x4xf32>) -> tensor<2x6xf32>
  return
}

// -----

func.func @stack_count(%x: tensor<2x8x4xf32>) {
  // expected-error @+1 {{has 2 sources but the result has 3 for each token}}
  %0 = braid.stack %x, %x : (tensor<2x8x4xf32>, tensor<2x8x4xf32>) -> tensor<2x8x3x4xf32>
  return
}

// -----

func.func @stack_shape(%x: tensor<2x8x4xf32>) {
  // expected-error @+2 {{shape mismatch: source is 2x8x4 but result is 2x8x1x5}}
  // expected-note @+1 {{result defined here}}
  %0 = braid.stack %x : (tensor<2x8x4xf32>) -> tensor<2x8x1x5xf32>
  return
}

// -----

// expected-note @+1 {{source defined here}}
func.func @pick_index(%x: tensor<2x8x3x4xf32>) {
  // expected-error @+1 {{picks number 3 of 3}}
  %0 = braid.pick %x {index = 3 : i64} : (tensor<2x8x3x4xf32>) -> tensor<2x8x4xf32>
  return
}

// -----

func.func @scale_documents(%x: tensor<2x8xi32>) {
  // expected-error @+1 {{count is 0 but must be at least 1}}
  %0 = braid.scale_documents %x {count = 0 : i64} : (tensor<2x8xi32>) -> tensor<2x8xi32>
  return
}

// -----

func.func @f(%x: tensor<2x8x16xf32>, %documents: tensor<2x8xi32>) {
  // expected-error @+1 {{'braid.last_token' op result is 'tensor<2x16xf32>' but the last tokens of x are 'tensor<2x1x16xf32>'}}
  %0 = braid.last_token %x, %documents : (tensor<2x8x16xf32>, tensor<2x8xi32>) -> tensor<2x16xf32>
  return
}

// -----

// expected-note @+1 {{documents defined here}}
func.func @f(%x: tensor<2x8x16xf32>, %documents: tensor<2x7xi32>) {
  // expected-error @+1 {{token mismatch}}
  %0 = braid.last_token %x, %documents : (tensor<2x8x16xf32>, tensor<2x7xi32>) -> tensor<2x1x16xf32>
  return
}
