"""What every way to fit a model returns."""

from dataclasses import dataclass, field

from halftruth.models import Classifier
from halftruth.train.inputs.batches import Inputs
from halftruth.train.scored_rows import ScoredRows


@dataclass(frozen=True)
class FittedModel:
    """A fitted model, what it takes, and what is known about its fit."""

    model: Classifier
    # The inputs of all rows, as this model takes them.
    inputs: Inputs
    # Rows with scores of models that were not fitted on them; None: the validation rows have them.
    scored_rows: ScoredRows | None = None
    # The checkpoint: stage and epoch of the weights, members of an ensemble and its label bias.
    facts: dict[str, object] = field(default_factory=dict)
    # What epochs were compared by, and its value for the kept weights; an ensemble has none.
    criterion: str = ""
    best_score: float = float("nan")
