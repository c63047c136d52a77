import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import LaunchError, UsageError
from testbed.planning.cache import Cache
from testbed.planning.evaluation import evaluate
from testbed.planning.points import points_of
from testbed.planning.question import question_of
from testbed.planning.sweep import Task, as_they_are, batched, evaluate_task, sweep

CLUSTER = 'schema = 1\nkind = "switch"\nbandwidth = "100Gbps"\nlatency = "2us"\n'


def silent(description, completed=None):
    pass


def reductions(*sizes, ranks=(4,), network="dgx-h100"):
    collective = {"name": "all_reduce", "sizes": list(sizes), "algorithms": ["ring"]}
    content = {"network": [{"name": network}], "collective": [collective], "ranks": list(ranks)}
    return points_of(question_of(content, "test"))


def test_a_changed_axis_costs_only_what_is_new(tmp_path, monkeypatch):
    then = reductions(1024, 4096, 65536)
    told = []

    def seen(point, altered):
        told.append(point)
        return evaluate(point)

    before = sweep(as_they_are(then[:2]), cache=Cache(tmp_path), advance=silent, workers=1)
    monkeypatch.setattr("testbed.planning.sweep.evaluate", seen)
    after = sweep(as_they_are(then), cache=Cache(tmp_path), advance=silent, workers=1)

    assert after[:2] == before
    assert told == then[2:]


def test_an_interrupt_keeps_what_is_known(tmp_path, monkeypatch):
    points = reductions(1024, 4096)

    def interrupted(function, tasks, **_):
        yield evaluate_task(Task.of(as_they_are(points[:1])))
        raise KeyboardInterrupt

    monkeypatch.setattr("testbed.planning.sweep.results", interrupted)
    with pytest.raises(KeyboardInterrupt):
        sweep(as_they_are(points), cache=Cache(tmp_path), advance=silent)
    known = Cache(tmp_path).known(as_they_are(points))

    assert [point for point, _ in known] == points[:1]


DAMAGES = {
    "overwritten": lambda content: b"\xff no row" * 100,
    "altered": lambda content: content.replace(b'"seconds": ', b'"seconds": 1'),
    "cut off": lambda content: content[: len(content) // 2],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_row_costs_only_the_work(damage, tmp_path):
    items = as_they_are(reductions(1024))
    (row,) = sweep(items, cache=Cache(tmp_path), advance=silent, workers=1)
    (file,) = tmp_path.iterdir()

    file.write_bytes(DAMAGES[damage](file.read_bytes()))

    for known in ({}, {items[0]: row}):
        assert Cache(tmp_path).known(items) == known
        assert sweep(items, cache=Cache(tmp_path), advance=silent, workers=1) == [row]


def test_a_folder_that_cannot_be_written_is_an_error_only_where_it_was_asked_for(tmp_path):
    file = tmp_path / "file"
    file.touch()

    with pytest.raises(UsageError, match=r"--cache .*cannot be written to"):
        Cache(file / "below")

    nowhere = Cache(file / "below", is_asked_for=False)
    assert sweep(as_they_are(reductions(1024)), cache=nowhere, advance=silent)[0].seconds


def test_rows_of_versions_that_nobody_uses_are_removed(tmp_path):
    for name in ("plan-0", "plan-1"):
        (tmp_path / name).touch()
    os.utime(tmp_path / "plan-0", (0, 0))

    Cache(tmp_path)

    assert not (tmp_path / "plan-0").exists()
    assert (tmp_path / "plan-1").exists()


def test_a_worker_with_another_file_refuses(tmp_path):
    file = tmp_path / "c.toml"
    file.write_text(CLUSTER)
    task = Task.of(as_they_are(reductions(1024, network=str(file))))

    file.unlink()

    with pytest.raises(LaunchError, match="a worker finds another file there, or none"):
        evaluate_task(task)


@given(st.sets(st.sampled_from([2, 4, 8]), min_size=1), st.integers(1, 120), st.integers(1, 16))
def test_tasks_hold_every_point_once(ranks, number, workers):
    items = as_they_are(reductions(*(1024 + 4 * size for size in range(number)), ranks=sorted(ranks)))

    tasks = list(batched(items, workers))

    assert sorted(map(repr, items)) == sorted(repr(item) for task in tasks for item in task)
    assert all(len({point.ranks for point, _ in task}) == 1 for task in tasks)


def test_points_at_which_workers_die_are_lost_alone(monkeypatch):
    points = reductions(1024, 2048, 4096)

    def deadly(function, tasks, *, lost, **_):
        for task in tasks:
            dies = any(point.nbytes == 2048 for point, _ in task.items)
            yield lost(task, "4 workers died at it") if dies else function(task)

    monkeypatch.setattr("testbed.planning.sweep.results", deadly)
    monkeypatch.setattr("testbed.planning.sweep._TASKS", 1)
    rows = sweep(as_they_are(points), cache=Cache(None), advance=silent, workers=1)

    assert [row.point for row in rows] == points
    assert ["4 workers died at it" in row.problem for row in rows] == [False, True, False]
    assert all(row.seconds for row in rows[::2])
