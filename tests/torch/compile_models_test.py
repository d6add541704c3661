"""Compiles tiny models of Hugging Face with backend="millrace": losses and all gradients are eager's, without a graph
break in the model itself, and every layer runs a plan."""

from __future__ import annotations

import contextlib
import copy
import operator as python_operator
import unittest
import unittest.mock

import torch

import millrace.torch
from millrace.torch import backend as backend_module
from millrace.torch.values import VIEWS
from support import TorchTest

try:
    import transformers
except ImportError:
    transformers = None

LAYERS = 3
WIDTH = dict(hidden_size=16, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=24)
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TOLERANCE = 2e-5  # of float32, relative to the largest element


@unittest.skipIf(transformers is None, "transformers is not installed")
class CompileModelsTest(TorchTest):
    def check(self, model: torch.nn.Module, layers: list[str], **inputs) -> None:
        graphs = []
        model.train()
        reference = copy.deepcopy(model)

        def backend(graph, tensors):
            return millrace.torch.backend.compile_graph(graph, tensors, options={"choose": "plan"},
                                                        listener=graphs.append)

        torch._dynamo.reset()
        with self.nothing_eager():
            run = torch.compile(model, backend=backend, fullgraph=True)
            losses = [one(**inputs).loss for one in (run, reference)]
        for loss in losses:
            loss.backward()
        self.assert_close(losses[0].detach(), losses[1].detach(), "the loss", TOLERANCE)
        scale = max(p.grad.abs().max().item() for p in reference.parameters() if p.grad is not None)
        for (name, ours), theirs in zip(model.named_parameters(), reference.parameters()):
            self.assertEqual(ours.grad is None, theirs.grad is None, name)
            if theirs.grad is not None:
                self.assertLessEqual((ours.grad - theirs.grad).abs().max().item(), TOLERANCE * scale, name)
        self.assertEqual([graph.whole for graph in graphs], [None] * len(graphs))
        regions = {region.name: region for graph in graphs for region in graph.regions}
        self.assertEqual([name for name in regions if name in layers], layers)
        self.assertTrue(all(region.choice.plan for region in regions.values()))
        self.assertEqual(len({regions[name].choice.plan for name in layers[1:]}), 1, "equal layers share a plan")

    @contextlib.contextmanager
    def nothing_eager(self):
        """Only views are called as they are: everything else is in a region or goes to Inductor."""
        stitched, stitch = [], backend_module.stitch
        with unittest.mock.patch.object(backend_module, "stitch",
                                        lambda *given: stitched.append(stitch(*given)) or stitched[-1]):
            yield
        self.assertEqual(len(stitched), 1)
        called = {node.target for node in stitched[0].graph.nodes if node.op == "call_function"}
        self.assertLessEqual(called, {*VIEWS, python_operator.getitem})

    def ids(self) -> dict[str, torch.Tensor]:
        ids = torch.randint(1, 32, (2, 8))
        return dict(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)

    def test_bert(self):
        config = transformers.BertConfig(vocab_size=32, max_position_embeddings=16, **WIDTH, **NO_DROPOUT)
        layers = [f"bert.encoder.layer.{k}" for k in range(LAYERS)]
        self.check(transformers.BertForMaskedLM(config), layers, **self.ids())

    def test_gpt2(self):
        config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=LAYERS, n_head=2, n_positions=16,
                                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        model = transformers.GPT2LMHeadModel(config)
        model.loss_type = "ForCausalLM"  # the default, but without a line in the log, which would break the graph
        self.check(model, [f"transformer.h.{k}" for k in range(LAYERS)], **self.ids())

    def test_llama(self):
        config = transformers.LlamaConfig(vocab_size=32, max_position_embeddings=16, num_key_value_heads=1, **WIDTH)
        self.check(transformers.LlamaForCausalLM(config), [f"model.layers.{k}" for k in range(LAYERS)], **self.ids())

    def test_vit(self):
        config = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **WIDTH, **NO_DROPOUT)
        model = transformers.ViTForImageClassification(config)
        listed = next(name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList))
        self.check(model, [f"{listed}.{k}" for k in range(LAYERS)], pixel_values=torch.randn(2, 3, 8, 8),
                   labels=torch.tensor([0, 2]))

    def test_t5(self):
        config = transformers.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=24, num_layers=LAYERS, num_heads=2,
                                       dropout_rate=0.0, decoder_start_token_id=0)
        self.check(transformers.T5ForConditionalGeneration(config), [f"encoder.block.{k}" for k in range(LAYERS)],
                   **self.ids())


if __name__ == "__main__":
    unittest.main()
