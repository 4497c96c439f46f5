"""The folder that is shared: what predicting needs, the model card, timm's files if possible."""

import json
import shutil
import tempfile
from pathlib import Path
from types import ModuleType

import yaml

from halftruth.hub.model_card import make_model_card
from halftruth.hub.timm_layout import find_timm_problem, write_timm_model
from halftruth.train.config import read_settings
from halftruth.train.inputs.feature_encoder import ENCODER
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.run_folder import (
    BEST,
    RESULT,
    load_checkpoint,
    save_checkpoint,
    write_manifest,
)

SCHEME = "hf://"
# Files of training: not needed for predicting, and they may show training data.
_NOT_SHARED = {
    "last.safetensors", "head.safetensors", "metrics.jsonl", "histograms.jsonl",
    "class_histograms.npz", "bad_images.csv", "report.html", BEST, "config.yaml",
}  # fmt: skip

# Settings that are paths of this machine.
_PATHS = {"labels", "images", "features", "truth", "out", "cache_dir", "weights"}


class HubError(RuntimeError):
    """A run cannot be shared, or a shared run cannot be found."""


def write_hub_folder(
    run: str | Path | TrainedRun,
    out: str | Path,
    *,
    repo: str = "user/repo",
    licence: str | None = None,
) -> list[str]:
    """Write the files of a run that are shared to an empty folder; return their names.

    The folder holds what `halftruth.load` needs, and README.md, the model card. A run on images
    with a linear head is also written in the layout of timm. Paths of this machine are left out.
    """
    trained = run if isinstance(run, TrainedRun) else TrainedRun(run, device="cpu")
    encoder = getattr(trained.config, "encoder", None)
    if encoder and Path(encoder).exists() and not trained.config.tunes_encoder:
        raise HubError(
            f"{trained.folder}: the language model of this run is the folder {encoder} of this "
            "machine; upload it to the Hub and train with its name (--encoder user/model)"
        )
    out = Path(out)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise HubError(f"{out}: expected a new or an empty folder")
    out.mkdir(parents=True, exist_ok=True)
    for path in trained.folder.iterdir():
        if path.is_file() and path.name not in _NOT_SHARED and not path.name.startswith("."):
            shutil.copyfile(path, out / path.name)
    if trained.config.tunes_encoder:
        # The tokenizer; the weights are in the checkpoint.
        shutil.copytree(trained.folder / ENCODER, out / ENCODER)
    if (out / RESULT).exists():
        result = json.loads((out / RESULT).read_text(encoding="utf-8"))
        result["folder"] = _file_name(result.get("folder"))
        (out / RESULT).write_text(json.dumps(result, indent=1), encoding="utf-8")
    settings = read_settings(trained.folder)
    settings |= {name: _file_name(settings[name]) for name in _PATHS & settings.keys()}
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    (out / "config.yaml").write_text(text, encoding="utf-8")
    saved = load_checkpoint(trained.folder / BEST)
    saved["identity"].pop("settings", None)
    save_checkpoint(out / BEST, saved)
    in_timm_layout = find_timm_problem(trained) is None
    if in_timm_layout:
        write_timm_model(trained, out)
    card = make_model_card(trained, repo=repo, licence=licence, in_timm_layout=in_timm_layout)
    (out / "README.md").write_text(card, encoding="utf-8")
    if (out / RESULT).exists():
        write_manifest(out)
    return sorted(path.name for path in out.iterdir())


def push(
    run: str | Path | TrainedRun,
    repo: str,
    *,
    private: bool = False,
    licence: str | None = None,
    message: str = "Upload with halftruth",
) -> str:
    """Upload a run to a repository on the Hugging Face Hub, made if needed; return its address.

        halftruth.hub.push("runs/first", "user/repo")

    Log in once with `hf auth login`.
    """
    api = _import_hub().HfApi()
    with tempfile.TemporaryDirectory() as folder:
        write_hub_folder(run, folder, repo=repo, licence=licence)
        try:
            api.create_repo(repo, private=private, exist_ok=True)
            api.upload_folder(repo_id=repo, folder_path=folder, commit_message=message)
        except Exception as error:
            raise HubError(f"{repo}: the upload failed: {_first_line(error)}") from error
    return f"https://huggingface.co/{repo}"


def download(address: str) -> Path:
    """Return the folder of a run on the Hub, downloaded once: hf://user/repo or ...@revision."""
    name = address.removeprefix(SCHEME)
    repo, _, revision = name.partition("@")
    if repo.count("/") != 1 or not all(repo.split("/")):
        raise HubError(f"expected {SCHEME}user/repo or {SCHEME}user/repo@revision, got {address!r}")
    try:
        found = _import_hub().snapshot_download(
            repo, revision=revision or None, ignore_patterns=["model.safetensors", "*.bin"]
        )
    except Exception as error:
        raise HubError(f"{address} cannot be downloaded: {_first_line(error)}") from error
    if not (Path(found) / BEST).is_file():
        raise HubError(f"{address} is not a run of halftruth: it has no {BEST}")
    return Path(found)


def _import_hub() -> ModuleType:
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError("the Hub needs: pip install huggingface_hub") from error
    return huggingface_hub


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _file_name(value: object) -> object:
    """Return a path, or a list of paths, without folders."""
    if isinstance(value, list):
        return [_file_name(part) for part in value]
    return Path(value.replace("\\", "/")).name if isinstance(value, str) else value
