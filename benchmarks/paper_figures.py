"""Draw the figures of docs/gallery.md and docs/papers.md.

    python benchmarks/paper_figures.py docs/images/papers --data DATA --work WORK

Every figure of the papers by its command, `halftruth bench paper PAPER --figure N`, in its smallest
form, as a PNG file of at most 60 kB; and the comparisons of all methods in benchmarks/results.
Runs stay in WORK; the same command continues. Without --data: the figures that need none.
"""

import io
from argparse import ArgumentParser
from pathlib import Path

from PIL import Image, ImageOps

from common import start
from halftruth.bench.paper_items import Item, items
from halftruth.cli.bench_commands import app
from halftruth.plots.bench_figures import draw_bench
from halftruth.plots.loss_figures import draw_losses
from halftruth.plots.style import save

# Figures of the main texts, which are not in the supplements: gradients of an unknown label.
GRADIENTS = {
    "001-em": {"assume negative": "bce", "EM, α = 0.2": "em:alpha=0.2", "WAN, 1/(K−1)": "wan"},
    "004-lasd": {
        "assume negative": "bce",
        "LAS, 1/(K−1)": "las",
        "LASD, λ₊ = 0.1, τ = 0.9": "lasd:expected_positives=1.46",
    },
}
RESULTS = Path(__file__).parent / "results"
LIMIT, WIDTH, COLOURS = 60_000, 900, 64


def main(argv: list[str]) -> None:
    parser = ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, help="the folder of data sets")
    parser.add_argument("--work", type=Path, default=Path("papers"), help="the folder of runs")
    parser.add_argument("--only", default="", help="figures, as in 001-figure-7,002-figure-3")
    given = parser.parse_args(argv)
    given.out.mkdir(parents=True, exist_ok=True)
    for item in items():
        name = item.name.replace(" ", "-").lower()
        ready = given.data is not None and item.forms if item.needs_data else True
        if item.item.startswith("Figure") and ready and name in (given.only or name):
            write_small(draw(item, given.work / name, given.data), given.out / f"{name}.png")
    for path in sorted(RESULTS.glob("voc-headline*.jsonl")):
        if path.stem in (given.only or path.stem):
            found, *_ = save(draw_bench(path), given.work / f"{path.stem}.png")
            write_small([Image.open(found).convert("RGB")], given.out / found.name)
    for name, methods in GRADIENTS.items():
        drawing = draw_losses(methods, labels=["UNKNOWN"], show=["gradient"], name=name)
        # The numbers follow from the formulas: only the figure is kept.
        for path in save(drawing, given.out / f"{name}.svg"):
            path.unlink() if path.suffix == ".csv" else print(path)


def draw(item: Item, out: Path, data: Path | None) -> list[Image.Image]:
    """The figures of an item, drawn by its command."""
    words = ["paper", item.paper, "--figure", item.item.split()[1], "--out", str(out)]
    if item.needs_data:
        words += ["--data", str(data), "--form", item.forms[0]]
    app(words, standalone_mode=False)
    paths = sorted(out.rglob("*.png"), key=lambda path: path.with_suffix(""))
    found = [Image.open(path).convert("RGB") for path in paths]
    return [cut_photos(image) for image in found] if "examples" in item.values else found


def cut_photos(image: Image.Image) -> Image.Image:
    """The table below the first two photos: those of a data set may not be given on."""
    half = image.crop((0, image.height // 2, image.width // 2, image.height))
    return half.crop(ImageOps.invert(half.convert("L")).getbbox())


def write_small(images: list[Image.Image], path: Path) -> None:
    """Join images one below the other and write them as a small file."""
    width = min(WIDTH, max(image.width for image in images))
    scaled = [
        image.resize((width, round(image.height * width / image.width)))
        if image.width > width
        else image
        for image in images
    ]
    joined = Image.new("RGB", (width, sum(image.height for image in scaled)), "white")
    top = 0
    for image in scaled:
        joined.paste(image, (0, top))
        top += image.height
    for colours in (COLOURS, COLOURS // 2, COLOURS // 4):
        buffer = io.BytesIO()
        joined.quantize(colours, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
        if buffer.tell() <= LIMIT:
            break
    path.write_bytes(buffer.getvalue())
    print(f"{path}: {buffer.tell():,} bytes")


if __name__ == "__main__":
    start(main, "OUT --work OUT/work")
