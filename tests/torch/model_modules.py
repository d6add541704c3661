"""The models in models/ by PyTorch's own modules: those of torch.nn, and of Hugging Face where it has the layer.

Each function of MODULES takes the model's sizes and its arguments as tensors, and returns the results. Arguments keep
the program's layout, so that their gradients can be compared with Millrace's. models_test.py calls them under
`InDouble`: some modules convert to float32 whatever their type is, and dropout must draw Millrace's masks.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Callable

import torch
from torch import nn
from torch.nn import functional

MODULES: dict[str, Callable] = {}


def model(function: Callable) -> Callable:
    MODULES[function.__name__] = function
    return function


def call(module: nn.Module, parameters: dict, *inputs, **options):
    """The module in training mode with these parameters, which must be all that it has."""
    given = {**dict(module.named_buffers()), **parameters}
    return torch.func.functional_call(module.train(), given, inputs, options, strict=True)


def causal(length: int) -> torch.Tensor:
    """An additive mask [1, 1, query, key]."""
    return torch.full((length, length), -torch.inf).triu(1)[None, None]


def linear(name: str, weight: torch.Tensor, bias: torch.Tensor | None = None) -> dict:
    """The parameters of nn.Linear `name`; ours are [input, output]."""
    return {f"{name}.weight": weight.T, **({} if bias is None else {f"{name}.bias": bias})}


def norm(name: str, weight: torch.Tensor, bias: torch.Tensor) -> dict:
    return {f"{name}.weight": weight, f"{name}.bias": bias}


@model
def llama_block(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.llama.modeling_llama import LlamaConfig, LlamaDecoderLayer

    config = LlamaConfig(hidden_size=s.I, intermediate_size=s.U, num_attention_heads=s.G * s.R, head_dim=s.P,
                         num_key_value_heads=s.G, rms_norm_eps=1e-5, attn_implementation="eager")
    gate, up = a.w_gate_up.chunk(2, dim=-1)
    parameters = {
        "input_layernorm.weight": a.attn_norm_weight,
        "post_attention_layernorm.weight": a.mlp_norm_weight,
        **linear("self_attn.q_proj", a.wq.reshape(s.I, -1)),
        **linear("self_attn.k_proj", a.wk.reshape(s.I, -1)),
        **linear("self_attn.v_proj", a.wv.reshape(s.I, -1)),
        **linear("self_attn.o_proj", a.wo.reshape(-1, s.I)),
        **linear("mlp.gate_proj", gate),
        **linear("mlp.up_proj", up),
        **linear("mlp.down_proj", a.w_down),
    }
    return call(LlamaDecoderLayer(config, 0), parameters, a.x, attention_mask=causal(s.J),
                position_embeddings=(a.cos[None], a.sin[None]))


@model
def gpt2_block(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.gpt2.modeling_gpt2 import GPT2Block, GPT2Config

    config = GPT2Config(n_embd=s.I, n_head=s.H, n_inner=s.U, attn_implementation="eager")
    parameters = {  # Hugging Face's Conv1D has [input, output] too
        **norm("ln_1", a.ln1_weight, a.ln1_bias),
        **norm("attn.c_attn", a.c_attn_weight, a.c_attn_bias),
        **norm("attn.c_proj", a.wo, a.bo),
        **norm("ln_2", a.ln2_weight, a.ln2_bias),
        **norm("mlp.c_fc", a.w1, a.b1),
        **norm("mlp.c_proj", a.w2, a.b2),
    }
    return call(GPT2Block(config, 0), parameters, a.x, attention_mask=causal(s.J))


def t5_block(s: SimpleNamespace, decoder: bool):
    from transformers.models.t5.modeling_t5 import T5Block, T5Config

    config = T5Config(d_model=s.I, d_kv=s.P, d_ff=s.U, num_heads=s.H, relative_attention_num_buckets=s.N,
                      feed_forward_proj="gated-gelu", is_decoder=decoder, attn_implementation="eager")
    return T5Block(config, has_relative_attention_bias=True, layer_idx=0)


def t5_buckets(s: SimpleNamespace, decoder: bool) -> torch.Tensor:
    """The buckets that T5 itself computes from positions [query, key]."""
    attention = t5_block(s, decoder).layer[0].SelfAttention
    positions = torch.arange(s.J)
    return attention._relative_position_bucket(
        positions[None, :] - positions[:, None], bidirectional=not decoder, num_buckets=s.N,
        max_distance=attention.relative_attention_max_distance).int()


def t5_feed_forward(name: str, a: SimpleNamespace) -> dict:
    return {f"{name}.layer_norm.weight": a.mlp_norm_weight, **linear(f"{name}.DenseReluDense.wi_0", a.w_gate),
            **linear(f"{name}.DenseReluDense.wi_1", a.w_up), **linear(f"{name}.DenseReluDense.wo", a.w_down)}


@model
def t5_encoder_layer(s: SimpleNamespace, a: SimpleNamespace):
    parameters = {
        "layer.0.layer_norm.weight": a.attn_norm_weight,
        "layer.0.SelfAttention.relative_attention_bias.weight": a.bias_table,
        **{f"layer.0.SelfAttention.{k}.weight": getattr(a, f"w{k}").T for k in "qkvo"},
        **t5_feed_forward("layer.1", a),
    }
    return call(t5_block(s, False), parameters, a.x)[0]


@model
def t5_decoder_layer(s: SimpleNamespace, a: SimpleNamespace):
    parameters = {
        "layer.0.layer_norm.weight": a.self_norm_weight,
        "layer.0.SelfAttention.relative_attention_bias.weight": a.bias_table,
        **{f"layer.0.SelfAttention.{k}.weight": getattr(a, f"self_w{k}").T for k in "qkvo"},
        "layer.1.layer_norm.weight": a.cross_norm_weight,
        **{f"layer.1.EncDecAttention.{k}.weight": getattr(a, f"cross_w{k}").T for k in "qkvo"},
        **t5_feed_forward("layer.2", a),
    }
    return call(t5_block(s, True), parameters, a.x, attention_mask=causal(s.J), encoder_hidden_states=a.memory)[0]


@model
def vit(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.vit.modeling_vit import ViTConfig, ViTForImageClassification

    config = ViTConfig(hidden_size=s.I, num_hidden_layers=1, num_attention_heads=s.H, intermediate_size=s.U,
                       image_size=(s.Y, s.X), patch_size=s.S, num_channels=s.C, num_labels=s.N, layer_norm_eps=1e-12,
                       attn_implementation="eager")
    module = ViTForImageClassification(config)
    weights, biases = a.w_qkv.chunk(3, dim=-1), a.b_qkv.chunk(3)
    parameters = {
        "vit.embeddings.cls_token": a.class_token[None, None],
        "vit.embeddings.position_embeddings": a.positions[None],
        "vit.embeddings.patch_embeddings.projection.weight": a.patch_weight.T.reshape(s.I, s.C, s.S, s.S),
        "vit.embeddings.patch_embeddings.projection.bias": a.patch_bias,
        **norm("vit.layers.0.layernorm_before", a.ln1_weight, a.ln1_bias),
        **linear("vit.layers.0.attention.q_proj", weights[0], biases[0]),
        **linear("vit.layers.0.attention.k_proj", weights[1], biases[1]),
        **linear("vit.layers.0.attention.v_proj", weights[2], biases[2]),
        **linear("vit.layers.0.attention.o_proj", a.wo, a.bo),
        **norm("vit.layers.0.layernorm_after", a.ln2_weight, a.ln2_bias),
        **linear("vit.layers.0.mlp.fc1", a.w1, a.b1),
        **linear("vit.layers.0.mlp.fc2", a.w2, a.b2),
        **norm("vit.layernorm", a.ln3_weight, a.ln3_bias),
        **linear("classifier", a.head_weight, a.head_bias),
    }
    return call(module, parameters, a.image).logits


def bert_layer(a: SimpleNamespace, n: int) -> dict:
    name = f"bert.encoder.layer.{n}"
    return {
        **linear(f"{name}.attention.self.query", a.wq[n], a.bq[n]),
        **linear(f"{name}.attention.self.key", a.wk[n], a.bk[n]),
        **linear(f"{name}.attention.self.value", a.wv[n], a.bv[n]),
        **linear(f"{name}.attention.output.dense", a.wo[n], a.bo[n]),
        **norm(f"{name}.attention.output.LayerNorm", a.ln1_weight[n], a.ln1_bias[n]),
        **linear(f"{name}.intermediate.dense", a.w1[n], a.b1[n]),
        **linear(f"{name}.output.dense", a.w2[n], a.b2[n]),
        **norm(f"{name}.output.LayerNorm", a.ln2_weight[n], a.ln2_bias[n]),
    }


@model
def bert(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.bert.modeling_bert import BertConfig, BertForPreTraining

    config = BertConfig(vocab_size=s.V, hidden_size=s.I, num_hidden_layers=s.N, num_attention_heads=s.H,
                        intermediate_size=s.U, max_position_embeddings=s.M, type_vocab_size=s.T, pad_token_id=None,
                        attn_implementation="eager")
    parameters = {
        "bert.embeddings.word_embeddings.weight": a.words,
        "bert.embeddings.position_embeddings.weight": a.positions,
        "bert.embeddings.token_type_embeddings.weight": a.kinds,
        **norm("bert.embeddings.LayerNorm", a.ln0_weight, a.ln0_bias),
        **linear("bert.pooler.dense", a.pooler_weight, a.pooler_bias),
        **linear("cls.predictions.transform.dense", a.head_weight, a.head_bias),
        **norm("cls.predictions.transform.LayerNorm", a.ln3_weight, a.ln3_bias),
        "cls.predictions.bias": a.vocabulary_bias,
        **linear("cls.seq_relationship", a.follows_weight, a.follows_bias),
    }
    for n in range(s.N):
        parameters.update(bert_layer(a, n))
    return call(BertForPreTraining(config), parameters, a.ids.long(), token_type_ids=a.segments.long(),
                labels=a.labels.long(), next_sentence_label=a.follows.long()).loss


class Transposed(nn.Module):
    """A module between two transpositions of axes 1 and 2."""

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x):
        return self.module(x.transpose(1, 2)).transpose(1, 2)


@model
def mixer(s: SimpleNamespace, a: SimpleNamespace):
    def mlp(width: int, hidden: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, hidden), nn.GELU(approximate="tanh"), nn.Linear(hidden, width))

    tokens = nn.Sequential(nn.LayerNorm(s.I, eps=1e-6), Transposed(mlp(s.J, s.T)))
    channels = nn.Sequential(nn.LayerNorm(s.I, eps=1e-6), mlp(s.I, s.U))
    x = a.x + call(tokens, {**norm("0", a.ln1_weight, a.ln1_bias), **linear("1.module.0", a.token_w1, a.token_b1),
                            **linear("1.module.2", a.token_w2, a.token_b2)}, a.x)
    return x + call(channels, {**norm("0", a.ln2_weight, a.ln2_bias), **linear("1.0", a.channel_w1, a.channel_b1),
                               **linear("1.2", a.channel_w2, a.channel_b2)}, x)


@model
def convnext_block(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.convnext.modeling_convnext import ConvNextConfig, ConvNextLayer

    module = ConvNextLayer(ConvNextConfig(), s.C)
    module.dwconv = nn.Conv2d(s.C, s.C, s.K, padding=s.K // 2, groups=s.C)  # sizes other than 7 and 4 * C
    module.pwconv1, module.pwconv2 = nn.Linear(s.C, s.U), nn.Linear(s.U, s.C)
    parameters = {
        "dwconv.weight": a.conv_weight[:, None], "dwconv.bias": a.conv_bias,
        **norm("layernorm", a.ln_weight, a.ln_bias),
        **linear("pwconv1", a.w1, a.b1),
        **linear("pwconv2", a.w2, a.b2),
        "layer_scale_parameter": a.layer_scale,
    }
    return call(module, parameters, a.x)


@model
def resnet_bottleneck(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.resnet.modeling_resnet import ResNetBottleNeckLayer, ResNetConvLayer

    module = ResNetBottleNeckLayer(s.C, s.N, stride=s.S, reduction=1)
    module.layer = nn.Sequential(ResNetConvLayer(s.C, s.M, kernel_size=1), ResNetConvLayer(s.M, s.M, stride=s.S),
                                 ResNetConvLayer(s.M, s.N, kernel_size=1, activation=None))  # any M
    parameters = {
        "layer.0.convolution.weight": a.w1, **norm("layer.0.normalization", a.bn1_weight, a.bn1_bias),
        "layer.1.convolution.weight": a.w2, **norm("layer.1.normalization", a.bn2_weight, a.bn2_bias),
        "layer.2.convolution.weight": a.w3, **norm("layer.2.normalization", a.bn3_weight, a.bn3_bias),
        "shortcut.convolution.weight": a.w_shortcut,
        **norm("shortcut.normalization", a.bn_shortcut_weight, a.bn_shortcut_bias),
    }
    return call(module, parameters, a.x)


@model
def lstm(s: SimpleNamespace, a: SimpleNamespace):
    parameters = {"weight_ih_l0": a.w_input.T, "bias_ih_l0": a.b_input, "weight_hh_l0": a.w_hidden.T,
                  "bias_hh_l0": a.b_hidden}
    out, (_, c) = call(nn.LSTM(s.I, s.H, batch_first=True), parameters, a.x, (a.h_initial[None], a.c_initial[None]))
    return out, c[0]


@model
def mamba_block(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.mamba.modeling_mamba import MambaBlock, MambaConfig

    config = MambaConfig(hidden_size=s.I, state_size=s.N, time_step_rank=s.R, conv_kernel=s.K, intermediate_size=s.E,
                         layer_norm_epsilon=1e-5, num_hidden_layers=1)
    config.intermediate_size = s.E  # not a multiple of I
    parameters = {
        "norm.weight": a.norm_weight,
        **linear("mixer.in_proj", a.in_weight),
        "mixer.conv1d.weight": a.conv_weight[:, None], "mixer.conv1d.bias": a.conv_bias,
        **linear("mixer.x_proj", a.x_weight),
        **linear("mixer.dt_proj", a.dt_weight, a.dt_bias),
        "mixer.A_log": a.a_log,
        "mixer.D": a.d,
        **linear("mixer.out_proj", a.out_weight),
    }
    return call(MambaBlock(config, 0), parameters, a.x)


@model
def triangle_update(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.esm import modeling_esmfold as esmfold

    module = esmfold.EsmFoldTriangleMultiplicativeUpdate(SimpleNamespace(pairwise_state_dim=s.C), _outgoing=True)
    for name in ("a_p", "a_g", "b_p", "b_g"):  # any H, as in AlphaFold
        setattr(module, f"linear_{name}", nn.Linear(s.C, s.H))
    module.layer_norm_out, module.linear_z = nn.LayerNorm(s.H), nn.Linear(s.H, s.C)
    parameters = {
        **norm("layer_norm_in", a.ln_in_weight, a.ln_in_bias),
        **linear("linear_a_p", a.a_weight, a.a_bias),
        **linear("linear_a_g", a.a_gate_weight, a.a_gate_bias),
        **linear("linear_b_p", a.b_weight, a.b_bias),
        **linear("linear_b_g", a.b_gate_weight, a.b_gate_bias),
        **norm("layer_norm_out", a.ln_out_weight, a.ln_out_bias),
        **linear("linear_z", a.out_weight, a.out_bias),
        **linear("linear_g", a.gate_weight, a.gate_bias),
    }
    return call(module, parameters, a.pairs, a.mask)


@model
def moe(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.mixtral.modeling_mixtral import MixtralConfig, MixtralSparseMoeBlock

    config = MixtralConfig(hidden_size=s.I, intermediate_size=s.U, num_local_experts=s.E, num_experts_per_tok=s.E,
                           experts_implementation="eager")  # all experts are selected
    parameters = {"gate.weight": a.router.T, "experts.gate_up_proj": a.w_gate_up.transpose(1, 2),
                  "experts.down_proj": a.w_down.transpose(1, 2)}
    return call(MixtralSparseMoeBlock(config), parameters, a.x)


@model
def clip_loss(s: SimpleNamespace, a: SimpleNamespace):
    from transformers.models.clip.modeling_clip import image_text_contrastive_loss

    image, text = functional.normalize(a.image, dim=-1), functional.normalize(a.text, dim=-1)
    return image_text_contrastive_loss(a.log_scale.exp() * text @ image.T)
