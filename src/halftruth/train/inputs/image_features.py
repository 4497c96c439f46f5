"""Features of images from a frozen network, for runs that also have columns of a table or text."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from halftruth.data import DataError, ImageStore, decode_all
from halftruth.data.decode_images import describe_bad
from halftruth.data.transforms import Augment
from halftruth.models import Classifier, build_image_model
from halftruth.models.language_model import digest_weights
from halftruth.models.weights import ModelError
from halftruth.train.config import Config
from halftruth.train.inputs.cache_keys import digest_image_files, make_cache_key
from halftruth.train.run_folder import replace_file

WEIGHTS = "image_network.safetensors"
# Images that are decoded and scored at once.
_BLOCK = 256


class ImageFeatures:
    """A timm model without its head; a run keeps its weights in its folder."""

    def __init__(self, model: Classifier, backbone: str, image_size: int | None) -> None:
        self.model, self.backbone, self.image_size = model.eval(), backbone, image_size
        self.size = model.feature_dim
        # Images of the last rows that were read, with the reasons why they cannot be used.
        self.bad: list[tuple[str, str]] = []

    @classmethod
    def create(cls, config: Config) -> "ImageFeatures":
        """Return the network of the settings, with its pretrained weights."""
        torch.manual_seed(config.seed)
        model = build_image_model(
            config.backbone, 1, weights=config.weights, image_size=config.image_size
        )
        return cls(model, config.backbone, config.image_size)

    @property
    def outputs(self) -> list[str]:
        """The names of the features."""
        return [f"image[{k}]" for k in range(self.size)]

    def read(self, config: Config, names: list[str]) -> tuple[np.ndarray, list[tuple[str, str]]]:
        """Return the features of images of the run, and the images that cannot be read.

        They are computed once and kept in the cache of the run. Rows of bad images are 0.
        """
        store = ImageStore([Path(path) for path in config.images])
        folder = Path(config.cache_dir or Path(config.out) / "cache")
        facts = (self.digest, self.model.image_size, names, digest_image_files(store))
        path = folder / f"images-{make_cache_key(*facts)}.npy"
        if path.exists():
            return np.load(path, mmap_mode="c"), []
        values, bad = self.transform(store, names, config.workers)
        if not bad:
            with replace_file(path, shared=True) as new, new.open("wb") as file:
                np.save(file, values)
        return values, bad

    @torch.no_grad()
    def transform(
        self, store: ImageStore, names: list[str], workers: int = 2
    ) -> tuple[np.ndarray, list[tuple[str, str]]]:
        """Return the (N, size) features of images, 0 for those that cannot be read, and these."""
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model, side = self.model.to(device), self.model.image_size
        # On a CPU, convolutions of small batches take half the time in this layout.
        prepare = Augment.preset("none", side, model.mean, model.std, channels_last=True)
        out = np.zeros((len(names), self.size), dtype=np.float32)
        bad: list[tuple[str, str]] = []
        for at in range(0, len(names), _BLOCK):
            some = names[at : at + _BLOCK]
            done = decode_all(store, some, side, workers=max(workers, 1), on_bad="skip")
            good = np.flatnonzero(done.good)
            for rows in np.array_split(good, max(1, len(good) // 64)):
                if len(rows):
                    pixels = torch.from_numpy(done.pixels[rows]).to(device)
                    found = model.features(prepare(pixels, train=False)).float()
                    out[at + rows] = found.cpu().numpy()
            bad += done.bad
        if bad and len(bad) == len(names):
            raise DataError(describe_bad(bad, len(names)))
        return out, bad

    @property
    def digest(self) -> str:
        """16 hexadecimal digits that depend on the weights."""
        return digest_weights(self.model.backbone)

    def to_json(self) -> dict[str, object]:
        """Return the part of the description that is text."""
        return {"backbone": self.backbone, "image_size": self.image_size, "digest": self.digest}

    def save(self, folder: Path) -> None:
        """Write the weights."""
        state = self.model.backbone.state_dict()
        state = {name: value.contiguous() for name, value in state.items()}
        with replace_file(folder / WEIGHTS) as new:
            save_file(state, new)

    @classmethod
    def load(cls, values: dict[str, Any], folder: Path) -> "ImageFeatures":
        """Return the network of which `to_json` and `save` wrote a description."""
        size = values["image_size"]
        model = build_image_model(values["backbone"], 1, weights="none", image_size=size)
        try:
            model.backbone.load_state_dict(load_file(folder / WEIGHTS))
        except (OSError, RuntimeError, SafetensorError) as error:
            raise ModelError(f"{folder / WEIGHTS}: cannot be read: {error}") from error
        found = cls(model, values["backbone"], size)
        if found.digest != values["digest"]:
            raise ModelError(f"{folder / WEIGHTS}: these are not the weights of training")
        return found

    def describe(self) -> str:
        """Describe the network in a few words."""
        return f"images: {self.size:,} features of the frozen network {self.backbone}"
