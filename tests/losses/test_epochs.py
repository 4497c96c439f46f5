"""A loss with a schedule says so, and warns in a loop that does not call `start_epoch`."""

import copy
import io
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch

from cases import CASES
from halftruth import losses
from loss_batches import METHODS

ROWS, CLASSES, EPOCHS = 8, 5, 4
TABLE = Path(__file__).parents[2] / "docs" / "methods" / "README.md"
# Settings with which a method does not depend on the epoch, or does where it usually does not.
OTHER = [
    ("splc", {"start": 0}, False),
    ("splc", {"start": 0, "base": "gr"}, True),
    ("gr", {"w": (1, 1), "b": (0, 0), "mu": (0.5, 0.5), "sigma": (1, 1)}, False),
    ("gr", {"trainable": True}, False),
    ("gr", {"trainable": True, "q2": (0.1, 0.5)}, True),
    ("ll-r", {"delta": 0.0}, False),
    ("unified", {"k": (0, 0.5)}, True),
    ("scl", {"start": 0}, False),
    ("any-class", {"base": {"name": "splc", "base": "hill"}}, True),
    ("class-balanced", {"base": "gr"}, True),
    ("consistency", {"base": "ll-ct"}, True),
    ("pseudo-label", {"tau": 0.5, "base": {"name": "em-apl", "warmup": 1}}, True),
]
FLAGGED = [(name, {}) for name in METHODS if losses.registry.get(name).depends_on_epoch]
FLAGGED += [(name, options) for name, options, flag in OTHER if flag]


def build(name: str, **options: object) -> losses.Loss:
    needed = {k: v for k, v in CASES[name].needed.items() if k not in ("counts", "negatives")}
    # Of 4 epochs, some after the warm-up; and a share of 40 entries that is at least one.
    small = {"em-apl": {"warmup": 1}, "ll-r": {"delta": 0.1}, "ll-ct": {"delta": 0.1}}
    return losses.create(name, **{**needed, **small.get(name, {}), **options})


def loop(loss: losses.Loss, tell: bool, end: bool = True) -> list[torch.Tensor]:
    """A training of 4 epochs of 2 batches, with or without calls that tell the epoch."""
    random = torch.Generator().manual_seed(5)
    labels = torch.randint(-1, 2, (ROWS, CLASSES), generator=random)
    index, values = torch.arange(ROWS), []
    logits = 2.5 * torch.randn(loss.views, ROWS, CLASSES, generator=random)
    logits = logits if loss.views > 1 else logits[0]
    scores = 2.5 * torch.randn(ROWS, CLASSES, generator=random)
    loss.begin(labels)
    for epoch in range(EPOCHS):
        if tell:
            loss.start_epoch(epoch, EPOCHS)
        for _ in range(2):
            value = loss(logits.detach().requires_grad_(), labels, index=index)
            if loss.needs_maps:
                maps = logits[..., None, None] + torch.randn(7, 7, generator=random)
                value = value + loss.map_term(maps, index, torch.tensor([[0.0, 0, 1, 1]] * ROWS))
            value.backward()
            values.append(value.detach())
        if tell and end:
            loss.end_epoch(scores)
    return values


def of_epochs(found: list[warnings.WarningMessage]) -> list[str]:
    return [str(w.message) for w in found if "start_epoch() was not called" in str(w.message)]


@pytest.mark.parametrize(
    ("name", "options", "flag"),
    [(name, {}, None) for name in METHODS] + OTHER,
    ids=str,
)
def test_the_value_depends_on_the_epoch_where_the_loss_says_so(name, options, flag):
    plain, told = build(name, **options), build(name, **options)
    assert plain.depends_on_epoch == told.depends_on_epoch
    flag = losses.registry.get(name).depends_on_epoch if flag is None else flag
    assert plain.depends_on_epoch == flag
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        without, with_epochs = loop(plain, tell=False), None
        assert len(of_epochs(found)) == flag
        found.clear()
        with_epochs = loop(told, tell=True)
        assert not of_epochs(found)
    assert any(not torch.equal(a, b) for a, b in zip(without, with_epochs, strict=True)) == flag


@pytest.mark.parametrize(("name", "options"), FLAGGED, ids=str)
def test_the_warning_says_what_happens_and_what_to_call(name, options):
    loss = build(name, **options)
    with pytest.warns(UserWarning, match=r"start_epoch\(\) was not called") as found:
        loop(loss, tell=False)
    (text,) = of_epochs(found)
    assert re.match(r"\w+ depends on the epoch", text)
    assert re.search(r"epoch 0 of 1, so \w.*\. Call loss\.start_epoch\(epoch, epochs\)", text)
    makes_labels = loss.innermost.ends_epochs
    assert ("loss.end_epoch()" in text) == makes_labels
    assert found[-1].filename == __file__, "at the line that called the loss"


def count_warnings(call) -> int:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return len(of_epochs(found))


def test_one_warning_at_the_second_training_batch():
    loss, labels = losses.create("splc"), torch.zeros(4, 3)

    def train(loss: losses.Loss = loss) -> None:
        loss(torch.randn(4, 3, requires_grad=True), labels).backward()

    def score() -> None:
        with torch.no_grad():
            loss(torch.randn(4, 3, requires_grad=True), labels)
            loss.value_and_grad(torch.randn(4, 3), labels)
        loss(torch.randn(4, 3), labels)
        loss.eval()(torch.randn(4, 3, requires_grad=True), labels)
        loss.train()

    assert [count_warnings(f) for f in (score, train, score, score)] == [0, 0, 0, 0]
    copies = [copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))]
    assert count_warnings(train) == 1
    assert count_warnings(train) == 0
    for twin in copies:
        assert count_warnings(lambda twin=twin: train(twin)) == 1
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert count_warnings(lambda twin=twin: [train(twin) for _ in range(3)]) == 0


def test_gradients_without_autograd_are_training_batches():
    loss, z = losses.create("gr"), torch.randn(4, 3, requires_grad=True)
    assert count_warnings(lambda: [loss.value_and_grad(z, torch.zeros(4, 3)) for _ in "123"]) == 1


def test_a_loss_that_was_told_the_epoch_does_not_warn_as_a_copy_or_from_a_file():
    loss, labels = losses.create("ll-r"), torch.zeros(4, 3)
    loss.start_epoch(2, 5)
    file = io.BytesIO()
    torch.save(loss.state_dict(), file)
    file.seek(0)
    loaded = losses.create("ll-r")
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)), loaded):
        batches = [torch.randn(4, 3, requires_grad=True) for _ in range(3)]
        assert count_warnings(lambda t=twin, b=batches: [t(z, labels) for z in b]) == 0


@pytest.mark.parametrize("name", ["em-apl", "mime"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_end_epoch_without_start_epoch_is_an_error(name, wrapped):
    loss = losses.create("any-class", base=name) if wrapped else losses.create(name)
    loss.begin(torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"start_epoch\(\) was not called. Call loss.start_epoch"):
        loss.end_epoch(torch.randn(4, 3))


@pytest.mark.parametrize("name", METHODS)
def test_docstring_and_table_name_the_call(name):
    cls = losses.registry.get(name)
    needs = " ".join((cls.__doc__ or "").split()).split("Needs:")[1]
    row = next(line for line in TABLE.read_text("utf-8").splitlines() if f"[{name}](" in line)
    assert ("start_epoch()" in needs.split(";")[0]) == cls.depends_on_epoch
    assert ("`start_epoch()`" in row.split("|")[5]) == cls.depends_on_epoch
    card = TABLE.with_name(f"{name}.md").read_text("utf-8")
    assert "start_epoch(" in card or not cls.depends_on_epoch


def test_a_compiled_loss_works_without_epochs():
    loss = losses.create("splc")
    compiled = torch.compile(loss, backend="eager", fullgraph=True)
    for _ in range(3):
        compiled(torch.randn(4, 3, requires_grad=True), torch.zeros(4, 3)).backward()
