"""`halftruth serve`: a small JSON endpoint for predictions of a run.

    GET  /health    {"status": "ok"}, once the model is loaded
    GET  /          classes, kind of inputs, limits
    POST /predict   {"images": [base64, ...]}, {"texts": [...]} or {"features": [[...], ...]};
                    images also as files of a form

Stateless: nothing of a request is stored or logged. There are no accounts and no encryption.
"""

import base64
import binascii
import io
import ipaddress
import json
import math
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halftruth.extras import needs_extras

with needs_extras("halftruth.serve"):
    import pandas as pd
    from PIL import Image

    from halftruth.data import BadImage, DataError
    from halftruth.data.image_file import decode_image, list_formats
    from halftruth.data.readers.label_lists import split_names
    from halftruth.train.results.output_tables import avoid_names
    from halftruth.train.results.trained_run import TrainedRun

if TYPE_CHECKING:
    import flask
    from flask.typing import ResponseReturnValue

# Limits of one request, together for all of its rows: all images are decoded, and all texts are
# encoded, before the first prediction.
MOST_ROWS = 256
MOST_BYTES = 32 << 20
MOST_MEGAPIXELS = 64
MOST_LETTERS = 1_000_000
# A connection that sends nothing for so long is closed.
TIMEOUT_SECONDS = 30


class TooLarge(DataError):
    """A request is larger than the server accepts (status 413)."""


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
            from werkzeug.serving import WSGIRequestHandler, make_server

        class Handler(WSGIRequestHandler):
            timeout = TIMEOUT_SECONDS

        trained = run if isinstance(run, TrainedRun) else TrainedRun(run)
        try:
            probe = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise DataError(
                f"port {port} of {host} cannot be opened ({getattr(error, 'strerror', error)}); "
                "choose another with --port, or --port 0 for any free port"
            ) from None
        app = make_app(trained, most_rows, hosts=(host, socket.gethostname(), socket.getfqdn()))
        with probe:
            self.server = make_server(
                host, port, app, threaded=True, request_handler=Handler, fd=probe.fileno()
            )
        self.address = f"http://{host}:{self.server.port}"

    def serve(self) -> None:
        """Answer requests until the process is stopped."""
        try:
            self.server.serve_forever()
        finally:
            self.server.server_close()


def make_app(
    run: TrainedRun, most_rows: int = MOST_ROWS, hosts: Sequence[str] | None = None
) -> "flask.Flask":
    """Return the WSGI application, for a production server such as gunicorn or waitress.

    app = halftruth.serve.make_app(halftruth.load("runs/first"))

    `hosts`: names by which a request may address this server, besides localhost and addresses of
    numbers; None allows all, for a server behind a proxy that checks them.
    """
    with needs_extras("the server"):
        import flask
    app = flask.Flask("halftruth.serve", static_folder=None)
    # One byte more, since a body of unknown length is cut off there without an error.
    app.config["MAX_CONTENT_LENGTH"] = MOST_BYTES + 1
    # One request at a time: the model has its own threads, and memory for one batch.
    lock = threading.Lock()
    kind = get_kind(run)
    # Loaded now, so that the first request is fast and a damaged file is an error at the start.
    _ = run.model

    @app.before_request
    def check_host() -> None:
        named = flask.request.headers.get("Host", ""), flask.request.headers.get("Origin")
        sites = [site.rpartition("//")[2] for site in named if site is not None]
        if hosts is not None and not all(is_known_host(site, hosts) for site in sites):
            raise DataError(
                "the request is for another host than this server, or from a page of another "
                "site; behind a proxy, serve the application (halftruth.serve.make_app), which "
                "answers to all names"
            )

    @app.get("/health")
    def health() -> "ResponseReturnValue":
        return {"status": "ok"}

    @app.get("/")
    def about() -> "ResponseReturnValue":
        limits = {
            "rows": most_rows,
            "bytes": MOST_BYTES,
            "megapixels": MOST_MEGAPIXELS,
            "letters": MOST_LETTERS,
        }
        return {"inputs": kind, "classes": list(run.classes), "limits": limits}

    @app.post("/predict")
    def predict() -> "ResponseReturnValue":
        items, inputs = read_request(flask.request, run, kind, most_rows)
        with lock:
            given: dict[str, Any] = {"text" if kind == "texts" else kind: inputs}
            if kind == "images":
                given["bad_images"] = "fail"
            table = run.predict(**given, items=items)
        return {"predictions": to_records(table, run.classes)}

    @app.errorhandler(DataError)
    def refuse(error: DataError) -> "ResponseReturnValue":
        return {"error": str(error)}, 413 if isinstance(error, TooLarge) else 400

    @app.errorhandler(Exception)
    def fail(error: Exception) -> "ResponseReturnValue":
        code = getattr(error, "code", 500)
        text = getattr(error, "description", None) or "the prediction failed; see the server's log"
        if code == 413:
            text = _TOO_MANY_BYTES
        if code == 500:
            app.logger.exception("prediction failed")
        return {"error": text}, code

    return app


_TOO_MANY_BYTES = f"a request may have at most {MOST_BYTES >> 20} MB; send several"


def is_known_host(given: str, names: Sequence[str]) -> bool:
    """Whether the Host of a request is localhost, an address of numbers, or one of these names.

    A page of a foreign site reaches a local server by a name of that site (DNS rebinding).

    >>> [is_known_host(host, ["birds"]) for host in ("[::1]:80", "Birds:8000", "evil.org:8000")]
    [True, True, False]
    """
    host = given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() else given
    if host.lower() in ("localhost", *(name.lower() for name in names)):
        return True
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def get_kind(run: TrainedRun) -> str:
    """Return what a request holds: images, texts or features."""
    if run.inputs is None:
        return "images"
    return "texts" if run.config.text else "features"


def read_request(
    request: "flask.Request", run: TrainedRun, kind: str, most_rows: int
) -> tuple[Any, Any]:
    """Return the names (or None) and the inputs of a request, checked."""
    # Read first: looking for files of a form takes the body away.
    data = request.get_data()
    if len(data) > MOST_BYTES:
        raise TooLarge(_TOO_MANY_BYTES)
    if kind == "images" and request.files:
        files = request.files.getlist("images")
        names = [file.filename or str(row) for row, file in enumerate(files)]
        values = [file.read() for file in files]
        _check_rows(values, "the form field images", most_rows)
        return _unique(names), _decode_all(values, names)
    body = _read_json(data)
    unknown = sorted(body.keys() - {kind, "items"})
    if unknown or kind not in body:
        got = ", ".join(map(repr, unknown)) or "none of it"
        raise DataError(f"this run expects {kind!r} (and items, if you like), got {got:.200}")
    values, items = body[kind], body.get("items")
    _check_rows(values, kind, most_rows)
    if items is not None:
        _check_rows(items, "items", most_rows)
        items = _unique([str(item) for item in items])
        if len(items) != len(values):
            raise DataError(f"expected {len(values)} items, one per row, got {len(items)}")
    if kind == "images":
        decoded = [_from_base64(text, number) for number, text in enumerate(values)]
        return items, _decode_all(decoded, [str(number) for number in range(len(values))])
    if kind == "texts":
        return items, pd.DataFrame({run.config.text: _check_texts(values)})
    return items, _check_features(values)


def _check_texts(values: list[str]) -> list[str]:
    """The texts of a request, which become a table, since a text could be the name of a file."""
    if not all(isinstance(text, str) for text in values):
        raise DataError("texts: expected a list of texts")
    if sum(map(len, values)) > MOST_LETTERS:
        raise TooLarge(
            f"the texts of a request may have at most {MOST_LETTERS:,} letters; send several"
        )
    return values


def _check_features(values: list[Any]) -> "list[list[float]] | pd.DataFrame":
    """The rows of a request as a table if they are objects, and otherwise unchanged."""
    if not all(isinstance(row, dict) for row in values):
        if not all(isinstance(row, list) for row in values):
            raise DataError("features: expected a list of rows: lists of numbers, or objects")
        if not all(map(_are_numbers, values)):
            raise DataError("features: expected lists of numbers")
        return values
    for number, row in enumerate(values):
        if missing := sorted(values[0].keys() ^ row.keys()):
            raise DataError(
                f"features: rows 0 and {number} have different columns ({', '.join(missing):.200} "
                "only in one of them); write null for a value that is missing"
            )
        if not all(_are_numbers(cell) for cell in row.values() if isinstance(cell, (dict, list))):
            raise DataError(f"features: row {number}: expected numbers, texts or lists of numbers")
    return pd.DataFrame(values)


def _are_numbers(cells: object) -> bool:
    return isinstance(cells, list) and all(isinstance(cell, (int, float)) for cell in cells)


def to_records(table: pd.DataFrame, classes: tuple[str, ...]) -> list[dict[str, object]]:
    """Return one record per row: its name, the decided labels, the probability per class."""
    item, labels = (avoid_names(name, classes) for name in ("item", "labels"))
    return [
        {
            "item": str(row[item]),
            "labels": split_names(row[labels], "|") if row[labels] else [],
            "probabilities": {name: round(float(row[name]), 6) for name in classes},
        }
        for row in table.to_dict(orient="records")
    ]


def _read_json(data: bytes) -> dict[str, Any]:
    try:
        body = json.loads(data, parse_int=_parse_int)
        # Half of a pair of characters, as in "\\ud800", is valid JSON and not valid text.
        json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise DataError("expected text: some characters are only half of a pair") from None
    except (ValueError, RecursionError):
        raise DataError("expected a JSON object as the body of the request") from None
    if not isinstance(body, dict):
        raise DataError(f"expected a JSON object, got {type(body).__name__}")
    return body


def _parse_int(text: str) -> int | float:
    """An integer, or infinity for one that no number of a model can hold."""
    return int(text) if len(text) < 300 else float(text)


def _check_rows(values: object, name: str, most: int) -> None:
    if not isinstance(values, list) or not values:
        raise DataError(f"{name}: expected a list with at least one entry")
    if len(values) > most:
        raise DataError(f"{name}: expected at most {most} entries per request, got {len(values)}")


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) < len(names):
        raise DataError("items: expected different names")
    return names


def _from_base64(text: object, number: int) -> bytes:
    try:
        return base64.b64decode(str(text).rpartition("base64,")[2], validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"images[{number}]: expected an image file in base64") from None


def _decode_all(files: Sequence[bytes], names: Sequence[str]) -> list[Image.Image]:
    """Decode images, unless their headers announce more pixels than the server accepts."""
    if sum(map(_count_pixels, files)) > MOST_MEGAPIXELS * 1e6:
        raise TooLarge(
            f"the images of a request may have at most {MOST_MEGAPIXELS} megapixels together; make "
            "them smaller, or send several requests"
        )
    try:
        return [decode_image(data, name) for data, name in zip(files, names, strict=True)]
    except BadImage as error:
        raise DataError(f"image {error.name}: {error.reason}") from None


def _count_pixels(data: bytes) -> float:
    """The pixels that the header of an image announces; 0 if decoding will say what is wrong."""
    try:
        with Image.open(io.BytesIO(data), formats=list_formats()) as image:
            return image.width * image.height
    except Image.DecompressionBombError:
        return math.inf
    except Exception:
        return 0
