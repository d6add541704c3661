"""Reads and writes safetensors files of float64, float32, int64, int32 and bool arrays.

Format: the header's length (u64, little-endian), the header (JSON, padded with spaces to a
multiple of 8), then the data; each tensor has dtype, shape and [begin, end) within the data.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path

import numpy as np

DTYPES = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "BOOL": np.dtype("?"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def write(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """Writes the tensors, the widest types first: each must begin at a multiple of its element's size."""
    tensors = dict(sorted(tensors.items(), key=lambda item: -item[1].itemsize))
    header, offset = {}, 0
    for name, tensor in tensors.items():
        span = [offset, offset + tensor.nbytes]
        header[name] = {
            "dtype": NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": span,
        }
        offset = span[1]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    data = b"".join(tensor.tobytes() for tensor in tensors.values())
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read(path: Path) -> dict[str, np.ndarray]:
    """All tensors of the file by name."""
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        flat = np.frombuffer(data[begin:end], dtype=DTYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"])
    return tensors
