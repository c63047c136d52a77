"""Names of torch in sources: each form that a source can say one in is seen, and what it guards is not."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.studies import torch_names
from testbed.studies.torch_names import uses_of

FORMS = [  # how a source says a name of a module, and the line on which it does
    ("from {module} import {name}", 1),
    ("from {module} import {name} as own", 1),
    ("import {module} as known\nknown.{name}", 2),
    ("import {module} as known\ndef f():\n    return known.{name}.more", 3),
    ("from {package} import {last} as known\nREPLACED = [(known, '{name}', None)]", 2),
    ("import {module}\nput(ranks, {module}, '{name}', 1)", 2),
]
GUARDS = [
    "try:\n    from {module} import {name}\nexcept ImportError:\n    pass",
    "import {module} as known\nhasattr(known, '{name}')",
    "import {module} as known\ngetattr(known, '{name}', None)",
    "from contextlib import suppress\nwith suppress(ImportError):\n    from {module} import {name}",
]
NAMES = st.sampled_from(
    [
        ("torch.distributed.distributed_c10d", "_get_default_group", True),
        ("torch.distributed.distributed_c10d", "_get_newer_group", False),
        ("torch._higher_order_ops.flex_attention", "flex_attention", True),
        ("torch._higher_order_ops.flex_attention", "stiff_attention", False),
        ("torch.autograd", "Function", True),
        ("torch.autograd", "Fiction", False),
    ]
)


def written(form: str, module: str, name: str) -> str:
    package, _, last = module.rpartition(".")
    return form.format(module=module, name=name, package=package, last=last)


@given(st.sampled_from(FORMS), NAMES)
def test_a_name_is_seen_in_every_form_and_looked_up(form, known):
    (text, line), (module, name, is_there) = form, known

    used = {use.name: use for use in uses_of(f"{written(text, module, name)}\n", "some.py")}
    found = used[f"{module}.{name}"]

    assert (found.is_there, found.line, found.path) == (is_there, line, "some.py")
    assert all(use.is_there for use in used.values() if not use.name.startswith(found.name))


@given(st.sampled_from(GUARDS), NAMES)
def test_what_a_source_expects_to_lack_is_no_use(guard, known):
    module, name, _ = known

    assert f"{module}.{name}" not in {use.name for use in uses_of(written(guard, module, name), "some.py")}


def test_attributes_of_instances_are_not_followed():
    used = uses_of("import torch\ntorch.version.cuda.nothing\n", "some.py")

    assert "torch.version.cuda.nothing" in {use.name for use in used}
    assert all(use.is_there for use in used)


def test_this_torch_has_every_name_that_the_sources_use():
    used = torch_names.uses()

    assert [use for use in used if not use.is_there] == []
    assert sum(use.is_private for use in used) > 100


def lacking(*words: str) -> subprocess.CompletedProcess[str]:
    """Return what the command of these *words* did with a torch that lacks a class of FSDP2."""
    program = (
        "import torch.distributed.fsdp._fully_shard._fsdp_param_group as lacking\n"
        "del lacking.FSDPParamGroup\n"
        "from testbed.cli import app\n"
        f"app({list(words)})\n"
    )
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.costly
def test_a_torch_that_lacks_names_is_told_by_name_and_purpose():
    done = lacking("doctor", "--json")
    told = json.loads(done.stdout)
    missing = {row["path"]: row for row in told["rows"] if not row["is_there"]}
    needs = missing["collectives/virtual/diagnosis/calling_models.py"]

    assert done.returncode == 1
    assert "FSDPParamGroup" in needs["name"]
    assert needs["purpose"].startswith("Models for which torch makes calls")
    assert "lacks" in done.stderr


@pytest.mark.costly
def test_a_run_with_such_a_torch_ends_in_a_line_that_names_it(tmp_path):
    script = tmp_path / "train.py"
    script.write_text("import torch\n")

    done = lacking("run", "--ranks", "2", str(script))

    assert done.returncode == 1
    assert done.stderr.splitlines()[1:] == []
    assert "FSDPParamGroup; testbed doctor says" in done.stderr
