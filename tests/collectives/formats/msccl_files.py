"""Files in the dialect of msccl-tools, written here: a ring of fused steps, and all pairs over scratch."""

from collections.abc import Iterable


def file_of(
    gpus: Iterable[Iterable[str]], *, coll: str = "allreduce", chunks: int, inplace: int = 1, scratch: int = 0
) -> str:
    """Return a file whose GPUs have these thread blocks."""
    listed = [list(blocks) for blocks in gpus]
    lines = [
        f'<algo name="by hand" proto="Simple" nchannels="1" nchunksperloop="{chunks}" ngpus="{len(listed)}" '
        f'coll="{coll}" inplace="{inplace}">'
    ]
    for rank, blocks in enumerate(listed):
        lines.append(f'  <gpu id="{rank}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">')
        lines += [*blocks, "  </gpu>"]
    return "\n".join([*lines, "</algo>"])


def block(number: int, send: int, recv: int, steps: Iterable[str], channel: int = 0) -> str:
    """Return a thread block; its steps, but for their numbers, as `step` spells them."""
    numbered = [line.format(s=position) for position, line in enumerate(steps)]
    return "\n".join(
        [f'    <tb id="{number}" send="{send}" recv="{recv}" chan="{channel}">', *numbered, "    </tb>"]
    )


def step(
    kind: str,
    source: str = "i-1",
    target: str = "o-1",
    count: int = 1,
    after: tuple[int, int] = (-1, -1),
    hasdep: int = 0,
) -> str:
    """Return a step, from and to places such as ``i3``."""
    return (
        f'      <step s="{{s}}" type="{kind}" srcbuf="{source[0]}" srcoff="{source[1:]}" '
        f'dstbuf="{target[0]}" dstoff="{target[1:]}" cnt="{count}" '
        f'depid="{after[0]}" deps="{after[1]}" hasdep="{hasdep}"/>'
    )


def fused_ring(num_ranks: int, inplace: int = 1) -> str:
    """Return a ring in which partial sums are passed on without being stored."""

    def steps(rank):
        chunks = [(rank - back) % num_ranks for back in range(num_ranks)]
        yield step("s", f"i{chunks[0]}", f"i{chunks[0]}")
        for chunk in chunks[1:-1]:
            yield step("rrs", f"i{chunk}", f"o{chunk}")
        yield step("rrcs", f"i{chunks[-1]}", f"o{chunks[-1]}")
        for chunk in chunks[:-2]:
            yield step("rcs", f"i{chunk}", f"o{chunk}")
        yield step("r", f"i{chunks[-2]}", f"o{chunks[-2]}")

    gpus = [
        [block(0, (rank + 1) % num_ranks, (rank - 1) % num_ranks, steps(rank))] for rank in range(num_ranks)
    ]
    return file_of(gpus, chunks=num_ranks, inplace=inplace)


def all_pairs(num_ranks: int) -> str:
    """Return an all-reduce in which each rank gathers its chunks in scratch, reduces and spreads them."""
    per_rank = 2
    gpus = []
    for rank in range(num_ranks):
        others = [other for other in range(num_ranks) if other != rank]
        mine = rank * per_rank
        blocks = []
        for number, peer in enumerate(others):
            into = per_rank * others.index(peer)
            there = per_rank * (rank - (rank > peer))
            steps = [
                step("s", f"i{peer * per_rank}", f"s{there}", per_rank),
                step("r", f"i{mine}", f"s{into}", per_rank, hasdep=1),
                step("nop", count=0, after=(len(others), per_rank * len(others) + len(others) - 2)),
                step("s", f"i{mine}", f"i{mine}", per_rank),
                step("r", f"i{peer * per_rank}", f"i{peer * per_rank}", per_rank),
            ]
            blocks.append(block(number, peer, peer, steps))
        gathered = [step("nop", count=0, after=(number, 1)) for number in range(len(others) - 1)]
        places = [
            (n * per_rank + offset, mine + offset) for offset in range(per_rank) for n in range(len(others))
        ]
        sums = [step("re", f"s{source}", f"i{target}") for source, target in places[:-1]]
        sums.append(step("re", f"s{places[-1][0]}", f"i{places[-1][1]}", hasdep=1))
        sums[0] = step("re", "s0", f"i{mine}", after=(len(others) - 1, 1))
        blocks.append(block(len(others), -1, -1, gathered + sums))
        gpus.append(blocks)
    return file_of(gpus, chunks=num_ranks * per_rank, scratch=per_rank * (num_ranks - 1))
