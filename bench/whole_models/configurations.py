"""The models of bench/models.py: Hugging Face's, with random weights, and the batches that they are trained on."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import torch
import transformers


class Size(NamedTuple):
    batch: int
    length: int  # of a sequence; for images, that of a side
    width: int
    heads: int
    inner: int
    vocabulary: int  # classes of images
    key_heads: int = 0  # if they are fewer

    def tokens(self, model: str) -> int:
        """The tokens of a step; each patch of an image is one."""
        return self.batch * ((self.length // PATCH) ** 2 + 1 if model == "vit" else self.length)


PATCH = 16
SIZES = {
    "bert": {"large": Size(8, 512, 1024, 16, 4096, 30522), "phase1": Size(96, 128, 1024, 16, 4096, 30522),
             "phase2": Size(32, 512, 1024, 16, 4096, 30522), "tiny": Size(2, 16, 32, 2, 64, 128)},
    "gpt2": {"large": Size(8, 1024, 1024, 16, 4096, 50257), "tiny": Size(2, 16, 32, 2, 64, 128)},  # medium's layers
    "llama": {"large": Size(1, 2048, 2048, 32, 8192, 128256, 8), "tiny": Size(2, 16, 32, 4, 64, 128, 2)},  # 1B's
    "vit": {"large": Size(32, 224, 1024, 16, 4096, 1000), "tiny": Size(2, 32, 32, 2, 64, 10)},
    "t5": {"large": Size(16, 512, 768, 12, 3072, 32128), "tiny": Size(2, 16, 32, 2, 64, 128)},  # base's
}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
MASKED = 0.15  # of BERT's tokens
LAYERS_VOCABULARY = 1024  # where only the layers are timed


class Layers(torch.nn.Module):
    """The layers without a head; the loss is the mean square of what they return."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **batch):
        return self.model(**batch).last_hidden_state.float().square().mean()


class Training(torch.nn.Module):
    """The model with its own loss, and nothing else."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, **batch):
        return self.model(**batch).loss


def model_of(options: argparse.Namespace, dtype: torch.dtype) -> torch.nn.Module:
    """Returns its loss."""
    size = SIZES[options.model][options.size]
    training = options.task == "training"
    if not training:
        size = size._replace(vocabulary=LAYERS_VOCABULARY)
    made = _MAKERS[options.model](size, options, training)
    return (Training if training else Layers)(made).to(options.device, dtype).train()


def _bert(size: Size, options: argparse.Namespace, training: bool) -> torch.nn.Module:
    config = transformers.BertConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=options.layers,
        num_attention_heads=size.heads, intermediate_size=size.inner, max_position_embeddings=size.length,
        hidden_dropout_prob=options.dropout, attention_probs_dropout_prob=options.dropout)
    return transformers.BertForPreTraining(config) if training else transformers.BertModel(config, False)


def _gpt2(size: Size, options: argparse.Namespace, training: bool) -> torch.nn.Module:
    config = transformers.GPT2Config(
        vocab_size=size.vocabulary, n_embd=size.width, n_layer=options.layers, n_head=size.heads, n_inner=size.inner,
        n_positions=size.length, use_cache=False, bos_token_id=0, eos_token_id=0,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), options.dropout))
    made = transformers.GPT2LMHeadModel(config) if training else transformers.GPT2Model(config)
    made.loss_type = "ForCausalLM"  # the default, but without a line in the log, which would break the graph
    return made


def _llama(size: Size, options: argparse.Namespace, training: bool) -> torch.nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=options.layers,
        num_attention_heads=size.heads, num_key_value_heads=size.key_heads, intermediate_size=size.inner,
        max_position_embeddings=size.length, use_cache=False)
    return transformers.LlamaForCausalLM(config) if training else transformers.LlamaModel(config)


def _vit(size: Size, options: argparse.Namespace, training: bool) -> torch.nn.Module:
    config = transformers.ViTConfig(
        image_size=size.length, patch_size=PATCH, hidden_size=size.width, num_hidden_layers=options.layers,
        num_attention_heads=size.heads, intermediate_size=size.inner, num_labels=size.vocabulary)
    return transformers.ViTForImageClassification(config) if training else transformers.ViTModel(config, False, False)


def _t5(size: Size, options: argparse.Namespace, training: bool) -> torch.nn.Module:
    config = transformers.T5Config(
        vocab_size=size.vocabulary, d_model=size.width, d_kv=size.width // size.heads, d_ff=size.inner,
        num_layers=options.layers, num_heads=size.heads, dropout_rate=options.dropout, use_cache=False,
        decoder_start_token_id=0)
    return transformers.T5ForConditionalGeneration(config) if training else transformers.T5Model(config)


_MAKERS = {"bert": _bert, "gpt2": _gpt2, "llama": _llama, "vit": _vit, "t5": _t5}


def batch_of(options: argparse.Namespace) -> dict[str, torch.Tensor]:
    size, training = SIZES[options.model][options.size], options.task == "training"
    if options.model == "vit":
        given = {"pixel_values": torch.randn(size.batch, 3, size.length, size.length).to(DTYPES[options.dtype])}
        if training:
            given["labels"] = torch.randint(0, size.vocabulary, (size.batch,))
    else:
        ids = torch.randint(0, size.vocabulary if training else LAYERS_VOCABULARY, (size.batch, size.length))
        given = {"input_ids": ids, **(_labels(options.model, ids) if training else {})}
        if options.model == "t5" and not training:
            given["decoder_input_ids"] = ids
    return {name: tensor.to(options.device) for name, tensor in given.items()}


def _labels(model: str, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    if model != "bert":
        return {"labels": ids}
    labels = torch.where(torch.rand(ids.shape) < MASKED, ids, torch.full_like(ids, -100))
    return {"labels": labels, "next_sentence_label": torch.randint(0, 2, (len(ids),))}
