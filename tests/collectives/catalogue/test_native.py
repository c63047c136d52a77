import pytest

from collectives import NotSupportedError, verify
from collectives.catalogue.native import by_itself, native_over, native_program, num_segments
from collectives.execution.transport_model import transport_model
from collectives.program.contracts import CONTRACTS

MIB = 1 << 20


@pytest.mark.parametrize("collective", CONTRACTS)
def test_gloo_has_a_program_for_every_collective(collective):
    native = native_program(collective, 4, 16 * MIB, 4)

    assert native.collective == collective
    verify(native, 4)


@pytest.mark.parametrize(
    ("num_ranks", "nbytes", "itemsize", "segments"),
    [
        (4, 0, 4, 2),
        (4, 4, 4, 2),
        (4, 8 * MIB, 4, 2),
        (4, 8 * MIB + 4, 4, 3),
        (4, 16 * MIB, 4, 4),
        (3, 10, 1, 2),
    ],
)
def test_a_segment_has_at_most_a_mebibyte_and_a_chunk_at_least_two(num_ranks, nbytes, itemsize, segments):
    assert num_segments(num_ranks, nbytes, itemsize) == segments


def test_what_gloo_does_not_have_is_refused():
    with pytest.raises(NotSupportedError, match="Gloo has no scan"):
        native_program("scan", 4, 1)


@pytest.mark.parametrize("name", ["ideal", "nccl"])
def test_native_is_known_over_gloo_alone(name):
    with pytest.raises(NotSupportedError, match=f"transport_model='gloo', not for '{name}'"):
        native_over(transport_model(name), 4)


def test_native_over_gloo_chooses_by_size():
    native = native_over(transport_model("gloo"), 4, itemsize=4)

    assert native.select("all_reduce", 16 * MIB).parameters == {"segments": 4}
    assert native.select("broadcast", 16 * MIB).name == "gloo_tree"


def test_gloo_s_own_collectives_go_on_while_a_rank_computes():
    assert by_itself(transport_model("gloo")).progress == "itself"
    assert by_itself(transport_model("gloo")).late_sends
