"""Text as features of a pretrained language model: the mean of its last hidden states.

The model is a folder or a name of Hugging Face transformers (`pip install "halftruth[text]"`). It
stays where it is: a run keeps its place and a digest of its weights, and loads it to predict.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from halftruth.models.timm_support import import_torchvision
from halftruth.models.weights import ModelError

# Tokens of a text that are read at most, and texts per batch.
MOST_TOKENS, BATCH = 256, 32


class LanguageModel:
    """A frozen model of Hugging Face transformers."""

    def __init__(self, source: str, digest: str | None = None) -> None:
        """`digest`: that of the weights in training, if the model must be the same."""
        self.source = source
        self.tokenizer, self.model = load_model(source)
        self.digest = _digest_weights(self.model)
        if digest is not None and digest != self.digest:
            raise ModelError(
                f"encoder {source}: its weights are not those of training; give the run the model "
                "that it was trained with, at the same place"
            )
        self.size = int(self.model.config.hidden_size)

    @property
    def outputs(self) -> list[str]:
        """The names of the features."""
        return [f"encoder[{k}]" for k in range(self.size)]

    @torch.no_grad()
    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Return the (N, size) float32 features of texts."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = self.model.to(device)
        out = np.empty((len(texts), self.size), dtype=np.float32)
        # Texts of similar length are read together, so that little of a batch is padding.
        order = np.argsort([len(text) for text in texts], kind="stable")
        for at in range(0, len(texts), BATCH):
            rows = order[at : at + BATCH]
            batch = tokenize(self.tokenizer, [texts[row] for row in rows]).to(device)
            states = model(**batch).last_hidden_state.float()
            out[rows] = mean_of_tokens(states, batch["attention_mask"]).cpu().numpy()
        if not np.isfinite(out).all():
            raise ModelError(f"encoder {self.source}: gives features that are not finite")
        return out

    def to_json(self) -> dict[str, Any]:
        """Return the part of the description that is text."""
        return {"kind": "transformer", "source": self.source, "digest": self.digest}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the part of the description that is numbers: none."""
        return {}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], _: Any = None) -> LanguageModel:
        """Return the encoder of which `to_json` returned a description."""
        return cls(values["source"], values["digest"])

    def describe(self) -> str:
        """Describe the encoder in a few words."""
        return f"text: {self.size:,} features of the frozen encoder {self.source}"


def load_model(source: str) -> tuple[Any, Any]:
    """Return tokenizer and model of a folder or of a name; both never run code of a repository."""
    if importlib.util.find_spec("torchvision") is not None:
        # transformers imports it, too, and fails where its compiled operators are missing.
        import_torchvision()
    try:
        import transformers
    except ImportError as error:
        raise ModelError(
            'encoder: needs Hugging Face transformers: pip install "halftruth[text]"'
        ) from error
    path = Path(source)
    if path.exists() and not (path / "config.json").is_file():
        raise ModelError(
            f"encoder {source}: expected a folder with config.json, tokenizer and weights, as "
            "save_pretrained writes it"
        )
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        model = transformers.AutoModel.from_pretrained(source)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"encoder {source}: cannot be loaded: {first}; expected a folder that save_pretrained "
            "wrote, or a name on the Hugging Face Hub that can be downloaded here"
        ) from error
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(f"encoder {source}: expected an encoder, got a model with a decoder")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    return tokenizer, model.eval().requires_grad_(False)


def tokenize(tokenizer: Any, texts: Sequence[str]) -> Any:
    """Return the tokens of a batch of texts, padded, at most as many as the model reads."""
    most = min(MOST_TOKENS, int(tokenizer.model_max_length))
    return tokenizer(
        list(texts), padding=True, truncation=True, max_length=most, return_tensors="pt"
    )


def mean_of_tokens(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the mean of the states (B, T, D) over the tokens that are not padding."""
    weight = mask.unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


def _digest_weights(model: Any) -> str:
    """Return 16 hexadecimal digits that depend on the weights."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]
