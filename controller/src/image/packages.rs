//! Extensions and another kernel, as steps of the build.
//!
//! The kernel type `default` keeps the base's kernel, whichever that is.

use std::collections::BTreeSet;

use machine_config_core::model::layers::Architecture;
use machine_config_core::model::observation::LocalPackages;
use machine_config_core::model::os::Layers;
use machine_config_core::model::{HostSpec, ModelError};

/// Mount point of the extensions image.
const EXTENSIONS: &str = "/tmp/mco-extensions/os-extensions-content";

/// The repository file; it goes with the step.
const REPOSITORY: &str = "/etc/yum.repos.d/coreos-extensions.repo";

/// Returns the instructions that bring the config's packages; none where it requests none.
pub(super) fn steps(spec: &HostSpec, extensions_image: Option<&str>) -> Result<Vec<String>, ModelError> {
    let Layers { kernel, extensions } = spec.layers();
    // Which processor the base is for is not known here: a base without such a kernel fails the step.
    let change = |layers: Layers| layers.change(&LocalPackages::default(), Architecture::Arm64);
    let extensions = change(Layers { kernel: Layers::default().kernel, extensions })?;
    let kernel = change(Layers { kernel, extensions: BTreeSet::new() })?;
    let mut steps = Vec::new();
    if !extensions.is_empty() {
        steps.push(step(&install(&extensions.install), extensions_image));
    }
    if !kernel.is_empty() {
        steps.push(step(&swap(&kernel.remove, &kernel.install), extensions_image));
    }
    Ok(steps)
}

/// One `RUN`, with the packages of the extensions image within reach.
fn step(script: &str, extensions_image: Option<&str>) -> String {
    let Some(image) = extensions_image else { return format!("RUN {script}") };
    let repository = format!(
        "printf '[coreos-extensions]\\nname=coreos-extensions\\nenabled=1\\ngpgcheck=0\\nbaseurl=file://{EXTENSIONS}/usr/share/rpm-ostree/extensions/\\n' >{REPOSITORY}"
    );
    format!(
        "RUN --mount=type=bind,from={image},target={EXTENSIONS} \\\n    {repository} && \\\n    {script} && \\\n    rm {REPOSITORY}"
    )
}

fn listed(names: &BTreeSet<String>) -> String {
    names.iter().cloned().collect::<Vec<_>>().join(" ")
}

fn install(packages: &BTreeSet<String>) -> String {
    let packages = listed(packages);
    either(&format!("rpm-ostree install {packages}"), &format!("dnf --assumeyes install {packages}"))
}

/// In one transaction: the image is never without a kernel.
fn swap(remove: &BTreeSet<String>, install: &BTreeSet<String>) -> String {
    let there = install.iter().find(|name| name.ends_with("-core")).map_or("", String::as_str);
    let with: Vec<String> = install.iter().map(|name| format!("--install={name}")).collect();
    let (remove, install) = (listed(remove), listed(install));
    let both = either(
        &format!("rpm-ostree override remove {remove} {}", with.join(" ")),
        &format!("printf 'remove {remove}\\ninstall {install}\\nrun\\n' | dnf --assumeyes shell"),
    );
    format!(
        "if rpm --query {there}; then :; \\\n    \
         elif ! rpm --query kernel-core; then echo 'the base image has neither {there} nor kernel-core: its kernel is not known' >&2; exit 1; \\\n    \
         else {both}; fi"
    )
}

/// A base with neither fails in words.
fn either(ostree: &str, dnf: &str) -> String {
    format!(
        "if command -v rpm-ostree >/dev/null; then {ostree} && rpm-ostree cleanup --repomd; \\\n    \
         elif command -v dnf >/dev/null; then {dnf} && dnf clean all; \\\n    \
         else echo 'the base image has neither rpm-ostree nor dnf: it takes no extensions and no other kernel' >&2; exit 1; fi"
    )
}
