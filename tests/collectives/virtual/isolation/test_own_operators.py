"""Operators that ranks register: each calls its own, and torch forgets them with the run."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch.library import custom_op

from collectives.virtual import run
from sim.errors import RankError
from tests.collectives.virtual.clusters import in_group, script

OPERATORS = """
import torch, torch.distributed as dist
from torch._inductor.decomposition import register_decomposition
from torch.library import Library, custom_op, impl

dist.init_process_group("gloo")
rank = dist.get_rank()
library = Library("ranks_own", "DEF")
library.define("plus(Tensor x) -> Tensor")

@impl(library, "plus", "CompositeExplicitAutograd")
def plus(x):
    return x + rank

register_decomposition([torch.ops.ranks_own.plus])(plus)

@custom_op("ranks_custom::times", mutates_args=())
def times(x: torch.Tensor) -> torch.Tensor:
    return x * (rank + 2)

times.register_fake(torch.empty_like)
times.register_autograd(lambda ctx, grad: grad * (rank + 2))

@custom_op("ranks_custom::add_", mutates_args={"x"})
def add_(x: torch.Tensor) -> None:
    x.add_(rank)

dist.barrier()
x, y = torch.ones(1, requires_grad=True), torch.zeros(1)
torch.ops.ranks_custom.times(x).sum().backward()
add_(y)
seen = [torch.ops.ranks_own.plus(x).item(), times(x).item(), x.grad.item(), y.item()]
"""


def test_each_rank_calls_what_it_registered_and_the_next_run_may_register_it_again(tmp_path: Path):
    path = script(tmp_path, OPERATORS)

    for num_ranks in (2, 1, 3):
        outcome = run(path, num_ranks)
        seen = [variables["seen"] for variables in outcome.results]
        del outcome
        assert seen == [[1 + rank, 2 + rank, 2 + rank, rank] for rank in range(num_ranks)]
        assert not hasattr(torch.ops.ranks_own, "plus")
        assert not hasattr(torch.ops.ranks_custom, "times")


def own_library(name: str, more: int) -> torch.library.Library:
    """Return a library with an operator that adds *more*."""
    library = torch.library.Library(name, "DEF")
    library.define("own(Tensor x) -> Tensor")
    library.impl("own", lambda x: x + more, "CompositeExplicitAutograd")
    return library


@given(st.permutations(range(3)))
def test_an_operator_is_there_until_the_last_of_its_ranks_gives_it_up(order: list[int]):
    def work(rank: int) -> list[float]:
        library, seen = own_library("ranks_lives", rank), []
        for leaving in order:
            dist.barrier()
            if library is not None:
                seen.append(torch.ops.ranks_lives.own(torch.zeros(1)).item())
            if leaving == rank:
                library._destroy()
                library = None
        return seen

    assert in_group(work, 3).results == [[rank] * (1 + order.index(rank)) for rank in range(3)]
    assert not hasattr(torch.ops.ranks_lives, "own")


def test_a_rank_may_define_again_what_it_has_given_up_and_others_have():
    def work(rank: int) -> list[float]:
        seen = []
        for time in range(3):
            library = own_library("ranks_again", rank + 10 * time)
            dist.barrier()
            seen.append(torch.ops.ranks_again.own(torch.zeros(1)).item())
            library._destroy()
        return seen

    assert in_group(work, 3).results == [[rank, rank + 10, rank + 20] for rank in range(3)]


@pytest.mark.parametrize("last", [0, 1])
def test_what_torch_refuses_of_one_rank_is_refused(last: int):
    def other_schema(rank: int) -> None:
        library = torch.library.Library("ranks_differ", "FRAGMENT")
        library.define(f"own(Tensor x{', int y' if rank else ''}) -> Tensor")
        dist.barrier()

    def twice(rank: int) -> None:
        libraries = [torch.library.Library("ranks_twice", "DEF") for _ in range(1 + (rank == last))]
        dist.barrier()
        del libraries

    with pytest.raises(RankError, match="with the same name and overload name multiple times"):
        in_group(other_schema, 2)
    with pytest.raises(RankError, match="Only a single TORCH_LIBRARY can be used"):
        in_group(twice, 2)


def test_an_operator_of_the_process_is_all_ranks_and_stays():
    @custom_op("before_ranks::own", mutates_args=())
    def own(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert in_group(lambda rank: own(torch.zeros(1)).item(), 2).results == [1.0, 1.0]
    assert torch.ops.before_ranks.own(torch.zeros(1)).item() == 1.0


def test_what_a_module_of_torch_registers_that_a_rank_imports_first_stays(tmp_path: Path):
    path = script(tmp_path, "import torch.ao.quantization.fx._decomposed")
    program = f"""if True:
    from collectives.virtual import run
    import sys, torch
    assert "torch.ao.quantization.fx._decomposed" not in sys.modules
    run({str(path)!r}, 2)
    quantize = torch.ops.quantized_decomposed.quantize_per_tensor
    print(quantize(torch.ones(1), 0.5, 0, -8, 8, torch.int8).item())
    """
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert said.stdout == "2\n", said.stderr
