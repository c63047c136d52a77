from __future__ import annotations

from pathlib import Path

import pytest

from testbed.fuzz.draw import Draw, Space
from testbed.fuzz.faults import FAULTS, Fault
from testbed.fuzz.scripts import judge
from tests.testbed.fuzz.first_come import FIRST_COME

SUM = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([1.0 + dist.get_rank()])
for _ in range(3):
    dist.all_reduce(total)
print(total)
"""


def space_of(text: str, folder: Path) -> Space:
    script = folder / "script.py"
    script.write_text(text)
    return Space(str(script))


def test_a_result_that_depends_on_which_message_comes_first_is_a_violation(tmp_path: Path) -> None:
    space = space_of(FIRST_COME, tmp_path)
    late = Draw(1, 3, "switch-100g", "ring", faults=(Fault("slow", 1, 0.9, 0.5, 1),))

    judged = judge(late, space)

    assert "rank 0 printed '[2, 1]', without faults '[1, 2]'" in judged.violations["time_changes_no_results"]
    assert not judge(late.without_faults, space).violations


@pytest.mark.parametrize("kind", FAULTS)
def test_no_fault_makes_a_right_script_a_violation(kind: str, tmp_path: Path) -> None:
    space = space_of(SUM, tmp_path)
    drawn = Draw(1, 3, "switch-100g", "ring", order=1, faults=(Fault(kind, 1, 0.4, 0.3, 1),))

    assert not judge(drawn, space).violations
