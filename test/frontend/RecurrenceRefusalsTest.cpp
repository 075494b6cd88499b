// Recurrences in their own notation: which term is refused, with the place and what would be valid; no text crashes.
#include "test/frontend/RecurrenceTexts.h"
#include <random>

using namespace braid;

TEST(Recurrence, RefusesTheTermThatDoesNotFit) {
  struct Case {
    Text text;
    const char *message;
  } cases[] = {
      {{.state = ""}, "mixers.R.state: is empty; valid: an equation such as \"M = exp(g) M + k^T v\""},
      {{.output = " "}, "mixers.R.output: is empty; valid: an equation such as \"o = q M\""},
      {{.state = "M = M"}, "state: column 1: nothing is written; valid: + k^T v"},
      {{.state = "N = M"}, "state: column 1: 'N' is no state; valid: an equation \"M = ..\""},
      {{.state = "M = k^T v"}, "state: column 1: no product carries the state"},
      {{.state = "M_t = exp(g_t) M + k^T v"}, "state: column 1: 'M_t' is no state; valid: an equation"},
      {{.state = "M = exp(g) M_{t-1} + k^T v"},
       "valid: names without subscripts; on the right of its equation M is that of the token before"},
      {{.state = "M = exp(g) M + k^T v + q^T u",
        .inputs = plain + R"j(, "g": "-softplus(linear(x))", "u": "linear(x)")j"},
       "column 24: writes q^T u beside k^T v: a state of this family takes in one row times one row; valid: products "
       "with one key, or one value"},
      {{.state = "M = exp(g) M + k^5 v"},
       "'5 v' at column 18; valid: T: the transpose, as in k^T v; 2, 3 or 4: a power of each number"},
      {{.state = "M = exp(g) M + M + k^T v"}, "column 16: a second multiple of M"},
      {{.state = "M = g M + k^T v", .inputs = plain + R"j(, "g": "linear(x)")j"},
       "column 5: 'g' multiplies M, and its logarithm is not known; valid: exp(g) of a log decay g, or what"},
      {{.state = "M = g M + k^T v"}, "column 5: 'g' multiplies M, and its logarithm is not known"},
      {{.state = "M = g M + k^T v", .inputs = plain, .parameters = R"j("g": 0.5)j"},
       "'g' multiplies M, and its logarithm"},
      {{.state = "M = g M + k^T v", .inputs = plain + R"j(, "g": "exp(linear(x))")j"},
       "inputs.g: that g is never above 1 cannot be shown, but what multiplies M must not be"},
      {{.state = "M = a M + k^T v", .inputs = plain + R"j(, "y": "linear(x)", "a": "exp(y) sigmoid(y)")j"},
       "inputs.a: that a is never above 1 cannot be shown"},
      {{.state = "M = a M + k^T v", .inputs = plain + R"j(, "a": "0.4 + 0.7 sigmoid(linear(x))")j"},
       "inputs.a: that a is never above 1 cannot be shown"},
      {{.state = "M = a M + k^T v", .inputs = plain + R"j(, "y": "linear(x)", "a": "sigmoid(y) - y^2")j"},
       "column 5: 'a' multiplies M, and its logarithm is not known"},
      {{.state = "M = a M + k^T v", .inputs = plain, .parameters = R"j("a": {"values": [0.5, 0.9, 1.5, 1]})j"},
       "parameters.a: values[2] is 1.5; valid for what multiplies M: from 0 to 1"},
      {{.state = "M = a M + k^T v", .inputs = plain, .parameters = R"j("a": {"values": "head - 1"})j"},
       "parameters.a: values[0] of layer 0 is -1; valid for what multiplies M: from 0 to 1"},
      {{.state = "M = c M + k^T v",
        .inputs = plain + R"j(, "c": "a sigmoid(linear(x))")j",
        .parameters = R"j("a": {"values": "head - 1"})j"},
       "inputs.c: that c is never negative cannot be shown, but what multiplies M must not be"},
      {{.state = "M = a M + k^T v", .inputs = plain + R"j(, "a": "clamp(linear(x), 1, 0)")j"},
       "inputs.a: column 18: valid as what clamp keeps between: two numbers, the lower first"},
      {{.state = "M = exp(-g) M + k^T v"}, "state: is never below 1, but what multiplies M must not be above 1"},
      {{.state = "M = 1.5 M + k^T v", .inputs = plain}, "state: is never below 1, but what multiplies M"},
      {{.state = "M = sigmoid(M) M + k^T v"}, "column 5: 'sigmoid(' is no function of a state"},
      {{.state = "M = sigmoid(linear(x)) M + k^T v", .inputs = plain},
       "state: column 13: linear in the state; valid: an input of its own"},
      {{.state = "M = (M + k^T v) / M", .inputs = plain}, "column 19: a division by the state"},
      {{.state = "M = M + (k M)^T v", .inputs = plain},
       "column 10: M before ^T: a state of this family is not transposed"},
      {{.state = "M = -M + k^T v"}, "the state changes its sign"},
      {{.state = "M = exp(g) diag(exp(g)) M + k^T v"}, "column 5: decays of two kinds; valid: one"},
      {{.state = "M = exp(h) M + k^T v"}, "column 9: 'h' is not defined"},
      {{.state = "M = full(exp(g)) M diag(exp(h)) + k^T v",
        .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "log_sigmoid(linear(x))")j"},
       "column 5: two decays of value features"},
      {{.state = "M = M full(exp(g)) + k^T v"}, "column 7: what stands right of M"},
      {{.state = "M = diag(exp(g)) M diag(exp(g)) + k^T v"},
       "column 14: 'g' is one number per value here, but per key elsewhere in it"},
      {{.state = "M = (full(exp(g)) + k^T k) M + k^T v"},
       "column 21: b^T a M is added to a state with a decay per value"},
      {{.state = "M = (I - b k^T k) full(exp(g)) M + b k^T v", .inputs = gatedDelta}, "with a decay per value feature"},
      {{.inputs = R"j("q": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j",
        .parameters = R"j("k": {"value": 1, "per": "head"})j"},
       "state: column 16: 'k' has one number per head, but per key is needed here; valid: what has one per key; such"},
      {{.state = "M = full(exp(c)) M + k^T v", .inputs = plain, .parameters = R"j("c": {"values": [1, 2, 3, 4]})j"},
       "state: column 14: 'c' has one number per head, but per element is needed here"},
      {{.state = "M = full(exp(g)) M + k^T v", .inputs = plain + R"j(, "g": "log_sigmoid(linear(x, heads=2))")j"},
       "heads=2 of one number per element of the state"},
      {{.state = "M = full(exp(g)) M + k^T v", .inputs = plain + R"j(, "g": "l2_norm(linear(x))")j"},
       "l2_norm is of features of a head"},
      {{.state = "M = exp(g) M + k^T"}, "nothing stands behind k^T to multiply with"},
      {{.state = "M = tanh(M) + k^T v"}, "column 5: 'tanh(' is no function of a state"},
      {{.state = "M = diag(g) M + k^T v"}, "column 5: 'g' multiplies M, and its logarithm is not known"},
      {{.state = "M = exp(g) M - M + k^T v"}, "column 16: a second multiple of M; valid: one, such as a M"},
      {{.state = "M = M - b k^T k M + k^T v b", .inputs = delta}, "'b' is one number per head here, but per value"},
      {{.state = "M = M + full(exp(g)) k^T v"}, "column 9: decays per element of k^T v"},
      {{.state = "M = exp(g) M - b k^T k full(exp(h)) M + b k^T v",
        .inputs = gatedDelta + R"j(, "h": "-exp(linear(x))")j"},
       "what is added to M is b^T a M"},
      {{.state = "M = exp(g) M + k^T v)"}, "state: ')' at column 21; valid: +, -, *, / or the end"},
      {{.state = "M = exp(g M + k^T v"}, "at column 20; valid: ',' or ')'"},
      {{.state = "M = M + k^T v; M = M + k^T v; z = z + k^T", .output = "o = (q M) / (q z)", .inputs = plain},
       "state: column 16: a second equation of M beside a normaliser z; valid: one"},
      {{.state = "M = M - 0.1 grad(l2(k M - v)); M = M + k^T v", .inputs = plain},
       "state: column 32: a second equation of M beside gradient steps; valid: one"},
      {{.state = "M = M + k^T v; M = full(exp(g)) M + k^T v"},
       "column 20: a decay per element in one of several updates"},
      {{.state = "M = M diag(exp(g)) + k^T v; M = M + k^T v"},
       "a decay right of M in one of several updates of M; valid"},
      {{.state = "M = M + k^T v; M = M + k^T v", .output = "o = q M_prev", .inputs = plain},
       "output: column 7: M_prev of a state with several updates of a token; valid: M"},
      {{.state = "M = 0.9 M; M = 0.5 M", .inputs = plain}, "state: column 1: nothing is written; valid: + k^T v"},
      {{.state = "M = M - k^T k M; M = (I - v^T v) M", .inputs = plain}, "state: column 1: nothing is written"},
      {{.state = "M = M + k^T v; z = z + k^T; z = z", .output = "o = (q M) / (q z)", .inputs = plain},
       "a second equation of z; valid: one"},
      {{.state = "z = z + k^T", .inputs = plain}, "state: column 1: valid: an equation \"M = ..\""},
      {{.state = "M = M + k^T v; z = z + q^T", .output = "o = (q M) / (q z)", .inputs = plain},
       "state: column 24: M has no such product, or not as often; valid: the equation of M, with z for M and k^T for "
       "k^T v"},
      {{.state = "M = exp(g) M + k^T v; z = z + k^T", .output = "o = (q M) / (q z)"},
       "column 27: M has no such product"},
      {{.state = "M = M + k^T v; z = z + z", .output = "o = (q M) / (q z)", .inputs = plain},
       "M has no such product, or not as often"},
      {{.state = "M = M + k^T v; z = k^T + k^T", .output = "o = (q M) / (q z)", .inputs = plain},
       "M has no such product, or not as often"},
      {{.state = "M = exp(g) M + k^T v; z = k^T", .output = "o = (q M) / (q z)"}, "has 1 products, but M has 2"},
      {{.state = "M = M + k^T v; z = z + k^T", .inputs = plain},
       "output: column 1: z is not read; valid: (q M) / (q z), or q M and q z as factors of their own"},
      {{.state = "M = M + k^T v; z = z + k^T", .output = "o = (q M) / max(k z, 1)", .inputs = plain},
       "output: column 17: z is read by k, but M by q; valid: one row for both"},
      {{.state = "M = M + k^T v; z = z + k^T", .output = "o = (q M) (q z) (k z)", .inputs = plain},
       "output: column 18: a second row that reads z; valid: one, that of M"},
      {{.state = "M = M + k^T v; z = z + k^T", .output = "o = (q M) / max(1, q z)", .inputs = plain},
       "valid as what max compares with: a number, as in max(y, 1)"},
      {{.state = "M = M + k^T v; z = z + k^T", .output = "o = (q M) tanh(z)", .inputs = plain},
       "output: column 16: 'z' stands alone; valid: (q M) / (q z), or"},
      {{.state = "M = M + k^T v; z = z + k^T", .output = "o = (q M) / (k z)", .inputs = plain},
       "output: column 14: M and z are read by one row"},
      {{.state = "M = diag(exp(g + i h)) M diag(exp(h)) + k^T v", .inputs = twoGates},
       "column 5: a decay with a phase goes with k^T v alone"},
      {{.state = "M = exp(g + i h) M + k^T v", .inputs = twoGates}, "column 5: a decay is exp(g), or diag(exp(g))"},
      {{.state = step + " - r grad(l2(k M - v))", .inputs = steps}, "state: column 31: a second gradient step"},
      {{.state = "S = exp(r) S - r grad(l2(k M - v)); M = M + S + S", .inputs = steps}, "a second S"},
      {{.state = "M = M - r grad(l2(k M - v)) grad(l2(k M - v))", .inputs = steps}, "a second grad(..) in one product"},
      {{.state = "M = M + r grad(l2(k M - v))", .inputs = steps}, "column 9: a step along the gradient"},
      {{.state = "M = M - r grad(k M - v)", .inputs = steps}, "column 11: the only loss here is l2(y) = |y|^2 / 2"},
      {{.state = "M = M - r grad(l2(tanh(k M) - v))", .inputs = steps}, "column 19: what is predicted is k M"},
      {{.state = "M = diag(exp(r)) M - r grad(l2(k M - v))", .inputs = steps},
       "column 5: what gradient steps change decays by one exp(a)"},
      {{.inputs =
            R"j("q": "linear(x)", "k": "conv(linear(x))", "v": "linear(x)", "g": "log_sigmoid(linear(x) + conv_k.bias)")j",
        .parameters = R"j("conv_k.bias": 1)j"},
       "parameters.conv_k.bias: its weight lsm.conv_k.bias has the name of one of inputs.k"},
      {{.state = "M = M + S; S = S", .inputs = steps}, "column 1: no gradient step"},
      {{.state = "M = M M - r grad(l2(k M - v))", .inputs = steps}, "column 7: 'M' a second time in a product"},
      {{.inputs = plain + R"j(, "y": "linear(w)", "g": "log_sigmoid(linear(x) + y)")j",
        .parameters = R"j("w": {"value": 0, "per": "key"})j"},
       "inputs.y: column 1: linear of parameters alone"},
      // Read in two places: what helps is said.
      {{.state = "M = exp(-b) M + k^T v",
        .output = "o = silu(q M) + tanh(b)",
        .inputs = plain + R"j(, "b": "softplus(linear(x))")j"},
       "two names, or per=head in its linear, where it multiplies what has more"},
      {{.state = "M = M + b k^T v", .output = "o = q M + v b", .inputs = plain, .parameters = R"j("b": 1)j"},
       "two names, or \"per\": \"head\", where it multiplies what has more"},
      {{.state = "M = M + k^T v", .output = "o = silu(q M) k", .inputs = plain},
       "'k' is one number per value here, but per key in state, column 9; valid: two names"},
      {{.inputs = R"j("q": "shift(w)", "k": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j",
        .parameters = R"j("w": 0)j"},
       "inputs.q: column 1: shift of parameters alone; valid: functions of each number, softmax, l2_norm"},
      {{.inputs =
            R"j("q": "rope(linear(x))", "k": "linear(x)", "v": "rope(linear(x))", "g": "log_sigmoid(linear(x))")j",
        .more = R"j(, "rope": {"fraction": 0.3125})j"},
       "rope.fraction: 0.3125 of head_dim 8 turns 3 features"},
      {{.more = R"j(, "output_glu": "silu")j"}, "output_glu: takes o as it is, but output_norm is true"},
      {{.state = step + "; M_0 = q", .inputs = steps}, "'q' is an input; valid in this place: a parameter"},
      {{.state = step + "; S = exp(r) S", .inputs = steps}, "momentum S is what M adds, and what the step changes"},
      {{.state = step, .output = "o = q M_prev", .inputs = steps},
       "output: column 7: M_prev of a state with gradient steps"},
      {{.state = step, .inputs = steps, .more = R"j(, "mini_batch": 0)j"},
       "mini_batch: 0 is out of range; valid: 1 to 128"},
      {{.more = R"j(, "mini_batch": 8)j"}, "mini_batch: changes nothing without a gradient step"},
      {{.output = "o = q M + k M silu(v)"}, "output: column 11: a second read of M"},
      {{.output = "o = silu(v)"}, "output: column 1: M is not read"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(split(x))")j"},
       "split makes values, but one number per head is needed here"},
      {{.more = R"j(, "output_gate": "silu", "output_glu": "silu")j"}, "output_glu: a gate beside output_gate"},
      {{.output = "o = (q M) M silu(v)"}, "output: column 6: M is read by a row"},
      {{.output = "o = linear(x) M"}, "output: column 5: linear in the output; valid: an input of its own"},
      {{.state = "M = M + k^T v",
        .inputs = R"j("q": "exp(u)", "k": "sin(u)", "v": "cos(w)")j",
        .parameters = R"j("u": {"value": 1, "per": "key"}, "w": {"value": 1, "per": "value"})j"},
       "state: column 1: nothing in it comes from x"},
      {{.state = "M = exp(g) M^T + k^T v"}, "column 12: M^T: a state of this family is not transposed; valid: M"},
      {{.state = "M = exp(g) M + k^T v; M_0 = w"}, "column 23: M_0 of a state without gradient steps"},
      {{.state = "M =\u00a0M + k^T v"}, "at column 4"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(conv(linear(x)))")j", .more = R"j(, "conv": null)j"},
       "conv: is null, but an input calls conv(..)"},
      {{.more = R"j(, "output_norm": false, "norm_eps": 1e-3)j"}, "norm_eps: changes nothing without a norm"},
      {{.output = "o = silu(q M) + y"}, "output: column 17: 'y' is not defined"},
      {{.output = "o = q M + x"},
       "output: column 11: x has all features of d_model; valid: an input such as linear(x)"},
      {{.state = "M = x M + k^T v"}, "state: column 5: x stands in inputs only"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(inner(q, v))")j"},
       "inputs.g: column 22: 'v' is one number per key here, but per value in state, column 20; valid: two"},
      {{.inputs = R"j("q": "taylor(linear(x))", "k": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "output: column 5: 'q' has one number per row, but key 'k' per key; valid: the same function of both"},
      {{.inputs =
            R"j("q": "taylor(linear(x))", "k": "square(linear(x))", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "taylor here, but square elsewhere"},
      {{.state = "M = diag(exp(g)) M + k^T v",
        .inputs =
            R"j("q": "with_one(linear(x))", "k": "with_one(linear(x))", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "state: column 14: a decay per key feature of a state whose rows are products"},
      {{.inputs = plain + R"j(, "y": "shift(x) - x", "g": "log_sigmoid(y)")j"},
       "inputs.y: column 7: x has all features of d_model"},
      {{.inputs = plain + R"j(, "y": "shift(x) - x", "z1": "shift(x)", "g": "log_sigmoid(linear(x))")j"},
       "inputs.z1: nothing uses it"},
      {{.inputs =
            R"j("a": "shift(x) + x", "b": "x - shift(x)", "q": "linear(a)", "k": "linear(b)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "inputs.b: its weight lsm.shift_x has the name of one of inputs.a"},
      {{.inputs = plain + R"j(, "g": "position_rate(t)")j", .parameters = R"j("t": 0)j"},
       "position_rate is of a mini-batch; valid: in front of grad(..)"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x), l)")j", .parameters = R"j("l": 0)j"},
       "parameters.l: is trained, but the least value of a gate is not"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x), l)")j", .parameters = R"j("l": {"values": "head / 2"})j"},
       "parameters.l: values[2] of layer 0 is 1; valid for the least value of a gate: from 0, below 1"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "key - 1"})j"},
       "parameters.g: column 1: 'key' is no number of one for each head; valid: layer, layers, pi, head, heads"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "cosh(head)"})j"},
       "parameters.g: column 1: 'cosh(' is no function of one number; valid: exp, exp2"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "-1 / head"})j"},
       "parameters.g: number 0 of layer 0 is -inf; valid: -1e6 to 1e6"},
      {{.inputs = plain, .parameters = R"j("g": {"values": "1 +"})j"}, "parameters.g.values: the end at column 4"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(b.c)")j"}, "inputs.g: column 13: 'b.c' is not defined"},
      {{.inputs = plain + R"j(, "g.h": "linear(x)")j"}, "inputs.g.h: is no name"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(l2_norm(linear(x), 0))")j"}, "l2_norm needs several features"},
      {{.output = "o = layer_norm(q M, w, b, 2) v", .parameters = R"j("w": 1, "b": 0)j"},
       "output: column 27: valid as what keeps layer_norm from dividing by 0"},
      {{.state = "M = M - r grad(l2(layer_norm(k M, w, b, 0) - v))",
        .inputs = steps,
        .parameters = R"j("w": 1, "b": 0)j"},
       "state: column 41: valid as what keeps layer_norm from dividing by 0"},
      {{.inputs = plain + R"j(, "g": "linear(x)")j"}, "inputs.g: that it is never positive cannot be shown"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x)) p")j", .parameters = R"j("p": 1)j"},
       "inputs.g: that it is never positive cannot be shown"},
      {{.state = "M = diag(exp(g)) M diag(exp(h)) + k^T v",
        .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "h": "tanh(linear(x))")j"},
       "inputs.h: that it is never positive cannot be shown"},
      {{.output = "o = M"}, "output: column 5: 'M' stands alone; valid: q M"},
      {{.output = "o = v"}, "output: column 1: M is not read"},
      {{.output = "o = q M + k"},
       "output: column 11: 'k' is one number per value here, but per key in state, column 16"},
      {{.state = "M = exp(v) M + k^T v"},
       "state: column 9: 'v' is one number per head here, but per value elsewhere in it"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(y)")j"}, "inputs.g: column 13: 'y' is not defined"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(h)", "h": "linear(x)")j"},
       "inputs.g: 'h' comes later in inputs; valid: names before this one"},
      {{.state = "M = full(exp(g)) M + k^T v", .output = "o = q M_prev"},
       "M_prev of a state with one decay per element"},
      {{.state = "M = (diag(exp(g)) + k^T h) M + k^T v", .output = "o = q M_prev", .inputs = lowRank},
       "output: 'k' stands in two places of the state"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(x)")j"}, "inputs.g: column 13: x has all features of d_model"},
      {{.inputs = plain + R"j(, "g": "softmax(linear(x))")j"}, "softmax needs several features of a head"},
      {{.inputs = plain + R"j(, "g": "bump(linear(x))")j"},
       "inputs.g: column 1: 'bump(' is no function; valid: linear"},
      {{.inputs = plain + R"j(, "g": "linear(x) + linear(x)")j"},
       "column 13: a second linear or low_rank of one input"},
      {{.inputs = plain + R"j(, "g": "linear(x) / 0")j"}, "column 13: a division by 0"},
      {{.inputs = plain + R"j(, "g": "1.2.3 linear(x)")j"}, "'.3 linea..' at column 4; valid: a number with one point"},
      {{.inputs = plain + R"j(, "g": "-1e20 * 1e20 * softplus(linear(x))")j"},
       "inputs.g: column 2: its numbers make 1e+40; valid: 0, or 1e-30 to 1e30"},
      {{.inputs = plain + R"j(, "g": "-log_sigmoid(linear(x)) / 2")j"},
       "inputs.g: is never negative, but a log decay must not be positive"},
      {{.inputs = plain + R"j(, "f": "sigmoid(linear(x))", "g": "f * f")j"}, "inputs.g: is never negative"},
      {{.inputs = plain + R"j(, "f": "linear(x)", "g": "f f / 2")j"}, "inputs.g: is never negative"},
      {{.inputs = plain + R"j(, "g": "tanh(softplus(linear(x)))")j"}, "inputs.g: is never negative"},
      {{.inputs = plain, .parameters = R"j("g": {"values": [-1, 1e6, 0, 0]})j"},
       "parameters.g: values[1] is 1e+06; valid for a log decay: at most 0"},
      {{.inputs = plain + R"j(, "g": "linear(x, heads=3)")j"}, "heads=3 does not divide heads 4"},
      {{.inputs = plain + R"j(, "g": "linear(x, per=key)")j"},
       "inputs.g: column 1: per=key, but one number per head is needed in state, column 9; valid: per=head"},
      {{.inputs = plain + R"j(, "g": "low_rank(x, 0.5)")j"}, "valid as the rank: a whole number"},
      {{.inputs = plain + R"j(, "g": "3")j"}, "inputs.g: is never negative"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x)) 1e20 1e20")j"},
       "inputs.g: column 1: its numbers make 1e+40; valid: 0, or 1e-30 to 1e30"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(x) + (1e30 + 1e30))")j"},
       "inputs.g: column 26: its numbers make one out of range"},
      // The state is in no input.
      {{.inputs = R"j("q": "linear(x)", "k": "linear(x)", "v": "M", "g": "log_sigmoid(linear(x))")j"},
       "inputs.v: column 1: M is the state, which stands in state and output only"},
      {{.inputs = plain + R"j(, "g": "-softplus(inner(M, v))")j"}, "inputs.g: column 17: M is the state"},
      {{.inputs = R"j("q": "linear(x)", "k": "rope(M)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j"},
       "inputs.k: column 6: M is the state"},
      {{.inputs = plain + R"j(, "g": "log_sigmoid(linear(M))")j"}, "inputs.g: column 20: M is the state"},
      // A number per head where features are needed.
      {{.state = "M = diag(exp(g)) M + k^T v",
        .inputs = plain + R"j(, "s": "linear(x, per=head)", "g": "-softplus(s)")j"},
       "state: column 14: 'g' has one number per head, but per key is needed here"},
      {{.output = "o = b + q M", .inputs = plain + R"j(, "g": "log_sigmoid(linear(x))", "b": "linear(x, per=head)")j"},
       "output: column 5: 'b' has one number per head, but per value is needed here"},
      {{.output = "o = q M + linear(x)"}, "output: column 11: linear in the output; valid: an input of its own"},
      {{.inputs = plain + R"j(, "M": "linear(x)")j"}, "inputs.M: is a name of its own meaning"},
      {{.inputs = plain + R"j(, "g": 3)j"}, "inputs.g: 3 is not a string"},
      {{.parameters = R"j("b": 1)j"}, "parameters.b: nothing uses it"},
      {{.parameters = R"j("g": 1)j"}, "parameters.g: is a name in inputs too"},
      {{.inputs = plain, .parameters = R"j("g": 1)j"}, "is trained, and nothing keeps"},
      {{.inputs = plain, .parameters = R"j("g": {"values": [-1, -2]})j"},
       "parameters.g: has 2 values for one number per head of 4 heads"},
      {{.parameters = R"j("b": {})j"}, "parameters.b: says not once what its initial values are"},
      {{.inputs =
            R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", "k1": "low_rank(x, 2)", "g": "log_sigmoid(k1)")j",
        .more = R"j(, "conv": {"kernel": 4})j"},
       "conv: changes nothing: no input calls conv(..)"},
      {{.inputs = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", "g": "log_sigmoid(linear(x))")j",
        .more = R"j(, "output_gate": "silu")j"},
       "inputs.g: its weight lsm.wg has the name of one of the output gate"},
      {{.more = R"j(, "norm_first": false)j"}, "norm_first: changes nothing without output_gate"},
      {{.more = R"j(, "norm_groups": 7)j"}, "norm_groups: 7 does not divide heads times value_dim 64"},
  };
  for (const Case &c : cases) {
    std::vector<std::string> errors = errorsOf(description(c.text));
    ASSERT_FALSE(errors.empty()) << c.message;
    EXPECT_NE(errors.front().find(c.message), std::string::npos) << c.message << "\n" << errors.front();
  }
}

TEST(Recurrence, NoTextIsTooMuch) {
  std::string deep(1000, '('), wide = "M = ", squares = "M = M";
  for (int i = 0; i < 200; ++i)
    wide += "M+";
  for (int i = 0; i < 60; ++i)
    squares += " (M + M)";
  for (const std::string &state : {"M = " + deep, wide + "M", squares, std::string(2000, 'M'), std::string("M = k^")})
    EXPECT_FALSE(errorsOf(description({.state = state})).empty());
  // Parts that several things look at, in each of many levels.
  auto nested = [](std::string inmost, const std::string &before, const std::string &behind) {
    for (int i = 0; i < 28; ++i)
      inmost = before + inmost + behind;
    return inmost;
  };
  std::string powers = "I", ofState = "M";
  for (int i = 0; i < 16; ++i) {
    powers += "^4";
    ofState += "^4";
  }
  for (const std::string &state :
       {"M = M + k^T " + nested("v", "(", " s)"), "M = M + " + nested("v", "(", " s)") + " k^T",
        "M = M + k^T " + nested("v", "(u + s ", ")"), "M = " + powers + " M + k^T v", "M = " + ofState + " + k^T v",
        "M = " + nested("a", "s a + (1 - s) (", ")") + " M + k^T v",
        "M = M + (" + nested("v", "(k M - ", ")^T") + ") k"})
    errorsOf(description(
        {.state = state,
         .inputs = plain + R"j(, "s": "sigmoid(linear(x, per=head))", "u": "linear(x)", "a": "sigmoid(linear(x))")j"}));
  // Each input twice the one before: as a tree 2^40 parts.
  std::string inputs = R"j("a0": "linear(x)")j", last = "a0";
  for (int i = 1; i < 40; ++i) {
    std::string name = "a" + std::to_string(i);
    inputs += ", \"" + name + "\": \"" + last + " * " + last + "\"";
    last = name;
  }
  EXPECT_TRUE(errorsOf(description({.inputs = R"j("q": "linear(x)", "k": "linear(x)", "v": "linear(x)", )j" + inputs +
                                              R"j(, "g": "log_sigmoid()j" + last + ")\""}))
                  .empty());
}

TEST(Recurrence, RandomTextsNeverCrash) {
  std::mt19937 random(7);
  const std::vector<std::string> parts = {"M",
                                          "k^T",
                                          "v",
                                          "k",
                                          "q",
                                          "exp(g)",
                                          "diag(exp(g))",
                                          "(",
                                          ")",
                                          "+",
                                          "-",
                                          "*",
                                          "/",
                                          "I",
                                          "b",
                                          " ",
                                          "2",
                                          "x",
                                          "linear(x)",
                                          "^T",
                                          "^2",
                                          "log(",
                                          "clamp(",
                                          ",",
                                          "=",
                                          "log_sigmoid(",
                                          ";",
                                          "z",
                                          "S",
                                          "M_0",
                                          "M_prev",
                                          "M^T",
                                          "q^T",
                                          "i",
                                          "grad(",
                                          "l2(k M - v)",
                                          "shift(",
                                          "taylor(",
                                          "join(",
                                          "inner(q, k)",
                                          "layer_norm(",
                                          "first("};
  size_t valid = 0;
  for (int i = 0; i < 20000; ++i) {
    auto text = [&](std::string start) {
      for (size_t n = random() % 12; n > 0; --n)
        start += parts[random() % parts.size()];
      return start;
    };
    Text t{.state = text("M = exp(g) M + k^T v"), .output = text("o = q M")};
    if (random() % 2)
      t.inputs = plain + R"j(, "g": ")j" + text("linear(x)") + "\"";
    valid += errorsOf(description(t)).empty();
  }
  EXPECT_GT(valid, 50u);
}
