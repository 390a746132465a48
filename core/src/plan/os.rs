//! The steps of the OS: image, credentials for its pull, kernel and extensions.
//!
//! On a host that is not image-based there are none (MCD-207).

use super::differences::left_packages;
use super::input::PlanInput;
use super::{Mode, Op, Step, StepReason, kargs};
use crate::model::fixed::FIPS_FIELD;
use crate::model::layers::{Architecture, is_other_kernel};
use crate::model::observation::LocalPackages;
use crate::model::os::KernelType;
use crate::model::{HostSpec, ImageRef, Observation};

/// Cause and next step of a field of the OS on a host that has none.
pub(super) const NO_OS: &str = "this host has no OS backend (--os-backend none, or it does not boot images); remove the field \
                                from the configs of this host";

/// Returns the fields of the OS that a config sets and a host without one does not get.
pub(super) fn fields_without_os(
    spec: &HostSpec,
    observed: &Observation,
) -> impl Iterator<Item = &'static str> + use<> {
    let set = [
        ("spec.osImageURL", spec.os_image_url.is_some()),
        ("spec.kernelArguments", !spec.kargs.is_empty()),
        ("spec.kernelType", spec.kernel_type != KernelType::Default),
        ("spec.extensions", !spec.extensions.is_empty()),
        // Only the kernel could have it.
        (FIPS_FIELD, spec.fips && !observed.storage.contains(FIPS_FIELD)),
    ];
    let has_os = observed.os.booted().is_some();
    set.into_iter().filter(move |(_, is_set)| *is_set && !has_os).map(|(field, _)| field)
}

/// Returns the steps.
pub(super) fn steps(input: &PlanInput<'_>) -> Vec<Step> {
    let Some(booted) = input.facts.observed.os.booted() else { return Vec::new() };
    let mut steps = Vec::new();
    let digest = booted.image.as_ref().map(ImageRef::digest);
    if let Some(image) = input.from.image_after(input.to).filter(|image| Some(image.digest()) != digest) {
        steps.extend(pull_secret(input));
        let because = if digest.is_some() { StepReason::Changed } else { StepReason::Added };
        steps.push(Step { op: Op::StageOs { image: image.clone() }, because });
    }
    if input.to.image.is_none() {
        let layered = layered(input);
        // Their packages are pulled too.
        if steps.is_empty() && !layered.is_empty() && input.to.extensions_image.is_some() {
            steps.extend(pull_secret(input));
        }
        steps.extend(layered);
    }
    if !steps.is_empty() || kargs::steps(input).is_some() {
        steps.extend(dropped(input, &booted.local, &steps));
    }
    steps
}

/// The requests that the booted deployment has, and the next one must not have, where image mode is entered, kept or
/// left: rpm-ostree keeps a request until it is dropped. It then needs a repository for it, or, where the image has the
/// package, fails at the next change of arguments. Nothing is made for that alone: it goes with the next deployment.
fn dropped(input: &PlanInput<'_>, local: &LocalPackages, steps: &[Step]) -> Vec<Step> {
    let (from, to) = (input.from, input.to);
    if from.image.is_none() && to.image.is_none() {
        return Vec::new();
    }
    // Unknown names are refused where they are to be layered.
    let desired = to.host_layers();
    let change = desired.change(local, Architecture::HERE).unwrap_or_default();
    let because = if to.image.is_some() { StepReason::InImage } else { StepReason::Removed };
    let planned = |word: &str| steps.iter().any(|step| step.op.as_str() == word);
    let kernel = change.resets_kernel().then_some(Op::SwitchKernel { kernel: desired.kernel });
    let extensions = change
        .drops_extensions()
        .then(|| Op::InstallExtensions { extensions: desired.extensions.into_iter().collect() });
    let ops = kernel.into_iter().chain(extensions).filter(|op| !planned(op.as_str()));
    ops.map(|op| Step { op, because }).collect()
}

fn pull_secret(input: &PlanInput<'_>) -> Option<Step> {
    let path = input.facts.pull_secret.clone()?;
    Some(Step { op: Op::LinkPullSecret { path }, because: StepReason::Pull })
}

/// Outside image mode kernel and extensions are layered on the host; in image mode the image has them.
fn layered(input: &PlanInput<'_>) -> Vec<Step> {
    let (from, to) = (input.from, input.to);
    let leaves = input.mode == Mode::LeaveImage;
    let observed = &input.facts.observed;
    // Somebody has booted a deployment with the layers of an earlier config.
    let left = observed.os.booted().map(|booted| left_packages(to, booted, observed)).unwrap_or_default();
    let (kernels, packages): (Vec<_>, Vec<_>) = left.iter().partition(|name| is_other_kernel(name));
    let mut steps = Vec::new();
    if from.kernel_type != to.kernel_type
        || !kernels.is_empty()
        || (leaves && to.kernel_type != KernelType::Default)
    {
        let op = Op::SwitchKernel { kernel: to.kernel_type };
        steps.push(Step { op, because: StepReason::Changed });
    }
    if from.extensions != to.extensions || !packages.is_empty() || (leaves && !to.extensions.is_empty()) {
        let because = match (from.extensions.is_empty(), to.extensions.is_empty()) {
            (true, false) => StepReason::Added,
            (false, false) => StepReason::Changed,
            (_, true) => StepReason::Removed,
        };
        let op = Op::InstallExtensions { extensions: to.extensions.iter().cloned().collect() };
        steps.push(Step { op, because });
    }
    steps
}
