"""Promise: an image whose kernel finds no root can't boot; the boot loader goes back to the deployment before by itself,
where the agent says so, does not try for ever, and takes the next image.

Boots: 6, 3 of them in vain
Minutes: 3, in a machine
"""

from lab.agent import config, no_action
from lab.host import REBOOT

PATH, BROUGHT = "/etc/lab/settings.conf", "/etc/lab/app.conf"
FIRST, SECOND, THIRD = (f"rendered-worker-{letter}" for letter in "abc")
NOT_IN = {"container": "it has no kernel and no boot loader of its own"}
# How often the agent has the boot loader try a new deployment.
TRIES = 3


def play(lab):
    machine, agent, images, registry = lab.machine, lab.agent, lab.images, lab.registry()
    brought = {BROUGHT.lstrip("/"): "from = image\n"}

    def want(name, tag, files):
        digest = images.next(tag, files, {"machineconfig": name})
        image = registry.push(images.layout.path, tag, digest)
        agent.want(config(name, {PATH: "version = 1\n", BROUGHT: "from = image\n"}), image)
        return image, digest

    # Boot 1: the image is pulled and staged as any other; what is wrong with it can't be seen.
    machine.boot()
    old, kernel = machine.deployment, machine.run("uname", "--kernel-release").strip()
    agent.settle(config(FIRST, {PATH: "version = 1\n"}), no_action(PATH), registry)
    want(SECOND, "unbootable", {**brought, f"usr/lib/modules/{kernel}/initramfs.img": "no initramfs\n"})
    lab.same("the end of boot 1", machine.end(), REBOOT)

    # Boots 2 to 4: in vain. Boot 5: the old deployment, and an end of it.
    for _ in range(TRIES):
        machine.boot_in_vain()
    machine.boot()
    lab.same("the deployment after the tries", machine.deployment, old)
    status = agent.status("the fault", lambda status: status["state"] == "Degraded" and status["phase"] == "Idle")
    lab.same("what is told", (status["fault"] or {}).get("reason"), "BootFailed")
    lab.same("reboots that were asked for", len(agent.logged("REBOOT")), 1)
    lab.same("a file of the image", machine.run("sh", "-c", f"ls {BROUGHT} 2>/dev/null || true"), "")

    # Boot 6: the corrected image.
    image, digest = want(THIRD, "bootable", brought)
    machine.next_boot()
    lab.same("booted image", agent.done(THIRD, image)["booted"]["digest"], digest)
    lab.same(BROUGHT, machine.read(BROUGHT), "from = image\n")
    lab.same("boots", machine.boots, 6)
