//! The configuration of a cluster, as `openshift-install image-based` takes it, and the Containerfile that adds it to a seed.
//!
//! The installer's own `image-based create containerfile` is an open pull request (openshift/installer#9682).

use std::collections::BTreeMap;

use serde_json::Value;

use super::SEED_DIRECTORY;
use super::secret::{in_contents, in_name};
use crate::model::document::{self, Document, Kind};
use crate::model::{ImageRef, MachineConfig, ModelError, yaml};

/// Name, network, pull secret of the cluster.
pub const INSTALL_CONFIG: &str = "install-config.yaml";
/// Identity of its host.
pub const IMAGE_BASED_CONFIG: &str = "image-based-config.yaml";
/// Further manifests.
pub const EXTRA_MANIFESTS: &str = "extra-manifests";

/// Directory of the configuration in the image: below `/usr` it also comes to a host that exists.
pub const CLUSTER_CONFIGURATION: &str = "usr/lib/openshift/cluster-configuration";

/// The files of a directory with a cluster's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ConfigFiles {
    /// `install-config.yaml`.
    pub install: Option<String>,
    /// `image-based-config.yaml`.
    pub image_based: Option<String>,
    /// The contents of `extra-manifests`, by name; `None` for what is no regular file.
    pub manifests: BTreeMap<String, Option<String>>,
    /// The files that are taken although they hold a secret.
    pub named: Vec<String>,
}

/// A fault of the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The file.
    pub file: String,
    /// The cause; no value of the file is quoted.
    pub cause: String,
    /// The next step.
    pub next: String,
}

/// A configuration without faults.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterConfig {
    name: String,
    hostname: String,
    has_manifests: bool,
}

impl ConfigFiles {
    /// Reads the configuration, or names every fault.
    pub fn check(&self) -> Result<ClusterConfig, Vec<ConfigProblem>> {
        let mut problems = Vec::new();
        let name = self.check_install(&mut problems);
        let hostname = self.check_image_based(&mut problems);
        self.check_manifests(&mut problems);
        self.check_secrets(&mut problems);
        if problems.is_empty() {
            return Ok(ClusterConfig { name, hostname, has_manifests: !self.manifests.is_empty() });
        }
        Err(problems)
    }

    /// Names the files that look like a key and are not named: whoever can pull the image reads them.
    fn check_secrets(&self, problems: &mut Vec<ConfigProblem>) {
        let manifests = self
            .manifests
            .iter()
            .filter_map(|(name, text)| Some((format!("{EXTRA_MANIFESTS}/{name}"), text.as_ref()?)));
        let own = [(INSTALL_CONFIG, &self.install), (IMAGE_BASED_CONFIG, &self.image_based)];
        let own = own.into_iter().filter_map(|(name, text)| Some((name.to_owned(), text.as_ref()?)));
        for (name, text) in own.chain(manifests).filter(|(name, _)| !self.named.contains(name)) {
            let Some(cause) = in_name(&name).or_else(|| secret_in(text)) else { continue };
            let next = format!(
                "Pass --include-secret {name}, and push the image to a registry that only its hosts can read; or take the secret out."
            );
            let cause =
                format!("it holds what looks like {cause}, and everybody who can pull the image can read it");
            problems.push(ConfigProblem { file: name, cause, next });
        }
    }

    /// Returns `NAME.DOMAIN` of the cluster.
    fn check_install(&self, problems: &mut Vec<ConfigProblem>) -> String {
        let next = "Write it with `openshift-install create install-config --dir DIR`.";
        let mut file = File { name: INSTALL_CONFIG, problems };
        let Some(config) = file.read(self.install.as_deref(), next) else { return String::new() };
        file.expect(&config, "/apiVersion", "v1");
        let name = file.name_at(&config, "/metadata/name");
        let domain = file.name_at(&config, "/baseDomain");
        if config.pointer("/controlPlane/replicas").and_then(Value::as_u64) != Some(1) {
            file.add("controlPlane.replicas is not 1", "Set it to 1: a seed is of a single node.");
        }
        let workers = config.get("compute").and_then(Value::as_array).into_iter().flatten();
        if workers.filter_map(|pool| pool.get("replicas")).any(|count| count.as_u64() != Some(0)) {
            file.add(
                "a pool of compute has replicas",
                "Set replicas of each to 0: a seed is of a single node.",
            );
        }
        let secret = config.get("pullSecret").and_then(Value::as_str).unwrap_or_default();
        let secret: Option<Value> = serde_json::from_str(secret).ok();
        if !secret.is_some_and(|secret| secret.get("auths").is_some_and(Value::is_object)) {
            file.add(
                "pullSecret is missing, or no JSON with auths",
                "Set it to the pull secret of the cluster.",
            );
        }
        format!("{name}.{domain}")
    }

    /// Returns the name of the host.
    fn check_image_based(&self, problems: &mut Vec<ConfigProblem>) -> String {
        let next = "Write it with `openshift-install image-based create config-template --dir DIR`.";
        let mut file = File { name: IMAGE_BASED_CONFIG, problems };
        let Some(config) = file.read(self.image_based.as_deref(), next) else { return String::new() };
        file.expect(&config, "/apiVersion", "v1beta1");
        file.expect(&config, "/kind", "ImageBasedConfig");
        file.name_at(&config, "/hostname")
    }

    fn check_manifests(&self, problems: &mut Vec<ConfigProblem>) {
        for (name, text) in &self.manifests {
            let name = format!("{EXTRA_MANIFESTS}/{name}");
            let mut file = File { name: &name, problems };
            let Some(text) = text else {
                file.add(
                    "it is not a regular file",
                    "Move it out of the directory: only files are read there.",
                );
                continue;
            };
            if ![".yaml", ".yml", ".json"].iter().any(|ending| name.ends_with(ending)) {
                file.add(
                    "it ends with neither .yaml, .yml nor .json",
                    "Rename it, or move it out of the directory.",
                );
                continue;
            }
            match document::documents(text.as_bytes(), &name) {
                Ok(documents) => documents.into_iter().for_each(|document| file.check_object(document)),
                Err(error) => file.add(&error.without_object(), "Correct it."),
            }
        }
    }
}

/// Returns what a manifest looks like, if it holds a secret: by its kind, or by its contents.
fn secret_in(text: &str) -> Option<&'static str> {
    let is_kind = |part: &str| part.replace(['"', '\'', ' ', '\t', '\r', '{', '}'], "") == "kind:Secret";
    let is_secret = text.lines().flat_map(|line| line.split(',')).any(is_kind);
    is_secret.then_some("a Secret").or_else(|| in_contents(text.as_bytes()))
}

/// A file, and the faults found so far.
struct File<'a> {
    name: &'a str,
    problems: &'a mut Vec<ConfigProblem>,
}

impl File<'_> {
    fn add(&mut self, cause: &str, next: &str) {
        let file = self.name.to_owned();
        self.problems.push(ConfigProblem { file, cause: cause.to_owned(), next: next.to_owned() });
    }

    /// Reads a file that has to be there.
    fn read(&mut self, text: Option<&str>, next: &str) -> Option<Value> {
        if text.is_none() {
            self.add("the directory has no such file", next);
        }
        self.tree(text?)
    }

    /// Checks a manifest; a MachineConfig is read as its node will.
    fn check_object(&mut self, document: Document) {
        let object: Value = serde_json::from_str(document.json()).unwrap_or_default();
        if ["apiVersion", "kind"].iter().any(|key| !object.get(*key).is_some_and(Value::is_string)) {
            self.add("a document has no apiVersion or no kind", "Write one Kubernetes object a document.");
            return;
        }
        if document.kind() != Kind::MACHINE_CONFIG.kind {
            return;
        }
        let title = document.title();
        let read = MachineConfig::of_document(document).and_then(|config| config.refuse_unknown(&title));
        for fault in read.as_ref().err().into_iter().flat_map(ModelError::faults) {
            self.add(
                &format!("{title}: {}", fault.without_object()),
                "Correct it: its nodes would refuse it.",
            );
        }
    }

    fn tree(&mut self, text: &str) -> Option<Value> {
        let cause = match yaml::tree(text) {
            Ok(tree) if tree.is_object() => return Some(tree),
            Ok(_) => "it is not an object".to_owned(),
            Err(cause) => format!("it can't be read as YAML: {cause}"),
        };
        self.add(&cause, "Correct it.");
        None
    }

    /// Requires a field of one value.
    fn expect(&mut self, config: &Value, pointer: &str, expected: &str) {
        if config.pointer(pointer).and_then(Value::as_str) != Some(expected) {
            let field = field(pointer);
            self.add(&format!("{field} is not {expected}"), &format!("Set it to {expected}."));
        }
    }

    /// Requires a name of DNS, which is also safe in a comment.
    fn name_at(&mut self, config: &Value, pointer: &str) -> String {
        let text = config.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let is_label =
            |label: &str| !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if text.len() > 253 || !text.split('.').all(is_label) {
            let field = field(pointer);
            self.add(&format!("{field} is missing, or no name of DNS"), "Set it: the seed has none.");
            return String::new();
        }
        text.to_owned()
    }
}

fn field(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

/// Returns the Containerfile; its build context is the directory of the configuration.
///
/// Builders mount files of their own over `/etc/hosts`, `/etc/hostname` and `/etc/resolv.conf` while a `RUN` lasts: what it writes
/// there is lost, and what it removes there is busy. So these three come from another stage.
pub fn containerfile(seed: &ImageRef, config: &ClusterConfig) -> String {
    let ClusterConfig { name, hostname, has_manifests } = config;
    let seed = seed.canonical();
    let manifests = if *has_manifests {
        format!("COPY [\"{EXTRA_MANIFESTS}/\", \"/{CLUSTER_CONFIGURATION}/{EXTRA_MANIFESTS}/\"]\n")
    } else {
        String::new()
    };
    format!(
        "# The seed with the configuration of the cluster {name} and its host {hostname}.\n\
         # Build: podman build --file CONTAINERFILE DIR, where DIR is the directory of the configuration.\n\
         # The image holds the pull secret of the cluster: push it to a registry that only its hosts can read.\n\
         FROM {seed} AS names\n\
         \n\
         # The files over which a build mounts its own.\n\
         RUN set -eu; \\\n    \
             mkdir -p /names/etc; \\\n    \
             for name in hosts resolv.conf; do \\\n        \
                 tar --extract --gzip --preserve-permissions --numeric-owner --file=/{SEED_DIRECTORY}/etc.tgz \\\n            \
                     --directory=/names \"etc/$name\" 2>/dev/null || true; \\\n    \
             done; \\\n    \
             printf '%s\\n' {hostname} > /names/etc/hostname\n\
         \n\
         FROM {seed}\n\
         \n\
         # /etc and /var of the seed become those of the image.\n\
         RUN set -eu; \\\n    \
             seed=/{SEED_DIRECTORY}; \\\n    \
             for archive in etc var; do \\\n        \
                 tar --extract --gzip --preserve-permissions --numeric-owner --acls --xattrs --xattrs-include='user.*' --anchored \\\n            \
                     --exclude=etc/hosts --exclude=etc/hostname --exclude=etc/resolv.conf \\\n            \
                     --file=\"$seed/$archive.tgz\" --directory=/; \\\n    \
             done; \\\n    \
             while IFS= read -r path; do \\\n        \
                 case \"/${{path#/}}\" in /etc/hosts | /etc/hostname | /etc/resolv.conf) continue ;; esac; \\\n        \
                 rm -rf -- \"/${{path#/}}\"; \\\n    \
             done < \"$seed/etc.deletions\"\n\
         \n\
         COPY --from=names /names/etc/ /etc/\n\
         \n\
         # The configuration of the cluster, for the first boot.\n\
         COPY [\"{INSTALL_CONFIG}\", \"{IMAGE_BASED_CONFIG}\", \"/{CLUSTER_CONFIGURATION}/\"]\n\
         {manifests}\
         RUN chmod -R u=rwX,go= /{CLUSTER_CONFIGURATION}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const INSTALL: &str = "apiVersion: v1\nmetadata: {name: sno}\nbaseDomain: example.test\n\
        controlPlane: {name: master, replicas: 1}\ncompute: [{name: worker, replicas: 0}]\n\
        pullSecret: '{\"auths\": {\"registry.test\": {\"auth\": \"aHVudGVyMg==\"}}}'\n";
    const IMAGE_BASED: &str = "apiVersion: v1beta1\nkind: ImageBasedConfig\nhostname: host-b\n";

    fn good() -> ConfigFiles {
        let text = "---\napiVersion: v1\nkind: ConfigMap\n---\napiVersion: v1\nkind: Secret\n";
        ConfigFiles {
            install: Some(INSTALL.to_owned()),
            image_based: Some(IMAGE_BASED.to_owned()),
            manifests: BTreeMap::from([("a.yaml".to_owned(), Some(text.to_owned()))]),
            named: vec![INSTALL_CONFIG.to_owned(), "extra-manifests/a.yaml".to_owned()],
        }
    }

    fn seed() -> ImageRef {
        ImageRef::parse(&format!("registry.test/seed@sha256:{}", "0".repeat(64))).unwrap()
    }

    /// A MachineConfig of the seed meets its first reader on the node; here it has the same one.
    #[test]
    fn machineconfigs_among_the_manifests_are_read_as_nodes_read_them() {
        let head =
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 50-a}\n";
        let file = |mode: &str| {
            format!(
                "spec: {{config: {{ignition: {{version: 3.4.0}}, storage: {{files: [{{path: /etc/a, {mode}}}]}}}}}}\n"
            )
        };
        for (text, cause) in [
            (format!("{head}{}", file("mode: 420")), None),
            (format!("--- # a comment\n{head}{}", file("mode: 420")), None),
            (format!("{head}{}", file("mode: 644")), Some("octal")),
            (
                format!("{head}{}---\n{head}spec: {{kernelType: fast}}\n", file("mode: 420")),
                Some("kernelType"),
            ),
            (format!("{head}{}", file("mod: 420")), Some("mode?")),
            ("a: [".to_owned(), Some("line")),
            ("kind: ConfigMap\n".to_owned(), Some("apiVersion")),
        ] {
            let files = ConfigFiles {
                manifests: BTreeMap::from([("a.yaml".to_owned(), Some(text.clone()))]),
                named: vec![INSTALL_CONFIG.to_owned()],
                ..good()
            };
            let found = files.check().err().unwrap_or_default();
            let causes: Vec<&str> = found.iter().map(|problem| problem.cause.as_str()).collect();
            let Some(cause) = cause else {
                assert!(causes.is_empty(), "{text}: {causes:?}");
                continue;
            };
            assert!(matches!(causes.as_slice(), [one] if one.contains(cause)), "{text}: {causes:?}");
        }
    }

    #[test]
    fn containerfile_adds_the_configuration_to_the_seed() {
        let text = containerfile(&seed(), &good().check().unwrap());
        for line in [
            &format!("FROM {} AS names", seed()),
            &format!("FROM {}", seed()),
            "COPY [\"install-config.yaml\", \"image-based-config.yaml\", \"/usr/lib/openshift/cluster-configuration/\"]",
            "COPY [\"extra-manifests/\", \"/usr/lib/openshift/cluster-configuration/extra-manifests/\"]",
            "    seed=/usr/lib/openshift/seed; \\",
            "    printf '%s\\n' host-b > /names/etc/hostname",
            "COPY --from=names /names/etc/ /etc/",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        assert!(text.contains("sno.example.test") && !text.contains("aHVudGVyMg"), "{text}");
        let plain = ConfigFiles { manifests: BTreeMap::new(), ..good() };
        assert!(!containerfile(&seed(), &plain.check().unwrap()).contains("extra-manifests"));
    }

    #[test]
    fn secrets_are_named_before_they_are_taken() {
        let told = |files: &ConfigFiles| -> Vec<String> {
            let problems = files.check().unwrap_err();
            assert!(
                problems.iter().all(|one| one.next.contains(&format!("--include-secret {}", one.file))),
                "{problems:?}"
            );
            problems.into_iter().map(|problem| problem.file).collect()
        };
        let unnamed = ConfigFiles { named: Vec::new(), ..good() };
        assert_eq!(told(&unnamed), [INSTALL_CONFIG, "extra-manifests/a.yaml"]);
        for text in [
            "apiVersion: v1\nkind: ConfigMap\ndata: {token: hunter2}\n",
            "{\"apiVersion\": \"v1\",\n\"kind\": \"Secret\"}",
            "{apiVersion: v1, kind: Secret}",
        ] {
            let manifests = BTreeMap::from([("b.yaml".to_owned(), Some(text.to_owned()))]);
            assert_eq!(told(&ConfigFiles { manifests, ..good() }), ["extra-manifests/b.yaml"]);
        }
    }

    #[test]
    fn every_fault_is_named_with_its_next_step() {
        let causes = |files: &ConfigFiles| -> Vec<String> {
            let problems = files.check().unwrap_err();
            assert!(problems.iter().all(|problem| problem.next.ends_with('.')), "{problems:?}");
            problems.into_iter().map(|problem| format!("{}: {}", problem.file, problem.cause)).collect()
        };
        let none = [
            "install-config.yaml: the directory has no such file",
            "image-based-config.yaml: the directory has no such file",
        ];
        assert_eq!(causes(&ConfigFiles::default()), none);
        let install = |from: &str, to: &str| {
            let changed = INSTALL.replace(from, to);
            assert_ne!(changed, INSTALL, "{from}");
            causes(&ConfigFiles { install: Some(changed), ..good() }).join("; ")
        };
        assert!(install("v1\n", "v2\n").contains("apiVersion is not v1"));
        assert!(
            install("name: sno", "name: 's$(id)'").contains("metadata.name is missing, or no name of DNS")
        );
        assert!(install("baseDomain", "domain").contains("baseDomain is missing"));
        assert!(install("replicas: 1", "replicas: 3").contains("controlPlane.replicas is not 1"));
        assert!(install("replicas: 0", "replicas: 2").contains("a pool of compute has replicas"));
        assert!(install("auths", "auth").contains("pullSecret is missing, or no JSON with auths"));
        let text = "a: [hunter2\n".to_owned();
        let broken = causes(&ConfigFiles { image_based: Some(text), ..good() }).join("; ");
        assert!(broken.starts_with("image-based-config.yaml: it can't be read as YAML"), "{broken}");
        assert!(!broken.contains("hunter2"), "{broken}");
        let text = IMAGE_BASED.replace("hostname", "host");
        let unnamed = causes(&ConfigFiles { image_based: Some(text), ..good() });
        assert_eq!(unnamed, ["image-based-config.yaml: hostname is missing, or no name of DNS"]);
        let manifests = [("a.txt", Some("")), ("b.yaml", None), ("c.json", Some("{\"kind\": \"x\"}"))];
        let manifests =
            manifests.map(|(name, text)| (name.to_owned(), text.map(str::to_owned))).into_iter().collect();
        let expected = [
            "extra-manifests/a.txt: it ends with neither .yaml, .yml nor .json",
            "extra-manifests/b.yaml: it is not a regular file",
            "extra-manifests/c.json: a document has no apiVersion or no kind",
        ];
        assert_eq!(causes(&ConfigFiles { manifests, ..good() }), expected);
    }
}
