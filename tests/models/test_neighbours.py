"""Labels of the nearest rows: against a slow reference, and from a checkpoint."""

import numpy as np
import pytest
import torch

from halftruth.models.neighbours import Neighbours

ROWS, FEATURES, CLASSES = 70, 6, 4


def make(rows: int = ROWS, count: int = 8) -> tuple[Neighbours, np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    x = random.normal(size=(rows, FEATURES))
    labels = random.random((rows, CLASSES)) < 0.3
    member = Neighbours(FEATURES, CLASSES, rows=rows, count=count)
    return member.set(torch.from_numpy(x).float(), torch.from_numpy(labels)), x, labels


def slow_shares(new: np.ndarray, x: np.ndarray, labels: np.ndarray, count: int) -> np.ndarray:
    stored = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float16).astype(float)
    prior, found = labels.mean(axis=0), []
    for row in new:
        similarity = stored @ (row / np.linalg.norm(row))
        votes, total = np.zeros(labels.shape[1]), 0.0
        for at in np.argsort(-similarity)[:count]:
            weight = max(similarity[at], 1e-3) ** 2
            votes += weight * labels[at]
            total += weight
        found.append((votes + prior) / (total + 1))
    return np.array(found)


@pytest.mark.parametrize("count", [1, 8, 200])
def test_shares_equal_a_slow_reference(count):
    member, x, labels = make(count=count)
    new = np.random.default_rng(1).normal(size=(20, FEATURES))
    expected = np.clip(slow_shares(new, x, labels, count), 1 / 400, 1 - 1 / 400)
    got = torch.sigmoid(member.double()(torch.from_numpy(new))).numpy()
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_similarity_does_not_depend_on_the_length_of_a_row():
    member, x, _ = make()
    rows = torch.from_numpy(x[:5]).float()
    torch.testing.assert_close(member(rows), member(10 * rows), rtol=1e-3, atol=1e-3)


def test_the_order_of_equal_rows_does_not_matter():
    """Which of them `topk` returns differs between devices."""
    random = np.random.default_rng(0)
    x = np.repeat(random.normal(size=(3, FEATURES)), 20, axis=0)
    labels = random.random((60, CLASSES)) < 0.3
    new, found = torch.from_numpy(random.normal(size=(9, FEATURES))).float(), []
    for order in (np.arange(60), np.arange(60)[::-1].copy()):
        member = Neighbours(FEATURES, CLASSES, rows=60, count=30)
        member.set(torch.from_numpy(x[order]).float(), torch.from_numpy(labels[order]))
        found.append(member(new))
    torch.testing.assert_close(*found)
    share = torch.sigmoid(found[0])
    assert not torch.allclose(share[0], share[1], atol=1e-3)


def test_a_row_of_zeros_gets_about_the_prior():
    member, _, labels = make()
    share = torch.sigmoid(member(torch.zeros(1, FEATURES))).numpy()
    np.testing.assert_allclose(share[0], labels.mean(axis=0), atol=1e-3)


def test_neighbours_are_built_again_from_their_layout():
    member, x, _ = make(rows=5)
    assert member.layout == {"rows": 5, "count": 5}
    again = Neighbours(FEATURES, CLASSES, **member.layout)
    again.load_state_dict(member.state_dict())
    rows = torch.from_numpy(x).float()
    assert torch.equal(again(rows), member(rows))


def test_rows_stay_in_16_bits_in_a_model_of_double_precision():
    member = Neighbours(3, 2, rows=5)
    member.set(torch.randn(5, 3), torch.ones(5, 2))
    x = torch.randn(2, 3)
    before = member(x)
    member = torch.nn.Sequential(member).double()[0]
    assert member.rows.dtype == torch.float16
    torch.testing.assert_close(member(x.double()).float(), before, atol=1e-3, rtol=1e-3)
