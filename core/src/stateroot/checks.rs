//! Reasons of a host to refuse a seed: those that lifecycle-agent compares, as far as a node can see them.

use serde::Serialize;

use super::{ClusterInfo, Seed, Version};

/// Traits of this host.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostTraits {
    /// Its kernel is in FIPS mode.
    pub fips: bool,
    /// Its cluster uses proxies.
    pub proxy: bool,
    /// Its cluster trusts authorities of its administrators.
    pub trust_bundle: bool,
    /// Mount point of its container storage; empty when it is no file system of its own.
    pub container_storage: String,
}

/// One reason why a seed is not taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Refusal {
    /// The difference.
    pub field: &'static str,
    /// How, and what to do.
    pub message: String,
}

/// Returns every reason why this host can't take the seed; none when it can. What a seed does not say is not compared.
pub fn refusals(seed: &Seed, requested: Option<&Version>, host: &HostTraits) -> Vec<Refusal> {
    let ClusterInfo { version: _, proxy, fips, trust_bundle, container_storage } = &seed.cluster;
    let mut found = Vec::new();
    if let Some(requested) = requested.filter(|requested| **requested != seed.version) {
        let message = format!(
            "the seed is of version {}, not {requested}; name its version, or another seed",
            seed.version
        );
        found.push(Refusal { field: "version", message });
    }
    let traits = [
        ("fips", *fips, host.fips, "is in FIPS mode", "is not in FIPS mode"),
        ("proxy", *proxy, host.proxy, "uses a proxy", "uses no proxy"),
        (
            "trustBundle",
            *trust_bundle,
            host.trust_bundle,
            "has a trust bundle of its own",
            "has no trust bundle of its own",
        ),
    ];
    for (field, seed, host, is, is_not) in traits {
        let words = |yes: bool| if yes { is } else { is_not };
        if let Some(seed) = seed.filter(|seed| *seed != host) {
            let message = format!(
                "the cluster of the seed {}, this host's {}; make the seed on a cluster that is like this one",
                words(seed),
                words(host)
            );
            found.push(Refusal { field, message });
        }
    }
    if let Some(seed) = container_storage.as_ref().filter(|seed| **seed != host.container_storage) {
        let words = |at: &str| if at.is_empty() { "in /var".to_owned() } else { format!("mounted at {at}") };
        let message = format!(
            "the container storage of the seed was {}, this host's is {}; make the seed on a host that is like this one",
            words(seed),
            words(&host.container_storage)
        );
        found.push(Refusal { field: "containerStorage", message });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stateroot::Layout;

    fn seed(cluster: ClusterInfo) -> Seed {
        let version = Version::new("4.17.2").unwrap();
        Seed { layout: Layout::Classic, version, cluster, document: serde_json::Map::new() }
    }

    /// LCA-003: another version than the requested one is refused; without a request any is taken.
    #[test]
    fn wrong_version_is_refused() {
        let seed = seed(ClusterInfo::default());
        let host = HostTraits::default();
        assert_eq!(refusals(&seed, None, &host), []);
        assert_eq!(refusals(&seed, Some(&seed.version), &host), []);
        let found = refusals(&seed, Some(&Version::new("4.17.3").unwrap()), &host);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].field, "version");
        assert!(found[0].message.contains("4.17.2") && found[0].message.contains("4.17.3"), "{found:?}");
    }

    #[test]
    fn each_difference_of_the_clusters_is_named() {
        let all = ClusterInfo {
            version: None,
            proxy: Some(true),
            fips: Some(true),
            trust_bundle: Some(true),
            container_storage: Some("/var/lib/containers".to_owned()),
        };
        let fields = |host: &HostTraits| {
            refusals(&seed(all.clone()), None, host).into_iter().map(|found| found.field).collect::<Vec<_>>()
        };
        assert_eq!(fields(&HostTraits::default()), ["fips", "proxy", "trustBundle", "containerStorage"]);
        let same = HostTraits {
            fips: true,
            proxy: true,
            trust_bundle: true,
            container_storage: "/var/lib/containers".to_owned(),
        };
        assert_eq!(fields(&same), [""; 0]);
        // What the seed does not say is not compared.
        assert_eq!(refusals(&seed(ClusterInfo::default()), None, &same), []);
    }
}
