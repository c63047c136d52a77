"""Whatever a network file holds, it is read or refused in one line."""

from __future__ import annotations

import math
from importlib import resources
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import preset_names
from sim.errors import NetworkFileError
from sim.files.schema import KINDS
from sim.topology.description import parse_network

ROOT = Path(__file__).parents[3]
FILES = [(ROOT / "examples" / "cluster.toml").read_text()] + [
    resources.files("sim").joinpath("presets", f"{name}.toml").read_text() for name in preset_names()
]
FIELDS = sorted(
    {field.alias or name for model in KINDS.values() for name, field in model.model_fields.items()}
    | {"name", "from", "to", "via", "pairs", "duplex", "one_node", "generation", "count", "x"}
)
WORDS = st.sampled_from(
    [
        "",
        "100Gbps",
        "2us",
        "static",
        "ecmp",
        "rank",
        "switch",
        "a[0-3]",
        "a[3-0]",
        "a[0-999999999]",
        "all",
        "hopper",
    ]
)
SCALARS = st.one_of(
    WORDS,
    st.text(max_size=5),
    st.booleans(),
    st.integers(-2, 9),
    st.integers(),
    st.sampled_from([10**12, 10**30, 2**63, 1e308, math.inf, -math.inf, math.nan, 0.0]),
    st.floats(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FIELDS), inner, max_size=3),
    max_leaves=6,
)


def written(value):
    """Return *value* as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return (
            '"'
            + "".join(f"\\U{ord(letter):08X}" for letter in value if not 0xD800 <= ord(letter) < 0xE000)
            + '"'
        )
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {written(inner)}' for key, inner in value.items())}}}"
    return repr(value)


def is_read_or_refused(text):
    try:
        parse_network(text, "mine", "mine.toml")
    except NetworkFileError as error:
        message = str(error)
        assert message.startswith("mine.toml: ")
        assert "\n" not in message
        assert len(message) < 2500


@given(st.text(max_size=80) | st.text("[]{}=\"'#.\n ab1_-", max_size=40))
def test_of_any_text(text):
    is_read_or_refused(text)


@settings(max_examples=300)
@given(
    st.sampled_from(sorted(KINDS)),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8).map(
        lambda fields: {key: value for key, value in fields.items() if key not in ("schema", "kind")}
    ),
)
def test_of_any_fields(kind, fields):
    lines = [f"{key} = {written(value)}" for key, value in fields.items()]
    is_read_or_refused("\n".join(["schema = 1", f'kind = "{kind}"', *lines]))


@settings(max_examples=300)
@given(st.sampled_from(FILES), st.data())
def test_of_a_good_file_with_one_value_replaced(text, data):
    lines = text.splitlines()
    number = data.draw(
        st.sampled_from([at for at, line in enumerate(lines) if " = " in line and '"""' not in line])
    )
    key = lines[number].partition(" = ")[0]
    lines[number] = f"{key} = {written(data.draw(VALUES))}"
    is_read_or_refused("\n".join(lines))


@settings(max_examples=200)
@given(st.sampled_from(FILES), st.data())
def test_of_a_good_file_with_something_cut_out_or_put_in(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 40)))
    inserted = data.draw(st.text("[]{}=\"'#.\n ab1_-", max_size=5))
    is_read_or_refused(text[:start] + inserted + text[end:])


@pytest.mark.parametrize(
    "number",
    [
        "1e308",
        "1000000000000",
        "-1",
        "0",
        "nan",
        "inf",
        "true",
        '"8"',
        "0x" + "F" * 5000,
        "9" * 5000,
        "1_000_000_000",
    ],
)
@pytest.mark.parametrize(
    "field", ["num_ranks", "ranks_per_node", "nics_per_node", "k", "hosts_per_leaf", "num_spines", "shape"]
)
def test_of_any_number_where_a_count_belongs(field, number):
    values = {
        "num_ranks": "8", "ranks_per_node": "8", "nics_per_node": "8", "k": "4", "hosts_per_leaf": "2",
        "num_spines": "2", "shape": "2", field: number,
    }  # fmt: skip
    rates = 'bandwidth = "1GB/s"\nlatency = 0\n'
    nodes = "intra_bandwidth = 1\nintra_latency = 0\nnic_bandwidth = 1\nnic_latency = 0\n"
    bodies = {
        "nodes": nodes
        + "".join(f"{key} = {values[key]}\n" for key in ("num_ranks", "ranks_per_node", "nics_per_node")),
        "fat_tree": rates + f"k = {values['k']}\n",
        "leaf_spine": rates
        + "uplink_bandwidth = 1\n"
        + "".join(f"{key} = {values[key]}\n" for key in ("num_ranks", "hosts_per_leaf", "num_spines")),
        "torus": rates + f"shape = [{values['shape']}, {values['shape']}]\n",
    }
    for kind, body in bodies.items():
        is_read_or_refused(f'schema = 1\nkind = "{kind}"\n{body}')
