//! Free space: whether an image fits into `/sysroot` before it is pulled, and its kernel into `/boot` before it is
//! staged. A finalization that lacks space in `/boot` fails while the machine goes down: the node comes up in its old
//! deployment, after a drain for nothing.
//!
//! Invariant: an image that is refused here was not pulled, or not staged; needed and free bytes are in the cause.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;

use ostree_ext::container::store::PreparedImport;
use ostree_ext::gio::prelude::*;
use ostree_ext::gio::{Cancellable, File, FileInfo, FileQueryInfoFlags, FileType};
use ostree_ext::glib::KeyFile;
use ostree_ext::oci_spec::image::Descriptor;
use ostree_ext::ostree::{Deployment, Repo, RepoFile, Sysroot};
use rustix::fs::statvfs;

use super::super::error::{OsError, OsErrorKind};
use super::failed::failed;
use crate::model::ImageRef;

/// Lowest unpacked size per byte of compressed layers. The true number is higher for text and lower for
/// firmware. It is chosen low: a pull that is let through and does not fit ends at libostree's own limit with nothing
/// staged, but one that is refused and would fit keeps a node from its update.
const UNPACKED: u64 = 2;

/// Bytes written to `/boot` beside kernels: boot entries, directories, the boot loader's own files.
const BOOT_SLACK: u64 = 1 << 20;

/// As much of it is needed where the kernel is there already: boot entries alone, in blocks of the file system.
const BOOT_ENTRIES: u64 = 64 << 10;

/// Percentage that libostree keeps free if its repository does not set one (`ostree.repo-config(5)`).
const MIN_FREE_PERCENT: u64 = 3;

/// The first libostree that gives up the old deployment's kernel before it writes the new one, when `/boot` is short:
/// year and release.
const FREES_FIRST: (u32, u32) = (2023, 7);

/// The label of an image's config that names its kernel; rpm-ostree writes it.
const KERNEL_LABEL: &str = "ostree.linux";

/// Directory of kernels in a tree: one directory for each version.
const MODULES: &str = "usr/lib/modules";

/// The file system of a directory, in bytes.
#[derive(Debug, Clone, Copy)]
struct Space {
    total: u64,
    free: u64,
    /// The same without the blocks that the file system keeps for root.
    available: u64,
}

impl Space {
    /// Root may use the space reserved for root: libostree counts so, too.
    fn load(path: &Path) -> Result<Self, OsError> {
        let stat = statvfs(path).map_err(|e| failed(format!("{} can't be read: {e}", path.display())))?;
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Ok(Self { total: bytes(stat.f_blocks), free: bytes(stat.f_bfree), available: bytes(stat.f_bavail) })
    }
}

/// Returns the free bytes of the images' file system.
pub(super) fn free(path: &Path) -> Result<u64, OsError> {
    Space::load(&path.join("ostree/repo")).map(|space| space.free)
}

/// Checks that the missing layers of an image fit into the repository, and, if its size is known already, its kernel
/// into `/boot`.
pub(super) fn before_pull(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    prepared: &PreparedImport,
) -> Result<(), OsError> {
    let missing = prepared.all_layers().filter(|layer| layer.commit.is_none());
    let needed = missing.map(|layer| unpacked(layer.layer())).sum();
    let space = Space::load(&path.join("ostree/repo"))?;
    room_in_sysroot(sysroot, image, space, needed)?;
    // With its base here the image most likely has a kernel that is here; after the pull it is known.
    if prepared.ostree_commit_layer.commit.is_some() {
        return Ok(());
    }
    let deployed = deployed(sysroot)?;
    let named =
        prepared.config.config().as_ref().and_then(|config| config.labels().as_ref()?.get(KERNEL_LABEL));
    if named.is_some_and(|named| deployed.iter().any(|(_, kernel)| kernel.versions.contains(named))) {
        return Ok(());
    }
    let booted = deployed.iter().find(|(deployment, _)| is_booted(sysroot, deployment));
    let Some((_, kernel)) = booted else { return Ok(()) };
    room_in_boot(sysroot, path, image, &deployed, kernel.size(), "about ")
}

/// Makes sure that compressed archives of so many bytes fit beside the repository when they are unpacked.
pub(super) fn before_unpacking(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    compressed: u64,
) -> Result<(), OsError> {
    let mut space = Space::load(&path.join("ostree/repo"))?;
    // Who unpacks is not root.
    let reserve = reserved_space(&sysroot.repo().config(), space.total);
    space.free = space.free.min(space.available.saturating_add(reserve));
    room_in_sysroot(sysroot, image, space, compressed.saturating_mul(UNPACKED))
}

/// Returns the bytes that libostree keeps free beside the repository.
pub(super) fn reserve(sysroot: &Sysroot, path: &Path) -> Result<u64, OsError> {
    let space = Space::load(&path.join("ostree/repo"))?;
    Ok(reserved_space(&sysroot.repo().config(), space.total))
}

/// Checks that so many bytes are free beside libostree's reserve.
fn room_in_sysroot(sysroot: &Sysroot, image: &ImageRef, space: Space, needed: u64) -> Result<(), OsError> {
    let free = space.free.saturating_sub(reserved_space(&sysroot.repo().config(), space.total));
    if needed <= free {
        return Ok(());
    }
    let cause = format!(
        "about {} are needed in /sysroot, {} are free beside what libostree keeps free",
        human(needed),
        human(free)
    );
    Err(OsError::new(OsErrorKind::SysrootFull, image.to_string(), cause))
}

/// Makes sure that the kernel of a commit fits into `/boot`.
pub(super) fn before_staging(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    commit: &str,
) -> Result<(), OsError> {
    let desired = Kernel::load(&sysroot.repo(), commit)?;
    desired.check(image)?;
    let deployed = deployed(sysroot)?;
    if deployed.iter().any(|(_, kernel)| kernel.files == desired.files) {
        return room_for_entries(path, image);
    }
    room_in_boot(sysroot, path, image, &deployed, desired.size(), "")
}

/// A kernel with all that goes to `/boot` with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Kernel {
    /// One, in a tree that boots.
    versions: Vec<String>,
    /// Sizes, by libostree's checksums.
    files: BTreeMap<String, u64>,
}

impl Kernel {
    /// Finds it in a commit: beside its modules, or where older trees have it.
    fn load(repo: &Repo, commit: &str) -> Result<Self, OsError> {
        let (root, _) = repo.read_commit(commit, Cancellable::NONE).map_err(failed)?;
        let mut found = Self::default();
        for (version, kind, _) in listed(&root.resolve_relative_path(MODULES)) {
            let home = root.resolve_relative_path(format!("{MODULES}/{version}"));
            if kind != FileType::Directory || !listed(&home).iter().any(|(name, ..)| name == "vmlinuz") {
                continue;
            }
            for (name, ..) in listed(&home) {
                let with_it = ["vmlinuz", ".vmlinuz.hmac", "initramfs.img", "devicetree", "dtb", "aboot.img"];
                if with_it.contains(&name.as_str()) {
                    found.add(&home.child(&name));
                }
            }
            found.versions.push(version);
        }
        found.versions.sort();
        if found.files.is_empty() {
            found.add(&root.resolve_relative_path("usr/lib/ostree-boot"));
        }
        Ok(found)
    }

    /// Refuses what libostree would refuse while the machine goes down, after a drain.
    fn check(&self, image: &ImageRef) -> Result<(), OsError> {
        let cause = match (&*self.versions, self.files.is_empty()) {
            ([_], _) | ([], false) => return Ok(()),
            ([], true) => format!("it has no kernel below /{MODULES}"),
            (several, _) => {
                format!("it has {} kernels below /{MODULES}: {}", several.len(), several.join(", "))
            }
        };
        Err(OsError::new(OsErrorKind::Kernels, image.to_string(), cause))
    }

    fn add(&mut self, file: &File) {
        let Some(info) = info(file) else { return };
        // Asked for the children of a regular file, libostree 2022.7 aborts.
        if info.file_type() == FileType::Directory {
            for (name, ..) in listed(file) {
                self.add(&file.child(name));
            }
        }
        if let (FileType::Regular, Ok(file)) = (info.file_type(), file.clone().dynamic_cast::<RepoFile>()) {
            self.files.insert(file.checksum().to_string(), u64::try_from(info.size()).unwrap_or_default());
        }
    }

    fn size(&self) -> u64 {
        self.files.values().sum()
    }
}

const ATTRIBUTES: &str = "standard::name,standard::type,standard::size";

fn info(file: &File) -> Option<FileInfo> {
    file.query_info(ATTRIBUTES, FileQueryInfoFlags::NOFOLLOW_SYMLINKS, Cancellable::NONE).ok()
}

/// Lists a directory; anything else has no entries: libostree ends the process that lists a file.
fn listed(directory: &File) -> Vec<(String, FileType, i64)> {
    if info(directory).is_none_or(|info| info.file_type() != FileType::Directory) {
        return Vec::new();
    }
    let entries =
        directory.enumerate_children(ATTRIBUTES, FileQueryInfoFlags::NOFOLLOW_SYMLINKS, Cancellable::NONE);
    let entries = entries.into_iter().flatten().filter_map(Result::ok);
    entries.map(|info| (info.name().display().to_string(), info.file_type(), info.size())).collect()
}

/// Returns the deployments, staged ones left out: their kernels are not in `/boot` yet.
fn deployed(sysroot: &Sysroot) -> Result<Vec<(Deployment, Kernel)>, OsError> {
    let repo = sysroot.repo();
    let real = sysroot.deployments().into_iter().filter(|deployment| !deployment.is_staged());
    real.map(|deployment| {
        let kernel = Kernel::load(&repo, &deployment.csum())?;
        Ok((deployment, kernel))
    })
    .collect()
}

fn is_booted(sysroot: &Sysroot, deployment: &Deployment) -> bool {
    sysroot.booted_deployment().is_some_and(|booted| booted.equal(deployment))
}

fn room_in_boot(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    deployed: &[(Deployment, Kernel)],
    kernel: u64,
    about: &str,
) -> Result<(), OsError> {
    let boot = path.join("boot");
    let (needed, free) = (kernel + BOOT_SLACK, Space::load(&boot)?.free);
    if needed <= free {
        return Ok(());
    }
    let freed = given_up(sysroot, deployed);
    if needed <= free + freed && frees_first(&boot, &path.join("ostree/repo")) {
        return Ok(());
    }
    let mut cause = format!(
        "{about}{} are needed in /boot for its kernel and initramfs, {} are free",
        human(needed),
        human(free)
    );
    if freed > 0 {
        cause += &format!("; the deployment that ran before the booted one holds {} of it", human(freed));
    }
    Err(OsError::new(OsErrorKind::BootFull, image.to_string(), cause))
}

/// Makes sure that boot entries fit: they are written while the machine goes down, where nothing can be told.
fn room_for_entries(path: &Path, image: &ImageRef) -> Result<(), OsError> {
    let free = Space::load(&path.join("boot"))?.free;
    if BOOT_ENTRIES <= free {
        return Ok(());
    }
    let cause =
        format!("{} are needed in /boot for its boot entry, {} are free", human(BOOT_ENTRIES), human(free));
    Err(OsError::new(OsErrorKind::BootFull, image.to_string(), cause))
}

/// Returns the size of the kernels that go with the deployments which the finalization gives up: those of the booted
/// stateroot that are neither booted nor pinned.
fn given_up(sysroot: &Sysroot, deployed: &[(Deployment, Kernel)]) -> u64 {
    let Some(booted) = sysroot.booted_deployment() else { return 0 };
    let stays = |deployment: &Deployment| {
        deployment.is_pinned() || deployment.equal(&booted) || deployment.osname() != booted.osname()
    };
    let (kept, gone): (Vec<_>, Vec<_>) = deployed.iter().partition(|(deployment, _)| stays(deployment));
    let kept: BTreeSet<_> = kept.iter().map(|(deployment, _)| deployment.bootcsum()).collect();
    let gone: BTreeMap<_, _> =
        gone.iter().map(|(deployment, kernel)| (deployment.bootcsum(), kernel.size())).collect();
    gone.iter().filter(|(bootcsum, _)| !kept.contains(*bootcsum)).map(|(_, size)| size).sum()
}

/// Returns true if the finalization gives up old kernels before it writes the new one. It is `ostree` itself that
/// finalizes, and only where `/boot` is a file system of its own.
fn frees_first(boot: &Path, repo: &Path) -> bool {
    let device = |path: &Path| std::fs::metadata(path).map(|found| found.dev()).ok();
    if device(boot) == device(repo) {
        return false;
    }
    let output = Command::new("ostree").arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    version(&text).is_some_and(|version| version >= FREES_FIRST)
}

/// Reads `Version: '2023.7'`.
fn version(text: &str) -> Option<(u32, u32)> {
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Version:"))?;
    let (year, release) = line.trim_matches([' ', '\'', '"']).split_once('.')?;
    let digits: String = release.chars().take_while(char::is_ascii_digit).collect();
    Some((year.parse().ok()?, digits.parse().ok()?))
}

/// Returns the lowest size of a layer.
fn unpacked(layer: &Descriptor) -> u64 {
    let plain = layer.media_type().to_string().ends_with("tar");
    layer.size().saturating_mul(if plain { 1 } else { UNPACKED })
}

/// Returns libostree's reserve, in bytes.
fn reserved_space(config: &KeyFile, total: u64) -> u64 {
    let text = |key| config.string("core", key).ok();
    let size = text("min-free-space-size").and_then(|size| {
        let (number, unit) = size.trim().split_at_checked(size.trim().len().checked_sub(2)?)?;
        let shift = [("MB", 20), ("GB", 30), ("TB", 40)].into_iter().find(|(name, _)| *name == unit)?.1;
        number.trim().parse::<u64>().ok().map(|number| number.saturating_mul(1 << shift))
    });
    if let Some(size) = size.filter(|size| *size > 0) {
        return size;
    }
    let percent = text("min-free-space-percent").and_then(|percent| percent.trim().parse().ok());
    total / 100 * percent.unwrap_or(MIN_FREE_PERCENT)
}

/// Writes bytes for people.
fn human(bytes: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| bytes >= *size) {
        Some((unit, size)) => format!("{}.{} {unit}", bytes / size, bytes % size * 10 / size),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_reported_in_fitting_unit() {
        let read = [0, 1023, 1024, 1_572_864, 3_221_225_472].map(human);
        assert_eq!(read, ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 MiB", "3.0 GiB"]);
    }

    #[test]
    fn min_free_space_is_read_as_by_libostree() {
        let kept = |text: &str| {
            let config = KeyFile::new();
            let flags = ostree_ext::glib::KeyFileFlags::NONE;
            config.load_from_data(&format!("[core]\nrepo_version=1\n{text}"), flags).unwrap();
            reserved_space(&config, 1000)
        };
        assert_eq!(kept(""), 30);
        assert_eq!(kept("min-free-space-percent=0\n"), 0);
        assert_eq!(kept("min-free-space-percent=10\n"), 100);
        assert_eq!(kept("min-free-space-percent=10\nmin-free-space-size=2GB\n"), 2 << 30);
        assert_eq!(kept("min-free-space-size=0MB\n"), 30);
    }

    #[test]
    fn version_is_compared_as_numbers() {
        let read = |line: &str| version(&format!("libostree:\n {line}\n Git: 1\n"));
        assert_eq!(read("Version: '2022.7'"), Some((2022, 7)));
        assert_eq!(read("Version: '2023.10'"), Some((2023, 10)));
        assert!(read("Version: '2023.10'") > Some(FREES_FIRST));
        assert_eq!(read("Edition: 1"), None);
    }
}
