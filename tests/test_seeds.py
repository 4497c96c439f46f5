"""Every seed from 0 to 2^32 - 1 works, any other is one error; keys of rows never leave 64 bits."""

import inspect
import pkgutil
from importlib import import_module

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

import halftruth
from halftruth import HalftruthClassifier, audit, data, demo, labels, losses
from halftruth.audit.make_audit import make_audit
from halftruth.audit.plan import plan_labels
from halftruth.bench import Grid, datasets
from halftruth.data.transforms import keyed_uniform
from halftruth.estimator import score_out_of_sample
from halftruth.presence.estimated_scores import estimate_scores
from halftruth.presence.probabilities import fit_probabilities
from halftruth.presence.propensity import choose_rows_to_complete, find_preference
from halftruth.presence.verification import plan_verification
from halftruth.train.config import Config, ConfigError
from halftruth.train.inputs.batches import _mix_bits, make_keys

LARGEST = 2**32 - 1
SEEDS, EPOCHS = st.integers(0, LARGEST), st.integers(0, 10**6)


# ---------------------------------------------------------------------- keys of rows


@given(seed=SEEDS, epoch=EPOCHS, count=st.integers(2, 10**9), data=st.data())
@example(seed=LARGEST, epoch=10**6, count=10**9, data=None)
def test_keys_do_not_overflow_nor_depend_on_the_batch(seed, epoch, count, data):
    some = [0, count - 1, count // 2]
    if data is not None:
        some += data.draw(st.lists(st.integers(0, count - 1), max_size=20))
    rows = torch.tensor(some)
    keys = make_keys(seed, epoch, rows, count)
    exact = [((seed * 1_000_003 + epoch) * count + row) % 2**64 for row in some]
    assert [key % 2**64 for key in keys.tolist()] == exact
    # Two processes, or batches of one row.
    for part in (rows[::2], rows[1:]):
        assert set(make_keys(seed, epoch, part, count).tolist()) <= set(keys.tolist())
    assert len(set(keys.tolist())) == len(set(some))


def test_keys_and_their_numbers_do_not_collide():
    random = np.random.default_rng(0)
    points = {tuple(random.integers(0, (2**32, 10**6, 10**9)).tolist()) for _ in range(3_000)}
    # Neighbours collide first, if any do.
    for near in (0, LARGEST - 9):
        points |= {(near + s, e, r) for s in range(5) for e in range(12) for r in range(50)}
    keys = [make_keys(s, e, torch.tensor([r]), 10**9) for s, e, r in points]
    found = torch.cat(keys)
    assert len(found.unique()) == len(points)
    # Three draws of 24 bits: equal by chance in 1 of 10^12 pairs of rows.
    assert len(keyed_uniform(found, 3).unique(dim=0)) == len(points)


# ---------------------------------------------------------------------- the range

TABLE = np.eye(30, 3, dtype=int)[:, [0, 1, 2]] | np.eye(30, 3, k=-3, dtype=int)
SHOWN = np.tile(np.array([[1, 0], [0, 1], [0, 0]], np.int8), (30, 1))
# They rank the labels; without that, nothing is estimated from them.
SCORES = (SHOWN + np.random.default_rng(0).random(SHOWN.shape)) / 2


def check_config(seed):
    problems = [text for text in Config(seed=seed).problems() if "seed" in text]
    if problems:
        raise ConfigError(problems)


# Every public name with a seed, by its argument; and those that the command line calls.
USES = {
    "labels.single_positive": lambda s: labels.single_positive(TABLE, s),
    "labels.single_positive_published": lambda s: labels.single_positive_published(TABLE, s),
    "labels.drop_positives": lambda s: labels.drop_positives(TABLE, 0.5, s),
    "labels.keep_known": lambda s: labels.keep_known(TABLE, 0.5, s),
    "labels.subsample_negatives": lambda s: labels.subsample_negatives(TABLE, 1, s),
    "labels.keep_by_weight": lambda s: labels.keep_by_weight(TABLE, np.ones(3), seed=s),
    "losses.ROLE": lambda s: losses.create("role", expected_positives=1.0, seed=s).begin(
        torch.from_numpy(SHOWN)
    ),
    "data.split_rows": lambda s: data.split_rows(10, seed=s),
    "data.fold_of_rows": lambda s: data.fold_of_rows(10, 2, s),
    "data.choose_splits": lambda s: data.choose_splits(10, seed=s),
    "audit.calibrate": lambda s: audit.calibrate(SHOWN, SCORES, seed=s),
    "bench.datasets.hide": lambda s: datasets.hide(TABLE, "complete", s),
    "train.Config": check_config,
    "HalftruthClassifier": lambda s: HalftruthClassifier("bce", epochs=1, random_state=s).fit(
        SCORES, SHOWN
    ),
    "estimator.score_out_of_sample": lambda s: score_out_of_sample(
        LogisticRegression(), SCORES, SHOWN, seed=s
    ),
    "presence.fit_probabilities": lambda s: fit_probabilities(SHOWN, SCORES, seed=s),
    "presence.estimate_scores": lambda s: estimate_scores(SCORES, SHOWN, 0.5, seed=s),
    "presence.find_preference": lambda s: find_preference(SHOWN, SHOWN, seed=s),
    "presence.choose_rows_to_complete": lambda s: choose_rows_to_complete(SCORES, seed=s),
    "presence.calibrate": lambda s: audit.calibrate(SHOWN, SCORES, seed=s),
    "presence.plan_verification": lambda s: plan_verification(SCORES, SHOWN, 0.5, seed=s),
}
# Settings of whole runs, a record, and names that hand their seed to one of those above.
NOT_CALLED = {
    "bench.Grid", "bench.datasets.load", "demo.make_scenes", "demo.run_demo",
    "presence.VerificationPlan",
}  # fmt: skip


def takes_a_seed(value):
    try:
        names = set(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return False
    return bool(names & {"seed", "seeds", "random_state"})


def test_the_list_has_every_public_name_with_a_seed():
    rooms = [m.name for m in pkgutil.iter_modules(halftruth.__path__) if m.ispkg]
    found = {
        f"{room}.{name}"
        for room in ["bench.datasets", *rooms]
        for name in getattr(import_module(f"halftruth.{room}"), "__all__", ())
        if takes_a_seed(getattr(import_module(f"halftruth.{room}"), name))
    }
    found |= {name for name in halftruth.__all__ if takes_a_seed(getattr(halftruth, name))}
    known = {*USES, *NOT_CALLED, "estimator.HalftruthClassifier"}
    assert found <= known, found - known


@pytest.mark.parametrize("name", USES)
def test_every_seed_of_the_range_works(name):
    for seed in (0, np.uint32(LARGEST)):
        USES[name](seed)


@pytest.mark.parametrize("name", USES)
def test_any_other_seed_is_one_error(name):
    argument = "random_state" if name == "HalftruthClassifier" else "seed"
    for seed in (-1, 2**32, 1.5, "1", True):
        with pytest.raises(ValueError) as error:
            USES[name](seed)
        expected = f"{argument}: expected a whole number from 0 to 2^32 - 1, got {seed!r}"
        assert expected in str(error.value)


def test_whole_runs_check_their_seeds_before_they_begin(tmp_path):
    expected = "expected a whole number from 0 to 2^32 - 1"
    begun = tmp_path / "run"
    for call in (
        lambda: halftruth.fit("missing.csv", "missing", out=begun, seed=-1),
        lambda: demo.run_demo(begun, seed=2**32),
        lambda: demo.make_scenes(begun, seed=-1),
        lambda: datasets.load("voc2012", begun, seed=-1),
        lambda: datasets.load("voc2012", begun, split_seed=-1),
        lambda: make_audit("missing.csv", out=begun, seed=-1),
        lambda: plan_labels(None, begun, budget=1, seed=-1),
    ):
        with pytest.raises(ValueError, match=expected.replace("^", r"\^")):
            call()
    assert not begun.exists()
    for wrong in ({"seeds": [0, 2**32]}, {"label_seed": -1}):
        problems = Grid(data={}, methods={}, **wrong).problems()
        assert any("a whole number from 0 to 2^32 - 1" in text for text in problems)


def test_a_classifier_takes_its_seed_from_anywhere():
    for state in (None, np.random.RandomState(0)):
        HalftruthClassifier("bce", epochs=1, random_state=state).fit(SCORES, SHOWN)


@pytest.mark.parametrize("state", [42, 2**31 - 1])
def test_many_rows_are_trained_with_any_seed(state):
    x = np.linspace(-1, 1, 20_000, dtype=np.float32)[:, None]
    model = HalftruthClassifier("bce", epochs=1, batch_size=5_000, random_state=state)
    assert model.fit(x, (x > 0).astype(int)).predict_proba(x[:3]).shape[0] == 3


def test_the_bits_of_keys_are_mixed_as_published():
    """The first numbers of SplitMix64 with seed 0 (Steele, Lea and Flood 2014)."""
    step, bits = 0x9E3779B97F4A7C15, 2**64
    found = [_mix_bits(k * step % bits) for k in range(3)]
    assert found == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
