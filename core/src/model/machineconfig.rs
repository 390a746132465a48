//! A rendered MachineConfig as a document: its name, its canonical text, and the way to a [`HostSpec`].
//!
//! The document is kept as one compact JSON text and never as a tree: a config of 1.5 MB costs its own size, and
//! its Ignition part is read straight from that text when a spec is desired. Invariant: the text of a value that
//! exists is valid JSON with a valid name; its sections are judged by [`MachineConfig::spec`].

use std::collections::BTreeSet;
use std::fmt;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::content;
use super::document::{self, Document, Kind};
use super::error::ModelError;
use super::ignition::{self, Reading};
use super::layers;
use super::os::KernelType;
use super::reading::{self, Fault, Found, Metadata, refuse_unknown};
use super::text::short;
use super::{ConfigName, HostSpec, ImageRef, Karg, NotApplied, Sha256};

/// A rendered MachineConfig. `Debug` shows its name and size only: it is full of secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct MachineConfig {
    name: ConfigName,
    json: String,
    /// Objects beside it in its file, which are not read.
    beside: Vec<NotApplied>,
}

/// The largest document that is read: etcd bounds a MachineConfig at 1.5 MiB, YAML and editing take more.
pub const MAX_BYTES: u64 = 8 * 1024 * 1024;

/// The whole object: one pass reads its name and checks its sections.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Object<'a> {
    #[serde(default, rename = "apiVersion")]
    _api_version: IgnoredAny,
    #[serde(default, rename = "kind")]
    _kind: IgnoredAny,
    metadata: Metadata,
    #[serde(borrow, default)]
    spec: Option<Spec<'a>>,
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

/// The part of the object that is read of a config which was applied already.
#[derive(Deserialize)]
struct Named {
    metadata: Metadata,
}

/// Field that distinguishes an Ignition config from a MachineConfig.
#[derive(Deserialize)]
struct Plain {
    #[serde(default)]
    ignition: Option<PlainIgnition>,
    #[serde(default)]
    metadata: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PlainIgnition {
    #[serde(default)]
    config: Option<OtherConfigs>,
}

#[derive(Deserialize)]
struct OtherConfigs {
    #[serde(default)]
    merge: Vec<IgnoredAny>,
    #[serde(default)]
    replace: Option<Replace>,
}

/// Empty where Go wrote it.
#[derive(Deserialize)]
struct Replace {
    #[serde(default)]
    source: Option<String>,
}

impl OtherConfigs {
    /// Returns the field that names others.
    fn named(&self) -> Option<&'static str> {
        if !self.merge.is_empty() {
            return Some("ignition.config.merge");
        }
        let replace = self.replace.as_ref().is_some_and(|replace| replace.source.is_some());
        replace.then_some("ignition.config.replace")
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    #[serde(borrow, default)]
    config: Option<&'a RawValue>,
    #[serde(rename = "osImageURL", default)]
    os_image_url: Option<String>,
    #[serde(rename = "baseOSExtensionsContainerImage", default)]
    extensions_image: Option<String>,
    #[serde(default)]
    kernel_arguments: Option<Vec<String>>,
    #[serde(default)]
    kernel_type: Option<String>,
    #[serde(default)]
    extensions: Option<Vec<String>>,
    #[serde(default)]
    fips: Option<bool>,
}

/// Fields of a spec beside its Ignition config. Each may be empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fields {
    /// `osImageURL`.
    pub os_image_url: Option<String>,
    /// `baseOSExtensionsContainerImage`.
    pub extensions_image: Option<String>,
    /// `kernelArguments`.
    pub kernel_arguments: Option<Vec<String>>,
    /// `kernelType`.
    pub kernel_type: Option<String>,
    /// `extensions`.
    pub extensions: Option<Vec<String>>,
    /// `fips`.
    pub fips: Option<bool>,
}

impl Fields {
    /// Decodes and validates everything, as [`MachineConfig::spec`] does of a text: here the Ignition config is a tree.
    pub fn host_spec(self, name: &str, config: Option<&serde_json::Value>) -> Result<HostSpec, ModelError> {
        self.read_tree(name, config, Reading::Target)
    }

    /// The same of a config that nodes were given, as [`MachineConfig::committed_spec`] reads it.
    pub fn committed_spec(
        self,
        name: &str,
        config: Option<&serde_json::Value>,
    ) -> Result<HostSpec, ModelError> {
        self.read_tree(name, config, Reading::Committed)
    }

    fn read_tree(
        self,
        name: &str,
        config: Option<&serde_json::Value>,
        reading: Reading,
    ) -> Result<HostSpec, ModelError> {
        let mut spec = self.read(&ConfigName::new(name.to_owned())?, reading)?;
        if let Some(config) = config {
            ignition::read_tree_into(&mut spec, config, reading)?;
        }
        Ok(spec)
    }

    fn read(self, name: &ConfigName, reading: Reading) -> Result<HostSpec, ModelError> {
        let mut spec = HostSpec::empty(name.clone());
        let image = |field: &str, url: Option<String>| {
            let image = url.filter(|url| !url.is_empty()).as_deref().map(ImageRef::parse).transpose();
            image.map_err(|error| error.in_field(field, &format!("MachineConfig {name}")))
        };
        spec.os_image_url = image("spec.osImageURL", self.os_image_url)?;
        spec.extensions_image = image("spec.baseOSExtensionsContainerImage", self.extensions_image)?;
        spec.kargs = kargs(name, &self.kernel_arguments.unwrap_or_default(), reading)?;
        if reading == Reading::Target {
            check_layers(name, self.kernel_type.as_deref(), self.extensions.as_deref())?;
        }
        spec.kernel_type = KernelType::parse(self.kernel_type.as_deref().unwrap_or_default());
        spec.extensions =
            self.extensions.unwrap_or_default().into_iter().filter(|name| !name.is_empty()).collect();
        spec.fips = self.fips.unwrap_or_default();
        Ok(spec)
    }
}

impl MachineConfig {
    /// Reads a document, JSON or YAML. `document` is its source in errors. Of several documents the one MachineConfig is taken.
    pub fn parse(bytes: &[u8], document: &str) -> Result<Self, ModelError> {
        let (document, beside) = document::one_and_others(bytes, document, Kind::MACHINE_CONFIG)?;
        Ok(Self { beside, ..Self::of_document(document)? })
    }

    /// Reads one document of a file.
    pub fn of_document(document: Document) -> Result<Self, ModelError> {
        document.check(Kind::MACHINE_CONFIG)?;
        let object: Found<Object<'_>> =
            reading::from_text(document.json()).map_err(|fault| document.wrong(&fault))?;
        let name = ConfigName::new(object.value.metadata.name);
        let name = name.map_err(|error| document.refuse("metadata.name", &error.to_string()))?;
        Ok(Self::of_parts(name, document.into_json()))
    }

    /// Reads a document of the state, whose config was applied already: its sections need not be readable, see
    /// [`MachineConfig::known_spec`].
    pub fn parse_applied(bytes: &[u8], document: &str) -> Result<Self, ModelError> {
        let document = document::one(bytes, document, Kind::MACHINE_CONFIG)?;
        document.check(Kind::MACHINE_CONFIG)?;
        let object: Found<Named> =
            reading::from_text(document.json()).map_err(|fault| document.wrong(&fault))?;
        Ok(Self::of_parts(ConfigName::new(object.value.metadata.name)?, document.into_json()))
    }

    /// Takes a name and an object in JSON that has it.
    pub(super) fn of_parts(name: ConfigName, json: String) -> Self {
        Self { name, json, beside: Vec::new() }
    }

    /// Reads a MachineConfig, or an Ignition config: that becomes one whose name is of its digest.
    pub fn parse_or_wrap(bytes: &[u8], source: &str) -> Result<Self, ModelError> {
        let (document, beside) = document::one_and_others(bytes, source, Kind::MACHINE_CONFIG)?;
        let json = document.json();
        let plain: Found<Plain> = reading::from_text(json).map_err(|fault| document.wrong(&fault))?;
        let (Some(ignition), None) = (plain.value.ignition, plain.value.metadata) else {
            return Ok(Self { beside, ..Self::of_document(document)? });
        };
        if let Some(field) = ignition.config.and_then(|config| config.named()) {
            let cause = "it names other configs, which are not fetched; merge them into one";
            return Err(document.refuse(field, cause));
        }
        let digest = Sha256::digest(json.as_bytes()).to_string();
        let name = ConfigName::new(format!("ignition-{}", digest.get(..16).unwrap_or_default()))?;
        let header = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig""#;
        let json = format!(r#"{header},"metadata":{{"name":"{name}"}},"spec":{{"config":{json}}}}}"#);
        Ok(Self { name, json, beside })
    }

    /// Refuses fields that nobody knows, in a file that a person gives. In a cluster they are remarks: the Machine Config
    /// Operator lets them pass.
    pub fn refuse_unknown(&self, document: &str) -> Result<(), ModelError> {
        refuse_unknown(&self.spec(None)?.remarks, document)
    }

    /// Gives it another name.
    pub(super) fn named(self, name: &ConfigName) -> Result<Self, ModelError> {
        let wrong = |error: serde_json::Error| self.field("metadata", document::cause(&error));
        let mut object: serde_json::Value = serde_json::from_str(&self.json).map_err(wrong)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            metadata.insert("name".to_owned(), name.as_str().into());
        }
        Ok(Self { name: name.clone(), json: object.to_string(), beside: self.beside })
    }

    /// Returns what lies beside it in its file and is not read.
    pub fn beside(&self) -> &[NotApplied] {
        &self.beside
    }

    /// Sets what lies beside it and is not read.
    #[must_use]
    pub fn with_beside(self, beside: Vec<NotApplied>) -> Self {
        Self { beside, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &ConfigName {
        &self.name
    }

    /// Returns the whole object as compact JSON.
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns the digest of what the config says: its spec, whatever the order of fields, white space and metadata.
    pub fn content(&self) -> Sha256 {
        content::digest(&self.json)
    }

    /// Decodes and validates everything. `image` is the Node's desired image; `None` outside image mode.
    pub fn spec(&self, image: Option<ImageRef>) -> Result<HostSpec, ModelError> {
        self.read(image, Reading::Target)
    }

    /// Decodes a config that an agent committed: an earlier one may have taken what [`Self::spec`] refuses as Ignition or the Machine
    /// Config Operator do, and the node has to be able to leave it.
    pub fn committed_spec(&self, image: Option<ImageRef>) -> Result<HostSpec, ModelError> {
        self.read(image, Reading::Committed)
    }

    fn read(&self, image: Option<ImageRef>, reading: Reading) -> Result<HostSpec, ModelError> {
        let Found { value: object, unknown } = self.object()?;
        let read = match object.spec {
            Some(spec) => spec,
            None if reading == Reading::Target => {
                let cause = "it is required; write `spec: {}` for an empty config";
                return Err(self.field("spec", cause));
            }
            None => Spec::default(),
        };
        let fields = Fields {
            os_image_url: read.os_image_url,
            extensions_image: read.extensions_image,
            kernel_arguments: read.kernel_arguments,
            kernel_type: read.kernel_type,
            extensions: read.extensions,
            fips: read.fips,
        };
        let remarks = [self.beside.as_slice(), &unknown].concat();
        let mut spec = HostSpec { image, remarks, ..fields.read(&self.name, reading)? };
        if let Some(config) = read.config {
            ignition::read_into(&mut spec, config.get(), reading)?;
        }
        Ok(spec)
    }

    fn object(&self) -> Result<Found<Object<'_>>, ModelError> {
        let wrong = |fault: Fault| {
            let field = if fault.field.is_empty() { "spec" } else { &fault.field };
            self.field(field, format!("it can't be read: {}", fault.cause()))
        };
        reading::from_text(&self.json).map_err(wrong)
    }

    fn field(&self, name: impl Into<String>, cause: impl Into<String>) -> ModelError {
        field(&self.name, name, cause)
    }
}

/// Refuses a kernel that is none, extensions that are none, and an extension that does not go with the kernel, as the Machine Config
/// Operator does.
pub fn check_layers(
    name: &ConfigName,
    kernel_type: Option<&str>,
    extensions: Option<&[String]>,
) -> Result<(), ModelError> {
    let word = kernel_type.unwrap_or_default();
    let kernel = KernelType::parse(word);
    if !word.is_empty() && kernel.as_str() != word {
        let cause = "it is default, realtime or 64k-pages; correct it in its MachineConfig";
        return Err(field(name, format!("spec.kernelType {:?}", short(word, 64)), cause));
    }
    // Of several, the same one is named each time.
    let extensions: BTreeSet<&str> = extensions.unwrap_or_default().iter().map(String::as_str).collect();
    for extension in extensions.into_iter().filter(|extension| !extension.is_empty()) {
        let of = || format!("spec.extensions {:?}", short(extension, 64));
        if !layers::is_extension(extension) {
            let cause = format!(
                "there is no such extension (there are {}); correct it in its MachineConfig",
                layers::extensions()
            );
            return Err(field(name, of(), cause));
        }
        if extension == layers::KERNEL_DEVEL && kernel != KernelType::Default {
            let cause =
                format!("it is for the default kernel, and spec.kernelType is {word}; remove one of them");
            return Err(field(name, of(), cause));
        }
    }
    Ok(())
}

fn kargs(name: &ConfigName, entries: &[String], reading: Reading) -> Result<Vec<Karg>, ModelError> {
    let broken = |entry: &&String| entry.contains('\0') || entry.matches('"').count() % 2 == 1;
    if let Some(entry) = entries.iter().find(broken) {
        let cause = "it holds a NUL or an open quote; the kernel has no escapes, close the quote";
        return Err(field(name, format!("spec.kernelArguments {:?}", short(entry, 100)), cause));
    }
    let kargs: Vec<Karg> = entries.iter().flat_map(|entry| Karg::split(entry)).collect();
    // They are not in the command line that a host is compared by, so none of them could ever be found there.
    let is_set_elsewhere = |karg: &&Karg| karg.is_of_ostree() || karg.is_of_boot_loader();
    if let Some(karg) = kargs.iter().find(is_set_elsewhere).filter(|_| reading == Reading::Target) {
        let whose = if karg.is_of_ostree() { "libostree sets it" } else { "the boot loader sets it" };
        let of = format!("spec.kernelArguments {:?}", short(karg.as_str(), 100));
        return Err(field(name, of, format!("{whose} for each deployment; remove it")));
    }
    Ok(kargs)
}

fn field(config: &ConfigName, name: impl Into<String>, cause: impl Into<String>) -> ModelError {
    ModelError::Field { config: config.to_string(), field: name.into(), cause: cause.into() }
}

impl fmt::Debug for MachineConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineConfig({}, {} bytes)", self.name, self.json.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MCD-3.35: an Ignition config alone is a config, named by its content; one that names others is not all of it.
    #[test]
    fn ignition_config_becomes_machine_config() {
        let text = br#"{"ignition": {"version": "3.2.0", "config": {"replace": {"verification": {}}}},
            "storage": {"files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}]}}"#;
        let config = MachineConfig::parse_or_wrap(text, "a.ign").unwrap();
        assert!(config.name().as_str().starts_with("ignition-") && config.name().as_str().len() == 25);
        assert_eq!(config.spec(None).unwrap().files.len(), 1);
        let again = MachineConfig::parse_or_wrap(config.json().as_bytes(), "x").unwrap();
        assert_eq!(again, config);
        let yaml = b"ignition: {version: 3.2.0}\nstorage: {files: []}\n";
        assert_ne!(MachineConfig::parse_or_wrap(yaml, "a.bu").unwrap().name(), config.name());
        for other in
            [r#""merge": [{"source": "https://a.test"}]"#, r#""replace": {"source": "https://a.test"}"#]
        {
            let text = format!(r#"{{"ignition": {{"version": "3.2.0", "config": {{{other}}}}}}}"#);
            let error = MachineConfig::parse_or_wrap(text.as_bytes(), "a.ign").unwrap_err().to_string();
            assert!(error.contains("a.ign") && error.contains("names other configs"), "{error}");
        }
        // Neither one nor the other, and the version that is not read any more.
        assert!(MachineConfig::parse_or_wrap(b"{}", "x").is_err());
        let old = MachineConfig::parse_or_wrap(br#"{"ignition": {"version": "2.2.0"}}"#, "x").unwrap();
        let error = old.spec(None).unwrap_err().to_string();
        assert!(error.contains("2.2.0") && error.contains("convert the config"), "{error}");
    }

    /// A tree is read as its text is, errors included.
    #[test]
    fn tree_is_read_as_its_text() {
        let file =
            |path: &str, source: &str| serde_json::json!({ "path": path, "contents": { "source": source } });
        let config = |version: &str, files: Vec<serde_json::Value>| serde_json::json!({ "ignition": { "version": version }, "storage": { "files": files } });
        for config in [
            serde_json::json!({}),
            config("3.2.0", vec![file("/etc/a", "data:,a"), file("/etc/b/c", "data:;base64,YQ==")]),
            config("2.2.0", Vec::new()),
            config("3.2.0", vec![file("/etc/a", "https://a.test")]),
            config("3.2.0", vec![file("/etc/a", "data:,a"), file("/etc/a/b", "data:,b")]),
            serde_json::json!({ "ignition": { "version": "3.2.0" }, "storage": "top-secret" }),
        ] {
            let fields = Fields { kernel_arguments: Some(vec!["a b".to_owned()]), ..Fields::default() };
            let object = serde_json::json!({
                "metadata": { "name": "rendered-a" },
                "spec": { "config": config, "kernelArguments": ["a b"] },
            });
            let text =
                MachineConfig::parse(object.to_string().as_bytes(), "x").and_then(|read| read.spec(None));
            assert_eq!(fields.host_spec("rendered-a", Some(&config)), text, "{config}");
        }
    }
}
