"""Tests of accelerate for layers of any class: what they compute is eager's, equal layers share a plan, and they remain
what they were for copies, files, hooks and checkpoints."""

from __future__ import annotations

import copy
import io
import pickle
import unittest
import unittest.mock
import warnings

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import millrace.torch
from millrace.torch import imported_layer
from support import TorchTest, accelerated

try:
    import transformers
except ImportError:
    transformers = None

LAYERS = 2
WIDTH = dict(hidden_size=16, num_hidden_layers=LAYERS, num_attention_heads=2, intermediate_size=24)
NO_DROPOUT = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
TOLERANCE = 2e-5  # of float32, relative to the largest element


class Block(nn.Module):
    def __init__(self, p: float = 0.0):
        super().__init__()
        self.up, self.down, self.p = nn.Linear(8, 12), nn.Linear(12, 8), p

    def forward(self, x):
        return x + functional.dropout(self.down(functional.gelu(self.up(x))), self.p, self.training)


class Model(nn.Module):
    def __init__(self, kind=Block, **options):
        super().__init__()
        self.blocks, self.head = nn.ModuleList(kind(**options) for _ in range(3)), nn.Linear(8, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class ImportedTest(TorchTest):
    """Always chooses plans, because a comparison would take as long as Inductor's compiler."""

    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        imported_layer._compiled.cache_clear()
        self.graphs = []

        def compile_graph(graph, inputs, layer):
            return millrace.torch.backend.compile_graph(graph, inputs, options={"choose": "plan"}, layer=layer,
                                                        listener=self.graphs.append)

        patch = unittest.mock.patch.object(imported_layer, "compile_graph", compile_graph)
        patch.start()
        self.addCleanup(patch.stop)
        self.x = torch.randn(2, 3, 8)

    def plans(self) -> list[str]:
        """The plans of the regions that were called; each must have one."""
        self.assertEqual([graph.whole for graph in self.graphs], [None] * len(self.graphs))
        choices = [region.choice for graph in self.graphs for region in graph.regions]
        self.assertTrue(all(choice is not None and choice.plan for choice in choices), choices)
        return [choice.plan for choice in choices]


class ImportedLayerTest(ImportedTest):
    def test_a_step_is_eagers_and_equal_layers_share_what_is_compiled(self):
        theirs = Model()
        ours, report = accelerated(theirs)
        self.assertEqual(list(report.replaced), ["blocks.0", "blocks.1", "blocks.2"])
        self.assertIn("Block, imported", str(report))
        self.assertEqual(report.others, {"Linear": 1})
        self.assert_same_step(ours, theirs, [self.x])
        self.assertEqual(len(self.graphs), 1)
        self.assertEqual(millrace.torch.accelerate(ours), report, "the same when asked again")

    def test_copies_and_files_are_accelerated_too(self):
        ours, _ = accelerated(Model())
        file = io.BytesIO()
        torch.save(ours, file)
        file.seek(0)
        for made in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)):
            self.assertTrue(all(map(imported_layer.is_imported, made.blocks)))
            self.assertEqual(list(made.state_dict()), list(Model().state_dict()))
            self.assert_close(made(self.x).detach(), ours(self.x).detach())
        self.assertIs(imported_layer.own_class(ours.blocks[0]), Block)
        self.assertIsInstance(ours.blocks[0], Block)

    def test_hooks_checkpoints_and_modes(self):
        ours, _ = accelerated(Model(p=0.5))
        seen = []
        ours.blocks[1].register_forward_hook(lambda module, given, made: seen.append(made.shape))
        ours.blocks[1].up.register_forward_hook(lambda module, given, made: made * 2)
        theirs = copy.deepcopy(ours).eval()
        for block in theirs.blocks:
            block.__class__ = Block
        ours.eval()
        self.assert_close(ours(self.x).detach(), theirs(self.x).detach())
        self.assertEqual(len(seen), 2, "one for each model")
        ours.train()
        gradients = []
        for call in (ours.blocks[0], lambda x: checkpoint(ours.blocks[0], x, use_reentrant=False)):
            torch.manual_seed(3)
            gradients.append(torch.autograd.grad(call(self.x).sum(), list(ours.blocks[0].parameters())))
        self.assertTrue(all(map(torch.equal, *gradients)))
        self.plans()

    def test_autocast_and_no_grad(self):
        theirs = Model()
        ours, _ = accelerated(theirs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self.assert_same_step(ours, theirs, [self.x], tolerance=6e-2)
        with torch.no_grad():
            self.assert_close(ours(self.x), theirs(self.x))
        texts = [region.program.text for graph in self.graphs for region in graph.regions]
        self.assertEqual(["astype(bfloat16)" in text for text in texts], [True, False])
        self.assertEqual([": float32" in text for text in texts], [True, False], "nothing is kept without gradients")
        self.plans()

    def test_stages_are_not_layers(self):
        stages = nn.Sequential(nn.Sequential(Block(), Block()), nn.Sequential(Block(), Block()), nn.Linear(8, 2))
        self.assertEqual(list(millrace.torch.accelerate(stages).replaced), ["0.0", "0.1", "1.0", "1.1"])

    def test_what_cannot_be_traced_falls_back_with_the_reason(self):
        class Waiting(Block):
            def forward(self, x):
                return super().forward(x) if x.sum().item() > -1e9 else x

        warnings.filterwarnings("ignore", message="millrace:.*falls back")
        theirs = Model(Waiting)
        ours, _ = accelerated(theirs)
        self.assert_same_step(ours, theirs, [self.x])
        self.assertIn("cannot be compiled", millrace.torch.plan_of(ours.blocks[0]).why_not)

    def test_an_error_of_a_call_is_the_callers_and_is_forgotten(self):
        ours, _ = accelerated(Model())
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied"):
            ours.blocks[0](torch.randn(2, 7))
        ours(self.x)
        self.assertIsNone(millrace.torch.plan_of(ours.blocks[0]))
        self.plans()

    def test_inside_of_a_compiled_model(self):
        theirs = Model()
        ours, _ = accelerated(theirs)
        run = torch.compile(ours, backend="millrace", fullgraph=True, options={"choose": "plan"})
        self.assert_close(run(self.x).detach(), theirs(self.x).detach())

    def test_adapters(self):
        """Low-rank adapters on frozen weights, as peft makes them: only they get gradients."""
        class Adapted(nn.Module):
            def __init__(self, base: nn.Linear):
                super().__init__()
                self.base = base.requires_grad_(False)
                self.a, self.b = nn.Linear(base.in_features, 2, bias=False), nn.Linear(2, base.out_features, bias=False)

            def forward(self, x):
                return self.base(x) + 0.5 * self.b(self.a(x))

        class AdaptedBlock(Block):
            def __init__(self):
                super().__init__()
                self.requires_grad_(False)
                self.up = Adapted(self.up)

        theirs = Model(AdaptedBlock)
        ours, _ = accelerated(theirs)
        self.assert_same_step(ours, theirs, [self.x])
        (text,) = {region.program.text for graph in self.graphs for region in graph.regions}
        self.assertIn("up_base_weight: fixed.float32", text)
        self.assertIn("up_a_weight: float32", text)
        encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        encoder.linear1 = Adapted(encoder.linear1)
        ours, report = accelerated(encoder)
        self.assertEqual(report.replaced, {"": "torch.nn.modules.transformer.TransformerEncoderLayer, imported"})
        self.assert_same_step(ours, encoder, [self.x], tolerance=1e-4)
        self.plans()


@unittest.skipIf(transformers is None, "transformers is not installed")
class ImportedModelsTest(ImportedTest):
    def check(self, model: nn.Module, layers: list[str], **inputs) -> None:
        ours, report = accelerated(model.train())
        self.assertEqual(list(report.replaced), layers)
        losses = [one(**inputs).loss for one in (ours, model)]
        for loss in losses:
            loss.backward()
        self.assert_close(losses[0].detach(), losses[1].detach(), "the loss", TOLERANCE)
        scale = max(p.grad.abs().max().item() for p in model.parameters() if p.grad is not None)
        for (name, one), other in zip(ours.named_parameters(), model.parameters()):
            self.assertEqual(one.grad is None, other.grad is None, name)
            if other.grad is not None:
                self.assertLessEqual((one.grad - other.grad).abs().max().item(), TOLERANCE * scale, name)
        self.assertTrue(self.plans())
        for module in ours.modules():
            self.assertIsNone(millrace.torch.plan_of(module), "nothing fell back")

    def ids(self) -> dict[str, torch.Tensor]:
        ids = torch.randint(3, 32, (2, 8))
        return dict(input_ids=ids, labels=ids)

    def test_roberta(self):
        config = transformers.RobertaConfig(vocab_size=32, max_position_embeddings=16, **WIDTH, **NO_DROPOUT)
        self.check(transformers.RobertaForMaskedLM(config), ["roberta.encoder.layer.0", "roberta.encoder.layer.1"],
                   **self.ids())

    def test_distilbert(self):
        config = transformers.DistilBertConfig(vocab_size=32, dim=16, n_layers=LAYERS, n_heads=2, hidden_dim=24,
                                               max_position_embeddings=16, dropout=0.0, attention_dropout=0.0)
        self.check(transformers.DistilBertForMaskedLM(config),
                   ["distilbert.transformer.layer.0", "distilbert.transformer.layer.1"], **self.ids())

    def test_electra(self):
        config = transformers.ElectraConfig(vocab_size=32, embedding_size=16, max_position_embeddings=16, **WIDTH,
                                            **NO_DROPOUT)
        self.check(transformers.ElectraForMaskedLM(config), ["electra.encoder.layer.0", "electra.encoder.layer.1"],
                   **self.ids())

    def test_gpt2(self):
        config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=LAYERS, n_head=2, n_positions=16,
                                         resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.check(transformers.GPT2LMHeadModel(config), ["transformer.h.0", "transformer.h.1"], **self.ids())

    def test_llama(self):
        config = transformers.LlamaConfig(vocab_size=32, max_position_embeddings=16, num_key_value_heads=1, **WIDTH)
        self.check(transformers.LlamaForCausalLM(config), ["model.layers.0", "model.layers.1"], **self.ids())

    def test_t5(self):
        config = transformers.T5Config(vocab_size=32, d_model=16, d_kv=8, d_ff=24, num_layers=LAYERS, num_heads=2,
                                       dropout_rate=0.0, decoder_start_token_id=0)
        self.check(transformers.T5ForConditionalGeneration(config),
                   [f"{one}.block.{k}" for one in ("encoder", "decoder") for k in range(LAYERS)], **self.ids())

    def test_bart(self):
        config = transformers.BartConfig(
            vocab_size=32, d_model=16, encoder_layers=LAYERS, decoder_layers=LAYERS, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, dropout=0.0, max_position_embeddings=16,
            pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2)
        self.check(transformers.BartForConditionalGeneration(config),
                   [f"model.{one}.layers.{k}" for one in ("encoder", "decoder") for k in range(LAYERS)], **self.ids())

    def test_vit(self):
        config = transformers.ViTConfig(image_size=8, patch_size=4, num_labels=3, **WIDTH, **NO_DROPOUT)
        self.check(transformers.ViTForImageClassification(config), ["vit.layers.0", "vit.layers.1"],
                   pixel_values=torch.randn(2, 3, 8, 8), labels=torch.tensor([0, 2]))


if __name__ == "__main__":
    unittest.main()
