"""Mistakes of a user end with one message in the words of the command line, never a traceback."""

import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import yaml

from halftruth import __version__
from halftruth.cli import main
from halftruth.cli.app import _exit_code

FEATURES = ("train", "labels.csv", "--features", "x.npy")


@pytest.fixture
def halftruth(monkeypatch, capsys, tmp_path):
    """Run a command line next to labels.csv and x.npy: (exit code, stdout and stderr)."""
    rows = [f"i{row}.png,{row % 2},{row % 3 == 0:d}" for row in range(12)]
    (tmp_path / "labels.csv").write_text("\n".join(["image,cat,dog", *rows]) + "\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32))
    (tmp_path / "photos").mkdir()
    (tmp_path / "a_file").write_text("not a folder")
    (tmp_path / "twice.yaml").write_text("method: em\nseed: 1\nmethod: wan\n")
    (tmp_path / "twice-grid.yaml").write_text("data: {}\nmethods: [bce, em, bce]\n")
    (tmp_path / "lists.csv").write_text("image,labels\na.png,cat|dog\nb.png,No Finding\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["halftruth", *map(str, words)])
        try:
            main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        shown = capsys.readouterr()
        return code, " ".join((shown.out + shown.err).replace("│", " ").split())

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            (*FEATURES, "--method", "em", "--lr", "0.5"),
            "--lr: has no effect, since it is for a network",
        ),
        ((*FEATURES, "--seed", "4294967296"), "--seed: expected a whole number from 0 to 2^32 - 1"),
        (("demo", "-o", "d", "--seed", "-1"), "--seed: expected a whole number from 0 to"),
        (("audit", *FEATURES[1:], "--seed", "-1"), "--seed: expected a whole number from 0 to"),
        (
            (*FEATURES, "--method", "em", "--lr", "0.5"),
            "--text with an --encoder and --tune; set --head-lr",
        ),
        (
            (*FEATURES, "--epochs", "21"),
            "--epochs: has no effect, since it is for a model that is trained by epochs, and the "
            "ensemble and given scores are not; name a --method, such as swan, or leave it out",
        ),
        ((*FEATURES, "--backbone", "resnet9999"), "--backbone: has no effect"),
        ((*FEATURES, "--read-truth", "zero=absent"), "--read-truth: has no effect"),
        ((*FEATURES, "--method", "role"), "for instance --set expected_positives=1.5"),
        (
            (*FEATURES, "--method", "hill", "--set", "lamb=1"),
            "--set: loss 'hill' takes no",
        ),
        ((*FEATURES, "--method", "hil"), "--method: no loss is called 'hil'"),
        ((*FEATURES, "--method", "ensamble"), "--method: did you mean ensemble? no loss is"),
        ((*FEATURES, "--set", "lam=1"), "--set: auto chooses them, got lam; name a --method"),
        ((*FEATURES, "--decide", "f3"), "--decide: expected f1, macro-f1, f2, precision=0.9"),
        ((*FEATURES, "--labels-per-row", "9"), "(--labels-per-row): expected more than 0"),
        ((*FEATURES, "--select", "truth"), "needs the complete labels (--truth)"),
        ((*FEATURES, "--out", "a_file"), "--out: expected a folder, got the file a_file"),
        ((*FEATURES, "--device", "gpu"), "--device: expected one of auto, cpu, cuda, mps"),
        ((*FEATURES, "--recipe", "voc2012/emm"), "did you mean voc2012/em"),
        ((*FEATURES, "--recipe", "twice.yaml"), "twice.yaml, line 3: 'method' is given twice"),
        (
            ("train", "labels.csv"),
            "--images, --features, --text: expected at least one of them, got none",
        ),
        (("train", "twice.yaml", "--recipe", "voc2012/em"), "is a recipe already"),
        (("train", "labels.csv", "--images", "photos", "--hidden", "4"), "--hidden: has no effect"),
        (("tune", "labels.csv", "--features", "x.npy", "--out", "a_file"), "expected a folder"),
        (
            ("tune", "labels.csv", "--features", "x.npy", "-m", "em", "--setting", "lr=1"),
            "--lr: has no effect",
        ),
        (("audit", "labels.csv", "--features", "x.npy", "--out", "a_file"), "expected a folder"),
        (("audit", "labels.csv", "--features", "x.npy", "--selection", "two"), "'two'"),
        (("audit", "labels.csv", "--features", "x.npy", "--backbone", "vgg11"), "has no effect"),
        (("demo", "--out", "a_file"), "expected a folder"),
        (("predict", "photos"), "photos holds no run"),
        (("predict", "run", "labels.csv", "--out", "labels.csv"), "a file that this command reads"),
        (
            ("evaluate", "run", "labels.csv", "--out", "labels.csv"),
            "a file that this command reads",
        ),
        (("review", "photos", "--port", "70000"), "65535"),
        # Given twice: the last one would count.
        ((*FEATURES, "--val", "0.1", "--val", "0.2"), "for --val: is given twice"),
        ((*FEATURES, "-m", "em", "--method", "bce"), "for --method: is given twice"),
        (("train", "labels.csv", "--text", "a", "--text", "b"), "for --text: is given twice"),
        (("predict", "run", "--flip", "--flip"), "for --flip: is given twice"),
        (
            (*FEATURES, "-m", "hill", "--set", "lam=1", "--set", "lam=2"),
            "for --set: lam is given twice",
        ),
        (
            (*FEATURES, "--prevalence", "cat=0.6", "--prevalence", "cat=0.7"),
            "(--prevalence): 'cat' is given twice",
        ),
        (("data", "check", "labels.csv", "--zero", "absent", "--zero", "unknown"), "given twice"),
        (
            ("bench", "run", "twice-grid.yaml", "--data", "d", "-o", "r.jsonl"),
            "methods: 'bce' is given",
        ),
        # Without effect.
        (("data", "check", "lists.csv", "--nothing", "Healthy"), "occurs in no row; correct the"),
        (
            ("predict", "run", "x.npy", "--raw", "--decide", "threshold=0.5"),
            "labels are decided by calibrated probabilities, which --raw does not show",
        ),
        (("plot", "losses", "hill:lam"), "expected name:key=value"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_a_mistake_is_one_message_about_options(halftruth, words, message):
    code, shown = halftruth(*words)
    assert (code, message in shown) == (2, True), shown
    assert "Traceback" not in shown


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize(
    "words",
    [
        FEATURES,
        ("evaluate", "run", "labels.csv", "--features", "x.npy"),
        ("predict", "run", "--features", "x.npy"),
        ("audit", "labels.csv", "--features", "x.npy"),
    ],
    ids=lambda words: words[0],
)
def test_cuda_without_a_gpu_is_refused(halftruth, words):
    code, shown = halftruth(*words, "--device", "cuda")
    assert code == 2
    assert "--device: there is no CUDA device here; use auto or cpu" in shown


def test_numbers_in_arguments_of_a_plotted_method(halftruth, tmp_path):
    code, shown = halftruth("plot", "losses", "las:lam=1e-2", "--out", tmp_path / "las.svg")
    assert (code, (tmp_path / "las.svg").exists()) == (0, True), shown


def test_a_recipe_by_name_on_own_features(halftruth, tmp_path):
    line = (*FEATURES, "--recipe", "voc2012/em", "--epochs", 1, "--device", "cpu", "--val", 0.4)
    code, shown = halftruth(*line, "--no-report", "--out", "run")
    assert code == 0, shown
    text = "warning: settings of the recipe that have no effect here are left out: augment, back"
    assert shown.count(text) == 1
    written = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert (written["method"], written["options"], "lr" in written) == ("em", {"alpha": 0.2}, False)


@pytest.mark.parametrize(("more", "hinted"), [((), True), (("--zero", "unknown"), False)])
def test_train_hints_at_zero_absent_where_labels_look_complete(halftruth, tmp_path, more, hinted):
    # Three positives in every row, of six classes.
    rows = ["1,0,1,0,1,0", "0,1,1,0,0,1", "1,1,0,0,1,0"] * 4
    text = "\n".join(f"i{number}.png,{row}" for number, row in enumerate(rows))
    (tmp_path / "labels.csv").write_text(f"image,a,b,c,d,e,f\n{text}\n")
    line = (*FEATURES, "--method", "bce", "--epochs", 1, "--device", "cpu", "--no-report", *more)
    code, shown = halftruth(*line, "--out", "run")
    assert code == 0, shown
    assert ("--zero absent" in shown) is hinted


def test_the_version(halftruth):
    assert halftruth("--version") == (0, f"halftruth {__version__}")


def test_warnings_are_one_line_without_a_source(halftruth, monkeypatch):
    def warn(pattern):
        warnings.warn("something to know", UserWarning, stacklevel=1)

    monkeypatch.setattr(sys.modules["halftruth.cli.app"], "show_methods", warn)
    assert halftruth("methods") == (0, "warning: something to know")


def test_ctrl_c_ends_any_command_with_130(halftruth, monkeypatch):
    def interrupt(pattern):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["halftruth.cli.app"], "show_methods", interrupt)
    code, shown = halftruth("methods")
    assert (code, "Traceback" in shown) == (130, False)


def test_exit_codes_of_errors():
    from halftruth.bench.tune import TuneError
    from halftruth.data import DataError
    from halftruth.train import ConfigError, TrainingStopped

    assert _exit_code(TrainingStopped("loss is NaN")) == 1
    for error in (DataError("a"), ConfigError(["a"]), TuneError("a"), FileNotFoundError("a")):
        assert _exit_code(error) == 2
    assert _exit_code(ImportError('pip install "halftruth[train]"')) == 2
    assert _exit_code(KeyError("a bug")) is None


@pytest.mark.parametrize("words", [("--help",), ("--version",), ("train", "--help")], ids=" ".join)
def test_help_does_not_import_torch(words):
    code = (
        "import sys; from halftruth.cli.app import app\n"
        f"app({list(words)!r}, standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize("inputs", ["--images photos", "--features x.npy"])
def test_mistakes_are_reported_before_slow_imports(halftruth, inputs):
    # timm, Accelerate and the rest take seconds; torch is needed to check the method.
    code = (
        "import sys; from halftruth.cli import main\n"
        f"sys.argv = 'halftruth train labels.csv {inputs} --epochs 0'.split()\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "slow = {'timm', 'torchvision', 'accelerate', 'sklearn', 'matplotlib', 'pandas'}\n"
        "sys.exit(', '.join(sorted(slow & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "--epochs: expected at least 1, got 0" in done.stderr
    assert done.returncode == 0, done.stderr
