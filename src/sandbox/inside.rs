//! The sandbox's processes: the verb `sandbox-machine` of the worker's executable.
//!
//! `run` takes namespaces and starts `init` in them, which is process 1 inside: it mounts the machine, makes it the
//! root and runs the program. Invariant: when either of them ends, everything inside ends.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use rustix::process::{Pid, Signal, chdir, kill_process, pivot_root, set_parent_process_death_signal};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::machine::{Sysroot, stateroot_of};
use super::{AGENT, CONTROL, IMAGES, MACHINE_VERB, STATEROOT, SandboxError, WORKER, host, namespaces};
use crate::host::mounts;

/// Runs the verb; the arguments are those after it.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.collect();
    let text: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let done = match text.as_slice() {
        ["probe"] => probe().map(|()| ExitCode::SUCCESS),
        ["map", pid] => return namespaces::map(pid),
        ["create", dir, labels @ ..] => {
            let labels = labels.iter().filter_map(|label| label.split_once('='));
            let labels: BTreeMap<_, _> = labels.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
            host::build(Path::new(dir), labels).map(|()| ExitCode::SUCCESS)
        }
        ["run", ..] => enter(args.iter().skip(1)),
        ["init", dir, boot, sysroot, program, ..] => {
            let machine = Machine { dir: Path::new(dir), boot: Path::new(dir).join("run").join(boot) };
            machine
                .mount(*sysroot == Sysroot::Finalizing.as_str())
                .and_then(|()| run(program, args.iter().skip(5)))
        }
        _ => Err(SandboxError::Child {
            what: MACHINE_VERB,
            cause: "the arguments are not understood".to_owned(),
        }),
    };
    done.unwrap_or_else(|error| {
        // The starter puts the same words around a refusal.
        let text = if let SandboxError::NoNamespaces { cause } = error { cause } else { error.to_string() };
        // The starter reads it; without a reader it is lost.
        writeln!(std::io::stderr(), "{text}").unwrap_or_default();
        ExitCode::from(125)
    })
}

/// Tries the needs of a machine: namespaces, and mounts in them.
fn probe() -> Result<(), SandboxError> {
    namespaces::enter(namespaces::Scope::Mounts)?;
    mount("tmpfs", "/mnt", "tmpfs", MountFlags::empty(), None)
        .map_err(|e| namespaces::refused("mounting a tmpfs in them", e))
}

fn enter<'a>(args: impl Iterator<Item = &'a OsString>) -> Result<ExitCode, SandboxError> {
    bind_to_parent()?;
    namespaces::enter(namespaces::Scope::MountsAndProcesses)?;
    let mut command = Command::new("/proc/self/exe");
    command.args([MACHINE_VERB, "init"]).args(args);
    supervise(&mut command, "/proc/self/exe")
}

fn bind_to_parent() -> Result<(), SandboxError> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| SandboxError::Child { what: "binding to the parent process", cause: e.to_string() })
}

fn run<'a>(program: &str, args: impl Iterator<Item = &'a OsString>) -> Result<ExitCode, SandboxError> {
    let mut command = Command::new(program);
    command
        .args(args)
        .env("PATH", "/usr/bin")
        .env("HOME", "/root")
        .env_remove("TMPDIR")
        .env_remove("XDG_RUNTIME_DIR");
    supervise(&mut command, program)
}

/// Runs a child to its end, passing SIGTERM and SIGHUP on. A terminal sends SIGINT to all by itself.
///
/// There is no thread for signals: a process whose children live in another PID namespace can't make threads.
fn supervise(command: &mut Command, name: &str) -> Result<ExitCode, SandboxError> {
    let mut signals = Signals::new([SIGCHLD, SIGTERM, SIGINT, SIGHUP])
        .map_err(|e| SandboxError::io("wait for signals in", name, e))?;
    let mut child = command.spawn().map_err(|e| SandboxError::io("start", name, e))?;
    for signal in signals.forever() {
        match signal {
            SIGTERM => pass(&child, Signal::TERM),
            SIGHUP => pass(&child, Signal::HUP),
            _ => {
                if let Some(status) = child.try_wait().map_err(|e| SandboxError::io("wait for", name, e))? {
                    return Ok(code(status));
                }
            }
        }
    }
    Err(SandboxError::Child { what: "waiting for signals", cause: "there are no more".to_owned() })
}

fn pass(child: &Child, signal: Signal) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // It may have ended meanwhile.
        kill_process(pid, signal).unwrap_or_default();
    }
}

fn code(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(125);
    ExitCode::from(u8::try_from(code).unwrap_or(125))
}

/// The machine of one boot, from inside its namespaces.
struct Machine<'a> {
    dir: &'a Path,
    boot: PathBuf,
}

impl Machine<'_> {
    /// Makes the mounts of an ostree host and makes the deployment the root.
    fn mount(&self, finalizing: bool) -> Result<(), SandboxError> {
        bind_to_parent()?;
        let sysroot = self.dir.join("sysroot");
        let deployment = self.read("deployment")?;
        let root = sysroot.join(&deployment);
        named("show", &root, mount_bind(&root, &root))?;
        let usr = root.join("usr");
        named("show", &usr, mounts::bind_read_only(&usr, &usr))?;
        let var =
            sysroot.join("ostree/deploy").join(stateroot_of(&deployment).unwrap_or(STATEROOT)).join("var");
        self.boxes(&root, &sysroot, var, finalizing)?;
        devices(&root)?;
        self.kernel(&root)?;
        named("enter", &root, chdir(&root))?;
        named("make a root of", &root, pivot_root(".", "."))?;
        named("hide the old root of", &root, unmount(".", UnmountFlags::DETACH))?;
        named("enter", Path::new("/"), chdir("/"))
    }

    fn read(&self, name: &str) -> Result<String, SandboxError> {
        let path = self.boot.join(name);
        fs::read_to_string(&path).map_err(|e| SandboxError::io("read", path, e))
    }

    /// The directories of the sandbox: sysroot, boot, var, run and the mounts in it.
    fn boxes(&self, root: &Path, sysroot: &Path, var: PathBuf, finalizing: bool) -> Result<(), SandboxError> {
        // Not `/proc/self/exe`: in a chroot it names a path from outside.
        let (agent, worker) = (PathBuf::from(self.read("agent")?), PathBuf::from(self.read("worker")?));
        let writable = [(var, "/var"), (self.boot.join("run"), "/run"), (self.dir.join("control"), CONTROL)];
        for (from, to) in &writable {
            let to = below(root, to);
            named("show", &to, mount_bind(from, &to))?;
        }
        let guarded = [(sysroot.to_owned(), "/sysroot"), (sysroot.join("boot"), "/boot")];
        for (from, to) in &guarded {
            let to = below(root, to);
            named("show", &to, mount_bind(from, &to))?;
            if !finalizing {
                named("protect", &to, mounts::make_read_only(&to))?;
            }
        }
        let foreign = [
            (PathBuf::from("/usr"), "/run/host/usr"),
            (agent, AGENT),
            (worker, WORKER),
            (self.dir.join("images"), IMAGES),
        ];
        for (from, to) in &foreign {
            let to = below(root, to);
            named("show", &to, mounts::bind_read_only(from, &to))?;
        }
        Ok(())
    }

    /// `/proc`, with the command line and the boot id of this boot.
    fn kernel(&self, root: &Path) -> Result<(), SandboxError> {
        let proc = root.join("proc");
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        named("mount", &proc, mount("proc", &proc, "proc", flags, None))?;
        for (file, at) in [("cmdline", "cmdline"), ("boot_id", "sys/kernel/random/boot_id")] {
            let at = proc.join(at);
            named("show", &at, mount_bind(self.boot.join(file), &at))?;
        }
        Ok(())
    }
}

/// `/dev` with the devices that every program may use, from the machine around.
fn devices(root: &Path) -> Result<(), SandboxError> {
    let dev = root.join("dev");
    for (at, mode) in [(&dev, c"mode=0755"), (&root.join("tmp"), c"mode=1777")] {
        named("mount", at, mount("tmpfs", at, "tmpfs", MountFlags::NOSUID, Some(mode)))?;
    }
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let at = dev.join(name);
        fs::write(&at, "").map_err(|e| SandboxError::io("write", &at, e))?;
        named("show", &at, mount_bind(Path::new("/dev").join(name), &at))?;
    }
    for (name, target) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")]
    {
        let at = dev.join(name);
        std::os::unix::fs::symlink(target, &at).map_err(|e| SandboxError::io("write", at, e))?;
    }
    Ok(())
}

fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

fn named(action: &'static str, path: &Path, done: rustix::io::Result<()>) -> Result<(), SandboxError> {
    done.map_err(|e| SandboxError::io(action, path, e))
}
