"""Predict with an exported run: onnxruntime, NumPy and Pillow, nothing else.

halftruth export runs/first --out model.onnx
python examples/onnx_predict.py model.onnx photo.jpg ...
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image

model, *photos = sys.argv[1:]
about = json.loads(Path(model + ".json").read_text(encoding="utf-8"))
classes, thresholds = about["classes"], np.array(about["thresholds"])
size = about["input"]["shape"][-1]
images = [Image.open(photo).convert("RGB").resize((size, size), Image.BICUBIC) for photo in photos]
x = (np.stack(images) / 255 - about["input"]["mean"]) / about["input"]["std"]
session = onnxruntime.InferenceSession(model)
x = x.transpose(0, 3, 1, 2).astype(np.float32)
(found,) = session.run(["probabilities"], {"input": x})
for photo, row in zip(photos, found, strict=True):
    chosen = [classes[k] for k in np.flatnonzero(row > thresholds)]
    print(photo, "|".join(chosen), dict(zip(classes, row.round(3).tolist(), strict=True)))
