import torch

from deepsiam.models.layers.pooling import pool, select

MASK = torch.arange(12) < torch.tensor([12, 1, 7])[:, None]


def test_pooling_takes_cls_or_the_last_or_the_mean_or_the_largest_of_the_tokens():
    hidden = torch.randn(3, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.equal(pool(hidden, MASK, "cls"), hidden[:, 0])
    lasts = torch.stack([row[keep][-1] for row, keep in zip(hidden, MASK, strict=True)])
    assert torch.equal(pool(hidden, MASK, "last"), lasts)
    assert torch.equal(pool(hidden, MASK.flip(1), "last"), hidden[:, -1])
    means = torch.stack([row[keep].mean(0) for row, keep in zip(hidden, MASK, strict=True)])
    torch.testing.assert_close(pool(hidden, MASK, "mean"), means)
    largest = torch.stack([row[keep].amax(0) for row, keep in zip(hidden, MASK, strict=True)])
    assert torch.equal(pool(hidden, MASK, "max"), largest)
    assert pool(hidden.half(), MASK, "max").dtype == torch.float32
    assert pool(hidden.bfloat16(), MASK, "mean").dtype == pool(hidden.half(), MASK, "cls").dtype == torch.float32
    assert pool(hidden.half(), MASK, "last").dtype == torch.float32


def test_select_takes_rows_of_the_flattened_batch():
    hidden = torch.arange(12.0).view(2, 3, 2)
    assert select(hidden, torch.tensor([0, 5, 3])).tolist() == [[0, 1], [10, 11], [6, 7]]
