"""Hosts that boot: a Debian libostree host as a disk image, started with its own systemd as PID 1."""
