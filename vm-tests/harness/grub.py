"""The boot loader of the disk: Debian's GRUB, written once and never again; it reads the boot entries at each boot.

Debian 12's GRUB has no `blscfg`. But an entry's lines are words that a function can be named after, so each entry is run as
a script that remembers what it says. The real `linux` and `initrd` are loaded only then: a command goes before a function.
"""

import shutil
from pathlib import Path

from .paths import HarnessError, run

MODULES = Path("/usr/lib/grub/i386-pc")
WITHIN = ("biosdisk", "part_msdos", "ext2", "normal", "configfile", "serial", "terminal", "echo", "test", "true", "regexp",
          "smbios", "loadenv", "halt")
# What is in front of the first partition, without the first sector.
GAP = 2047 * 512
# The harness says so in the machine's version (SMBIOS, type 1) when somebody chooses the last entry of the menu.
LAST = "last"

EARLY = "set root=(hd0,msdos1)\nset prefix=(hd0,msdos1)/grub\nconfigfile /grub/grub.cfg\n"
CONFIG = f"""serial --unit=0 --speed=115200
terminal_output serial
smbios --type 1 --get-string 6 --set asked

# As Fedora's 08_fallback_counting, whose `decrement` Debian's GRUB lacks.
load_env --file /grub/grubenv boot_counter boot_success
if [ "$boot_counter" -a "$boot_success" = 0 ]; then
  if [ "$boot_counter" = 0 -o "$boot_counter" = -1 ]; then set asked={LAST}; set boot_counter=-1
  elif [ "$boot_counter" = 1 ]; then set boot_counter=0
  elif [ "$boot_counter" = 2 ]; then set boot_counter=1
  elif [ "$boot_counter" = 3 ]; then set boot_counter=2
  fi
  save_env --file /grub/grubenv boot_counter
fi

function title {{ true; }}
function version {{ set number="$1"; }}
function options {{ set arguments="$*"; }}
function linux {{ set kernel="$1"; }}
function initrd {{ set ramdisk="$1"; }}

for file in /loader/entries/*.conf; do
  source "$file"
  set better=
  if [ -z "$chosen" ]; then set better=yes
  elif [ "$asked" = {LAST} ]; then if [ "$number" -lt "$chosen" ]; then set better=yes; fi
  elif [ "$number" -gt "$chosen" ]; then set better=yes
  fi
  if [ "$better" ]; then
    set chosen="$number"; set its_kernel="$kernel"; set its_ramdisk="$ramdisk"; set its_arguments="$arguments"
  fi
done

insmod linux
echo "boot entry $chosen"
linux "$its_kernel" $its_arguments
initrd "$its_ramdisk"
boot
echo "boot entry $chosen can't be booted"
halt
"""


def configure(boot: Path):
    """Puts the loader's files into /boot."""
    modules = boot / "grub/i386-pc"
    modules.mkdir(parents=True)
    for module in MODULES.glob("*.mod"):
        shutil.copy(module, modules)
    (boot / "grub/grub.cfg").write_text(CONFIG)
    # Always one block, of which GRUB writes no other.
    (boot / "grub/grubenv").write_text("# GRUB Environment Block\n".ljust(1024, "#"))


def write(image: Path):
    """Writes the loader itself, in front of the first partition."""
    early, core = image.with_name("early.cfg"), image.with_name("core.img")
    early.write_text(EARLY)
    run("grub-mkimage", "--directory", MODULES, "--format", "i386-pc", "--prefix", "(hd0,msdos1)/grub", "--config", early,
        "--output", core, *WITHIN)
    code = core.read_bytes()
    if len(code) > GAP:
        raise HarnessError(f"the boot loader has {len(code)} bytes, and only {GAP} are in front of the first partition")
    with open(image, "r+b") as disk:
        # The rest of the first sector is the partition table.
        disk.write((MODULES / "boot.img").read_bytes()[:440])
        disk.seek(512)
        disk.write(code)
    early.unlink()
    core.unlink()
