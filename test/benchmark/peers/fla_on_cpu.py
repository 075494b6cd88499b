"""The models of flash-linear-attention without a GPU: what its Triton kernels compute is said in PyTorch here, and with its own references where it
has some. Layers, projections and the order of everything stay its own. Importing this prepares the package; slow, small models only.
"""
import torch
import torch.nn.functional as F

import fla.layers.attn
import fla.layers.delta_net
import fla.layers.gated_deltanet
import fla.layers.gla
import fla.layers.hgrn2
import fla.layers.kda
import fla.layers.multiscale_retention
import fla.layers.rwkv6
import fla.layers.rwkv7
import fla.models  # noqa: F401  names its models to transformers
import fla.models.rwkv6.modeling_rwkv6
import fla.models.rwkv7.modeling_rwkv7
import fla.modules.mlp
from fla.modules import FusedRMSNormGated, GroupNorm, LayerNorm, RMSNorm, RotaryEmbedding, ShortConvolution
from fla.modules.activations import ACT2FN
from fla.ops.delta_rule.naive import delta_rule_recurrence
from fla.ops.gated_delta_rule.naive import naive_recurrent_gated_delta_rule
from fla.ops.generalized_delta_rule.dplr.naive import dplr_recurrence
from fla.ops.gla.naive import naive_recurrent_gla
from fla.ops.kda.gate import naive_kda_gate, naive_kda_lowerbound_gate
from fla.ops.kda.naive import naive_recurrent_kda
from fla.ops.retention.naive import naive_retention
from fla.ops.rwkv6.recurrent_naive import naive_recurrent_rwkv6
from fla.ops.rwkv7.fused_addcmul import torch_addcmul_rwkv7
from fla.ops.rwkv7.fused_k_update import k_update_ref
from fla.ops.rwkv7.gate_output_correction import gate_output_correction_ref


def rms(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def norm(self, x, residual=None, prenorm=False, residual_in_fp32=False):
    x = x if residual is None else x + residual
    return (rms(x, self.weight, self.eps), x) if prenorm else rms(x, self.weight, self.eps)


def layer_norm(self, x, residual=None, prenorm=False, residual_in_fp32=False):
    x = x if residual is None else x + residual
    y = F.layer_norm(x, (x.shape[-1],), self.weight, self.bias, self.eps)
    return (y, x) if prenorm else y


def group_norm(self, x):
    return F.group_norm(x.flatten(0, 1), self.num_groups, self.weight, self.bias, self.eps).view(x.shape)


def gated_norm(self, x, g, *rest, **more):
    return rms(x, self.weight, self.eps) * (torch.sigmoid(g) if self.activation == "sigmoid" else F.silu(g))


def convolution(self, x, **more):
    taps = self.weight.shape[-1]
    y = F.conv1d(F.pad(x.transpose(1, 2), (taps - 1, 0)), self.weight, self.bias, groups=x.shape[-1]).transpose(1, 2)
    return (F.silu(y) if self.activation else y), None


def rotate(self, q, k, seqlen_offset=0, max_seqlen=None, cu_seqlens=None):
    angles = torch.outer(torch.arange(q.shape[1], dtype=torch.float32), self._compute_inv_freq())
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]

    def turned(x):
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    return turned(q), turned(k)


def attention(q, k, v, causal, window_size):
    keep = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).tril()
    if window_size[0] >= 0:
        keep = keep.triu(-window_size[0])
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=keep, enable_gqa=True).transpose(1, 2)


def unit(x):
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def gla(q, k, v, gk=None, g=None, **more):
    return naive_recurrent_gla(q, k, v, g if gk is None else gk)


def retention(q, k, v, **more):
    return naive_retention(*(x.transpose(1, 2) for x in (q, k, v))).transpose(1, 2), None


def delta(q, k, v, beta, **more):
    o, state = delta_rule_recurrence(*(x.transpose(1, 2) for x in (unit(q), unit(k), v, beta)))
    return o.transpose(1, 2), state


def strengths(beta, allow_neg_eigval):
    return torch.sigmoid(beta) * (2 if allow_neg_eigval else 1)


def gated_delta(q, k, v, g, beta, A_log, dt_bias, allow_neg_eigval, **more):
    heads = v.shape[2] // q.shape[2]
    q, k = (unit(x).repeat_interleave(heads, 2) for x in (q, k))
    return naive_recurrent_gated_delta_rule(q, k, v, strengths(beta, allow_neg_eigval), -A_log.exp() * F.softplus(g + dt_bias))


def kda(q, k, v, g, beta, A_log, dt_bias, allow_neg_eigval, lower_bound, **more):
    g = naive_kda_gate(g, A_log, dt_bias) if lower_bound is None else naive_kda_lowerbound_gate(g, A_log, dt_bias, lower_bound)
    return naive_recurrent_kda(unit(q), unit(k), v, g, strengths(beta, allow_neg_eigval))


def token_shift(x, cu_seqlens=None, output_cache=False, cache=None):
    return F.pad(x, (0, 0, 1, -1)) - x, None


def rwkv6(r, k, v, w, u, scale, **more):
    o, state = naive_recurrent_rwkv6(*(x.transpose(1, 2) for x in (r, k, v, w)), u, scale)
    return o.transpose(1, 2), state


def rwkv7(r, w, k, v, a, scale, b=None, kk=None, **more):
    assert scale == 1.0
    a, b = (a, b) if kk is None else (-kk, kk * a)
    return dplr_recurrence(*(x.transpose(1, 2) for x in (r * r.shape[-1] ** 0.5, k, v, a, b, w)))[0].transpose(1, 2), None


RMSNorm.forward = norm
LayerNorm.forward = layer_norm
GroupNorm.forward = group_norm
FusedRMSNormGated.forward = gated_norm
ShortConvolution.forward = convolution
RotaryEmbedding.forward = rotate
ACT2FN["swish"] = ACT2FN["silu"] = fla.layers.hgrn2.swish = F.silu
ACT2FN["sqrelu"] = lambda x: F.relu(x).square()
fla.modules.mlp.swiglu = lambda gate, x: F.silu(gate) * x
fla.modules.mlp.swiglu_linear = lambda gate, x, weight, bias: F.linear(F.silu(gate) * x, weight, bias)
fla.layers.attn.flash_attn_func = attention
fla.layers.gated_deltanet.GatedDeltaNet._use_fused_qkv_conv = lambda self, **more: False
fla.layers.hgrn2.rms_norm_linear = lambda x, weight, bias, out, out_bias: F.linear(rms(x, weight, 1e-5), out, out_bias)  # 1e-5: its own
fla.models.rwkv7.modeling_rwkv7.token_shift = fla.layers.rwkv7.token_shift = token_shift
fla.models.rwkv6.modeling_rwkv6.token_shift = fla.layers.rwkv6.token_shift = lambda x, cu_seqlens=None: token_shift(x)[0]
fla.layers.rwkv7.fused_addcmul_rwkv7 = torch_addcmul_rwkv7
fla.layers.rwkv7.fused_k_rwkv7 = k_update_ref
fla.layers.rwkv7.gate_output_correction = gate_output_correction_ref
fla.layers.rwkv7.l2_norm = unit
for layer, names, made in ((fla.layers.gla, ("chunk_gla", "fused_recurrent_gla"), gla),
                           (fla.layers.hgrn2, ("chunk_gla", "fused_recurrent_gla"), gla),
                           (fla.layers.multiscale_retention, ("chunk_retention", "fused_recurrent_retention"), retention),
                           (fla.layers.delta_net, ("chunk_delta_rule", "fused_recurrent_delta_rule"), delta),
                           (fla.layers.gated_deltanet, ("chunk_gated_delta_rule", "fused_recurrent_gated_delta_rule"), gated_delta),
                           (fla.layers.rwkv6, ("chunk_rwkv6", "fused_recurrent_rwkv6"), rwkv6),
                           (fla.layers.rwkv7, ("chunk_rwkv7", "fused_mul_recurrent_rwkv7"), rwkv7),
                           (fla.layers.kda, ("chunk_kda", "fused_recurrent_kda"), kda)):
    for name in names:
        assert hasattr(layer, name), f"{layer.__name__} has no {name}"
        setattr(layer, name, made)
