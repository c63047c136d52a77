"""The pytest plugin: a fixture that makes clusters in virtual time for tests of distributed code.

It is loaded with every run of pytest where the package is installed, so it imports nothing but pytest;
torch and the simulator come with the first test that uses them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testbed.testing import VirtualCluster


@pytest.fixture
def virtual_cluster() -> type[VirtualCluster]:
    """Make clusters in virtual time: ``virtual_cluster(ranks=4, network="dgx-h100").run(fn)``."""
    from testbed.testing import VirtualCluster

    return VirtualCluster
