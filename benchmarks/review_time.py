"""Time of one decision on the review page, through the real server, at 100,000 candidates.

    python benchmarks/review_time.py --out review-time/

Makes an audit of 100,000 rows x 20 classes, starts `halftruth review` as a process of its own and
sends it decisions over HTTP. A decision is the POST that writes the verdict and updates all
probabilities, the order and the counts; the page then asks for the next candidates. Prints the load
of the machine beside the times: other work makes them longer.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import numpy as np

from common import start
from halftruth.audit.make_audit import make_audit
from halftruth.data import write_labels
from halftruth.labels import LabelMatrix
from halftruth.labels.hiding import single_positive

CLASSES = 20


def make(folder: Path, rows: int) -> None:
    """An audit with as many candidates as rows."""
    random = np.random.default_rng(0)
    truth = (random.random((rows, CLASSES)) < 0.15).astype(np.int8)
    scores = 1 / (1 + np.exp(2.5 - 2.5 * truth - 1.5 * random.normal(size=truth.shape)))
    names = [f"c{k}" for k in range(CLASSES)]
    folder.mkdir(parents=True)
    write_labels(LabelMatrix(single_positive(truth, 0), names), folder / "labels.parquet")
    np.savez(folder / "scores.npz", scores=scores, classes=np.array(names))
    labels = folder / "labels.parquet"
    made = make_audit(folder / "scores.npz", labels, out=folder / "audit", most=rows)
    assert len(made.candidates) >= rows, len(made.candidates)


def ask(address: str, body: dict[str, object] | None = None) -> tuple[float, dict[str, object]]:
    """The seconds of a request, and its answer."""
    data = None if body is None else json.dumps(body).encode()
    started = time.perf_counter()
    with urllib.request.urlopen(urllib.request.Request(address, data)) as answer:
        content = answer.read()
    return time.perf_counter() - started, json.loads(content)


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--decisions", type=int, default=40)
    parser.add_argument("--rows", type=int, default=100_000, help="and candidates")
    options = parser.parse_args(argv)
    if not options.out.exists():
        make(options.out, options.rows)
    (options.out / "audit" / "decisions.jsonl").unlink(missing_ok=True)
    command = [sys.executable, "-m", "halftruth", "review", str(options.out / "audit")]
    server = subprocess.Popen([*command, "--no-browser"], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    for line in server.stdout:
        if found := re.search(r"http://\S*", line):
            break
    base = found.group().rstrip("/")
    try:
        first, page = ask(f"{base}/candidates")
        decisions, pages = [], []
        for k in range(options.decisions):
            body = {"ids": [page["items"][0]["id"]], "verdict": "accept" if k % 3 else "reject"}
            decisions.append(ask(f"{base}/decide", body)[0])
            seconds, page = ask(f"{base}/candidates")
            pages.append(seconds)
    finally:
        server.terminate()
    load = os.getloadavg()[0]
    print(f"load {load:.1f} on {os.cpu_count()} cores; first page {first:.2f} s")
    for name, found in (("decision", decisions), ("next page", pages)):
        print(f"{name}: median {1e3 * np.median(found):.0f} ms, worst {1e3 * max(found):.0f} ms")


if __name__ == "__main__":
    start(main, "--out OUT/review --rows 300 --decisions 4")
