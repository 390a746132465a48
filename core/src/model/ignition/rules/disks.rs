//! `storage.disks`, `storage.raid`, `storage.filesystems`.

use std::collections::HashSet;

use ignition_config::v3_6::{Disk, Filesystem, Partition, Raid, Storage};

use super::found::{Found, broken_path, entry, filled};
use crate::model::text::short;

pub(super) fn check(found: &mut Found, storage: &Storage, minor: u32) {
    let disks = storage.disks.as_deref().unwrap_or_default();
    for disk in disks {
        check_disk(found, disk);
    }
    found.add_repeated(disks.iter().map(|disk| disk.device.as_str()), |_, name| entry("storage.disks", name));
    let arrays = storage.raid.as_deref().unwrap_or_default();
    for array in arrays {
        check_array(found, array);
    }
    found.add_repeated(arrays.iter().map(|array| array.name.as_str()), |_, name| entry("storage.raid", name));
    let filesystems = storage.filesystems.as_deref().unwrap_or_default();
    for filesystem in filesystems {
        check_filesystem(found, filesystem, minor);
    }
    let devices = filesystems.iter().map(|one| one.device.as_str());
    found.add_repeated(devices, |_, name| entry("storage.filesystems", name));
}

fn check_disk(found: &mut Found, disk: &Disk) {
    let field = entry("storage.disks", &disk.device);
    if let Some(cause) = broken_path(&disk.device) {
        found.add(format!("{field} device"), cause);
        if disk.device.is_empty() {
            return;
        }
    }
    let partitions = disk.partitions.as_deref().unwrap_or_default();
    let name = |place: usize| format!("{field} partitions[{place}]");
    let (mut numbers, mut labels) = (HashSet::new(), HashSet::new());
    for (place, partition) in partitions.iter().enumerate() {
        check_partition(found, &name(place), partition);
        if number(partition) != 0 && !numbers.insert(number(partition)) {
            found.add(name(place), "another partition has its number; keep one of them");
        }
        if partition.label.as_ref().is_some_and(|label| !labels.insert(label)) {
            found.add(name(place), "another partition has its label; rename one of them");
        }
    }
    let is_any = |is: fn(&Partition) -> bool| partitions.iter().any(is);
    if is_any(|one| one.should_exist == Some(false)) && is_any(|one| number(one) == 0) {
        let cause =
            "one is to go and another has no number, which Ignition before 2.27 refuses; number them all";
        found.add(format!("{field} partitions"), cause);
    }
    for place in overlapping(partitions) {
        found.add(name(place), "it overlaps another partition; correct startMiB or sizeMiB");
    }
}

/// Zero is the next number that is free.
fn number(partition: &Partition) -> i64 {
    partition.number.unwrap_or_default()
}

/// Returns the first and the last MiB; `None` where the disk decides. A size of 0 is what is left.
fn extent(partition: &Partition) -> Option<(i64, i64)> {
    let (start, size) = (partition.start_mib?, partition.size_mib?);
    let end = if size == 0 { start } else { start.saturating_add(size).saturating_sub(1) };
    (start != 0 && size >= 0).then_some((start, end))
}

/// Returns the partitions that begin within another one.
fn overlapping(partitions: &[Partition]) -> Vec<usize> {
    let extents = partitions.iter().enumerate().filter_map(|(place, one)| Some((extent(one)?, place)));
    let mut extents: Vec<((i64, i64), usize)> = extents.collect();
    extents.sort_unstable();
    let mut last = i64::MIN;
    let mut found = Vec::new();
    for ((start, end), place) in extents {
        if start <= last {
            found.push(place);
        }
        last = last.max(end);
    }
    found.sort_unstable();
    found
}

fn check_partition(found: &mut Found, field: &str, partition: &Partition) {
    let sets_more = partition.label.is_some()
        || filled(partition.type_guid.as_ref()).is_some()
        || filled(partition.guid.as_ref()).is_some()
        || partition.start_mib.is_some()
        || partition.size_mib.is_some();
    if partition.should_exist == Some(false) && sets_more {
        found.add(
            format!("{field} shouldExist"),
            "it is to go, but label, GUIDs, start or size are set; remove these",
        );
    }
    match partition.label.as_deref() {
        None if number(partition) == 0 => {
            found.add(field, "it has neither number nor label; write one of them");
        }
        Some(label) if label.len() > 36 => {
            found.add(format!("{field} label"), "it is longer than 36 bytes; shorten it");
        }
        Some(label) if label.contains(':') => {
            found.add(format!("{field} label"), "it holds a `:`; remove it");
        }
        None | Some(_) => {}
    }
    for (name, guid) in [("guid", &partition.guid), ("typeGuid", &partition.type_guid)] {
        if filled(guid.as_ref()).is_some_and(|guid| !is_guid(guid)) {
            let cause = "it is not a GUID such as 01234567-89AB-CDEF-EDCB-A98765432101; correct it";
            found.add(format!("{field} {name}"), cause);
        }
    }
}

fn is_guid(guid: &str) -> bool {
    let lengths = guid.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && guid.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

fn check_array(found: &mut Found, array: &Raid) {
    let field = entry("storage.raid", &array.name);
    let spares = array.spares.unwrap_or_default();
    let cause = match filled(array.level.as_ref()) {
        None => Some("it is missing; write one such as raid1".to_owned()),
        Some("linear" | "raid0" | "0" | "stripe") if spares != 0 => {
            Some("an array of this level has no spares; remove them".to_owned())
        }
        Some(
            "linear" | "raid0" | "0" | "stripe" | "raid1" | "1" | "mirror" | "raid4" | "4" | "raid5" | "5"
            | "raid6" | "6" | "raid10" | "10",
        ) => None,
        Some(other) => Some(format!("there is no level {:?}; write one such as raid1", short(other, 40))),
    };
    found.add_some(cause, || format!("{field} level"));
    let devices = array.devices.as_deref().unwrap_or_default();
    if devices.is_empty() {
        found.add(format!("{field} devices"), "there are none; list the devices of the array");
    }
    let name = |device: &str| format!("{field} devices {:?}", short(device, 200));
    for device in devices {
        found.add_some(broken_path(device), || name(device));
    }
    found.add_repeated(devices.iter().map(String::as_str), |_, device| name(device));
}

fn check_filesystem(found: &mut Found, one: &Filesystem, minor: u32) {
    let field = |part: &str| format!("{} {part}", entry("storage.filesystems", &one.device));
    found.add_some(filled(one.path.as_ref()).and_then(broken_path), || field("path"));
    found.add_some(broken_path(&one.device), || field("device"));
    let has_mount_options =
        minor >= 1 && one.mount_options.as_ref().is_some_and(|options| !options.is_empty());
    let sets_more = filled(one.path.as_ref()).is_some()
        || filled(one.label.as_ref()).is_some()
        || filled(one.uuid.as_ref()).is_some()
        || one.wipe_filesystem == Some(true)
        || has_mount_options
        || one.options.as_ref().is_some_and(|options| !options.is_empty());
    let label = filled(one.label.as_ref()).map_or(0, str::len);
    let longest = match filled(one.format.as_ref()) {
        None if sets_more => {
            found.add(
                field("format"),
                "it is missing, and path, label, uuid, wipe or options need one; write it",
            );
            return;
        }
        Some("ext4") => 16,
        Some("btrfs") => 256,
        Some("xfs") => 12,
        Some("swap") => 15,
        Some("vfat") => 11,
        Some("none") if minor >= 3 => usize::MAX,
        Some(other) => {
            let known = "ext4, btrfs, xfs, swap, vfat, and none from 3.3.0 on";
            let cause = format!("Ignition 3.{minor} can't make {:?}; write one of {known}", short(other, 40));
            found.add(field("format"), cause);
            return;
        }
        None => return,
    };
    if label > longest {
        found.add(field("label"), format!("it is longer than {longest} bytes; shorten it"));
    }
}
