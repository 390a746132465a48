"""Promise: who chooses the deployment before in the boot menu is told what it lacks, and what the next boot takes; the agent
changes nothing and reboots nothing; the next boot is Done again.

Boots: 4
Minutes: 0.2; in a machine 2
"""

from harness.agent import config, no_action

PATH, BROUGHT, VERSION = "/etc/lab/settings.conf", "/etc/lab/app.conf", "/usr/share/lab/version"
FIRST, SECOND = "rendered-worker-a", "rendered-worker-b"


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    layer = {BROUGHT.lstrip("/"): "from = image\n", VERSION.lstrip("/"): "2\n"}
    digest = images.next("v2", layer, {"machineconfig": SECOND})
    image = registry.push(images.layout.path, "v2", digest)

    # Boots 1 and 2: from one image to the next.
    machine.boot()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    agent.set_target(config(SECOND, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)
    machine.next_boot()
    new = agent.wait_done(SECOND, image)["booted"]["deployment"]

    # Boot 3: the old one, by hand.
    machine.run("systemctl", "--no-block", "reboot")
    machine.next_boot(min)
    test.same(VERSION, machine.read(VERSION), "1\n")

    def matches(words):
        return all(word in words for word in (f'expected target osImageURL "{image}"', f"file {BROUGHT} is missing",
                                              f"the deployment {new}"))

    status = agent.wait_status("drift", lambda status: matches((status["fault"] or {}).get("message", "")))
    test.same("how it is", (status["state"], status["fault"]["reason"]), ("Degraded", "ConfigDrift"))
    test.same("the next boot", status["nextBoot"]["deployment"], new)
    agent.wait_log("the agent's word", lambda lines: matches(" ".join(line["MESSAGE"] for line in lines)), "DRIFT")

    # Boot 4: the new one, which is the default still.
    machine.run("systemctl", "--no-block", "reboot")
    machine.next_boot()
    test.same("booted image", agent.wait_done(SECOND, image)["booted"]["digest"], digest)
    test.same("reboots that the agent asked for", len(agent.logged("REBOOT")), 1)
    test.same("faults in the journal", agent.logged("FAULT"), [])
