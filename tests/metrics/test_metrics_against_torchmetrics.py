"""Metrics against torchmetrics, where both define the same thing."""

import warnings

import pytest
import torch
from metric_cases import make

from halftruth.metrics import average_precision, class_and_overall, count, f_beta

_ops = None


@pytest.fixture(scope="module")
def functional():
    """torchmetrics imports torchvision, whose ops are missing where its build is not torch's."""
    global _ops
    try:
        import torchvision  # noqa: F401
    except ImportError:
        pass
    except RuntimeError:
        _ops = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            _ops.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return pytest.importorskip("torchmetrics.functional.classification")


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("seed", [0, 1])
def test_average_precision(functional, seed, unknown):
    scores, labels = (torch.from_numpy(part) for part in make(seed, unknown=unknown))
    # Its labels are 0 and 1; any other number can be the one to leave out.
    target = torch.where(labels == 0, 9, (labels == 1).long())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = functional.multilabel_average_precision(
            scores, target, labels.shape[1], average="none", ignore_index=9
        )
    value = average_precision(scores, labels, ignore_unknown=True)
    has_positive = (labels == 1).any(0)
    torch.testing.assert_close(
        value[has_positive], expected[has_positive].double(), rtol=0, atol=1e-6
    )


@pytest.mark.filterwarnings("ignore:Undefined")
@pytest.mark.parametrize("unknown", [False, True])
def test_f_scores(functional, unknown):
    scores, labels = (torch.from_numpy(part) for part in make(2, unknown=unknown))
    target = torch.where(labels == 0, 9, (labels == 1).long())
    arguments = {"num_labels": labels.shape[1], "threshold": 0.4, "ignore_index": 9}
    expected = functional.multilabel_fbeta_score(scores, target, 2.0, average="none", **arguments)
    value = f_beta(scores, labels, 2.0, 0.4, ignore_unknown=True)
    torch.testing.assert_close(value, expected.double(), rtol=0, atol=1e-6)

    report = class_and_overall(count(scores, labels, 0.4, ignore_unknown=True))
    for name, average in (("CP", "macro"), ("OP", "micro")):
        expected = functional.multilabel_precision(scores, target, average=average, **arguments)
        assert report[name] == pytest.approx(expected.item(), abs=1e-6)
