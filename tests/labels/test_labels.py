"""The label coding: accepted and refused input, conversions, LabelMatrix."""

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from halftruth import labels
from halftruth.labels import ABSENT, PRESENT, UNKNOWN, LabelMatrix, check, hiding

CODES = arrays(np.int8, array_shapes(min_dims=2, max_dims=2), elements=st.sampled_from([-1, 0, 1]))
ALL_THREE = np.array([[1, 0, -1], [-1, 1, 0]], dtype=np.int8)


def test_plus_is_present_minus_is_absent():
    assert (PRESENT, UNKNOWN, ABSENT) == (1, 0, -1)


@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "f2", "f4", "f8", "O", "U2"])
def test_check_accepts_every_number_type(kind):
    checked = check(ALL_THREE.astype(kind))
    assert checked.dtype == np.int8
    np.testing.assert_array_equal(checked, ALL_THREE)


@pytest.mark.parametrize("kind", ["?", "u1", "u2", "u4", "u8"])
def test_check_accepts_types_without_a_sign(kind):
    zero_one = np.array([[1, 0], [0, 1]])
    np.testing.assert_array_equal(check(zero_one.astype(kind)), zero_one)


@pytest.mark.parametrize(
    "kind", [torch.int8, torch.int16, torch.int64, torch.float16, torch.bfloat16, torch.float64]
)
def test_check_returns_tensors_for_tensors(kind):
    checked = check(torch.from_numpy(ALL_THREE).to(kind).requires_grad_(kind.is_floating_point))
    assert isinstance(checked, torch.Tensor)
    assert checked.dtype == torch.int8
    assert checked.tolist() == ALL_THREE.tolist()


@pytest.mark.parametrize(
    "kind", [torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64]
)
def test_check_keeps_tensors_without_a_sign(kind):
    checked = check(torch.tensor([[1, 0]]).to(kind))
    assert isinstance(checked, torch.Tensor)
    assert checked.tolist() == [[1, 0]]


@given(CODES)
def test_check_is_the_identity_on_codes(codes):
    assert check(codes) is codes
    np.testing.assert_array_equal(check(codes.tolist()), codes)
    np.testing.assert_array_equal(check(codes.astype(float)[::-1].T), codes[::-1].T)


def test_check_does_not_copy_an_int8_tensor():
    tensor = torch.from_numpy(ALL_THREE.copy())
    assert check(tensor) is tensor


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (0, 0), (1, 1)])
@pytest.mark.parametrize("make", [np.zeros, torch.zeros])
def test_empty_and_single_cell_labels_pass(make, shape):
    assert tuple(check(make(shape)).shape) == shape


# 257, 2**32 + 1 and 2**64 - 1 would become 1, 1 and -1 if they were truncated to int8.
@pytest.mark.parametrize(
    "value", [2, -2, 0.5, 1e-9, 127, -128, 255, 257.0, 1e30, np.inf, -np.inf, 2**32 + 1, np.nan]
)
@pytest.mark.parametrize("make", [np.array, torch.tensor])
def test_a_value_outside_the_coding_is_named_with_its_place(make, value):
    bad = [[1, 0, -1], [0, 0, 0], [0, value, 2]]
    with pytest.raises(
        ValueError, match=r"labels\[2, 1\] \(class 'dog'\) is .*; expected 1 \(pres"
    ):
        check(make(bad), classes=["cat", "dog", "cow"])


@pytest.mark.parametrize("wrap", [np.asarray, torch.from_numpy])
def test_unsigned_numbers_do_not_wrap_around(wrap):
    for kind in (np.uint8, np.uint16, np.uint32, np.uint64):
        with pytest.raises(ValueError, match=rf"labels\[0, 1\] is {np.iinfo(kind).max}"):
            check(wrap(np.array([[1, np.iinfo(kind).max]], dtype=kind)))


@pytest.mark.parametrize("value", [2, -2, 0.5, 256, 1e30, float("inf"), float("nan")])
def test_a_type_that_numpy_lacks_is_checked_too(value):
    with pytest.raises(ValueError, match=r"labels\[1, 0\] is "):
        check(torch.tensor([[1, 0], [value, -1]], dtype=torch.bfloat16))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_labels_stay_on_their_device():
    for kind in (torch.int8, torch.int64, torch.float32, torch.float16):
        assert check(torch.tensor([[1, 0, -1]], dtype=kind, device="cuda")).is_cuda
        with pytest.raises(ValueError, match=r"labels\[0, 1\] is 2"):
            check(torch.tensor([[1, 2, -1]], dtype=kind, device="cuda"))
    assert labels.from_zero_absent(torch.tensor([[0]], device="cuda")).tolist() == [[ABSENT]]


@given(CODES.filter(lambda codes: codes.size), st.data())
def test_the_first_wrong_entry_is_the_one_named(codes, data):
    values = codes.astype(float)
    cells = data.draw(st.lists(st.integers(0, codes.size - 1), min_size=1, unique=True))
    values.flat[cells] = 7
    row, column = divmod(min(cells), codes.shape[1])
    for given_values in (values, values.tolist(), torch.from_numpy(values)):
        with pytest.raises(ValueError, match=rf"labels\[{row}, {column}\] is 7"):
            check(given_values)


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (float("nan"), "from_zero_absent or from_chexpert"),
        (None, "from_zero_absent or from_chexpert"),
        ("", "from_zero_absent or from_chexpert"),
        (0.3, "probabilities are not labels"),
        (2, "coding one of 'halftruth', 'multi-hot', 'zero-absent', 'chexpert'"),
        ("dog", "Text is read as a number"),
    ],
)
def test_the_message_advises_what_to_do(value, hint):
    with pytest.raises(ValueError, match=hint) as refused:
        check([[1, value]] if value != "" else [["1", ""]])
    assert repr(value) in str(refused.value)


def test_masked_entries_are_blank():
    masked = np.ma.array([[1, 0]], mask=[[False, True]])
    with pytest.raises(ValueError, match=r"labels\[0, 1\] is nan"):
        check(masked)
    assert labels.from_zero_absent(masked).tolist() == [[PRESENT, UNKNOWN]]


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        ([1, 0], ValueError, r"\(N, K\).*got shape \(2,\); one row is labels\[None, :\]"),
        (np.zeros((1, 2, 3)), ValueError, r"got shape \(1, 2, 3\)"),
        (torch.zeros(2), ValueError, r"got shape \(2,\)"),
        ([[1, 0], [1]], ValueError, "rows of one length"),
        (np.zeros((1, 1), dtype=complex), TypeError, "numbers, got an array of complex128"),
        (torch.zeros(1, 1, dtype=torch.complex64), TypeError, "array of complex64"),
        (np.zeros((1, 1), dtype="M8[s]"), TypeError, "datetime64"),
    ],
)
def test_input_that_is_not_a_matrix_of_numbers_is_refused(bad, error, message):
    with pytest.raises(error, match=message):
        check(bad)


def test_class_names_must_fit_the_columns():
    with pytest.raises(ValueError, match="2 class names for labels of 3 columns"):
        check(ALL_THREE, classes=["a", "b"])


FOUR = [[1, 0, -1, np.nan]]


@pytest.mark.parametrize(
    ("convert", "values", "expected"),
    [
        (labels.from_multi_hot, [[1, 0, True, False]], [[1, 0, 1, 0]]),
        (labels.from_zero_absent, FOUR, [[1, -1, 0, 0]]),
        (labels.from_zero_absent, [["1", "0", " ", " -1.0"]], [[1, -1, 0, 0]]),
        (labels.from_zero_absent, [[True, False, None, -1]], [[1, -1, 0, 0]]),
        (labels.from_chexpert, FOUR, [[1, -1, 0, 0]]),
        (lambda v: labels.from_chexpert(v, uncertain="present"), FOUR, [[1, -1, 1, 0]]),
        (lambda v: labels.from_chexpert(v, uncertain="absent"), FOUR, [[1, -1, -1, 0]]),
        (lambda v: labels.convert(v), [[1, 0, -1]], [[1, 0, -1]]),
        (lambda v: labels.convert(v, "multi-hot"), [[1, 0]], [[1, 0]]),
        (lambda v: labels.convert(v, "zero-absent"), FOUR, [[1, -1, 0, 0]]),
        (lambda v: labels.convert(v, "chexpert", uncertain="present"), FOUR, [[1, -1, 1, 0]]),
    ],
)
def test_conversions(convert, values, expected):
    converted = convert(values)
    assert converted.dtype == np.int8
    assert converted.tolist() == expected


def test_conversions_keep_the_type_and_do_not_change_their_input():
    given_values = torch.tensor([[1.0, 0.0, float("nan")]])
    converted = labels.from_zero_absent(given_values)
    assert isinstance(converted, torch.Tensor)
    assert converted.tolist() == [[1, -1, 0]]
    assert given_values[0, :2].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("coding", "values", "message"),
    [
        ("multi-hot", [[1, 0], [1, -1]], r"labels\[1, 1\] is -1; expected 1 .* or 0 \(unknown\)"),
        ("multi-hot", [[1, np.nan]], r"labels\[0, 1\] is nan.*from_zero_absent"),
        ("zero-absent", [[1, 0], [0.5, 1]], r"labels\[1, 0\] is 0\.5"),
        ("zero-absent", [["1", "no"]], r"labels\[0, 1\] is 'no'; expected 1 \(present\), 0 \(abs"),
        ("chexpert", [[1, 3]], r"labels\[0, 1\] is 3; .*-1 \(uncertain\)"),
        ("zero-absnt", [[1]], "expected coding .*'zero-absnt'; did you mean 'zero-absent'"),
    ],
)
def test_conversions_refuse_other_codes(coding, values, message):
    with pytest.raises(ValueError, match=message):
        labels.convert(values, coding)


def test_uncertain_has_three_meanings():
    with pytest.raises(ValueError, match=r"uncertain to be one of .*got 'maybe'"):
        labels.from_chexpert([[1]], uncertain="maybe")


def test_from_names_sorts_classes_and_keeps_rows():
    values, classes = labels.from_names([["dog", "cat", "dog"], None, {"ant"}, ()])
    assert classes == ("ant", "cat", "dog")
    assert values.dtype == np.int8
    assert values.tolist() == [[0, 1, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0]]


def test_from_names_with_classes_keeps_their_order():
    values, classes = labels.from_names([["dog"]], classes=["dog", "cat"])
    assert (values.tolist(), classes) == ([[1, 0]], ("dog", "cat"))


def test_from_names_of_no_rows():
    values, classes = labels.from_names([[], []])
    assert (values.shape, classes) == ((2, 0), ())


@given(st.lists(st.sets(st.sampled_from("abcdefgh")), max_size=8))
def test_from_names_loses_no_name(rows):
    values, classes = labels.from_names(rows)
    assert [{classes[k] for k in np.flatnonzero(row)} for row in values] == rows


@pytest.mark.parametrize(
    ("rows", "error", "message"),
    [
        ([["cat"], ["cta"]], ValueError, "row 1: 'cta' is not a class; did you mean 'cat'"),
        ([["zzz"]], ValueError, "row 0: 'zzz' is not a class; the classes are: cat, dog"),
        ([["cat"], "cat|dog"], TypeError, r"row 1 is the text 'cat\|dog'.*split"),
        ("cat", TypeError, "expected a list of names"),
        ([["cat"], [""]], ValueError, "row 1 holds ''"),
        ([["cat"], ["dog", 3]], ValueError, "row 1 holds 3"),
    ],
)
def test_from_names_refuses(rows, error, message):
    with pytest.raises(error, match=message):
        labels.from_names(rows, classes=["cat", "dog"])


@pytest.fixture
def pets():
    values = [[1, 0, -1], [0, 0, 0], [1, 1, 0], [-1, -1, -1]]
    return LabelMatrix(values, ["cat", "dog", "cow"], list("abcd"), ["train", "val"] * 2)


def test_label_matrix_holds_arrays(pets):
    assert pets.values.dtype == np.int8
    assert pets.classes == ("cat", "dog", "cow")
    assert pets.items.tolist() == list("abcd")
    assert len(pets) == 4


def test_label_matrix_counts(pets):
    assert pets.positives_per_class().tolist() == [2, 1, 0]
    assert pets.positives_per_row().tolist() == [1, 0, 2, 0]
    assert pets.empty_rows().tolist() == [False, True, False, True]


@pytest.mark.parametrize("rows", [[2, 0], np.array([2, 0]), slice(2, None, -2)])
def test_select_takes_rows_in_order(pets, rows):
    chosen = pets.select(rows)
    assert chosen.values.tolist() == [[1, 1, 0], [1, 0, -1]]
    assert chosen.items.tolist() == ["c", "a"]
    assert chosen.split.tolist() == ["train", "train"]


def test_select_by_mask_and_by_nothing(pets):
    assert pets.select(pets.split == "val").items.tolist() == ["b", "d"]
    assert pets.select([]).values.shape == (0, 3)
    assert len(dataclasses.replace(pets, items=None, split=None).select([1])) == 1


def test_describe_in_words(pets):
    assert pets.describe() == (
        "7 of 12 labels are known: 3 present, 4 absent; 4 rows x 3 classes, 0.75 present per row, "
        "2 rows (50.0 %) without a present label; most often present: cat (2); never present: cow"
    )
    many = LabelMatrix(np.zeros((1, 7)), [f"c{k}" for k in range(7)])
    assert many.describe().endswith("never present: c0, c1, c2, c3, c4 and 2 more")
    assert "0 of 0 labels are known" in LabelMatrix(np.zeros((0, 1)), ["a"]).describe()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"classes": ("cat", "dog", "cat")},
            ValueError,
            r"'cat' is both classes\[0\] and cl.*\[2\]",
        ),
        ({"classes": ("cat", "dog")}, ValueError, "2 class names for labels of 3 columns"),
        ({"classes": ("cat", " ", "x")}, ValueError, r"classes\[1\] to be a name, got ' '"),
        ({"classes": "cat"}, TypeError, "got the text 'cat'"),
        ({"stored": np.full((4, 3), 2)}, ValueError, r"labels\[0, 0\] \(class 'cat'\) is 2"),
        ({"items": ["a"]}, ValueError, r"items to have one entry for each of 4 rows, got .*\(1,\)"),
        ({"split": ["a", "b", None, "c"]}, TypeError, "split to be text"),
        ({"items": [1, 2, 3, 4]}, TypeError, "items to be text"),
    ],
)
def test_label_matrix_refuses(pets, change, error, message):
    with pytest.raises(error, match=message):
        dataclasses.replace(pets, **change)


def test_label_matrix_is_frozen(pets):
    with pytest.raises(dataclasses.FrozenInstanceError):
        pets.values = None


def test_hiding_is_available_from_labels():
    assert labels.single_positive is hiding.single_positive
    with pytest.raises(AttributeError, match="no attribute 'double_positive'"):
        _ = labels.double_positive
