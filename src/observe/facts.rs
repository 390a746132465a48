//! What a plan needs to know beyond the two specs.

use std::collections::BTreeSet;

use crate::host::{Credentials, Host, HostError, Root, saved};
use crate::model::image::Transport;
use crate::model::observation::{Carries, FipsSeen, OsSeen};
use crate::model::{Facts, FileSeen, HostSpec, ManagedPath};

use super::{ObserveError, observe, paths};

const FIPS: &str = "/proc/sys/crypto/fips_enabled";

/// Looks at the host, and asks the OS backend what the target image carries when it is not the one that runs.
pub async fn facts(host: &Host, from: &HostSpec, to: &HostSpec) -> Result<Facts, ObserveError> {
    let root = &host.root;
    let specs = [from, to];
    let seen = observe(host, &specs).await?;
    let paths = paths(&specs);
    let pulls = to.effective_image().is_some_and(|image| image.transport() == Transport::Registry);
    let credentials = if pulls { Credentials::pick(root, to) } else { Ok(None) };
    let credentials = credentials.map_err(ObserveError::of("the pull secret"))?;
    let carries = match (&to.image, seen.os.booted()) {
        (None, _) => Carries::Unknown,
        (Some(wanted), Some(booted))
            if booted.image.as_ref().is_some_and(|one| one.digest() == wanted.digest()) =>
        {
            booted.carries.clone()
        }
        (Some(wanted), _) => {
            let json = credentials.as_ref().map(|credentials| &credentials.json);
            host.os.preflight(wanted, json).await.map_err(ObserveError::of("the target image"))?.carries
        }
    };
    let local = match seen.os {
        OsSeen::NotImageBased => BTreeSet::new(),
        OsSeen::Deployments { .. } => {
            chosen(&paths, "the local changes", |path| differs_from_image(root, path, seen.files.get(path)))?
        }
    };
    let unmanaged_soon: BTreeSet<_> = from.written().into_keys().collect();
    Ok(Facts {
        carries,
        pull_secret: credentials.map(|credentials| credentials.path),
        local,
        under_var: chosen(&paths, "the directories", |path| {
            Ok(root.real_path(path.as_str())?.starts_with("/var/"))
        })?,
        restorable: chosen(&unmanaged_soon, "the originals", |path| {
            saved::original(root, path).map(|original| original.is_some())
        })?,
        fips: fips(root)?,
        seen,
    })
}

fn chosen(
    paths: &BTreeSet<ManagedPath>,
    object: &'static str,
    is: impl Fn(&ManagedPath) -> Result<bool, HostError>,
) -> Result<BTreeSet<ManagedPath>, ObserveError> {
    let mut chosen = BTreeSet::new();
    for path in paths {
        if is(path).map_err(ObserveError::of(object))? {
            chosen.insert(path.clone());
        }
    }
    Ok(chosen)
}

/// Says whether the live version differs from the booted image's own: the ostree merge keeps it then.
fn differs_from_image(root: &Root, path: &ManagedPath, live: Option<&FileSeen>) -> Result<bool, HostError> {
    let Some(below) = path.as_str().strip_prefix("/etc/") else { return Ok(false) };
    let own = root.seen(&format!("/usr/etc/{below}"))?;
    Ok(live != Some(&own))
}

fn fips(root: &Root) -> Result<FipsSeen, ObserveError> {
    let text = root.read_text(FIPS).map_err(ObserveError::of("the FIPS mode"))?;
    Ok(match text.as_deref().map(str::trim) {
        Some("1") => FipsSeen::On,
        Some("0") => FipsSeen::Off,
        Some(_) | None => FipsSeen::Unknown,
    })
}
