"""The lines in the README.md of an exported Poly-encoder, run as a reader would, against the trainer's scores."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from deepsiam.models.matching.poly_encoder import PolyEncoder
from deepsiam.trainer.ranking.export.export import export_encoder
from deepsiam.trainer.training.checkpoints.load import TrainedModel, load_trained
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 12, "max_document_tokens": 10}
PROMPTS = {"query_prompt": "🔎 abc de ", "document_prompt": "ij "}
CONTEXT, CANDIDATES = " ".join(["abc", "de", "fghij", "bad"] * 6), ["gh, ij", "a longer one " * 9]


def own_scores(trained: TrainedModel, context: str, candidates: list[str]) -> torch.Tensor:
    """The run's scores of candidates, [N]."""
    model, method, vocabulary = trained.model, trained.method, trained.tokenizer
    assert isinstance(model, PolyEncoder)
    framings = method.query_framing(vocabulary), method.document_framing(vocabulary)  # type: ignore[attr-defined]
    query, documents = (
        {name: torch.from_numpy(array) for name, array in framing.arrays(vocabulary.encode(texts)).items()}
        for framing, texts in zip(framings, ([context], candidates), strict=True)
    )
    with torch.no_grad():
        return model.score(model.embed_queries(**query), model.embed_documents(**documents))[0]


@pytest.mark.parametrize(
    "keys",
    [
        {"m": 4},
        {"m": 4, "codes": "first", "towers": 1, "reduction": "mean"},
        {"m": 4, "codes": "last", "kept_of_query": "start", "output_scaling": 0.5},
        {"m": 4, "codes": "last_and_first", "reduction": "mean"},
        {"m": 4, "codes": "first", "reduction": "mean", "kept_of_query": "start", **PROMPTS},
    ],
    ids=["learnt", "first", "last", "last_and_first", "prompts"],
)
def test_the_lines_of_the_readme_score_as_the_trainer(
    tmp_path: Path, toy_collection: Path, keys: dict[str, Any]
) -> None:
    run = write_run(tmp_path / "run", toy_collection / "tokenizer.json", name="poly_encoder", **LENGTHS, **keys)
    trained, out = load_trained(run), tmp_path / "out"
    export_encoder(trained, out)
    (code,) = re.findall(r"```python\n(.*?)```", (out / "README.md").read_text(), re.DOTALL)
    load, score = code.split("\n\n")[0:2], code.split("\n\n")[2]
    assert len(score.splitlines()) == 5
    for context, candidates in (("a context", ["a", "b"]), (CONTEXT, CANDIDATES), ("", CANDIDATES)):
        lines = score.replace("a context", context)
        for letter, text in zip("ab", candidates, strict=True):
            lines = lines.replace(f'{letter}"', f'{text}"')
        variables: dict[str, Any] = {}
        exec("\n".join([*load, lines]), variables)
        expected = own_scores(trained, context, candidates)
        torch.testing.assert_close(variables["scores"], expected, atol=1e-5, rtol=1e-5)
    assert expected.std() > 1e-3
    assert (out / "candidate" / "model.safetensors").exists() == (keys.get("towers") != 1)
    assert (out / "codes.safetensors").exists() == ("codes" not in keys)
