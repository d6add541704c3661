"""Compares the models in models/ with PyTorch's own modules in float64: under NumPy, and run by Millrace's reference
with all gradients.

The second part needs the `millrace` command: see tests/python/reference_run.py.
"""

from __future__ import annotations

import importlib.util
import sys
import unittest
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/python"))

import millrace.numpy  # noqa: E402  (the path above comes first)
import model_modules  # noqa: E402
from model_arguments import NOT_YET, draw_arguments  # noqa: E402
from numpy_program import Program, load_program  # noqa: E402
from reference_run import SEED, STEP, draw_result_gradients, run_millrace  # noqa: E402

SIZE_SETS = ("tiny", "odd")
TOLERANCE = 1e-10  # relative to the largest element
# Written before the language had slices, in the paper's layout or without parts of the model.
WITHOUT_MODULE = {"bert_encoder", "encoder_decoder_attention", "gpt2_block_unpacked", "llama_block_without_rope", "mha"}


class InDouble(TorchFunctionMode):
    """PyTorch without conversions to float32, and with Millrace's dropout.

    Hugging Face's modules convert to float32 for some operators, which is less precise here. Dropouts have the masks of
    the program if both have the same dropouts in the same order.
    """

    def __torch_function__(self, function, types, arguments=(), options=None):
        options = dict(options or {})
        if function in (functional.dropout, torch.dropout):
            return self.dropout(*arguments, **options)
        x = arguments[0] if arguments else None
        if isinstance(x, torch.Tensor) and x.dtype == torch.float64:
            if function is torch.Tensor.float:
                return x
            arguments = tuple(torch.float64 if a is torch.float32 else a for a in arguments)
            if options.get("dtype") is torch.float32:
                options["dtype"] = torch.float64
        return function(*arguments, **options)

    @staticmethod
    def dropout(x, p=0.5, training=True, inplace=False):
        if not training or p == 0:
            return x
        return x * torch.from_numpy(millrace.numpy.dropout(np.ones(x.shape), p))


def tensors(program: Program, arguments: dict[str, np.ndarray]) -> SimpleNamespace:
    """The arguments as PyTorch's tensors; those with gradients are leaves of the tape."""
    made = {name: torch.from_numpy(np.array(values)) for name, values in arguments.items()}
    for name in program.differentiated():
        made[name].requires_grad_()
    return SimpleNamespace(**made)


def draw(model: str, program: Program) -> dict[str, np.ndarray]:
    arguments = draw_arguments(model, program)
    if model.startswith("t5"):
        buckets = model_modules.t5_buckets(SimpleNamespace(**program.sizes), decoder="decoder" in model)
        arguments["buckets"] = buckets.numpy()
    return arguments


def run_torch(model: str, program: Program, a: SimpleNamespace) -> dict[str, torch.Tensor]:
    """The results of PyTorch's module by name."""
    millrace.numpy.seed(SEED, step=STEP)
    with InDouble():
        results = model_modules.MODULES[model](SimpleNamespace(**program.sizes), a)
    results = results if isinstance(results, tuple) else (results,)
    return dict(zip(program.result_names, results, strict=True))


@unittest.skipUnless(importlib.util.find_spec("transformers"), "transformers is not installed")
class ModelsTest(unittest.TestCase):
    def setUp(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())
        torch.set_default_dtype(torch.float64)

    def for_each_case(self, check) -> None:
        for model in model_modules.MODULES:
            for size_set in SIZE_SETS:
                with self.subTest(model=model, size=size_set):
                    path = ROOT / "models" / f"{model}.py"
                    program = load_program(path, size_set)
                    check(path, size_set, program, draw(model, program))

    def assert_close(self, found: np.ndarray, expected: torch.Tensor, scale: float, what: str) -> None:
        self.assertEqual(found.shape, tuple(expected.shape), what)
        error = np.max(np.abs(found - expected.detach().numpy()))
        self.assertTrue(error <= TOLERANCE * scale, f"{what}: error {error}, scale {scale}")

    def test_every_model_has_a_module(self):
        models = {path.stem for path in (ROOT / "models").glob("*.py")}
        self.assertEqual(models, set(model_modules.MODULES) | WITHOUT_MODULE)
        self.assertLessEqual(set(NOT_YET), models)

    def test_numpy_equals_pytorch(self):
        self.for_each_case(self.check_numpy)

    def test_reference_equals_pytorch(self):
        self.for_each_case(self.check_reference)

    def check_numpy(self, path, size_set, program, arguments) -> None:
        expected = run_torch(path.stem, program, tensors(program, arguments))
        for name, found in program.run(arguments, SEED, STEP).items():
            self.assert_close(found, expected[name], expected[name].abs().max().item(), name)

    def check_reference(self, path, size_set, program, arguments) -> None:
        if path.stem in NOT_YET:
            self.skipTest(f"{path.stem} has {NOT_YET[path.stem]}, which Millrace does not read yet")
        a = tensors(program, arguments)
        expected = run_torch(path.stem, program, a)
        factors = draw_result_gradients({name: result.detach().numpy() for name, result in expected.items()})
        torch.autograd.backward(list(expected.values()), [torch.from_numpy(factors[f"d_{n}"]) for n in expected])
        found = run_millrace(path, size_set, {**arguments, **factors})
        for name, result in expected.items():
            self.assert_close(found[name], result, result.abs().max().item(), name)
        gradients = {name: getattr(a, name).grad for name in program.differentiated()}
        # A gradient that is zero in exact arithmetic is rounding error of terms as large as other gradients.
        floor = max(gradient.abs().max().item() for gradient in gradients.values()) * 1e-3
        for name, gradient in gradients.items():
            self.assert_close(found[f"d_{name}"], gradient, max(gradient.abs().max().item(), floor), f"d_{name}")


if __name__ == "__main__":
    unittest.main()
