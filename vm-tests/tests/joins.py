"""Promise: a new host joins by itself with one reboot, its kubelet never on the old OS, and no one-shot service twice in a boot,
whatever image was installed, however the agent comes, and whatever is in the way of its first contact: that is named, and
once it is mended nobody does anything more. (Six cells of the matrix, with each value once; `vm-tests/joins` plays it all.)

Boots: 13
Minutes: 2.5
"""

from harness import joins_cell
from harness.joins_contacts import LateServer
from harness.paths import HarnessError

NOT_IN = {"machine": "its hosts are provisioned while they are off, and a machine begins frozen",
          "sid": "its disks are of Debian 12"}


def play(test):
    # The whole matrix waits longer.
    LateServer.seconds = 8
    for name in joins_cell.COVERING:
        if wrong := joins_cell.play_tidily(name, test.images):
            raise HarnessError(f"{name}: {wrong}; kept: {joins_cell.case(name)}")
