"""bm25s does not start JAX, which would take a GPU's memory."""

import subprocess
import sys
from pathlib import Path

from tests.toy import ROOT

JAX = """
raise SystemExit("JAX was imported")
"""


def test_a_ranking_by_words_leaves_jax_alone(tmp_path: Path) -> None:
    (tmp_path / "jax").mkdir()
    (tmp_path / "jax" / "__init__.py").write_text(JAX)
    program = (
        "import sys; from deepsiam.trainer.ranking.retrieval.bm25 import index_words; "
        "print(index_words(['one word', 'two words']).scores['num_docs'], 'jax' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin"},
    )
    assert done.stdout.split() == ["2", "False"], done.stderr
