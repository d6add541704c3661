"""The processes of torchrun, if there are several."""

from __future__ import annotations

import argparse
import contextlib
import os

import torch
import torch.distributed as distributed


def rank() -> int:
    return distributed.get_rank() if distributed.is_initialized() else 0


def count() -> int:
    return distributed.get_world_size() if distributed.is_initialized() else 1


def wait_for_all() -> None:
    if distributed.is_initialized():
        distributed.barrier()


@contextlib.contextmanager
def started(options: argparse.Namespace):
    """Joins the others if torchrun started this process, whose GPU becomes options.device."""
    if "WORLD_SIZE" in os.environ and not distributed.is_initialized():
        distributed.init_process_group("nccl" if options.device == "cuda" else "gloo")
        if options.device == "cuda":
            options.device = f"cuda:{os.environ['LOCAL_RANK']}"
            torch.cuda.set_device(options.device)
    try:
        yield
    finally:
        if distributed.is_initialized():
            distributed.destroy_process_group()
