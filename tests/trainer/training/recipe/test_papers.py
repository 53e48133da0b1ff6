"""Recipes have the hyper-parameters stated in the papers, or in their released code; the others are not checked."""

from functools import reduce

import pytest
import yaml

from deepsiam.models.registry import PRETRAINING
from deepsiam.trainer.training.recipe.schema import kind_of
from deepsiam.trainer.training.recipe.yaml_file import _Loader, load, read
from tests.toy import ROOT

RECIPES = ROOT / "recipes"
BASE = """
.bert: &bert {trunk.num_hidden_layers: 12, trunk.hidden_size: 768, trunk.intermediate_size: 3072}

# Wang et al., section 4.2: batches of 128 samples of 500 sequences of 64 tokens; its baselines have the same steps
.crossed: &crossed {<<: *bert, optimizer.lr: 5e-4, optimizer.warmup_steps: 10000, steps: 125000}
cross_thought: {<<: *crossed, batch.size: 128, method.sequences: 500, method.sequence_tokens: 64,
  method.special_tokens: 5, trunk.max_position_embeddings: 569}
clm: {<<: *crossed, trunk.is_decoder: true, method.max_tokens: 512}
skip_thought: {<<: *crossed, method.max_tokens: 64}

# Humeau et al., section 4.1 and appendix
poly: {<<: *bert, method.tokens: 32000, optimizer.lr: 2e-4, optimizer.betas: [0.9, 0.98],
  optimizer.weight_decay: 0.0, optimizer.schedule: inverse_sqrt}

# Lee et al., section 5.2 and 9.2
ict: {<<: *bert, batch.size: 4096, steps: 100000, method.max_tokens: 288, method.remove: 0.9, optimizer.lr: 1e-4}

# SEED's "RoBERTa (Ours)": the same as SEED itself, sections 4.1 and A.1
mlm: &mlm {<<: *bert, batch.size: 256, method.max_tokens: 512, optimizer.lr: 1e-4, optimizer.betas: [0.9, 0.999],
  optimizer.eps: 1e-6, optimizer.warmup_steps: 10000, steps: 1000000}
seed: {<<: *mlm, trunk.vocab_size: 32768, optimizer.weight_decay: 0.01, optimizer.clip: 1.0,
  trunk.hidden_dropout_prob: 0.1, trunk.attention_probs_dropout_prob: 0.1,
  method.decoder_layers: 3, method.window: 2, method.variant: paper, method.loss_weights: {mlm: 1.0, decoder: 1.0}}
retromae: {<<: *bert, method.encoder_mask: 0.3, method.decoder_mask: 0.5, optimizer.lr: 1e-4}
condenser: {<<: *bert, method.head_layers: 2, optimizer.lr: 1e-4}

# LEAF (Vujanic and Rueckstiess, 2025): vectors alone
distil: {<<: *bert, method.loss: {vectors: 1.0}}

# Wang et al., 2022 (E5), base; the batch is GTE's and nomic-embed's
pairs: {<<: *bert, batch.size: 16384, steps: 20000, data.one_source_per: step, method.negatives: step,
  method.temperature: 0.01, method.similarity: cosine, method.pooling: mean, method.query_prompt: "query: ",
  method.document_prompt: "passage: ", optimizer.lr: 2e-4, optimizer.warmup_steps: 1000, optimizer.weight_decay: 0.01}
"""
TUNED = """
.msmarco: &msmarco {method.projection: 768, method.loss: softmax, method.negatives: own, method.hard_negatives: 1}
seed_msmarco_passage: {<<: *msmarco, batch.size: 256, optimizer.warmup_steps: 1000, steps: 273000}
seed_msmarco_passage_ance: {<<: *msmarco, batch.size: 64, batch.micro: 16, optimizer.lr: 1e-6,
  optimizer.warmup_steps: 5000, method.max_document_tokens: 512, method.max_query_tokens: 64,
  refresh.every: 10000, refresh.depth: 200}
seed_msmarco_document: {<<: *msmarco, batch.size: 64, method.max_document_tokens: 512, method.document_chunks: 1}
seed_mind: {<<: *msmarco, method.max_query_tokens: 512, method.kept_of_query: end}

# Humeau et al., section 5.1; lengths as in ParlAI
.dialogue: &dialogue {optimizer.name: adamax, optimizer.lr: 5e-5, optimizer.warmup_steps: 100,
  optimizer.weight_decay: 0.0, optimizer.plateau: {factor: 0.4, patience: 0}, batch.size: 512,
  method.max_query_tokens: 360, method.max_document_tokens: 72, method.kept_of_query: end}
dialogue_bi: {<<: *dialogue, method.towers: 2, method.pooling: cls, method.negatives: step}
dialogue_poly16: {<<: *dialogue, method.m: 16, method.codes: learnt}
dialogue_poly64: {<<: *dialogue, method.m: 64, method.codes: learnt}
dialogue_poly360: {<<: *dialogue, method.m: 360, method.codes: learnt}
dialogue_cross: {<<: *dialogue, batch.size: 16, optimizer.warmup_steps: 1000, method.hard_negatives: 19}

# Santhanam et al.
colbertv2: {steps: 400000, batch.size: 32, optimizer.lr: 1e-5, optimizer.warmup_steps: 20000,
  method.loss: {softmax: 1.0, kl: 1.0}, method.candidates: {per_query: 64, keep: positive},
  method.max_document_tokens: 220}

# FlagEmbedding's example for BGE, with knowledge distillation
bge: {optimizer.lr: 1e-5, method.temperature: 0.02, method.similarity: cosine, method.pooling: cls,
  method.loss: {softmax: 1.0, kl: 1.0}, method.candidates: {per_query: 8, keep: positive},
  method.max_query_tokens: 512, method.max_document_tokens: 512}

# Nogueira et al., 2019, section 4; 64 triples in both orders
duobert: {batch.size: 64, optimizer.lr: 3e-6, optimizer.warmup_steps: 10000, optimizer.weight_decay: 0.01,
  optimizer.clip: 1.0, steps: 100000, method.max_query_tokens: 64, method.max_duel_tokens: 512}

# Reddy et al., 2024, section 4
label_ranker: {batch.size: 32, optimizer.lr: 5e-6, method.loss: {softmax: 1.0, rank_net: 10.0},
  method.candidates: {per_query: 20, keep: positive},
  method.labels: [A, B, C, D, E, F, G, H, I, J, K, L, M, N, O, P, Q, R, S, T]}

# Wang et al., section 4.2
cross_thought_answers: {batch.size: 80, optimizer.lr: 5e-5, optimizer.warmup_steps: 2220, steps: 20360,
  method.special_tokens: 5, method.hard_negatives: 99}
cross_thought_pairs: {batch.size: 32, optimizer.lr: 1e-5, optimizer.warmup_steps: 7432, steps: 123873,
  method.special_tokens: 5}

# Formal et al., 2021b, and its released code
.splade: &splade {steps: 150000, batch.size: 128, optimizer.lr: 2e-5, optimizer.warmup_steps: 6000,
  method.max_document_tokens: 256, method.document: vocabulary}
splade: {<<: *splade, method.query: encoder}
splade_doc: {<<: *splade, method.query: tokens}
splade_lexical: {<<: *splade, method.query: own_tokens}

# Zhuang and Zuccon, 2021
tildev2: {optimizer.lr: 5e-6, method.hard_negatives: 7, method.max_query_tokens: 16, method.max_document_tokens: 192}
"""
PRETRAINED, FINETUNED = (yaml.load(text, _Loader) for text in (BASE, TUNED))
STATED = {f"{name}_base": stated for name, stated in PRETRAINED.items()} | FINETUNED


@pytest.mark.parametrize("name", [name for name in STATED if not name.startswith(".")])
def test_hyper_parameters_are_the_papers(name: str) -> None:
    path = RECIPES / f"{name}.yaml"
    values = load(kind_of(read(path)), path).model_dump(mode="json")
    found = {key: reduce(lambda section, part: section[part], key.split("."), values) for key in STATED[name]}
    assert found == STATED[name]


def test_every_method_has_a_base_and_a_small_recipe() -> None:
    assert set(PRETRAINING) == {name for name in PRETRAINED if not name.startswith(".")}
    for name in PRETRAINING:
        assert all((RECIPES / f"{name}_{size}.yaml").is_file() for size in ("base", "small"))
