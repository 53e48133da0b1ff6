import torch

from deepsiam.models.layers.pooling import pool, select

MASK = torch.arange(12) < torch.tensor([12, 1, 7])[:, None]


def test_pooling_takes_cls_or_the_last_or_the_mean_or_the_largest_of_the_tokens():
    hidden = torch.randn(3, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    texts = [row[keep] for row, keep in zip(hidden, MASK, strict=True)]
    for pooling, of in {
        "cls": lambda states: states[0],
        "last": lambda states: states[-1],
        "mean": lambda states: states.mean(0),
        "max": lambda states: states.amax(0),
    }.items():
        torch.testing.assert_close(pool(hidden, MASK, pooling), torch.stack([of(states) for states in texts]))
        assert pool(hidden.half(), MASK, pooling).dtype == torch.float32
    assert torch.equal(pool(hidden, MASK.flip(1), "last"), hidden[:, -1])


def test_select_takes_rows_of_the_flattened_batch():
    hidden = torch.arange(12.0).view(2, 3, 2)
    assert select(hidden, torch.tensor([0, 5, 3])).tolist() == [[0, 1], [10, 11], [6, 7]]
