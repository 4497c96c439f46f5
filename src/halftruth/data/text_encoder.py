"""Text as features without a download: TF-IDF of words and of parts of words.

`TextEncoder.fit` learns the vocabulary on the training rows. `encode_sparse` returns all terms as
a sparse matrix, for linear models. `transform` returns a dense matrix of the terms that are most
associated with a present label, for every other model.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from halftruth.data.errors import DataError
from halftruth.data.memory import check_memory
from halftruth.data.wide_matrix import MOST_FEATURES, choose_columns

# Terms of each kind that are kept at most, the most frequent ones; with many classes fewer, so that
# a linear model has at most so many weights.
MOST_TERMS, MOST_WEIGHTS = 100_000, 16_000_000
_KINDS: dict[str, dict[str, object]] = {
    "words": {"ngram_range": (1, 2), "strip_accents": "unicode", "token_pattern": r"(?u)\b\w+\b"},
    "characters": {"analyzer": "char_wb", "ngram_range": (2, 5)},
}


# A text that is a name or a number, in letters that have spaces between words.
_NAME = re.compile(r"\s*[!-~]+\s*")


class TextEncoder:
    """TF-IDF of words (one and two) and of parts of words (2 to 5 characters)."""

    def __init__(self, terms: Mapping[str, Sequence[str]], idf: np.ndarray, chosen: np.ndarray):
        """`terms`: the vocabulary per kind; `idf`: one per term; `chosen`: terms of `transform`."""
        self.terms = {kind: list(terms[kind]) for kind in _KINDS}
        self.idf, self.chosen = np.asarray(idf, dtype=np.float64), np.asarray(chosen)
        parts = np.split(self.idf, [len(self.terms["words"])])
        self._vectorizers = [
            _make_vectorizer(kind, self.terms[kind], weights)
            for kind, weights in zip(_KINDS, parts, strict=True)
            if self.terms[kind]
        ]

    @classmethod
    def fit(
        cls,
        texts: Sequence[str],
        labels: np.ndarray | None,
        rows: np.ndarray,
        wide: bool = False,
    ) -> TextEncoder:
        """Learn the vocabulary, and choose terms by the labels; only from the training rows.

        Without labels, the terms with the largest variance are chosen. `wide`: a linear model will
        have weights for all terms.
        """
        given = [texts[row] for row in rows]
        most = MOST_TERMS
        if wide and labels is not None:
            most = min(most, max(MOST_WEIGHTS // (len(_KINDS) * labels.shape[1]), MOST_FEATURES))
        terms: dict[str, list[str]] = {}
        idf, counted = [], []
        for kind in _KINDS:
            vectorizer = _make_vectorizer(kind, most=most)
            try:
                counted.append(vectorizer.fit_transform(given))
            except ValueError:
                if kind == "words" and not any(map(re.compile(r"\w").search, given)):
                    # Signs such as emoji are no words.
                    terms[kind] = []
                    continue
                raise DataError(
                    f"the texts of the {len(rows):,} training rows share no {kind}; there is "
                    "nothing to learn from them. Is it the column that holds the text (--text)?"
                ) from None
            terms[kind] = vectorizer.get_feature_names_out().tolist()
            idf.append(vectorizer.idf_)
        from scipy import sparse  # type: ignore[import-untyped]

        matrix = sparse.hstack(counted, format="csr", dtype=np.float32)
        chosen = choose_columns(matrix, None if labels is None else labels[rows], len(texts))
        return cls(terms, np.concatenate(idf), chosen)

    @property
    def leaves_out_terms(self) -> bool:
        """Whether there are more terms than dense features."""
        return len(self.chosen) < len(self.idf)

    @property
    def all_outputs(self) -> list[str]:
        """The names of all terms."""
        return [f"{kind}: {term}" for kind, terms in self.terms.items() for term in terms]

    @property
    def outputs(self) -> list[str]:
        """The names of the dense features."""
        every = self.all_outputs
        return [every[k] for k in self.chosen]

    def encode_sparse(self, texts: Sequence[str]) -> Any:
        """Return the (N, terms) scipy CSR matrix of TF-IDF values, float32."""
        from scipy import sparse  # type: ignore[import-untyped]

        blocks = [vectorizer.transform(texts) for vectorizer in self._vectorizers]
        return sparse.hstack(blocks, format="csr", dtype=np.float32)

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Return the (N, chosen terms) float32 matrix of TF-IDF values."""
        check_memory(
            4 * len(texts) * len(self.chosen),
            f"features of {len(texts):,} texts",
            "use fewer rows, or a smaller language model as encoder= (--encoder)",
        )
        out = np.empty((len(texts), len(self.chosen)), dtype=np.float32)
        for at in range(0, len(texts), 4096):
            some = self.encode_sparse(texts[at : at + 4096])[:, self.chosen]
            out[at : at + 4096] = some.toarray()
        return out

    def to_json(self) -> dict[str, object]:
        """Return the part of the description that is text."""
        return {"kind": "tf-idf", "terms": self.terms}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the part of the description that is numbers."""
        return {"idf": self.idf, "chosen": self.chosen}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> TextEncoder:
        """Return the encoder of which `to_json` and `arrays` returned a description."""
        return cls(values["terms"], arrays["idf"], arrays["chosen"])

    def describe(self) -> str:
        """Describe the encoder in a few words."""
        words, parts = (len(terms) for terms in self.terms.values())
        text = f"text: TF-IDF of {words:,} words and pairs of words and of {parts:,} parts of words"
        return text if not self.leaves_out_terms else f"{text}; {len(self.chosen):,} are dense"


def check_texts(texts: Sequence[str], place: str, *, may_be_blank: bool = False) -> list[str]:
    """Refuse a column that holds lists, or in which every text is blank."""
    listed = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if listed is not None:
        raise DataError(f"{place} row {listed + 1}: expected text, got {texts[listed]!r:.60}")
    if not may_be_blank and not any(text.strip() for text in texts):
        raise DataError(f"{place}: every text is blank; name the column that holds the text")
    words = [text for text in texts if text.strip()]
    if len(words) >= 20 and len({*words}) == len(words) and all(map(_NAME.fullmatch, words)):
        warnings.warn(
            f"{place}: every text is one name or number that no other row has, such as "
            f"{words[0]!r:.40}; is it the column that holds the text?",
            stacklevel=3,
        )
    return list(texts)


def _make_vectorizer(
    kind: str,
    terms: Sequence[str] | None = None,
    idf: np.ndarray | None = None,
    most: int | None = None,
) -> Any:
    """A TfidfVectorizer of scikit-learn: to be fitted, or with a vocabulary and its weights."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    made = TfidfVectorizer(
        **_KINDS[kind],
        sublinear_tf=True,
        dtype=np.float32,
        vocabulary=None if terms is None else {term: k for k, term in enumerate(terms)},
        # A term of one row says nothing about other rows.
        min_df=2,
        max_features=most,
    )
    if idf is not None:
        made.idf_ = idf
    return made
