"""A Poly-encoder as two Hugging Face encoders, its codes, and a README.md that scores with them.

The folder has the encoder of contexts (our queries); `candidate/` has the encoder of candidates (our documents), if it
is a different one, and the tokenizer that truncates them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepsiam.models.matching.poly_encoder import PolyEncoder, PolyEncoderConfig
from deepsiam.trainer.interop.files import refuse, save_tensors, write_encoder, write_tokenizer
from deepsiam.trainer.interop.model import LoadedModel

KIND = "two encoders"  # of folder, which no library loads as one
BECOMES = "two encoders: no library loads a Poly-encoder, and README.md has the code that scores with them"
CANDIDATE, CODES = "candidate", "codes.safetensors"
CARD = """---
library_name: transformers
tags: [feature-extraction, poly-encoder, deepsiam]
---
# {name}

A Poly-encoder trained with deepsiam: {m} vectors of {width} dimensions for a context of up to {query_tokens} tokens,
one for a candidate of up to {tokens}. From {run}, step {step}.

```python
import torch{load_file}
from transformers import AutoModel, AutoTokenizer

of_context, of_candidate = AutoTokenizer.from_pretrained("{out}"), AutoTokenizer.from_pretrained("{out}/candidate")
context = AutoModel.from_pretrained("{out}").requires_grad_(False)
candidate = {candidate}{codes}

h = context(**of_context({context}, truncation=True, return_tensors="pt")).last_hidden_state[0] * {scaling}
y = {vectors}
c = [candidate(**of_candidate(text, truncation=True, return_tensors="pt")).last_hidden_state[0] for text in {texts}]
products = y @ torch.stack([{pooled} * {scaling} for states in c]).T
print(scores := (products.softmax(dim=0) * products).sum(dim=0))
```

`y` is of the context alone and `c` of the candidates alone: keep them, and a new pair costs the last two lines.
"""
VECTORS = {
    "learnt": "(codes @ h.T).softmax(dim=1) @ h",
    "first": "h[:{m}]",
    "last": "h[-{m}:]",
    "last_and_first": "torch.cat([h[:1], h[-{m}:]]) if len(h) > {m} else h",
}
POOLED = {"first": "states[0]", "mean": "states.mean(dim=0)"}


def write(trained: LoadedModel, method: PolyEncoderConfig, folder: Path, facts: Mapping[str, Any]) -> str:
    """Write both encoders and their tokenizers, and the codes if they are learnt; return the README.md.

    Raises:
        InputError: a tokenizer would truncate the prompt.
    """
    model, learnt, out = trained.model, method.codes == "learnt", facts["out"]
    truncated = bool(method.query_prompt) and method.kept_of_query == "end"
    refuse(trained, "a tokenizer", {"keep a prompt and the end of a query (method.kept_of_query)": truncated})
    assert isinstance(model, PolyEncoder)
    write_encoder(model.trunk, folder)
    side = {"start": "right", "end": "left"}[method.kept_of_query]
    write_tokenizer(trained.tokenizer, method.max_query_tokens, folder, truncation_side=side)
    (folder / CANDIDATE).mkdir()
    write_tokenizer(trained.tokenizer, method.max_document_tokens, folder / CANDIDATE)
    if method.towers == 2:
        write_encoder(model.tower("document"), folder / CANDIDATE)
    if learnt:
        save_tensors({"codes": model.codes.weight}, folder / CODES)
    of_candidates = f'AutoModel.from_pretrained("{out}/{CANDIDATE}").requires_grad_(False)'
    return CARD.format(
        **facts,
        m=method.m,
        context=_quoted(f"{method.query_prompt}a context"),
        texts="({}, {})".format(*(_quoted(method.document_prompt + text) for text in ("a", "b"))),
        query_tokens=method.max_query_tokens,
        load_file="\nfrom safetensors.torch import load_file" if learnt else "",
        codes=f'\ncodes = load_file("{out}/{CODES}")["codes"]' if learnt else "",
        candidate=of_candidates if method.towers == 2 else "context",
        scaling=model.scaling,
        vectors=VECTORS[method.codes].format(m=method.m),
        pooled=POOLED[method.reduction],
    )


def _quoted(text: str) -> str:
    """Write a text as Python source."""
    return json.dumps(text, ensure_ascii=False)
