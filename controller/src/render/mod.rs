//! From the MachineConfigs of a pool to the one that its nodes get.
//!
//! Pure and deterministic: the same objects give the same name, offline and in the cluster, in whatever order they come.
//! The rules are the Machine Config Operator's (`pkg/controller/common`): configs of the role `worker` first, then the
//! others, each by name; Ignition is merged ([`merge`]), kernel arguments and extensions follow one another, and the last
//! image that a person wrote wins.

mod error;
mod hidden;
pub mod merge;
pub mod size;

use std::collections::BTreeMap;

use kube::core::{ObjectMeta, Selector, SelectorExt as _};
use serde_json::{Map, Value, json};

pub use error::RenderError;

use crate::api::controller_config::ControllerConfigSpec;
use crate::api::{
    GENERATED_BY, IMAGE_OVERRIDDEN, MachineConfig, MachineConfigPool, MachineConfigSpec, ROLE, rendered_for,
};
use crate::model::machineconfig::{Fields, check_layers};
use crate::model::{
    ConfigName, HostSpec, ImageRef, ModelError, NotApplied, NotAppliedReason, Sha256, check_ignition,
    drop_stale_digests, is_version,
};
use crate::plan::{Irreconcilable, refused_at_first, refused_everywhere};

/// The Ignition version of rendered configs.
const IGNITION: &str = "3.5.0";

/// The newest Ignition version that is read; it has the fields of the rendered one.
const NEWEST: &str = "3.6.0";

/// Images of a cluster's release; none on plain Kubernetes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Release {
    /// OS image of nodes.
    pub os_image: Option<String>,
    /// Image with the packages of extensions.
    pub extensions_image: Option<String>,
}

impl Release {
    /// Returns those of a `ControllerConfig`.
    pub fn from_controller_config(spec: &ControllerConfigSpec) -> Self {
        let given = |image: &Option<String>| image.clone().filter(|image| !image.is_empty());
        Self {
            os_image: given(&spec.base_os_container_image).or_else(|| given(&spec.os_image_url)),
            extensions_image: given(&spec.base_os_extensions_container_image),
        }
    }
}

/// A rendered config.
#[derive(Debug, Clone, PartialEq)]
pub struct Rendered {
    /// The object, without owner.
    pub object: MachineConfig,
    /// The MachineConfigs that it was rendered from, in their order.
    pub sources: Vec<String>,
    /// Fields that no node applies, and digests that were dropped since they are not those of the contents.
    pub remarks: Vec<NotApplied>,
}

impl Rendered {
    /// Returns its name.
    pub fn name(&self) -> &str {
        self.object.metadata.name.as_deref().unwrap_or_default()
    }

    fn with_remarks(mut self, of_nodes: HostSpec) -> Self {
        self.remarks.extend(of_nodes.remarks);
        self
    }

    /// Returns the config as a node reads that has it: an earlier controller may have rendered what this one refuses.
    pub fn host_spec(&self) -> Result<HostSpec, RenderError> {
        Ok(fields(&self.object).committed_spec(name_of(&self.object), self.object.spec.config.as_ref())?)
    }
}

/// Renders a pool.
pub fn render<'a>(
    pool: &MachineConfigPool,
    configs: impl IntoIterator<Item = &'a MachineConfig>,
    release: &Release,
) -> Result<Rendered, RenderError> {
    let (rendered, chosen) = merged(pool, configs, release).map_err(first)?;
    let of_nodes = host_spec(&rendered.object).map_err(|error| first(blamed(error, &chosen, release)))?;
    refuse(&of_nodes, rendered.name(), &chosen, refused_everywhere)?;
    size::check(&rendered.object, &chosen)?;
    Ok(rendered.with_remarks(of_nodes))
}

/// Renders a pool that selects no MachineConfig: what its nodes have before the first one.
pub fn render_empty(pool: &MachineConfigPool, release: &Release) -> Result<Rendered, RenderError> {
    let config = ignition(&[]).map_err(first)?;
    object(pool, &[], config, release)
}

/// Returns an error if every node would refuse a rendered config: it may be of another program, or of a person.
pub fn check_rendered(object: &MachineConfig) -> Result<(), RenderError> {
    let of_nodes = fields(object).committed_spec(name_of(object), object.spec.config.as_ref())?;
    refuse(&of_nodes, name_of(object), &[object], refused_everywhere)
}

/// Renders a pool for nodes that have nothing of it yet: what each of them would refuse is refused here. All errors are found: one
/// MachineConfig does not hide those of the others.
pub fn render_first<'a>(
    pool: &MachineConfigPool,
    configs: impl IntoIterator<Item = &'a MachineConfig>,
    release: &Release,
) -> Result<Rendered, Vec<RenderError>> {
    let configs: Vec<&MachineConfig> = configs.into_iter().collect();
    let (rendered, chosen) = match merged(pool, configs.iter().copied(), release) {
        Ok(merged) => merged,
        Err(mut errors) => {
            let chosen = selected(pool, configs).unwrap_or_default();
            let others: Vec<&MachineConfig> =
                chosen.iter().copied().filter(|config| is_sound(config)).collect();
            if !others.is_empty() && others.len() < chosen.len() {
                errors.extend(render_first(pool, others, release).err().into_iter().flatten());
            }
            return Err(errors);
        }
    };
    let object = &rendered.object;
    let config = object.spec.config.as_ref();
    let (of_nodes, faults) =
        fields(object).examine(name_of(object), config).map_err(|error| vec![error.into()])?;
    let wrong = faults.into_error();
    let mut errors = wrong.map(|wrong| blamed(wrong.into(), &chosen, release)).unwrap_or_default();
    let at_first = |spec: &HostSpec| refused_at_first(spec).ok().flatten();
    errors.extend(each_refused(&of_nodes, rendered.name(), &chosen, at_first));
    errors.extend(size::check(&rendered.object, &chosen).err());
    if errors.is_empty() { Ok(rendered.with_remarks(of_nodes)) } else { Err(errors) }
}

/// Returns the first of several errors.
fn first(errors: Vec<RenderError>) -> RenderError {
    errors.into_iter().next().unwrap_or(RenderError::NoConfigs { pool: String::new() })
}

/// Merges the MachineConfigs of a pool.
fn merged<'a>(
    pool: &MachineConfigPool,
    configs: impl IntoIterator<Item = &'a MachineConfig>,
    release: &Release,
) -> Result<(Rendered, Vec<&'a MachineConfig>), Vec<RenderError>> {
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    let chosen = selected(pool, configs).map_err(|error| vec![error])?;
    if chosen.is_empty() {
        return Err(vec![RenderError::NoConfigs { pool: pool_name.to_owned() }]);
    }
    let mut errors: Vec<RenderError> = chosen.iter().filter_map(|config| check_part(config).err()).collect();
    let config = match ignition(&chosen) {
        Ok(config) if errors.is_empty() => config,
        Ok(_) => return Err(errors),
        Err(others) => {
            errors.extend(others);
            return Err(errors);
        }
    };
    let rendered = object(pool, &chosen, config, release).map_err(|error| vec![error])?;
    Ok((rendered, chosen))
}

/// Makes the rendered object of MachineConfigs whose Ignition parts are merged.
fn object(
    pool: &MachineConfigPool,
    chosen: &[&MachineConfig],
    mut config: Value,
    release: &Release,
) -> Result<Rendered, RenderError> {
    let mut remarks = drop_stale_digests(&mut config);
    remarks.extend(stream(pool));
    let spec = MachineConfigSpec {
        extensions_image: last(chosen, |spec| &spec.extensions_image)
            .or_else(|| release.extensions_image.clone()),
        config: Some(config),
        extensions: Some(joined(chosen, |spec| &spec.extensions)),
        fips: Some(chosen.iter().any(|config| config.spec.fips == Some(true))),
        kernel_arguments: Some(joined(chosen, |spec| &spec.kernel_arguments)),
        kernel_type: Some(kernel_type(chosen)),
        os_image_url: last(chosen, |spec| &spec.os_image_url).or_else(|| release.os_image.clone()),
    };
    let pool_name = pool.metadata.name.as_deref().unwrap_or_default();
    let name = format!("rendered-{pool_name}-{}", digest(&spec)?);
    let mut annotations = BTreeMap::from([(GENERATED_BY.to_owned(), env!("CARGO_PKG_VERSION").to_owned())]);
    if spec.os_image_url.is_some() && spec.os_image_url != release.os_image {
        annotations.insert(IMAGE_OVERRIDDEN.to_owned(), "true".to_owned());
    }
    let metadata = ObjectMeta { name: Some(name), annotations: Some(annotations), ..ObjectMeta::default() };
    let object = MachineConfig { metadata, spec };
    let sources = chosen.iter().map(|config| name_of(config).to_owned()).collect();
    Ok(Rendered { object, sources, remarks })
}

/// Names the image of a pool that a program of OpenShift would choose.
fn stream(pool: &MachineConfigPool) -> Option<NotApplied> {
    pool.spec.os_image_stream.as_ref()?;
    let name = pool.metadata.name.as_deref().unwrap_or_default();
    let field = format!("MachineConfigPool {name}: spec.osImageStream");
    let message = "no stream is looked up; name the image in osImageURL of a MachineConfig of the pool";
    Some(NotApplied::new(field, NotAppliedReason::NoEffect, message))
}

/// Refuses what the others of the pool would hide.
fn check_part(config: &MachineConfig) -> Result<(), RenderError> {
    let spec = &config.spec;
    let name = ConfigName::new(name_of(config).to_owned())?;
    Ok(check_layers(&name, spec.kernel_type.as_deref(), spec.extensions.as_deref())?)
}

/// Returns true if nothing of a MachineConfig alone keeps it from being merged.
fn is_sound(config: &MachineConfig) -> bool {
    let is_ignition = |part: &Map<String, Value>| {
        let checked =
            ConfigName::new(name_of(config).to_owned()).and_then(|name| check_ignition(&name, part));
        part.is_empty() || (readable(part).is_ok() && checked.is_ok())
    };
    let part = config.spec.config.as_ref();
    check_part(config).is_ok() && part.is_none_or(|part| part.as_object().is_some_and(is_ignition))
}

/// Returns the names of rendered configs to delete: all unused ones but the `keep` newest. Each comes with its name and its
/// creation time.
pub fn surplus<'a, T: Ord>(unused: &[(&'a str, T)], keep: usize) -> Vec<&'a str> {
    let mut newest_first: Vec<&(&'a str, T)> = unused.iter().collect();
    newest_first.sort_by(|(name, made), (other, since)| since.cmp(made).then_with(|| name.cmp(other)));
    newest_first.into_iter().skip(keep).map(|(name, _)| *name).collect()
}

/// Returns the MachineConfigs that the pool selects, in the order in which they are merged.
fn selected<'a>(
    pool: &MachineConfigPool,
    configs: impl IntoIterator<Item = &'a MachineConfig>,
) -> Result<Vec<&'a MachineConfig>, RenderError> {
    let pool_name = || pool.metadata.name.clone().unwrap_or_default();
    let selector = pool.spec.machine_config_selector.clone().unwrap_or_default();
    let is_empty = selector.match_labels.as_ref().is_none_or(BTreeMap::is_empty)
        && selector.match_expressions.as_ref().is_none_or(Vec::is_empty);
    if is_empty {
        return Err(RenderError::EmptySelector { pool: pool_name() });
    }
    let selector = Selector::try_from(selector)
        .map_err(|error| RenderError::Selector { pool: pool_name(), cause: error.to_string() })?;
    let nothing = BTreeMap::new();
    let labels = |config: &'a MachineConfig| config.metadata.labels.as_ref();
    let is_rendered = |config: &MachineConfig| rendered_for(&config.metadata).is_some();
    let mut chosen: Vec<&MachineConfig> = configs
        .into_iter()
        .filter(|config| !is_rendered(config) && selector.matches(labels(config).unwrap_or(&nothing)))
        .collect();
    // A custom pool's own configs win over those of the workers that it has as well.
    let is_worker = |config: &'a MachineConfig| {
        labels(config).and_then(|labels| labels.get(ROLE)).is_some_and(|role| role == "worker")
    };
    chosen.sort_by_key(|config| (!is_worker(config), name_of(config)));
    Ok(chosen)
}

fn name_of(config: &MachineConfig) -> &str {
    config.metadata.name.as_deref().unwrap_or_default()
}

/// Merges the Ignition parts.
fn ignition(chosen: &[&MachineConfig]) -> Result<Value, Vec<RenderError>> {
    let (mut parts, mut names, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    for source in chosen {
        let Some(part) = &source.spec.config else { continue };
        let mut refused =
            |cause: String| errors.push(RenderError::Ignition { config: name_of(source).to_owned(), cause });
        let Some(part) = part.as_object() else {
            refused("it is not an object; write an Ignition config".to_owned());
            continue;
        };
        if part.is_empty() {
            continue;
        }
        if let Err(cause) = readable(part) {
            refused(cause);
            continue;
        }
        parts.push(part);
        names.push(name_of(source));
    }
    for place in hidden::hidden(&parts) {
        if let (Some(part), Some(name)) = (parts.get(place), names.get(place)) {
            let checked = ConfigName::new(*name).and_then(|name| check_ignition(&name, part));
            errors.extend(checked.err().map(RenderError::from));
        }
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let mut config = merge::merged(&parts);
    config.retain(|_, value| merge::tidy(value));
    let ignition = config.entry("ignition").or_insert_with(|| json!({}));
    if let Some(ignition) = ignition.as_object_mut() {
        ignition.insert("version".to_owned(), Value::from(IGNITION));
    }
    overwrite_files(&mut config);
    Ok(Value::Object(config))
}

/// Returns an error if a config of this version can't be read.
fn readable(part: &Map<String, Value>) -> Result<(), String> {
    let version = part.get("ignition").and_then(|ignition| ignition.get("version")).and_then(Value::as_str);
    let version = version.ok_or_else(|| "ignition.version is missing; write 3.5.0".to_owned())?;
    if is_version(version) {
        return Ok(());
    }
    let next = if version.starts_with("2.") { "convert it to version" } else { "write one of 3.0.0 to" };
    let newest = if version.starts_with("2.") { IGNITION } else { NEWEST };
    Err(format!("ignition.version is {version:?}; {next} {newest}"))
}

/// Ignition does not replace a file of the image unless `overwrite` is true; the agent does. This makes both the same. Ignition needs a
/// source to do so: that of a file without contents is empty.
fn overwrite_files(config: &mut Map<String, Value>) {
    let files = config.get_mut("storage").and_then(|storage| storage.get_mut("files"));
    for file in files.and_then(Value::as_array_mut).into_iter().flatten().filter_map(Value::as_object_mut) {
        if !file.contains_key("overwrite") {
            file.insert("overwrite".to_owned(), Value::Bool(true));
            let contents = file.entry("contents").or_insert_with(|| json!({}));
            // A field that nobody knows is no source.
            let lacks_source =
                |contents: &&mut Map<String, Value>| contents.get("source").is_none_or(Value::is_null);
            if let Some(contents) = contents.as_object_mut().filter(lacks_source) {
                contents.insert("source".to_owned(), json!("data:,"));
                // Of nothing, which is no archive.
                contents.remove("compression");
            }
        }
    }
}

fn joined(
    chosen: &[&MachineConfig],
    field: impl Fn(&MachineConfigSpec) -> &Option<Vec<String>>,
) -> Vec<String> {
    chosen.iter().flat_map(|config| field(&config.spec).iter().flatten().cloned()).collect()
}

/// Returns the last one that a person wrote: those of a controller repeat the release.
fn last(chosen: &[&MachineConfig], field: impl Fn(&MachineConfigSpec) -> &Option<String>) -> Option<String> {
    let by_a_person = |config: &&&MachineConfig| {
        let by = config.metadata.annotations.as_ref().and_then(|annotations| annotations.get(GENERATED_BY));
        by.is_none_or(String::is_empty)
    };
    let written = chosen.iter().filter(by_a_person).filter_map(|config| field(&config.spec).clone());
    written.filter(|text| !text.is_empty()).last()
}

fn kernel_type(chosen: &[&MachineConfig]) -> String {
    let requested = chosen.iter().filter_map(|config| config.spec.kernel_type.as_deref());
    requested.rev().find(|kind| !matches!(*kind, "" | "default")).unwrap_or("default").to_owned()
}

/// Returns the part of a config's name that is made from its content: as many digits as the operator's names have. The spec is
/// digested with all fields in the order of their names, whatever it was read from: the fields of [`MachineConfigSpec`] are declared
/// so, and those of a tree are kept so.
fn digest(spec: &MachineConfigSpec) -> Result<String, RenderError> {
    Ok(Sha256::digest_json(spec)?.to_string().chars().take(32).collect())
}

/// Reads a config as a node does. Its tree is not written as text for that: it may be megabytes.
fn host_spec(object: &MachineConfig) -> Result<HostSpec, RenderError> {
    Ok(fields(object).host_spec(name_of(object), object.spec.config.as_ref())?)
}

fn fields(object: &MachineConfig) -> Fields {
    let spec = &object.spec;
    Fields {
        os_image_url: spec.os_image_url.clone(),
        extensions_image: spec.extensions_image.clone(),
        kernel_arguments: spec.kernel_arguments.clone(),
        kernel_type: spec.kernel_type.clone(),
        extensions: spec.extensions.clone(),
        fips: spec.fips,
    }
}

/// Names the MachineConfigs that an error of the whole comes from, where one has it alone; then what they have only together.
fn blamed(error: RenderError, chosen: &[&MachineConfig], release: &Release) -> Vec<RenderError> {
    let RenderError::Model(whole) = error else { return vec![error] };
    let blame = |config: &&MachineConfig| {
        let error = host_spec(config).err().or_else(|| refused_as_rendered(config))?;
        Some((name_of(config).to_owned(), error))
    };
    let parts: Vec<(String, RenderError)> = chosen.iter().filter_map(blame).collect();
    if parts.is_empty() {
        return vec![of_release(whole, release)];
    }
    let is_of_part = |fault: &ModelError| {
        let is_same = |one: &ModelError| one.without_object() == fault.without_object();
        parts.iter().any(|(_, error)| matches!(error, RenderError::Model(part) if part.faults().any(is_same)))
    };
    let together: Vec<RenderError> =
        whole.faults().filter(|fault| !is_of_part(fault)).cloned().map(RenderError::from).collect();
    let part = |(name, error): (String, RenderError)| {
        let cause = error.to_string();
        if cause.contains(&name) { error } else { RenderError::Part { config: name, cause } }
    };
    parts.into_iter().map(part).chain(together).collect()
}

/// Returns what is wrong with a MachineConfig by the version of rendered configs, where its own is newer.
fn refused_as_rendered(config: &MachineConfig) -> Option<RenderError> {
    let mut older = config.clone();
    let version = older.spec.config.as_mut()?.pointer_mut("/ignition/version")?;
    if version.as_str().is_none_or(|version| version <= IGNITION) {
        return None;
    }
    *version = Value::from(IGNITION);
    host_spec(&older).err()
}

/// Refuses what each node would refuse; names the MachineConfig that has it.
fn refuse(
    spec: &HostSpec,
    rendered: &str,
    chosen: &[&MachineConfig],
    refused: impl Fn(&HostSpec) -> Option<Irreconcilable>,
) -> Result<(), RenderError> {
    let Some(why) = refused(spec) else { return Ok(()) };
    let has_it = |config: &&&MachineConfig| host_spec(config).is_ok_and(|part| refused(&part).is_some());
    let config = chosen.iter().find(has_it).map_or(rendered, |config| name_of(config));
    let config = format!("MachineConfig {config}");
    Err(RenderError::Irreconcilable { config, refused: why })
}

/// Returns what each node would refuse, by the MachineConfig that has it.
fn each_refused(
    spec: &HostSpec,
    rendered: &str,
    chosen: &[&MachineConfig],
    refused: impl Fn(&HostSpec) -> Option<Irreconcilable>,
) -> Vec<RenderError> {
    let Some(whole) = refused(spec) else { return Vec::new() };
    let part =
        |config: &&MachineConfig| Some((name_of(config).to_owned(), refused(&host_spec(config).ok()?)?));
    let parts: Vec<(String, Irreconcilable)> = chosen.iter().filter_map(part).collect();
    let mut of_configs: Vec<(String, Irreconcilable)> = Vec::new();
    for reason in whole.reasons {
        // One of several together is told of the first that has any.
        let own = parts.iter().find(|(_, part)| part.reasons.contains(&reason)).or(parts.first());
        let name = own.map_or(rendered, |(name, _)| name.as_str());
        if let Some((_, of_config)) = of_configs.iter_mut().find(|(other, _)| other == name) {
            of_config.reasons.push(reason);
        } else {
            let of_config = Irreconcilable { reasons: vec![reason], is_of_host: whole.is_of_host };
            of_configs.push((name.to_owned(), of_config));
        }
    }
    let error =
        |(name, refused)| RenderError::Irreconcilable { config: format!("MachineConfig {name}"), refused };
    of_configs.into_iter().map(error).collect()
}

/// Names the source of an image that no MachineConfig has.
fn of_release(error: ModelError, release: &Release) -> RenderError {
    let is_image = |image: &Option<String>| {
        let alone = image.as_deref().map(ImageRef::parse).and_then(Result::err);
        alone.is_some_and(|alone| alone.in_field("", "") == error.clone().in_field("", ""))
    };
    let field = if is_image(&release.os_image) {
        "spec.baseOSContainerImage or spec.osImageURL"
    } else if is_image(&release.extensions_image) {
        "spec.baseOSExtensionsContainerImage"
    } else {
        return RenderError::Model(error);
    };
    RenderError::Model(error.in_field(field, "the ControllerConfig (or --os-image)"))
}

#[cfg(test)]
mod tests;
