"""The Slurm, Kubernetes and Docker files of docs/cluster.md; tests/trainer/launches/test_hosts.py runs them."""

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from deepsiam.trainer.cluster.hosts.launch import Launch, read_hostfile
from deepsiam.trainer.training.recipe.yaml_file import read
from tests.toy import ROOT

MANIFEST = ROOT / "docs" / "kubernetes.yaml"
# the schema of Kubernetes 1.34, from kubernetes-validate 1.37 (Apache 2.0): ConfigMap, Service, Job and the parts of
# them that the manifest uses, without descriptions
SCHEMA = json.loads((ROOT / "tests" / "kubernetes_schema.json").read_text())
TYPES: dict[str, type | tuple[type, ...]] = {"object": dict, "array": list, "string": str, "boolean": bool}
TYPES |= {"integer": int, "number": (int, float), "null": type(None)}


def manifest() -> dict[str, dict[str, Any]]:
    """The objects of the manifest, by kind."""
    return {one["kind"]: one for one in yaml.safe_load_all(MANIFEST.read_text())}


def errors(value: Any, schema: dict[str, Any], at: str) -> Iterator[str]:
    """Yield where a value differs from a schema; only the keywords that Kubernetes' schemas use are supported."""
    if "$ref" in schema:
        schema = SCHEMA[schema["$ref"]]
    if "oneOf" in schema:
        if all(list(errors(value, one, at)) for one in schema["oneOf"]):
            yield f"{at}: {value!r} is none of {schema['oneOf']}"
        return
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(isinstance(value, TYPES[name]) and not (value is True and name == "integer") for name in types):
        yield f"{at}: {value!r} is no {types[0]}"
    elif value not in schema.get("enum", [value]):
        yield f"{at}: {value!r} is none of {schema['enum']}"
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from errors(item, schema["items"], f"{at}[{number}]")
    elif isinstance(value, dict):
        yield from (f"{at}.{name}: missing" for name in schema.get("required", []) if name not in value)
        for name, item in value.items():
            of = schema.get("properties", {}).get(name) or schema["additionalProperties"]
            yield from errors(item, of, f"{at}.{name}") if of else [f"{at}.{name}: unknown"]


def test_the_manifest_is_as_kubernetes_wants_it() -> None:
    assert [list(errors(one, SCHEMA[kind], kind)) for kind, one in manifest().items()] == [[], [], []]


def test_a_mistake_in_it_would_be_found() -> None:
    for change, message in (
        ({"completionMood": "Indexed"}, "Job.spec.completionMood: unknown"),
        ({"completions": "two"}, "Job.spec.completions: 'two' is no integer"),
        ({"completions": True}, "Job.spec.completions: True is no integer"),
        ({"template": {"spec": {}}}, "Job.spec.template.spec.containers: missing"),
        ({"podFailurePolicy": {"rules": [7]}}, "Job.spec.podFailurePolicy.rules[0]: 7 is no object"),
    ):
        job = manifest()["Job"]
        job["spec"] |= change
        assert list(errors(job, SCHEMA["Job"], "Job")) == [message]


def test_the_parts_of_the_manifest_name_each_other(tmp_path: Path) -> None:
    parts = manifest()
    job, service = parts["Job"], parts["Service"]
    pod = job["spec"]["template"]["spec"]
    name, hosts = job["metadata"]["name"], job["spec"]["completions"]
    assert hosts == job["spec"]["parallelism"]
    assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
    assert service["metadata"]["name"] == pod["subdomain"]
    (container,) = pod["containers"]
    mounted = {volume["name"]: volume["mountPath"] for volume in container["volumeMounts"]}
    assert mounted.keys() == {volume["name"] for volume in pod["volumes"]}
    path = tmp_path / "hostfile"
    path.write_text(parts["ConfigMap"]["data"]["hostfile"])
    gpus = container["resources"]["limits"]["nvidia.com/gpu"]
    assert read_hostfile(path) == {f"{name}-{number}": gpus for number in range(hosts)}

    words = shlex.split(container["args"][0].replace("$JOB_COMPLETION_INDEX", "1"))
    assert f"{mounted['hosts']}/hostfile" in words
    assert words[words.index("--master_addr") + 1] == f"{name}-0.{pod['subdomain']}"
    words = [str(path) if word.endswith("/hostfile") else word for word in words]
    launch = Launch.from_command(words, words.index("trainer.pretrain"))
    assert launch
    assert f"ranks={launch.ranks}" in words


def test_the_job_script_is_one() -> None:
    script = ROOT / "docs" / "slurm.sbatch"
    assert subprocess.run(["bash", "-n", script], capture_output=True).stderr == b""
    lines = script.read_text().splitlines()
    assert lines[0].startswith("#!")  # sbatch refuses scripts without it
    options = [number for number, line in enumerate(lines) if line.startswith("#SBATCH ")]
    first = next(number for number, line in enumerate(lines) if not line.startswith("#"))
    assert options
    assert max(options) < first  # sbatch reads no options after the first command


def test_a_hostfile_is_made_of_a_slurm_job(tmp_path: Path) -> None:
    (line,) = re.findall(r"^ *(.*scontrol show hostnames.*)$", (ROOT / "docs/cluster.md").read_text(), re.MULTILINE)
    shown = '[ "$*" = "show hostnames node[1-2]" ] && printf "node1\\nnode2\\n"'
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\n{shown}\n")
    (tmp_path / "scontrol").chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_NODELIST": "node[1-2]"}
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=variables, check=True)
    assert read_hostfile(tmp_path / "hostfile") == {"node1": 8, "node2": 8}


def dockerfile() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with their words; it has no lines that are continued."""
    lines = (ROOT / "docs" / "Dockerfile").read_text().splitlines()
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines if line and not line.startswith("#")]


def copied() -> dict[str, str]:
    """What the image gets of the checkout, and where; tests/test_wheel.py builds the wheel from it."""
    words = [text.split() for name, text in dockerfile() if name == "COPY"]
    return {source: to for *sources, to in words for source in sources}


def test_what_the_dockerfile_names_exists() -> None:
    tomllib = pytest.importorskip("tomllib")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    instructions = dict(dockerfile())
    assert all((ROOT / source).exists() for source in copied())
    assert all(to in (source, "./") for source, to in copied().items())
    assert json.loads(instructions["ENTRYPOINT"])[0] in project["scripts"]
    assert "--help" in json.loads(instructions["CMD"])
    version = instructions["FROM"].removeprefix("python:").removesuffix("-slim")
    assert f"constraints/python{version}.txt" in instructions["RUN"]  # the last: pip's
    (extras,) = re.findall(r"\.\[([\w,]+)\]", instructions["RUN"])
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert instructions["ARG"].replace("TORCH=", "TORCH ?= ") in (ROOT / "Makefile").read_text()
    for run in (text for name, text in dockerfile() if name == "RUN"):
        assert subprocess.run(["bash", "-nc", run], capture_output=True).stderr == b""


def test_what_the_dockerfile_s_comments_type_is_a_command() -> None:
    build, run = re.findall(r"docker (?:build|run) .*", (ROOT / "docs" / "Dockerfile").read_text())
    assert (ROOT / shlex.split(build)[3]).is_file()
    words = shlex.split(run)
    verb, recipe, *keys = words[words.index("deepsiam") + 1 :]
    assert verb == "pretrain"
    assert isinstance(read(Path(recipe), keys)["data"]["shards"], str)
