"""The pytest plugin: a test function runs as so many ranks, fails as one test, and is light to load."""

import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import yaml

from testbed.testing import VirtualCluster, on_ranks

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
INSTALLED = bool(entry_points(group="pytest11", name="testbed"))
OPTIONS = ["-p", "no:cacheprovider", *([] if INSTALLED else ["-p", "_collective_testbed_entry"])]

GUIDE = "\n".join(
    re.findall(r"^```python\n(.*?)^```", (ROOT / "docs" / "testing.md").read_text(), re.DOTALL | re.MULTILINE)
)
NUM_IN_GUIDE = 10  # of parametrized tests each

TESTS = """
    import pytest
    import torch
    import torch.distributed as dist
    from hypothesis import given, settings, strategies as st
    from torch.utils.data import DistributedSampler
    from collectives.virtual.faults import DeadRank, MessageDelay
    from sim.errors import DeadlockError
    from testbed.testing import MistakeWarning, on_ranks

    @pytest.fixture
    def size():
        return 3

    @on_ranks(4)
    @pytest.mark.parametrize("factor", [1, 2])
    def test_fixtures_and_parameters_still_work(rank, size, factor, capsys):
        dist.init_process_group()
        total = torch.full((size,), float(rank * factor))
        dist.all_reduce(total)
        assert total.tolist() == [6 * factor] * 3

    @on_ranks(3)
    def test_that_fails_on_rank_2(rank):
        dist.init_process_group()
        values = [rank, 1]
        dist.barrier()
        assert values != [2, 1]
        dist.barrier()

    @on_ranks(3)
    def test_that_would_hang():
        dist.init_process_group()
        if dist.get_rank() == 0:
            dist.barrier()

    @on_ranks(2)
    def test_that_is_skipped():
        pytest.skip("not here")

    @pytest.mark.xfail(raises=DeadlockError, strict=True)
    @on_ranks(3, conditions=[DeadRank(1, at="1us")], faults=[MessageDelay("5us")])
    def test_with_faults():
        dist.init_process_group()
        dist.barrier()

    class TestOfAClass:
        @on_ranks(2)
        def test_that_passes(self, rank, tmp_path):
            (tmp_path / str(rank)).touch()

    @settings(max_examples=3, database=None, deadline=None)
    @given(number=st.integers(0, 9))
    @on_ranks(2)
    def test_of_a_property(number):
        dist.init_process_group()
        numbers = [None, None]
        dist.all_gather_object(numbers, number)
        assert numbers == [number, number]

    def test_with_the_fixture(virtual_cluster):
        def train(rank, start):
            dist.init_process_group()
            product = torch.eye(500)
            for _ in range(10):
                product = product @ product
            dist.barrier()
            return start + rank

        first, again, slower = (
            virtual_cluster(ranks=2, network="nvlink-400g", compute=device).run(train, 10)
            for device in ("h100", "h100", "v100")
        )
        assert first.results == [10, 11]
        assert 0 < first.seconds == again.seconds < slower.seconds

    def test_of_an_error(virtual_cluster):
        with pytest.raises(ZeroDivisionError) as caught:
            virtual_cluster(2).run(lambda rank: 1 / (1 - rank))
        assert caught.value.__notes__[0].startswith("raised on rank 1; the others:")

    def test_of_a_mistake(virtual_cluster):
        def twice(rank):
            sampler = DistributedSampler(range(8), 2, rank)
            list(sampler), list(sampler)

        with pytest.warns(MistakeWarning, match="call sampler.set_epoch"):
            virtual_cluster(2).run(twice)
"""


@pytest.mark.slow
def test_tests_run_as_ranks_and_fail_as_one_test_with_the_words_that_matter_on_workers_too(
    pytester,
):
    pytester.makepyfile(test_all=TESTS, test_guide=GUIDE)

    result = pytester.runpytest_subprocess(*OPTIONS, "-n", "1", "-W", "error", "--import-mode=importlib")

    result.assert_outcomes(passed=7 + NUM_IN_GUIDE, failed=2, skipped=1, xfailed=1)
    result.stdout.fnmatch_lines(
        [
            "rank = 2",
            ">       assert values != [[]2, 1]",
            "E       assert [[]2, 1] != [[]2, 1]",
            "E       raised on rank 2; the others:",
            "E       rank 0: waits since 0 ps for barrier #0 *",
            "E       ranks 0, 1 at test_all.py:* in test_that_fails_on_rank_2: dist.barrier()",
            "E   sim.errors.DeadlockError: deadlock at 0 ps: 1 of 3 ranks wait *",
            '*rank 0 at *.py:* in test_that_would_hang: dist.barrier(), under "if dist.get_rank() == 0" of *',
            "*ranks 1, 2 did not take part: finished at 0 ps, without calling it",
        ],
        consecutive=False,
    )
    result.stdout.no_fnmatch_line("*rank_thread.py*")
    result.stdout.no_fnmatch_line("*testing.py:*")


def test_loading_the_plugin_loads_no_package_that_takes_long():
    code = (
        "import sys, pytest; import _collective_testbed_entry, testbed.testing; "
        "print(sorted({'torch', 'numpy', 'sim', 'simpy', 'collectives', 'rich', 'typer'} & set(sys.modules)))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_on_ranks_without_parentheses_says_what_it_expects():
    unfinished = on_ranks

    with pytest.raises(TypeError, match=r"expected a number of ranks, such as @on_ranks\(4\)"):

        @unfinished
        def test(): ...


def test_a_script_runs_with_its_arguments(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import sys\nargument = sys.argv[1]\n")

    assert [own["argument"] for own in VirtualCluster(2).run(path, 5).results] == ["5", "5"]


def test_a_page_shows_what_failed_and_what_the_ranks_did(pytester):
    pytester.makepyfile(
        """
        import torch
        import torch.distributed as dist
        from testbed.testing import on_ranks

        @on_ranks(2)
        def test_that_fails(rank):
            dist.init_process_group()
            dist.all_reduce(torch.ones(1000))
            assert rank < 1, "too high"

        @on_ranks(3)
        def test_that_would_hang(rank):
            dist.init_process_group()
            if rank:
                dist.barrier()

        def test_that_passes():
            pass
        """
    )
    page = pytester.path / "failed.html"

    pytester.runpytest_subprocess(*OPTIONS, "--testbed-html", str(page)).assert_outcomes(passed=1, failed=2)

    text = page.read_text().replace("\N{NO-BREAK SPACE}", " ")
    errors = ("2 of 3 tests failed.", "AssertionError: too high", "raised on rank 1")
    pieces_of_the_timeline = ("all_reduce", "never ended: barrier #0")
    for said in (*errors, *pieces_of_the_timeline, "rank 2: waits since 0 ps for barrier #0"):
        assert said in text
    assert "entries are hidden" not in text


@pytest.mark.costly
def test_the_readmes_test_runs_with_what_the_readme_installs():
    without = [f"-pno:{plugin}" for plugin in ("timeout", "xdist", "hypothesispytest")]
    command = [sys.executable, "-m", "pytest", "-q", *without, *OPTIONS, "examples/test_mean.py"]

    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)


def test_a_page_that_cannot_be_written_is_refused_before_tests_run(pytester):
    pytester.makepyfile("def test_that_passes(): pass")

    found = pytester.runpytest_inprocess(*OPTIONS, "--testbed-html", "failed.txt")

    assert found.ret == pytest.ExitCode.USAGE_ERROR
    found.stderr.fnmatch_lines(["*--testbed-html failed.txt: expected a name that ends in .html"])


def test_the_workflow_for_ci_runs_pytest_with_options_that_exist(pytestconfig):
    workflow = yaml.safe_load((ROOT / "examples" / "ci" / "github-actions.yml").read_text())

    steps = workflow["jobs"]["ranks"]["steps"]
    (command,) = [step["run"] for step in steps if step.get("name") == "Test"]
    given = command.partition(" -m pytest ")[2].split()
    (kept,) = [step["with"]["path"] for step in steps if "upload-artifact" in step.get("uses", "")]
    assert given == ["tests", "--testbed-html", kept]
    assert pytestconfig.getoption("--testbed-html") is None


PREPARED = """
    import sys
    from testbed.testing import on_ranks

    def test_other():
        assert ("collectives.virtual.setting" in sys.modules, "torch._dynamo" in sys.modules) == {found}

    @on_ranks(2)
    def test_ranks():
        assert {text!r}
"""


@pytest.mark.parametrize(
    ("text", "options", "found"),
    [
        pytest.param("an optimizer", [], (True, True), marks=pytest.mark.costly),
        ("none", [], (True, False)),
        ("optim", ["-k", "other"], (False, False)),
    ],
)
def test_what_tests_on_ranks_need_is_there_before_the_first_of_them(pytester, text, options, found):
    pytester.makepyfile(PREPARED.format(text=text, found=found))

    result = pytester.runpytest_subprocess(*OPTIONS, *options)

    result.assert_outcomes(passed=1 if options else 2, deselected=len(options) // 2)
