"""The candidates of an audit in FiftyOne, and the tags of its users as verdicts.

    python examples/fiftyone_review.py open audit/                   # in the app of FiftyOne
    python examples/fiftyone_review.py verdicts audit/ verdicts.csv  # what people tagged
    halftruth import-verdicts audit/ verdicts.csv

Tag suggestions with accept or reject, or correct the field `labels` and tag the sample reviewed:
then its labels are present, and suggestions that are not among them absent.
"""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from halftruth.audit.audit_folder import AuditFolder, open_audit
from halftruth.audit.formats import list_present, list_suggestions
from halftruth.audit.repair import apply_changes, find_changes, read_audited
from halftruth.audit.rows import ShownRows
from halftruth.data import BadImage

NAME = "halftruth-audit"


def list_samples(audit: AuditFolder) -> Iterator[dict[str, Any]]:
    """Path, item, present labels and suggestions with their probability, per audited row."""
    labels = apply_changes(read_audited(audit), find_changes(audit))
    suggested, store = list_suggestions(audit, labels), ShownRows(audit).store
    if store is None:
        raise SystemExit(f"{audit.path}: FiftyOne needs images, and this audit has none")
    for row, item in zip(audit.scored.rows.tolist(), map(str, audit.scored.items), strict=True):
        try:
            name = store.resolve(item)
        except BadImage:
            name = item
        places = [Path(folder) / name for folder in store.sources]
        path = next((str(place) for place in places if place.is_file()), name)
        names, pairs = list_present(labels, row), suggested.get(row, [])
        yield {"filepath": path, "item": item, "labels": names, "suggestions": pairs}


def list_verdicts(samples: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """The verdicts of tagged samples: item, tags, labels, and suggestions with their tags."""
    found = []
    for sample in samples:
        suggested, reviewed = dict(sample["suggestions"]), "reviewed" in sample["tags"]
        present = {name for name, tags in suggested.items() if "accept" in tags}
        absent = {name for name, tags in suggested.items() if "reject" in tags}
        if reviewed:
            present |= {*sample["labels"]}
            absent |= {*suggested} - present
        pairs = [(name, "present") for name in sorted(present - absent)]
        pairs += [(name, "absent") for name in sorted(absent)]
        found += [(sample["item"], name, verdict, "fiftyone") for name, verdict in pairs]
    return pd.DataFrame(found, columns=["item", "class", "verdict", "by"])


def make_dataset(audit: AuditFolder) -> Any:
    import fiftyone as fo

    dataset = fo.Dataset(NAME, overwrite=True, persistent=True)
    dataset.default_classes = list(audit.classes)
    samples = []
    for one in list_samples(audit):
        sample = fo.Sample(filepath=one["filepath"], item=one["item"])
        present = [fo.Classification(label=name) for name in one["labels"]]
        suggested = [fo.Classification(label=name, confidence=p) for name, p in one["suggestions"]]
        sample["labels"] = fo.Classifications(classifications=present)
        sample["suggestions"] = fo.Classifications(classifications=suggested)
        samples.append(sample)
    dataset.add_samples(samples)
    return dataset


def read_dataset() -> Iterator[dict[str, Any]]:
    import fiftyone as fo

    for sample in fo.load_dataset(NAME):
        yield {
            "item": sample["item"],
            "tags": sample.tags,
            "labels": [one.label for one in sample["labels"].classifications],
            "suggestions": [(one.label, one.tags) for one in sample["suggestions"].classifications],
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=["open", "verdicts"])
    parser.add_argument("audit", type=Path)
    parser.add_argument("out", type=Path, nargs="?", default=Path("verdicts.csv"))
    options = parser.parse_args()
    if options.action == "open":
        import fiftyone

        fiftyone.launch_app(make_dataset(open_audit(options.audit))).wait()
    else:
        list_verdicts(read_dataset()).to_csv(options.out, index=False)
