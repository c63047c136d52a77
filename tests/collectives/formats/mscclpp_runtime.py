"""Executor of MSCCL++ plans, as naive as possible, on numbers.

Signals are counted, writes into other ranks' memory land at once, and a thread block's threads may be
anywhere between two ``nop``: so operations between these must not need each other.
"""

import random
from collections import Counter, defaultdict
from typing import Any

from tests.collectives.formats.msccl_runtime import NAMES, StuckError
from tests.collectives.reference import Setting

Cell = tuple[str, int]


class Executor:
    """All ranks of a plan."""

    def __init__(self, plan: dict[str, Any], seed: int) -> None:
        self.random = random.Random(seed)
        self.gpus = plan["gpus"]
        collective = NAMES[plan["collective"]]
        chunks = max(self.gpus[0]["input_chunks"], self.gpus[0]["output_chunks"])
        self.setting = Setting(collective, len(self.gpus), chunks)
        self.buffers = []
        for gpu, given in zip(self.gpus, self.setting.given(), strict=True):
            scratch = [None] * gpu["scratch_chunks"]
            output = given if plan["inplace"] else [None] * gpu["output_chunks"]
            self.buffers.append({"i": given, "o": output, "s": scratch})
        self.signals = Counter()
        self.semaphores = [[one["init_value"] for one in gpu["semaphores"]] for gpu in self.gpus]
        self.done = Counter()
        self.since_nop = defaultdict(lambda: (set(), set()))
        self.has_waited = defaultdict(bool)
        self.check_limits()

    def check_limits(self) -> None:
        for gpu in self.gpus:
            assert len(gpu["semaphores"]) <= 16
            for block in gpu["threadblocks"]:
                assert len(block["ops"]) <= 64
                assert sum(len(one["channel_ids"]) for one in block["channels"]) <= 16
                assert sum(len(one["remote_buffer_ids"]) for one in block["remote_buffer_refs"]) <= 16
                for op in block["ops"]:
                    ids = op.get("channel_ids", [])
                    assert len(ids) == len(set(ids)) <= 8
                    assert len(op.get("src_buff", [])) <= 10

    def run(self) -> list[list[int | None]]:
        blocks = [(gpu["id"], block) for gpu in self.gpus for block in gpu["threadblocks"]]
        moved = True
        while moved:
            moved = False
            self.random.shuffle(blocks)
            for rank, block in blocks:
                while self.done[rank, block["id"]] < len(block["ops"]) and self.try_next(rank, block):
                    moved = True
                    if self.random.random() < 0.5:
                        break
        if any(self.done[rank, block["id"]] < len(block["ops"]) for rank, block in blocks):
            raise StuckError
        assert not any(self.signals.values())
        assert not any(map(any, self.semaphores))
        return [held["o"] for held in self.buffers]

    def try_next(self, rank: int, block: dict[str, Any]) -> bool:
        key = rank, block["id"]
        op = block["ops"][self.done[key]]
        read, written = self.since_nop[key]
        channels = [block["channels"][0]["channel_ids"][n] for n in op.get("channel_ids", [])]
        match op["name"]:
            case "nop":
                read.clear()
                written.clear()
                self.has_waited[key] = False
            case "signal":
                assert not read | written, "a signal overtakes what it announces"
                assert not self.has_waited[key]
                self.signals.update(self.other_end(rank, channel) for channel in channels)
            case "wait":
                if any(not self.signals[rank, channel] for channel in channels):
                    return False
                self.signals.subtract((rank, channel) for channel in channels)
                self.has_waited[key] = True
            case "sem_release":
                assert not read | written
                for number in op["semaphore_ids"]:
                    self.semaphores[rank][number] += 1
            case "sem_acquire":
                if any(not self.semaphores[rank][number] for number in op["semaphore_ids"]):
                    return False
                for number in op["semaphore_ids"]:
                    self.semaphores[rank][number] -= 1
                self.has_waited[key] = True
            case _:
                self.carry_out(rank, block, op)
        self.done[key] += 1
        return True

    def other_end(self, rank: int, channel: int) -> tuple[int, int]:
        """Return the peer, and its channel that is paired with this one: the n-th between the two."""
        connected = self.gpus[rank]["channels"][0]["connected_to"]
        peer = connected[channel]
        place = connected[:channel].count(peer)
        back = [n for n, other in enumerate(self.gpus[peer]["channels"][0]["connected_to"]) if other == rank]
        return peer, back[place]

    def carry_out(self, rank: int, block: dict[str, Any], op: dict[str, Any]) -> None:
        read, written = self.since_nop[rank, block["id"]]
        assert not self.has_waited[rank, block["id"]], "an operation overtakes a wait"
        sources = [(one["type"], one["index"], one["size"]) for one in op["src_buff"]]
        reads = {(buffer, n) for buffer, first, size in sources for n in range(first, first + size)}
        (target,) = op["dst_buff"]
        first, size = target["index"], target["size"]
        owner, buffer = rank, target.get("type")
        if op["name"] == "put":
            number = block["remote_buffer_refs"][0]["remote_buffer_ids"][target["buffer_id"]]
            remote = self.gpus[rank]["remote_buffers"][number]
            owner, buffer = remote["rank"], remote["type"]
        writes = {(buffer, n) for n in range(first, first + size)} if owner == rank else set()
        assert not reads & written, "an operation overtakes a write"
        assert not writes & (read | written), "an operation overtakes what it overwrites"
        read |= reads
        written |= writes
        values = [self.buffers[rank][name][start : start + count] for name, start, count in sources]
        held = self.buffers[owner][buffer]
        assert first + size <= len(held)
        if op["name"] == "re":
            assert op["reduce_op"] == "sum"
            sums = [
                None if None in column else sum(filter(None, column)) for column in zip(*values, strict=True)
            ]
            held[first : first + size] = sums
        else:
            assert op["name"] in ("copy", "put")
            held[first : first + size] = values[0]


def fulfils(plan: dict[str, Any], seed: int) -> bool:
    """Execute the plan; return whether the collective is fulfilled."""
    executor = Executor(plan, seed)
    return executor.setting.is_fulfilled(executor.run())
