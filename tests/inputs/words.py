"""Targets that are words of the command line: quantities, ranks, sizes, placements, conditions, algorithms.

What is accepted agrees with a second reading, by other means: quantities by decimal arithmetic, lists one
element after another.  An algorithm that ships is proved, or refuses its parameters or the number of ranks.
"""

import math
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from random import Random

from collectives.algorithms import ALGORITHMS
from collectives.catalogue.resolve import names_a_file, resolve_algorithm
from collectives.catalogue.selectors import check_choice, parse_auto
from collectives.errors import NotSupportedError
from collectives.proof.proof import estimate_work, prove
from collectives.virtual.computation.choice import parse_compute
from ddp.reduction.overlap import STRATEGIES, resolve_strategy
from sim import Jitter
from sim.units import parse_bandwidth, parse_rate, parse_size, parse_time
from testbed.errors import exit_code_of
from testbed.options.arguments import parse_algorithm, parse_placement, parse_ranks, parse_sizes
from testbed.options.conditions import parse_change, parse_death, parse_failure, parse_straggler
from tests.inputs.mutators import NUMBERS, WORDS, mutated_word
from tests.inputs.target import Target, same, text_of

MOST_WORK = 20_000
WORLD_SIZES = (1, 2, 3, 4, 8)

BANDWIDTHS = ("100Gbps", "300GB/s", "1.5GiB/s", "12.5e9", "7kbit/s", "8Tb/s", "1B/s")
TIMES = ("2us", "1.5ms", "500ns", "3ps", "1s", "2e-6", ".5µs")
SIZES = ("4K", "25MiB", "1GB", "4096", "0.5K", "2t", "7B")
RATES = ("989.4TFLOP/s", "19.5e12", "1gflop/s")
RANKS = ("8", "2,4,8-10", "1-64", "3-3")
LISTS = ("4K-64M", "4K,1M", "1-8", "0", "1K,2K-8K")
PLACES = ("packed", "round_robin", "0,8,1,9", "0-7,16-23", "3")
CONDITIONS = ("3:2", "3:+1ms", "3:2.5+1ms", "rank 3 up@1ms", "12@1ms:0.5", "3@iteration=5", "3@10ms", "2us")
COMPUTE = ("none", "h100", "a100:tf32", "measured", "measured:0.1", "h100:fa1_2023", "laptop-cpu")
ALGORITHM_NAMES = (
    *dict.fromkeys(own.name for own in ALGORITHMS),
    *("ring:channels=2", "tree:root=1", "double_binary_tree:segments=4", "bruck:radix=3", "hierarchical"),
    *("hierarchical:ranks_per_node=2", "bucket:dims=2x2", "swing", "ring:channels=2,segments=3"),
    *("all_reduce=ring,all_gather=bruck", "auto", "auto:reduction_bandwidth=50GB/s", "native"),
)


def _of_words(samples: Sequence[str]) -> Callable[[Random], bytes]:
    def draw(random):
        if random.random() < 0.1:
            pieces = [*samples, *WORDS, *map(str, NUMBERS[:20])]
            word = "".join(random.choices(pieces, k=random.choice((1, 2, 3))))
        else:
            word = random.choice(samples)
        for _ in range(random.choice((0, 1, 1, 2, 3))):
            word = mutated_word(word, random)
        return word.encode("utf-8", "replace")

    return draw


_DECIMAL = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}
_EXACT = Context(prec=5000)


def _number_and_unit(text: str) -> tuple[Fraction, str]:
    """Return the number at the beginning of *text*, by decimal arithmetic, and what stands behind it."""
    text = text.strip()
    end = next(end for end in range(len(text), 0, -1) if _is_number(text[:end]))
    return Fraction(Decimal(text[:end], _EXACT)), text[end:].strip()


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[+-]?[\d.]+([eE][+-]?\d+)?", text) is not None and any(c.isdigit() for c in text)


def read_bandwidth(content: bytes) -> None:
    value = parse_bandwidth(text_of(content))
    number, unit = _number_and_unit(text_of(content))
    prefix = re.match(r"[kKmMgGtT]?(?=i?[bB])", unit)
    power = _DECIMAL[prefix[0].lower()] if prefix else 0
    factor = Fraction(1024 ** (power // 3) if "i" in unit.removesuffix("bit/s") else 10**power)
    in_bits = "b" in unit and "B" not in unit
    same(value, math.floor(number * factor / (8 if in_bits else 1)), "bandwidth")


def read_time(content: bytes) -> None:
    value = parse_time(text_of(content))
    number, unit = _number_and_unit(text_of(content))
    power = {"": 12, "s": 12, "ms": 9, "us": 6, "µs": 6, "μs": 6, "ns": 3, "ps": 0}[unit]
    same(value, math.ceil(number * 10**power), "time")


def read_size(content: bytes) -> None:
    value = parse_size(text_of(content))
    number, unit = _number_and_unit(text_of(content))
    same(value, number * 1024 ** (_DECIMAL[unit[:1].lower().replace("b", "")] // 3), "size")


def read_rate(content: bytes) -> None:
    value = parse_rate(text_of(content))
    number, unit = _number_and_unit(text_of(content))
    same(value, math.floor(number * 10 ** _DECIMAL[unit[:1].lower().replace("f", "")]), "rate")


def read_ranks(content: bytes) -> None:
    text = text_of(content)
    found = parse_ranks(text)
    wanted = set()
    for part in text.split(","):
        ends, _, factor = part.partition("x")
        low, high = (int(end) for end in (ends.split("-") * 2)[:2])
        while low <= high:
            wanted.add(low)
            low = low * int(factor) if factor else low + 1
    same(found, sorted(wanted), "ranks")


def read_sizes(content: bytes) -> None:
    text = text_of(content)
    found = iter(parse_sizes(text))
    for part in text.split(","):
        first, _, last = part.partition("-")
        size = parse_size(first)
        same(next(found), size, "sizes")
        while last and size * 2 <= parse_size(last):
            size *= 2
            same(next(found), size, "sizes")
    same(next(found, None), None, "sizes")


def read_placement(content: bytes) -> None:
    text = text_of(content)
    found = parse_placement(text)
    if isinstance(found, str):
        same(found, text, "placement")
        return
    wanted = []
    for part in text.split(","):
        ends = [int(end) for end in part.split("-")]
        wanted.extend(range(ends[0], ends[-1] + 1))
    same(list(found), wanted, "placement")


def read_condition(content: bytes) -> None:
    """Read what each kind of condition accepts; refused if none does."""
    text = text_of(content)
    readers = (parse_straggler, parse_change, parse_death, Jitter, lambda text: parse_failure(text, False))
    refusals = []
    for reader in readers:
        try:
            reader(text)
        except Exception as error:
            if exit_code_of(error) != 2:
                raise
            refusals.append(error)
    if len(refusals) == len(readers):
        raise refusals[-1]


def read_compute(content: bytes) -> None:
    """Read a model of computation by its name, without profiles."""
    parse_compute(text_of(content))


def read_strategy(content: bytes) -> None:
    """Read a strategy by its name; its own spelling means the same."""
    resolve_strategy(text_of(content))


def read_algorithm(content: bytes) -> None:
    """Read an algorithm; one that ships is proved for small worlds, or refuses them."""
    text = text_of(content)
    if names_a_file(text) or (isinstance(own := parse_auto(text), object) and own and own.table):
        return  # code, and files that have a target of their own
    choice = parse_algorithm(text)
    if not isinstance(choice, str) or parse_auto(choice) is not None or choice in ("native", "nccl"):
        check_choice(choice)
        return

    algorithm = resolve_algorithm(choice)
    same(str(resolve_algorithm(str(algorithm))), str(algorithm), "its own spelling")
    for world_size in WORLD_SIZES:
        try:
            if estimate_work(algorithm, world_size) <= MOST_WORK:
                prove(algorithm, world_size)
        except NotSupportedError:
            continue


TARGETS = (
    Target("bandwidth", _of_words(BANDWIDTHS), read_bandwidth, weight=12),
    Target("time", _of_words(TIMES), read_time, weight=12),
    Target("size", _of_words(SIZES), read_size, weight=12),
    Target("rate", _of_words(RATES), read_rate, weight=8),
    Target("ranks", _of_words(RANKS), read_ranks, weight=4),
    Target("sizes", _of_words(LISTS), read_sizes, weight=8),
    Target("placement", _of_words(PLACES), read_placement, weight=4),
    Target("condition", _of_words(CONDITIONS), read_condition, weight=8),
    Target("compute", _of_words(COMPUTE), read_compute, weight=2),
    Target("strategy", _of_words(tuple(STRATEGIES)), read_strategy, weight=4),
    Target("algorithm", _of_words(ALGORITHM_NAMES), read_algorithm, weight=3),
)
