"""``python -m testbed`` is the command `testbed`."""

from _collective_testbed_entry import main

main()
