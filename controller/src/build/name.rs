//! Names of builds, and digests of what decides an image.

use machine_config_core::model::Sha256;
use serde::Serialize;
use serde_json::Value;

use crate::api::pool::Configuration;
use crate::api::{MachineConfig, MachineOSConfigSpec};
use crate::image::ApplyBy;

/// The annotation of a rendered config with the release that it belongs to.
const RELEASE: &str = "machineconfiguration.openshift.io/release-image-version";

/// The longest tag of an image.
const MAX_TAG: usize = 128;

/// The longest name of a Job: it becomes a label of its pods.
const MAX_JOB: usize = 63;

/// Inputs of a build's name.
#[derive(Debug, Clone, Copy)]
pub struct Inputs<'a> {
    /// Name of the `MachineOSConfig`.
    pub os_config: &'a str,
    /// Its spec.
    pub spec: &'a MachineOSConfigSpec,
    /// The pool's target.
    pub configuration: &'a Configuration,
    /// The rendered config of that name.
    pub rendered: &'a MachineConfig,
    /// Program that applies the config.
    pub apply_by: ApplyBy,
}

impl Inputs<'_> {
    /// Returns the program that applies the config, unless it is the default: a build of before keeps its name.
    fn other_way(&self) -> Option<ApplyBy> {
        (self.apply_by != ApplyBy::default()).then_some(self.apply_by)
    }
}

/// Returns the name of a build: OCL-021. It has the form of upstream's, not its digits: those are of YAML as one library of Go writes
/// it, and of a rendered config whose name differs here as well.
pub fn build_name(inputs: &Inputs<'_>) -> Result<String, serde_json::Error> {
    let spec = &inputs.rendered.spec;
    let of = (
        inputs.configuration,
        inputs.spec,
        &spec.os_image_url,
        &spec.extensions_image,
        release(inputs.rendered),
    );
    Ok(format!("{}-{}", inputs.os_config, digest(&of, inputs.other_way())?))
}

/// Returns a digest of what decides the image, but for files: those are written by the agent where an image does not have them.
pub fn image_inputs(inputs: &Inputs<'_>) -> Result<String, serde_json::Error> {
    let spec = &inputs.rendered.spec;
    let os = (&spec.os_image_url, &spec.extensions_image, release(inputs.rendered));
    let of = (inputs.spec, os, &spec.kernel_type, &spec.extensions, &spec.kernel_arguments);
    digest(&of, inputs.other_way())
}

/// Returns the user's lines of the Containerfile, whatever the processor: as upstream, only those.
pub fn user_lines(spec: &MachineOSConfigSpec) -> &str {
    let mut files = spec.container_file.iter().flatten();
    let is_any = |arch: Option<&str>| arch.is_none_or(|arch| arch == "NoArch" || arch.is_empty());
    files.find(|file| is_any(file.containerfile_arch.as_deref())).map_or("", |file| file.content.as_str())
}

/// Returns where a build's image is pushed: the user's repository with the build's name as tag.
pub fn push_spec(spec: &str, build: &str) -> String {
    let repository = match spec.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => repository,
        Some(_) | None => spec,
    };
    format!("{repository}:{}", short(build, MAX_TAG))
}

/// Returns the name of a build's Job.
pub fn job_name(build: &str) -> String {
    short(&format!("build-{build}"), MAX_JOB)
}

/// Keeps the end of a name that is too long: it is the part that differs.
pub(super) fn short(name: &str, longest: usize) -> String {
    let end: String = name.chars().rev().take(longest).collect();
    let end: String = end.chars().rev().collect();
    end.trim_start_matches(|first: char| !first.is_ascii_alphanumeric()).to_owned()
}

fn release(rendered: &MachineConfig) -> Option<&String> {
    rendered.metadata.annotations.as_ref()?.get(RELEASE)
}

fn digest(of: &impl Serialize, other_way: Option<ApplyBy>) -> Result<String, serde_json::Error> {
    // A tree has its keys in order, whatever reads it.
    let mut tree: Value = serde_json::to_value(of)?;
    if let (Some(by), Some(list)) = (other_way, tree.as_array_mut()) {
        list.push(serde_json::to_value(by)?);
    }
    let digest = Sha256::digest(&serde_json::to_vec(&tree)?).to_string();
    Ok(digest.chars().take(32).collect())
}
