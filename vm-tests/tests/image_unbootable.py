"""Promise: an image whose kernel finds no root can't boot; the boot loader goes back to the deployment before by itself,
where the agent says so, does not try for ever, and takes the next image.

Boots: 6, 3 of them in vain
Minutes: 3, in a machine
"""

from harness import faults
from harness.agent import config, no_action
from harness.host import REBOOT

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND, THIRD = (f"rendered-worker-{letter}" for letter in "abc")
NOT_IN = {"container": "it has no kernel and no boot loader of its own"}
# How often the agent has the boot loader try a new deployment.
TRIES = 3


def play(test):
    machine, agent, images, registry = test.machine, test.agent, test.images, test.registry()
    brought = {BROUGHT.lstrip("/"): "from = image\n"}

    def set_target(name, tag, files):
        digest = images.next(tag, files, {"machineconfig": name})
        image = registry.push(images.layout.path, tag, digest)
        agent.set_target(config(name, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)
        return image, digest

    # Boot 1: the image is pulled and staged as any other; what is wrong with it can't be seen.
    machine.boot()
    old, kernel = machine.deployment, machine.run("uname", "--kernel-release").strip()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    set_target(SECOND, "unbootable", {**brought, f"usr/lib/modules/{kernel}/initramfs.img": "no initramfs\n"})
    test.same("the end of boot 1", machine.end(), REBOOT)

    # Boots 2 to 4: in vain. Boot 5: the old deployment, and an end of it.
    for _ in range(TRIES):
        machine.boot_until_reset()
    machine.boot()
    test.same("the deployment after the tries", machine.deployment, old)
    status = agent.wait_status("the fault", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    test.same("what is told", (status["fault"] or {}).get("reason"), "BootFailed")
    faults.printed(test, "image_does_not_boot")
    test.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    test.same("a file of the image", machine.run("sh", "-c", f"ls {BROUGHT} 2>/dev/null || true"), "")

    # Boot 6: the corrected image.
    image, digest = set_target(THIRD, "bootable", brought)
    machine.next_boot()
    test.same("booted image", agent.wait_done(THIRD, image)["booted"]["digest"], digest)
    test.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    test.same("boots", machine.boots, 6)
