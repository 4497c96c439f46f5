"""Text as features of a pretrained language model: frozen (`LanguageModel`), or fine-tuned.

The model is a folder or a name of Hugging Face transformers (`pip install "halftruth[text]"`), also
one of sentence-transformers. A frozen model stays where it is: a run keeps its place and a digest
of its weights, and loads it to predict. A fine-tuned model (`build_text_model`) becomes part of the
run; its inputs are rows of tokens (`TextTokens`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from halftruth.extras import import_torchvision, needs_extras
from halftruth.models.classifier import Classifier
from halftruth.models.heads import create_head
from halftruth.models.weights import ModelError

if TYPE_CHECKING:
    from transformers import PretrainedConfig as Settings
    from transformers import PreTrainedModel as Model
    from transformers import PreTrainedTokenizerBase as Tokenizer

# Tokens of a text that are read at most, and texts per batch.
MOST_TOKENS, BATCH = 256, 32


class LanguageModel:
    """A frozen model of Hugging Face transformers."""

    def __init__(self, source: str, digest: str | None = None) -> None:
        """`digest`: that of the weights in training, if the model must be the same."""
        self.source = source
        self.tokenizer, self.model = load_model(source, download=digest is None)
        self.pooling = read_pooling(source)
        self.digest = digest_weights(self.model)
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
            batch = tokenize(self.tokenizer, [texts[row] for row in rows], model).to(device)
            states = model(**batch).last_hidden_state.float()
            out[rows] = pool(states, batch["attention_mask"], self.pooling).cpu().numpy()
        if not np.isfinite(out).all():
            raise ModelError(f"encoder {self.source}: gives features that are not finite")
        return out

    def to_json(self) -> dict[str, object]:
        """Return the part of the description that is text."""
        return {"kind": "transformer", "source": self.source, "digest": self.digest}

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the part of the description that is numbers: none."""
        return {}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], _: object = None) -> LanguageModel:
        """Return the encoder of which `to_json` returned a description."""
        return cls(values["source"], values["digest"])

    def describe(self) -> str:
        """Describe the encoder in a few words."""
        return f"text: {self.size:,} features of the frozen encoder {self.source}"


def load_model(source: str, download: bool = True) -> tuple[Tokenizer, Any]:
    """Return tokenizer and model of a folder or of a name; both never run code of a repository.

    `download`: not for the run of a stranger, who chose the name.
    """
    transformers = _import_transformers()
    path = find_transformer(Path(source))
    source = str(path) if path.exists() else source
    if path.exists() and not (path / "config.json").is_file():
        raise ModelError(
            f"encoder {source}: expected a folder with config.json, tokenizer and weights, as "
            "save_pretrained writes it"
        )
    options = {"trust_remote_code": False, "local_files_only": not download}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **options)
        model = transformers.AutoModel.from_pretrained(source, **options)
    except (OSError, ValueError, KeyError, json.JSONDecodeError) as error:
        if not download and not path.exists():
            raise ModelError(
                f"encoder {source}: is not on this machine, and loading a run downloads nothing; "
                f"if you trust it, get it first: hf download {source}"
            ) from error
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"encoder {source}: cannot be loaded: {first}; expected a folder that save_pretrained "
            "wrote, or a name on the Hugging Face Hub that can be downloaded here"
        ) from error
    if getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(f"encoder {source}: expected an encoder, got a model with a decoder")
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or tokenizer.unk_token
    # transformers may load the precision of the file; scores are float32, on any device.
    return tokenizer, model.float().eval().requires_grad_(False)


def find_transformer(path: Path) -> Path:
    """Return the transformer's folder in a folder of sentence-transformers, else the folder."""
    inner = path / "0_Transformer"
    return inner if (inner / "config.json").is_file() else path


def read_pooling(source: str) -> str:
    """Return how states become one vector: "first" or "mean", as sentence-transformers says."""
    try:
        text = (Path(source) / "1_Pooling" / "config.json").read_text(encoding="utf-8")
        return "first" if json.loads(text).get("pooling_mode_cls_token") else "mean"
    except (OSError, ValueError, AttributeError):
        return "mean"


def count_tokens(tokenizer: Tokenizer, model: Model) -> int:
    """Return how many tokens of a text are read at most."""
    most, positions = int(tokenizer.model_max_length), model.config.to_dict()
    limit = positions.get("max_position_embeddings")
    if limit and limit < most:
        # The tokenizer does not know the limit; some models keep two positions for themselves.
        most = int(limit) - 2
    return max(1, min(MOST_TOKENS, most))


def tokenize(tokenizer: Tokenizer, texts: Sequence[str], model: Model) -> Any:
    """Return the tokens of a batch of texts, padded, at most as many as the model reads."""
    return tokenizer(
        list(texts),
        padding=True,
        truncation=True,
        max_length=count_tokens(tokenizer, model),
        return_tensors="pt",
    )


def pool(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Return one vector per text from the states (B, T, D) of its tokens, without padding."""
    if pooling == "first":
        return states[:, 0]
    weight = mask.unsqueeze(-1).to(states.dtype)
    return (states * weight).sum(dim=1) / weight.sum(dim=1).clamp(min=1)


def digest_weights(model: nn.Module) -> str:
    """Return 16 hexadecimal digits that depend on the weights."""
    found = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().float().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


# ---------------------------------------------------------------------- fine-tuned

PADDING = -1


class TextTokens:
    """Texts as rows of token numbers, padded with -1: the inputs of a fine-tuned model."""

    def __init__(
        self, tokenizer: Tokenizer, config: Settings, size: int, source: str, pooling: str
    ) -> None:
        self.tokenizer, self.config, self.size = tokenizer, config, size
        self.source, self.pooling = source, pooling

    @classmethod
    def fit(cls, source: str, texts: Sequence[str]) -> TextTokens:
        """Return rows as long as the longest of the training texts, or as the model reads."""
        tokenizer, model = load_model(source)
        made = cls(
            tokenizer, model.config, count_tokens(tokenizer, model), source, read_pooling(source)
        )
        longest = max(
            len(ids)
            for at in range(0, len(texts), 4096)
            for ids in made._list_tokens(texts[at : at + 4096])
        )
        made.size = min(made.size, longest)
        return made

    def _list_tokens(self, texts: Sequence[str]) -> list[list[int]]:
        found = self.tokenizer(list(texts), truncation=True, max_length=self.size)["input_ids"]
        # A model needs a token, also where the text is blank.
        blank = [self.tokenizer.pad_token_id or 0]
        return [ids or blank for ids in found]

    @property
    def outputs(self) -> list[str]:
        """The names of the columns."""
        return [f"token[{k}]" for k in range(self.size)]

    def transform(self, texts: Sequence[str]) -> np.ndarray:
        """Return the (N, size) matrix of token numbers, float32 like all features."""
        out = np.full((len(texts), self.size), PADDING, dtype=np.float32)
        for at in range(0, len(texts), 4096):
            for row, ids in enumerate(self._list_tokens(texts[at : at + 4096]), start=at):
                out[row, : len(ids)] = ids
        return out

    def save(self, folder: Path) -> None:
        """Write the tokenizer and the sizes of the model; its weights are in the checkpoint."""
        self.tokenizer.save_pretrained(folder)
        self.config.save_pretrained(folder)

    def to_json(self) -> dict[str, object]:
        """Return the part of the description that is text."""
        return {
            "kind": "tokens", "size": self.size, "source": self.source, "pooling": self.pooling
        }  # fmt: skip

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the part of the description that is numbers: none."""
        return {}

    @classmethod
    def load(cls, values: Mapping[str, Any], folder: Path) -> TextTokens:
        """Return the encoder of which `to_json` and `save` wrote a description."""
        transformers = _import_transformers()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
            config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            raise ModelError(
                f"{folder}: the tokenizer of the run cannot be read: {error}"
            ) from error
        return cls(tokenizer, config, values["size"], values["source"], values["pooling"])

    def describe(self) -> str:
        """Describe the encoder in a few words."""
        return f"text: up to {self.size} tokens; the encoder {self.source} is fine-tuned"


class TextBackbone(nn.Module):
    """A transformers model that reads rows of tokens (B, T) and returns vectors (B, D)."""

    def __init__(self, model: Model, pooling: str) -> None:
        super().__init__()
        self.model, self.pooling = model, pooling

    def forward(self, x: Tensor) -> Tensor:
        ids = x.long()
        mask = ids > PADDING
        if not torch.compiler.is_exporting():
            # Columns in which every text has ended.
            ids, mask = (part[:, : int(mask.sum(dim=1).max())] for part in (ids, mask))
        states = self.model(input_ids=ids.clamp(min=0), attention_mask=mask.long())
        return pool(states.last_hidden_state, mask, self.pooling)


def build_text_model(
    encoder: TextTokens,
    num_classes: int,
    *,
    head: str = "linear",
    dropout: float = 0.0,
    pretrained: bool = True,
) -> Classifier:
    """Return a transformers model with a new head; `pretrained`: with the weights of its source."""
    transformers = _import_transformers()
    model = (
        load_model(encoder.source)[1]
        if pretrained
        else transformers.AutoModel.from_config(encoder.config, trust_remote_code=False).float()
    )
    backbone = TextBackbone(model.requires_grad_(True), encoder.pooling)
    _freeze_unused(backbone)
    width = int(model.config.hidden_size)
    return Classifier(
        backbone,
        create_head(head, width, num_classes, dropout),
        feature_dim=width,
        num_classes=num_classes,
    )


def _freeze_unused(backbone: TextBackbone) -> None:
    """Freeze parameters without a gradient, such as those of a pooler that is not used.

    Several processes that train together wait for the gradients of all others.
    """
    with torch.enable_grad():
        backbone.eval()(torch.zeros(1, 2)).sum().backward()
    for parameter in backbone.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None


def _import_transformers() -> ModuleType:
    if importlib.util.find_spec("torchvision") is not None:
        # transformers imports it, too, and fails where its compiled operators are missing.
        import_torchvision()
    with needs_extras("encoder"):
        import transformers
    return transformers
