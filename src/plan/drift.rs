//! What drifts on an idle host beyond what an update is verified by: what the next boot would run, and packages that
//! somebody layered; and what may be shown of contents that differ.

use super::differences::{Difference, Kind, What, difference, differences};
use super::explain::text_diff;
use crate::model::image::PULL_SECRETS;
use crate::model::observation::{LocalPackages, OsSeen, Staged};
use crate::model::os::KernelType;
use crate::model::{FileSeen, FileSpec, HostSpec, Observation};

/// What is never shown wherever it turns up: private keys, registry credentials, and password hashes of crypt(5) as
/// hosts have them.
const SECRETS: [&str; 7] = ["PRIVATE KEY-----", "\"auth\":", "\"auths\":", ":$y$", ":$6$", ":$5$", ":$2b$"];

/// Returns every difference of an idle host. What is of no concern to an update under way comes last.
pub fn drift(spec: &HostSpec, seen: &Observation) -> Vec<Difference> {
    let mut found = differences(spec, seen);
    if let OsSeen::Deployments { booted, staged, next } = &seen.os {
        let running = format!("the running deployment {}", booted.deployment);
        let other = |word: &str, os: &Staged| {
            let image = os.image.as_ref().map_or("no image".to_owned(), ToString::to_string);
            let other = format!("{word} {} from {image}, which this agent did not ask for", os.deployment);
            difference(Kind::Image, &"of the next boot", What::Unexpected, &running, &other)
        };
        found.extend(staged.iter().map(|os| other("the staged deployment", os)));
        found.extend(next.iter().map(|os| other("the deployment", os)));
        found.extend(packages(spec, &booted.local));
    }
    found
}

/// Returns the packages that no config asked for. Which packages a kernel or an extension consists of is the
/// distribution's business: where one is wanted, what it can have brought is let be.
fn packages(spec: &HostSpec, local: &LocalPackages) -> Option<Difference> {
    let (kernel, plain) = (spec.kernel_type != KernelType::Default, spec.extensions.is_empty());
    let list = |word: &str, names: &mut dyn Iterator<Item = &String>| {
        let names: Vec<&str> = names.map(String::as_str).collect();
        (!names.is_empty()).then(|| format!("{word} {}", names.join(" ")))
    };
    let by_hand = |name: &&String| plain && !(kernel && name.starts_with("kernel"));
    let found: Vec<String> = [
        list("layered", &mut local.requested.iter().filter(by_hand)),
        list("removed", &mut local.removed.iter().filter(|_| !kernel)),
        list("replaced", &mut local.replaced.iter().filter(|_| !kernel)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let wanted = "the packages of the image";
    let other = || difference(Kind::Image, &"packages", What::Unexpected, &wanted, &found.join(", "));
    (!found.is_empty()).then(other)
}

/// Returns what may be shown of contents that differ: a bounded unified diff; of secrets only the lengths.
pub fn diff(path: &str, wanted: &FileSpec, found: &FileSeen, bytes: &[u8]) -> String {
    let private = match found {
        FileSeen::Regular { mode, .. } => mode & 0o004 == 0,
        FileSeen::Absent | FileSeen::Symlink { .. } | FileSeen::Directory | FileSeen::Special => true,
    };
    let looks_secret = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        SECRETS.iter().any(|mark| text.contains(mark))
    };
    let secret = wanted.is_secret()
        || private
        || PULL_SECRETS.contains(&path)
        || looks_secret(wanted.contents.bytes())
        || looks_secret(bytes);
    text_diff(wanted.contents.bytes(), bytes, secret)
}
