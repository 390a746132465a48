"""Promise: a node leaves image mode with one reboot: the OS of the config boots, and its files are all there, also one that only
the image had brought and that needs no reboot of its own.

Boots: 3
"""

from lab.agent import config, no_action

KEPT, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    base = registry.push(images.layout.path, "v1", images.first)
    os_url = {"osImageURL": base}
    first = config(FIRST, {KEPT: "version = 1\n"}, **os_url)
    second = config(SECOND, {KEPT: "version = 1\n", BROUGHT: "from = image\n"}, **os_url)
    layer = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", layer, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boots 1 and 2: into image mode. One file is the host's own, the other comes with the image, and by nobody's hand.
    machine.boot()
    agent.settle(first, no_action(KEPT, BROUGHT), registry)
    agent.want(second, image)
    machine.next_boot()
    lab.same("booted image", agent.done(SECOND, image)["booted"]["digest"], digest)
    lab.same("what brought it", machine.read(f"/usr{BROUGHT}"), "from = image\n")

    # Boot 3: the same config without an image. libostree's merge knows the file as the image's own, which goes with it: it is
    # written in the new boot.
    asked = len(agent.logged("REBOOT"))
    agent.want(second)
    machine.next_boot()
    status = agent.done(SECOND)
    lab.same("booted image", status["booted"]["digest"], images.first)
    lab.same(VERSION, machine.read(VERSION), "1\n")
    for path, text in ((KEPT, "version = 1\n"), (BROUGHT, "from = image\n")):
        lab.same(path, machine.read(path), text)
    lab.same("reboots of leaving", len(agent.logged("REBOOT")) - asked, 1)
    lab.same("boots", machine.boots, 3)
    mode = machine.run("stat", "--format=%a %u:%g", BROUGHT).strip()
    lab.same("its mode and owner", mode, "644 0:0")

    # The node is a usual one again: a file is a file.
    agent.want(config(THIRD, {KEPT: "version = 2\n", BROUGHT: "from = image\n"}, **os_url))
    agent.done(THIRD)
    lab.same(KEPT, machine.read(KEPT), "version = 2\n")
    # What the merge took away is told in the journal.
    others = [line["MESSAGE"] for line in agent.logged("FAULT") if line["MCA_FAULT"] != "NotAsPlanned"]
    lab.same("other faults in the journal", others, [])
    lab.same("boots in all", machine.boots, 3)
