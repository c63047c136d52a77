"""`testbed export`: the three formats."""

import json

from tests.commands import called, reported, rows_of

TUNER = """
allreduce,4096,67108863,tree,simple,-1,-1,8,-1,-1
allreduce,67108864,67108864,ring,simple,-1,-1,8,-1,-1
"""


def test_an_algorithm_goes_out_as_msccl_xml_and_comes_back_to_be_proved_drawn_and_timed(
    tmp_path,
):
    path = tmp_path / "ring.xml"

    written = called(f"export ring --ranks 4 --format msccl --output {path}").stdout

    (proved,), drawn = rows_of(f"verify {path} --ranks 4"), called(f"show {path} --ranks 4").stdout
    timed, ours = (
        rows_of(f"bench --transport sim --ranks 4 --algorithm {name} --nbytes 1M")[0]
        for name in (path, "ring")
    )
    assert written == f"Written to {path}.\n"
    assert proved["num_steps"] == 6
    assert "read from MSCCL XML for 4 ranks" in drawn
    assert timed["time_us"] > ours["time_us"]  # by the latency of the protocol that the file states


def test_without_a_file_it_goes_to_stdout():
    xml = called("export ring --ranks 2 --format msccl --protocol ll128").stdout
    plan = called("export ring --collective all_gather --ranks 2 --format mscclpp").stdout

    assert xml.startswith('<algo name="ring" proto="LL128"')
    assert json.loads(plan)["collective"] == "allgather"
    assert reported("export ring --ranks 2 --format msccl --protocol ll128")["text"] == xml


def test_a_table_of_times_goes_out_for_the_tuner_plugin(tmp_path):
    path = tmp_path / "bench.json"
    called(f"bench --algorithm ring,double_binary_tree,swing --nbytes 4K,64M --ranks 8 --output {path}")

    assert called(f"export {path} --format nccl-tuner").stdout.endswith(TUNER)
