//! Fields that Ignition knows from a later version on than a config has: Ignition of the config's version ignores them.

use ignition_config::v3_6::{Config, Filesystem, Luks, Resource, Storage};

use crate::model::not_applied::{NotApplied, NotAppliedReason};

/// Collects the fields of a config that its version does not have.
struct Newer {
    minor: u32,
    found: Vec<NotApplied>,
}

/// Returns the fields of a config that its version does not have.
pub(in crate::model) fn newer(config: &Config) -> Vec<NotApplied> {
    let minor = config.ignition.version.split('.').nth(1).and_then(|minor| minor.parse().ok()).unwrap_or(0);
    let mut newer = Newer { minor, found: Vec::new() };
    if minor >= 5 {
        return newer.found;
    }
    newer.ignition(config);
    newer.check(3, config.kernel_arguments.is_some(), || "kernelArguments".to_owned());
    let passwd = config.passwd.as_ref();
    for (at, user) in passwd.and_then(|passwd| passwd.users.as_ref()).into_iter().flatten().enumerate() {
        newer.check(2, user.should_exist.is_some(), || format!("passwd.users[{at}].shouldExist"));
    }
    for (at, group) in passwd.and_then(|passwd| passwd.groups.as_ref()).into_iter().flatten().enumerate() {
        newer.check(2, group.should_exist.is_some(), || format!("passwd.groups[{at}].shouldExist"));
    }
    if let Some(storage) = &config.storage {
        newer.storage(storage);
    }
    newer.found
}

impl Newer {
    fn check(&mut self, since: u32, is_set: bool, field: impl FnOnce() -> String) {
        if is_set && self.minor < since {
            let message = format!(
                "Ignition 3.{} has no such field, 3.{since} is the first that has it; raise ignition.version",
                self.minor
            );
            self.found.push(NotApplied::new(field(), NotAppliedReason::UnknownField, message));
        }
    }

    fn resource(&mut self, resource: Option<&Resource>, field: impl Fn() -> String) {
        let headers = resource.is_some_and(|resource| resource.http_headers.is_some());
        self.check(1, headers, || format!("{}.httpHeaders", field()));
    }

    /// A resource that was a reference without compression before 3.1.
    fn reference(&mut self, resource: Option<&Resource>, field: impl Fn() -> String) {
        let compression = resource.is_some_and(|resource| resource.compression.is_some());
        self.check(1, compression, || format!("{}.compression", field()));
        self.resource(resource, field);
    }

    fn ignition(&mut self, config: &Config) {
        let ignition = &config.ignition;
        self.check(1, ignition.proxy.is_some(), || "ignition.proxy".to_owned());
        let other = ignition.config.as_ref();
        let merge = other.and_then(|other| other.merge.as_ref());
        for (at, resource) in merge.into_iter().flatten().enumerate() {
            self.reference(Some(resource), || format!("ignition.config.merge[{at}]"));
        }
        let replace = other.and_then(|other| other.replace.as_ref());
        self.reference(replace, || "ignition.config.replace".to_owned());
        let tls = ignition.security.as_ref().and_then(|security| security.tls.as_ref());
        let authorities = tls.and_then(|tls| tls.certificate_authorities.as_ref());
        for (at, resource) in authorities.into_iter().flatten().enumerate() {
            let field = || format!("ignition.security.tls.certificateAuthorities[{at}]");
            self.reference(Some(resource), field);
        }
    }

    fn storage(&mut self, storage: &Storage) {
        for (at, file) in storage.files.iter().flatten().enumerate() {
            self.resource(file.contents.as_ref(), || format!("storage.files[{at}].contents"));
            for (part, resource) in file.append.iter().flatten().enumerate() {
                self.resource(Some(resource), || format!("storage.files[{at}].append[{part}]"));
            }
        }
        for (at, filesystem) in storage.filesystems.iter().flatten().enumerate() {
            let Filesystem { mount_options, .. } = filesystem;
            self.check(1, mount_options.is_some(), || format!("storage.filesystems[{at}].mountOptions"));
        }
        for (at, disk) in storage.disks.iter().flatten().enumerate() {
            for (number, partition) in disk.partitions.iter().flatten().enumerate() {
                let field = || format!("storage.disks[{at}].partitions[{number}].resize");
                self.check(2, partition.resize.is_some(), field);
            }
        }
        self.check(2, storage.luks.is_some(), || "storage.luks".to_owned());
        if self.minor >= 2 {
            for (at, luks) in storage.luks.iter().flatten().enumerate() {
                self.luks(at, luks);
            }
        }
    }

    fn luks(&mut self, at: usize, luks: &Luks) {
        let field = |name: &str| format!("storage.luks[{at}].{name}");
        self.check(4, luks.discard.is_some(), || field("discard"));
        self.check(4, luks.open_options.is_some(), || field("openOptions"));
        self.check(5, luks.cex.is_some(), || field("cex"));
        let tang = luks.clevis.as_ref().and_then(|clevis| clevis.tang.as_ref());
        for (server, tang) in tang.into_iter().flatten().enumerate() {
            let field = || field(&format!("clevis.tang[{server}].advertisement"));
            self.check(4, tang.advertisement.is_some(), field);
        }
    }
}
