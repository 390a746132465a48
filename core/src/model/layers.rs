//! Kernel and extensions as packages: the requests for a deployment so that it has the desired ones.
//!
//! Invariant: only packages of the two tables, and other kernels, are ever removed: manually layered packages
//! stay.

use std::collections::BTreeSet;

use super::error::ModelError;
use super::observation::LocalPackages;
use super::obstacles::Obstacle;
use super::os::{KernelType, Layers};

/// The extensions, with their packages.
const EXTENSIONS: [(&str, &[&str]); 7] = [
    ("ipsec", &["NetworkManager-libreswan", "libreswan", "openvswitch3.5-ipsec"]),
    ("kerberos", &["krb5-workstation", "libkadm5"]),
    ("kernel-devel", &["kernel-devel", "kernel-headers"]),
    ("sandboxed-containers", &["kata-containers"]),
    ("sysstat", &["sysstat"]),
    ("two-node-ha", &["fence-agents-all", "pacemaker", "pcs"]),
    ("usbguard", &["usbguard"]),
];

/// The extension for the image's own kernel alone.
pub(super) const KERNEL_DEVEL: &str = "kernel-devel";

/// Returns true if there is such an extension.
pub(super) fn is_extension(name: &str) -> bool {
    EXTENSIONS.iter().any(|(known, _)| *known == name)
}

/// Returns the names of all extensions.
pub(super) fn extensions() -> String {
    EXTENSIONS.map(|(name, _)| name).join(" ")
}

/// Packages that older releases installed an extension without: a deployment is whole without them.
const OPTIONAL: [&str; 1] = ["openvswitch3.5-ipsec"];

/// Packages removed from the image when another kernel is installed.
const DEFAULT_KERNEL: [&str; 5] =
    ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"];

/// The packages of the real-time kernel.
const REALTIME: [&str; 3] = ["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"];

/// The packages of the kernel with 64 KiB pages.
const PAGES_64K: [&str; 4] =
    ["kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"];

/// The names by which the packages of other kernels begin.
const OTHER_KERNELS: [&str; 2] = ["kernel-rt-", "kernel-64k-"];

/// The processors, as far as kernels differ by them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Arm, 64 bit: it has a kernel with 64 KiB pages.
    Arm64,
    /// Every other one.
    Other,
}

impl KernelType {
    /// Returns why no host with these processors has the kernel.
    pub fn obstacle(self, architecture: Architecture) -> Option<Obstacle> {
        let is_missing = self == Self::Pages64k && architecture != Architecture::Arm64;
        is_missing.then(|| Obstacle {
            cause: "64k-pages is only supported for aarch64 architecture".to_owned(),
            next: "Use kernelType default or realtime in pools of other machines.".to_owned(),
        })
    }
}

impl Architecture {
    /// The one that this program was built for.
    pub const HERE: Self = if cfg!(target_arch = "aarch64") { Self::Arm64 } else { Self::Other };
}

/// Request to rpm-ostree, in one transaction. Each set is sorted; an empty set changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayerChange {
    /// Packages to request.
    pub install: BTreeSet<String>,
    /// Requests to drop.
    pub uninstall: BTreeSet<String>,
    /// Packages of the image to take out.
    pub remove: BTreeSet<String>,
    /// Packages of the image to bring back.
    pub reset: BTreeSet<String>,
}

impl LayerChange {
    /// Returns true if there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.install.is_empty()
            && self.uninstall.is_empty()
            && self.remove.is_empty()
            && self.reset.is_empty()
    }
}

impl LayerChange {
    /// Returns true if the image's own kernel comes back.
    pub fn resets_kernel(&self) -> bool {
        !self.reset.is_empty()
    }

    /// Returns true if requests for packages of extensions are dropped.
    pub fn drops_extensions(&self) -> bool {
        self.uninstall.iter().any(|name| !is_other_kernel(name))
    }
}

impl Layers {
    /// Returns the packages that are requested of a deployment with these layers.
    pub fn packages(&self) -> Result<BTreeSet<String>, ModelError> {
        let known =
            |name: &str| EXTENSIONS.iter().find(|(known, _)| *known == name).map(|(_, packages)| *packages);
        let unknown: Vec<&str> =
            self.extensions.iter().map(String::as_str).filter(|name| known(name).is_none()).collect();
        if !unknown.is_empty() {
            let cause =
                format!("invalid extensions found: {}; there are {}", unknown.join(" "), extensions());
            return Err(ModelError::Layers { cause });
        }
        let extensions = self.extensions.iter().filter_map(|name| known(name)).flatten();
        Ok(extensions.chain(self.kernel.packages()).map(|name| (*name).to_owned()).collect())
    }

    /// Returns which of the desired packages a deployment does not request.
    pub fn missing(&self, local: &LocalPackages) -> Result<BTreeSet<String>, ModelError> {
        let mut missing = self.packages()?;
        missing.retain(|name| !local.requested.contains(name) && !OPTIONAL.contains(&name.as_str()));
        Ok(missing)
    }

    /// Returns a deployment's packages beyond these layers: a manual change.
    pub fn beyond(&self, local: &LocalPackages) -> LocalPackages {
        let own = self.packages().unwrap_or_default();
        let gap = self.kernel.gap();
        let requested = local.requested.difference(&own).cloned().collect();
        let removed = local.removed.iter().filter(|name| !gap.contains(&name.as_str())).cloned().collect();
        LocalPackages { requested, removed, replaced: local.replaced.clone() }
    }

    /// Returns the smallest change that brings these layers to a deployment.
    ///
    /// Another kernel is given up only when both its packages and the gap they fill are there (MCD-197): one without
    /// the other is a manual hotfix.
    pub fn change(
        &self,
        local: &LocalPackages,
        architecture: Architecture,
    ) -> Result<LayerChange, ModelError> {
        if let Some(Obstacle { cause, .. }) = self.kernel.obstacle(architecture) {
            return Err(ModelError::Layers { cause });
        }
        let desired = self.packages()?;
        let gap: BTreeSet<String> = self.kernel.gap().iter().map(|name| (*name).to_owned()).collect();
        let mut own: BTreeSet<&str> =
            EXTENSIONS.iter().flat_map(|(_, packages)| *packages).copied().collect();
        let removed: BTreeSet<&String> = local.removed.iter().filter(|name| is_kernel(name)).collect();
        let kernels: BTreeSet<&str> =
            local.requested.iter().map(String::as_str).filter(|name| is_other_kernel(name)).collect();
        let switched = !removed.is_empty() && !kernels.is_empty();
        if switched {
            own.extend(kernels);
        }
        let surplus = |name: &&String| own.contains(name.as_str()) && !desired.contains(*name);
        let back = removed.into_iter().filter(|name| switched && !gap.contains(*name));
        Ok(LayerChange {
            install: desired.difference(&local.requested).cloned().collect(),
            uninstall: local.requested.iter().filter(surplus).cloned().collect(),
            remove: gap.difference(&local.removed).cloned().collect(),
            reset: back.cloned().collect(),
        })
    }
}

impl KernelType {
    /// The packages of the kernel, if it is layered.
    fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Realtime => &REALTIME,
            Self::Pages64k => &PAGES_64K,
        }
    }

    /// The packages that make room for it.
    pub(super) fn gap(self) -> &'static [&'static str] {
        match self {
            Self::Default => &[],
            Self::Realtime | Self::Pages64k => &DEFAULT_KERNEL,
        }
    }
}

fn is_kernel(name: &str) -> bool {
    name == "kernel" || name.starts_with("kernel-")
}

/// Returns true for a package of a kernel that is layered.
pub(crate) fn is_other_kernel(name: &str) -> bool {
    OTHER_KERNELS.iter().any(|begin| name.starts_with(begin))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn layers(kernel: KernelType, extensions: &[&str]) -> Layers {
        Layers { kernel, extensions: set(extensions) }
    }

    fn local(requested: &[&str], removed: &[&str]) -> LocalPackages {
        LocalPackages { requested: set(requested), removed: set(removed), ..LocalPackages::default() }
    }

    fn change(desired: &Layers, local: &LocalPackages) -> LayerChange {
        desired.change(local, Architecture::Arm64).unwrap()
    }

    /// MCD-199: the smallest sets, sorted; of the present packages only managed ones go.
    #[test]
    fn extensions_are_smallest_change() {
        let desired = layers(KernelType::Default, &["usbguard", "kerberos"]);
        let there = local(&["vim", "sysstat", "usbguard", "pcs"], &[]);
        let found = change(&desired, &there);
        assert_eq!(found.install.iter().collect::<Vec<_>>(), ["krb5-workstation", "libkadm5"]);
        assert_eq!(found.uninstall.iter().collect::<Vec<_>>(), ["pcs", "sysstat"]);
        assert!(found.remove.is_empty() && found.reset.is_empty());
        assert!(
            change(&desired, &local(&["usbguard", "krb5-workstation", "libkadm5", "vim"], &[])).is_empty()
        );
        assert!(change(&layers(KernelType::Default, &[]), &local(&["vim"], &["nano"])).is_empty());
    }

    /// MCD-200: an unknown extension is named, and nothing is requested.
    #[test]
    fn unknown_extensions_are_refused() {
        let error = layers(KernelType::Default, &["usbguard", "cowsay"]).packages().unwrap_err();
        assert!(error.to_string().contains("invalid extensions found: cowsay; there are ipsec"), "{error}");
    }

    /// MCD-195: removed and installed packages, for both kernels.
    #[test]
    fn another_kernel_replaces_images() {
        let found = change(&layers(KernelType::Realtime, &[]), &local(&[], &[]));
        let gap = ["kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra"];
        assert_eq!(found.remove, set(&gap));
        assert_eq!(found.install, set(&["kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-extra"]));
        assert!(found.reset.is_empty() && found.uninstall.is_empty());
        let pages = change(&layers(KernelType::Pages64k, &[]), &local(&[], &[]));
        assert_eq!(pages.remove, set(&gap));
        let names =
            ["kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"];
        assert_eq!(pages.install, set(&names));
        // From one to the other the gap stays as it is.
        let other = change(&layers(KernelType::Pages64k, &[]), &local(&REALTIME, &DEFAULT_KERNEL));
        assert_eq!((other.install, other.uninstall), (set(&names), set(&REALTIME)));
        assert!(other.remove.is_empty() && other.reset.is_empty());
    }

    /// MCD-196: there is no such kernel elsewhere.
    #[test]
    fn large_pages_are_for_arm() {
        let desired = layers(KernelType::Pages64k, &[]);
        let error = desired.change(&local(&[], &[]), Architecture::Other).unwrap_err();
        assert!(error.to_string().contains("64k-pages is only supported for aarch64"), "{error}");
    }

    /// MCD-197, MCD-198: back to the image's own kernel is a reset and nothing else; half of a switch is left alone.
    #[test]
    fn reset_restores_image_kernel() {
        let default = layers(KernelType::Default, &["sysstat"]);
        let there =
            local(&["kernel-rt-core", "kernel-rt-kvm", "sysstat", "vim"], &["kernel", "kernel-core", "nano"]);
        let found = change(&default, &there);
        assert_eq!(found.reset, set(&["kernel", "kernel-core"]));
        assert_eq!(found.uninstall, set(&["kernel-rt-core", "kernel-rt-kvm"]));
        assert!(found.install.is_empty() && found.remove.is_empty());
        for half in [local(&["kernel-rt-core", "sysstat"], &[]), local(&["sysstat"], &["kernel"])] {
            assert!(change(&default, &half).is_empty(), "{half:?}");
        }
    }

    /// MCD-258: of packages and overrides those are counted that no config requests, a kernel's and an extension's own not.
    #[test]
    fn unrequested_packages_are_found() {
        let desired = layers(KernelType::Realtime, &["usbguard"]);
        let mut there = local(&["usbguard", "kernel-rt-core", "vim"], &["kernel", "kernel-core", "nano"]);
        there.replaced = set(&["podman"]);
        let found = desired.beyond(&there);
        assert_eq!((found.count(), desired.beyond(&LocalPackages::default()).count()), (3, 0));
        assert_eq!(
            (found.requested, found.removed, found.replaced),
            (set(&["vim"]), set(&["nano"]), set(&["podman"]))
        );
    }

    #[test]
    fn older_sets_of_packages_are_whole() {
        let desired = layers(KernelType::Realtime, &["ipsec"]);
        let there = local(&["libreswan", "NetworkManager-libreswan", "kernel-rt-core"], &[]);
        assert_eq!(desired.missing(&there).unwrap(), set(&["kernel-rt-modules", "kernel-rt-modules-extra"]));
    }
}
