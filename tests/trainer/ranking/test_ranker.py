"""A model that ranks: the precision that it computes in, and the prompts before its texts."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from deepsiam.data_prep.collections.collection import Collection
from deepsiam.data_prep.common.errors import InputError
from deepsiam.trainer import index
from deepsiam.trainer.ranking.indexes.dense import DenseIndex
from deepsiam.trainer.ranking.indexes.registry import open_index
from deepsiam.trainer.ranking.ranker import VectorRanker
from deepsiam.trainer.ranking.rankers.registry import ranker_of
from deepsiam.trainer.ranking.retrieval.system import Texts
from deepsiam.trainer.training.checkpoints.load import load_trained
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 16, "max_document_tokens": 24}


@pytest.mark.parametrize("name", ["siamese", "colbert", "poly_encoder", "cross_encoder", "duobert"])
def test_models_score_in_bf16_as_in_fp32_but_for_rounding(opened: Collection, tmp_path: Path, name: str) -> None:
    own = {"cross_encoder": {"hard_negatives": 1}, "duobert": {"hard_negatives": 1}, "poly_encoder": {"m": 4}}
    keys = LENGTHS | own.get(name, {})
    run = write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, name=name, **keys)
    usual, half = (ranker_of(load_trained(run), opened, precision) for precision in (None, "bf16"))
    assert (usual.precision, half.precision) == ("fp32", "bf16")
    assert next(half.model.parameters()).dtype == torch.bfloat16
    assert half.identity == usual.identity
    lists = [(0, list(range(12))), (1, list(range(6, 18)))]
    scores = [np.concatenate(ranker.scores(lists)) for ranker in (usual, half)]
    assert all(of_ranker.dtype == np.float32 for of_ranker in scores)
    assert 0 < np.abs(scores[1] - scores[0]).max() < 0.05 * np.abs(scores[0]).max()
    if name == "siamese":
        DenseIndex.build(half, tmp_path / "index")
        with pytest.raises(InputError, match="holds an index with another --precision: name another"):
            DenseIndex.build(usual, tmp_path / "index")


PROMPTS = {"query_prompt": "abc de: ", "document_prompt": "fgh"}


@pytest.mark.parametrize("name", ["siamese", "colbert", "sparse"])
def test_other_prompts_rank_as_the_models_own(opened: Collection, tmp_path: Path, name: str) -> None:
    def ranker(folder: str, **prompts: str) -> VectorRanker:
        keys = {"name": name, **LENGTHS, **prompts}
        run = write_run(tmp_path / folder, opened.directory / "tokenizer.json", seed=3, **keys)
        made = ranker_of(load_trained(run), opened)
        assert isinstance(made, VectorRanker)
        return made

    without, own = ranker("without"), ranker("own", **PROMPTS)
    other = without.with_options(PROMPTS)
    lists = [(0, list(range(40))), (1, list(range(20, 60)))]
    plain, expected, scores = (np.concatenate(one.scores(lists)) for one in (without, own, other))
    np.testing.assert_array_equal(scores, expected)
    assert not np.array_equal(scores, plain)
    assert other.identity.items() >= PROMPTS.items()
    assert other.identity["fingerprint"] != without.identity["fingerprint"]
    assert own.with_options(PROMPTS) is own
    assert without.with_options({"query_prompt": ""}) is without
    removed = own.with_options(dict.fromkeys(PROMPTS, ""))
    np.testing.assert_array_equal(np.concatenate(removed.scores(lists)), plain)
    assert not removed.identity.keys() & PROMPTS.keys()
    for options, words in (
        ({"document_prompt": "abc de " * 30}, "document_prompt has .* tokens, which leave a text no room"),
        ({"prompt": "abc"}, "'prompt' is not an option of .*: query_prompt, document_prompt"),
    ):
        with pytest.raises(ValueError, match=words):
            without.with_options(options)


def test_an_index_keeps_its_prompts_and_dimensions(
    opened: Collection, tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    run = write_run(tmp_path / "run", opened.directory / "tokenizer.json", seed=3, name="siamese", **LENGTHS)
    options = [f"--{name.replace('_', '-')}={text}" for name, text in PROMPTS.items()]
    arguments = [str(run), f"--collection={opened.directory}", f"--out={tmp_path / 'index'}", *options]
    index.main([*arguments, "--dimensions=9"])
    note, line = capsys.readouterr().out.splitlines()
    assert "not for its first 9" in note
    assert "different texts, 9 x float32 each" in line
    found, ranker = open_index(tmp_path / "index"), ranker_of(load_trained(run), opened).with_options(PROMPTS).cut(9)
    texts = Texts(opened, [0, 1, 2], list(range(len(opened.corpus))))
    words = [opened.queries.text(i) for i in texts.queries]
    for ranked, other in zip(found.search_share(words, 10), ranker.system(texts).rank(10), strict=True):
        assert ranked.documents.tolist() == other.documents.tolist()
        np.testing.assert_allclose(ranked.scores, other.scores, atol=1e-6)
    for number in ("--dimensions=8", "--dimensions=32"):
        assert "another --dimensions: name another folder" in refused(index.main, *arguments, number)
