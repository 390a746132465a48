//! The OS of version 1: a tree of a few kilobytes that boots in the sandbox.
//!
//! It has the files that the agent and libostree read, and no program: `/usr/bin/skopeo` and the like are links to the
//! machine around, which is seen read-only at `/run/host/usr`. The kernel and the initramfs are dummies.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use super::SandboxError;

/// The kernel's version; it is never run.
const KERNEL: &str = "6.0.0-sandbox";

/// Directories of the root, with their modes.
const DIRECTORIES: [(&str, u32); 22] = [
    ("boot", 0o755),
    ("dev", 0o755),
    ("proc", 0o755),
    ("run", 0o755),
    ("sys", 0o755),
    ("sysroot", 0o755),
    ("tmp", 0o1777),
    ("var", 0o755),
    ("usr", 0o755),
    ("usr/bin", 0o755),
    ("usr/etc", 0o755),
    ("usr/etc/containers", 0o755),
    ("usr/etc/ssh", 0o755),
    ("usr/etc/systemd", 0o755),
    ("usr/etc/systemd/system", 0o755),
    ("usr/lib", 0o755),
    ("usr/lib/modules", 0o755),
    ("usr/lib/ostree", 0o755),
    ("usr/lib/systemd", 0o755),
    ("usr/lib/systemd/system", 0o755),
    ("usr/lib/systemd/system-preset", 0o755),
    ("usr/lib/tmpfiles.d", 0o755),
];

/// Links, with their targets.
const LINKS: [(&str, &str); 14] = [
    ("bin", "usr/bin"),
    ("sbin", "usr/bin"),
    ("lib", "usr/lib"),
    ("lib64", "usr/lib64"),
    ("home", "var/home"),
    ("root", "var/roothome"),
    ("opt", "var/opt"),
    ("srv", "var/srv"),
    ("mnt", "var/mnt"),
    ("ostree", "sysroot/ostree"),
    ("usr/local", "../var/usrlocal"),
    ("usr/sbin", "bin"),
    ("usr/lib64", "/run/host/usr/lib64"),
    ("usr/bin/machine-config-agent", super::AGENT),
];

/// Programs that the agent or a person may start inside.
const PROGRAMS: [&str; 18] = [
    "sh",
    "bash",
    "cat",
    "cp",
    "env",
    "false",
    "find",
    "grep",
    "id",
    "ls",
    "mkdir",
    "mv",
    "ostree",
    "rm",
    "setpriv",
    "sha256sum",
    "skopeo",
    "true",
];

/// Files, with their modes. A masked shadow entry stands for a password that was never set.
const FILES: [(&str, u32, &str); 17] = [
    (
        "usr/lib/os-release",
        0o644,
        "NAME=Sandbox\nID=sandbox\nVERSION_ID=1\nPRETTY_NAME=\"Sandbox 1 (libostree)\"\n",
    ),
    ("usr/lib/ostree/prepare-root.conf", 0o644, "[sysroot]\nreadonly=true\n"),
    ("usr/etc/group", 0o644, "root:x:0:\nwheel:x:10:core\n"),
    ("usr/etc/shadow", 0o600, "root:!locked::0:99999:7:::\ncore:!::0:99999:7:::\n"),
    ("usr/etc/containers/policy.json", 0o644, "{\"default\": [{\"type\": \"insecureAcceptAnything\"}]}\n"),
    ("usr/etc/hostname", 0o644, "sandbox\n"),
    ("usr/etc/motd", 0o644, "Welcome to the sandbox, version 1.\n"),
    ("usr/etc/ssh/sshd_config", 0o600, "PermitRootLogin no\n"),
    // Presence only: on a host it is made at the first boot.
    ("usr/etc/machine-id", 0o444, "5a4db0c5a4db0c5a4db0c5a4db0c5a4d\n"),
    (
        "usr/bin/systemctl",
        0o755,
        "#!/bin/sh\n# No service manager runs in the sandbox; libostree asks it to watch the shutdown.\nexit 0\n",
    ),
    ("usr/lib/tmpfiles.d/sandbox.conf", 0o644, "d /var/home/core 0700 core core -\n"),
    (
        "usr/lib/systemd/system/sshd.service",
        0o644,
        "[Unit]\nDescription=OpenSSH server\n[Service]\nExecStart=/usr/sbin/sshd -D\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "usr/lib/systemd/system/chronyd.service",
        0o644,
        "[Unit]\nDescription=NTP client\n[Service]\nExecStart=/usr/sbin/chronyd -d\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "usr/lib/systemd/system/crio.service",
        0o644,
        "[Unit]\nDescription=Container runtime\n[Service]\nExecStart=/usr/bin/crio\nExecReload=/bin/kill -HUP $MAINPID\n[Install]\nWantedBy=multi-user.target\n",
    ),
    (
        "usr/lib/systemd/system/kubelet.service",
        0o644,
        "[Unit]\nDescription=Kubernetes node agent\n[Service]\nExecStart=/usr/bin/kubelet\n[Install]\nWantedBy=multi-user.target\n",
    ),
    ("usr/lib/systemd/system/multi-user.target", 0o644, "[Unit]\nDescription=Multi-User System\n"),
    (
        "usr/lib/systemd/system-preset/90-default.preset",
        0o644,
        "enable sshd.service\nenable chronyd.service\ndisable *\n",
    ),
];

/// Writes the tree. `core` has the given user id (in a user namespace of one id there is only 0).
pub(super) fn write(root: &Path, core: u32) -> Result<(), SandboxError> {
    let failed = |path: &str| {
        let path = root.join(path);
        move |e| SandboxError::io("write", path, e)
    };
    fs::create_dir_all(root).map_err(failed(""))?;
    mode(root, 0o755)?;
    for (path, bits) in DIRECTORIES {
        fs::create_dir(root.join(path)).map_err(failed(path))?;
        mode(&root.join(path), bits)?;
    }
    for (path, target) in LINKS {
        symlink(target, root.join(path)).map_err(failed(path))?;
    }
    for program in PROGRAMS {
        symlink(format!("/run/host/usr/bin/{program}"), root.join("usr/bin").join(program))
            .map_err(failed(program))?;
    }
    for (path, bits, text) in FILES {
        file(root, path, bits, text)?;
    }
    let passwd = format!(
        "root:x:0:0:root:/root:/bin/bash\ncore:x:{core}:{core}:CoreOS Admin:/var/home/core:/bin/bash\n"
    );
    file(root, "usr/etc/passwd", 0o644, &passwd)?;
    if core != 0 {
        file(root, "usr/etc/group", 0o644, &format!("root:x:0:\nwheel:x:10:core\ncore:x:{core}:\n"))?;
    }
    let modules = format!("usr/lib/modules/{KERNEL}");
    fs::create_dir(root.join(&modules)).map_err(failed(&modules))?;
    mode(&root.join(&modules), 0o755)?;
    file(
        root,
        &format!("{modules}/vmlinuz"),
        0o644,
        "not a kernel: the sandbox runs on the one of this machine\n",
    )?;
    file(root, &format!("{modules}/initramfs.img"), 0o644, "not an initramfs\n")?;
    libraries(root)
}

/// Links the libraries of the machine around: Debian's multiarch directories, the dynamic loader and the locales. Fedora's libraries
/// are all in `/usr/lib64`.
fn libraries(root: &Path) -> Result<(), SandboxError> {
    let entries = fs::read_dir("/usr/lib").map_err(|e| SandboxError::io("list", "/usr/lib", e))?;
    for entry in entries.filter_map(Result::ok) {
        let name = entry.file_name();
        let Some(text) = name.to_str() else { continue };
        if text.ends_with("-linux-gnu") || text.starts_with("ld-linux") || text == "locale" {
            let link = root.join("usr/lib").join(&name);
            symlink(format!("/run/host/usr/lib/{text}"), &link)
                .map_err(|e| SandboxError::io("write", link, e))?;
        }
    }
    Ok(())
}

/// Makes the files of `systemd-tmpfiles` at the first boot, in the stateroot's `/var`.
pub(super) fn first_boot(var: &Path, core: u32) -> Result<(), SandboxError> {
    for (path, bits) in [
        ("home", 0o755),
        ("home/core", 0o700),
        ("roothome", 0o700),
        ("lib", 0o755),
        ("log", 0o755),
        ("mnt", 0o755),
        ("opt", 0o755),
        ("srv", 0o755),
        ("tmp", 0o1777),
        ("usrlocal", 0o755),
    ] {
        let path = var.join(path);
        fs::create_dir_all(&path).map_err(|e| SandboxError::io("make", &path, e))?;
        mode(&path, bits)?;
    }
    let home = var.join("home/core");
    std::os::unix::fs::chown(&home, Some(core), Some(core)).map_err(|e| SandboxError::io("own", &home, e))
}

fn file(root: &Path, path: &str, bits: u32, text: &str) -> Result<(), SandboxError> {
    let path = root.join(path);
    fs::write(&path, text).map_err(|e| SandboxError::io("write", &path, e))?;
    mode(&path, bits)
}

/// Sets a mode under any umask.
fn mode(path: &Path, bits: u32) -> Result<(), SandboxError> {
    fs::set_permissions(path, Permissions::from_mode(bits))
        .map_err(|e| SandboxError::io("set the mode of", path, e))
}
