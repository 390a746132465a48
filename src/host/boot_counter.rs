//! The boot loader's counter: its tries of a new deployment before it boots the previous one.
//!
//! It covers the boots in which the agent never starts. GRUB has it if `grub.cfg` reads `boot_counter` (Fedora's
//! `08_fallback_counting`, as greenboot uses it): while `boot_success` is 0 each boot takes one off `boot_counter`, and
//! at 0 GRUB boots the second entry of its menu and leaves -1. Both are in the environment block beside `grub.cfg`.
//!
//! # Decisions
//! 1. The block is overwritten in place: GRUB writes it back by its place on the disk, so it may not move.
//! 2. Where `/boot` is mounted read-only, a thread in a mount namespace of its own writes.
//! 3. Other variables and GRUB's own lines are kept as they are.
//! 4. A counter of another program (greenboot) is left alone: a variable of our own marks the one that the agent began.

use std::path::Path;

use super::root::Root;
use super::{HostError, mounts};
use crate::model::observation::BootCount;

/// Directories of GRUB's files: Fedora and Red Hat, Debian.
const GRUB_DIRECTORIES: [&str; 2] = ["/boot/grub2", "/boot/grub"];
const BLOCK: &str = "grubenv";
const CONFIG: &str = "grub.cfg";
/// The size that GRUB demands (grub-editenv(1)).
const SIZE: usize = 1024;
const HEADER: &str = "# GRUB Environment Block\n";
const COUNTER: &str = "boot_counter";
const SUCCESS: &str = "boot_success";
/// The variable by which the agent marks its own count.
const OURS: &str = "machine_config_agent";
/// So often a new deployment is tried, as greenboot does: a boot that the power cut ended is no failure of its own.
const TRIES: u32 = 3;

/// The counter of one boot loader.
#[derive(Debug, Clone, Copy)]
pub struct BootCounter<'a> {
    root: &'a Root,
    directory: &'static str,
}

impl<'a> BootCounter<'a> {
    /// Looks for a boot loader that counts.
    pub fn find(root: &'a Root) -> Result<Option<Self>, HostError> {
        for directory in GRUB_DIRECTORIES {
            let config = root.read_text(&format!("{directory}/{CONFIG}"))?;
            let counter = Self { root, directory };
            if config.is_some_and(|text| text.contains(COUNTER)) && root.exists(&counter.block_path())? {
                return Ok(Some(counter));
            }
        }
        Ok(None)
    }

    /// Returns the boot count of a host. A block with the agent's own variable is enough: each pass reads it.
    pub fn observe(root: &Root) -> Result<BootCount, HostError> {
        for directory in GRUB_DIRECTORIES {
            let count = BootCounter { root, directory }.count()?;
            if count != BootCount::Off {
                return Ok(count);
            }
        }
        Ok(BootCount::Off)
    }

    /// Returns the counter's value.
    pub fn count(&self) -> Result<BootCount, HostError> {
        let Some(block) = self.root.read_text(&self.block_path())? else { return Ok(BootCount::Off) };
        let value = |name: &str| lines(&block).find_map(|line| value_of(line, name));
        if value(OURS) != Some("1") || value(SUCCESS) != Some("0") {
            return Ok(BootCount::Off);
        }
        Ok(match value(COUNTER).map(str::parse::<i64>) {
            Some(Ok(left)) => u32::try_from(left).map_or(BootCount::FellBack, BootCount::Left),
            Some(Err(_)) | None => BootCount::Off,
        })
    }

    /// Begins to count the boots of the deployment that is booted next.
    pub fn arm(&self) -> Result<(), HostError> {
        self.set(&[(COUNTER, Some(&TRIES.to_string())), (SUCCESS, Some("0")), (OURS, Some("1"))])
    }

    /// Ends the counting: the booted deployment is good, or is given up by the agent itself.
    pub fn end(&self) -> Result<(), HostError> {
        if self.count()? == BootCount::Off {
            return Ok(());
        }
        self.set(&[(COUNTER, None), (SUCCESS, Some("1")), (OURS, None)])
    }

    fn block_path(&self) -> String {
        format!("{}/{BLOCK}", self.directory)
    }

    fn set(&self, values: &[(&str, Option<&str>)]) -> Result<(), HostError> {
        let old = self.root.read_text(&self.block_path())?.unwrap_or_default();
        let Some(new) = changed(&old, values) else {
            let (expected, found) = ("a GRUB environment block with room", "another content");
            return Err(HostError::Kind { path: self.block_path(), expected, found });
        };
        if new == old {
            return Ok(());
        }
        let place = self.root.base_path()?;
        let path = self.block_path();
        // The mount namespace is that of a thread: the agent's own stays as it is.
        let write = || write(&place, &path, new.as_bytes());
        let broken =
            || HostError::io("write", &path, std::io::Error::other("the thread that writes it panicked"));
        std::thread::scope(|scope| scope.spawn(write).join()).map_err(|_| broken())?
    }
}

fn write(root: &Path, path: &str, block: &[u8]) -> Result<(), HostError> {
    let boot = root.join("boot");
    let failed = |errno: rustix::io::Errno| HostError::io("make writable", "/boot", errno);
    if mounts::is_read_only(&boot).map_err(failed)? {
        mounts::private().map_err(failed)?;
        mounts::make_writable(&boot).map_err(failed)?;
    }
    Root::open(root)?.overwrite(path, block)
}

fn lines(block: &str) -> impl Iterator<Item = &str> {
    block.lines().filter(|line| !line.starts_with('#'))
}

fn value_of<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?.strip_prefix('=')
}

/// Sets and removes variables; `None` when it is no block, or has no room.
fn changed(block: &str, values: &[(&str, Option<&str>)]) -> Option<String> {
    if block.len() != SIZE || !block.starts_with(HEADER) {
        return None;
    }
    let text = block.trim_end_matches('#');
    let other = |line: &&str| !values.iter().any(|(name, _)| value_of(line, name).is_some());
    let mut new: String = text.split_inclusive('\n').filter(other).collect();
    for (name, value) in values {
        if let Some(value) = value {
            new.push_str(&format!("{name}={value}\n"));
        }
    }
    (new.len() <= SIZE).then(|| padded(new))
}

fn padded(mut text: String) -> String {
    text.extend(std::iter::repeat_n('#', SIZE.saturating_sub(text.len())));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: &str = "if [ -n \"${boot_counter}\" -a \"${boot_success}\" = \"0\" ]; then\n";

    fn host(config: &str, block: Option<&str>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let grub = dir.path().join("boot/grub2");
        std::fs::create_dir_all(&grub).unwrap();
        std::fs::write(grub.join(CONFIG), config).unwrap();
        if let Some(block) = block {
            std::fs::write(grub.join(BLOCK), block).unwrap();
        }
        dir
    }

    fn block(lines: &str) -> String {
        padded(format!("{HEADER}{lines}"))
    }

    #[test]
    fn boot_loader_without_counting_is_unchanged() {
        for dir in [host("blscfg\n", Some(&block(""))), host(COUNTS, None), tempfile::tempdir().unwrap()] {
            let root = Root::open(dir.path()).unwrap();
            assert!(BootCounter::find(&root).unwrap().is_none());
        }
    }

    #[test]
    fn counter_is_armed_read_and_ended_in_place() {
        use std::os::unix::fs::MetadataExt as _;
        // A counter of another program is not ours.
        let before = block("saved_entry=x\nboot_counter=2\nkernelopts=a b\nboot_success=0\n");
        let dir = host(COUNTS, Some(&before));
        let file = dir.path().join("boot/grub2/grubenv");
        let inode = std::fs::metadata(&file).unwrap().ino();
        let root = Root::open(dir.path()).unwrap();
        let counter = BootCounter::find(&root).unwrap().unwrap();
        assert_eq!(counter.count().unwrap(), BootCount::Off);
        counter.end().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), before, "nothing to end, nothing written");
        counter.arm().unwrap();
        assert_eq!(counter.count().unwrap(), BootCount::Left(3));
        let armed = std::fs::read_to_string(&file).unwrap();
        assert_eq!(
            armed,
            block("saved_entry=x\nkernelopts=a b\nboot_counter=3\nboot_success=0\nmachine_config_agent=1\n")
        );
        counter.arm().unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), armed, "twice is once");
        std::fs::write(&file, armed.replace("boot_counter=3", "boot_counter=-1").get(..SIZE).unwrap())
            .unwrap();
        assert_eq!(counter.count().unwrap(), BootCount::FellBack);
        counter.end().unwrap();
        assert_eq!(counter.count().unwrap(), BootCount::Off);
        let ended = std::fs::read_to_string(&file).unwrap();
        assert_eq!(ended, block("saved_entry=x\nkernelopts=a b\nboot_success=1\n"));
        assert_eq!(std::fs::metadata(&file).unwrap().ino(), inode, "GRUB finds it by its place on the disk");
    }

    #[test]
    fn invalid_block_is_refused_and_kept() {
        let full = block(&format!("x={}\n", "y".repeat(SIZE - HEADER.len() - 3)));
        for wrong in ["", "boot_counter=1\n", full.as_str()] {
            let dir = host(COUNTS, Some(wrong));
            let root = Root::open(dir.path()).unwrap();
            let error = BootCounter::find(&root).unwrap().unwrap().arm().unwrap_err();
            assert!(error.to_string().contains("/boot/grub2/grubenv"), "{error}");
            let kept = std::fs::read_to_string(dir.path().join("boot/grub2/grubenv")).unwrap();
            assert_eq!(kept, wrong);
        }
    }
}
