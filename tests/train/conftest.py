"""Data that the tests of training share."""

import pytest
import tiny_data
import torch

from halftruth.models.timm_support import import_torchvision


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    return tiny_data.make_data(tmp_path_factory.mktemp("training") / "data")


@pytest.fixture
def on_features(data):
    """Settings of a run on features."""
    return {
        "labels": str(data / "labels.csv"),
        "features": str(data / "features.npy"),
        "method": "wan",
        "device": "cpu",
        "epochs": 3,
        "batch_size": 6,
        "head_lr": 0.05,
        "report": False,
    }


@pytest.fixture
def on_images(data):
    """Settings of a run on images: two epochs of the head, two of the whole network."""
    return {
        **tiny_data.IMAGES,
        "labels": str(data / "labels.csv"),
        "images": str(data / "photos"),
        "head_epochs": 2,
        "epochs": 2,
        "head_lr": 0.01,
        "lr": 0.001,
    }


@pytest.fixture(scope="session")
def language_model(tmp_path_factory):
    """The folder of a tiny random BERT that knows a few words."""
    transformers = pytest.importorskip("transformers")
    import_torchvision()
    folder = tmp_path_factory.mktemp("bert")
    words = "[PAD] [UNK] [CLS] [SEP] [MASK] love hate cat dog this happy furious scared the a so"
    (folder / "vocab.txt").write_text("\n".join(words.split()))
    tokenizer = transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=16)
    tokenizer.save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words.split()), hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=8, max_position_embeddings=16,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    return folder
