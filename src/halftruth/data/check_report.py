"""What `check_data` found: numbers, problems and a suggestion, as text or as a dictionary."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from halftruth.data.advice import Advice


@dataclass(frozen=True)
class ClassCount:
    """How often a class is present, absent and unknown."""

    name: str
    present: int
    absent: int
    unknown: int


@dataclass(frozen=True)
class Report:
    """The findings of `check_data`; `text()` for people, `to_dict()` for programs."""

    labels: str
    rows: int
    present: int
    absent: int
    unknown: int
    positives_per_row: float
    rows_by_positives: dict[str, int]
    empty_rows: int
    unannotated_rows: int
    classes: list[ClassCount]
    splits: dict[str, int]
    advice: Advice
    never_present: list[str] = field(default_factory=list)
    rarely_present: list[str] = field(default_factory=list)
    duplicate_items: list[str] = field(default_factory=list)
    missing_images: list[str] = field(default_factory=list)
    bad_images: list[tuple[str, str]] = field(default_factory=list)
    unused_images: list[str] = field(default_factory=list)
    features: tuple[int, int] | None = None
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def empty_share(self) -> float:
        return self.empty_rows / self.rows

    @property
    def ok(self) -> bool:
        """Whether training can start; warnings do not count."""
        return not self.errors

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "empty_share": self.empty_share, "ok": self.ok}

    def text(self) -> str:
        """The report as plain lines."""
        by_positives = ", ".join(f"{n}: {rows:,}" for n, rows in self.rows_by_positives.items())
        lines = [
            self.labels,
            f"rows by number of positives: {by_positives}",
            f"rows without a positive: {self.empty_rows:,} ({self.empty_share:.1%}), of which "
            f"{self.unannotated_rows:,} have no known label",
        ]
        if self.splits:
            lines.append("split: " + ", ".join(f"{k} {n:,}" for k, n in self.splits.items()))
        if self.features is not None:
            lines.append(f"features: {self.features[0]:,} rows of {self.features[1]:,}")
        width = max(len(entry.name) for entry in self.classes)
        lines.append(f"{'class':<{width}}  {'present':>9}  {'absent':>9}  {'unknown':>9}")
        lines += [
            f"{entry.name:<{width}}  {entry.present:>9,}  {entry.absent:>9,}  {entry.unknown:>9,}"
            for entry in self.classes
        ]
        lines += [f"error: {message}" for message in self.errors]
        lines += [f"warning: {message}" for message in self.warnings]
        lines.append(self.advice.text())
        return "\n".join(lines)
