import numpy as np
import pytest
import torch

from deepsiam.models.encode import encode
from deepsiam.models.interface import IGNORED
from deepsiam.models.pretraining.mlm import Mlm
from deepsiam.models.pretraining.seed import SeedConfig
from tests.models import plain

from tests.models.tiny import (
    EXAMPLES,
    MAX_TOKENS,
    VOCABULARY,
    Text,
    batch_of,
    seed,
    seed_batch,
    tensors,
)

VARIANTS = pytest.mark.parametrize("variant", ["paper", "released"])


@VARIANTS
def test_the_decoder_loss_is_equation_10(variant):
    """-log P(x_t | the unmasked tokens before t, h_0 of the masked input), summed over all tokens except [CLS]."""
    model, batch = seed(variant=variant, loss_weights={"mlm": 0}), seed_batch(EXAMPLES, mlm=False)
    arrays = tensors(batch)
    assert (arrays["input_ids"] != arrays["original_ids"]).any()
    h_0 = encode(model.trunk, arrays["input_ids"], arrays["attention_mask"])[:, 0]
    embedding = model.trunk.get_input_embeddings().weight
    expected = 0.0
    for h, ids in zip(h_0, EXAMPLES, strict=True):
        states = model.decoder(h[None], torch.from_numpy(ids)[None], embedding)[0]
        log_p = (states @ embedding.T).log_softmax(-1)
        expected -= sum(log_p[t, ids[t + 1]] for t in range(len(ids) - 1))
    plain.same_losses_and_gradients(model, batch, {"decoder": expected})


@VARIANTS
def test_without_h_0_only_the_tied_embedding_of_the_encoder_gets_a_gradient(variant):
    model = seed(variant=variant)

    def cut(module, args, output):
        output.last_hidden_state = output.last_hidden_state.detach()
        return output

    model.trunk.register_forward_hook(cut)
    model(**tensors(seed_batch(EXAMPLES)))["decoder"].backward()
    touched = {name for name, p in model.named_parameters() if p.grad is not None and p.grad.any()}
    assert {name for name in touched if name.startswith("trunk.")} == {"trunk.embeddings.word_embeddings.weight"}


def test_targets_are_the_next_tokens_even_with_repeated_separators():
    sep = VOCABULARY.sep
    texts = [Text([np.array([7, sep, sep]), np.array([sep])]), Text([np.array([9])])]
    config = SeedConfig(name="seed", max_tokens=MAX_TOKENS, blocks="complete_doc")
    examples = sorted(config.batcher(VOCABULARY).examples(texts), key=len, reverse=True)
    assert examples[0].tolist() == [VOCABULARY.cls, 7, sep, sep, sep, sep, sep]
    arrays, counts, _ = batch_of(config, examples)
    real = arrays["decoder_targets"] != IGNORED
    positions = arrays["decoder_positions"][real]
    assert counts["decoder"] == real.sum() == sum(len(ids) - 1 for ids in examples)
    assert len(arrays["decoder_targets"]) == len(arrays["decoder_positions"]) == 64
    assert (arrays["original_ids"].ravel()[positions + 1] == arrays["decoder_targets"][real]).all()
    assert positions.tolist() == [0, 1, 2, 3, 4, 5, 8, 9]


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
    read = ("input_ids", "attention_mask", "mlm_positions", "mlm_targets")
    assert losses["mlm"].item() == mlm(**{name: arrays[name] for name in read})["mlm"].item()
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
