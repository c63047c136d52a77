"""Loggers: what a rank sets up holds for that rank, and writes to its output."""

from __future__ import annotations

import io
import logging

import torch.distributed as dist

from collectives.virtual import run
from tests.given import switch

LOGGER = logging.getLogger("tests.of.a.rank")


def test_each_rank_configures_logging_for_itself() -> None:
    outputs = [io.StringIO() for _ in range(3)]

    def work(rank: int) -> tuple[int, int]:
        dist.init_process_group("gloo")
        logging.root.handlers = []
        level = logging.WARNING if rank == 1 else logging.INFO
        logging.basicConfig(format=f"{rank}: %(message)s", level=level, stream=outputs[rank])
        dist.barrier()
        LOGGER.info("begins")
        dist.barrier()
        LOGGER.setLevel(logging.DEBUG if rank == 2 else logging.ERROR)
        dist.barrier()
        LOGGER.debug("ends")
        return LOGGER.level, len(logging.root.handlers)

    before = list(logging.root.handlers), logging.root.level, LOGGER.level, LOGGER.isEnabledFor(logging.DEBUG)

    results = run(work, network=switch(3)).results

    assert results == [(logging.ERROR, 1), (logging.ERROR, 1), (logging.DEBUG, 1)]
    assert [output.getvalue() for output in outputs] == ["0: begins\n", "", "2: begins\n2: ends\n"]
    after = list(logging.root.handlers), logging.root.level, LOGGER.level, LOGGER.isEnabledFor(logging.DEBUG)
    assert after == before
    assert not any(name in vars(logging.Logger) for name in ("level", "handlers", "propagate"))


def test_a_logger_that_a_rank_made_is_there_for_all_and_afterwards() -> None:
    def work(rank: int) -> int:
        dist.init_process_group("gloo")
        logger = logging.getLogger("tests.made.by.a.rank")
        dist.barrier()
        logger.setLevel(10 + rank)
        dist.barrier()
        return logger.level

    assert run(work, network=switch(2)).results == [10, 11]
    logger = logging.getLogger("tests.made.by.a.rank")
    assert (logger.level, logger.handlers, logger.propagate) == (logging.NOTSET, [], True)
