//! Traits of this host with which a seed is compared.

use super::ObserveError;
use crate::host::Root;
use crate::stateroot::HostTraits;

/// File that says whether the kernel is in FIPS mode.
const FIPS: &str = "/proc/sys/crypto/fips_enabled";

/// The proxies of a node of OpenShift, and the authorities that its administrators trust.
const PROXIES: &str = "/etc/mco/proxy.env";
const TRUST_BUNDLE: &str = "/etc/pki/ca-trust/source/anchors/openshift-config-user-ca-bundle.crt";

/// The containers' images and layers.
const CONTAINER_STORAGE: &str = "/var/lib/containers";

/// Looks at the host.
pub fn host_traits(root: &Root) -> Result<HostTraits, ObserveError> {
    let text = |path: &'static str| {
        root.read_text(path).map(Option::unwrap_or_default).map_err(ObserveError::wrap(path))
    };
    let proxies = text(PROXIES)?;
    let sets_proxy = |line: &str| {
        let value = ["HTTP_PROXY=", "HTTPS_PROXY="].iter().find_map(|name| line.trim().strip_prefix(name));
        value.is_some_and(|value| !value.trim_matches(['"', '\'', ' ']).is_empty())
    };
    let mounts = text("/proc/self/mountinfo")?;
    let is_mounted = mounts.lines().any(|line| line.split(' ').nth(4) == Some(CONTAINER_STORAGE));
    Ok(HostTraits {
        fips: text(FIPS)?.trim() == "1",
        proxy: proxies.lines().any(sets_proxy),
        trust_bundle: root.exists(TRUST_BUNDLE).map_err(ObserveError::wrap(TRUST_BUNDLE))?,
        container_storage: if is_mounted { CONTAINER_STORAGE.to_owned() } else { String::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::FileMode;

    #[test]
    fn traits_are_read_from_files() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(host_traits(&root).unwrap(), HostTraits::default());
        let put = |path: &str, text: &str| {
            root.create_dir(path.rsplit_once('/').unwrap().0, FileMode::DEFAULT).unwrap();
            root.replace(path, text.as_bytes(), FileMode::DEFAULT).unwrap();
        };
        put(FIPS, "0\n");
        put(PROXIES, "# no proxy\nHTTP_PROXY=\nNO_PROXY=a\n");
        put("/proc/self/mountinfo", "1 2 0:3 / /var/lib/containers/storage rw - xfs /dev/x rw\n");
        assert_eq!(host_traits(&root).unwrap(), HostTraits::default());
        put(FIPS, "1\n");
        put(PROXIES, "HTTPS_PROXY=http://proxy.test:3128\n");
        put(TRUST_BUNDLE, "x");
        put("/proc/self/mountinfo", "1 2 0:3 / /var/lib/containers rw - xfs /dev/x rw\n");
        let expected = HostTraits {
            fips: true,
            proxy: true,
            trust_bundle: true,
            container_storage: CONTAINER_STORAGE.to_owned(),
        };
        assert_eq!(host_traits(&root).unwrap(), expected);
    }
}
