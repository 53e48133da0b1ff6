"""Write weights as safetensors, piece by piece: the library either writes to a path, unhashed, or makes one copy."""

import json
from collections.abc import Mapping

from torch import Tensor

from trainer.engine.hashed_file import HashedFile


def write_weights(file: HashedFile, weights: Mapping[str, Tensor]) -> None:
    """Write contiguous fp32 tensors on the CPU, by name: the same bytes as of `safetensors.torch.save`.

    The format: the header's length in 8 bytes, the header in JSON, blank-padded to a multiple of 8, the numbers.
    """
    ordered = sorted(weights.items())
    header, end = {}, 0
    for name, tensor in ordered:
        start, end = end, end + 4 * tensor.numel()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(8, "little") + text)
    for _, tensor in ordered:
        file.write(tensor.numpy().astype("<f4", copy=False).reshape(-1).view("u1").data)
