"""A machine-learning backend of Label Studio: suggestions of a run while people annotate.

    python examples/label_studio_backend.py runs/first --port 9090 [--files FOLDER]

Add http://localhost:9090 under "Model" in the settings of the project. The labelling configuration
has one `Choices choice="multiple"` with the classes of the run, for one `Image` or `Text`. Images
of local storage (`/data/local-files/?d=...`) are read below `--files`; uploaded images and URLs are
not downloaded by this example. Choices are those of `halftruth predict`; the score of a task is
the probability of its least certain class, so that sorting by it shows uncertain tasks first.
"""

import argparse
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlparse

import flask
import pandas as pd

import halftruth
from halftruth.serve import get_kind, to_records


def make_backend(run: halftruth.TrainedRun, files: Path) -> flask.Flask:
    app = flask.Flask("label-studio-backend")
    version = f"halftruth {run.folder.name}"

    @app.get("/health")
    def health():
        return {"status": "UP", "model_class": "halftruth"}

    @app.post("/setup")
    def setup():
        return {"model_version": version}

    @app.post("/predict")
    def predict():
        body = flask.request.get_json(force=True)
        choices, source = find_tags(body["label_config"])
        field = source.get("value", "").removeprefix("$")
        values = [task["data"][field] for task in body["tasks"]]
        if get_kind(run) == "texts":
            inputs = pd.DataFrame({run.config.text: values})
        else:
            inputs = [find_image(value, files) for value in values]
        records = to_records(run.predict(inputs), run.classes)
        return {"results": [to_result(row, choices, source, version) for row in records]}

    return app


def find_tags(label_config: str) -> tuple[ElementTree.Element, ElementTree.Element]:
    """Return the Choices of a labelling configuration and the tag that they belong to."""
    tree = ElementTree.fromstring(label_config)
    choices = next(tree.iter("Choices"))
    source = next(tag for tag in tree.iter() if tag.get("name") == choices.get("toName"))
    return choices, source


def find_image(address: str, files: Path) -> Path:
    """Return the file of an image in local storage, which must be below `files`."""
    name = parse_qs(urlparse(address).query).get("d", [unquote(address)])[0]
    path = (files / name).resolve()
    if not path.is_relative_to(files.resolve()) or not path.is_file():
        flask.abort(400, f"there is no image {name} below --files")
    return path


def to_result(row, choices, source, version):
    certain = min(max(p, 1 - p) for p in row["probabilities"].values())
    value = {
        "from_name": choices.get("name"),
        "to_name": choices.get("toName"),
        "type": "choices",
        "value": {"choices": row["labels"]},
    }
    return {"result": [value], "score": certain, "model_version": version}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run")
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument("--files", type=Path, default=Path("."))
    given = parser.parse_args()
    make_backend(halftruth.load(given.run), given.files).run(port=given.port)
