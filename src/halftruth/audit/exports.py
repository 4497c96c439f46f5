"""Candidates and repaired labels for other tools: Label Studio, FiftyOne, cleanlab."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import quoteattr

import numpy as np

from halftruth.audit.audit_folder import AuditFolder, open_audit
from halftruth.audit.current import read_current
from halftruth.audit.imports import ASKED_KEY, ROW_KEY
from halftruth.audit.repair import apply_changes, find_changes, read_audited
from halftruth.audit.rows import Rows
from halftruth.data import BadImage, DataError
from halftruth.labels import PRESENT, LabelMatrix
from halftruth.train.run_folder import write_text


def export_audit(
    folder: str | Path, tool: str, out: str | Path | None = None, precision: float | None = None
) -> Path:
    """Write an audit for "label-studio", "fiftyone" or "cleanlab"; returns the folder.

    Labels are those of the file plus the accepted candidates (with `precision` also the likely
    ones). Undecided candidates become suggestions with a probability.
    """
    if tool not in TOOLS:
        raise DataError(f"export: expected one of {', '.join(TOOLS)}, got {tool!r}")
    audit = open_audit(folder)
    out = Path(out) if out is not None else audit.path / tool
    if tool == "fiftyone" and Rows(audit).store is None:
        raise DataError(
            f"{audit.path}: FiftyOne needs images, and this audit has none; export for "
            "label-studio or cleanlab instead"
        )
    labels = apply_changes(read_audited(audit), find_changes(audit, precision=precision))
    out.mkdir(parents=True, exist_ok=True)
    TOOLS[tool](audit, labels, out)
    return out


def _suggestions(audit: AuditFolder, labels: LabelMatrix) -> dict[int, list[tuple[str, float]]]:
    """The undecided missing labels per row with their probability, the most likely ones first."""
    current = read_current(audit)
    ids = current.undecided()
    table = audit.candidates.iloc[ids].assign(probability=current.probability[ids])
    place = {name: k for k, name in enumerate(labels.classes)}
    columns = table["class"].map(place).to_numpy(dtype=np.intp)
    still = labels.values[table["row"].to_numpy(), columns] != PRESENT
    found: dict[int, list[tuple[str, float]]] = {}
    open_ones = table[still]
    for row, name, p in zip(
        open_ones["row"], open_ones["class"], open_ones["probability"].round(4), strict=True
    ):
        found.setdefault(int(row), []).append((str(name), float(p)))
    return found


def _label_studio(audit: AuditFolder, labels: LabelMatrix, out: Path) -> None:
    """tasks.json with predictions (labels and likely suggestions, preselected), and config.xml.

    Nothing is an annotation yet: only what people submit comes back as a verdict. A plan has the
    rows that it proposes, each with the classes that it asks for.
    """
    rows, suggested = Rows(audit), _suggestions(audit, labels)
    images, planned = rows.store is not None, "plan" in audit.info
    tasks = []
    for row in [*suggested] if planned else audit.scored["rows"]:
        present = _present(labels, row)
        more = [(name, p) for name, p in suggested.get(int(row), []) if p >= 0.5]
        data = _data(audit, labels, int(row), None if images else rows)
        task: dict[str, Any] = {"data": {**data, ROW_KEY: int(row) + 1}}
        if planned:
            asked = [name for name, _ in suggested[row]]
            task["data"] |= {ASKED_KEY: asked, "question": f"Present? {', '.join(asked)}"}
        names = present + [name for name, _ in more]
        if names:
            score = max((p for _, p in more), default=1.0)
            prediction = {"model_version": "halftruth audit", "score": score}
            task["predictions"] = [{**prediction, "result": [_choices(names)]}]
        tasks.append(task)
    _dump(out / "tasks.json", tasks)
    shown = '<Image name="item" value="$image"/>' if images else '<Text name="item" value="$text"/>'
    question = '  <Header value="$question"/>\n' if planned else ""
    choices = "\n".join(f"    <Choice value={quoteattr(name)}/>" for name in labels.classes)
    (out / "config.xml").write_text(
        f'<View>\n{question}  {shown}\n  <Choices name="labels" toName="item" choice="multiple">\n'
        f"{choices}\n  </Choices>\n</View>\n",
        encoding="utf-8",
    )


def _present(labels: LabelMatrix, row: int) -> list[str]:
    return [labels.classes[k] for k in np.flatnonzero(labels.values[row] == PRESENT)]


def _choices(names: list[str]) -> dict[str, Any]:
    return {
        "from_name": "labels",
        "to_name": "item",
        "type": "choices",
        "value": {"choices": names},
    }


def _data(audit: AuditFolder, labels: LabelMatrix, row: int, texts: Rows | None) -> dict[str, str]:
    if texts is not None:
        return {"text": "\n".join(f"{name}: {text}" for name, text in texts.columns(row))}
    item = str(labels.items[row]) if labels.items is not None else str(row)
    # The address at which Label Studio serves files of its LOCAL_FILES_DOCUMENT_ROOT.
    return {"image": f"/data/local-files/?d={quote(item)}"}


def _fiftyone(audit: AuditFolder, labels: LabelMatrix, out: Path) -> None:
    """samples.json (filepath, labels, suggestions with confidence) and load.py to read it."""
    suggested, rows = _suggestions(audit, labels), Rows(audit)
    samples = []
    for row in [*suggested] if "plan" in audit.info else audit.scored["rows"]:
        item = str(labels.items[row]) if labels.items is not None else str(row)
        samples.append(
            {
                "filepath": _path(rows, item),
                ROW_KEY: int(row) + 1,
                "labels": _present(labels, row),
                "suggestions": suggested.get(int(row), []),
            }
        )
    _dump(out / "samples.json", {"classes": list(labels.classes), "samples": samples})
    (out / "load.py").write_text(_LOAD, encoding="utf-8")


def _path(rows: Rows, item: str) -> str:
    assert rows.store is not None
    try:
        name = rows.store.resolve(item)
    except BadImage:
        return item
    folders = [path for path in rows.store.sources if (path / name).is_file()]
    return str(folders[0] / name) if folders else name


_LOAD = '''"""python load.py: the audit as a FiftyOne dataset (unpack a zip of images first).

Tag suggestions with accept or reject, or correct the field `labels` and tag the sample reviewed.
Then: dataset.export("export", fo.types.FiftyOneDataset, export_media=False), and
halftruth import-verdicts AUDIT export/samples.json
"""

import json
from pathlib import Path

import fiftyone as fo

found = json.loads((Path(__file__).parent / "samples.json").read_text())
dataset = fo.Dataset("halftruth-audit", overwrite=True)
dataset.default_classes = found["classes"]
samples = []
for one in found["samples"]:
    sample = fo.Sample(filepath=one["filepath"], halftruth_row=one["halftruth_row"])
    present = [fo.Classification(label=name) for name in one["labels"]]
    suggested = [fo.Classification(label=name, confidence=p) for name, p in one["suggestions"]]
    sample["labels"] = fo.Classifications(classifications=present)
    sample["suggestions"] = fo.Classifications(classifications=suggested)
    samples.append(sample)
dataset.add_samples(samples)
if __name__ == "__main__":
    fo.launch_app(dataset).wait()
'''


def _cleanlab(audit: AuditFolder, labels: LabelMatrix, out: Path) -> None:
    """labels.json (class numbers per row) and pred_probs.npy, the inputs of cleanlab."""
    rows = audit.scored["rows"]
    lists = [[int(k) for k in np.flatnonzero(labels.values[row] == PRESENT)] for row in rows]
    items = None if labels.items is None else [str(labels.items[row]) for row in rows]
    _dump(out / "labels.json", {"classes": list(labels.classes), "items": items, "labels": lists})
    np.save(out / "pred_probs.npy", audit.scored["scores"])


TOOLS: dict[str, Callable[[AuditFolder, LabelMatrix, Path], None]] = {
    "label-studio": _label_studio,
    "fiftyone": _fiftyone,
    "cleanlab": _cleanlab,
}


def _dump(path: Path, tree: Any) -> None:
    write_text(path, json.dumps(tree, ensure_ascii=False, indent=1))
