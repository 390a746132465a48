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
use super::faults::Faults;
use super::ignition::{self, Reading};
use super::kargs::blank_kargs;
use super::layers as known;
use super::os::KernelType;
use super::reading::{self, Found, Metadata, refuse_unknown};
use super::text::short;
use super::{ConfigName, DocumentSize, HostSpec, ImageRef, Karg, NotApplied, Sha256};

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
    /// A cluster's report, and nothing that a host could be given.
    #[serde(default, rename = "status")]
    _status: IgnoredAny,
}

/// The part of the object that is read of a config which was applied already.
#[derive(Deserialize)]
struct Named {
    metadata: NameAlone,
}

#[derive(Deserialize)]
struct NameAlone {
    name: String,
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

    /// Decodes what can be decoded, and returns all that is wrong with the rest; an error is one of the name.
    pub fn examine(
        self,
        name: &str,
        config: Option<&serde_json::Value>,
    ) -> Result<(HostSpec, Faults), ModelError> {
        self.examine_tree(name, config, Reading::Target)
    }

    fn read_tree(
        self,
        name: &str,
        config: Option<&serde_json::Value>,
        reading: Reading,
    ) -> Result<HostSpec, ModelError> {
        let (spec, faults) = self.examine_tree(name, config, reading)?;
        faults.into_result(spec)
    }

    fn examine_tree(
        self,
        name: &str,
        config: Option<&serde_json::Value>,
        reading: Reading,
    ) -> Result<(HostSpec, Faults), ModelError> {
        let mut faults = Faults::default();
        let mut spec = self.read(&ConfigName::new(name.to_owned())?, reading, &mut faults);
        if let Some(config) = config {
            ignition::read_tree_into(&mut spec, config, reading, &mut faults);
        }
        Ok((spec, faults))
    }

    fn read(self, name: &ConfigName, reading: Reading, faults: &mut Faults) -> HostSpec {
        let mut spec = HostSpec::empty(name.clone());
        let mut image = |field: &str, url: Option<String>| {
            let url = url.filter(|url| !url.is_empty())?;
            let image = ImageRef::parse(&url);
            faults.take(image.map_err(|error| error.in_field(field, &format!("MachineConfig {name}"))))
        };
        spec.os_image_url = image("spec.osImageURL", self.os_image_url);
        spec.extensions_image = image("spec.baseOSExtensionsContainerImage", self.extensions_image);
        let entries = self.kernel_arguments.unwrap_or_default();
        spec.kargs = kargs(name, &entries, reading, faults);
        spec.remarks.extend(blank_kargs("spec.kernelArguments", &entries));
        if reading == Reading::Target {
            layers(name, self.kernel_type.as_deref(), self.extensions.as_deref(), faults);
        }
        spec.kernel_type = KernelType::parse(self.kernel_type.as_deref().unwrap_or_default());
        spec.extensions =
            self.extensions.unwrap_or_default().into_iter().filter(|name| !name.is_empty()).collect();
        spec.fips = self.fips.unwrap_or_default();
        spec
    }
}

impl MachineConfig {
    /// Reads a document, JSON or YAML. `document` is its source in errors. Of several documents the one MachineConfig is taken.
    pub fn parse(bytes: &[u8], document: &str) -> Result<Self, ModelError> {
        let (document, beside) = document::one_and_others(bytes, document, Kind::MACHINE_CONFIG)?;
        Ok(Self { beside, ..Self::of_document(document)? })
    }

    /// Reads a document that a person gives: as [`MachineConfig::parse`], and its kind is not left out.
    pub fn parse_given(bytes: &[u8], document: &str) -> Result<Self, ModelError> {
        let (document, beside) = document::one_and_others(bytes, document, Kind::MACHINE_CONFIG)?;
        document.check_kind(Kind::MACHINE_CONFIG)?;
        Ok(Self { beside, ..Self::of_document(document)? })
    }

    /// As [`MachineConfig::parse_given`], and fields that nobody knows are refused with all else that is wrong.
    pub fn parse_given_strictly(bytes: &[u8], document: &str) -> Result<Self, ModelError> {
        let (read, beside) = document::one_and_others(bytes, document, Kind::MACHINE_CONFIG)?;
        read.check_kind(Kind::MACHINE_CONFIG)?;
        strictly(Self::read_document(read).map(|config| Self { beside, ..config }), document)
    }

    /// Reads one document of a file; the error names all that is wrong with it.
    pub fn of_document(document: Document) -> Result<Self, ModelError> {
        Ok(Self::read_document(document)?)
    }

    /// Reads what can be read of one document of a file, and returns all that is wrong with the rest. The spec's remarks are the
    /// fields that nobody knows, and others that are not applied.
    pub fn examine_document(document: Document) -> (Option<HostSpec>, Faults) {
        match Self::read_document(document) {
            Ok(config) => {
                let (spec, faults) = config.examine();
                (Some(spec), faults)
            }
            Err(Unread { faults, spec }) => (spec.map(|spec| *spec), faults),
        }
    }

    fn read_document(document: Document) -> Result<Self, Unread> {
        document.check(Kind::MACHINE_CONFIG)?;
        let mut read = reading::mended_text::<Object<'_>>(document.json());
        let name = read.value.as_ref().map(|object| ConfigName::new(object.metadata.name.as_str()));
        match name {
            Some(Ok(name)) if read.faults.is_empty() => {
                drop(read);
                return Ok(Self::of_parts(name, document.into_json()));
            }
            Some(_) | None => {}
        }
        let mut faults = Faults::default();
        read.faults.iter().for_each(|fault| faults.add(document.wrong(fault)));
        let is_named = name.as_ref().is_some_and(Result::is_ok) && !read.is_told(NAME);
        if let Some(Err(error)) = &name
            && !read.is_told(NAME)
        {
            faults.add(document.refuse(NAME, &error.to_string()));
        }
        let name = name.and_then(Result::ok).filter(|_| is_named);
        let name = name.map_or_else(|| ConfigName::new(UNNAMED), Ok)?;
        let Some(object) = read.value.take() else { return Err(Unread::from(faults)) };
        let mut of_spec = Faults::default();
        let mut spec = read_object(&name, object, None, Reading::Target, &mut of_spec);
        spec.remarks.splice(0..0, std::mem::take(&mut read.unknown));
        if let Some(found) = of_spec.into_error() {
            let found = if is_named { found } else { found.of_document(&short(document.source(), 300)) };
            faults.add_others(found, |field| read.is_told(field));
        }
        Err(Unread { faults, spec: Some(Box::new(spec)) })
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
        Ok(Self::read_or_wrap(bytes, source)?)
    }

    /// As [`MachineConfig::parse_or_wrap`], and fields that nobody knows are refused with all else that is wrong.
    pub fn parse_or_wrap_strictly(bytes: &[u8], source: &str) -> Result<Self, ModelError> {
        strictly(Self::read_or_wrap(bytes, source), source)
    }

    fn read_or_wrap(bytes: &[u8], source: &str) -> Result<Self, Unread> {
        let (document, beside) = document::one_and_others(bytes, source, Kind::MACHINE_CONFIG)?;
        let json = document.json();
        // The rest of its fields is read later, and what is wrong with them is told then.
        let read = reading::mended_text::<Plain>(json);
        let Some(plain) = read.value.filter(|plain| plain.ignition.is_some() || read.faults.is_empty())
        else {
            let mut faults = Faults::default();
            read.faults.iter().for_each(|fault| faults.add(document.wrong(fault)));
            return Err(Unread::from(faults));
        };
        let (Some(ignition), None) = (plain.ignition, plain.metadata) else {
            document.check_kind(Kind::MACHINE_CONFIG)?;
            return Ok(Self { beside, ..Self::read_document(document)? });
        };
        let digest = Sha256::digest(json.as_bytes()).to_string();
        let name = ConfigName::new(format!("ignition-{}", digest.get(..16).unwrap_or_default()))?;
        let header = r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig""#;
        let json = format!(r#"{header},"metadata":{{"name":"{name}"}},"spec":{{"config":{json}}}}}"#);
        let config = Self { name, json, beside };
        let Some(field) = ignition.config.and_then(|config| config.named()) else { return Ok(config) };
        let mut faults = Faults::default();
        let cause = "it names other configs, which are not fetched; merge them into one";
        faults.add(document.refuse(field, cause));
        let (spec, found) = config.examine();
        if let Some(found) = found.into_error() {
            faults.add_others(found, |_| false);
        }
        Err(Unread { faults, spec: Some(Box::new(spec)) })
    }

    /// Refuses fields that nobody knows, in a file that a person gives, with all else that is wrong. In a cluster they are remarks: the
    /// Machine Config Operator lets them pass.
    pub fn refuse_unknown(&self, document: &str) -> Result<(), ModelError> {
        let (spec, faults) = self.examine();
        Unread { faults, spec: Some(Box::new(spec)) }.strictly(document).into_result(())
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
        let (spec, faults) = self.read(image, Reading::Target);
        faults.into_result(spec)
    }

    /// Decodes what can be decoded of a target, and returns all that is wrong with the rest.
    pub fn examine(&self) -> (HostSpec, Faults) {
        self.read(None, Reading::Target)
    }

    /// Decodes a config that an agent committed: an earlier one may have taken what [`Self::spec`] refuses as Ignition or the Machine
    /// Config Operator do, and the node has to be able to leave it.
    pub fn committed_spec(&self, image: Option<ImageRef>) -> Result<HostSpec, ModelError> {
        let (spec, faults) = self.read(image, Reading::Committed);
        faults.into_result(spec)
    }

    fn read(&self, image: Option<ImageRef>, reading: Reading) -> (HostSpec, Faults) {
        let mut faults = Faults::default();
        let read = reading::mended_text::<Object<'_>>(&self.json);
        for fault in &read.faults {
            let field = if fault.field.is_empty() { "spec".to_owned() } else { fault.field.clone() };
            let (document, cause) = (format!("MachineConfig {}", self.name), short(&fault.cause(), 500));
            faults.add(ModelError::InDocument { document, field, cause });
        }
        let Some(object) = read.value else { return (HostSpec::empty(self.name.clone()), faults) };
        let mut spec = read_object(&self.name, object, image, reading, &mut faults);
        spec.size = DocumentSize(u64::try_from(self.json.len()).unwrap_or(u64::MAX));
        spec.remarks.splice(0..0, self.beside.iter().cloned().chain(read.unknown));
        (spec, faults)
    }

    fn field(&self, name: impl Into<String>, cause: impl Into<String>) -> ModelError {
        field(&self.name, name, cause)
    }
}

/// The field of the name.
const NAME: &str = "metadata.name";

/// Stands in for the name of a config that has none; it is in no text.
const UNNAMED: &str = "unnamed";

/// A document that can't be read as a whole.
struct Unread {
    faults: Faults,
    /// The readable part.
    spec: Option<Box<HostSpec>>,
}

impl Unread {
    /// Adds the fields that nobody knows to what is wrong.
    fn strictly(self, document: &str) -> Faults {
        let Self { mut faults, spec } = self;
        let remarks = spec.map(|spec| spec.remarks).unwrap_or_default();
        faults.take(refuse_unknown(&remarks, document));
        faults
    }
}

impl From<Faults> for Unread {
    fn from(faults: Faults) -> Self {
        Self { faults, spec: None }
    }
}

impl From<ModelError> for Unread {
    fn from(error: ModelError) -> Self {
        let mut faults = Faults::default();
        faults.add(error);
        Self::from(faults)
    }
}

impl From<Unread> for ModelError {
    fn from(unread: Unread) -> Self {
        let unknown =
            || ModelError::Document { document: UNNAMED.to_owned(), cause: "it can't be read".to_owned() };
        unread.faults.into_error().unwrap_or_else(unknown)
    }
}

fn strictly(read: Result<MachineConfig, Unread>, document: &str) -> Result<MachineConfig, ModelError> {
    match read {
        Ok(config) => config.refuse_unknown(document).map(|()| config),
        Err(unread) => Err(Unread::from(unread.strictly(document)).into()),
    }
}

fn read_object(
    name: &ConfigName,
    object: Object<'_>,
    image: Option<ImageRef>,
    reading: Reading,
    faults: &mut Faults,
) -> HostSpec {
    if object.spec.is_none() && reading == Reading::Target {
        faults.add(field(name, "spec", "it is required; write `spec: {}` for an empty config"));
    }
    let read = object.spec.unwrap_or_default();
    let fields = Fields {
        os_image_url: read.os_image_url,
        extensions_image: read.extensions_image,
        kernel_arguments: read.kernel_arguments,
        kernel_type: read.kernel_type,
        extensions: read.extensions,
        fips: read.fips,
    };
    let mut spec = HostSpec { image, ..fields.read(name, reading, faults) };
    if let Some(config) = read.config {
        ignition::read_into(&mut spec, config.get(), reading, faults);
    }
    spec
}

/// Refuses a kernel that is none, extensions that are none, and an extension that does not go with the kernel, as the Machine Config
/// Operator does.
pub fn check_layers(
    name: &ConfigName,
    kernel_type: Option<&str>,
    extensions: Option<&[String]>,
) -> Result<(), ModelError> {
    let mut faults = Faults::default();
    layers(name, kernel_type, extensions, &mut faults);
    faults.into_result(())
}

fn layers(name: &ConfigName, kernel_type: Option<&str>, extensions: Option<&[String]>, faults: &mut Faults) {
    let word = kernel_type.unwrap_or_default();
    let kernel = KernelType::parse(word);
    if !word.is_empty() && kernel.as_str() != word {
        let cause = "it is default, realtime or 64k-pages; correct it in its MachineConfig";
        faults.add(field(name, format!("spec.kernelType {:?}", short(word, 64)), cause));
    }
    // Of several, the same one is named each time.
    let extensions: BTreeSet<&str> = extensions.unwrap_or_default().iter().map(String::as_str).collect();
    for extension in extensions {
        let of = || format!("spec.extensions {:?}", short(extension, 64));
        if !known::is_extension(extension) {
            let cause = format!(
                "there is no such extension (there are {}); correct it in its MachineConfig",
                known::extensions()
            );
            faults.add(field(name, of(), cause));
            continue;
        }
        if extension == known::KERNEL_DEVEL && kernel != KernelType::Default {
            let cause =
                format!("it is for the default kernel, and spec.kernelType is {word}; remove one of them");
            faults.add(field(name, of(), cause));
        }
    }
}

fn kargs(name: &ConfigName, entries: &[String], reading: Reading, faults: &mut Faults) -> Vec<Karg> {
    let is_broken = |entry: &str| entry.contains('\0') || entry.matches('"').count() % 2 == 1;
    let of = |text: &str| format!("spec.kernelArguments {:?}", short(text, 100));
    for entry in entries.iter().filter(|entry| is_broken(entry)) {
        let cause = "it holds a NUL or an open quote; the kernel has no escapes, close the quote";
        faults.add(field(name, of(entry), cause));
    }
    let whole = entries.iter().filter(|entry| !is_broken(entry));
    let kargs: Vec<Karg> = whole.flat_map(|entry| Karg::split(entry)).collect();
    // They are not in the command line that a host is compared by, so none of them could ever be found there.
    let is_set_elsewhere = |karg: &&Karg| karg.is_of_ostree() || karg.is_of_boot_loader();
    for karg in kargs.iter().filter(is_set_elsewhere).filter(|_| reading == Reading::Target) {
        let whose = if karg.is_of_ostree() { "libostree sets it" } else { "the boot loader sets it" };
        faults.add(field(name, of(karg.as_str()), format!("{whose} for each deployment; remove it")));
    }
    kargs
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

    /// Asks a struct for its fields, and gives it none.
    struct Asks<'a>(&'a mut Vec<&'static str>);

    impl<'de> serde::Deserializer<'de> for Asks<'_> {
        type Error = serde::de::value::Error;

        fn deserialize_any<V: serde::de::Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            visitor.visit_map(serde::de::value::MapDeserializer::new(std::iter::empty::<(&str, &str)>()))
        }

        fn deserialize_struct<V: serde::de::Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            visitor: V,
        ) -> Result<V::Value, Self::Error> {
            self.0.extend(fields);
            self.deserialize_any(visitor)
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
            newtype_struct seq tuple tuple_struct map enum identifier ignored_any
        }
    }

    /// A field that is read has a row in the table of fates, and a row is a field that is read.
    #[test]
    fn every_field_of_spec_has_its_fate() {
        let mut fields = Vec::new();
        Spec::deserialize(Asks(&mut fields)).unwrap();
        let mut named: Vec<String> = fields.iter().map(|field| format!("spec.{field}")).collect();
        named.sort();
        // The Ignition config has a table of its own.
        named.retain(|field| field != "spec.config");
        let listed: Vec<&str> = super::super::fate::OF_SPEC.iter().map(|row| row.field).collect();
        assert_eq!(named, listed);
    }

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
