"""Every output of every command is told from its inputs; a new option with a path has to say which it is."""

from pathlib import Path

import pytest

import testbed
from testbed import cli
from testbed.errors import UsageError
from testbed.options.outputs import INPUTS, suffixes_of
from tests.commands import called

COMMANDS = {name: cli.imported(name) for name in cli.COMMANDS}
REQUIRED = {"compare": ["a.json"], "export": ["--format", "msccl"], "scale": ["--profile", "resnet50"]}


def takes_path(parameter):
    return "Path" in str(parameter.type_descriptor.annotation)


def outputs():
    for name, command in COMMANDS.items():
        for parameter in command.params:
            option = parameter.opts[0]
            if option.startswith("--") and takes_path(parameter) and suffixes_of(name, option):
                yield name, option


def given(command, path):
    """Return words that give *path* to *command* as an input; none where it reads nothing."""
    parameters = COMMANDS[command].params
    for parameter in parameters:
        if parameter.param_type_name == "argument":
            return [str(path)]
    names = [parameter.opts[0] for parameter in parameters]
    option = next((name for name in ("--network", "--profile", "--from") if name in names), None)
    return [] if option is None else [option, str(path)]


def refusal(command, option, path, given):
    return called(command, *REQUIRED.get(command, []), option, path, *given, code=2).stderr


def test_every_option_with_a_path_is_an_output_or_an_input():
    unknown = [
        f"{name} {parameter.opts[0]}"
        for name, command in COMMANDS.items()
        for parameter in command.params
        if parameter.opts[0].startswith("--")
        and takes_path(parameter)
        and suffixes_of(name, parameter.opts[0]) is None
        and parameter.opts[0] not in INPUTS
    ]

    assert not unknown
    assert len(list(outputs())) > 20


@pytest.mark.parametrize(("command", "option"), [own for own in outputs() if given(own[0], Path())])
def test_an_output_never_takes_the_place_of_an_input(command, option, tmp_path):
    suffixes = suffixes_of(command, option)
    source, link = tmp_path / f"source{suffixes[0]}", tmp_path / f"link{suffixes[0]}"
    source.write_text("mine")
    link.symlink_to(source)

    for output in (source, link):
        said = refusal(command, option, output, given(command, source))

        assert said == f"testbed: error: {option} {output}: this is an input, {source}; name another file\n"
    assert link.is_symlink()
    assert source.read_text() == "mine"


@pytest.mark.parametrize(("command", "option"), list(outputs()))
def test_an_output_of_another_kind_is_refused(command, option, tmp_path):
    source = tmp_path / "train.py"
    source.write_text("mine")

    said = refusal(command, option, source, given(command, tmp_path / "other"))

    assert said.startswith(f"testbed: error: {option} {source}: expected a name that ends in .")
    assert said.count("\n") == 1
    assert source.read_text() == "mine"


def test_two_outputs_are_two_files(tmp_path):
    plot, trace = tmp_path / "one.svg", tmp_path / "one.json"
    trace.symlink_to(plot)

    refused = called("simulate ring --trace", trace, "--plot", plot, code=2)

    assert "this is the output of another option" in refused.stderr


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("network", "this result has no figure"),
        ("network switch-100g --ranks 4999", "5000 ranks and switches are too many for a picture"),
        ("simulate nvls --network dgx-h100", "a closed form says nothing: nvls"),
        ("bench --ranks 2 --nbytes 1M", "one size is no curve"),
        ("scale --profile resnet50 --network switch-100g --ranks 2", "one number of ranks is no curve"),
    ],
)
def test_where_there_is_no_figure_the_result_is_there_all_the_same(line, said, tmp_path):
    done = called(line, "--plot", tmp_path / "drawn.png", code=2)

    assert done.stdout
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_other_words_for_an_option_are_known_from_python_too(tmp_path):
    result = testbed.show("ring", ranks=2, svg=tmp_path / "drawn.svg")

    assert result.files["Plot"].read_text().startswith("<svg")
    with pytest.raises(UsageError, match="plot is given already"):
        testbed.show("ring", svg=tmp_path / "a.svg", plot=tmp_path / "b.svg")
