"""The model card of a run: data, method, scores, thresholds and limits, from its own files."""

import math
from typing import Any

import pandas as pd

import halftruth
from halftruth.train.results.trained_run import TrainedRun
from halftruth.train.scored_rows import PARTS

_PIPELINES = {"images": "image-classification", "text": "text-classification", "features": None}
_LIMITS = """\
- The labels of training were incomplete. An unlabelled class was *unknown*, not absent.
- Scores on incomplete labels are lower than the true ones: a correct prediction of a missing label
  counts as wrong.
- Thresholds and probabilities hold for data like that of training. Check them on labelled rows of
  your own.
- The model knows only the classes above, and nothing about images or texts of another kind."""

_USAGE = """\
```python
import halftruth

run = halftruth.load("hf://{repo}")
run.predict({example})
```"""
_TIMM_USAGE = """\
Without halftruth:

```python
import timm, transformers

timm.create_model("hf-hub:{repo}", pretrained=True)        # logits, one per class
transformers.pipeline("image-classification", "{repo}")    # sigmoid of the logits
```"""


def make_model_card(
    run: TrainedRun,
    *,
    repo: str = "user/repo",
    licence: str | None = None,
    in_timm_layout: bool = False,
) -> str:
    """Return the README.md of a shared run, with the header that the Hub reads."""
    kind = "images" if run.inputs is None else "text" if run.config.text else "features"
    result = run.result or {}
    parts = [
        _header(kind, licence, in_timm_layout),
        f"# {repo.split('/')[-1]}",
        f"A multi-label classifier for {kind}, {len(run.classes)} classes, trained with "
        f"[halftruth](https://github.com/halftruth/halftruth) on incomplete labels.",
        "## Use",
        _usage(repo, kind, in_timm_layout),
        "## Training",
        _training(run, kind, result),
        "## Scores",
        _scores(run, result),
        "## Decisions",
        _decisions(run, result),
        "## Classes",
        _classes(run),
        "## Limits",
        _LIMITS,
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _header(kind: str, licence: str | None, in_timm_layout: bool) -> str:
    pipeline = f"\npipeline_tag: {_PIPELINES[kind]}" if _PIPELINES[kind] else ""
    chosen = f"\nlicense: {licence}" if licence else ""
    return (
        f"---\nlibrary_name: {'timm' if in_timm_layout else 'halftruth'}{pipeline}{chosen}\n"
        "tags:\n- halftruth\n- multi-label\n- missing-labels\n---"
    )


def _usage(repo: str, kind: str, in_timm_layout: bool) -> str:
    example = {"images": '"photo.jpg"', "text": '["a text"]', "features": '"features.csv"'}[kind]
    text = _USAGE.format(repo=repo, example=example)
    return f"{text}\n\n{_TIMM_USAGE.format(repo=repo)}" if in_timm_layout else text


def _training(run: TrainedRun, kind: str, result: dict[str, Any]) -> str:
    config = run.config
    rows: dict[str, object] = {
        "method": f"`{config.method}`" + (f" {config.options}" if config.options else "")
    }
    if members := result.get("members"):
        shares = [f"{member['name']} {100 * member['weight']:.0f} %" for member in members]
        rows["ensemble"] = ", ".join(shares)
    else:
        rows |= {"epochs": config.epochs, "batch size": config.batch_size}
        rows["optimizer"] = config.optimizer
    rows |= {"seed": config.seed, "halftruth": halftruth.__version__}
    if kind == "images":
        rows = {"model": f"`{config.backbone}`, {run.model.image_size} pixels", **rows}
    elif run.inputs is not None:
        rows = {"inputs": f"{run.inputs:,} features per row", **rows}
    return _table(["setting", "value"], [[name, value] for name, value in rows.items()])


def _scores(run: TrainedRun, result: dict[str, Any]) -> str:
    # A score that is not defined is null in result.json.
    rows = [
        [title, name, f"{100 * value:.1f}"]
        for part, title in PARTS.items()
        for name, value in (result.get(part) or {}).items()
        if value is not None
    ]
    estimates = [
        [name, f"{100 * value:.1f}", f"{100 * low:.1f} to {100 * high:.1f}"]
        for name, (value, low, high) in (result.get("estimated") or {}).items()
    ]
    if not rows and not estimates:
        return "The run has no scores: it had no validation or test rows, or is not finished."
    texts = []
    if estimates:
        texts.append(
            "Estimated scores on complete labels, by the model of labelling, with 90 % intervals:"
            f"\n\n{_table(['score', 'percent', 'interval'], estimates)}"
        )
    if rows:
        table = _table(["rows", "score", "percent"], rows)
        texts.append(f"Measured scores, on complete labels:\n\n{table}")
    return "\n\n".join(texts)


def _decisions(run: TrainedRun, result: dict[str, Any]) -> str:
    """The rule of the decisions, and what was estimated about the labels behind it."""
    if "decide" not in result:
        return "A class is predicted if its probability is above its threshold."
    lines = [
        f"Rule: `{result['decide']}`. A class is predicted if its calibrated probability is above "
        "its threshold in the table of classes."
    ]
    found = result.get("probabilities") or {}
    if found.get("labels_per_row"):
        value, low, high = found["labels_per_row"]
        lines.append(
            f"Estimated from the incomplete labels: {value:.2f} present classes per row "
            f"({low:.2f} to {high:.2f}), in {found['rows']:,} rows."
        )
    prevalence = found.get("prevalence") or []
    if len(prevalence) == len(run.classes):
        rows = [
            [name, shown, *(f"{100 * share:.1f}" for share in shares)]
            for name, shown, shares in zip(run.classes, found["shown"], prevalence, strict=True)
        ]
        columns = ["class", "labelled rows", "estimated to be present in %", "at least", "at most"]
        lines.append(_table(columns, rows))
    if result.get("not_predicted"):
        lines.append(f"Never predicted: {', '.join(result['not_predicted'])}.")
    return "\n\n".join(lines)


def _classes(run: TrainedRun) -> str:
    path = run.folder / "classes.csv"
    if not path.exists():
        return ", ".join(f"`{name}`" for name in run.classes)
    frame = pd.read_csv(path, dtype={"class": str}, keep_default_na=False, na_values=[""])
    frame = frame.dropna(axis=1, how="all").round(3)
    return _table(list(frame.columns), frame.astype(object).to_numpy().tolist())


def _table(columns: list[str], rows: list[list[object]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = ("" if isinstance(cell, float) and math.isnan(cell) else str(cell) for cell in row)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
