"""The peers of bench/blocks.py, on the CPU: all layers of a block compute the same."""

import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from peers import agreement, program, torch_gpt2, torch_llama  # noqa: E402  (the path above comes first)
from peers.captured_peer import CapturedPeer  # noqa: E402
from peers.torch_peer import Cpu  # noqa: E402


class CapturedPeerTest(unittest.TestCase):
    def test_layers_of_a_block_agree(self):
        for name, model in (("llama", torch_llama), ("gpt2", torch_gpt2)):
            sizes = program.sizes_of((ROOT / f"models/{name}_block.py").read_text(), ["tiny"])
            tensors = model.draw(sizes)

            def results(layer):
                return CapturedPeer(None, model, layer, sizes, tensors, dtype="float64", dropout=0.0, compiled=False,
                                    device=Cpu()).results()

            expected = results(model.LAYERS["plain"])
            self.assertIn(f"d_{model.INPUT}", expected)
            for layer in model.LAYERS.values():
                distances = agreement.relative_distances(expected, results(layer), model.SCALE_OF)
                self.assertLess(agreement.worst_distance(distances)[0], 1e-12, name)


if __name__ == "__main__":
    unittest.main()
