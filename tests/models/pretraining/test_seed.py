import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_model, save_model

from deepsiam.models.batching.packing import pad
from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.mlm import Mlm, MlmBatcher, MlmConfig
from deepsiam.models.pretraining.seed import SeedBatcher, SeedConfig
from tests.models.checks import gradients
from tests.models.tiny import MAX_TOKENS, VOCABULARY, Text, blocks, documents, rngs, seed, seed_batch, tensors

VARIANTS = pytest.mark.parametrize("variant", ["paper", "released"])
SENTENCES = st.lists(st.lists(st.integers(1, 20), min_size=1, max_size=3), min_size=1, max_size=4)
EXAMPLES = blocks([20], [7, 5], [1], [2, 2, 2], rng=5)
MLM_ARRAYS = MlmBatcher(MlmConfig(name="mlm", max_tokens=MAX_TOKENS), VOCABULARY).micro_batch(EXAMPLES, rngs(4)).arrays


@VARIANTS
def test_the_decoder_loss_is_equation_10(variant):
    """-log P(x_t | the unmasked tokens before t, h_0 of the masked input), summed over all tokens except [CLS]."""
    model, arrays = seed(variant=variant), tensors(seed_batch(EXAMPLES))
    assert (arrays["input_ids"] != arrays["original_ids"]).any()
    h_0 = encode(model.trunk, arrays["input_ids"], arrays["attention_mask"])[:, 0]
    embedding = model.trunk.get_input_embeddings().weight
    expected = 0.0
    for h, ids in zip(h_0, EXAMPLES, strict=True):
        states = model.decoder(h[None], torch.from_numpy(ids)[None], embedding)[0]
        log_p = (states @ embedding.T).log_softmax(-1)
        expected -= sum(log_p[t, ids[t + 1]] for t in range(len(ids) - 1))
    torch.testing.assert_close(model(**arrays)["decoder"], expected, rtol=1e-10, atol=0)


@VARIANTS
def test_without_h_0_only_the_tied_embedding_of_the_encoder_gets_a_gradient(variant):
    model = seed(variant=variant)

    def cut(module, args, output):
        output.last_hidden_state = output.last_hidden_state.detach()
        return output

    model.trunk.register_forward_hook(cut)
    model(**tensors(seed_batch(EXAMPLES)))["decoder"].backward()
    touched = {name for name, grad in gradients(model).items() if grad is not None and grad.any()}
    assert {name for name in touched if name.startswith("trunk.")} == {"trunk.embeddings.word_embeddings.weight"}


@VARIANTS
@pytest.mark.parametrize(("layers", "window"), [(3, 2), (1, 8), (5, "all")])
def test_one_embedding_serves_all_uses_also_after_save_and_load(variant, layers, window, tmp_path):
    options = {"variant": variant, "decoder_layers": layers, "window": window}
    model = seed(**options)
    name = "trunk.embeddings.word_embeddings.weight"
    table = model.get_parameter(name)
    with_vocabulary = [key for key, value in model.state_dict().items() if VOCABULARY.vocab_size in value.shape]
    assert with_vocabulary == [name, "lm_head.bias"]
    assert {key.split(".")[0] for key in model.state_dict()} == {"trunk", "lm_head", "decoder"}

    arrays = tensors(seed_batch(EXAMPLES))
    before = {key: value.item() for key, value in model(**arrays).items()}
    save_model(model, str(tmp_path / "model.safetensors"))
    other = seed(**options)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.zero_()
    load_model(other, str(tmp_path / "model.safetensors"))
    assert {key: value.item() for key, value in other(**arrays).items()} == before

    # all four uses read the same table: decoder input, both projections (checked here) and encoder input
    other(**arrays)["decoder"].backward()
    rows = other.get_parameter(name).grad.any(dim=1)
    assert rows.all()  # a softmax over the vocabulary has a gradient at every row
    with torch.no_grad():
        table.mul_(0.5)
    after = model(**arrays)
    assert all(after[key].item() != before[key] for key in before)


def test_targets_are_the_next_tokens_even_with_repeated_separators():
    sep = VOCABULARY.sep
    texts = [Text([np.array([7, sep, sep]), np.array([sep])]), Text([np.array([9])])]
    batcher = SeedBatcher(SeedConfig(name="seed", max_tokens=MAX_TOKENS, blocks="complete_doc"), VOCABULARY)
    examples = sorted(batcher.examples(texts), key=len, reverse=True)
    assert examples[0].tolist() == [VOCABULARY.cls, 7, sep, sep, sep, sep, sep]
    arrays, counts, _ = batcher.micro_batch(examples, rngs(2))
    real = arrays["decoder_targets"] != IGNORED
    positions = arrays["decoder_positions"][real]
    assert counts["decoder"] == real.sum() == sum(len(ids) - 1 for ids in examples)
    assert len(arrays["decoder_targets"]) == len(arrays["decoder_positions"]) == 64
    assert (arrays["original_ids"].ravel()[positions + 1] == arrays["decoder_targets"][real]).all()
    assert positions.tolist() == [0, 1, 2, 3, 4, 5, 8, 9]


@given(SENTENCES, st.sampled_from(["complete", "complete_doc"]), st.integers(8, MAX_TOKENS))
def test_targets_are_the_next_tokens_of_any_documents(lengths, packing, max_tokens):
    batcher = SeedBatcher(SeedConfig(name="seed", max_tokens=max_tokens, blocks=packing), VOCABULARY)
    examples = batcher.examples(documents(*lengths))
    arrays, counts, _ = batcher.micro_batch(examples, rngs(len(examples)))
    real = arrays["decoder_targets"] != IGNORED
    positions = arrays["decoder_positions"][real]
    assert counts["decoder"] == real.sum() == sum(len(ids) - 1 for ids in examples)
    assert (arrays["original_ids"].ravel()[positions + 1] == arrays["decoder_targets"][real]).all()
    assert (arrays["attention_mask"].ravel()[positions + 1]).all()
    assert len(set(positions.tolist())) == len(positions)
    assert (arrays["original_ids"] == pad(examples, max_tokens, VOCABULARY.pad)[0]).all()


@VARIANTS
def test_one_batch_of_eight_equals_eight_micro_batches(variant):
    examples = blocks([20], [7, 5], [1], [2, 2, 2], [3], [15], [1], [9, 9], rng=9)
    model = seed(variant=variant)

    def step(micro_batches):
        """The trainer's rule: divide loss sums by global counts."""
        counts = {name: sum(batch.counts[name] for batch in micro_batches) for name in ("mlm", "decoder")}
        model.zero_grad()
        total = 0.0
        for batch in micro_batches:
            loss = sum(value / counts[name] for name, value in model(**tensors(batch)).items())
            loss.backward()
            total += loss.item()
        return counts, total, gradients(model)

    whole = step([seed_batch(examples)])
    parts = step([seed_batch([ids], start=i) for i, ids in enumerate(examples)])
    assert whole[0] == parts[0]
    assert len({len(ids) for ids in examples}) > 3  # unequal counts
    assert whole[1] == pytest.approx(parts[1], rel=1e-12)
    for name, gradient in whole[2].items():
        torch.testing.assert_close(gradient, parts[2][name], rtol=0, atol=1e-12, msg=name)


def decoder_loss(model, arrays, cls):
    """The decoder's loss on a micro-batch with h_0 `cls`, by full logits."""
    embedding = model.trunk.get_input_embeddings().weight
    log_p = (model.decoder(cls, arrays["original_ids"], embedding) @ embedding.T).log_softmax(-1).flatten(0, 1)
    real = arrays["decoder_targets"] != IGNORED
    return -log_p[arrays["decoder_positions"][real], arrays["decoder_targets"][real]].sum()


def trained(model, arrays):
    """Return the names of the parameters that one step of Adam on all losses changes."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-2)
    sum(model(**arrays).values()).backward()
    optimizer.step()
    return {name for name, p in model.named_parameters() if not torch.equal(p, before[name])}


@VARIANTS
@pytest.mark.parametrize("window", [2, "all"])
def test_with_a_frozen_encoder_only_the_decoder_learns(variant, window):
    free = seed(variant=variant, window=window)
    model = seed(variant=variant, window=window, freeze_encoder=True)
    model.load_state_dict({k: v for k, v in free.state_dict().items() if not k.startswith("lm_head.")})
    arrays = tensors(seed_batch(EXAMPLES, mlm=False))
    losses = model(**arrays)
    assert losses.keys() == seed_batch(EXAMPLES, mlm=False).counts.keys() == {"decoder"}
    assert losses["decoder"].item() == free(**tensors(seed_batch(EXAMPLES)))["decoder"].item()
    names = {name for name, p in model.named_parameters() if p.requires_grad}
    assert names == {name for name, _ in model.named_parameters() if name.startswith("decoder.")}
    assert trained(model, arrays) == names
    assert all(p.grad is None for p in model.trunk.parameters())


def test_a_frozen_encoder_runs_without_dropout_and_the_decoder_with_it():
    config = {"hidden_dropout_prob": 0.5, "attention_probs_dropout_prob": 0.5}
    model = seed(config, freeze_encoder=True)
    arrays = tensors(seed_batch(EXAMPLES, mlm=False))
    for _ in range(2):  # as built, and again after an evaluation
        h_0 = [encode(model.trunk, arrays["input_ids"], arrays["attention_mask"]) for _ in range(2)]
        assert torch.equal(*h_0)
        assert model(**arrays)["decoder"].item() != model(**arrays)["decoder"].item()
        assert model.decoder.training
        model.eval()
        assert model(**arrays)["decoder"].item() == model(**arrays)["decoder"].item()
        assert model.train() is model


@VARIANTS
def test_without_cls_the_decoder_reads_nothing_from_the_encoder(variant):
    model, arrays = seed(variant=variant, cls=False), tensors(seed_batch(EXAMPLES))
    losses = model(**arrays)
    torch.testing.assert_close(losses["decoder"], decoder_loss(model, arrays, None), rtol=1e-10, atol=0)
    mlm = Mlm(model.trunk)
    mlm.lm_head = model.lm_head
    assert losses["mlm"].item() == mlm(**{n: x for n, x in arrays.items() if n in MLM_ARRAYS})["mlm"].item()
    losses["decoder"].backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name for name in touched if not name.startswith("decoder.")} == {"trunk.embeddings.word_embeddings.weight"}
    assert not [name for name, _ in model.named_parameters() if "cross_attention" in name]
    other = {**arrays, "input_ids": arrays["input_ids"].flip(0)}
    assert model(**other)["decoder"].item() == losses["decoder"].item() != model(**other)["mlm"].item()
    assert model(**arrays, swap=True)["decoder"].item() == losses["decoder"].item()


@VARIANTS
@pytest.mark.parametrize("freeze", [False, True])
def test_with_neither_cls_nor_mlm_no_encoder_runs(variant, freeze):
    model = seed(variant=variant, cls=False, freeze_encoder=freeze, loss_weights={"mlm": 0})
    arrays, runs = tensors(seed_batch(EXAMPLES, mlm=False)), []
    model.trunk.register_forward_hook(lambda *args: runs.append(args))
    loss = model(**arrays)["decoder"]
    torch.testing.assert_close(loss, decoder_loss(model, arrays, None), rtol=1e-10, atol=0)
    names = {name for name, _ in model.named_parameters() if name.startswith("decoder.")}
    names |= set() if freeze else {"trunk.embeddings.word_embeddings.weight"}
    assert {name for name, p in model.named_parameters() if p.requires_grad} == trained(model, arrays) == names
    assert not runs


def test_a_frozen_seed_encoder_has_no_masked_words() -> None:
    config = SeedConfig.model_validate({"name": "seed", "freeze_encoder": True})
    assert config.weights == {"decoder": 1.0}
    assert config.needs_trained_encoder
