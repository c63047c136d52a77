"""Bad input of every command: one line that says what is wrong, exit code 2, and nothing done."""

import json
import os
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from testbed.cli import app
from testbed.options.command import Outputs

ROOT = Path(__file__).parents[3]
NINES = "9" * 5000
"""What stands for a number beyond all bounds."""


def times(**changes):
    """Return what `testbed bench --output` writes, or nearly."""
    row = {"collective": "all_reduce", "algorithm": "ring", "size_bytes": 1024, "time_us": 9.5}
    return json.dumps({"transport": "sim", "ranks": 4, "rows": [row], **changes})


def network(bandwidth, kind="switch"):
    return f'schema = 1\nkind = "{kind}"\nnum_ranks = 4\n{bandwidth}\nlatency = "1us"\n'


OWN = """
from collectives import NotSupportedError, algorithm

def picky(rank, world_size):
    if world_size != 2:
        raise NotSupportedError(f"needs 2 ranks, got {world_size}; use ring")
    yield ()

@algorithm(collective="all_gather")
def gathers(rank, world_size):
    yield ()
"""
NETWORK_ASKED = "[[network]]\nname = 'dgx-h100'\n"
FILES = {
    "script.py": "",
    "own.py": OWN,
    "cluster.toml": (ROOT / "examples" / "cluster.toml").read_text(encoding="utf-8"),
    "ring.toml": network('bandwidth = "80Mbps"', "ring"),
    "bandwith.toml": network('bandwith = "1Gbps"'),
    "negative.toml": network('bandwidth = "-1Gbps"'),
    "empty.json": "{}",
    "list.json": "[]",
    "twice.json": '{"schema": 1, "schema": 1}',
    "words.json": "no JSON",
    "no_ranks.json": times(ranks="4"),
    "nameless.json": times(rows=[{"size_bytes": 1, "time_us": 1}]),
    "true.json": times(rows=[{"algorithm": "ring", "size_bytes": True}]),
    "nan.json": times(rows=[{"algorithm": "ring", "size_bytes": 1, "time_us": float("nan")}]),
    "open.json": "{",
    "bandwith.json": '{"bandwith": 1}',
    "object.json": '{"model": {}}',
    "jitter.json": '{"jitter": "1us"}',
    "two.json": '{"network": ["dgx-h100", "dgx-a100"]}',
    "nothing.toml": NETWORK_ASKED,
    "rnaks.toml": f"rnaks = [4]\n{NETWORK_ASKED}",
    "no_network.toml": "[[profile]]\nname = 'resnet50'\n",
    "three.toml": f"[[profile]]\nname = 3\n{NETWORK_ASKED}",
    "no_toml.toml": "schema = ",
    "swing.json": times(
        rows=[{"collective": "all_reduce", "algorithm": "swing", "size_bytes": 1, "time_us": 1}]
    ),
}
PIPE = "pipe"
"""What lies in the folder where commands are called: files, and a named pipe."""

TABLE = """
{bench;scale;tune;simulate ring;synthesize;plan --profile resnet50} --network switch-100gg | 'switch-100g'
{scale --network dgx-h100;tune --network dgx-h100} --device '' | unknown device ''
simulate ring --network '' | unknown network ''
{bench;scale;tune;plan --profile resnet50 --network dgx-h100 --ranks 8} --algorithm rong | did you mean 'ring'
{show;verify;simulate;export --ranks 4 --format msccl;fuzz} rong | rong … 'ring'
{scale;tune} --strategy wait_fre | wait_free
{scale;tune;plan --network dgx-h100 --ranks 8} --profile resnet5 | resnet50
{bench;calibrate;network dgx-h100;scale;tune;simulate ring} --plot a.doc | --plot a.doc: expected a name that
{bench --output;simulate ring --trace} no/a.json | there is no folder no
{bench;scale;tune;simulate ring;verify;compare list.json list.json} --html no/a.html | there is no folder no
{scale --plot;tune --plot;show ring --plot;bench --plot} no/a.svg | there is no folder no
export ring --ranks 4 --format msccl --output no/a.xml | there is no folder no
calibrate --output no/a.toml | no folder no
{run;tune;simulate ring;network switch-100g} --ranks NINES | '--ranks': Unable to parse
{scale;verify ring;fuzz ring;same script.py} --ranks NINES | --ranks 999 … expected a number, a list
{verify ring;scale;tune;simulate auto} --ranks 1048576 | --ranks … 131072
{bench;verify ring;run;show ring;fuzz ring;same script.py} --ranks 0 | --ranks
{verify;verify ring} --collective all_to_some | unknown collective 'all_to_some'; known: all_reduce
export no_ranks.json --format nccl-tuner | expected what testbed bench --output writes … ranks: input
compare {empty.json;list.json;twice.json;words.json} list.json | .json
{simulate ring --network;plan;compare list.json;run;validate --table} pipe | pipe: this is a named pipe; give
{scale --profile;scale --assumptions} pipe | pipe: this is a named pipe; give a file, or <(command)
{verify pipe:f;simulate auto:table=pipe} | pipe: this is a named pipe; give a file, or <(command)

bench --collective all_gather --algorithm tree | unknown algorithm 'tree' for all_gather
bench --algorithm ring,,tree | with a comma between them
bench --transport threads --algorithm auto | --algorithm auto chooses for --transport sim, or by a table
bench --ranks 3 --algorithm swing:shape=2x2,swing:shape=4x4 | nothing to measure: swing … ; swing
bench --algorithm own.py:gathers | gathers is an algorithm for all_gather: add --collective all_gather
bench --nbytes 3 | 3 B holds no element of float32
bench --collective scatter --ranks 8 --nbytes 31 | for each of 8 ranks; begin at 32 B
bench --compare | choose --transport threads, shm, gloo or nccl
bench --transport gloo --network switch-100g | add --compare
bench --transport threads --algorithm native | the vendor's own
bench --transport threads --ranks 1 --compare | at least 2 ranks
bench --ranks 2 --algorithm auto:table=list.json --output list.json | this is an input
bench --timeout 0 | --timeout 0
bench --timeout nan | --timeout nan: expected a finite number
bench --transport threads --payload | --payload is for --transport sim
bench --transport gloo --registered | --registered is for --transport shm
bench --transport threads --algorithm ring,tree --compare | one algorithm; 2 are named
bench --collective gossip | --collective gossip: expected one of all_reduce, reduce_scatter,
bench --transport gloo --ranks 2 --algorithm auto | bench --transport gloo --algorithm all --output FILE
bench --ranks 3 --payload --nbytes 100T | a copy of it on each of 3 ranks does not fit into

calibrate --ranks 1 | one rank sends nothing
calibrate --seconds 1 | --seconds 1: expected 5 at least
calibrate --seconds 1e400 --output o.toml | --seconds inf: expected a finite number
calibrate --select a* | --select is of a table
calibrate --device --seconds 30 | --seconds is of a network that is measured
calibrate --device --types int8 | --types: expected some of float64 … got int8
calibrate --device --from x.csv | name one

demo | demo moved: python examples/demo.py, in a checkout

export ring --format msccl | --format msccl is for one world size: add --ranks N
export tree --collective broadcast --ranks 4 --format msccl | no place for the root of a
export ring --ranks 4 --format mscclpp --protocol ll | plans are written for simple only
export ring --ranks 4 --format msccl --csv rows.csv | stdout is for what is exported
export none.json --format nccl-tuner | none.json: no such file; expected what testbed bench
export none.json --format nccl-tuner --ranks 4 | --ranks is for algorithms
export nameless.json --format nccl-tuner | rows 1, algorithm: this field is missing
export true.json --format nccl-tuner | rows 1, size_bytes: input should be a valid integer, got True
export nan.json --format nccl-tuner | not a JSON file: expected finite numbers, got NaN
export swing.json --format nccl-tuner | nothing that was timed is an algorithm of NCCL's

fuzz nothing.py | nothing.py: there is no such script
fuzz ring --faults rain | --faults rain: expected none, or some of delay, slow
fuzz ring --ranks 1 | --ranks 1: expected 2 to 1024
fuzz ring --algorithm tree | --algorithm is for scripts
fuzz ring --time-limit soon | --time-limit
fuzz ring -- --epochs 1 | programs take no arguments

network dgx-h10 | did you mean 'dgx-h100'?
network missing.toml | cannot read this network file
network cluster.toml --ranks 9 | has 8 ranks, not 9
network --ranks 9 | --ranks needs a network

plan nothing.toml | nothing is asked
plan rnaks.toml | rnaks: unknown field (did you mean 'ranks'
plan no_network.toml | network: this field is missing
plan three.toml | line 2: profile 1, name
plan no_toml.toml | not a TOML file
plan --profile resnet50 --network dgx-h100 --set nic=1 | no field of this network that can be set
plan --profile resnet50 --network dgx-h100 --set nic_bandwidth=fast | expected a bandwidth
plan --profile resnet50 --network dgx-h100 --set nics_per_node=3 | neither divides

profile missing.py | there is no such script

run missing.py | missing.py: there is no such script
run -m missing_module | there is no module 'missing_module'
run --network switch-100gg script.py | did you mean 'switch-100g'
run --algorithm rign script.py | did you mean 'ring'
{run --trace;profile --output} no/a.json script.py | there is no folder no
run --algorithm all_reduce=native script.py | give it by itself
run --algorithm native --network dgx-h100 --model links script.py | take transport_model='gloo'
run --straggler 9:2 script.py | 9
run --compute h101 script.py | h100
run --kill-rank 3 script.py | --kill-rank 3 … expected RANK@iteration=N or RANK@TIME
run --no-such-option script.py | No such option
run --processes 2 --network dgx-h100 script.py | --network means nothing
run --processes 2 --fold on script.py | --fold means nothing
run --algorithm all_redcue=ring script.py | no collective 'all_redcue'; expected
run / | /: is a folder
run --transport-model mpi script.py | 'mpi' is not one of
run | SCRIPT
run --ranks 4 --output 4 script.py | --output 4: expected all, none, or a rank from 0 to 3
run --orders all --compute h100 script.py | --compute means nothing
run --orders all --straggler 1:2 script.py | a straggler or jitter means nothing
run --processes 99999 train.py | '--processes': Input should be less than or equal to 1024

scale --bucket-cap-mb 0 | --bucket-cap-mb 0
scale --network bandwith.toml | bandwith.toml … bandwith
scale --network negative.toml | negative.toml … bandwidth
scale --profile empty.json | empty.json … name: this field is missing
scale --ranks 16 --model nccl --network switch-100g | the network says nothing of its hardware
scale --ranks 16 --network dgx-h100 --inefficiencies lateness | expected all or one of
scale --ranks 16 --network dgx-h100 --inefficiencies '' | expected terms with a comma between
scale --ranks 4 --network ethernet-25g --algorithm native --transport-model ideal | transport_model='gloo'
scale --assumptions list.json | expected a report
scale --assumptions open.json | not a JSON file
scale --assumptions bandwith.json | no assumption 'bandwith'
scale --assumptions object.json | model: expected a value
scale --assumptions jitter.json | jitter = '1us' is nothing that scale assumes
simulate ring --assumptions two.json | expects one, got 2
scale --ranks 2 --bucket-cap-mb 1e308 | bucket_cap_mb must be a positive number of MiB

show tree:root=8 --collective broadcast | tree:root=8, 8 ranks: the root is a rank from 0 to 7
show own.py:picky --ranks 3 | needs 2 ranks, got 3; use ring
simulate hierarchical:nodes=3 | nodes
simulate ring --nbytes 1M,banana | --nbytes: cannot read 'banana'
simulate ring --nbytes 1M-1K | --nbytes 1M-1K: a range goes from
simulate ring --placement near | --placement near: expected packed
simulate ring --placement 3-1 | --placement 3-1: expected places
simulate ring --placement 0,1,99 | placement of rank 2: switch-100g has places 0 to 63, got 99
simulate ring --placement 1,1 | ranks 0 and 1 are both at place 1
simulate ring --overhead 1parsec | overhead: cannot read '1parsec'
simulate ring --jitter -1us | jitter: '-1us' is negative
simulate ring --straggler 3: | --straggler 3:: expected RANK:FACTOR
simulate ring --straggler 3:0.5 | factor: expected a number of at least 1
simulate ring --straggler 3:+soon | delay of a straggler: cannot read 'soon'
simulate ring --fail-link 'rank 3 up' | --fail-link rank 3 up: expected LINK@TIME
simulate ring --fail-link 'rank 3@1ms' | did you mean 'rank 3 up'?
simulate ring --degrade-link 'rank 3 up@1ms' | expected LINK@TIME:FACTOR, such as 'rank 3 up@1ms:0.5'
simulate ring --degrade-link 'rank 3 up@1ms:half' | factor: expected a number above 0, got 'half'
simulate ring --reroute | add --fail-link LINK@TIME
simulate ring --engine makespan --fail-link 0@1ms | only events follow it
simulate ring --model nccl --straggler 3:2 | knows no conditions
simulate ring --model nccl | add a [hardware] table
simulate swing --model nccl | model="nccl" knows of no algorithm swing
simulate nvls | switch-100g
simulate swing --network cluster.toml --engine makespan | --engine makespan:
simulate ring --network cluster.toml --engine makespan --trace x.json | engine='events' and 'ranks' alone
simulate ring --ranks 256 --trace x.json | too many messages to record: ring on 256 ranks
simulate ring tree --trace x.json | --trace is of one run, but 2 are asked for
simulate ring --nbytes 1M --nbytes 2M | --nbytes is given 2 times
simulate native --network ethernet-25g --ranks 8 --ideal | --transport-model gloo … --model nccl … measured
simulate ring --ranks 4 --nbytes 1,NINES | --nbytes 1,999 … expected at most 4000 characters
simulate ring --ranks 4 --nbytes 1e999 | --nbytes: '1e999' is too large
simulate ring --ranks 4 --nbytes 2048T | --nbytes: expected at most 1024 TiB
simulate ring --ranks 4 --nbytes 1-4K --factor 1 | --factor must be at least 2
simulate bucket:shape=NINES --ranks 4 | a value has at most 200 characters, got 5000

tune --ranks 1 | at least 2
tune --algorithm native --ideal | take transport_model='gloo'; or, for what NCCL takes, model='nccl'

validate --device h10 | unknown device
validate --device h100 --table x.csv --network dgx-h100 | name one
validate | name --table FILE and --network … python -m benchmarks.lab.truth, in a checkout
validate --shaped ring.toml --output out | validate --shaped moved: python -m benchmarks.lab.shaped, in
claims C5 --json | claims moved: python -m benchmarks.lab.claims, in a checkout
validate --network dgx-h100 | go together

verify missing.py:ring | missing.py: no such file
verify ring --ranks 8-2 | the smaller first
verify direct --ranks 4096 | direct, 4096 ranks: a proof goes through about … give --budget
verify ring --ranks 2-131072 --budget 10 | 131071 world sizes; at most 2048 are proved at once
verify ring --ranks 2 --budget 1 | nothing was proved: every proof is over --budget 1
verify own.py:picky --ranks 3 | nothing was proved: needs 2 ranks, got 3; use ring
"""
"""A command, or in braces several that take the same, and the phrases of the error, with … between them."""


def each(command):
    """Return the commands that a row stands for."""
    before, _, rest = command.partition("{")
    inside, _, after = rest.partition("}")
    return [f"{before}{one}{after}" for one in inside.split(";")]


ROWS = [
    (command, said)
    for row, _, said in (line.partition(" | ") for line in TABLE.splitlines() if line)
    for command in each(row)
]


def worked(*_):
    raise AssertionError("the work was done, and its result is to be given")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder where commands are called, in which none leaves anything."""
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_text(content, encoding="utf-8")
    os.mkfifo(folder / PIPE)
    return folder


@pytest.mark.parametrize(("command", "said"), ROWS, ids=[command for command, _ in ROWS])
def test_bad_input_is_one_line_and_exit_code_2(command, said, folder, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(Outputs, "give", worked)
    words = [word.replace("NINES", NINES) for word in shlex.split(command)]

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert all(phrase in result.stderr for phrase in said.split(" … ")), result.stderr
    assert len(result.stderr) < 1000
    is_by_typer = result.stderr.startswith("Usage: ")
    assert is_by_typer or result.stderr.startswith("testbed: error: ")
    assert is_by_typer or result.stderr.count("\n") == 1
    assert {path.name for path in folder.iterdir()} == {*FILES, PIPE}
