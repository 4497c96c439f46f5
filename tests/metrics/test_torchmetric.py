"""The metrics as one torchmetrics metric."""

import pytest
import torch

from halftruth.metrics import evaluate

# First: it also loads a torchvision that does not fit torch, which torchmetrics imports.
try:
    from halftruth.metrics.torchmetric import MultiLabelScores
except ImportError as error:
    pytest.skip(str(error), allow_module_level=True)


def make_batches():
    torch.manual_seed(0)
    scores, labels = torch.rand(30, 4), torch.randint(-1, 2, (30, 4))
    return scores, labels, list(zip(scores.split(7), labels.split(7), strict=True))


def test_batches_give_the_scores_of_all_rows():
    scores, labels, batches = make_batches()
    metric = MultiLabelScores()
    for part in batches:
        metric.update(*part)
    found = metric.compute()
    expected = evaluate(scores, labels)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, nan_ok=True), name


def test_it_works_in_a_collection_and_can_be_reset():
    scores, labels, _ = make_batches()
    both = pytest.importorskip("torchmetrics").MetricCollection({"all": MultiLabelScores()})
    both.update(scores, labels)
    assert "mAP" in " ".join(both.compute())
    both.reset()
    assert both["all"].preds == []


def test_options_go_to_evaluate():
    scores, labels, _ = make_batches()
    metric = MultiLabelScores(options={"threshold": 0.9})
    metric.update(scores, labels)
    assert float(metric.compute()["OF1"]) == pytest.approx(
        evaluate(scores, labels, threshold=0.9)["OF1"]
    )


@pytest.mark.parametrize(
    ("preds", "target", "words"),
    [
        (torch.rand(3), torch.ones(3), "shapes"),
        (torch.rand(3, 2), torch.ones(3, 4), "shapes"),
        (torch.rand(2, 2), torch.full((2, 2), 7), "labels"),
    ],
)
def test_a_bad_batch_is_an_error(preds, target, words):
    with pytest.raises(ValueError, match=words):
        MultiLabelScores().update(preds, target)
