"""Whether a trunk is causal: found by running it, for no configuration key says so for every type."""

import copy

import torch
from transformers import PreTrainedConfig, PreTrainedModel

ATTRIBUTE = "_sees_no_later_token"  # of a trunk: keeps the answer
ROUNDING = 1e-6  # relative to the largest state; whatever a trunk sees changes a state by far more
SPARE = 4  # tokens besides padding in the vocabulary of a small copy


def is_causal(trunk: PreTrainedModel) -> bool:
    """Whether a token's state is independent of all later tokens.

    The first call runs the trunk, and `build_trunk` makes it; later ones read the answer, so they may come from inside
    forward, also where the weights exist only there (ZeRO-3).
    """
    answer = getattr(trunk, ATTRIBUTE, None)
    return is_causal_now(trunk) if answer is None else bool(answer)


def is_causal_now(trunk: PreTrainedModel) -> bool:
    """Run the trunk, whose configuration has changed, and keep the answer."""
    causal = _sees_no_later_token(trunk)
    setattr(trunk, ATTRIBUTE, causal)
    return causal


@torch.no_grad()
def _sees_no_later_token(trunk: PreTrainedModel) -> bool:
    """Compare the states of a token before two different ones, as an encoder computes them and without dropout."""
    if trunk.device.type == "meta":  # a copy's random weights must not move the run's generator
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            return _sees_no_later_token(_small_copy(trunk))
    ids = torch.tensor(two_texts(trunk.config), device=trunk.device)
    training = trunk.training
    trunk.eval()  # dropout would change the first token's states too
    try:
        states = trunk(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    finally:
        trunk.train(training)
    change = (states[0, 0] - states[1, 0]).abs().max()
    return bool(change <= ROUNDING * states.abs().max())


def two_texts(config: PreTrainedConfig) -> list[list[int]]:
    """Return two texts of two tokens that differ in the last, from the middle of the vocabulary, where none is rare."""
    usable = [i for i in range(config.vocab_size) if i != config.pad_token_id]
    shared, second, third = (usable[(len(usable) // 2 + i) % len(usable)] for i in range(3))
    return [[shared, second], [shared, third]]


def _small_copy(trunk: PreTrainedModel) -> PreTrainedModel:
    """Return a one-layer copy with random weights, to test a trunk that lives on the meta device."""
    config = copy.deepcopy(trunk.config)
    # an embedding with a padding_idx needs more rows than that
    config.num_hidden_layers, config.vocab_size = 1, (config.pad_token_id or 0) + SPARE
    if layer_types := getattr(config, "layer_types", None):
        config.layer_types = layer_types[:1]
    return type(trunk)(config)
