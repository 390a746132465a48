//! `storage.directories` and `storage.links`.

use std::collections::BTreeMap;

use ignition_config::v3_6::{Directory, Link};

use super::super::error::ModelError;
use super::super::paths::{DirectorySpec, LinkSpec, LinkTarget};
use super::super::text::short;
use super::super::{FileMode, ManagedPath, NotApplied, NotAppliedReason};
use super::files::{TWICE, owner, path_of, principal_if_set};
use super::within::{Entries, Within};

/// `PATH_MAX` without its last byte: symlink(2) takes no longer text.
const LONGEST_TARGET: usize = 4095;

/// Minors of Ignition before this one have no setuid, setgid and sticky bits.
const SPECIAL_BITS_SINCE: &str = "3.4.0";

/// Reads all directories of a config of this version.
pub(super) fn directories(
    entries: &mut Entries<'_>,
    version: &str,
    directories: Vec<Directory>,
) -> BTreeMap<ManagedPath, DirectorySpec> {
    let mut read = BTreeMap::new();
    for directory in directories {
        let field = |part: &str| format!("storage.directories {:?}{part}", short(&directory.path, 200));
        let within = entries.within;
        let path = path_of(entries, &field(""), &directory.path);
        let mode = directory.mode.map(|bits| directory_mode(within, &field(" mode"), bits)).transpose();
        let mode = entries.faults.take(mode);
        let user = directory.user.unwrap_or_default();
        let group = directory.group.unwrap_or_default();
        let user = principal_if_set(user.id, user.name).map_err(|cause| within.error(field(" user"), cause));
        let group =
            principal_if_set(group.id, group.name).map_err(|cause| within.error(field(" group"), cause));
        let (user, group) = (entries.faults.take(user), entries.faults.take(group));
        let (Some(path), Some(mode), Some(user), Some(group)) = (path, mode, user, group) else { continue };
        let mode = mode.map(|mode| plain_mode(version, &field(" mode"), mode, entries.remarks));
        let spec = DirectorySpec { mode, user, group, overwrite: directory.overwrite == Some(true) };
        if read.insert(path, spec).is_some() {
            entries.faults.add(within.unreachable(field(""), TWICE));
        }
    }
    read
}

/// Reads all links.
pub(super) fn links(entries: &mut Entries<'_>, links: Vec<Link>) -> BTreeMap<ManagedPath, LinkSpec> {
    let mut read = BTreeMap::new();
    for link in links {
        let field = |part: &str| format!("storage.links {:?}{part}", short(&link.path, 200));
        let within = entries.within;
        let path = path_of(entries, &field(""), &link.path);
        let text = link.target.as_deref().unwrap_or_default();
        let is_hard = link.hard == Some(true);
        let target = if is_hard { hard(path.as_ref(), text) } else { soft(text) };
        let target = target.map_err(|cause| within.unreachable(field(" target"), cause));
        let target = entries.faults.take(target);
        let has_user = link.user.as_ref().is_some_and(|user| user.id.is_some() || user.name.is_some());
        let has_group = link.group.as_ref().is_some_and(|group| group.id.is_some() || group.name.is_some());
        let owner = owner(entries, field, (link.user, link.group));
        let (Some(path), Some(target), Some(owner)) = (path, target, owner) else { continue };
        for (part, is_set) in [("user", has_user), ("group", has_group)] {
            if is_hard && is_set {
                let message = format!("a hard link has the {part} of its target; remove the field");
                let field = field(&format!(" {part}"));
                entries.remarks.push(NotApplied::new(field, NotAppliedReason::Stale, message));
            }
        }
        let overwrite = link.overwrite == Some(true);
        if read.insert(path, LinkSpec { target, owner, overwrite }).is_some() {
            entries.faults.add(within.unreachable(field(""), TWICE));
        }
    }
    read
}

fn directory_mode(within: Within<'_>, field: &str, bits: i64) -> Result<FileMode, ModelError> {
    let rule = "it must be 0 to 07777 (4095 in JSON)";
    // `mode: 755` is 01363: octal was meant.
    let meant = i64::from_str_radix(&bits.to_string(), 8).ok();
    if let Some(meant) = meant.filter(|meant| bits > 0o777 && (0..=0o777).contains(meant)) {
        let cause = format!(
            "{rule}; {bits} is decimal, 0{bits:o} in octal: for 0{meant:o} write 0{meant:o} in YAML, {meant} in JSON"
        );
        return Err(within.unreachable(field, cause));
    }
    FileMode::of_directory(bits).ok_or_else(|| within.unreachable(field, rule))
}

/// Takes away the bits that a version of Ignition ignores.
fn plain_mode(version: &str, field: &str, mode: FileMode, remarks: &mut Vec<NotApplied>) -> FileMode {
    let plain = FileMode::of_directory(i64::from(mode.bits() & 0o777)).unwrap_or(mode);
    if mode == plain || version >= SPECIAL_BITS_SINCE {
        return mode;
    }
    let message = format!(
        "Ignition {version} ignores setuid, setgid and sticky bits; use version {SPECIAL_BITS_SINCE} for them"
    );
    remarks.push(NotApplied::new(field, NotAppliedReason::Stale, message));
    plain
}

fn soft(text: &str) -> Result<LinkTarget, String> {
    match text {
        "" => Err("it is missing; give the path that the link leads to".to_owned()),
        text if text.len() > LONGEST_TARGET => Err(format!("it is longer than {LONGEST_TARGET} bytes")),
        text if text.contains('\0') => Err("it contains a null byte".to_owned()),
        text => Ok(LinkTarget::Soft(text.to_owned())),
    }
}

fn hard(path: Option<&ManagedPath>, text: &str) -> Result<LinkTarget, String> {
    if text.is_empty() {
        return Err("it is missing; give the path of the file that the link is another name of".to_owned());
    }
    let target = ManagedPath::new(text).map_err(|error| format!("{error}; choose another file"))?;
    if Some(&target) == path {
        return Err("the link names itself; give the path of another file".to_owned());
    }
    Ok(LinkTarget::Hard(target))
}

/// Returns why a hard link can't lead to its target, by the other entries of the config.
pub(super) fn dead_end(
    path: &ManagedPath,
    links: &BTreeMap<ManagedPath, LinkSpec>,
    directories: &BTreeMap<ManagedPath, DirectorySpec>,
) -> Option<String> {
    let target = links.get(path)?.hard_target()?;
    if links.contains_key(target) {
        Some(format!("{target} is a link of this config; name the file that it leads to"))
    } else if directories.contains_key(target) {
        Some(format!("{target} is a directory of this config; a hard link leads to a file"))
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Owner, Principal};
    use super::*;

    fn read(version: &str, storage: &str) -> Result<crate::model::HostSpec, ModelError> {
        let text = format!(
            r#"{{"kind":"MachineConfig","metadata":{{"name":"a"}},"spec":{{"config":{{"ignition":{{"version":"{version}"}},"storage":{storage}}}}}}}"#
        );
        crate::model::MachineConfig::parse(text.as_bytes(), "a").unwrap().spec(None)
    }

    fn path(text: &str) -> ManagedPath {
        ManagedPath::new(text).unwrap()
    }

    #[test]
    fn directories_and_links_are_read_in_every_version() {
        for version in ["3.0.0", "3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0", "3.6.0"] {
            let spec = read(
                version,
                r#"{"directories":[{"path":"/etc/d"},{"path":"/etc/d/e","mode":448,"user":{"name":"core"},"group":{"id":5},"overwrite":true}],
                    "files":[{"path":"/etc/d/e/f"}],
                    "links":[{"path":"/etc/l","target":"../x y","user":{"id":7}},{"path":"/etc/d/h","target":"/etc/d/e/f","hard":true,"overwrite":true}]}"#,
            )
            .unwrap();
            assert_eq!(spec.directories[&path("/etc/d")], DirectorySpec::default());
            let deep = &spec.directories[&path("/etc/d/e")];
            assert_eq!((deep.mode.map(FileMode::bits), deep.overwrite), (Some(0o700), true));
            assert_eq!(deep.group, Some(Principal::Id(5)));
            let soft = &spec.links[&path("/etc/l")];
            assert_eq!(soft.target, LinkTarget::Soft("../x y".to_owned()));
            assert_eq!(soft.owner, Owner { user: Principal::Id(7), group: Principal::Id(0) });
            assert_eq!(spec.links[&path("/etc/d/h")].hard_target(), Some(&path("/etc/d/e/f")));
            assert!(spec.fixed.sections.is_empty(), "{:?}", spec.fixed);
            assert_eq!(spec.managed().len(), 5);
        }
    }

    #[test]
    fn special_bits_of_directories_need_newer_version() {
        let sticky = r#"{"directories":[{"path":"/etc/d","mode":1023}]}"#;
        let spec = read("3.4.0", sticky).unwrap();
        assert_eq!(spec.directories[&path("/etc/d")].mode.map(FileMode::bits), Some(0o1777));
        let old = read("3.3.0", sticky).unwrap();
        assert_eq!(old.directories[&path("/etc/d")].mode.map(FileMode::bits), Some(0o777));
        let remark = &old.remarks[0];
        assert_eq!(remark.field, "storage.directories \"/etc/d\" mode");
        assert!(remark.message.contains("3.4.0") && spec.remarks.is_empty(), "{remark}");
    }

    #[test]
    fn invalid_directories_and_links_are_refused_by_field() {
        for (storage, field, cause) in [
            (r#"{"directories":[{"path":"etc/d"}]}"#, "storage.directories", "another path"),
            (r#"{"directories":[{"path":"/etc/d","mode":4096}]}"#, "\"/etc/d\" mode", "07777"),
            (r#"{"directories":[{"path":"/etc/d","user":{"id":-1}}]}"#, "\"/etc/d\" user", "its id"),
            (r#"{"directories":[{"path":"/etc/d"},{"path":"/etc/d"}]}"#, "directories \"/etc/d\"", "twice"),
            (r#"{"links":[{"path":"/etc/l"}]}"#, "storage.links \"/etc/l\" target", "missing"),
            (r#"{"links":[{"path":"/etc/l","target":""}]}"#, "\"/etc/l\" target", "missing"),
            (
                r#"{"links":[{"path":"/etc/l","target":"a","hard":true}]}"#,
                "\"/etc/l\" target",
                "another file",
            ),
            (r#"{"links":[{"path":"/etc/l","target":"/etc/l","hard":true}]}"#, "\"/etc/l\" target", "itself"),
            (
                r#"{"links":[{"path":"/etc/l","target":"/etc/d","hard":true}],"directories":[{"path":"/etc/d"}]}"#,
                "storage.links \"/etc/l\" target",
                "is a directory",
            ),
            (
                r#"{"links":[{"path":"/etc/l","target":"/etc/m","hard":true},{"path":"/etc/m","target":"/x"}]}"#,
                "storage.links \"/etc/l\" target",
                "is a link",
            ),
            // One path as two kinds, and a parent that is no directory.
            (r#"{"files":[{"path":"/etc/a"}],"directories":[{"path":"/etc/a"}]}"#, "/etc/a", "keep one"),
            (
                r#"{"files":[{"path":"/etc/a"}],"links":[{"path":"/etc/a","target":"/x"}]}"#,
                "/etc/a",
                "keep one",
            ),
            (
                r#"{"directories":[{"path":"/etc/a"}],"links":[{"path":"/etc/a","target":"/x"}]}"#,
                "/etc/a",
                "keep one",
            ),
            (
                r#"{"files":[{"path":"/etc/a/b"}],"links":[{"path":"/etc/a","target":"/x"}]}"#,
                "/etc/a/b",
                "move one",
            ),
            (r#"{"directories":[{"path":"/etc/a/b"}],"files":[{"path":"/etc/a"}]}"#, "/etc/a/b", "move one"),
            (
                r#"{"links":[{"path":"/etc/a/b","target":"c"},{"path":"/etc/a","target":"/x"}]}"#,
                "/etc/a/b",
                "move one",
            ),
        ] {
            let error = read("3.6.0", storage).unwrap_err().to_string();
            assert!(error.contains(field) && error.contains(cause), "{storage}: {error}");
        }
    }

    #[test]
    fn owner_of_hard_link_is_named() {
        let spec =
            read("3.6.0", r#"{"links":[{"path":"/etc/l","target":"/etc/f","hard":true,"user":{"id":1}}]}"#);
        assert_eq!(spec.unwrap().remarks[0].field, "storage.links \"/etc/l\" user");
    }

    #[test]
    fn directory_may_be_parent_of_everything() {
        let spec = read(
            "3.5.0",
            r#"{"files":[{"path":"/etc/a/f"}],"links":[{"path":"/etc/a/l","target":"f"}],"directories":[{"path":"/etc/a/d"},{"path":"/etc/a"}]}"#,
        )
        .unwrap();
        assert_eq!((spec.files.len(), spec.links.len(), spec.directories.len()), (1, 1, 2));
    }
}
