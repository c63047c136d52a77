"""MSCCL XML: what is written runs, what is read is proved, what makes no sense is refused."""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
import torch

from collectives import (
    Algorithm,
    AlgorithmFileError,
    CollectiveError,
    Communicator,
    Copy,
    NotSupportedError,
    Recv,
    Reduce,
    Send,
    algorithm,
    resolve_algorithm,
    simulate,
    verify,
)
from collectives.algorithms import ALGORITHMS
from collectives.communicators.programs import ProgramLauncher
from collectives.formats.msccl_program import from_msccl_xml, load_msccl_xml
from collectives.formats.msccl_xml import to_msccl_xml
from collectives.transports.threaded import run_threads
from sim import Topology
from tests.collectives.formats.msccl_files import all_pairs, block, file_of, fused_ring, step
from tests.collectives.formats.msccl_runtime import StuckError, fulfils, why_not
from tests.collectives.sends import sends

WORLD_SIZES = (2, 3, 4, 5, 8)
PARAMETERS = ("ring:channels=2", "chain:segments=3", "hierarchical:ranks_per_node=2", "swing:channels=3")
SHIPPED = [
    pytest.param(shipped, id=f"{shipped.collective}-{shipped}")
    for shipped in (*ALGORITHMS, *map(resolve_algorithm, PARAMETERS))
]


def chunks_sent(own: Algorithm, world_size: int) -> list[int]:
    return [sum(send.num_chunks for *_, send in sends(own, world_size, [rank])) for rank in range(world_size)]


@pytest.mark.parametrize("world_size", WORLD_SIZES)
@pytest.mark.parametrize("shipped", SHIPPED)
def test_a_file_does_what_the_program_does_however_little_connections_hold_and_is_read_as_one_like_it(
    shipped, world_size
):
    reason = why_not(shipped, world_size)
    if reason is not None:
        with pytest.raises(NotSupportedError, match=reason):
            to_msccl_xml(shipped, world_size)
        return

    text = to_msccl_xml(shipped, world_size)
    imported = from_msccl_xml(text)
    proof = verify(imported, world_size)

    assert all(fulfils(text, slots=slots, seed=seed) for slots, seed in ((0, 1), (0, 2), (1, 3), (1000, 4)))
    assert proof.collective == shipped.collective
    assert proof.num_messages >= verify(shipped, world_size).num_messages
    assert imported.num_chunks(world_size) == shipped.num_chunks(world_size)
    assert chunks_sent(imported, world_size) == chunks_sent(shipped, world_size)


@pytest.mark.parametrize(
    "name", ["ring", "halving_doubling", "direct", "chain", "one_shot", "recursive_doubling"]
)
def test_a_program_that_went_through_a_file_takes_the_same_simulated_time(name, tmp_path):
    path = tmp_path / "algorithm.xml"
    path.write_text(to_msccl_xml(resolve_algorithm(name), 8), encoding="utf-8")
    network = Topology.switch(num_ranks=8, bandwidth="100Gbps", latency="2us")

    runs = [simulate(one, nbytes=1 << 20, topology=network) for one in (name, str(path))]

    assert runs[0].time_ps == runs[1].time_ps


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("inplace", [0, 1])
def test_a_ring_of_fused_steps_is_read(num_ranks, inplace):
    text = fused_ring(num_ranks, inplace)

    proof = verify(from_msccl_xml(text), num_ranks)

    assert fulfils(text, slots=2)
    assert proof.num_steps == 2 * (num_ranks - 1)
    assert proof.max_bytes_sent_fraction == proof.min_bytes_sent_fraction


@pytest.mark.parametrize("num_ranks", [2, 3, 4, 8])
def test_chunks_that_stand_elsewhere_in_scratch_are_followed(num_ranks):
    text = all_pairs(num_ranks)

    imported = from_msccl_xml(text)

    assert fulfils(text, slots=1)
    assert verify(imported, num_ranks).num_steps == 2


def test_an_imported_program_reduces_tensors_that_do_not_divide(tmp_path):
    path = tmp_path / "all_pairs.xml"
    path.write_text(all_pairs(4), encoding="utf-8")

    def reduced(transport):
        tensor = torch.arange(13.0) * 10**transport.rank
        Communicator(ProgramLauncher(transport, str(path))).all_reduce(tensor)
        return tensor.tolist()

    assert run_threads(reduced, 4) == [[1111.0 * n for n in range(13)]] * 4


@pytest.mark.costly
@pytest.mark.parametrize(
    ("name", "collective", "world_size", "reason"),
    [
        ("ring", "all_reduce", 140, "at most 256 steps in a thread block of rank"),
        ("direct", "all_gather", 110, "at most 216 thread blocks on a rank, this takes 218"),
    ],
)
def test_what_the_runtime_cannot_hold_is_refused(name, collective, world_size, reason):
    with pytest.raises(NotSupportedError, match=reason):
        to_msccl_xml(resolve_algorithm(name, collective), world_size)


def test_long_messages_are_divided_as_the_runtime_wants():
    @algorithm(num_chunks=200, collective="all_gather")
    def halves(rank: int, world_size: int) -> Any:
        yield Send(1 - rank, 100 * rank, 100), Recv(1 - rank, 100 * (1 - rank), 100)

    text = to_msccl_xml(halves, 2)

    assert 'cnt="71"' in text
    assert 'cnt="29"' in text
    assert fulfils(text, slots=0)
    assert chunks_sent(from_msccl_xml(text), 2) == [100, 100]


def test_the_runtime_cannot_fuse_a_reduction_with_what_overwrites_it():
    @algorithm(num_chunks=1, scratch_chunks=2)
    def overwrites(rank: int, world_size: int) -> Any:
        yield Send(1 - rank, 0), Recv(1 - rank, 1), Copy(0, 2)
        yield Reduce(1, 2), Reduce(1, 0)
        yield (Copy(2, 0),)

    steps = [line.split() for line in to_msccl_xml(overwrites, 2).split("\n") if 'dstbuf="i"' in line]

    assert [(words[2], words[-1]) for words in steps if words[2] in ('type="re"', 'type="cpy"')] == [
        ('type="re"', 'hasdep="1"/>'),
        ('type="cpy"', 'hasdep="0"/>'),
    ] * 2


def test_a_name_is_spelled_so_that_the_runtimes_can_read_it():
    named = replace(resolve_algorithm("ring"), name='<&"größe"' * 20)

    text = to_msccl_xml(named, 2)

    assert text.startswith('<algo name="' + "___gr__e_" * 7 + '"')
    assert verify(from_msccl_xml(text), 2)


def test_what_cannot_be_written_is_refused():
    def silent(rank, world_size):
        yield ()

    with pytest.raises(CollectiveError, match="chunk 0 is never written"):
        to_msccl_xml(resolve_algorithm(silent), 2)
    with pytest.raises(ValueError, match="protocol must be one of Simple, LL, LL128, got 'll'"):
        to_msccl_xml(resolve_algorithm("ring"), 2, protocol="ll")


RING = to_msccl_xml(resolve_algorithm("ring"), 2)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("<algo", "hello <algo", "line 1: not XML: syntax error"),
        ("</algo>", "", "not XML: no element found"),
        ("<algo", '<?xml version="1.0" encoding="utf-7"?><algo', "line 1: not XML that can be read: multi"),
        ("<algo", '<!DOCTYPE a [<!ENTITY b "c">]><algo', "line 1: a document type .DOCTYPE. is refused"),
        ("algo", "schedule", "line 1: expected the element <algo>, got <schedule>"),
        ("<step", "<op", "line 4: expected <step> in <tb>, got <op>"),
        ('coll="allreduce"', 'coll="reduce"', "line 1: coll is one of allreduce, .*; got 'reduce'"),
        ('ngpus="2"', "", "line 1: <algo> has no attribute 'ngpus'"),
        ('ngpus="2"', 'ngpus="two"', "line 1: ngpus is a number from 1 to 65536; got 'two'"),
        ('ngpus="2"', 'ngpus="3"', "line 1: ngpus is 3, but there is no <gpu> with id 2"),
        ('gpu id="1"', 'gpu id="0"', "line 12: a second <gpu> with id 0"),
        ('nchunksperloop="2"', 'nchunksperloop="9999999"', "nchunksperloop is a number from 1 to"),
        ('type="rrc"', 'type="rrx"', "line 4: type is one of .*; got 'rrx'"),
        ('dstbuf="i"', 'dstbuf="x"', "dstbuf is i, o or s; got 'x'"),
        ('dstoff="1"', 'dstoff="2"', "dstoff=2, cnt=1: out of range, buffer i has 2 chunks"),
        ('recv="1"', 'recv="-1"', "line 4: type 'rrc' in a thread block with recv=-1"),
        ('recv="1"', 'recv="0"', "line 3: recv is 0, the GPU itself"),
        ('chan="0"', 'chan="-1"', "line 3: chan is a number from 0 to"),
        ('<step s="1"', '<step s="2"', "line 5: steps are numbered 0, 1, 2 …; expected s=1"),
        ('tb id="1"', 'tb id="0"', "thread blocks are numbered 0, 1, 2 …, each once; got 0 where 1"),
        ('hasdep="1"', 'hasdep="0"', "waits for a step with hasdep=0"),
        ('depid="0"', 'depid="7"', "depid=7, deps=0: there is no such step on this GPU"),
        ('depid="0"', 'depid="-1"', "touch chunk . of the buffer of GPU ., and nothing orders them"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_the_line(old, new, message, tmp_path):
    path = tmp_path / "bad.xml"
    path.write_text(RING.replace(old, new), encoding="utf-8")

    with pytest.raises(
        AlgorithmFileError, match=f"bad.xml, {'.*' if 'line' not in message else ''}{message}"
    ):
        load_msccl_xml(path)


def test_a_file_is_for_one_world_size_and_must_be_there_and_not_too_long(tmp_path, monkeypatch):
    for world_size in (1, 3):
        with pytest.raises(NotSupportedError, match=f"is for 2 ranks .ngpus., got {world_size}"):
            verify(from_msccl_xml(RING), world_size)
    with pytest.raises(AlgorithmFileError, match=r"nowhere\.xml: no such file"):
        load_msccl_xml(tmp_path / "nowhere.xml")
    monkeypatch.setattr("collectives.formats.msccl_trace.MAX_CLOCK_ENTRIES", 10)
    with pytest.raises(
        AlgorithmFileError, match="4 thread blocks with 6 steps that others wait for are more"
    ):
        from_msccl_xml(RING)


def two_gpus(first: Iterable[str], second: Iterable[str]) -> str:
    return file_of((first, second), chunks=2)


def steps(words: str) -> list[str]:
    """Return steps of which ``s0`` sends chunk 0, and ``r0>1`` receives it into chunk 1."""
    return [step(word[0], f"i{word[1]}", f"i{word[-1]}") for word in words.split()]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            two_gpus([block(0, 1, 1, steps("r0>1 s0"))], [block(0, 0, 0, steps("r0>1 s0"))]),
            r"deadlock, 2 thread blocks wait\n  line 4: GPU 0, thread block 0, step 0: a message of GPU 1",
        ),
        (two_gpus([block(0, 1, -1, steps("s0"))], []), "line 4: GPU 1 never receives this message of GPU 0"),
        (
            two_gpus([block(0, 1, -1, [step("s", "i0", "i0", 2)])], [block(0, -1, 0, steps("r0"))]),
            r"line 9: receives 1 chunks of GPU 0, which sends 2 \(line 4\)",
        ),
        (
            two_gpus(
                [block(0, 1, -1, [step("s", "i0", "i0", hasdep=1)]), block(1, -1, 1, steps("r0"))],
                [block(0, 0, 0, steps("s0 r0"))],
            ),
            r"line 7: this step and that on line 4 touch chunk 0 of the buffer of GPU 0, and nothing orders",
        ),
    ],
)
def test_thread_blocks_that_cannot_work_are_refused_with_the_line(text, said):
    with pytest.raises(AlgorithmFileError, match=said):
        from_msccl_xml(text)


def test_what_works_only_if_messages_are_buffered_is_refused():
    crossing = two_gpus([block(0, 1, 1, steps("s0 s1 r1 r0"))], [block(0, 0, 0, steps("s1 s0 r0 r1"))])

    with pytest.raises(NotSupportedError, match="wait for each other unless messages are buffered"):
        from_msccl_xml(crossing)
    with pytest.raises(StuckError):
        fulfils(crossing, slots=1)


@pytest.mark.parametrize("name", ["ring", "halving_doubling", "one_shot"])
def test_a_file_with_a_dependency_too_few_is_refused_unless_it_is_right_without_it(name):
    text = to_msccl_xml(resolve_algorithm(name), 4)
    refused = 0

    for match in re.finditer(r'depid="\d+" deps="\d+"', text):
        changed = text[: match.start()] + 'depid="-1" deps="-1"' + text[match.end() :]
        try:
            verify(from_msccl_xml(changed), 4)
        except AlgorithmFileError:
            refused += 1
            continue
        assert all(fulfils(changed, slots=slots, seed=seed) for slots in (1, 1000) for seed in range(5))

    assert refused > 0
