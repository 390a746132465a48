"""The free space of a guest's file systems."""

MIB = 1024 * 1024


def room(machine, directory):
    """Returns the bytes of a file system, all of them and those that are free."""
    said = machine.run("stat", "--file-system", "--format=%S %b %f", directory).split()
    unit, blocks, free = map(int, said)
    return unit * blocks, unit * free


def fill(machine, directory, left):
    """Fills a file system up to so many bytes."""
    machine.run_writable("fallocate", f"--length={room(machine, directory)[1] - left}", f"{directory}/lab-fill")


def empty(machine, directory):
    """Gives the space back."""
    machine.run_writable("sh", "-c", 'rm "$0"/lab-fill*', directory)


def kept_free(machine, directory):
    """Returns how much libostree keeps free: three percent, where nothing else is said."""
    return room(machine, directory)[0] * 3 // 100


def kept_from_users(machine, directory):
    """Returns how much is kept free of what is unpacked: what the file system keeps for root, where that is more."""
    blocks = machine.run("stat", "--file-system", "--format=%S %f %a", directory)
    size, free, available = map(int, blocks.split())
    return max(kept_free(machine, directory), (free - available) * size)
