"""Mutators: how an input that is right becomes one that may not be, by a seeded generator.

Values of JSON and TOML are changed where they stand (numbers without bounds, other types, keys gone, twice
or misspelled, deep nesting), texts as texts (cut, repeated, other encodings, one sign changed); words of the
command line are put together from pieces.
"""

import copy
import json
import math
from collections.abc import Sequence
from random import Random
from typing import Any

NUMBERS: Sequence[Any] = (
    0, -1, 1, 2, 3, 7, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64, 10**18, 10**30, 10**400, -(10**400),
    0.0, -0.0, 0.5, 1.5, 1e-9, 5e-324, 1e15, 1e300, 1.7976931348623157e308, math.nan, math.inf, -math.inf,
)  # fmt: skip
WORDS: Sequence[str] = (
    "", " ", "0", "-1", "1e400", "NaN", "inf", "∞", "٣", "1_000", "0x10", "true", "null", "ring", "native",
    "auto", "auto:table=x.json", "evil.py:f", "evil.xml", "hierarchical:intra=evil.py:f", "../../etc/passwd",
    "/dev/zero", "\x00", "\x1b[31m", "[/red]", "a[0-999999999]", "a[3-0]", "a" * 10_000, "100Gbps", "2us",
    "float32", "float8_e4m3fn", "gloo", "sim", "all_reduce", "Ä", "\u202e", "1" * 5000, "-" * 20_000 + "1",
)  # fmt: skip
_OTHERS: Sequence[Any] = (True, False, None, [], {}, [[]], {"": None})


def mutated_value(value, random: Random):
    """Return a copy of *value*, a JSON or TOML value, changed in one to three places."""
    value = copy.deepcopy(value)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        value = _changed_somewhere(value, random)
    return value


def _changed_somewhere(value, random: Random):
    """Change *value* at a random place inside of it, which may be itself."""
    if isinstance(value, dict) and value and random.random() < 0.9:
        key = random.choice(list(value))
        change = random.random()
        if change < 0.7:
            value[key] = _changed_somewhere(value[key], random)
        elif change < 0.8:
            del value[key]
        elif change < 0.9:
            value[mutated_word(str(key), random)] = value.pop(key)
        else:
            value[random.choice(list(value))] = copy.deepcopy(value[key])
        return value
    if isinstance(value, list) and value and random.random() < 0.9:
        index = random.randrange(len(value))
        change = random.random()
        if change < 0.7:
            value[index] = _changed_somewhere(value[index], random)
        elif change < 0.8:
            del value[index]
        elif change < 0.9:
            value.insert(random.randrange(len(value) + 1), copy.deepcopy(value[index]))
        else:
            random.shuffle(value)
        return value
    return _replaced(value, random)


def _replaced(value, random: Random):
    """Return what stands in the place of *value*: often of its kind, now and then nested deeply."""
    change = random.random()
    if change < 0.03:
        return _nested(value, random.choice((10, 60, 150)), random)
    if isinstance(value, bool) or value is None or change < 0.15:
        return copy.deepcopy(random.choice((*_OTHERS, *NUMBERS[:4], *WORDS[:12])))
    if isinstance(value, int | float):
        if not abs(value) < 1e100:
            return random.choice(NUMBERS)
        near = (value + 1, value - 1, -value, value * 2, float(value), str(value), value * 1e6, value / 1e6)
        return random.choice(near) if change < 0.5 else random.choice(NUMBERS)
    if isinstance(value, str):
        return mutated_word(value, random) if change < 0.7 else random.choice(WORDS)
    return copy.deepcopy(random.choice((*_OTHERS, *NUMBERS, *WORDS)))


def any_value(random: Random, keys: Sequence[str]):
    """Return a word, a number, or a list or object of such, with some of *keys*."""
    kind = random.random()
    if kind < 0.15:
        return [any_value(random, keys) for _ in range(random.randrange(4))]
    if kind < 0.3:
        return {key: any_value(random, keys) for key in random.choices(keys, k=random.randrange(4))}
    return random.choice((*NUMBERS, *WORDS, *range(-2, 10), True, False))


def _nested(value, depth: int, random: Random):
    for _ in range(depth):
        value = [value] if random.random() < 0.5 else {"a": value}
    return value


def mutated_word(word: str, random: Random) -> str:
    """Return *word* with a sign gone, twice, changed or put in, or with a number in it changed."""
    place = random.randrange(len(word) + 1)
    sign = random.choice("0123456789.-+eE:,=@/ \t_\x00µÄ[](){}'\"kKmMgGiIbBsSpnu")
    changes = (
        lambda: word[:place] + sign + word[place:], lambda: word[:place] + word[place + 1 :],
        lambda: word[:place] + sign + word[place + 1 :],
        lambda: word[:place] + word[place : place + 1] * random.choice((2, 20, 5000)) + word[place + 1 :],
        lambda: word[:place] + random.choice(WORDS) + word[place:],
        lambda: word[:place] + str(random.choice(NUMBERS)) + word[place:], lambda: word.swapcase(),
        lambda: word + word, lambda: word[place:] + word[:place],
    )  # fmt: skip
    return random.choice(changes)()


def mutated_bytes(content: bytes, random: Random) -> bytes:
    """Return *content* as a file may come: cut, repeated, in another encoding, with a byte changed."""
    first, last = sorted(random.randrange(len(content) + 1) for _ in range(2))
    changes = (
        lambda: content[:first],
        lambda: content[:first] + content[last:],
        lambda: content[:last] + content[first:last] + content[last:],
        lambda: content[:first] + bytes([random.randrange(256)]) + content[first + 1 :],
        lambda: content[:first] + random.choice(WORDS).encode() + content[first:],
        lambda: content[:first] + str(random.choice(NUMBERS)).encode() + content[first:],
        lambda: (
            content[:first] + random.choice((b"[", b"{", b"(", b"-", b"a.", b"<a>")) * 5000 + content[first:]
        ),
        lambda: b"\xef\xbb\xbf" + content,
        lambda: content.decode("utf-8", "replace").encode("utf-16"),
        lambda: content.decode("utf-8", "replace").encode("latin-1", "replace"),
        lambda: content.replace(b"\n", b"\r\n"),
        lambda: b"",
    )
    return random.choice(changes)()


def as_json(value, random: Random) -> bytes:
    """Return *value* as JSON; now and then a key stands twice."""
    text = json.dumps(value)
    if random.random() < 0.03 and isinstance(value, dict) and value:
        key = random.choice(list(value))
        text = f"{{{json.dumps(key)}: {json.dumps(random.choice(NUMBERS))}, {text[1:]}"
    return text.encode()


def as_toml(value: dict[str, Any]) -> bytes:
    """Return *value* as TOML: a line for each key at the top, what is inside on that line."""
    return "".join(f"{_toml(key)} = {_toml(own)}\n" for key, own in value.items()).encode()


def _toml(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = (c if c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in value)
        return f'"{"".join(escaped)}"'
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_toml(str(key))} = {_toml(own)}" for key, own in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return "nothing" if value is None else str(value)


def shuffled_keys(value, random: Random):
    """Return *value* with the keys of each object in another order, which means the same."""
    if isinstance(value, dict):
        items = [(key, shuffled_keys(own, random)) for key, own in value.items()]
        random.shuffle(items)
        return dict(items)
    return [shuffled_keys(own, random) for own in value] if isinstance(value, list) else value
