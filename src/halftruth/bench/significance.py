"""Paired t tests between methods over seeds, with a correction for many comparisons."""

from collections.abc import Iterable
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp

from halftruth.bench.result_tables import REFERENCES, as_markdown, one_setting, split_setups
from halftruth.bench.results import Record
from halftruth.data import DataError

_COLUMNS = ["data, labels", "better", "than", "difference", "seeds", "p"]


def compare(
    records: Iterable[Record],
    metric: str = "mAP",
    part: str = "test",
    against: str | None = None,
) -> pd.DataFrame:
    """Compare methods pair by pair, in every data set and label setting; one row per pair.

    A pair has the seeds that both methods were run with, or with several label samples the means
    of these over seeds. `against`: compare every method with this
    one only. `p corrected` is Holm's, over all pairs of a data set and label setting: the
    probability of any false positive stays below it. The smallest is first.
    """
    places: dict[str, dict[str, list[Record]]] = {}
    for setup, several in enumerate(split_setups(records)):
        for run in several:
            measured = not run["trial"] and (run.get(part) or {}).get(metric) is not None
            if measured and run["method"] not in REFERENCES:
                text = f"{run['data']}, {run['column']}"
                text += f" (set-up {setup + 1})" if setup else ""
                places.setdefault(text, {}).setdefault(run["method"], []).append(run)
    found = [pd.DataFrame(columns=[*_COLUMNS, "p corrected"])]
    for place, methods in places.items():
        if against is not None and against not in methods:
            known = ", ".join(methods)
            raise DataError(f"against: there are no runs of {against!r} here; there are: {known}")
        values = pd.DataFrame(
            {
                method: pd.Series(
                    {
                        (str(run.get("label_seed")), run["seed"]): 100 * run[part][metric]
                        for run in one_setting(several)
                    }
                )
                for method, several in methods.items()
            }
        )
        tested = []
        for first, second in combinations(values, 2):
            gains = (values[first] - values[second]).dropna()
            if len(gains.index.unique(level=0)) > 1:
                # Seeds of one label sample are not independent: each sample counts once.
                gains = gains.groupby(level=0).mean()
            if against in (None, first, second) and len(gains) > 1:
                better, than = (first, second) if gains.mean() >= 0 else (second, first)
                mean = abs(float(gains.mean()))
                tested.append([place, better, than, mean, len(gains), paired_t(gains.to_numpy())])
        table = pd.DataFrame(tested, columns=_COLUMNS).sort_values("p", kind="stable")
        steps = table["p"] * np.arange(len(table), 0, -1)
        table["p corrected"] = steps.clip(upper=1).cummax()
        if len(table):
            order = {"p corrected": True, "difference": False}
            found.append(table.sort_values(list(order), ascending=list(order.values())))
    return pd.concat(found[1:] or found, ignore_index=True)


def paired_t(differences: np.ndarray) -> float:
    """The two-sided p of Student's paired t test.

    >>> round(paired_t(np.array([1.0, 2.0, 3.0])), 4)
    0.0742
    """
    if np.ptp(differences) == 0:
        return float(np.mean(differences) == 0)
    return float(ttest_1samp(differences, 0).pvalue)


def significance_table(compared: pd.DataFrame, metric: str, level: float) -> str:
    """The comparisons as Markdown, and how to read them."""
    if not len(compared):
        return "no two methods have two seeds in common\n"
    shown = compared.astype({"seeds": str})
    for name in ("better", "than"):
        shown[name] = "`" + shown[name] + "`"
    shown["difference"] = shown["difference"].map("{:+.2f}".format)
    for name in ("p", "p corrected"):
        shown[name] = compared[name].map(lambda p: "< 0.0001" if p < 0.0001 else f"{p:.4f}")
    small = compared["p corrected"] < level
    shown.loc[small, "p corrected"] = "**" + shown["p corrected"] + "**"
    text = (
        f"{metric} in percent; Student's paired t test over seeds (over label samples, where there "
        "are several), two-sided; corrected by Holm over the pairs of a data set and label "
        f"setting; bold below {level:g}. Seeds vary the initial weights and the order of rows "
        "(with label_seed: seed also the shown labels), not the data: a small p says that a "
        "difference on this data set is not due to the seed, not that it holds on others."
    )
    return f"{as_markdown([list(shown.columns), *shown.to_numpy().tolist()])}\n\n{text}\n"
