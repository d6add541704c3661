"""200 steps of training with dropout: tiny models of Hugging Face reach the same loss by plans as eagerly, over five
seeds, within the seeds' spread."""

from __future__ import annotations

import statistics
import unittest

import torch

import millrace.torch
from support import TorchTest

try:
    import transformers
except ImportError:
    transformers = None

STEPS, SEEDS, LAST = 200, 5, 20  # the last steps' mean is the loss reached
BATCH, LENGTH, CLASSES = 4, 8, 16


def batch(draw: torch.Generator) -> torch.Tensor:
    """Sequences that count upwards, from anywhere."""
    return (torch.randint(0, CLASSES, (BATCH, 1), generator=draw) + torch.arange(LENGTH)) % CLASSES


def backend(graph, inputs):
    return millrace.torch.backend.compile_graph(graph, inputs, options={"choose": "plan"})


@unittest.skipIf(transformers is None, "transformers is not installed")
class TrainingLossTest(TorchTest):
    def check(self, make) -> None:
        """`make`: a new model, and its keyword arguments for a batch."""
        reached = {True: [], False: []}
        torch._dynamo.reset()
        for seed in range(SEEDS):
            for by_plans in (True, False):
                torch.manual_seed(seed)
                model, arguments = make()
                reached[by_plans].append(self.trained(model.train(), arguments, seed, by_plans))
        spread = statistics.stdev(reached[False]) + statistics.stdev(reached[True])
        difference = statistics.mean(reached[True]) - statistics.mean(reached[False])
        self.assertLess(abs(difference), 2 * spread / SEEDS**0.5, reached)
        self.assertLess(max(reached[True]), 0.8 * torch.tensor(float(CLASSES)).log().item(), "it learns")

    def trained(self, model, arguments, seed: int, by_plans: bool) -> float:
        called = torch.compile(model, backend=backend, fullgraph=True) if by_plans else model
        step = millrace.torch.TrainingStep(called, torch.optim.Adam(model.parameters(), lr=3e-3))
        draw = torch.Generator().manual_seed(seed)
        losses = [step(**arguments(batch(draw))) for _ in range(STEPS)]
        return torch.stack(losses[-LAST:]).mean().item()

    def test_bert(self):
        def masked(ids):
            hidden = torch.zeros(ids.shape, dtype=torch.bool)
            hidden[:, ::3] = True
            return dict(input_ids=ids.masked_fill(hidden, CLASSES), labels=ids.masked_fill(~hidden, -100))

        config = transformers.BertConfig(vocab_size=CLASSES + 1, max_position_embeddings=LENGTH, hidden_size=16,
                                         num_hidden_layers=2, num_attention_heads=2, intermediate_size=24)
        self.check(lambda: (transformers.BertForMaskedLM(config), masked))

    def test_gpt2(self):
        config = transformers.GPT2Config(vocab_size=CLASSES, n_embd=16, n_layer=2, n_head=2, n_positions=LENGTH,
                                         use_cache=False, bos_token_id=0, eos_token_id=0)

        def make():
            model = transformers.GPT2LMHeadModel(config)
            model.loss_type = "ForCausalLM"  # the default, but without a line in the log, which would break the graph
            return model, lambda ids: dict(input_ids=ids, labels=ids)

        self.check(make)


if __name__ == "__main__":
    unittest.main()
