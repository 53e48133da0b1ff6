"""The pages name files, modules, sections and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

from deepsiam.models.matching.config import MatchingConfig
from deepsiam.models.matching.dual_encoder import DualEncoderConfig
from deepsiam.models.registry import MATCHING
from tests.toy import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "examples/README.md",
]
FOLDERS = "data_prep|models|trainer|ds_configs|recipes|benchmarks|tests|docs|constraints"
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))  # their comments also name files


def headings(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def defined_in(file: str) -> set[str]:
    """The functions of a file, and its methods as `Class.method`."""
    body = ast.parse((ROOT / file).read_text()).body
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    for kind in (node for node in body if isinstance(node, ast.ClassDef)):
        names |= {f"{kind.name}.{node.name}" for node in kind.body if isinstance(node, ast.FunctionDef)}
    return names


def test_files_and_modules_exist() -> None:
    missing = []
    for page in PAGES + RECIPES:
        text = page.read_text()
        for path in re.findall(rf"(?<![\w/.])(?:\.\./)?((?:{FOLDERS})/[\w./]*[\w/])", text):
            if not (ROOT / path).exists() and "NAME" not in path:
                missing.append((page, path))
        for module in re.findall(r"(?:python -m|--module) ((?:data_prep|trainer|benchmarks)[\w.]*)", text):
            path = ROOT / module.replace(".", "/")
            if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists():
                missing.append((page, module))
    assert not missing


def test_links_lead_somewhere() -> None:
    astray = []
    for page in PAGES:
        for link in re.findall(r"\]\(((?!https?:)[^)]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = page.parent / path if path else page
            if not target.exists() or (anchor and anchor not in headings(target)):
                astray.append((page, link))
    assert not astray


@pytest.mark.parametrize("name", MATCHING)
def test_every_matching_model_has_a_recipe_and_a_page_with_its_keys(name: str) -> None:
    config = MATCHING[name]
    file = ROOT / "docs" / "matching" / f"{config.__module__.rpartition('.')[2]}.md"
    page, choosing = file.read_text(), (ROOT / "docs" / "choosing.md").read_text()
    assert (ROOT / "recipes" / f"{name}_small.yaml").is_file()
    assert f"recipes/{name}" in page
    assert f"(matching/{file.name})" in choosing
    common = {*MatchingConfig.model_fields, *DualEncoderConfig.model_fields}
    for key in {*config.model_fields} - {"name"}:
        assert f"`{key}`" in (choosing if key in common else page), key


TRAIL = re.findall(r"^\| .*\? \| `(.+\.py)` \| `(.+)` \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)


def test_the_trail_leads_to_functions_that_a_newcomer_looks_for() -> None:
    rooms = ("data_prep/sources", "models/pretraining", "trainer/training/checkpoints", "trainer/training/data")
    for room in (*rooms, "trainer/training/engine"):
        assert any(file.startswith(f"{room}/") for file, _ in TRAIL), room
    assert not [(file, function) for file, function in TRAIL if function not in defined_in(file)]


# the parts of a message quoted in docs/operations.md that differ from run to run
VARIABLE = r"…|\S*\d\S*|weights\.safetensors|\bmlm\b|\bnan\b|\bsave\b"
MESSAGES = [
    (quote, part.strip(" :;"))
    for row in re.findall(r"^\| .+ \| .+ \| (.+) \| .*\|$", (ROOT / "docs/operations.md").read_text(), re.MULTILINE)
    for quote in re.findall(r"`([^`]+)`", row)
    for part in re.split(VARIABLE, quote)
    if len(part.strip(" :;")) > 8 and quote != "exits with return code"  # printed by the launcher
]


def test_quoted_messages_are_those_of_the_code() -> None:
    assert len({quote for quote, _ in MESSAGES}) > 8
    files = [file for package in ("trainer", "data_prep") for file in sorted((ROOT / package).rglob("*.py"))]
    code = re.sub(r'"\s*\n\s*f?"', "", "\n".join(file.read_text() for file in files))  # join literals that span lines
    assert not [quote for quote, part in MESSAGES if part not in code], "docs/operations.md quotes these"


def test_one_step_of_seed_is_in_ten_files_that_define_what_is_named() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    section = page.partition("## One step of SEED in ten files\n")[2].partition("\n## ")[0]
    steps = re.findall(r"^\d+\. `([\w/]+\.py)`: (.*(?:\n   .*)*)", section, re.MULTILINE)
    assert len(steps) == 10
    for file, said in steps:
        named = re.findall(r"`(\w+\.\w+|agree|write)`", said)
        assert named
        assert set(named) <= defined_in(file), file
