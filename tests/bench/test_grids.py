"""Grids: the runs they expand to, and all mistakes reported at once."""

from pathlib import Path

import pytest
from tiny_grid import tiny_grid

from halftruth import losses
from halftruth.bench import load_grid
from halftruth.bench.cells import PRIOR
from halftruth.bench.search_space import Axis, parse, space_of, spread
from halftruth.train import ConfigError

GRIDS = sorted((Path(__file__).parents[2] / "benchmarks" / "grids").glob("*.yaml"))


@pytest.mark.parametrize("path", GRIDS, ids=lambda path: path.stem)
def test_every_grid_in_the_repository_loads(path):
    grid = load_grid(path)
    cells = grid.cells()
    assert cells
    for cell in cells:
        jobs = cell.trials(grid.trials, 0)
        assert len(jobs) <= grid.trials
        assert len({job.id for job in jobs}) == len(jobs)
    assert path.read_text().startswith("# halftruth bench run benchmarks/grids/" + path.name)


def test_all_means_every_registered_method_and_complete_labels():
    cells = tiny_grid(methods="all").cells()
    names = {cell.method for cell in cells}
    of_networks = {"consistency", "em-teacher", "lagc", "scl"}
    assert names == {"complete", *losses.names()} - of_networks
    by_name = {cell.method: cell for cell in cells}
    assert by_name["complete"].labels == "complete"
    assert by_name["epr"].options == {"expected_positives": PRIOR}
    assert 0 < by_name["pseudo-label"].options["tau"] < 1


def test_a_method_can_have_settings_of_its_own():
    images = {"voc": {"reader": "voc2012", "root": "."}}
    cells = tiny_grid(
        data=images, methods={"all": None, "scl": {"training": {"head": "cam"}}}
    ).cells()
    found = {cell.method: cell.training.get("head") for cell in cells}
    assert found.keys() == {"complete", *losses.names()}
    assert found["scl"] == "cam"
    assert found["consistency"] is None


def test_the_first_trial_uses_the_settings_of_the_grid():
    (cell,) = tiny_grid(methods=["em"]).cells()
    trials = cell.trials(5, 0)
    assert len(trials) == 5
    assert trials[0].options == {}
    assert trials[0].training["head_lr"] == 0.01
    assert all(0.01 <= job.options["alpha"] <= 0.9 for job in trials[1:])
    assert cell.trials(5, 0) == trials


def test_options_set_in_the_grid_are_not_searched():
    (cell,) = tiny_grid(methods={"mine": {"loss": "em", "options": {"alpha": 0.3}}}).cells()
    assert [job.options for job in cell.trials(3, 0)] == [{"alpha": 0.3}] * 3


def test_the_id_of_a_run_depends_on_what_determines_its_result():
    (cell,) = tiny_grid(methods=["em"]).cells()
    (renamed,) = tiny_grid(methods={"other": {"loss": "em"}}).cells()
    assert cell.job(0).id == renamed.job(0).id
    (changed,) = tiny_grid(methods=["em"], label_seed=7).cells()
    assert len({cell.job(0).id, cell.job(1).id, changed.job(0).id}) == 3
    assert cell.job(0, trial=True).id != cell.job(0).id


def test_several_label_samples_are_trained_with_every_seed():
    grid = tiny_grid(methods=["em"], label_seed=[3, 5], seeds=[0, 1], trials=2)
    (cell,) = grid.cells()
    done = {job.id: {**job.to_dict(), "val": {"mAP": 0.5}} for job in cell.own_trials}
    jobs = cell.jobs(done)
    assert [(job.trial, job.label_seed) for job in jobs[:2]] == [(True, 3), (True, 3)]
    found = [(job.label_seed, job.seed) for job in jobs[2:]]
    assert found == [(3, 0), (3, 1), (5, 0), (5, 1)]
    assert len({job.id for job in jobs}) == 6
    for wrong in ([], [-1], [3, "seed"]):
        with pytest.raises(ConfigError, match="label_seed: expected"):
            tiny_grid(label_seed=wrong)


def test_label_seed_can_follow_the_seed():
    (cell,) = tiny_grid(methods=["em"], label_seed="seed").cells()
    assert [cell.job(seed).label_seed for seed in (0, 3)] == [0, 3]


def test_all_mistakes_are_reported_at_once():
    with pytest.raises(ConfigError) as error:
        tiny_grid(
            data={"toy": {"root": ".", "reader": "tabulra"}, "yeast": {"rot": "."}},
            methods={"em": {"options": {"alfa": 1}}, "emm": None},
            training={"epochs": 0, "seed": 3, "lrr": 1},
            labels=["single", "half"],
            seeds=[-1],
            trials=0,
            threshold=2,
            serch={},
            search={"head_lr": {"low": 1, "high": 0}},
        )
    text = str(error.value)
    for part in (
        "did you mean 'tabular'", "expected `root`", "alfa", "no key 'serch'; did you mean search",
        "seed cannot be set in a grid", "no setting 'lrr'", "'half' is not a label setting",
        "seeds: expected", "trials: expected", "low < high",
        'threshold: expected "fit", "offset" or 0 to 1, got 2',
    ):  # fmt: skip
        assert part in text, part


def test_only_rows_of_auto_have_a_budget():
    rows = {"auto": None, "auto-0": {"loss": "auto", "training": {"budget": "0"}}, "em": None}
    grid = tiny_grid(methods=rows)
    assert {cell.method: cell.training.get("budget") for cell in grid.cells()} == {
        "auto": None, "auto-0": "0", "em": None,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="methods: em: budget works only with the method auto"):
        tiny_grid(methods={"em": {"training": {"budget": 3}}})
    with pytest.raises(ConfigError, match="budget belongs to the row"):
        tiny_grid(training={"budget": 3})


def test_patterns_select_methods_and_data():
    grid = tiny_grid(methods="all").select(methods="em*,wan")
    assert {cell.method for cell in grid.cells()} == {"em", "em-apl", "wan"}
    few = {cell.method: cell for cell in tiny_grid(methods="all").select(methods="*").cells()}
    for cell in tiny_grid(methods="all").cells():
        assert few[cell.method].trials(4, 0) == cell.trials(4, 0)
    with pytest.raises(ConfigError, match="none matches 'x'; there are: complete, bce, em"):
        tiny_grid().select(methods="x")
    with pytest.raises(ConfigError, match="none matches 'y'; there are: toy"):
        tiny_grid().select(data="y")


@pytest.mark.parametrize("name", losses.names())
def test_every_point_of_a_search_space_is_a_valid_loss(name):
    space = space_of(name)
    needed = {
        key: 1.0
        for key, p in losses.registry.signature(name).items()
        if p.default is p.empty and key not in space
    }
    for point in spread(space, 16, seed=1):
        losses.create(name, **needed, **point)


def test_numbers_that_yaml_reads_as_text_are_converted():
    (cell,) = tiny_grid(methods=["bce"], search={"head_lr": ["1e-3", "1e-2"]}).cells()
    assert [job.training["head_lr"] for job in cell.trials(3, 0)] == [0.01, 0.001]


def test_a_search_covers_its_space():
    values = sorted(p["a"] for p in spread(parse({"a": {"low": 0.1, "high": 10, "log": True}}), 8))
    edges = [0.1 * 10 ** (n / 4) for n in range(9)]
    assert all(
        low <= value <= high for low, value, high in zip(edges[:-1], values, edges[1:], strict=True)
    )
    few = {"a": Axis(choices=(1, 2)), "b": Axis(choices=("x", "y", "z"))}
    assert len(spread(few, 6)) == 6 == len({tuple(p.values()) for p in spread(few, 6)})
    assert len(spread(few, 4)) == 4


@pytest.mark.parametrize("wrong", [[], {"low": 1}, {"low": 0, "high": 1, "log": True}, 3, "x"])
def test_an_invalid_axis_is_refused(wrong):
    with pytest.raises(ValueError, match="search of a: expected"):
        parse({"a": wrong})
