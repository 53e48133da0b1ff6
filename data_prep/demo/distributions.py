"""The packages whose docstrings are the demo's text: a fixed list, so that another dependency changes no number.

The list is what deepsiam with the extra `evaluate` brought with it, on Linux and CPython 3.11 with a CPU build of
torch, when the demo's numbers were measured; to change it means to measure them again.
"""

from deepsiam.data_prep.sources.docstrings.modules import SourceFile, installed
from deepsiam.data_prep.text.language import word_set

DISTRIBUTIONS = word_set(
    """
    absl-py annotated-doc annotated-types anyio blingfire bm25s braceexpand click contourpy cycler deepspeed
    einops filelock fonttools fsspec grpcio h11 hf-xet hjson httpcore2 httpx2 huggingface-hub idna ir-measures
    jinja2 kiwisolver markdown markdown-it-py markupsafe matplotlib mdurl mpmath msgpack networkx ninja numpy
    packaging pillow protobuf psutil py-cpuinfo pydantic pydantic-core pygments pyparsing python-dateutil
    pytrec-eval-terrier pyyaml regex rich safetensors scipy setuptools shellingham six sympy tensorboard
    tensorboard-data-server tokenizers torch tqdm transformers truststore typer typing-extensions
    typing-inspection webdataset werkzeug
    """
)


def files() -> list[SourceFile]:
    """Return the Python files of DISTRIBUTIONS and the standard library; print a line if some are not installed."""
    present, missing_names = installed(sorted(DISTRIBUTIONS))
    if missing_names:
        print(f"not installed, so the demo's text lacks their docstrings: {', '.join(missing_names)}")
    return present
