"""Read by mypy, which refuses an ignore without an error: type checkers know every argument."""

from typing import TYPE_CHECKING

from halftruth import losses

if TYPE_CHECKING:
    hill: losses.Hill = losses.Hill(lam=1.5, margin=1.0, reduction="sum")
    losses.Hill(lamda=1.5)  # type: ignore[call-arg]
    losses.Hill(lam="wide")  # type: ignore[arg-type]
    losses.SPLC(base=losses.BCE(unknown="ignore"), tau=0.6, reduction="batch")
    losses.SPLC(eps=1e-5)  # type: ignore[call-arg]
    losses.EMAPL(shift=True, reduction="sum")
    losses.NoSuchLoss()  # type: ignore[attr-defined]
