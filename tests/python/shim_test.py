"""millrace.numpy against direct formulas, with every warning an error."""

import math
import tempfile
import unittest
import warnings
from pathlib import Path

import numpy as np

import numpy_program  # noqa: F401  (puts python/ on the path)
import safetensors_io
from millrace import numpy as mr


class ShimTest(unittest.TestCase):
    def setUp(self) -> None:
        catcher = warnings.catch_warnings()
        catcher.__enter__()
        self.addCleanup(catcher.__exit__, None, None, None)
        warnings.simplefilter("error")
        self.x = np.random.default_rng(1).standard_normal((3, 4, 5))

    def test_philox_known_answers(self) -> None:
        # Random123's kat_vectors for philox4x32, 10 rounds.
        cases = [
            ("00000000 00000000 00000000 00000000", "00000000 00000000",
             "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
            ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
             "408f276d 41c83b0e a20bc7c6 6d5451fd"),
            ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
             "d16cfe09 94fdcceb 5001e420 24126ea1"),
        ]  # fmt: skip
        for counter, key, expected in cases:
            counter, key = ([int(word, 16) for word in text.split()] for text in (counter, key))
            words = mr.philox4x32(counter, key)
            self.assertEqual(" ".join(f"{int(word):08x}" for word in words), expected)

    def test_dropout_draws_half_word_e_mod_8_of_block_e_div_8(self) -> None:
        seed, step, p = 0x123456789ABCDEF0, 5, 0.3
        mr.seed(seed, step=step)
        for stream in range(3):
            dropped = mr.dropout(np.ones((3, 7)), p=p).ravel()
            for e in range(dropped.size):
                words = mr.philox4x32((e // 8, 0, stream, step), (0x9ABCDEF0, 0x12345678), rounds=7)
                draw = int(words[e % 8 // 2]) >> 16 * (e % 2) & 0xFFFF
                kept = draw >= math.floor(p * 2**16 + 0.5)
                self.assertEqual(dropped[e], 1 / (1 - p) if kept else 0.0)

    def test_dropout_statistics(self) -> None:
        n = 1_000_000
        for p in (0.0, 0.1, 0.5, 0.9):
            mr.seed(11)
            first, second = mr.dropout(np.ones(n), p=p), mr.dropout(np.ones(n), p=p)
            deviation = math.sqrt(p * (1 - p) / n)
            self.assertLessEqual(abs(np.mean(first == 0) - p), 5 * deviation)
            both = np.mean((first == 0) & (second == 0))  # streams are independent
            self.assertLessEqual(abs(both - p * p), 5 * deviation)
        for p in (1.0, -0.1, math.nan):
            self.assertRaises(ValueError, mr.dropout, np.ones(4), p)

    def test_seed_resets_dropout(self) -> None:
        draws = []
        for seed, step in ((7, 3), (7, 3), (7, 4), (8, 3), (7 + 2**32, 3)):
            mr.seed(seed, step=step)
            draws.append(mr.dropout(np.ones(256), p=0.5))
        np.testing.assert_array_equal(draws[0], draws[1])
        for other in draws[2:]:
            self.assertTrue(np.any(draws[0] != other))

    def test_types_are_types_of_numpy(self) -> None:
        for name in ("float16", "float32", "float64"):
            self.assertEqual(self.x.astype(getattr(mr, name)).dtype, np.dtype(name))
        self.assertEqual(self.x.astype(mr.bfloat16).dtype, np.float32)

    def test_softmax(self) -> None:
        for axis in (-1, 0, (0, 2)):
            expected = np.exp(self.x) / np.exp(self.x).sum(axis=axis, keepdims=True)
            np.testing.assert_allclose(mr.softmax(self.x, axis=axis), expected, rtol=1e-14)
        np.testing.assert_array_equal(mr.softmax(np.array([1e4, -np.inf, 1e4])), [0.5, 0, 0.5])

    def test_layernorm(self) -> None:
        for axis, n in ((-1, 5), (0, 3), (1, 4)):
            weight, bias = np.arange(1.0, n + 1), np.linspace(-1, 1, n)
            moved = np.moveaxis(self.x, axis, -1)
            scale = np.sqrt(moved.var(axis=-1, keepdims=True) + 1e-5)
            expected = (moved - moved.mean(axis=-1, keepdims=True)) / scale * weight + bias
            actual = np.moveaxis(mr.layernorm(self.x, weight, bias, axis=axis), axis, -1)
            np.testing.assert_allclose(actual, expected, rtol=1e-12, atol=1e-14)
        self.assertRaises(ValueError, mr.layernorm, self.x, np.ones(1), np.ones(1))
        plain = mr.layernorm(self.x, axis=(1, 2))
        np.testing.assert_allclose(plain, mr.layernorm(self.x, np.ones((4, 5)), np.zeros((4, 5)), axis=(1, 2)))

    def test_rmsnorm(self) -> None:
        weight = np.arange(1.0, 4)
        scale = np.sqrt((self.x**2).mean(axis=0) + 1e-6)
        expected = self.x / scale * weight[:, None, None]
        np.testing.assert_allclose(mr.rmsnorm(self.x, weight, axis=0), expected, rtol=1e-14)

    def test_normalizations_without_weights_and_along_several_axes(self) -> None:
        plain = (self.x - self.x.mean(axis=(0, 2), keepdims=True)) / np.sqrt(
            self.x.var(axis=(0, 2), keepdims=True) + 1e-5
        )
        weight, bias = np.arange(15.0).reshape(3, 5), np.linspace(-1, 1, 15).reshape(3, 5)
        np.testing.assert_allclose(mr.layernorm(self.x, axis=(0, 2)), plain, rtol=1e-12)
        np.testing.assert_allclose(
            mr.layernorm(self.x, weight, bias, axis=(2, 0)),
            plain * weight[:, None, :] + bias[:, None, :],
            rtol=1e-12,
            atol=1e-14,
        )
        np.testing.assert_allclose(
            mr.layernorm(self.x, None, bias, axis=(0, 2)), plain + bias[:, None, :], rtol=1e-12
        )
        np.testing.assert_allclose(
            mr.rmsnorm(self.x, axis=(1, 2)),
            self.x / np.sqrt((self.x**2).mean(axis=(1, 2), keepdims=True) + 1e-6),
            rtol=1e-12,
        )

    def test_batchnorm_and_groupnorm(self) -> None:
        weight, bias = np.arange(1.0, 5), np.linspace(-1, 1, 4)
        for c in range(4):
            channel = self.x[:, c]
            scale = math.sqrt(channel.var() + 1e-5)
            expected = (channel - channel.mean()) / scale * weight[c] + bias[c]
            np.testing.assert_allclose(
                mr.batchnorm(self.x, weight, bias)[:, c], expected, rtol=1e-12
            )
        halves = mr.groupnorm(self.x, 2, weight, bias)
        for b in range(3):
            for first in (0, 2):
                group = self.x[b, first : first + 2]
                normalized = (group - group.mean()) / math.sqrt(group.var() + 1e-5)
                expected = normalized * weight[first : first + 2, None] + bias[first : first + 2, None]
                np.testing.assert_allclose(halves[b, first : first + 2], expected, rtol=1e-12)
        np.testing.assert_allclose(
            mr.groupnorm(self.x, 1), mr.layernorm(self.x, axis=(1, 2)), rtol=1e-12
        )
        self.assertRaises(ValueError, mr.groupnorm, self.x, 3)

    def test_logsumexp(self) -> None:
        for axis in (-1, 0, (0, 2)):
            expected = np.log(np.exp(self.x).sum(axis=axis))
            np.testing.assert_allclose(mr.logsumexp(self.x, axis=axis), expected, rtol=1e-13)
            np.testing.assert_allclose(
                mr.log_softmax(self.x, axis=axis), np.log(mr.softmax(self.x, axis=axis)), rtol=1e-12
            )
        far = np.array([1e4, 1e4, -1e4])
        np.testing.assert_allclose(mr.logsumexp(far), 1e4 + math.log(2), rtol=1e-15)
        self.assertEqual(mr.logsumexp(self.x, keepdims=True).shape, (3, 4, 1))

    def test_sigmoid_softplus_erf(self) -> None:
        x = np.linspace(-6, 6, 101)
        np.testing.assert_allclose(mr.sigmoid(x), 1 / (1 + np.exp(-x)), rtol=1e-14)
        np.testing.assert_allclose(mr.softplus(x), np.log(1 + np.exp(x)), rtol=1e-12)
        np.testing.assert_array_equal(mr.erf(x), [math.erf(v) for v in x])
        far = np.array([-1e4, 1e4])
        np.testing.assert_array_equal(mr.sigmoid(far), [0, 1])
        np.testing.assert_array_equal(mr.softplus(far), [0, 1e4])

    def test_activations(self) -> None:
        x = np.linspace(-6, 6, 101)
        normal = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
        inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
        np.testing.assert_array_equal(mr.relu(x), np.where(x > 0, x, 0))
        np.testing.assert_allclose(mr.gelu(x), x * normal, atol=1e-15)
        np.testing.assert_allclose(mr.gelu_tanh(x), x * (1 + np.tanh(inner)) / 2, atol=1e-15)
        np.testing.assert_allclose(mr.silu(x), x / (1 + np.exp(-x)), rtol=1e-14)
        far = np.array([-1e4, 1e4])
        for function in (mr.relu, mr.gelu, mr.gelu_tanh, mr.silu):
            np.testing.assert_array_equal(function(far), [0, 1e4])

    def test_cross_entropy(self) -> None:
        labels = np.arange(12).reshape(3, 4) % 5
        logarithms = np.log(mr.softmax(self.x))
        expected = -np.mean([logarithms[i, j, labels[i, j]] for i in range(3) for j in range(4)])
        np.testing.assert_allclose(mr.cross_entropy(self.x, labels), expected, rtol=1e-14)

    def test_norms_of_channels(self) -> None:
        weight, bias = np.arange(1.0, 5), np.linspace(-1, 1, 4)
        for c in range(4):
            channel = self.x[:, c]
            expected = (channel - channel.mean()) / np.sqrt(channel.var() + 1e-5) * weight[c] + bias[c]
            np.testing.assert_allclose(mr.batchnorm(self.x, weight, bias)[:, c], expected, rtol=1e-12, atol=1e-14)
            group = self.x[:, c // 2 * 2 : c // 2 * 2 + 2]
            scale = np.sqrt(group.var(axis=(1, 2)) + 1e-3)
            expected = (self.x[:, c] - group.mean(axis=(1, 2))[:, None]) / scale[:, None] * weight[c] + bias[c]
            found = mr.groupnorm(self.x, 2, weight, bias, eps=1e-3)[:, c]
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)

    def test_convolutions(self) -> None:
        x, weight, bias = self.x, np.arange(24.0).reshape(2, 4, 3), np.array([0.5, -2.0])
        found = mr.conv1d(x, weight, bias, stride=2, padding=1)
        self.assertEqual(found.shape, (3, 2, 3))
        for (b, o, t), value in np.ndenumerate(found):
            expected = bias[o]
            for (c, k), factor in np.ndenumerate(weight[o]):
                expected += x[b, c, 2 * t + k - 1] * factor if 0 <= 2 * t + k - 1 < 5 else 0
            self.assertAlmostEqual(value, expected, places=11)
        # Two axes: a plane of windows with one row, and with one column.
        flat = mr.conv2d(x[:, :, None], weight[:, :, None], bias)
        np.testing.assert_allclose(flat[:, :, 0], mr.conv1d(x, weight, bias), rtol=1e-12)
        tall = mr.conv2d(x[..., None], weight[..., None], bias)
        np.testing.assert_allclose(tall[..., 0], mr.conv1d(x, weight, bias), rtol=1e-12)

    def test_depthwise_is_a_convolution_with_a_diagonal_weight(self) -> None:
        weight, bias = np.arange(12.0).reshape(4, 3), np.linspace(-1, 1, 4)
        diagonal = np.eye(4)[:, :, None] * weight
        expected = mr.conv1d(self.x, diagonal, bias, stride=2, padding=2)
        np.testing.assert_allclose(mr.depthwise(self.x, weight, bias, stride=2, padding=2), expected, rtol=1e-12)
        image, planes = self.x[None], np.arange(18.0).reshape(3, 3, 2)
        expected = mr.conv2d(image, np.eye(3)[:, :, None, None] * planes, padding=1)
        np.testing.assert_allclose(mr.depthwise(image, planes, padding=1), expected, rtol=1e-12)

    def test_pooling(self) -> None:
        x = np.arange(1.0, 21).reshape(1, 1, 4, 5)
        np.testing.assert_array_equal(mr.max_pool2d(x, 2)[0, 0], [[7, 9], [17, 19]])
        np.testing.assert_array_equal(mr.avg_pool2d(x, 2)[0, 0], [[4, 6], [14, 16]])
        np.testing.assert_array_equal(mr.max_pool2d(-x, 3, stride=4, padding=1)[0, 0], [[-1, -4]])
        np.testing.assert_allclose(mr.avg_pool2d(x, 3, stride=4, padding=1)[0, 0], [[16 / 9, 28 / 9]])

    def test_causal_mask(self) -> None:
        masked = mr.causal_mask(self.x)
        for query in range(4):
            for key in range(5):
                expected = self.x[:, query, key] if key <= query else np.full(3, -np.inf)
                np.testing.assert_array_equal(masked[:, query, key], expected)

    def test_functions_keep_the_dtype(self) -> None:
        for dtype in (np.float16, np.float32, np.float64):
            x, w = self.x.astype(dtype), np.ones(5, dtype)
            functions = (mr.softmax, mr.dropout, mr.relu, mr.gelu, mr.gelu_tanh, mr.silu, mr.erf)
            functions += (mr.sigmoid, mr.softplus, mr.log_softmax, mr.logsumexp, mr.batchnorm, mr.layernorm)
            functions += (mr.causal_mask,)
            results = [function(x) for function in functions]
            results += [mr.layernorm(x, w, w), mr.rmsnorm(x, w), mr.groupnorm(x, 2)]
            results += [mr.cross_entropy(x, np.zeros((3, 4), int)), mr.conv1d(x, x[:, :, :2], padding=1)]
            results += [mr.conv2d(x[None], x[None]), mr.depthwise(x, x[0]), mr.depthwise(x[None], x)]
            results += [mr.max_pool2d(x[None], 2, padding=1), mr.avg_pool2d(x[None], 2)]
            self.assertEqual({result.dtype for result in results}, {np.dtype(dtype)})

    def test_annotations(self) -> None:
        for name in ("float16", "bfloat16", "float32", "float64"):
            self.assertIs(getattr(mr.dace, name), getattr(mr, name))
            self.assertIsNone(getattr(mr, name).shape)
            self.assertEqual(getattr(mr, name)[2, 3].shape, (2, 3))
            self.assertEqual(getattr(mr, name)[2].shape, (2,))
            self.assertTrue(getattr(mr, name)[2].has_gradient)
            self.assertEqual(getattr(mr.fixed, name)[2, 3].shape, (2, 3))
            self.assertFalse(getattr(mr.fixed, name)[2].has_gradient)
        for name in ("int32", "int64", "bool_"):
            self.assertEqual(getattr(mr, name)[2, 3].shape, (2, 3))
            self.assertFalse(getattr(mr, name)[2].has_gradient)
        self.assertIs(mr.dace.program(len), len)

    def test_safetensors_round_trip(self) -> None:
        tensors = {"a": self.x, "b": np.asarray(0.5), "c": self.x.astype(np.float32).T,
                   "d": np.arange(6).reshape(2, 3), "e": np.arange(3, dtype=np.int32), "f": self.x > 0}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "t.safetensors")
            safetensors_io.write(path, tensors)
            for name, tensor in safetensors_io.read(path).items():
                self.assertEqual(tensor.dtype, tensors[name].dtype)
                np.testing.assert_array_equal(tensor, tensors[name])


if __name__ == "__main__":
    unittest.main()
