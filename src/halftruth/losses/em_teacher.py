"""EM with a teacher: unknown labels stay undecided, and lean towards the estimates of a teacher."""

from typing import Any, Unpack

import torch
from torch import Tensor

from halftruth import labels as label_codes
from halftruth.losses import curves
from halftruth.losses._engine.logit import Logit
from halftruth.losses.base import Options, register, require
from halftruth.losses.curves import Curve
from halftruth.losses.em import EM
from halftruth.losses.memory import Memory
from halftruth.losses.memory_loss import MemoryLoss

# The entry of a label for which the teacher has given no estimate.
NOT_TAUGHT = -1.0


@register("em-teacher")
class EMTeacher(MemoryLoss, EM):
    """EM, with unknown labels also pulled towards the probabilities of a teacher.

        ℓ⁺ = −log p      ℓ⁻ = −log(1−p)
        ℓ° = −α H(p) − w [q log p + (1−q) log(1−p)]

    q is the teacher's P(present) of an unknown label of a training sample. `auto` uses it where a
    whole network is trained: there q comes from an ensemble on the features before training, from
    rows that it was not fitted on, and takes into account that the label is not shown. EM alone
    does not use what unknown labels tell: most of them are absent. A full weight on them (w = 1)
    would repeat the errors of the teacher; w = α is enough. Before the teacher has given its
    estimates, and without one, this is EM. In your own loop call `learn_from_teacher(logits of q,
    index)` after `begin`.
    UNKNOWN: pushed towards p = 1/2, and weakly towards q. Needs: index, begin(), estimates.

    Args:
        alpha: α, the weight of the entropy.
        weight: w, the weight of the teacher's estimates.
        shift: whether to add α log 2 per unknown label.

    >>> loss = EMTeacher()
    >>> loss.begin(torch.tensor([[1, 0]]))
    >>> loss.learn_from_teacher(torch.tensor([[2.0, 2.0]]), torch.tensor([0]))
    >>> loss.memory.read(torch.tensor([0]))
    tensor([[0.8809, 0.8809]], dtype=torch.float16)
    """

    paper = "halftruth, on Zhou et al. 2022"
    unknown_is = "kept undecided, near a teacher's estimate"
    teacher_on_features = True
    initial = NOT_TAUGHT

    def __init__(
        self,
        alpha: float = 0.1,
        weight: float = 0.1,
        shift: bool = False,
        memory_dtype: str = "float16",
        **options: Unpack[Options],
    ) -> None:
        super().__init__(alpha, shift, **options)
        self.weight = require(weight >= 0, weight, "weight", ">= 0")
        self.memory = Memory(memory_dtype)

    def learn_from_teacher(self, logits: Tensor, index: Tensor) -> None:
        """Remember the teacher's probabilities; a logit of NaN means that it has none."""
        q = torch.sigmoid(logits.detach().float())
        self.memory.write(index, q.masked_fill(q.isnan(), NOT_TAUGHT))

    def terms(self, s: Logit, labels: Tensor, context: Any, rows: slice) -> Curve:
        curve = super().terms(s, labels, context, rows)
        estimates = context[rows]
        where = (labels == label_codes.UNKNOWN) & (estimates >= 0)
        return curves.patched(curve, where, self._toward_teacher, s, estimates)

    def _toward_teacher(self, s: Logit, estimates: Tensor) -> Curve:
        pull = curves.scaled(curves.toward(s, estimates.to(s.z.dtype)), self.weight)
        return curves.added(self.unknown(s), pull)
