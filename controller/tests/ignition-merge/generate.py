#!/usr/bin/env python3
"""Writes random pairs of Ignition configs, one pair a line: generate.py SEED COUNT."""

import json
import random
import sys

R = random.Random(int(sys.argv[1]))


def chance(part):
    return R.random() < part


def some(names):
    return R.sample(names, R.randint(0, len(names)))


def put(fields, name, value, part=0.5):
    """Puts a field into some of the objects. `value` is a function: it is drawn only where it is used."""
    if chance(part):
        fields[name] = value()


def resource():
    fields = {}
    put(fields, "source", lambda: R.choice(["data:,1", "data:,2", "http://x/y"]), 0.8)
    put(fields, "httpHeaders", headers, 0.3)
    return fields


def headers():
    return [{"name": name} | ({"value": R.choice(["1", "2", ""])} if chance(0.7) else {}) for name in some(["h", "i"])]


def node(path):
    fields = {"path": path}
    put(fields, "overwrite", lambda: chance(0.5), 0.3)
    put(fields, "user", lambda: R.choice([{}, {"name": "core"}, {"id": 5}]), 0.4)
    put(fields, "group", lambda: {"id": R.randint(0, 2)}, 0.3)
    return fields


def file(path):
    fields = node(path)
    put(fields, "mode", lambda: R.choice([420, 384]))
    put(fields, "append", lambda: [resource() for _ in range(R.randint(0, 2))], 0.4)
    # Without compression and digest: there the renderer is better on purpose (merge.rs).
    put(fields, "contents", lambda: R.choice([{}, {"source": "data:,1"}, {"source": "data:,2"}]), 0.6)
    return fields


def directory(path):
    fields = node(path)
    put(fields, "mode", lambda: 493)
    return fields


def link(path):
    fields = node(path)
    put(fields, "target", lambda: R.choice(["x", "y"]))
    put(fields, "hard", lambda: chance(0.5))
    return fields


def partition(number):
    name = {"number": number} if chance(0.5) else {"label": f"l{number}"}
    return name | ({"sizeMiB": R.randint(1, 3)} if chance(0.5) else {})


def storage():
    paths = some(["/a", "/b", "/c", "/d"])
    first, second = sorted([R.randint(0, len(paths)), R.randint(0, len(paths))])
    fields = {"files": [file(path) for path in paths[:first]],
              "directories": [directory(path) for path in paths[first:second]],
              "links": [link(path) for path in paths[second:]]}
    devices = ["/dev/a", "/dev/b"]
    put(fields, "disks", lambda: [{"device": device, "wipeTable": chance(0.5), "partitions": [partition(n) for n in some([1, 2, 3])]}
                                  for device in some(devices)], 0.3)
    put(fields, "raid", lambda: [{"name": name, "level": R.choice(["1", "5"]), "devices": some(devices), "options": some(["o", "p"])}
                                 for name in some(["r", "s"])], 0.3)
    put(fields, "filesystems", lambda: [{"device": device, "format": R.choice(["xfs", "ext4"]), "options": some(["o", "p"]),
                                         "mountOptions": some(["m", "n"])} for device in some(devices)], 0.3)
    put(fields, "luks", lambda: [{"name": name, "device": "/dev/a", "options": ["o"], "openOptions": some(["m", "n"]),
                                  "clevis": {"tpm2": True, "tang": [{"url": url, "thumbprint": R.choice("ab")} for url in some(["http://t", "http://u"])]}}
                                 for name in some(["r", "s"])], 0.3)
    return fields


def unit(name):
    fields = {"name": name}
    put(fields, "enabled", lambda: chance(0.5))
    put(fields, "mask", lambda: chance(0.5), 0.3)
    put(fields, "contents", lambda: R.choice(["", "[Unit]"]))
    put(fields, "dropins", lambda: [{"name": name} | ({"contents": R.choice("12")} if chance(0.7) else {}) for name in some(["1.conf", "2.conf"])])
    return fields


def user(name):
    fields = {"name": name}
    put(fields, "sshAuthorizedKeys", lambda: some(["k", "l", "m"]), 0.7)
    put(fields, "groups", lambda: some(["g", "h"]), 0.3)
    put(fields, "shell", lambda: R.choice(["", "/bin/sh"]), 0.3)
    return fields


def arguments():
    names = some(["a", "b", "c"])
    return {"shouldExist": names[:len(names) // 2], "shouldNotExist": names[len(names) // 2:]}


def ignition():
    fields = {"version": "3.5.0"}
    put(fields, "timeouts", lambda: {"httpTotal": R.randint(1, 3)}, 0.2)
    put(fields, "proxy", lambda: {"noProxy": some(["a", "b", "c"]), "httpProxy": R.choice(["http://p", "http://q"])}, 0.2)
    put(fields, "config", lambda: {"merge": [resource() for _ in range(R.randint(0, 2))]}, 0.2)
    put(fields, "security", lambda: {"tls": {"certificateAuthorities": [{"source": R.choice(["data:,1", "data:,2"])}]}}, 0.2)
    return fields


def config():
    fields = {"ignition": ignition(), "storage": storage()}
    put(fields, "systemd", lambda: {"units": [unit(name) for name in some(["a.service", "b.service", "c.service"])]}, 0.7)
    put(fields, "passwd", lambda: {"users": [user(name) for name in some(["core", "x"])],
                                   "groups": [{"name": name, "gid": R.randint(1, 3)} for name in some(["g", "h"])]}, 0.6)
    put(fields, "kernelArguments", arguments, 0.4)
    return fields


for _ in range(int(sys.argv[2])):
    print(json.dumps([config(), config()], separators=(",", ":")))
