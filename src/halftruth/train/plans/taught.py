"""A plan around a plan: a first training, whose model labels the rows of the second."""

from halftruth.train.config import Config
from halftruth.train.plans.network import NetworkPlan
from halftruth.train.plans.plan import FittedModel, Plan, Work
from halftruth.train.teacher import TEACHER, make_teacher


class TaughtPlan(Plan):
    """Train a teacher in a folder of its own, then train again from scratch with its labels."""

    def __init__(self, first: Config) -> None:
        """`first`: the settings of the teacher."""
        self.first = first

    def fit(self, work: Work) -> FittedModel:
        log = work.logger.log
        # Resuming needs the settings of the whole run, not only those of the teacher.
        work.begin()
        log("first training: the model that will label the training rows")
        with work.open_part(TEACHER, self.first) as part:
            first = NetworkPlan().fit(part)
        log("second training: from scratch, with the labels of the first model")
        teacher = make_teacher(
            first.model, first.inputs, work.accelerator, 2 * work.config.batch_size
        )
        return NetworkPlan(teacher).fit(work)
