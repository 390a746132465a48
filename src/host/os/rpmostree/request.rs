//! The next request to rpm-ostree: decided from the desired and the observed state, and nothing else.
//!
//! Invariants: state that is reached already is not requested again, so an interrupted request continues where it was;
//! and the same request is equal byte by byte, so that a repeated call joins the transaction that runs.

use std::collections::BTreeSet;

use crate::host::os::StageRequest;
use crate::model::image::Transport;
use crate::model::layers::{Architecture, LayerChange};
use crate::model::{ImageRef, Karg, ModelError};

use super::deployments::{Deployment, State};

/// Prefix of every command line of ours: rpm-ostree shows it as the transaction's title, and by it an agent
/// knows the transactions of its predecessor.
pub(super) const OURS: &str = "machine-config-agent: ";

/// The next transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// None: the next boot's deployment is the desired one.
    Nothing,
    /// The pending deployment is not the desired one.
    DropPending,
    /// Image, kernel and extensions, in one.
    Update(Update),
    /// The kernel arguments.
    Kargs {
        /// The line, as it stands.
        existing: String,
        /// The line that is desired.
        desired: String,
    },
}

/// `UpdateDeployment` with its modifiers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Update {
    /// `set-refspec`; `None` keeps the image.
    pub(super) refspec: Option<String>,
    /// The packages.
    pub(super) layers: LayerChange,
    /// `initiating-command-line`. No time, no number: the daemon joins calls that are equal.
    pub(super) title: String,
}

/// Decides.
pub(super) fn next(request: &StageRequest, state: &State) -> Result<Next, ModelError> {
    let (Some(booted), Some(first)) = (state.booted(), state.deployments.first()) else {
        return Ok(Next::Nothing);
    };
    let line = Karg::changed(state.booted_kargs.clone(), &request.delete_kargs, &request.append_kargs);
    let kept = first.is_booted || (first.is_staged && is_desired(request, booted, first)?);
    if !kept {
        return Ok(Next::DropPending);
    }
    let layers = change(request, first)?;
    let refspec = request.image.as_ref().filter(|desired| !first.is_of(desired)).map(refspec);
    if refspec.is_some() || !layers.is_empty() {
        return Ok(Next::Update(Update { title: title(request), refspec, layers }));
    }
    if state.next_kargs == line {
        return Ok(Next::Nothing);
    }
    let words: Vec<&str> = line.iter().map(Karg::as_str).collect();
    Ok(Next::Kargs { existing: state.next_line.clone(), desired: words.join(" ") })
}

/// Returns true if a deployment has the image and the packages; kernel arguments are another matter.
fn is_desired(request: &StageRequest, booted: &Deployment, staged: &Deployment) -> Result<bool, ModelError> {
    let image = match &request.image {
        Some(desired) => staged.is_of(desired),
        None => staged.base == booted.base,
    };
    let layers = match &request.layers {
        Some(_) => change(request, staged)?.is_empty(),
        None => staged.local == booted.local,
    };
    Ok(image && layers)
}

fn change(request: &StageRequest, deployment: &Deployment) -> Result<LayerChange, ModelError> {
    let change = request.layers.as_ref().map(|layers| layers.change(&deployment.local, Architecture::HERE));
    Ok(change.transpose()?.unwrap_or_default())
}

/// Returns the desired packages that a deployment does not request (MCD-201).
pub(super) fn missing(
    request: &StageRequest,
    deployment: &Deployment,
) -> Result<BTreeSet<String>, ModelError> {
    let missing = request.layers.as_ref().map(|layers| layers.missing(&deployment.local));
    Ok(missing.transpose()?.unwrap_or_default())
}

/// The reference, in the one spelling that is always used: rpm-ostree compares them as texts (MCD-188).
pub(super) fn refspec(image: &ImageRef) -> String {
    let digest = image.digest();
    match image.transport() {
        Transport::Registry => format!("ostree-unverified-registry:{}@sha256:{digest}", image.name()),
        Transport::OciDirectory => format!("ostree-unverified-image:oci:{}@sha256:{digest}", image.name()),
    }
}

fn title(request: &StageRequest) -> String {
    let image = request.image.as_ref().map(ToString::to_string);
    let layers = request.layers.as_ref().map(ToString::to_string);
    let parts: Vec<String> = image.into_iter().chain(layers).collect();
    format!("{OURS}{}", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::observation::LocalPackages;
    use crate::model::os::{KernelType, Layers};

    fn image(name: &str, digit: char) -> ImageRef {
        ImageRef::parse(&format!("{name}@sha256:{}", digit.to_string().repeat(64))).unwrap()
    }

    /// containers/image refuses a tag beside a digest.
    #[test]
    fn refspec_has_no_tag_beside_digest() {
        let tagged = refspec(&image("r.test:5000/os:4.17", '1'));
        assert_eq!(tagged, refspec(&image("r.test:5000/os", '1')));
        assert!(tagged.starts_with("ostree-unverified-registry:r.test:5000/os@sha256:"), "{tagged}");
    }

    fn deployment(digit: char, packages: &[&str]) -> Deployment {
        let requested = packages.iter().map(|name| (*name).to_owned()).collect();
        Deployment {
            id: format!("os-{digit}.0"),
            base: digit.to_string(),
            image: Some(image("r.test/os", digit)),
            local: LocalPackages { requested, ..LocalPackages::default() },
            ..Deployment::default()
        }
    }

    fn booted(digit: char, packages: &[&str]) -> Deployment {
        Deployment { is_booted: true, ..deployment(digit, packages) }
    }

    fn staged(digit: char, packages: &[&str]) -> Deployment {
        Deployment { is_staged: true, ..deployment(digit, packages) }
    }

    fn state(deployments: Vec<Deployment>, next: &str) -> State {
        State {
            deployments,
            booted_kargs: Karg::split("rw quiet"),
            next_kargs: Karg::split(next),
            next_line: format!("{next} ostree=/ostree/boot.0/os/0/0"),
        }
    }

    fn wants(digit: char) -> StageRequest {
        StageRequest { image: Some(image("r.test/os", digit)), ..StageRequest::default() }
    }

    fn extensions(names: &[&str]) -> Layers {
        Layers { kernel: KernelType::Default, extensions: names.iter().map(|n| (*n).to_owned()).collect() }
    }

    /// MCD-188: the reference is spelled as MCD does, by digest, in one call with the packages.
    #[test]
    fn image_and_packages_are_one_transaction() {
        let request = StageRequest { layers: Some(extensions(&["usbguard"])), ..wants('2') };
        let Next::Update(update) =
            next(&request, &state(vec![booted('1', &["sysstat", "vim"])], "rw quiet")).unwrap()
        else {
            panic!()
        };
        assert_eq!(
            update.refspec,
            Some(format!("ostree-unverified-registry:r.test/os@sha256:{}", "2".repeat(64)))
        );
        assert_eq!(update.layers.install.iter().collect::<Vec<_>>(), ["usbguard"]);
        assert_eq!(update.layers.uninstall.iter().collect::<Vec<_>>(), ["sysstat"]);
        assert!(
            update.title.starts_with(OURS) && update.title.contains("extensions usbguard"),
            "{}",
            update.title
        );
    }

    /// CRA-003: staged by an earlier attempt that was cut short: only the arguments are left to do.
    #[test]
    fn staged_request_is_kept() {
        let request = StageRequest { append_kargs: Karg::split("a=1"), ..wants('2') };
        let there = state(vec![staged('2', &[]), booted('1', &[])], "rw quiet");
        let Next::Kargs { existing, desired } = next(&request, &there).unwrap() else { panic!() };
        assert_eq!(
            (existing.as_str(), desired.as_str()),
            ("rw quiet ostree=/ostree/boot.0/os/0/0", "rw quiet a=1")
        );
        let there = state(vec![staged('2', &[]), booted('1', &[])], "rw quiet a=1");
        assert_eq!(next(&request, &there).unwrap(), Next::Nothing);
    }

    /// OST-007, MCD-187: another pending deployment of an earlier attempt goes first.
    #[test]
    fn other_pending_deployments_go_first() {
        for first in [staged('3', &[]), staged('2', &["vim"]), deployment('2', &[])] {
            let there = state(vec![first, booted('1', &[])], "rw quiet");
            assert_eq!(next(&wants('2'), &there).unwrap(), Next::DropPending);
        }
    }

    /// MCD-191, OST-009: an image that is booted already, by any name, is not requested.
    #[test]
    fn booted_image_needs_nothing() {
        let mirror = StageRequest { image: Some(image("mirror.test/os", '1')), ..StageRequest::default() };
        assert_eq!(next(&mirror, &state(vec![booted('1', &[])], "rw quiet")).unwrap(), Next::Nothing);
    }

    /// MCD-192, MCD-193: one line, duplicates and quotes as requested, in order.
    #[test]
    fn arguments_are_one_line() {
        let request = StageRequest {
            delete_kargs: Karg::split("quiet"),
            append_kargs: Karg::split("b a=\"x y\" b"),
            ..StageRequest::default()
        };
        let Next::Kargs { desired, .. } =
            next(&request, &state(vec![booted('1', &["vim"])], "rw quiet")).unwrap()
        else {
            panic!()
        };
        assert_eq!(desired, "rw b a=\"x y\" b");
    }

    /// MCD-200: refused before anything is requested.
    #[test]
    fn unknown_extensions_ask_for_nothing() {
        let request = StageRequest { layers: Some(extensions(&["cowsay"])), ..wants('2') };
        assert!(next(&request, &state(vec![booted('1', &[])], "rw")).is_err());
    }
}
