"""What the commands refuse: bad input is one line of the command's on stderr, code 2, and nothing is written.

A row is a command as it is typed, and what its line says. Names in capitals stand for what `places` has written.
`trainer.evaluate` (test_evaluate_refusals.py) and the launchers have tables of their own.
"""

import importlib
import shlex
import shutil
from pathlib import Path

import pytest

from deepsiam.trainer import index
from deepsiam.trainer.training.engine import world
from tests import toy
from tests.trainer.runs import write_run

LENGTHS = {"max_query_tokens": 8, "max_document_tokens": 16}
RUNS = {
    "siamese": {"similarity": "cosine", **LENGTHS},
    "colbert": LENGTHS,
    "cross_encoder": {"loss": "binary", **LENGTHS},
    "duobert": {"hard_negatives": 1, **LENGTHS},
    "label_ranker": {"loss": "rank_net", **toy.PROMPT, **LENGTHS},
    "seed": {"max_tokens": 32, "decoder_layers": 1},
}
INDEX = "trainer.index RUNS/siamese --collection=COLLECTION"
MINE = "trainer.mine --collection=COLLECTION --split=train --out=NEW"
PLAN = "trainer.plan recipes/seed_small.yaml trunk.vocab_size=4096"
ROWS = [
    # trainer.analyse
    ("trainer.analyse curves --tag x --out NEW run", "'run' is not NAME=RUN"),
    ("trainer.analyse attention RUNS/seed --shards SHARDS", "not a Cross-Thought run"),
    # trainer.doctor
    ("trainer.doctor RECIPE --hostfile TMP/none", "cannot read"),
    ("trainer.doctor RECIPE stepz=3", "stepz"),
    ("trainer.doctor TMP/none.yaml", "none.yaml"),
    ("trainer.doctor RECIPE --include=node7", "--include: is for several hosts: add --hostfile, or leave it out"),
    ("trainer.doctor RECIPE --ssh_port=2222", "--ssh_port: is for several hosts: add --hostfile, or leave it out"),
    ("trainer.doctor RECIPE --master_addr=10.0.0.1", "--master_addr: is for several hosts: add --hostfile, or leave"),
    # trainer.export
    ("trainer.export RUNS/seed MINE", "not an earlier export"),
    ("trainer.export TMP/none RUNS/seed", "none: no such folder"),
    ("trainer.export TMP RUNS/seed", "train it first"),
    (
        "trainer.export owner/name NEW",
        "owner/name: no such folder; if it is a model of the Hugging Face Hub, write hf://owner/name",
    ),
    ("trainer.export RUNS/siamese NEW --format adapters", "was trained without adapters: leave out --format adapters"),
    # trainer.index
    ("trainer.index RUNS/siamese --collection=TMP/none --out=NEW", "not tokenised, or not a collection"),
    ("trainer.index RUNS/none --collection=COLLECTION --out=NEW", "none"),
    (f"{INDEX} --out=MINE", "holds something that is not an index"),
    ("trainer.index bm25 --collection=COLLECTION --out=COLLECTION/corpus.jsonl", "is a file"),
    ("trainer.index --collection=COLLECTION --out=NEW", "the following arguments are required: system"),
    ("trainer.index bm25 --collection=COLLECTION --out=DENSE", "holds an index with another kind"),
    (
        "trainer.index bm25 --dtype=float16 --collection=COLLECTION --out=NEW",
        "--dtype float16: the index of bm25 has none: leave it out",
    ),
    (f"{INDEX} --dtype=residual2 --out=NEW", "--dtype residual2: the index of RUNS/siamese has float32, float16"),
    (
        f"{INDEX} --approximate=centroids --out=NEW",
        "--approximate centroids: the index of RUNS/siamese has ivf, pq, hnsw",
    ),
    ("trainer.index RUNS/siamese --collection=OTHER --out=NEW", "another tokenizer"),
    ("trainer.index RUNS/cross_encoder --collection=COLLECTION --out=NEW", "a cross_encoder has no index: it re-ranks"),
    ("trainer.index RUNS/duobert --collection=COLLECTION --out=NEW", "a duobert has no index: it re-ranks"),
    ("trainer.index RUNS/label_ranker --collection=COLLECTION --out=NEW", "a label_ranker has no index: it re-ranks"),
    # trainer.mine
    (f"{MINE} --score=RUNS/label_ranker", "a label_ranker scores a document by comparing it with its list"),
    (f"{MINE} --system=RUNS/duobert", "only re-ranks what another system found: write bm25 > 100"),
    (f"{MINE} --score=RUNS/duobert", "a duobert scores a document by comparing it with its list"),
    (f"{MINE} --system=bm25 --split=dev", "no split 'dev'; choose one of: test, train"),
    (f"{MINE} --system=RUNS/seed", "a seed pre-training run, which was not trained to compare texts"),
    (f"{MINE} --system=RUNS/cross_encoder", "only re-ranks what another system found: write bm25 > 100"),
    (f"{MINE} --system=RUNS/none", "none"),
    (f"{MINE} --score=RUNS/seed", "a seed pre-training run"),
    (f"{MINE} --system=bm25 --out=COLLECTION", "is the collection itself: name another folder"),
    (f"{MINE} --system=bm25 --out=MINE", "exists, and was not mined: name another folder"),
    (f"{MINE} --system=bm25 --depth=0", "'0' is not a whole number above 0"),
    (f"{MINE} --system=bm25 --margin=-1", "'-1' is not a number, 0 or above, nor a share"),
    (f"{MINE} --system=bm25 --margin=-5%", "'-5%' is not a number, 0 or above, nor a share"),
    (f"{MINE} --system=bm25 --margin=100%", "'100%' is not a number, 0 or above, nor a share"),
    (f"{MINE} --system=bm25 --margin=%", "'%' is not a number, 0 or above, nor a share"),
    (f"{MINE} --system=bm25 --skip=100", "--skip 100 leaves nothing of the first 100: raise --depth"),
    (f"{MINE} --system=bm25 --per-document=0", "'0' is not a whole number above 0"),
    (f"{MINE} --system=bm25 --system=bm25", "--system 'bm25' is there twice: leave out one"),
    (f"{MINE} --system='bm25 > 100 RUNS/duobert'", "a duobert scores a document by comparing it with its list"),
    (f"{MINE} --system='bm25 > 0 RUNS/cross_encoder'", "'0' is not how many documents to re-rank"),
    (f"{MINE} --system='bm25 > 9 +RUNS/siamese'", "negatives are found by one model, or by one that another re-ranks"),
    (f"{MINE} --system='fuse(bm25, RUNS/siamese)'", "character 1: negatives are found by one model, or by one that"),
    (f"{MINE} --system=bm25 --depth=3 --consistent=4", "--consistent 4 is deeper than --depth 3: raise it"),
    (f"{MINE} --system=RECIPE", "a run file cannot be mined with: name a model"),
    (f"{MINE} --system='a=bm25'", "character 2: '=' cannot follow here"),
    (f"{MINE} --score=RUNS/cross_encoder --depth=5", "--depth does not go with --score: leave it out"),
    (f"{MINE} --system=bm25 --score=RUNS/siamese", "not allowed with argument"),
    (MINE, "one of the arguments --system --score --expand --explain is required"),
    (f"{MINE} --explain=20", "has a relevant document and negatives: mine some"),
    (f"{MINE} --explain=0", "'0' is not a whole number above 0"),
    (f"{MINE} --seed={1 << 63}", "'9223372036854775808' is not a whole number from 0 to 2^63 - 1"),
    (f"{MINE} --explain=20 --skip=3", "--skip does not go with --explain: leave it out"),
    (f"{MINE} --expand=RUNS/siamese", "--split does not go with --expand: leave it out"),
    (f"{MINE} --system=bm25 --terms=3", "--terms does not go with --system: leave it out"),
    ("trainer.mine --collection=COLLECTION --out=NEW --system=bm25", "--split is missing"),
    (
        "trainer.mine --collection=COLLECTION --out=NEW --expand=RUNS/siamese --depth=3",
        "--depth does not go with --expand: leave it out",
    ),
    ("trainer.mine --collection=COLLECTION --out=NEW --expand=RUNS/siamese", "gives terms no likelihoods"),
    # trainer.plan
    ("trainer.plan recipes/none.yaml", "recipes/none.yaml: cannot read"),
    ("trainer.plan recipes/seed_small.yaml", "trunk.vocab_size: the recipe takes it from its data"),
    ("trainer.plan recipes/dpr.yaml", "recipes/dpr.yaml: fine-tunes"),
    (f"{PLAN} batch.micro=0", "batch.micro"),
    (f"{PLAN} trunk.num_attention_heads=7", "trunk: "),
    (f"{PLAN} method.max_tokens=100000", "method.max_tokens"),
    (f"{PLAN} deepspeed=zero9", "deepspeed: no file"),
    (f"{PLAN} deepspeed=cpu --gpu h100", "deepspeed: cpu computes in fp32, and of a GPU "),
    (f"{PLAN} --measured none.json", "none.json: "),
    (f"{PLAN} --measured README.md", "README.md: not JSON"),
    (f"{PLAN} --measured benchmarks/results/demo.json", "not a result of benchmarks"),
    (f"{PLAN} --json docs", "docs: "),
    (f"{PLAN} --chart docs", "docs: "),
    (f"{PLAN} --json none/x.json", "none/x.json: its folder does not exist"),
    (f"{PLAN} --hosts 1,0", "argument --hosts"),
    (f"{PLAN} --gpu h101", "did you mean h100?"),
    (f"{PLAN} --efficiency 1.5", "argument --efficiency"),
    (f"{PLAN} --disk 0", "argument --disk"),
    (f"{PLAN} --nothing", "unknown option --nothing"),
    # trainer.report
    ("trainer.report TMP/empty", "train one first"),
    # trainer.search
    ("trainer.search RUNS/siamese abc", "not an index"),
    ("trainer.search HALF abc", "an unfinished index: run trainer.index again, it goes on"),
    ("trainer.search DENSE abc --collection=CLASSES", "is not the collection that"),
    ("trainer.search DENSE abc --model=RUNS/colbert", "is not the model that"),
    ("trainer.search DENSE abc --query-model=RUNS/colbert", "a colbert has no one vector for a text, which the"),
    (
        "trainer.search SPARSE abc --query-model=RUNS/siamese",
        "only an index of one vector per text takes",
    ),
    ("trainer.search DENSE --serve=0 --approximate=hnsw", "approximate-hnsw.faiss: no such file"),
    ("trainer.search DENSE --approximate=centroids abc", "has ivf, pq, hnsw"),
    ("trainer.search SPARSE --model=RUNS/siamese abc", "was made without a model: leave it out"),
    ("trainer.search SPARSE --approximate=hnsw abc", "has none"),
    ("trainer.search DENSE --queries=test", "--queries and --write-run go together"),
    ("trainer.search DENSE --write-run=NEW", "--queries and --write-run go together"),
    ("trainer.search DENSE --queries=dev --write-run=NEW", "it has test, train"),
    ("trainer.search DENSE --queries=test --write-run=TMP", "is a folder: name a file"),
    ("trainer.search DENSE --queries=test --write-run=NEW abc", "--queries names all queries"),
    ("trainer.search DENSE abc --k=0", "'0' is not a whole number above 0"),
    ("trainer.search DENSE --serve=99999", "'99999' is not a port"),
    ("trainer.search DENSE --serve=0 abc", "--serve takes its queries from the page"),
    ("trainer.search DENSE --beside=DENSE --serve=0", "--beside names the same index"),
    ("trainer.search DENSE --beside=TMP/other", "--beside is for the page: add --serve PORT"),
    ("trainer.index RUNS/siamese --collection=COLLECTION --out=NEW --dimensions=33", "and cannot cut them to 33"),
    ("trainer.index RUNS/colbert --collection=COLLECTION --out=NEW --dimensions=8", "is not a model of one vector per"),
    ("trainer.index bm25 --collection=COLLECTION --out=NEW --dimensions=8", "is not a model of one vector per"),
    ("trainer.index RUNS/colbert --collection=COLLECTION --out=NEW --dtype=int8", "--dtype int8: the index of"),
    ("trainer.index bm25 --collection=COLLECTION --out=NEW --dtype=binary", "has none: leave it out"),
    ("trainer.index RUNS/siamese --collection=COLLECTION --out=NEW --dimensions=0", "not a whole number above 0"),
    (
        "trainer.evaluate --collection=COLLECTION --split=test --system=bm25 --dimensions=8 --out=NEW",
        "--dimensions 8: no system has a model of one vector per text: leave it out",
    ),
    (
        "trainer.evaluate --collection=COLLECTION --split=test --system=a=RUNS/siamese --dimensions=33 --out=NEW",
        "and cannot cut them to 33",
    ),
    # trainer.trace
    ("trainer.trace RECIPE --world-size 3", "data.lanes: 4 lanes cannot be shared by 3 ranks"),
    ("trainer.trace RECIPE data.mix.a.weigth=1", "data.mix.a.weigth: unknown key; did you mean data.mix.a.weight?"),
    ("trainer.trace RECIPE data.mix.a.weight=0.00033", "is too small a part of the sum of all"),
    ("trainer.trace recipes/bge.yaml 'method.loss={softmax: 1, some: 1}'", "method.loss: input should be 'softmax', "),
    (
        "trainer.trace recipes/seed_msmarco_passage_ance.yaml refresh.margin=120%",
        "refresh.margin: '120%' is not a number, 0 or above, nor a share of the relevant document's score, as 5%",
    ),
    ("trainer.trace recipes/siamese_small.yaml method.ignore_above=-1", "method.ignore_above: input should be greater"),
    ("trainer.trace recipes/bge.yaml method.loss.kl=0", "method.loss: input should be greater than 0, not 0"),
    (
        "trainer.trace recipes/bge.yaml method.loss=kl",
        "method.negatives=step is for method.loss=softmax or hinge, not kl",
    ),
    (
        "trainer.trace recipes/bge.yaml method.candidates.keep=best",
        "method.candidates.keep: input should be 'positive', not 'best'",
    ),
    (
        "trainer.trace recipes/bge.yaml data.collection=COLLECTION",
        "method.loss=kl learns a teacher's scores, but split train has none beside its labels: have a teacher score it",
    ),
    (
        "trainer.trace recipes/siamese_small.yaml data.collection=COLLECTION method.max_query_tokens=5 "
        "method.query_prompt=a-a-a",
        "method: query_prompt has 5 tokens, which leave a text no room: with the 2 around it they are not fewer than "
        "max_query_tokens=5: raise that, or shorten the prompt",
    ),
    (
        "trainer.trace recipes/siamese_small.yaml method.pooling=cls method.prompt_in_pooling=false",
        "method.prompt_in_pooling=false is for method.pooling=mean, not cls: leave it out",
    ),
    (
        "trainer.trace recipes/splade_doc_small.yaml method.query_prompt=abc",
        "method.query_prompt: with method.query=tokens no encoder reads it: leave it out",
    ),
    ("trainer.trace recipes/monobert_small.yaml method.query_prompt=abc", "method.query_prompt: unknown key"),
    ("trainer.mine --collection COLLECTION --split train --system bm25 --out .", ".: is the name of no new folder"),
    (
        "trainer.mine --collection COLLECTION --split train --explain 3 --precision fp32 --out NEW",
        "--precision does not go with --explain: leave it out",
    ),
    (
        "trainer.index bm25 --collection COLLECTION --query-prompt x --out NEW",
        "--query-prompt needs a model, and bm25 is none: leave it",
    ),
    (
        "trainer.index bm25 --collection COLLECTION --precision fp32 --out NEW",
        "--precision needs a model, and bm25 is none: leave it out",
    ),
    ("trainer.trace RECIPE --world-size 0", "is not a whole number above 0"),
    ("trainer.trace RECIPE --workers -1", "is not a whole number above 0"),
    ("trainer.trace RECIPE --show 0", "is not a whole number above 0"),
    ("trainer.trace RECIPE --show -3", "is not a whole number above 0"),
]


@pytest.fixture(scope="module")
def places(
    toy_collection: Path, toy_classes: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """What a command may name; read only."""
    folder = tmp_path_factory.mktemp("places")
    for name in ("empty", "half", "mine"):
        (folder / name).mkdir()
    (folder / "mine" / "thesis.txt").write_text("years")
    shutil.copytree(toy_collection, folder / "collection")
    for name, keys in RUNS.items():
        write_run(folder / "runs" / name, toy_collection / "tokenizer.json", name=name, **keys)
    given = [f"--collection={folder / 'collection'}"]
    index.main([str(folder / "runs" / "siamese"), *given, f"--out={folder / 'dense'}"])
    index.main(["bm25", *given, f"--out={folder / 'bm25'}"])
    (folder / "half" / "building.json").write_bytes((folder / "dense" / "manifest.json").read_bytes())
    other = toy.write_shards(folder / "other", 50, seed=4)
    toy.write_collection(folder / "another", other / "tokenizer.json", count=30)
    mix = {"a": {"shards": str(shards), "weight": 3}, "b": {"shards": str(shards), "weight": 1}}
    data = {"mix": mix, "lanes": 4, "window": 2}
    return {
        "RECIPE": toy.seed_recipe(folder / "run.yaml", shards, data=data),
        "COLLECTION": folder / "collection",
        "CLASSES": toy_classes,
        "OTHER": folder / "another",
        "SHARDS": shards,
        "RUNS": folder / "runs",
        "DENSE": folder / "dense",
        "SPARSE": folder / "bm25",
        "HALF": folder / "half",
        "MINE": folder / "mine",
        "NEW": folder / "new",
        "TMP": folder,
    }


@pytest.mark.parametrize(("typed", "said"), ROWS, ids=[typed for typed, _ in ROWS])
def test_bad_input_is_one_line_and_nothing_is_written(
    places: dict[str, Path],
    typed: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(world, "RANK_0_FIRST_SECONDS", -1)  # time.sleep would raise: one process waits for no rank 0
    for name, path in places.items():
        typed, said = typed.replace(name, str(path)), said.replace(name, str(path))
    module, *arguments = shlex.split(typed)
    before = sorted(places["TMP"].rglob("*"))
    with pytest.raises(SystemExit) as stopped:
        importlib.import_module(module).main(arguments)
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    (line,) = printed.err.splitlines()
    assert line.startswith(
        (module, module.replace("deepsiam.", "").replace("trainer.", "deepsiam "))
    )  # also its parser
    assert said in line
    assert printed.out == ""
    assert sorted(places["TMP"].rglob("*")) == before
