//! Files that a builder lays its own over while a step runs: `apply` could not write them, so they are copied.

use std::collections::BTreeMap;

use machine_config_core::model::HostSpec;
use machine_config_core::model::files::Principal;

use super::archive::FILES;

/// Which, with the names of their contents among the build's files.
const BOUND: [(&str, &str); 3] =
    [("/etc/hostname", "hostname"), ("/etc/hosts", "hosts"), ("/etc/resolv.conf", "resolv.conf")];

/// Returns true if a builder lays its own file there.
pub(super) fn is_bound(path: &str) -> bool {
    BOUND.iter().any(|(bound, _)| *bound == path)
}

/// Returns the instructions that copy them, and adds their contents.
pub(super) fn copies(spec: &HostSpec, files: &mut BTreeMap<String, Vec<u8>>) -> Vec<String> {
    let named = |path: &str| BOUND.iter().find(|(bound, _)| *bound == path).map(|(_, name)| *name);
    let found = spec.files.iter().filter_map(|(path, file)| Some((path, file, named(path.as_str())?)));
    let copy = found.map(|(path, file, name)| {
        files.insert(name.to_owned(), file.contents.bytes().to_vec());
        let (user, group) = (principal(&file.owner.user), principal(&file.owner.group));
        format!("COPY --from={FILES} --chmod={} --chown={user}:{group} {name} {}", file.mode, path.as_str())
    });
    copy.collect()
}

fn principal(principal: &Principal) -> String {
    match principal {
        Principal::Id(id) => id.to_string(),
        Principal::Name(name) => name.clone(),
    }
}
