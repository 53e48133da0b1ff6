"""What the commands refuse: bad input is one line of the command's on stderr, code 2, and nothing is written.

A row is what is typed after its heading, and what the line says. Names in capitals stand for what `places` has written.
The launchers have tables of their own.
"""

import importlib
import shlex
import shutil
from pathlib import Path
from unittest.mock import Mock

import pytest

from deepsiam.trainer import index
from deepsiam.trainer.interface import evaluation
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
    "classes": {"name": "cross_encoder", "loss": "classes", "classes": 3, **LENGTHS},
}
EVALUATE = "trainer.evaluate --collection=COLLECTION --split=test --out=NEW"
RE_RANKS = "'RUNS/cross_encoder' only re-ranks what another system found: write bm25 > 100 RUNS/cross_encoder"
ALONE = "a duobert scores a document by comparing it with its list: a score alone means nothing"
NO_SCORE = "predicts classes and gives no score to rank by: evaluate with --classes"
ROWS = {
    "trainer.analyse": [
        ("curves --tag x --out NEW run", "'run' is not NAME=RUN"),
        ("attention RUNS/seed --shards SHARDS", "not a Cross-Thought run"),
    ],
    "trainer.analyse learning --collection=COLLECTION --split=test --over=steps --out=NEW": [
        ("--metric=speed@1 a=a", "--metric: 'speed@1' is not a metric: write mrr@K"),
        ("a=nowhere", "nowhere: has no checkpoint: name a fine-tuning run"),
        ("a=RUNS/siamese --out=NEW/f.json", "--out NEW/f.json: the numbers are kept there, beside the figure: name"),
    ],
    "trainer.ask --collection=COLLECTION --out=NEW --model": [
        ("m --kinds poem", "invalid choice: 'poem'"),
        ("m --kinds title --prompt p", "--kinds does not go with --prompt: leave out one of both"),
        ("m --server http://example.com", "'http://example.com': the server is one of this machine, such as http"),
        ("m --server http://localhost --precision fp32", "--precision does not go with --server"),
        ("m --per-document 2", "--per-document needs draws, else all are the same: add --temperature 0.8"),
        ("m --temperature -1", "'-1' is not a number, 0 or above"),
        ("absent", "absent"),
        ("m --collection absent", "absent: not tokenised, or not a collection"),
        ("m --prompt absent", "absent: cannot read"),
    ],
    "trainer.doctor": [
        ("RECIPE --hostfile TMP/none", "cannot read"),
        ("RECIPE stepz=3", "stepz"),
        ("TMP/none.yaml", "none.yaml"),
        ("RECIPE --include=node7", "--include: is for several hosts: add --hostfile, or leave it out"),
        ("RECIPE --ssh_port=2222", "--ssh_port: is for several hosts: add --hostfile, or leave it out"),
        ("RECIPE --master_addr=10.0.0.1", "--master_addr: is for several hosts: add --hostfile, or leave"),
    ],
    EVALUATE: [
        ("", "nothing to evaluate: give --system bm25, --system NAME=RUN, or several of them"),
        ("--candidates --classes --system=bm25", "leave out one"),
    ],
    f"{EVALUATE} --system": [
        ("bm25 --split=dev", "no split 'dev'; choose one of: test, train"),
        ("bm25 --out=", "is a folder: name a file, in it or elsewhere"),
        ("bm25 --out=FILES", "is a folder: name a file, in it or elsewhere"),
        ("bm25 --metrics=precision@5", "--metrics: 'precision@5' is not a metric: write mrr@K, ndcg@K, recall@K, map"),
        ("bm25 --dimensions=8", "--dimensions 8: no system has a model of one vector per text: leave it out"),
        ("a=RUNS/siamese --dimensions=33", "and cannot cut them to 33"),
        ("'x=fuse(bm25, sed)'", "--system 'x=fuse(bm25, sed)': character 14: 'sed' is no system named before, and is"),
        ("'x=fuse(bm25, gone/run)'", "character 14: 'gone/run' is no file or folder"),
        (f"x=long/{300 * 'a'}", "aaa' is no file or folder"),
        ("m=RUNS/seed", "fine-tune it first"),
        ("m=TMP/empty", "train it first"),
        ("c=RUNS/cross_encoder", f"character 3: {RE_RANKS}"),
        ("'x=fuse(bm25, RUNS/cross_encoder)'", f"character 14: {RE_RANKS}"),
        ("'x=RUNS/cross_encoder > 5 bm25'", f"character 3: {RE_RANKS}"),
        ("'x=bm25 > 5 RUNS/cross_encoder(pairs=unordered)'", "has no options: leave out pairs=..."),
        ("x=RUNS/classes", NO_SCORE),
        ("'x=bm25 > 5 RUNS/classes'", NO_SCORE),
        ("x=RUNS/duobert", "only re-ranks what another system found"),
        ("'x=bm25 > 5 +RUNS/duobert(weight=0.3)'", "character 8: RUNS/duobert/checkpoints/step-"),
        ("'x=bm25 > 5 +RUNS/duobert(split=train)'", ALONE),
        ("'x=fuse(bm25, bm25 > 5 RUNS/duobert, weight=0.3)'", ALONE),
        ("'x=bm25 > 9 RUNS/duobert > 5 +RUNS/cross_encoder(weight=0.3)'", ALONE),
        ("'x=bm25 > 101 RUNS/duobert'", "re-rank 100 or fewer, or allow it with the option most=101"),
        ("'x=bm25 > 1 RUNS/duobert'", "compares the documents of a list: re-rank 2 or more"),
        ("'x=bm25 > 5 RUNS/duobert(aggregate=mean)'", "'mean': aggregate is sum, binary"),
        ("FILES/a.trec", "character 1: give the system a name: NAME="),
        ("a=FILES/a.trec --system=a=FILES/a.trec", "the name 'a' is taken"),
        ("a/b=FILES/a.trec", "the name 'a/b' has a slash"),
        ("a=none.trec", "'none.trec' is no system named before, and is no file or folder"),
        ("'a=bm25 > 9 FILES/a.trec'", "is a run file, which scores nothing anew: name a model"),
        ("'a=FILES/a.trec(pairs=9)'", "is a run file, which has no options"),
        ("'a=fuse(bm25, FILES/a.trec, rule=scores)'", "a run file has no other split to choose a weight on: give a"),
        ("a=FILES/a.trec --write-runs=FILES", "a.trec: name another folder"),
        ("'b=fuse(bm25, FILES/a.trec, weight=0.3)' --system=a=bm25 --write-runs=FILES", "would write over"),
        ("bm25 --candidates --write-runs=x", "--write-runs is for rankings of the whole pool"),
        ("a=FILES/a.trec --candidates", "--candidates is for single models"),
        ("c=RUNS/classes --classes", "its labels are not classes"),
        (
            "bm25 --system=c=RUNS/classes --collection=CLASSES --split=train --classes",
            "BM25 does not predict classes: ",
        ),
    ],
    f"{EVALUATE} --system=m=RUNS/siamese": [
        ("--system 'x=m > 9 gone/run'", "character 9: 'gone/run' is no file or folder"),
        ("--system 'x=fuse(bm25, m'", "character 15: the end stands where"),
        ("--system 'x=fuse(bm25, m, split=dev)'", "character 3: no split 'dev'; choose one of: test, train"),
        ("--system 'x=fuse(bm25, m, split=test)'", "character 3: the weight would be chosen on the queries of test"),
        ("--system 'x=bm25 > 9 +m(split=test)'", "character 8: the weight would be chosen on the queries of test"),
        ("--system 'x=fuse(bm25, m, rule=scores)'", "character 3: no split dev other than the evaluated one"),
        ("--system m=bm25", "character 1: the name 'm' is taken"),
        ("--candidates --metrics=mrr@5", "--metrics is for rankings of the whole pool: leave it out, or --candidat"),
        ("--candidates --system 'x=fuse(bm25, m)'", "'x=fuse(bm25, m)': --candidates is for single models: leave it"),
        ("--candidates", "no candidate lists"),
        ("--candidates --collection=CLASSES --split=train", "its labels are classes"),
        ("--classes --collection=CLASSES --split=train", "does not predict classes"),
    ],
    "trainer.evaluate --collections=COLLECTION --split=test --out=NEW --system=bm25": [
        ("--metrics map", "'map' is not a metric"),
        ("--candidates", "--candidates needs --collection"),
        ("--collections='nothing/*'", "matches no collection and no folder with a corpus.jsonl"),
    ],
    "trainer.pretrain": [
        ("", "deepsiam pretrain: the following arguments are required: recipe; see deepsiam pretrain --")
    ],
    "trainer.finetune": [
        ("", "deepsiam finetune: the following arguments are required: recipe; see deepsiam finetune --")
    ],
    "trainer.export": [
        ("RUNS/seed MINE", "not an earlier export"),
        ("TMP/none RUNS/seed", "none: no such folder"),
        ("TMP RUNS/seed", "train it first"),
        (
            "owner/name NEW",
            "owner/name: no such folder; if it is a model of the Hugging Face Hub, write hf://owner/name",
        ),
        ("RUNS/siamese NEW --format adapters", "was trained without adapters: leave out --format adapters"),
    ],
    "trainer.index": [
        ("RUNS/none --collection=COLLECTION --out=NEW", "none"),
        ("--collection=COLLECTION --out=NEW", "the following arguments are required: system"),
        ("RUNS/cross_encoder --collection=COLLECTION --out=NEW", "a cross_encoder has no index: it re-ranks"),
        ("RUNS/duobert --collection=COLLECTION --out=NEW", "a duobert has no index: it re-ranks"),
        ("RUNS/label_ranker --collection=COLLECTION --out=NEW", "a label_ranker has no index: it re-ranks"),
        ("RUNS/colbert --collection=COLLECTION --out=NEW --dimensions=8", "is not a model of one vector per"),
        ("RUNS/colbert --collection=COLLECTION --out=NEW --dtype=int8", "--dtype int8: the index of"),
    ],
    "trainer.index RUNS/siamese --collection=COLLECTION --out=NEW": [
        ("--collection=TMP/none", "not tokenised, or not a collection"),
        ("--collection=OTHER", "another tokenizer"),
        ("--out=MINE", "holds something that is not an index"),
        ("--dtype=residual2", "--dtype residual2: the index of RUNS/siamese has float32, float16"),
        ("--approximate=centroids", "--approximate centroids: the index of RUNS/siamese has ivf, pq, hnsw"),
        ("--dimensions=33", "and cannot cut them to 33"),
        ("--dimensions=0", "not a whole number above 0"),
    ],
    "trainer.index bm25 --collection=COLLECTION --out=NEW": [
        ("--out=COLLECTION/corpus.jsonl", "is a file"),
        ("--out=DENSE", "holds an index with another kind"),
        ("--dtype=float16", "--dtype float16: the index of bm25 has none: leave it out"),
        ("--dtype=binary", "has none: leave it out"),
        ("--dimensions=8", "is not a model of one vector per"),
        ("--query-prompt x", "--query-prompt needs a model, and bm25 is none: leave it"),
        ("--precision fp32", "--precision needs a model, and bm25 is none: leave it out"),
    ],
    "trainer.mine --collection=COLLECTION --out=NEW": [
        ("--system=bm25", "--split is missing"),
        ("--expand=RUNS/siamese", "gives terms no likelihoods"),
        ("--expand=RUNS/siamese --depth=3", "--depth does not go with --expand: leave it out"),
    ],
    "trainer.mine --collection=COLLECTION --split=train --out=NEW": [
        ("", "one of the arguments --system --score --expand --explain is required"),
        ("--score=RUNS/seed", "a seed pre-training run"),
        ("--score=RUNS/label_ranker", "a label_ranker scores a document by comparing it with its list"),
        ("--score=RUNS/duobert", "a duobert scores a document by comparing it with its list"),
        ("--score=RUNS/cross_encoder --depth=5", "--depth does not go with --score: leave it out"),
        ("--system=bm25 --score=RUNS/siamese", "not allowed with argument"),
        ("--explain=20", "has a relevant document and negatives: mine some"),
        ("--explain=0", "'0' is not a whole number above 0"),
        ("--explain=20 --skip=3", "--skip does not go with --explain: leave it out"),
        ("--explain 3 --precision fp32", "--precision does not go with --explain: leave it out"),
        ("--expand=RUNS/siamese", "--split does not go with --expand: leave it out"),
        (f"--seed={1 << 63}", "'9223372036854775808' is not a whole number from 0 to 2^63 - 1"),
    ],
    "trainer.mine --collection=COLLECTION --split=train --out=NEW --system": [
        ("RUNS/none", "none"),
        ("RUNS/seed", "a seed pre-training run, which was not trained to compare texts"),
        ("RUNS/duobert", "only re-ranks what another system found: write bm25 > 100"),
        ("RUNS/cross_encoder", "only re-ranks what another system found: write bm25 > 100"),
        ("RECIPE", "a run file cannot be mined with: name a model"),
        ("a=bm25", "character 2: '=' cannot follow here"),
        ("'bm25 > 100 RUNS/duobert'", "a duobert scores a document by comparing it with its list"),
        ("'bm25 > 0 RUNS/cross_encoder'", "'0' is not how many documents to re-rank"),
        ("'bm25 > 9 +RUNS/siamese'", "negatives are found by one model, or by one that another re-ranks"),
        ("'fuse(bm25, RUNS/siamese)'", "character 1: negatives are found by one model, or by one that"),
        ("bm25 --system=bm25", "--system 'bm25' is there twice: leave out one"),
        ("bm25 --split=dev", "no split 'dev'; choose one of: test, train"),
        ("bm25 --out=COLLECTION", "is the collection itself: name another folder"),
        ("bm25 --out=MINE", "exists, and was not mined: name another folder"),
        ("bm25 --out .", ".: is the name of no new folder"),
        ("bm25 --depth=0", "'0' is not a whole number above 0"),
        ("bm25 --margin=-1", "'-1' is not a number, 0 or above, nor a share"),
        ("bm25 --margin=-5%", "'-5%' is not a number, 0 or above, nor a share"),
        ("bm25 --margin=100%", "'100%' is not a number, 0 or above, nor a share"),
        ("bm25 --margin=%", "'%' is not a number, 0 or above, nor a share"),
        ("bm25 --skip=100", "--skip 100 leaves nothing of the first 100: raise --depth"),
        (
            "'bm25 > 20 RUNS/cross_encoder' --depth=60 --skip=20",
            "--skip 20 leaves nothing of the 20 documents that bm2",
        ),
        ("bm25 --per-document=0", "'0' is not a whole number above 0"),
        ("bm25 --depth=3 --consistent=4", "--consistent 4 is deeper than --depth 3: raise it"),
        ("bm25 --terms=3", "--terms does not go with --system: leave it out"),
    ],
    "trainer.plan": [
        ("recipes/none.yaml", "recipes/none.yaml: cannot read"),
        ("recipes/seed_small.yaml", "trunk.vocab_size: the recipe takes it from its data"),
        ("recipes/dpr.yaml", "recipes/dpr.yaml: fine-tunes"),
    ],
    "trainer.plan recipes/seed_small.yaml trunk.vocab_size=4096": [
        ("batch.micro=0", "batch.micro"),
        ("trunk.num_attention_heads=7", "trunk: "),
        ("method.max_tokens=100000", "method.max_tokens"),
        ("deepspeed=zero9", "deepspeed: no file"),
        ("deepspeed=cpu --gpu h100", "deepspeed: cpu computes in fp32, and of a GPU "),
        ("--measured none.json", "none.json: "),
        ("--measured README.md", "README.md: not JSON"),
        ("--measured benchmarks/results/demo.json", "not a result of benchmarks"),
        ("--json docs", "docs: "),
        ("--chart docs", "docs: "),
        ("--json none/x.json", "none/x.json: its folder does not exist"),
        ("--hosts 1,0", "argument --hosts"),
        ("--gpu h101", "did you mean h100?"),
        ("--efficiency 1.5", "argument --efficiency"),
        ("--disk 0", "argument --disk"),
        ("--nothing", "unknown option --nothing"),
    ],
    "trainer.report": [("TMP/empty", "train one first")],
    "trainer.search": [
        ("RUNS/siamese abc", "not an index"),
        ("HALF abc", "an unfinished index: run trainer.index again, it goes on"),
        ("SPARSE abc --query-model=RUNS/siamese", "only an index of one vector per text takes"),
        ("SPARSE --model=RUNS/siamese abc", "was made without a model: leave it out"),
        ("SPARSE --approximate=hnsw abc", "has none"),
    ],
    "trainer.search DENSE": [
        ("abc --collection=CLASSES", "is not the collection that"),
        ("abc --model=RUNS/colbert", "is not the model that"),
        ("abc --query-model=RUNS/colbert", "a colbert has no one vector for a text, which the"),
        ("--serve=0 --approximate=hnsw", "approximate-hnsw.faiss: no such file"),
        ("--approximate=centroids abc", "has ivf, pq, hnsw"),
        ("--queries=test", "--queries and --write-run go together"),
        ("--write-run=NEW", "--queries and --write-run go together"),
        ("--queries=dev --write-run=NEW", "it has test, train"),
        ("--queries=test --write-run=TMP", "is a folder: name a file"),
        ("--queries=test --write-run=NEW abc", "--queries names all queries"),
        ("abc --k=0", "'0' is not a whole number above 0"),
        ("--serve=99999", "'99999' is not a port"),
        ("--serve=0 abc", "--serve takes its queries from the page"),
        ("--beside=DENSE --serve=0", "--beside names the same index"),
        ("--beside=TMP/other", "--beside is for the page: add --serve PORT"),
        ("abc 'caf\udce9'", r"QUERY: 'caf\udce9' is not UTF-8; convert it, as iconv does"),
    ],
    "trainer.trace": [
        (
            "recipes/seed_msmarco_passage_ance.yaml refresh.margin=120%",
            "'120%' is not a number, 0 or above, nor a share",
        ),
        ("recipes/splade_doc_small.yaml method.query_prompt=abc", "method.query_prompt: with method.query=tokens no"),
        ("recipes/monobert_small.yaml method.query_prompt=abc", "method.query_prompt: unknown key"),
    ],
    "trainer.trace recipes/bge.yaml": [
        ("'method.loss={softmax: 1, some: 1}'", "method.loss: input should be 'softmax', "),
        ("method.loss.kl=0", "method.loss: input should be greater than 0, not 0"),
        ("method.loss=kl", "method.negatives=step is for method.loss=softmax or hinge, not kl"),
        ("method.candidates.keep=best", "method.candidates.keep: input should be 'positive', not 'best'"),
        ("data.collection=COLLECTION", "method.loss=kl learns a teacher's scores, but split train has none beside"),
    ],
    "trainer.trace recipes/siamese_small.yaml": [
        ("method.ignore_above=-1", "method.ignore_above: input should be greater"),
        (
            "data.collection=COLLECTION method.max_query_tokens=5 method.query_prompt=a-a-a",
            "method: query_prompt has 5 tokens, which leave a text no room: with the 2 around it they are not fewer "
            "than max_query_tokens=5: raise that, or shorten the prompt",
        ),
        ("method.pooling=cls method.prompt_in_pooling=false", "is for method.pooling=mean, not cls: leave it out"),
    ],
    "trainer.trace RECIPE": [
        ("--world-size 3", "data.lanes: 4 lanes cannot be shared by 3 ranks"),
        ("data.mix.a.weigth=1", "data.mix.a.weigth: unknown key; did you mean data.mix.a.weight?"),
        ("data.mix.a.weight=0.00033", "is too small a part of the sum of all"),
        ("--world-size 0", "is not a whole number above 0"),
        ("--workers -1", "is not a whole number above 0"),
        ("--show 0", "is not a whole number above 0"),
        ("--show -3", "is not a whole number above 0"),
    ],
}
TYPED = [(f"{heading} {words}", said) for heading, rows in ROWS.items() for words, said in rows]


@pytest.fixture(scope="module")
def places(
    toy_collection: Path, toy_classes: Path, shards: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """What a command may name; read only."""
    folder = tmp_path_factory.mktemp("places")
    for name in ("empty", "half", "mine", "files"):
        (folder / name).mkdir()
    (folder / "mine" / "thesis.txt").write_text("years")
    (folder / "files" / "a.trec").write_text("")
    shutil.copytree(toy_collection, folder / "collection")
    for name, keys in RUNS.items():
        write_run(folder / "runs" / name, toy_collection / "tokenizer.json", **{"name": name, **keys})
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
        "FILES": folder / "files",
        "NEW": folder / "new",
        "TMP": folder,
    }


@pytest.mark.parametrize(("typed", "said"), TYPED, ids=[ascii(typed[:99]) for typed, _ in TYPED])
def test_bad_input_is_one_line_and_nothing_is_ranked_or_written(
    places: dict[str, Path],
    typed: str,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("compare", "compare_lists"):
        monkeypatch.setattr(evaluation, name, Mock(side_effect=AssertionError("ranked")))
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
    assert line.startswith((module, module.replace("trainer.", "deepsiam ")))  # also its parser
    assert said in line
    assert printed.out == ""
    assert sorted(places["TMP"].rglob("*")) == before
