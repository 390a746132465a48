//! Config of a new node: the rendered config's Ignition part, and the files that make it a node of the cluster.
//!
//! The files are the machine-config-server's, under its names and in its order; the encapsulated MachineConfig comes last,
//! as it has what the others changed. Files that hold secrets are for root alone (upstream: for everybody).

use std::collections::BTreeMap;

use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};

use super::accept::Version;
use super::downgrade::{Lost, downgraded};
use crate::api::MachineConfig;

/// Annotations of the node, which the agent reads first.
pub const ANNOTATIONS: &str = "/etc/machine-config-daemon/node-annotations.json";

/// Kubeconfig for the kubelet's first contact with the API server.
pub const KUBECONFIG: &str = "/etc/kubernetes/kubeconfig";

/// Files of a config that may have it: upstream's, kubeadm's, and that of a kubelet that has joined. OpenShift's `kubelet.conf` is
/// another document than kubeadm's.
const FIRST_CONTACTS: [&str; 3] =
    [KUBECONFIG, "/etc/kubernetes/bootstrap-kubelet.conf", "/var/lib/kubelet/kubeconfig"];

/// The whole MachineConfig that was served.
pub const CONTENT: &str = "/etc/mcs-machine-config-content.json";

/// MachineConfig of the agent's first boot: the parts that Ignition can't apply.
pub const ENCAPSULATED: &str = "/etc/ignition-machine-config-encapsulated.json";

/// For everybody to read.
const PUBLIC: u32 = 0o644;

/// For root alone.
const SECRET: u32 = 0o600;

/// The first version with kernel arguments.
const KERNEL_ARGUMENTS: Version = Version(3);

/// Data for the nodes of a pool.
#[derive(Clone, Default, PartialEq)]
pub struct Joining {
    /// The rendered config.
    pub config: MachineConfig,
    /// The image that carries it, where the pool has one.
    pub image: Option<String>,
    /// The kubeconfig of the first contact.
    pub kubeconfig: Option<String>,
    /// Certificates of the cluster, newer than those of the config, by path.
    pub authorities: BTreeMap<String, String>,
}

/// It holds secrets.
impl std::fmt::Debug for Joining {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Joining")
            .field("config", &self.name())
            .field("image", &self.image)
            .finish_non_exhaustive()
    }
}

/// Errors of serving a config.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unservable {
    /// A field is lost in the version that the node reads.
    #[error("MachineConfig {config}: {lost}")]
    Lost {
        /// The rendered config.
        config: String,
        /// Which.
        lost: Lost,
    },
    /// Not to be removed by a node without words for it.
    #[error(
        "MachineConfig {config}: spec.config.kernelArguments.shouldNotExist needs Ignition config {KERNEL_ARGUMENTS}; this \
         node reads {requested}: boot a newer image, or remove the field"
    )]
    KernelArguments {
        /// The rendered config.
        config: String,
        /// Version that the node reads.
        requested: Version,
    },
    /// Not an Ignition v3 config.
    #[error("MachineConfig {config}: spec.config is not an Ignition config of version 3; correct it")]
    NoIgnition {
        /// The rendered config.
        config: String,
    },
}

impl Joining {
    /// Returns the name of the rendered config.
    pub fn name(&self) -> &str {
        self.config.metadata.name.as_deref().unwrap_or_default()
    }

    /// Returns true if the config itself has what the kubelet reaches the API server with the first time.
    pub(super) fn brings_first_contact(&self) -> bool {
        let files = self
            .config
            .spec
            .config
            .as_ref()
            .and_then(|config| config.get("storage")?.get("files")?.as_array());
        let paths = files.into_iter().flatten().filter_map(|file| file.get("path")?.as_str());
        paths.into_iter().any(|path| FIRST_CONTACTS.contains(&path))
    }

    /// Returns the document for a node that reads this version.
    pub fn document(&self, version: Version) -> Result<Vec<u8>, Unservable> {
        let name = || self.name().to_owned();
        let no_ignition = || Unservable::NoIgnition { config: name() };
        let mut ignition = match &self.config.spec.config {
            Some(Value::Object(config)) => config.clone(),
            None | Some(Value::Null) => Map::new(),
            Some(_) => return Err(no_ignition()),
        };
        if !ignition.is_empty() && !is_version_3(&ignition) {
            return Err(no_ignition());
        }
        let mut config = self.trimmed();
        if version < KERNEL_ARGUMENTS {
            move_kernel_arguments(&mut ignition, &mut config)
                .map_err(|()| Unservable::KernelArguments { config: name(), requested: version })?;
        }
        // The config on the node is the whole target, not only the part that its initramfs could read.
        config.spec.config = Some(Value::Object(ignition.clone()));
        let files = files(&mut ignition).ok_or_else(no_ignition)?;
        for (path, text) in &self.authorities {
            put(files, path, text, PUBLIC);
        }
        put(files, ANNOTATIONS, &self.annotations().to_string(), PUBLIC);
        if let Some(image) = &self.image {
            config.spec.os_image_url = Some(image.clone());
        }
        if let Some(kubeconfig) = &self.kubeconfig {
            put(files, KUBECONFIG, kubeconfig, SECRET);
        }
        put(files, CONTENT, &json!(config).to_string(), SECRET);
        config.spec.config = Some(json!({ "ignition": { "version": version.to_string() } }));
        put(files, ENCAPSULATED, &json!(config).to_string(), SECRET);
        let ignition =
            downgraded(ignition, version).map_err(|lost| Unservable::Lost { config: name(), lost })?;
        Ok(Value::Object(ignition).to_string().into_bytes())
    }

    /// Returns the config without the fields that only the API server needs.
    fn trimmed(&self) -> MachineConfig {
        let metadata = &self.config.metadata;
        let metadata = ObjectMeta {
            name: metadata.name.clone(),
            labels: metadata.labels.clone(),
            annotations: metadata.annotations.clone(),
            ..ObjectMeta::default()
        };
        MachineConfig { metadata, spec: self.config.spec.clone() }
    }

    fn annotations(&self) -> Value {
        let name = self.name();
        let mut annotations = vec![
            ("currentConfig", name),
            ("desiredConfig", name),
            ("firstPivotConfig", name),
            ("state", "Done"),
        ];
        if let Some(image) = self.image.as_deref() {
            annotations.extend([("currentImage", image), ("desiredImage", image)]);
        }
        annotations
            .into_iter()
            .map(|(key, value)| (format!("machineconfiguration.openshift.io/{key}"), Value::from(value)))
            .collect::<Map<_, _>>()
            .into()
    }
}

fn is_version_3(ignition: &Map<String, Value>) -> bool {
    let version =
        ignition.get("ignition").and_then(|ignition| ignition.get("version")).and_then(Value::as_str);
    version.is_some_and(|version| version.starts_with("3."))
}

/// Moves kernel arguments to the first boot, as an older Ignition can't set them.
fn move_kernel_arguments(ignition: &mut Map<String, Value>, config: &mut MachineConfig) -> Result<(), ()> {
    let Some(arguments) = ignition.remove("kernelArguments") else { return Ok(()) };
    let listed = |field: &str| {
        let items = arguments.get(field).and_then(Value::as_array).into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    if !listed("shouldNotExist").is_empty() {
        return Err(());
    }
    config.spec.kernel_arguments.get_or_insert_default().extend(listed("shouldExist"));
    Ok(())
}

fn files(ignition: &mut Map<String, Value>) -> Option<&mut Vec<Value>> {
    // null is as nothing, as for every other reader.
    ignition.retain(|_, section| !section.is_null());
    let storage = ignition.entry("storage").or_insert_with(|| json!({})).as_object_mut()?;
    storage.retain(|_, list| !list.is_null());
    storage.entry("files").or_insert_with(|| json!([])).as_array_mut()
}

/// Appends a file; one of the same path goes, as Ignition refuses two.
fn put(files: &mut Vec<Value>, path: &str, text: &str, mode: u32) {
    files.retain(|file| file.get("path").and_then(Value::as_str) != Some(path));
    files.push(
        json!({ "path": path, "mode": mode, "overwrite": true, "contents": { "source": data_url(text) } }),
    );
}

/// Returns the text as a data URL in the server's form: percent escapes for all but letters, digits and `-_.~`.
fn data_url(text: &str) -> String {
    let mut url = String::with_capacity(text.len() * 2);
    url.push_str("data:,");
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            url.push(char::from(byte));
        } else {
            url.push_str(&format!("%{byte:02X}"));
        }
    }
    url
}

#[cfg(test)]
mod tests {
    use machine_config_core::model::machineconfig;

    use super::*;
    use crate::serve::authorities::KUBELET_CA;

    #[expect(clippy::needless_pass_by_value, reason = "as json! makes it")]
    fn joining(spec: Value) -> Joining {
        let config = json!({ "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "metadata": { "name": "rendered-infra-1", "resourceVersion": "7", "managedFields": [] }, "spec": spec });
        Joining {
            config: serde_json::from_value(config).unwrap(),
            image: Some(format!("registry.test/os@sha256:{}", "a".repeat(64))),
            kubeconfig: Some("token: g€heim\n".to_owned()),
            authorities: BTreeMap::from([(KUBELET_CA.to_owned(), "new".to_owned())]),
        }
    }

    fn spec() -> Value {
        json!({ "osImageURL": format!("registry.test/base@sha256:{}", "b".repeat(64)), "kernelArguments": ["quiet"],
            "kernelType": "realtime", "config": { "ignition": { "version": "3.5.0" }, "storage": { "files": [
            { "path": "/etc/a", "contents": { "source": "data:,a" } },
            { "path": KUBELET_CA, "contents": { "source": "data:,old" } }] } } })
    }

    fn document(joining: &Joining, minor: u32) -> Value {
        serde_json::from_slice(&joining.document(Version(minor)).unwrap()).unwrap()
    }

    fn text(document: &Value, path: &str) -> String {
        let files = document["storage"]["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["path"] == path).unwrap_or_else(|| panic!("no {path}"));
        let url = file["contents"]["source"].as_str().unwrap().strip_prefix("data:,").unwrap();
        let mut bytes = Vec::new();
        let mut rest = url.as_bytes();
        while let Some((first, behind)) = rest.split_first() {
            if *first == b'%' {
                let hex = std::str::from_utf8(&behind[..2]).unwrap();
                bytes.push(u8::from_str_radix(hex, 16).unwrap());
                rest = &behind[2..];
            } else {
                bytes.push(*first);
                rest = behind;
            }
        }
        String::from_utf8(bytes).unwrap()
    }

    /// BOOT-014: the files in their order, the encapsulated config last, without Ignition part and with the image.
    #[test]
    fn files_of_node_come_in_order() {
        let joining = joining(spec());
        let served = document(&joining, 5);
        let files = served["storage"]["files"].as_array().unwrap();
        let paths: Vec<&str> = files.iter().map(|file| file["path"].as_str().unwrap()).collect();
        assert_eq!(paths, ["/etc/a", KUBELET_CA, ANNOTATIONS, KUBECONFIG, CONTENT, ENCAPSULATED]);
        let modes: Vec<u64> = files[1..].iter().map(|file| file["mode"].as_u64().unwrap()).collect();
        assert_eq!(modes, [0o644, 0o644, 0o600, 0o600, 0o600]);
        assert!(files[1..].iter().all(|file| file["overwrite"] == true));
        assert_eq!(text(&served, KUBELET_CA), "new");
        assert_eq!(text(&served, KUBECONFIG), "token: g€heim\n");
        let annotations: BTreeMap<String, String> =
            serde_json::from_str(&text(&served, ANNOTATIONS)).unwrap();
        let image = joining.image.clone().unwrap();
        let expected = [
            ("currentConfig", "rendered-infra-1"),
            ("currentImage", &image),
            ("desiredConfig", "rendered-infra-1"),
            ("desiredImage", &image),
            ("firstPivotConfig", "rendered-infra-1"),
            ("state", "Done"),
        ]
        .map(|(key, value)| (format!("machineconfiguration.openshift.io/{key}"), value.to_owned()));
        assert_eq!(annotations, BTreeMap::from(expected));
        let content: Value = serde_json::from_str(&text(&served, CONTENT)).unwrap();
        assert_eq!(content["spec"]["config"]["storage"]["files"][0]["path"], "/etc/a");
        assert_eq!(
            content["metadata"],
            json!({ "name": "rendered-infra-1" }),
            "what only the API server needs is gone"
        );
        assert!(!format!("{joining:?}").contains("g€heim"));
    }

    /// BOOT-014: the agent's own reader takes the encapsulated config, in each version.
    #[test]
    fn first_boot_reads_encapsulated_config() {
        let mut without_image = joining(spec());
        for minor in 0..=5 {
            let text = text(&document(&without_image, minor), ENCAPSULATED);
            let config = machineconfig::MachineConfig::parse(text.as_bytes(), ENCAPSULATED).unwrap();
            let spec = config.spec(None).unwrap();
            assert_eq!(config.name().as_str(), "rendered-infra-1");
            let image = without_image.image.clone().unwrap();
            assert_eq!(spec.os_image_url.map(|image| image.to_string()), Some(image));
            assert_eq!((spec.files.len(), spec.kargs.len()), (0, 1));
            assert!(text.contains(&format!("{{\"ignition\":{{\"version\":\"3.{minor}.0\"}}}}")), "{text}");
        }
        without_image.image = None;
        let served = document(&without_image, 5);
        assert!(text(&served, ENCAPSULATED).contains("registry.test/base@"));
        assert!(!text(&served, ANNOTATIONS).contains("Image"));
    }

    #[test]
    fn kernel_arguments_move_for_older_ignition() {
        let with = |arguments: Value| {
            let mut spec = spec();
            spec["config"]["kernelArguments"] = arguments;
            joining(spec)
        };
        let added = with(json!({ "shouldExist": ["a", "b"] }));
        let old = document(&added, 2);
        assert_eq!(old.get("kernelArguments"), None);
        let encapsulated: Value = serde_json::from_str(&text(&old, ENCAPSULATED)).unwrap();
        assert_eq!(encapsulated["spec"]["kernelArguments"], json!(["quiet", "a", "b"]));
        let new = document(&added, 3);
        assert_eq!(new["kernelArguments"]["shouldExist"], json!(["a", "b"]));
        // Another request finds the config as it was.
        assert_eq!(document(&added, 2), old);
        let removed = with(json!({ "shouldNotExist": ["a"] }));
        let error = removed.document(Version(2)).unwrap_err().to_string();
        assert!(error.contains("rendered-infra-1") && error.contains("shouldNotExist"), "{error}");
        assert!(removed.document(Version(3)).is_ok());
    }

    #[test]
    fn unservable_fields_are_named() {
        let mut lost = spec();
        lost["config"]["storage"]["luks"] = json!([{ "name": "a" }]);
        let error = joining(lost).document(Version(1)).unwrap_err().to_string();
        assert!(error.contains("rendered-infra-1") && error.contains("spec.config.storage.luks"), "{error}");
        for config in [json!("x"), json!({ "ignition": { "version": "2.2.0" } }), json!({ "storage": [] })] {
            let error = joining(json!({ "config": config })).document(Version(5)).unwrap_err().to_string();
            assert!(error.contains("not an Ignition config of version 3"), "{error}");
        }
        // Nothing but the cluster's own files.
        let bare = document(&joining(json!({})), 5);
        assert_eq!(bare["ignition"]["version"], "3.5.0");
    }
}
