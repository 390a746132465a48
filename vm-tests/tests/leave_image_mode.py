"""Promise: a node leaves image mode with one reboot: the OS of the config boots, and all that the config wants is there, also what
only the image had brought: files, a directory of them, an enabled unit with its link.

Boots: 3
Minutes: 0.2; in a machine 3
"""

from harness.agent import config, no_action

KEPT, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
# No policy says anything of these: by itself a change of them takes a reboot.
PLAIN = "/etc/lab-plain.conf"
MANY = {f"/etc/lab-many/{number % 3}/{number}.conf": f"number = {number}\n" for number in range(30)}
UNIT, TEXT = "lab-app.service", "[Service]\nExecStart=/usr/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n"
PLACE = f"/etc/systemd/system/{UNIT}"
LINK = f"/etc/systemd/system/multi-user.target.wants/{UNIT}"
FIRST, SECOND, THIRD = "rendered-worker-a", "rendered-worker-b", "rendered-worker-c"


def target_config(name, kept, files, os_url):
    """Returns a config with a file of the host's own, others, and the unit."""
    made = config(name, {KEPT: kept, **files}, osImageURL=os_url)
    if files:
        made["spec"]["config"]["systemd"] = {"units": [{"name": UNIT, "enabled": True, "contents": TEXT}]}
    return made


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    base = registry.push(images.layout.path, "v1", images.first)
    brought = {BROUGHT: "from = image\n", PLAIN: "from = image\n", **MANY}
    first, second = target_config(FIRST, "version = 1\n", {}, base), target_config(SECOND, "version = 1\n", brought, base)
    layer = {path.lstrip("/"): text for path, text in {**brought, PLACE: TEXT, VERSION: "2\n"}.items()}
    digest = images.next("v2", layer, {"machineconfig": SECOND}, links={LINK.lstrip("/"): PLACE})
    image = registry.push(images.layout.path, "v2", digest)

    def existing():
        for path, text in ((KEPT, "version = 1\n"), *brought.items(), (PLACE, TEXT)):
            test.same(path, machine.read(path), text)
        test.same("the unit", machine.run("systemctl", "is-enabled", UNIT).strip(), "enabled")
        test.same("its state", machine.run("systemctl", "is-active", UNIT).strip(), "active")

    # Boots 1 and 2: into image mode. One file is the host's own, all others come with the image, and by nobody's hand.
    machine.boot()
    agent.settle(first, no_action(KEPT, BROUGHT), registry)
    agent.set_target(second, image)
    machine.next_boot()
    test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
    test.same("what brought it", machine.read(f"/usr{BROUGHT}"), "from = image\n")
    existing()

    # Boot 3: the same config without an image. libostree's merge knows what the image had brought as the image's own, which goes
    # with it: the shutdown brings it over.
    reboots = len(agent.logged("REBOOT"))
    agent.set_target(second)
    machine.next_boot()
    status = agent.wait_done(SECOND)
    test.same("booted image", status["booted"]["digest"], images.first)
    test.same(VERSION, machine.read(VERSION), "1\n")
    existing()
    test.same("reboots of leaving", len(agent.logged("REBOOT")) - reboots, 1)
    test.same("boots", machine.boots, 3)
    for path in (BROUGHT, PLAIN, *MANY):
        test.same(f"mode and owner of {path}", machine.run("stat", "--format=%a %u:%g", path).strip(), "644 0:0")
    # Nothing was missing in the new boot, so nothing was planned once more.
    test.same("faults in the journal", [line["MESSAGE"] for line in agent.logged("FAULT")], [])

    # The node is a usual one again: a file is a file.
    agent.set_target(target_config(THIRD, "version = 2\n", brought, base))
    agent.wait_done(THIRD)
    test.same(KEPT, machine.read(KEPT), "version = 2\n")
    test.same("boots in all", machine.boots, 3)
