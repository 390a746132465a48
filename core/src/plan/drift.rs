//! Drift of an idle host beyond the verification of an update: the deployment of the next boot, and stray links; the
//! part that an update would build on; and the contents that may be shown of a difference.

use super::Plan;
use super::difference::difference;
use super::differences::{Difference, DifferenceKind, Kind, differences, strays};
use super::explain::text_diff;
use super::warnings::is_gone_with_boot;
use crate::model::image::PULL_SECRETS;
use crate::model::observation::{ObservedOs, Staged};
use crate::model::{FileSpec, HostSpec, ImageRef, ManagedPath, Observation, ObservedFile};

/// Text that is never shown wherever it turns up: private keys, registry credentials, and password hashes of crypt(5)
/// as hosts have them.
const SECRETS: [&str; 7] = ["PRIVATE KEY-----", "\"auth\":", "\"auths\":", ":$y$", ":$6$", ":$5$", ":$2b$"];

/// Returns the links beyond what the units of a spec ask for: a host that is brought to it has none of them.
pub fn stray_links(spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    let mut found = Vec::new();
    for name in spec.units.keys() {
        let link = |link: &ManagedPath| {
            let (desired, found) = ("only links that it requests", format!("the link {link}"));
            difference(Kind::Unit, name, DifferenceKind::Enablement, &desired, &found)
        };
        found.extend(strays(spec, name, observed).into_iter().map(link));
    }
    found
}

/// Returns every difference of an idle host. Those without meaning for an update under way come last.
pub fn drift(spec: &HostSpec, observed: &Observation) -> Vec<Difference> {
    let mut found = differences(spec, observed);
    found.extend(stray_links(spec, observed));
    if let ObservedOs::Deployments { booted, staged, next } = &observed.os {
        let running = format!("the running deployment {}", booted.deployment);
        let other = |word: &str, os: &Staged| {
            let image = os.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
            let other = format!("{word} {} from {image}, which this agent did not request", os.deployment);
            difference(Kind::Image, &"of the next boot", DifferenceKind::Unexpected, &running, &other)
        };
        // The same image with other arguments or packages is an administrator's business, and so are manually layered packages:
        // hotfixes are installed so. `status` names them.
        let digest = |image: &Option<ImageRef>| image.as_ref().map(ImageRef::digest);
        let foreign = staged.iter().filter(|os| digest(&os.image) != digest(&booted.image));
        found.extend(foreign.map(|os| other("the staged deployment", os)));
        found.extend(next.iter().map(|os| other("the deployment", os)));
    }
    found
}

/// Returns the drift that an update would build on: the new config does not want it either, and no step of the plan
/// goes there. A file that a user of the node removed must not keep a config from letting it go.
pub fn unresolved(from: &HostSpec, to: &HostSpec, observed: &Observation, plan: &Plan) -> Vec<Difference> {
    let desired = differences(to, observed);
    let stays = |drift: &Difference| {
        let same = |other: &Difference| {
            (other.kind, &other.target, other.what) == (drift.kind, &drift.target, drift.what)
        };
        desired.iter().any(same) && !plan.mends(drift) && !is_gone_with_boot(drift)
    };
    differences(from, observed).into_iter().filter(stays).collect()
}

/// Returns the shown part of contents that differ: a bounded unified diff; of secrets only the lengths.
pub fn diff(path: &str, desired: &FileSpec, found: &ObservedFile, bytes: &[u8]) -> String {
    let private = match found {
        ObservedFile::Regular { mode, .. } => mode & 0o004 == 0,
        ObservedFile::Absent
        | ObservedFile::Symlink { .. }
        | ObservedFile::Directory { .. }
        | ObservedFile::Special
        | ObservedFile::Unreachable => true,
    };
    let looks_secret = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        SECRETS.iter().any(|mark| text.contains(mark))
    };
    let secret = desired.is_secret()
        || private
        || PULL_SECRETS.contains(&path)
        || looks_secret(desired.contents.bytes())
        || looks_secret(bytes);
    text_diff(desired.contents.bytes(), bytes, secret)
}
