"""Each classic mistake of `examples/mistakes` gets its diagnosis, in words, with the user's own lines."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli import app

ROOT = Path(__file__).parents[2]
MISTAKES = ROOT / "examples" / "mistakes"
SHOWN: dict[str, str] = dict(
    re.findall(
        r"^```console\n\$ testbed run --ranks \d(?: --orders all)? examples/mistakes/(\w+)\.py\n(.*?)\n```",
        (ROOT / "docs" / "diagnoses.md").read_text(),
        re.DOTALL | re.MULTILINE,
    )
)

DEADLOCKS = {
    "barrier_on_one_rank": [
        "rank 0 at barrier_on_one_rank.py:20 in save_checkpoint: dist.barrier(), under",
        '"if dist.get_rank() == 0" of line 18',
        "ranks 1, 2, 3 at barrier_on_one_rank.py:24: model(",
        "rank 0 called something else: barrier #4",
        "the others broadcast #4",
        "in iteration 1",
    ],
    "collective_on_one_rank": [
        "rank 0 at collective_on_one_rank.py:19: dist.all_reduce(loss.detach()), under",
        '"if dist.get_rank() == 0" of line 18',
        "ranks 1, 2, 3 at collective_on_one_rank.py:14: loss = model(",
        "rank 0 called something else: all_reduce #4",
    ],
    "different_order": [
        "ranks 0, 1, 2, 3 at different_order.py:15: dist.all_reduce(metrics[name])",
        "rank 2 called something else: all_reduce #0 (one_shot, 1 × float32, sum)",
        "the others all_reduce #0 (one_shot, 100 × float32, sum)",
    ],
    "different_shapes": [
        "ranks 0, 1, 2, 3 at different_shapes.py:16: dist.all_gather(gathered, outputs)",
        "rank 3 called something else: all_gather #0 (direct, 24 × float32)",
        "the others all_gather #0 (direct, 48 × float32)",
    ],
    "different_types": [
        "ranks 0, 1, 2, 3 at different_types.py:14: dist.all_reduce(total)",
        "rank 1 called something else: all_reduce #0 (one_shot, 1 × float64, sum)",
    ],
    "evaluation_on_one_rank": [
        'rank 0 at evaluation_on_one_rank.py:21: print(f"epoch {epoch}: {model(torch.ones(4, 8))',
        'under "if rank == 0" of line 19',
        "ranks 1, 2, 3 at evaluation_on_one_rank.py:16: model(",
        "rank 0 called something else: broadcast #7 (bine:root=0, 16 × float32, root 0)",
    ],
    "group_made_by_some": [
        "ranks 0, 1, 2, 3 at group_made_by_some.py:15: dist.all_reduce(torch.ones(4), group=everyone)",
        "ranks 0, 1 in all_reduce #0",
        "ranks 2, 3 in all_reduce #0",
        "in different groups of the same ranks; every rank must make and use the same groups",
    ],
    "mismatched_messages": [
        "ranks 0, 1, 2, 3 at mismatched_messages.py:13: dist.recv(",
        "ranks wait for each other in a circle: rank 0 receives from rank 3, rank 3 receives from rank 2",
        "batch_isend_irecv",
    ],
    "uneven_data": [
        "rank 3: has finished, at 56.07 us, in iteration 5",
        "ranks 0, 1, 2 at uneven_data.py:16: model(batch).square().mean().backward()",
        "all_reduce #10 (one_shot, 9 × float32, sum): rank 3 did not take part: finished at 56.07 us",
    ],
    "wrong_tag": [
        "rank 0 at wrong_tag.py:12: dist.send(torch.ones(4), dst=1, tag=1)",
        "rank 1 at wrong_tag.py:14: dist.recv(torch.empty(4), src=0, tag=2)",
        "rank 0 sends to rank 1 under tag 1, which receives from it under tag 2",
    ],
}

NOTICES = {
    "group_of_others": "rank 2 calls all_reduce of a group that it is not in, which does nothing "
    "(group_of_others.py:14)",
    "no_set_epoch": "a DistributedSampler gives the same shuffle again, that of epoch 0: call "
    "sampler.set_epoch(epoch) before every epoch (no_set_epoch.py:16)",
    "sampler_seeds": "sampler_seeds.py:18: the ranks see overlapping data and 44 of 64 samples in all; their "
    "DistributedSampler must be the same but for its rank: seed is 0 on rank 0, 1 on rank 1, 2 on rank 2, "
    "3 on rank 3",
}

ERRORS = {
    "different_models": "different_models.py, rank 1: RuntimeError: [1]: params[0] in this process with "
    "sizes [16, 8] appears not to match sizes of the same param in process 0."
}


RACES = {
    "any_source_by_luck": [
        "the order of events matters: what rank 0 prints depends on it",
        "  rank 0 at any_source_by_luck.py:17 takes the message of rank 1",
        "  rank 0 at any_source_by_luck.py:17 takes the message of rank 2",
    ],
}


@cache
def printed(name: str) -> str:
    """Return what is printed of a mistake; of its report, the notes alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        given = ["--ranks", "3", "--orders", "all"] if name in RACES else ["--ranks", "4"]
        result = CliRunner().invoke(app, ["run", *given, f"examples/mistakes/{name}.py"])
    if name in NOTICES:
        assert result.exit_code == 0, result.stderr
        return " ".join(result.stderr[result.stderr.index("Note:") :].split())
    assert result.exit_code == 1
    return result.stderr[result.stderr.index("testbed: error:") :].rstrip()


def test_every_mistake_has_its_test_and_its_place_in_the_document() -> None:
    assert (
        {path.stem for path in MISTAKES.glob("*.py")}
        == {*DEADLOCKS, *NOTICES, *ERRORS, *RACES}
        == SHOWN.keys()
    )


@pytest.mark.parametrize("name", [*DEADLOCKS, *ERRORS])
def test_a_mistake_that_would_hang_or_fail_is_told_with_ranks_calls_and_lines(name: str) -> None:
    words = DEADLOCKS.get(name) or [ERRORS[name]]

    assert [own for own in words if own not in printed(name)] == []


@pytest.mark.parametrize("name", RACES)
def test_a_mistake_that_one_order_of_events_hides_is_told_with_two(name: str) -> None:
    assert [own for own in RACES[name] if own not in printed(name)] == []


@pytest.mark.parametrize("name", NOTICES)
@pytest.mark.filterwarnings("ignore:Running all_reduce on global rank")
def test_a_mistake_that_spoils_results_in_silence_is_noted(name: str) -> None:
    assert printed(name) == f"Note: {NOTICES[name]}."


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.filterwarnings("ignore:Running all_reduce on global rank")
def test_the_document_shows_what_is_printed(name: str) -> None:
    assert SHOWN[name] == printed(name)
