"""`halftruth review`: the page of a review, for one person on this machine.

Served on 127.0.0.1 only, below a random token: whoever does not have the address gets nothing.
"""

from __future__ import annotations

import hmac
import secrets
from importlib.resources import files
from pathlib import Path
from typing import Any

from halftruth.audit.folder import open_audit
from halftruth.audit.review_queue import Queue
from halftruth.data import BadImage, DataError

HOST = "127.0.0.1"
_THUMB, _LARGE = 320, 1600
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; img-src 'self' data:; connect-src 'self'; "
    "style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}


def make_app(queue: Queue, token: str) -> Any:
    """The Flask application; every address begins with the token."""
    flask = import_flask()
    app = flask.Flask("halftruth.audit", static_folder=None)
    page = (files("halftruth.audit") / "review.html").read_text(encoding="utf-8")

    @app.before_request
    def check_visitor() -> Any:
        given = flask.request.path.split("/")[1]
        host = flask.request.host.rsplit(":", 1)[0]
        # A foreign name for this machine is how a web page gets around the same-origin rule.
        known = host in (HOST, "localhost")
        if not known or not hmac.compare_digest(given.encode(), token.encode()):
            return "", 404
        return None

    @app.after_request
    def add_headers(response: Any) -> Any:
        response.headers.update(_HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    @app.errorhandler(DataError)
    def refuse(error: DataError) -> Any:
        return {"error": str(error)}, 400

    @app.get("/<token>/")
    def show(token: str) -> Any:
        return flask.Response(page, mimetype="text/html")

    @app.get("/<token>/about")
    def about(token: str) -> Any:
        info = queue.audit.info
        return {
            "labels": Path(info["labels"]).name,
            "origin": info["origin"],
            "warnings": info["warnings"],
            "classes": queue.counts(),
            "pictures": queue.rows.store is not None,
        }

    @app.get("/<token>/candidates")
    def candidates(token: str) -> Any:
        asked = flask.request.args
        before = asked.get("before", type=int)
        return queue.page(
            kind=asked.get("kind", "missing"),
            name=asked.get("class", ""),
            low=asked.get("low", 0.0, type=float),
            high=asked.get("high", 1.0, type=float),
            state=asked.get("state", "open"),
            after=asked.get("after", -1, type=int),
            before=before,
            limit=asked.get("limit", 48, type=int),
        )

    @app.get("/<token>/progress")
    def progress(token: str) -> Any:
        ids = [int(i) for i in flask.request.args.get("ids", "").split(",") if i.isdigit()]
        return {**queue.progress(), "states": queue.states(ids)}

    @app.post("/<token>/decide")
    def decide(token: str) -> Any:
        asked = flask.request.get_json(silent=True)
        if not isinstance(asked, dict) or not isinstance(asked.get("ids"), list):
            raise DataError("expected {ids: [...], verdict: ...}")
        tab = str(asked.get("tab", ""))[:40]
        event = queue.decisions.decide(asked["ids"], str(asked.get("verdict")), tab)
        return {"event": event["n"], "states": queue.states(event["ids"]), **queue.progress()}

    @app.post("/<token>/undo")
    def undo(token: str) -> Any:
        asked = flask.request.get_json(silent=True)
        tab = str(asked.get("tab", ""))[:40] if isinstance(asked, dict) else ""
        event = queue.decisions.undo(tab)
        ids = [] if event is None else event["ids"]
        return {"ids": ids, "states": queue.states(ids), **queue.progress()}

    @app.get("/<token>/image/<int:number>")
    def image(token: str, number: int) -> Any:
        if number >= len(queue.item):
            return "", 404
        side = _LARGE if "large" in flask.request.args else _THUMB
        try:
            data = queue.rows.picture(str(queue.item[number]), side)
        except BadImage as error:
            return {"error": str(error)}, 404
        kept = {"Cache-Control": "private, max-age=3600"}
        return flask.Response(data, mimetype="image/jpeg", headers=kept)

    return app


class Review:
    """A server that is ready: `address` is where the page is, `serve()` runs until stopped."""

    def __init__(self, folder: str | Path, port: int = 0) -> None:
        import_flask()
        from werkzeug.serving import make_server

        self.queue = Queue(open_audit(folder))
        self.token = secrets.token_urlsafe(24)
        try:
            app = make_app(self.queue, self.token)
            self.server = make_server(HOST, port, app, threaded=True, request_handler=_quiet())
        except (OSError, SystemExit) as error:
            self.queue.decisions.close()
            raise DataError(
                f"port {port} of {HOST} cannot be used ({error}); choose another with --port"
            ) from None
        self.address = f"http://{HOST}:{self.server.server_port}/{self.token}/"

    def serve(self) -> None:
        try:
            self.server.serve_forever()
        finally:
            self.close()

    def close(self) -> None:
        self.server.server_close()
        self.queue.decisions.close()


def _quiet() -> Any:
    from werkzeug.serving import WSGIRequestHandler

    class Quiet(WSGIRequestHandler):
        def log_request(self, code: Any = "-", size: Any = "-") -> None:
            """The token is part of every address: it should not stay in a terminal's log."""

    return Quiet


def import_flask() -> Any:
    """Flask, or an error that says how to get it."""
    try:
        import flask
    except ImportError as error:
        raise DataError('the review page needs Flask: pip install "halftruth[train]"') from error
    return flask
