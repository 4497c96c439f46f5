"""`halftruth serve`: a small JSON endpoint for predictions of a run.

    GET  /health    {"status": "ok"}, once the model is loaded
    GET  /          classes, kind of inputs, limits
    POST /predict   {"images": [base64, ...]}, {"texts": [...]} or {"features": [[...], ...]};
                    images also as files of a form

Stateless: nothing of a request is stored or logged. There are no accounts and no encryption.
"""

import base64
import binascii
import json
import socket
import threading
from pathlib import Path
from typing import Any

from halftruth.extras import needs_extras

with needs_extras("halftruth.serve"):
    import pandas as pd

    from halftruth.data import BadImage, DataError
    from halftruth.data.image_file import decode_image
    from halftruth.data.readers.label_lists import split_names
    from halftruth.train.results.output_tables import avoid_names
    from halftruth.train.results.trained_run import TrainedRun

MOST_ROWS = 256
MOST_BYTES = 32 << 20


class Service:
    """A server of one run: `address` is where it listens, `serve()` runs until stopped."""

    def __init__(
        self,
        run: str | Path | TrainedRun,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        most_rows: int = MOST_ROWS,
    ) -> None:
        with needs_extras("the server"):
            # werkzeug comes with it, and alone would be named as what is missing.
            import flask  # noqa: F401
            from werkzeug.serving import make_server

        trained = run if isinstance(run, TrainedRun) else TrainedRun(run)
        try:
            probe = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise DataError(
                f"port {port} of {host} cannot be opened ({getattr(error, 'strerror', error)}); "
                "choose another with --port, or --port 0 for any free port"
            ) from None
        with probe:
            self.server = make_server(
                host, port, make_app(trained, most_rows), threaded=True, fd=probe.fileno()
            )
        self.address = f"http://{host}:{self.server.port}"

    def serve(self) -> None:
        """Answer requests until the process is stopped."""
        try:
            self.server.serve_forever()
        finally:
            self.server.server_close()


def make_app(run: TrainedRun, most_rows: int = MOST_ROWS) -> Any:
    """Return the WSGI application, for a production server such as gunicorn or waitress.

    app = halftruth.serve.make_app(halftruth.load("runs/first"))
    """
    with needs_extras("the server"):
        import flask
    app = flask.Flask("halftruth.serve", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = MOST_BYTES
    # One request at a time: the model has its own threads, and memory for one batch.
    lock = threading.Lock()
    kind = get_kind(run)
    # Loaded now, so that the first request is fast and a damaged file is an error at the start.
    _ = run.model

    @app.get("/health")
    def health() -> Any:
        return {"status": "ok"}

    @app.get("/")
    def about() -> Any:
        limits = {"rows": most_rows, "bytes": MOST_BYTES}
        return {"inputs": kind, "classes": list(run.classes), "limits": limits}

    @app.post("/predict")
    def predict() -> Any:
        items, inputs = read_request(flask.request, run, kind, most_rows)
        with lock:
            table = run.predict(
                **{"text" if kind == "texts" else kind: inputs}, items=items, bad_images="fail"
            )
        return {"predictions": to_records(table, run.classes)}

    @app.errorhandler(DataError)
    def refuse(error: DataError) -> Any:
        return {"error": str(error)}, 400

    @app.errorhandler(Exception)
    def fail(error: Exception) -> Any:
        code = getattr(error, "code", 500)
        text = getattr(error, "description", None) or "the prediction failed; see the server's log"
        if code == 413:
            text = f"a request may have at most {MOST_BYTES >> 20} MB; send several"
        if code == 500:
            app.logger.exception("prediction failed")
        return {"error": text}, code

    return app


def get_kind(run: TrainedRun) -> str:
    """Return what a request holds: images, texts or features."""
    if run.inputs is None:
        return "images"
    return "texts" if run.config.text else "features"


def read_request(request: Any, run: TrainedRun, kind: str, most_rows: int) -> tuple[Any, Any]:
    """Return the names (or None) and the inputs of a request, checked."""
    if kind == "images" and request.files:
        files = request.files.getlist("images")
        names = [file.filename or str(row) for row, file in enumerate(files)]
        values: Any = [file.read() for file in files]
        _check_rows(values, "the form field images", most_rows)
        return _unique(names), [
            _decode(data, name) for data, name in zip(values, names, strict=True)
        ]
    body = _read_json(request)
    unknown = sorted(body.keys() - {kind, "items"})
    if unknown or kind not in body:
        got = ", ".join(map(repr, unknown)) or "none of it"
        raise DataError(f"this run expects {kind!r} (and items, if you like), got {got}")
    values, items = body[kind], body.get("items")
    _check_rows(values, kind, most_rows)
    if items is not None:
        _check_rows(items, "items", most_rows)
        items = _unique([str(item) for item in items])
        if len(items) != len(values):
            raise DataError(f"expected {len(values)} items, one per row, got {len(items)}")
    if kind == "images":
        return items, [_decode(_from_base64(text, n), str(n)) for n, text in enumerate(values)]
    if kind == "texts":
        if not all(isinstance(text, str) for text in values):
            raise DataError("texts: expected a list of texts")
        # A table, since a text could be the name of a file.
        return items, pd.DataFrame({run.config.text: values})
    if all(isinstance(row, dict) for row in values):
        return items, pd.DataFrame(values)
    if not all(isinstance(row, list) for row in values):
        raise DataError("features: expected a list of rows: lists of numbers, or objects")
    return items, values


def to_records(table: pd.DataFrame, classes: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return one record per row: its name, the decided labels, the probability per class.

    With many classes, the table has no column per class: the most probable ones are returned.
    """

    item, labels = (avoid_names(name, classes) for name in ("item", "labels"))

    def list_probabilities(row: Any) -> dict[str, float]:
        if classes[0] in table.columns:
            return {name: round(float(row[name]), 6) for name in classes}
        names, values = split_names(row["top"], "|"), row["probabilities"].split("|")
        return {name: float(value) for name, value in zip(names, values, strict=True)}

    return [
        {
            "item": str(row[item]),
            "labels": split_names(row[labels], "|") if row[labels] else [],
            "probabilities": list_probabilities(row),
        }
        for row in table.to_dict(orient="records")
    ]


def _read_json(request: Any) -> dict[str, Any]:
    try:
        body = json.loads(request.get_data())
    except (ValueError, RecursionError):
        raise DataError("expected a JSON object as the body of the request") from None
    if not isinstance(body, dict):
        raise DataError(f"expected a JSON object, got {type(body).__name__}")
    return body


def _check_rows(values: Any, name: str, most: int) -> None:
    if not isinstance(values, list) or not values:
        raise DataError(f"{name}: expected a list with at least one entry")
    if len(values) > most:
        raise DataError(f"{name}: expected at most {most} entries per request, got {len(values)}")


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise DataError("items: expected different names")
    return names


def _from_base64(text: Any, number: int) -> bytes:
    try:
        return base64.b64decode(str(text).rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"images[{number}]: expected an image file in base64") from None


def _decode(data: bytes, name: str) -> Any:
    try:
        return decode_image(data, name)
    except BadImage as error:
        raise DataError(f"image {error.name}: {error.reason}") from None
