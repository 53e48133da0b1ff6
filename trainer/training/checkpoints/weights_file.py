"""Write weights as safetensors, piece by piece: the library would write to a path without hashing, or copy them all."""

import json
from collections.abc import Iterable, Mapping
from math import prod

from torch import Tensor

from deepsiam.trainer.training.engine.hashed_file import HashedFile


def write_weights(file: HashedFile, shapes: Mapping[str, tuple[int, ...]], weights: Iterable[Tensor]) -> None:
    """Write tensors in fp32, by name: the same bytes as `safetensors.torch.save`.

    `shapes` and `weights` are in the order of the names. Each tensor is requested after the previous ones are written.
    The format: the header's length in 8 bytes, the header in JSON, blank-padded to a multiple of 8, the numbers.
    """
    header, end = {}, 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * prod(shape)
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for (name, shape), tensor in zip(shapes.items(), weights, strict=True):
        if tensor.shape != shape:
            raise ValueError(f"{name} has the shape {tuple(tensor.shape)}, not {shape}")
        file.write(tensor.float().cpu().numpy().astype("<f4", copy=False).reshape(-1).view("u1").data)
