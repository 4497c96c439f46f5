"""`halftruth review`: the review page of an audit, for one or several annotators.

Served on 127.0.0.1 only, below a random token: without the address there is no answer.
"""

from __future__ import annotations

import hmac
import json
import re
import reprlib
import secrets
import socket
import traceback
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from halftruth.audit.audit_folder import open_audit
from halftruth.audit.review_queue import Queue
from halftruth.data import BadImage, DataError
from halftruth.extras import needs_extras

if TYPE_CHECKING:
    import flask
    from flask.typing import ResponseReturnValue

HOST = "127.0.0.1"
_THUMB, _LARGE = 320, 1600
_MOST_BYTES = 1 << 20
# A batch may decide on many more candidates than a page shows.
_MOST_STATES = 500
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Review:
    """A review server: `address` is the address of the page, `serve()` runs until stopped."""

    def __init__(self, folder: str | Path | Queue, port: int = 0) -> None:
        """`folder`: of an audit; or a queue that is open already."""
        import_flask()
        from werkzeug.serving import make_server

        opened = _open_port(port)
        with opened:
            self.queue = folder if isinstance(folder, Queue) else Queue(open_audit(folder))
            self.token = secrets.token_urlsafe(24)
            self.server = make_server(
                HOST, port, make_review_app(self.queue, self.token), threaded=True,
                request_handler=_silent_handler(), fd=opened.fileno(),
            )  # fmt: skip
        self.address = f"http://{HOST}:{self.server.port}/{self.token}/"

    def serve(self) -> None:
        try:
            self.server.serve_forever()
        finally:
            self.close()

    def close(self) -> None:
        self.server.server_close()
        self.queue.decisions.close()


def _open_port(port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind((HOST, port))
        opened.listen(128)
    except (OSError, OverflowError) as error:
        opened.close()
        reason = getattr(error, "strerror", None) or error
        raise DataError(
            f"port {port} of {HOST} cannot be opened ({reason}); "
            "choose another with --port (1024 to 65535), or --port 0 for any free port"
        ) from None
    return opened


def _silent_handler() -> type:
    from werkzeug.serving import WSGIRequestHandler

    class SilentHandler(WSGIRequestHandler):
        def log(self, *message: object) -> None:
            """Write no log: every address contains the token."""

        def log_request(self, *answer: object) -> None:
            """Do nothing: formatting an address that cannot be parsed would raise an error."""

        def handle(self) -> None:
            try:
                super().handle()
            except ValueError:
                # An address that cannot be parsed, such as //[
                self.send_error(400)

    return SilentHandler


def make_review_app(queue: Queue, token: str) -> flask.Flask:
    """The Flask application; every address starts with the token."""
    flask = import_flask()
    app = flask.Flask("halftruth.audit", static_folder=None)
    app.config["MAX_CONTENT_LENGTH"] = _MOST_BYTES
    views = Views(queue)
    for method, address, view in (
        ("GET", "", views.page),
        ("GET", "about", views.about),
        ("GET", "candidates", views.candidates),
        ("GET", "progress", views.progress),
        ("GET", "similar/<number>", views.similar),
        ("GET", "image/<number>", views.image),
        ("GET", "row/<number>", views.row_image),
        ("POST", "decide", views.decide),
        ("POST", "undo", views.undo),
    ):
        app.add_url_rule(f"/<token>/{address}", view.__name__, view, methods=[method])
    app.url_value_preprocessor(lambda endpoint, values: values and values.pop("token"))
    app.before_request(lambda: _check_visitor(flask.request, token))
    app.after_request(_add_headers)
    app.register_error_handler(DataError, lambda error: ({"error": str(error)}, 400))
    app.register_error_handler(OSError, lambda error: ({"error": str(error)}, 503))
    app.register_error_handler(Exception, _report_bug)
    return app


def _check_visitor(request: flask.Request, token: str) -> ResponseReturnValue | None:
    given = request.path.split("/")[1]
    # A web page can get around the same-origin rule with a foreign host name for this machine.
    known = request.host.rsplit(":", 1)[0] in (HOST, "localhost")
    if not known or not hmac.compare_digest(given.encode(), token.encode()):
        return "", 404
    origin = request.headers.get("Origin")
    if origin is not None and origin != request.host_url.rstrip("/"):
        return {"error": "this request comes from another web page"}, 403
    return None


def _add_headers(response: flask.Response) -> flask.Response:
    response.headers.update(_HEADERS)
    response.headers.setdefault("Cache-Control", "no-store")
    return response


def _report_bug(error: Exception) -> object:
    from werkzeug.exceptions import HTTPException

    if isinstance(error, HTTPException):
        return {"error": error.description}, error.code
    # Not by the logger of Flask, which writes the address and so the token.
    traceback.print_exception(error)
    return {"error": f"{type(error).__name__}: a bug in halftruth, please report it"}, 500


class Views:
    """One method per address of the page."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.flask = import_flask()
        self.html = (files("halftruth.audit") / "review.html").read_text(encoding="utf-8")

    def page(self) -> ResponseReturnValue:
        return self.flask.Response(self.html, mimetype="text/html")

    def about(self) -> ResponseReturnValue:
        info = self.queue.audit.info
        return {
            "purpose": self.queue.purpose,
            "labels": Path(info["labels"]).name,
            "origin": info["origin"],
            "warnings": info["warnings"],
            "classes": self.queue.counts(),
        }

    def candidates(self) -> ResponseReturnValue:
        asked = self.flask.request.args
        before = asked.get("before")
        return self.queue.page(
            **_filters(asked),
            after=_whole_number(asked.get("after", "-1")),
            before=None if before is None else _whole_number(before),
            limit=_whole_number(asked.get("limit", "48")),
            who=_name(asked, "who"),
        )

    def progress(self) -> ResponseReturnValue:
        asked = self.flask.request.args
        ids = [_whole_number(text) for text in asked.get("ids", "").split(",") if text]
        return {**self.queue.progress(_name(asked, "who")), "states": self.queue.states(ids)}

    def decide(self) -> ResponseReturnValue:
        asked = self._read_object()
        ids, verdict, who = asked.get("ids"), asked.get("verdict"), _name(asked, "who")
        if isinstance(asked.get("matching"), dict) and ids is None:
            ids = self._matching(asked, who)
        if not isinstance(ids, list) or not isinstance(verdict, str):
            raise DataError("expected {ids: [...], verdict: ...}")
        event = self.queue.decisions.decide(ids, verdict, _name(asked, "tab"), who)
        return {
            "event": event["n"],
            "decided": len(event["ids"]),
            "states": self.queue.states(event["ids"][:_MOST_STATES]),
            **self.queue.progress(who),
        }

    def _matching(self, asked: dict[str, Any], who: str) -> list[int]:
        """The ids of all candidates that match the filters, as many as the annotator was shown."""
        ids = self.queue.matching(**_filters(asked["matching"]), who=who).tolist()
        if len(ids) != asked.get("count"):
            raise DataError(
                f"{len(ids):,} candidates match the filters now, and the page showed "
                f"{reprlib.repr(asked.get('count'))}; look at them and choose again"
            )
        return ids

    def undo(self) -> ResponseReturnValue:
        asked = self._read_object()
        who = _name(asked, "who")
        event = self.queue.decisions.undo(_name(asked, "tab"), who)
        ids = [] if event is None else event["ids"]
        return {
            "ids": ids[:_MOST_STATES],
            "undone": len(ids),
            "states": self.queue.states(ids[:_MOST_STATES]),
            **self.queue.progress(who),
        }

    def similar(self, number: str) -> ResponseReturnValue:
        return self.queue.similar(_whole_number(number))

    def image(self, number: str) -> Any:
        k = _whole_number(number)
        if not 0 <= k < len(self.queue.known.item):
            return "", 404
        return self._send_image(str(self.queue.known.item[k]))

    def row_image(self, number: str) -> ResponseReturnValue:
        return self._send_image(self.queue.item_at(_whole_number(number)))

    def _send_image(self, item: str) -> ResponseReturnValue:
        side = _LARGE if "large" in self.flask.request.args else _THUMB
        try:
            data = self.queue.rows.image(item, side)
        except BadImage as error:
            return {"error": str(error)}, 404
        cached = {"Cache-Control": "private, max-age=3600"}
        return self.flask.Response(data, mimetype="image/jpeg", headers=cached)

    def _read_object(self) -> dict[str, object]:
        """The JSON object in the body of the request."""
        try:
            asked = json.loads(self.flask.request.get_data())
        except (ValueError, RecursionError, OSError):
            # OSError: a bad chunk header.
            asked = None
        if not isinstance(asked, dict):
            raise DataError("expected a JSON object in the body of the request")
        return asked


def _whole_number(text: str) -> int:
    if not re.fullmatch(r"-?[0-9]{1,9}", text):
        raise DataError(f"expected a whole number of at most 9 digits, got {text[:20]!r}")
    return int(text)


def _filters(asked: Any) -> dict[str, Any]:
    """The filters of a request, from its address or its body."""
    try:
        low, high = float(asked.get("low", 0.0)), float(asked.get("high", 1.0))
    except (TypeError, ValueError, OverflowError):
        raise DataError("expected numbers for `low` and `high`") from None
    words = {key: asked.get(key, usual) for key, usual in _USUAL.items()}
    if not all(isinstance(word, str) for word in words.values()):
        raise DataError("expected text for `kind`, `state` and `class`")
    return {"low": low, "high": high, "name": words.pop("class"), **words}


_USUAL = {"kind": "missing", "state": "open", "class": ""}


def _name(asked: dict[str, object], key: str) -> str:
    name = asked.get(key, "")
    if not isinstance(name, str):
        raise DataError(f"expected text for `{key}`")
    return name.strip()[:40]


def import_flask() -> Any:
    """Return Flask, which takes time to import."""
    with needs_extras("the page"):
        import flask
    return flask
