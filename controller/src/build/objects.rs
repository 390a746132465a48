//! Objects of a build in a cluster: a Job, a `ConfigMap` and Secrets. Pure.
//!
//! # Decisions
//!
//! - The files of a build are a Secret: a config holds secrets. Upstream keeps them in a `ConfigMap`.
//! - The pod is root without further privileges: chroot isolation, no privilege escalation, the capabilities that buildah needs, all
//!   of which the Pod Security Standard `baseline` allows. It has no access to the API server: the image's digest is its
//!   termination message.
//! - A pod that a drain evicts is no failed try.
//! - What a build needs from its surroundings (registries.conf, policy.json, certificates, entitlements) is mounted, or a flag of
//!   buildah's: nothing of it is in a layer, and of Secrets the controller copies credentials alone.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, ResourceRequirements, SeccompProfile, Secret, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::ObjectMeta;
use serde_json::{Value, json};

use super::archives;
use super::job::MAX_FAILURES;
use super::mounts::{Mount, source, volume_name};
use super::name::{job_name, short};
use crate::image::{AGENT, ApplyBy, Context, MAX_ARCHIVE};

/// Seconds that all tries of a build may take.
const DEADLINE: i64 = 3 * 3600;

/// The longest value of a label.
const MAX_LABEL: usize = 63;

/// The label of a build's objects with its name.
pub const MACHINE_OS_BUILD: &str = "machineconfiguration.openshift.io/machine-os-build";

/// Script of the pod. Its last step is the digest, alone, as the termination message.
const SCRIPT: &str = r#"umask 077
cp -L /run/build/files/* /run/build/context/
trusted=/var/lib/build/trust
mkdir -p "$HOME" $trusted
# By the files that are there: the Job may be older than they are.
texts=/run/build/containerfile
registries='' policy='' trust=''
if [ -e $texts/registries.conf ]; then registries=--registries-conf=$texts/registries.conf; fi
if [ -e $texts/policy.json ]; then policy=--signature-policy=$texts/policy.json; fi
if [ -e $texts/ca-bundle.crt ]; then
  cp $texts/ca-bundle.crt $trusted/
  trust=--volume=$texts/ca-bundle.crt:/run/build/trust/ca-bundle.crt:ro
  # Directories of certificates that Debian's and Fedora's buildah images have.
  export SSL_CERT_DIR=$trusted:/etc/ssl/certs:/etc/pki/tls/certs
fi
for ca in $texts/ca-of-*; do
  [ -e "$ca" ] || continue
  registry=$(echo "${ca#$texts/ca-of-}" | sed 's/\.\./:/')
  mkdir -p "/etc/containers/certs.d/$registry"
  cp "$ca" "/etc/containers/certs.d/$registry/ca.crt"
done
for places in $texts/signatures-of-*; do
  [ -e "$places" ] || continue
  mkdir -p /etc/containers/registries.d
  cp "$places" "/etc/containers/registries.d/${places#$texts/signatures-of-}"
done
tool() {
  # By flags: an image's own storage.conf is stronger than a variable, and its storage is no volume.
  # shellcheck disable=SC2086 # Each variable is no word or some, and no word of theirs has a special character.
  buildah --root=/var/lib/build/storage --runroot=/var/lib/build/run --storage-driver=vfs $registries "$@"
}
# shellcheck disable=SC2086
tool bud $policy $trust $VOLUMES --layers=false --format=oci --timestamp=0 --pull-always \
  --authfile=/run/build/base/.dockerconfigjson --file=$texts/Containerfile --tag="$TAG" /run/build/context
# shellcheck disable=SC2086
tool push $policy --authfile=/run/build/final/.dockerconfigjson --digestfile=/var/lib/build/digest "$TAG" "docker://$TAG"
cat /var/lib/build/digest > /dev/termination-log
"#;

/// The files beside the Containerfile.
const TRUST: &str = "ca-bundle.crt";
const REGISTRIES: &str = "registries.conf";
const POLICY: &str = "policy.json";

/// Beginning of the names of files with the certificates of one registry.
const CA_OF: &str = "ca-of-";

/// Beginning of the names of files with places of signatures.
const SIGNATURES_OF: &str = "signatures-of-";

/// As many bytes as a `ConfigMap` holds, less its metadata.
const MAX_TEXTS: usize = (1 << 20) - (16 << 10);

/// Capabilities of buildah as root: a container runtime gives these by default.
const CAPABILITIES: [&str; 11] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Settings of all Jobs.
#[derive(Debug, Clone, PartialEq, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct JobSettings {
    /// Namespace of the objects.
    #[serde(skip)]
    pub namespace: String,
    /// An image with a shell and buildah.
    pub builder_image: String,
    /// The agent's image.
    pub agent_image: String,
    /// Requests and limits of the build.
    pub resources: ResourceRequirements,
    /// Nodes that may build.
    pub node_selector: BTreeMap<String, String>,
    /// Taints that a build tolerates.
    pub tolerations: Vec<Toleration>,
    /// Seconds that all tries of a build may take.
    pub deadline: i64,
    /// Variables of the cluster's proxy.
    pub proxy: BTreeMap<String, String>,
    /// Registries without TLS, which the controller asks for images: `HOST` or `HOST:PORT`.
    pub insecure_registries: Vec<String>,
    /// Certificates that the controller and the build trust in addition to their own, PEM.
    pub trust_bundle: String,
    /// The build's `registries.conf`.
    pub registries_conf: String,
    /// The build's `policy.json`.
    pub policy_json: String,
    /// Certificates that the build trusts for one registry, PEM; by registry, with `..` in place of the colon.
    #[serde(skip)]
    pub registry_authorities: BTreeMap<String, String>,
    /// Places of signatures that the policy asks for, by the name of their file.
    #[serde(skip)]
    pub signatures: BTreeMap<String, String>,
    /// Take what is not set here from the cluster and the rendered config.
    pub from_cluster: bool,
    /// Objects that the user's steps see, and the image does not have.
    pub mounts: Vec<Mount>,
    /// Program that applies the config in the build.
    pub apply_by: ApplyBy,
    /// Seccomp profile of the build's container; the kubelet's default without one.
    pub seccomp_profile: Option<SeccompProfile>,
}

impl JobSettings {
    /// Returns the Secrets that the user's steps see.
    pub fn mounted_secrets(&self) -> Vec<&str> {
        self.mounts.iter().filter_map(Mount::secret).collect()
    }

    /// The files of the build by name, beside the Containerfile; none that is empty.
    fn files(&self) -> impl Iterator<Item = (String, &String)> {
        let own =
            [(TRUST, &self.trust_bundle), (REGISTRIES, &self.registries_conf), (POLICY, &self.policy_json)];
        let own = own.into_iter().map(|(name, text)| (name.to_owned(), text));
        let registries = self.registry_authorities.iter();
        let registries = registries.map(|(registry, text)| (format!("{CA_OF}{registry}"), text));
        let signatures = self.signatures.iter();
        let signatures = signatures.map(|(name, text)| (format!("{SIGNATURES_OF}{name}"), text));
        own.chain(registries).chain(signatures).filter(|(_, text)| !text.is_empty())
    }
}

impl Default for JobSettings {
    fn default() -> Self {
        Self {
            namespace: String::new(),
            builder_image: String::new(),
            agent_image: String::new(),
            resources: ResourceRequirements::default(),
            node_selector: BTreeMap::new(),
            tolerations: Vec::new(),
            deadline: DEADLINE,
            proxy: BTreeMap::new(),
            insecure_registries: Vec::new(),
            trust_bundle: String::new(),
            registries_conf: String::new(),
            policy_json: String::new(),
            registry_authorities: BTreeMap::new(),
            signatures: BTreeMap::new(),
            from_cluster: true,
            mounts: Vec::new(),
            apply_by: ApplyBy::default(),
            seccomp_profile: None,
        }
    }
}

/// Image to build.
#[derive(Debug, Clone, Copy)]
pub struct JobRequest<'a> {
    /// Name of the build.
    pub build: &'a str,
    /// Its UID.
    pub build_uid: &'a str,
    /// The `MachineOSConfig`.
    pub os_config: &'a str,
    /// The pool.
    pub pool: &'a str,
    /// The rendered config.
    pub rendered: &'a str,
    /// Reference of the pushed image, by tag.
    pub push_spec: &'a str,
    /// The Containerfile and its files.
    pub context: &'a Context,
}

/// A build whose objects can't be made.
#[derive(Debug, thiserror::Error)]
pub enum ObjectsError {
    /// The API server would refuse it.
    #[error(
        "MachineConfig {rendered} is too large for a build: compressed it has {bytes} bytes, and a Secret at most \
         {MAX_ARCHIVE}; make its files smaller, or copy them from an image in the Containerfile"
    )]
    TooLarge {
        /// The rendered config.
        rendered: String,
        /// Bytes of its largest file, compressed.
        bytes: usize,
    },
    /// The texts beside the Containerfile are too large.
    #[error(
        "the Containerfile, certificates and registries of a build have {bytes} bytes, and a ConfigMap holds {MAX_TEXTS}; set a smaller \
         trustBundle in the build settings, or fromCluster: false"
    )]
    Texts {
        /// Their bytes.
        bytes: usize,
    },
    /// Unreachable: the Job's form is fixed.
    #[error("the Job can't be made: {0}")]
    Json(#[from] serde_json::Error),
}

/// Returns the metadata of what runs a build: it goes with the `MachineOSBuild`.
pub(super) fn metadata(request: &JobRequest<'_>, settings: &JobSettings) -> Value {
    json!({
        "name": job_name(request.build),
        "namespace": settings.namespace,
        "labels": labels(request),
        "ownerReferences": [{
            "apiVersion": "machineconfiguration.openshift.io/v1",
            "kind": "MachineOSBuild",
            "name": request.build,
            "uid": request.build_uid,
            "controller": true,
            "blockOwnerDeletion": true,
        }],
    })
}

/// Returns a build's Job, suspended.
pub fn job(request: &JobRequest<'_>, settings: &JobSettings) -> Result<Job, ObjectsError> {
    let bytes = settings.files().map(|(name, text)| name.len() + text.len()).sum::<usize>();
    let bytes = bytes + request.context.containerfile.len();
    if bytes > MAX_TEXTS {
        return Err(ObjectsError::Texts { bytes });
    }
    let job = json!({
        "metadata": metadata(request, settings),
        "spec": {
            "suspend": true,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": MAX_FAILURES,
            "activeDeadlineSeconds": settings.deadline,
            "podFailurePolicy": { "rules": [{
                "action": "Ignore",
                "onPodConditions": [{ "type": "DisruptionTarget", "status": "True" }],
            }] },
            "template": { "metadata": { "labels": labels(request) }, "spec": pod(request, settings) },
        },
    });
    Ok(serde_json::from_value(job)?)
}

fn pod(request: &JobRequest<'_>, settings: &JobSettings) -> Value {
    let mount =
        |name: &str| json!({ "name": name, "mountPath": format!("/run/build/{name}"), "readOnly": true });
    let writable = |name: &str, path: &str| json!({ "name": name, "mountPath": path });
    let secret = |volume: &str, prefix: &str| {
        let name = format!("{prefix}-{}", request.build);
        json!({ "name": volume, "secret": { "secretName": name, "defaultMode": 0o400 } })
    };
    let containerfile = format!("containerfile-{}", request.build);
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": 10,
        "initContainers": [{
            "name": "agent",
            "image": settings.agent_image,
            "command": ["cp", format!("/usr/bin/{AGENT}"), "/run/build/context/"],
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
            "volumeMounts": [writable("context", "/run/build/context")],
        }],
        "containers": [{
            "name": "image-build",
            "image": settings.builder_image,
            "command": ["/bin/sh", "-ec", SCRIPT],
            "env": env(request, settings),
            "resources": settings.resources,
            "securityContext": {
                "runAsUser": 0,
                "allowPrivilegeEscalation": false,
                "capabilities": { "drop": ["ALL"], "add": CAPABILITIES },
            },
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [
                mount("containerfile"), mount("files"), mount("base"), mount("final"),
                writable("context", "/run/build/context"), writable("work", "/var/lib/build"),
            ],
        }],
        "volumes": [
            { "name": "containerfile", "configMap": { "name": containerfile } },
            archives::volume(request.build, request.context), secret("base", "base"), secret("final", "final"),
            { "name": "context", "emptyDir": { "medium": "Memory" } },
            { "name": "work", "emptyDir": {} },
        ],
    });
    add_mounts(&mut pod, &settings.mounts);
    let context = pod.pointer_mut("/containers/0/securityContext").and_then(Value::as_object_mut);
    if let (Some(context), Some(profile)) = (context, &settings.seccomp_profile) {
        context.insert("seccompProfile".to_owned(), json!(profile));
    }
    if let Some(pod) = pod.as_object_mut() {
        if !settings.node_selector.is_empty() {
            pod.insert("nodeSelector".to_owned(), json!(settings.node_selector));
        }
        if !settings.tolerations.is_empty() {
            pod.insert("tolerations".to_owned(), json!(settings.tolerations));
        }
    }
    pod
}

/// Adds the volumes that the user's steps see.
fn add_mounts(pod: &mut Value, mounts: &[Mount]) {
    let mut add = |pointer: &str, value: Value| {
        if let Some(list) = pod.pointer_mut(pointer).and_then(Value::as_array_mut) {
            list.push(value);
        }
    };
    for (number, mount) in mounts.iter().enumerate() {
        let name = volume_name(number);
        add(
            "/containers/0/volumeMounts",
            json!({ "name": name, "mountPath": source(number), "readOnly": true }),
        );
        add("/volumes", mount.volume(&name));
    }
}

fn env(request: &JobRequest<'_>, settings: &JobSettings) -> Vec<Value> {
    let mounts = settings.mounts.iter().enumerate();
    let volumes: Vec<String> =
        mounts.map(|(number, mount)| format!("--volume={}:{}:ro", source(number), mount.path)).collect();
    let volumes = volumes.join(" ");
    let fixed = [
        ("BUILDAH_ISOLATION", "chroot"),
        ("HOME", "/var/lib/build/home"),
        ("TAG", request.push_spec),
        ("TMPDIR", "/var/lib/build"),
        ("VOLUMES", volumes.as_str()),
    ];
    let proxy = settings.proxy.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    fixed.into_iter().chain(proxy).map(|(name, value)| json!({ "name": name, "value": value })).collect()
}

/// Inputs of a Job.
#[derive(Debug, Clone, PartialEq)]
pub struct JobInputs {
    /// The Containerfile.
    pub config_map: ConfigMap,
    /// The files, each in a Secret of its own, and the credentials for pull and push.
    pub secrets: Vec<Secret>,
}

/// Owner of a build's inputs, by UID.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputOwner<'a> {
    /// A Kubernetes Job.
    Job(&'a str),
    /// A Build of OpenShift.
    OpenShiftBuild(&'a str),
}

/// Returns the inputs of a build. The credentials are in the form `kubernetes.io/dockerconfigjson`.
pub fn inputs(
    request: &JobRequest<'_>,
    settings: &JobSettings,
    input_owner: InputOwner<'_>,
    base: &[u8],
    last: &[u8],
) -> Result<JobInputs, ObjectsError> {
    check_size(request.rendered, request.context)?;
    let metadata = |name: String| ObjectMeta {
        name: Some(name),
        namespace: Some(settings.namespace.clone()),
        labels: Some(labels(request)),
        owner_references: Some(vec![owner(request, input_owner)]),
        ..ObjectMeta::default()
    };
    let secret = |name: String, kind: Option<&str>, key: &str, bytes: &[u8]| Secret {
        metadata: metadata(name),
        type_: kind.map(str::to_owned),
        data: Some(BTreeMap::from([(key.to_owned(), ByteString(bytes.to_vec()))])),
        immutable: Some(true),
        ..Secret::default()
    };
    let files = archives::secrets(request.build, request.context)
        .map(|(name, file, bytes)| secret(name, None, file, bytes));
    let credentials = |prefix: &str, bytes: &[u8]| {
        let kind = Some("kubernetes.io/dockerconfigjson");
        secret(format!("{prefix}-{}", request.build), kind, ".dockerconfigjson", bytes)
    };
    let texts = settings.files().map(|(name, text)| (name, text.clone()));
    let containerfile = ("Containerfile".to_owned(), request.context.containerfile.clone());
    let config_map = ConfigMap {
        metadata: metadata(format!("containerfile-{}", request.build)),
        data: Some(texts.chain([containerfile]).collect()),
        immutable: Some(true),
        ..ConfigMap::default()
    };
    let secrets = files.chain([credentials("base", base), credentials("final", last)]).collect();
    Ok(JobInputs { config_map, secrets })
}

/// Refuses a build with a file that fits into no Secret.
pub fn check_size(rendered: &str, context: &Context) -> Result<(), ObjectsError> {
    let bytes = context.files.values().map(Vec::len).max().unwrap_or(0);
    if bytes > MAX_ARCHIVE {
        return Err(ObjectsError::TooLarge { rendered: rendered.to_owned(), bytes });
    }
    Ok(())
}

/// As upstream: an owner that neither controls nor blocks.
fn owner(request: &JobRequest<'_>, owner: InputOwner<'_>) -> OwnerReference {
    let (api_version, kind, uid) = match owner {
        InputOwner::Job(uid) => ("batch/v1", "Job", uid),
        InputOwner::OpenShiftBuild(uid) => ("build.openshift.io/v1", "Build", uid),
    };
    OwnerReference {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
        name: job_name(request.build),
        uid: uid.to_owned(),
        controller: Some(false),
        block_owner_deletion: Some(false),
    }
}

pub(super) fn labels(request: &JobRequest<'_>) -> BTreeMap<String, String> {
    let key = |name: &str| format!("machineconfiguration.openshift.io/{name}");
    BTreeMap::from([
        (key("on-cluster-layering"), String::new()),
        (key("ephemeral-build-object"), String::new()),
        (key("rendered-machine-config"), short(request.rendered, MAX_LABEL)),
        (key("target-machine-config-pool"), short(request.pool, MAX_LABEL)),
        (key("machine-os-config"), short(request.os_config, MAX_LABEL)),
        (MACHINE_OS_BUILD.to_owned(), label(request.build)),
    ])
}

/// Returns a name as a label has it.
pub fn label(name: &str) -> String {
    short(name, MAX_LABEL)
}

#[cfg(test)]
#[path = "objects_tests.rs"]
mod tests;
