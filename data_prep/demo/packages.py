"""The packages whose docstrings are the demo's text: a fixed list, so that a newly installed tool changes no number."""

from data_prep.sources.docstrings.installed import SourceFile, installed

# What the core and the extra `evaluate` of pyproject.toml require, directly or through others, on Linux and CPython
# 3.11 with the versions of constraints/ and a CPU build of torch. tests/data_prep/demo/test_packages.py computes these
# names from the installed metadata: when it fails, put its names here and measure the demo's numbers again.
DISTRIBUTIONS = (
    "absl-py",
    "annotated-doc",
    "annotated-types",
    "anyio",
    "blingfire",
    "bm25s",
    "braceexpand",
    "click",
    "contourpy",
    "cycler",
    "deepspeed",
    "einops",
    "filelock",
    "fonttools",
    "fsspec",
    "grpcio",
    "h11",
    "hf-xet",
    "hjson",
    "httpcore2",
    "httpx2",
    "huggingface-hub",
    "idna",
    "ir-measures",
    "jinja2",
    "kiwisolver",
    "markdown",
    "markdown-it-py",
    "markupsafe",
    "matplotlib",
    "mdurl",
    "mpmath",
    "msgpack",
    "networkx",
    "ninja",
    "numpy",
    "packaging",
    "pillow",
    "protobuf",
    "psutil",
    "py-cpuinfo",
    "pydantic",
    "pydantic-core",
    "pygments",
    "pyparsing",
    "python-dateutil",
    "pytrec-eval-terrier",
    "pyyaml",
    "regex",
    "rich",
    "safetensors",
    "scipy",
    "setuptools",
    "shellingham",
    "six",
    "sympy",
    "tensorboard",
    "tensorboard-data-server",
    "tokenizers",
    "torch",
    "tqdm",
    "transformers",
    "truststore",
    "typer",
    "typing-extensions",
    "typing-inspection",
    "webdataset",
    "werkzeug",
)


def files() -> list[SourceFile]:
    """Return the Python files of DISTRIBUTIONS and the standard library; print a line if some are not installed."""
    present, missing = installed(DISTRIBUTIONS)
    if missing:
        print(f"not installed, so the demo's text lacks their docstrings: {', '.join(missing)}")
    return present
