"""Names that packages load when they are asked for, and those that they do not have."""

from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["collectives", "sim", "ddp", "testbed"])
def test_every_name_of_a_package_is_there_and_another_is_refused(package):
    module = import_module(package)

    assert all(getattr(module, name) is not None for name in module.__all__)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'neither_this'"):
        _ = module.neither_this
