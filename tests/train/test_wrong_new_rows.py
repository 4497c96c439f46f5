"""New rows, label files and names that do not suit a run: one error, or one warning."""

import json
import re
import shutil
import socket

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tiny_data import IMAGES, command

from halftruth import fit
from halftruth.train.run_folder import write_manifest

ROWS = 80
NAMES = ("cat", "dog", "bird")
WORDS = (("purr", "meow"), ("bark", "leash"), ("wing", "sing"))


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Files of labels, features, texts, hints and images, and finished runs on them."""
    folder = tmp_path_factory.mktemp("runs")
    random = np.random.default_rng(0)
    x = random.normal(size=(ROWS, 3)).round(3)
    y = (x + random.normal(size=x.shape) > 0.6).astype(int)
    ids = [f"i{row:02d}" for row in range(ROWS)]

    def write(name, columns, named="id"):
        pd.DataFrame({named: ids, **columns}).to_csv(folder / name, index=False)

    labels = {name: y[:, k] for k, name in enumerate(NAMES)}
    table = {f"f{k}": x[:, k] for k in range(3)}
    table["colour"] = random.choice(["red", "blue"], ROWS)
    texts = [
        " ".join([*(word for k in range(3) if y[row, k] for word in WORDS[k]), "the", "house"])
        for row in range(ROWS)
    ]
    scores = {name: (0.2 + 0.6 * y[:, k]).round(2) - x[:, 0] / 50 for k, name in enumerate(NAMES)}
    write("l.csv", labels)
    write("spelt.csv", {**labels, "Cat": 0, "No Finding": 0})
    write("x.csv", table)
    write("title.csv", {**table, "colour": [one.title() for one in table["colour"]]})
    write("zoom.csv", {**table, "f1": 100 * x[:, 1]})
    write("leak.csv", {**table, "CAT": y[:, 0]})
    write("comma.csv", {**table, "f1": [f"{one}".replace(".", ",") for one in x[:, 1]]})
    for name, form in {"kg": "{} kg", "percent": "{}%", "euro": "€ {}"}.items():
        write(f"{name}.csv", {**table, "f1": [form.format(one) for one in x[:, 1]]})
    marked = [f"{one}" if row % 9 else "-" for row, one in enumerate(x[:, 1])]
    write("marked.csv", {**table, "f1": marked})
    write("sentinel.csv", {**table, "f1": np.where(np.arange(ROWS) % 9, x[:, 1], -999)})
    write("number.csv", {**table, "nr": np.arange(ROWS)})
    write("key.csv", {**table, "key": [f"K{row}" for row in range(ROWS)]})
    write("inverse.csv", {name: 1 - one for name, one in labels.items()})
    write("invert.csv", {name: 1 - one for name, one in scores.items()})
    write("units.csv", {**scores, "cat": 100 * scores["cat"] + 20})
    for name, weights in {"equal": 5.0, "huge": np.where(np.arange(ROWS), 1.0, 1e6)}.items():
        write(f"{name}.csv", {**labels, "weight": weights})
    sexes = np.arange(ROWS) % 2
    write("sex.csv", {**labels, "sex": sexes})
    write("patient.csv", {**labels, "patient": sexes})
    write("gaps.csv", {**labels, "site": [f"s{k % 10}" if k % 10 else "" for k in range(ROWS)]})
    write("part.csv", {**labels, "is_test": sexes})
    write("swapped.csv", {**labels, "cat": labels["dog"], "dog": labels["cat"]})
    write("upside.csv", {name: 1 - one for name, one in labels.items()})
    write("certain.csv", labels)
    write("gone.csv", {**table, "f1": ""})
    write("some.csv", {"cat": scores["cat"]})
    items = {"named": "i05", "strange": "nobody", "row": "1"}
    for name, item in items.items():
        (folder / f"v_{name}.csv").write_text(f"row,item,class,verdict\n1,{item},cat,present\n")
    (folder / "v_zero.csv").write_text("row,class,verdict\n0,cat,present\n")
    pd.DataFrame(labels).to_csv(folder / "noid.csv", index=False)
    again = pd.read_csv(folder / "l.csv")
    pd.concat([again, again[:3]]).to_csv(folder / "again.csv", index=False)
    (folder / "tree.csv").write_text("category,subcategory\ncat,dog\n")
    write("own.csv", {**labels, "own": [f"g{row}" for row in range(ROWS)]})
    write("person.csv", {**labels, "person": np.arange(ROWS) // 40})
    write("people.csv", {**labels, "person": sexes})
    write("ids.csv", {**labels, "weight": 1000 + np.cumsum(np.arange(ROWS) % 3 + 1)})
    for name, line in {
        "none": "",
        "half": "1.5,i00,cat,present",
        "word": "x,i00,cat,present",
        "other": "5,i00,cat,present",
    }.items():
        (folder / f"{name}.csv").write_text(f"row,item,class,verdict\n{line}\n")
    copied = pd.DataFrame(table).iloc[np.r_[: ROWS - 20, :20]]
    write("copied.csv", {name: column.to_numpy() for name, column in copied.items()})
    write("named.csv", {"comment": [f"file{row}.jpg" for row in range(ROWS)], **labels})
    write("t.csv", {"comment": texts, **labels})
    write("komment.csv", {"komment": texts, **labels})
    write("blank.csv", {"comment": ["qqq", "", *texts[2:]]})
    write("h.csv", scores)
    write("h100.csv", {name: 100 * one for name, one in scores.items()})
    np.save(folder / "x.npy", x)
    np.save(folder / "zoom.npy", 100 * x)
    np.save(folder / "ones.npy", np.ones((ROWS, 3)))
    (folder / "photos").mkdir()
    for row in range(12):
        Image.new("RGB", (8, 8), (20 * row, 0, 0)).save(folder / "photos" / f"{ids[row]}.png")
    write_images = pd.DataFrame({"image": ids[:12], "cat": y[:12, 0], "dog": 1 - y[:12, 0]})
    write_images.to_csv(folder / "images.csv", index=False)
    twice = pd.concat([write_images, write_images[3:4].assign(image="i03.png")])
    twice.to_csv(folder / "twice.csv", index=False)
    common = {"method": "bce", "epochs": 2, "device": "cpu", "report": False, "quiet": True}
    fit(folder / "l.csv", features=folder / "x.csv", out=folder / "table", **common)
    fit(folder / "l.csv", features=folder / "x.npy", out=folder / "matrix", **common)
    fit(folder / "t.csv", text="comment", out=folder / "text", **common)
    fit(
        folder / "l.csv", features=folder / "x.csv", hints=[folder / "h.csv"],
        out=folder / "hinted", **common,
    )  # fmt: skip
    fit(
        folder / "t.csv", text="comment", features=[folder / "x.csv", folder / "x.npy"],
        out=folder / "both", **common,
    )  # fmt: skip
    fit(
        folder / "images.csv", images=folder / "photos", out=folder / "images", val=0.4,
        **{**IMAGES, "quiet": True, "head_epochs": 1, "epochs": 1},
    )  # fmt: skip
    assert command("hub", "folder", folder / "table", "-o", folder / "shared") == 0
    return folder


TRAIN = ("train", "l.csv", "--method", "bce", "--epochs", "1", "--no-report", "--out", "new")
X = (*TRAIN, "--features", "x.csv")
PICTURES = ("--images", "photos", "--backbone", "test_efficientnet", "--weights", "none")


def weigh(labels):
    return (X[0], labels, *X[2:])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        # What training has not seen.
        ("predict table x.csv", 0, None),
        ("predict table title.csv", 0, "not seen these values: 'colour' in 100% of the rows, such"),
        ("predict table zoom.csv", 0, "'f1' in .*% of the rows, such as .*, beyond -.* to "),
        ("evaluate table l.csv --features zoom.csv", 0, "'f1' in .*% of the rows"),
        ("predict matrix x.npy", 0, None),
        ("predict matrix zoom.npy", 0, "not seen these values: 3 of 3 columns .* as column 0"),
        ("evaluate matrix l.csv --features zoom.npy", 0, "3 of 3 columns of the features"),
        ("predict text blank.csv", 0, "2 of 80 texts have no term that the run knows; each"),
        ("predict hinted x.csv --hints h.csv", 0, None),
        ("predict table gone.csv", 0, "not seen these values: 'f1' is blank in all rows"),
        ("predict hinted x.csv --hints some.csv", 0, "no score at all for 2 of 3 classes, for"),
        ("evaluate hinted l.csv --features x.csv --hints l.csv", 0, "hint l.csv: a column alone p"),
        ("audit h.csv swapped.csv --out audit", 2, "missing labels are not known: the inputs do"),
        ("audit certain.csv l.csv --out audit", 0, "ll scores are 0 or 1, as labels and decision"),
        ("predict hinted x.csv --hints h100.csv", 2, "between 0 and 1, as in training, got"),
        # What tells too much or nothing.
        ((*TRAIN, "--features", "leak.csv"), 0, "column alone predicts .*: 'CAT' the class 'cat'"),
        ((*TRAIN, "--features", "x.csv", "--hints", "l.csv"), 0, "hint l.csv: a column alone pre"),
        ((*TRAIN, "--features", "ones.npy"), 0, "features: the same in all rows, so nothing"),
        ("data check l.csv --features leak.csv", 0, "'CAT' the class 'cat'; if it is made from"),
        ("data check l.csv --features x.csv", 0, None),
        (
            "audit l.csv --features leak.csv --method bce --epochs 40 --folds 2 --out audit",
            0,
            "'CAT' the class 'cat'",
        ),
        # One check of the classes.
        ((*TRAIN[:1], "spelt.csv", *TRAIN[2:], "--features", "x.csv"), 0, "differently: 'cat', 'C"),
        ("data check spelt.csv", 0, "spelt differently: 'cat', 'Cat'.*'No Finding' may mean that"),
        ("evaluate table spelt.csv --features x.csv", 0, "'No Finding' may mean that a row has no"),
        ("audit spelt.csv --features x.csv --method bce --folds 2 --out audit", 2, "'cat', 'Cat'"),
        # Options without effect.
        ("predict table x.csv --bad-images fail", 2, "has no effect, since the run was not"),
        ("predict table x.csv --top 5", 2, "top .--top.: expected 1 to 3 .the classes., got 5"),
        ("predict table x.csv --decide top=5", 2, "top needs at most 3, the number of classes"),
        ((*X, "--decide", "top=5"), 2, "decide: top needs at most 3, the number of classes, got 5"),
        ("predict table x.csv --bad-images skop", 2, "expected skip or fail, got 'skop'"),
        ("evaluate table l.csv --features x.csv --images photos", 2, "have no effect: trained on"),
        # Columns and sources.
        ("evaluate text komment.csv", 2, "text='comment' .--text comment.: there is no such"),
        ("audit text komment.csv --out audit", 2, "text=.comment. .--text comment.: there is"),
        ("predict both t.csv --features x.csv --features x.npy", 0, None),
        ((*TRAIN, "--features", "comma.csv"), 2, "'f1' holds numbers with a comma, such as"),
        ((*TRAIN, "--features", "kg.csv"), 2, "'f1' holds numbers with a unit, such as '.* kg'"),
        ((*TRAIN, "--features", "percent.csv"), 2, "'f1' holds numbers with a unit, such as"),
        ((*TRAIN, "--features", "euro.csv"), 2, "'f1' holds numbers with a unit, such as '€"),
        ((*TRAIN, "--features", "marked.csv"), 0, "'f1' has .* different numbers and other texts"),
        ((*TRAIN, "--features", "sentinel.csv"), 0, "'f1' holds -999 in . rows, far from all"),
        ((*TRAIN, "--features", "number.csv"), 0, "'nr' numbers the rows; drop it"),
        ((*TRAIN, "--features", "key.csv"), 2, "'key' has .. different texts in .. training rows"),
        ((*TRAIN, "--features", "x.csv", "--features", "x.csv"), 2, "features: x.csv is given twi"),
        (
            (*TRAIN, "--features", "x.csv", "--truth", "inverse.csv"),
            0,
            "warning: 80 of 80 present labels are absent in the complete labels",
        ),
        # Hints, weights, groups and verdicts.
        ((*X, "--hints", "invert.csv"), 0, "hint invert.csv: its scores hardly rank the labels"),
        ((*X, "--hints", "units.csv"), 0, "warning: above 1, unlike the other columns: 'cat'"),
        ((*X, "--label-weights", "l.csv"), 2, "l.csv: these weights are the labels, 1 where one"),
        ((*weigh("equal.csv"), "--weight-column", "weight"), 0, "'weight' are 5, so they have no"),
        ((*weigh("huge.csv"), "--weight-column", "weight"), 0, "1e.06, is more than all others"),
        ((*weigh("sex.csv"), "--group-column", "sex"), 0, "'sex' is 0 or 1 in every row, as lab"),
        ((*weigh("ids.csv"), "--weight-column", "weight"), 0, "'weight' are whole numbers that al"),
        ((*weigh("own.csv"), "--group-column", "own"), 0, "'own' has no effect, since every row"),
        ((*weigh("gaps.csv"), "--group-column", "site"), 2, "'site': 8 rows have no group .the fi"),
        (
            "audit gaps.csv --features x.csv --group-column site --out audit",
            2,
            "'site': 8 rows have no group .the first: row 1.; give each row one",
        ),
        ((*X, "--verdicts", "v_zero.csv"), 2, "on row 0, and the label file has the rows 1 to 80"),
        (
            (*weigh("again.csv"), "--duplicates", "keep", "--verdicts", "v_named.csv"),
            2,
            "verdict on row 1 as 'i05', but the label file has 'i00' there; is it the audit of",
        ),
        (
            (*TRAIN[:1], "noid.csv", *TRAIN[2:], "--features", "x.npy", "--verdicts", "v_row.csv"),
            0,
            "names items, but the label file does not; the numbers of rows count",
        ),
        ((*X, "--hierarchy", "tree.csv"), 2, "expected the columns child and parent, got 'catego"),
        ((*X, "--also", "l.csv"), 2, "also= .--also.: .*l.csv is given twice"),
        ((*X, "--truth", "l.csv"), 0, "the complete labels show nothing that the labels do not"),
        ((*X, "--label-weights", "h.csv"), 0, "weights of labels: a column alone predicts a clas"),
        (weigh("part.csv"), 0, "'is_test' may say which rows are for training"),
        (weigh("patient.csv"), 0, "'patient' may number patients or the like; if it does, name it"),
        (weigh("person.csv"), 0, "'person' may number patients or the like"),
        (weigh("people.csv"), 0, None),
        ("data check patient.csv", 0, "'patient' may number patients"),
        ("evaluate table patient.csv --features x.csv", 0, "'patient' may number patients"),
        ((*X, "--duplicates", "vote"), 0, "so duplicates='vote' .--duplicates vote. has no effect"),
        ((*X, "--duplicates", "merge"), 0, "no item has more than one row, so duplicates='merge'"),
        ((*X, "--verdicts", "none.csv"), 2, "none.csv: contains no verdict"),
        ((*X, "--verdicts", "half.csv"), 2, "the numbers of rows, counted from 1, got '1.5'"),
        ((*X, "--verdicts", "word.csv"), 2, "the numbers of rows, counted from 1, got 'x'"),
        ((*X, "--verdicts", "other.csv"), 0, "'i00' is in row 1, not 5; the items count"),
        # Copies of rows, and names instead of texts.
        ((*TRAIN, "--features", "copied.csv"), 0, "20 of 80 rows are copies of other rows"),
        ("data check l.csv --features copied.csv", 0, "20 of 80 rows are copies of other rows"),
        ((*TRAIN[:1], "named.csv", *TRAIN[2:], "--text", "comment"), 0, "every text is one name"),
        # Images.
        (("train", "twice.csv", *PICTURES), 2, "'i03' and 'i03.png' are one image .i03.png.; keep"),
        ("data check twice.csv --images photos", 1, "'i03' and 'i03.png' are one image"),
        ("predict images empty", 2, "there are no images in empty"),
        # A run that was shared.
        ("predict shared x.csv", 0, None),
        ("train --resume --out shared", 2, "last.safetensors is missing: a shared run has only"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_new_rows_are_right_or_questioned(
    place, tmp_path, monkeypatch, capsys, words, code, message
):
    for path in place.iterdir():
        (tmp_path / path.name).symlink_to(path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    found = command(*(words.split() if isinstance(words, str) else words))
    shown = " ".join("".join(capsys.readouterr()).replace("│", " ").split())
    assert found == code, shown
    if message is None:
        assert not re.search("warning: training|alone predicts|may number", shown), shown
    else:
        assert len(re.findall(message, shown)) == 1, shown


def test_a_text_without_a_known_term_has_the_shares_of_all_rows(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("predict", place / "text", place / "blank.csv", "-o", "p.csv") == 0
    table = pd.read_csv("p.csv")
    result = json.loads((place / "text" / "result.json").read_text())
    shares = [share[0] for share in result["probabilities"]["prevalence"]]
    np.testing.assert_allclose(table.loc[1, list(NAMES)].astype(float), shares, rtol=1e-4)


@pytest.mark.parametrize("name", ["hf-hub:somebody/birds", "local-dir:/nowhere"])
def test_the_backbone_of_a_foreign_run_reaches_no_network(
    place, tmp_path, monkeypatch, capsys, name
):
    def refuse(*given):
        raise AssertionError(f"asked for {given}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    run = shutil.copytree(place / "images", tmp_path / "run")
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(re.sub(r"backbone: \S+", f"backbone: '{name}'", text))
    write_manifest(run)
    assert command("predict", run, place / "photos", "-o", tmp_path / "p.csv") == 2
    shown = " ".join(capsys.readouterr().err.split())
    assert f"backbone {name}: is not on this machine" in shown
    assert "cannot be written" not in shown


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04" + bytes(99), b"noise"], ids=len)
def test_a_damaged_encoder_is_one_sentence(place, tmp_path, capsys, content):
    run = shutil.copytree(place / "text", tmp_path / "run")
    (run / "encoder.npz").write_bytes(content)
    write_manifest(run)
    assert command("predict", run, place / "t.csv", "-o", tmp_path / "p.csv") == 2
    assert "encoder.json: is damaged" in " ".join(capsys.readouterr().err.split())


def test_the_encoder_of_a_foreign_run_reaches_no_network(monkeypatch):
    pytest.importorskip("transformers")
    from halftruth.models.language_model import LanguageModel
    from halftruth.models.weights import ModelError

    def refuse(*given):
        raise AssertionError(f"asked for {given}")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    with pytest.raises(ModelError, match="encoder somebody/bert: is not on this machine, and"):
        LanguageModel.from_json({"source": "somebody/bert", "digest": "0"})
