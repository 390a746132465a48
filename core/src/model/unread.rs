//! Entries of a directory of manifests that are not read: each is named, so that no file is left out in silence.

/// Endings of files that are read, in any case.
const READ: [&str; 3] = ["yaml", "yml", "json"];

/// The most entries that are named.
const MAX_NAMED: usize = 100;

/// Returns why a file is not read, by its name; `None` for one that is.
pub fn unread_file(name: &str) -> Option<&'static str> {
    if name.starts_with('.') {
        return Some("it is hidden; rename it to have it read");
    }
    let ending = name.rsplit_once('.').map_or("", |(_, ending)| ending).to_ascii_lowercase();
    match ending.as_str() {
        ending if READ.contains(&ending) => None,
        "bu" => Some(
            "it is a Butane config; run `butane FILE`: with `variant: openshift` it prints a MachineConfig, otherwise put its output below spec.config of one",
        ),
        "ign" => Some("it is an Ignition config; put it below spec.config of a MachineConfig"),
        "gz" | "xz" | "zst" | "bz2" | "tar" | "zip" => Some("it is packed; unpack it"),
        _ => Some("its name does not end with .yaml, .yml or .json; rename it to have it read"),
    }
}

/// The cause of a directory in a directory.
pub const DIRECTORY: &str = "it is a directory; pass it with --manifests, or move its files up";

/// Returns true for an entry that is none of a person: the kubelet makes these in the volume of a `ConfigMap`.
pub fn is_of_volume(name: &str) -> bool {
    name.starts_with("..")
}

/// Returns the entries that are not read, each with its cause; the last one says how many more there are.
pub fn unread(mut entries: Vec<(String, &'static str)>) -> Vec<String> {
    entries.sort();
    let more = entries.len().saturating_sub(MAX_NAMED);
    let named = entries.into_iter().take(MAX_NAMED);
    let named = named.map(|(path, cause)| format!("{path} is not read: {cause}"));
    named.chain((more > 0).then(|| format!("{more} more entries are not read"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_not_read_are_named_within_bounds() {
        for name in ["a.yaml", "a.YAML", "a.Yml", "a.b.JSON", "a~.yaml"] {
            assert_eq!(unread_file(name), None, "{name}");
        }
        for (name, words) in [
            ("a.txt", "does not end with"),
            ("a", "does not end with"),
            ("a.yaml~", "does not end with"),
            ("yaml", "does not end with"),
            ("a.yaml.gz", "unpack"),
            ("a.bu", "Butane"),
            ("a.IGN", "Ignition"),
            (".a.yaml", "hidden"),
            (".a.yaml.swp", "hidden"),
            (".#a.yaml", "hidden"),
        ] {
            assert!(unread_file(name).is_some_and(|cause| cause.contains(words)), "{name}");
        }
        assert!(is_of_volume("..data") && !is_of_volume(".a"));
        let flood = unread((0..150).map(|at| (format!("{at:03}"), DIRECTORY)).collect());
        assert_eq!((flood.len(), flood[100].as_str()), (101, "50 more entries are not read"));
        assert_eq!(flood[0], format!("000 is not read: {DIRECTORY}"));
    }
}
