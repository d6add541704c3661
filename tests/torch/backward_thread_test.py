"""Tests how before_call changes PyTorch's setting for the thread of backward, without a GPU."""

from __future__ import annotations

import threading
import unittest

import torch

import millrace.torch
from millrace.torch import backward_thread

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)


def has_threads() -> bool:
    return torch._C._is_multithreading_enabled()


class BackwardThreadTest(unittest.TestCase):
    def in_a_thread(self, work) -> None:
        """Settings are per thread."""
        raised = []

        def run():
            try:
                work()
            except BaseException as error:  # including a failed assertion
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        if raised:
            raise raised[0]

    def tearDown(self):
        millrace.torch.set_backward_thread("caller")
        self.assertTrue(has_threads(), "another thread's setting was changed")

    def test_of_one_gpu(self):
        def work():
            self.assertTrue(has_threads())
            backward_thread.before_call(FIRST)
            self.assertFalse(has_threads())
            backward_thread.before_call(FIRST)
            self.assertFalse(has_threads())

        self.in_a_thread(work)

    def test_of_the_cpu(self):
        def work():
            backward_thread.before_call(torch.device("cpu"))
            self.assertTrue(has_threads())

        self.in_a_thread(work)

    def test_of_two_gpus(self):
        def work():
            for device in (FIRST, SECOND, FIRST):
                backward_thread.before_call(device)
            self.assertTrue(has_threads())

        self.in_a_thread(work)

    def test_what_the_user_sets_stays(self):
        def afterwards():
            backward_thread.before_call(FIRST)
            with torch.autograd.set_multithreading_enabled(True):
                backward_thread.before_call(FIRST)
                self.assertTrue(has_threads())

        def before():
            torch.autograd.set_multithreading_enabled(False)
            backward_thread.before_call(FIRST)
            backward_thread.before_call(SECOND)
            self.assertFalse(has_threads())

        self.in_a_thread(afterwards)
        self.in_a_thread(before)

    def test_as_pytorch_does_it(self):
        def work():
            backward_thread.before_call(FIRST)
            millrace.torch.set_backward_thread("pytorch")
            self.assertTrue(has_threads())
            backward_thread.before_call(FIRST)
            self.assertTrue(has_threads())
            millrace.torch.set_backward_thread("caller")
            backward_thread.before_call(FIRST)
            self.assertFalse(has_threads())

        self.in_a_thread(work)
        with self.assertRaisesRegex(ValueError, "'caller' or 'pytorch'"):
            millrace.torch.set_backward_thread("mine")

    def test_calls_on_the_cpu_change_nothing(self):
        layer = millrace.torch.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        layer(torch.randn(2, 4, 16, requires_grad=True)).sum().backward()
        self.assertTrue(has_threads())


if __name__ == "__main__":
    unittest.main()
