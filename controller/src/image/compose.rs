//! The context of a build: the Containerfile and the files beside it. Pure: the same request gives the same bytes.
//!
//! # Decisions
//!
//! - Two stages: `configs` from the base, with the config; the user's text, which ends with a stage from `configs`. Our labels
//!   and `verify` follow it: what the label says holds for the image as it is. The embedded config and the originals are compared, too: a
//!   node goes by them.
//! - What the builder alone needs (the agent, the config in parts) is mounted, not copied: it is in no layer.
//! - The config in parts is a compressed archive, unpacked in a stage of its own: plain it fits into no Secret from some 500 KiB on.
//! - `apply --into-image` keeps what the base has at the paths of the config (`/usr/lib/machine-config-agent/originals`): a node that
//!   boots the image with another config needs it. The rest of the agent's state is in no image.
//! - Parts of a config that no image can carry (kernel arguments, FIPS mode, disks) are left to the node.

use std::collections::BTreeMap;

use machine_config_core::model::machineconfig::MachineConfig as Document;
use machine_config_core::model::{HostSpec, Reference, short};
use serde_json::{Map, Value, json};

use super::archive::{FILES, pack, unpack};
use super::{ImageError, bound, packages, user};
use crate::api::MachineConfig;

/// The name of the agent's executable among the files of a build; the builder puts it there.
pub const AGENT: &str = "machine-config-agent";

/// The rendered config, as the image keeps it.
const RENDERED: &str = "machineconfig.json";

/// The part of it that `apply` and `verify` are given.
const APPLIED: &str = "applied.json";

/// The part of it that Ignition is given.
const IGNITION: &str = "ignition.json";

/// The certificates that the image trusts in addition.
const TRUST: &str = "additional-trust-bundle.crt";

/// Mount point of the files; it is in no image.
pub(super) const MOUNT: &str = "/run/machine-config-build";

/// The units that Ignition would have enabled at the first boot.
const PRESETS: &str = "/etc/systemd/system-preset/20-ignition.preset";

/// The sources of the trust store.
const ANCHORS: &str = "/etc/pki/ca-trust/source";

/// The transport of registries, which a reference may name.
const REGISTRY: &str = "docker://";

/// Transports of images that are on the builder's own disk.
const LOCAL: [&str; 5] = ["containers-storage:", "dir:", "docker-archive:", "oci:", "oci-archive:"];

/// State of the agent; a node begins without it.
const STATE: &str = "/var/lib/machine-config-agent";

/// Program that applies the config.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
pub enum ApplyBy {
    /// The agent: an image holds what the agent makes of the config on a node.
    #[default]
    Agent,
    /// The base image's Ignition.
    Ignition,
}

/// Image to build.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The rendered config.
    pub rendered: &'a MachineConfig,
    /// The pool that it is for, where there is one.
    pub pool: Option<&'a str>,
    /// The base image.
    pub base: &'a str,
    /// The user's part of the Containerfile; empty for none.
    pub containerfile: &'a str,
    /// Program that applies the config.
    pub apply_by: ApplyBy,
    /// Certificates that the image trusts in addition.
    pub trust: Option<&'a [u8]>,
}

/// A Containerfile and the files beside it; the builder adds the executable [`AGENT`].
#[derive(Clone, PartialEq, Eq)]
pub struct Context {
    /// The text.
    pub containerfile: String,
    /// The files by name: archives, each for a Secret of its own. Only the builder may read them: a config holds secrets.
    pub files: BTreeMap<String, Vec<u8>>,
}

/// A config holds secrets: only the names of the files are shown.
impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&String> = self.files.keys().collect();
        f.debug_struct("Context").field("containerfile", &self.containerfile).field("files", &names).finish()
    }
}

/// Puts a build together, or refuses it.
pub fn compose(request: &Request<'_>) -> Result<Context, ImageError> {
    let checked = user::check(request.containerfile)?;
    let document = Document::parse(&serde_json::to_vec(request.rendered)?, "the rendered config")?;
    let spec = document.spec(None)?;
    let name = spec.name.as_str();
    let base = &reference("the base image", request.base)?;
    let extensions = request.rendered.spec.extensions_image.as_deref().filter(|image| !image.is_empty());
    let extensions =
        extensions.map(|image| reference("baseOSExtensionsContainerImage", image)).transpose()?;
    let pool = request.pool.map(|pool| label("the pool", pool)).transpose()?;

    let mut files = contents(request, &document)?;
    let mut text = format!("FROM {base} AS {}\n", user::CONFIGS);
    for step in packages::steps(&spec, extensions.as_deref())? {
        text = text + &step + "\n";
    }
    text += &apply(request.apply_by, &spec, &mut files);
    text += &trusted(request, &spec);
    text = text + &unmount() + "\n";
    text +=
        if user::is_blank(request.containerfile) { "FROM configs AS final\n" } else { request.containerfile };
    text += "\n\n";
    let labels = Labels { name, pool, base };
    text += &ending(request.apply_by, &labels, checked.account.as_deref());
    let archives = pack(&files)?;
    let head = format!("# Of {name}, by machine-config-controller.\n{}", unpack(archives.keys()));
    Ok(Context { containerfile: head + &text, files: archives })
}

fn contents(request: &Request<'_>, document: &Document) -> Result<BTreeMap<String, Vec<u8>>, ImageError> {
    let ignition = without_bound(request.rendered.spec.config.clone().unwrap_or_else(|| json!({})));
    let mut files = BTreeMap::from([
        (RENDERED.to_owned(), document.json().as_bytes().to_vec()),
        (APPLIED.to_owned(), serde_json::to_vec(&applied(document.name().as_str(), &ignition))?),
    ]);
    if request.apply_by == ApplyBy::Ignition {
        files.insert(IGNITION.to_owned(), serde_json::to_vec(&ignition)?);
    }
    if let Some(trust) = request.trust {
        files.insert(TRUST.to_owned(), trust.to_vec());
    }
    Ok(files)
}

/// The config without files that a builder lays its own over: Ignition could not write them.
fn without_bound(mut ignition: Value) -> Value {
    if let Some(files) = ignition.pointer_mut("/storage/files").and_then(Value::as_array_mut) {
        files.retain(|file| !file.get("path").and_then(Value::as_str).is_some_and(bound::is_bound));
    }
    ignition
}

/// Sections and their fields that `apply` can bring to an image. All else is for machines.
const CARRIED: [(&str, &[&str]); 4] = [
    ("ignition", &["version"]),
    ("passwd", &["groups", "users"]),
    ("storage", &["directories", "files", "links"]),
    ("systemd", &["units"]),
];

/// Returns the part of a config that an image carries.
fn applied(name: &str, ignition: &Value) -> Value {
    let mut config = Map::new();
    for (section, fields) in CARRIED {
        let taken = |field: &&str| Some(((*field).to_owned(), ignition.get(section)?.get(*field)?.clone()));
        let part: Map<String, Value> = fields.iter().filter_map(taken).collect();
        if !part.is_empty() {
            config.insert(section.to_owned(), part.into());
        }
    }
    json!({
        "apiVersion": "machineconfiguration.openshift.io/v1",
        "kind": "MachineConfig",
        "metadata": { "name": name },
        "spec": { "config": config },
    })
}

/// Mounts the agent.
fn mount_agent() -> String {
    format!("--mount=type=bind,source={AGENT},target={MOUNT}/{AGENT},ro")
}

/// Mounts a file of the archive.
fn mount(file: &str) -> String {
    format!("--mount=type=bind,from={FILES},source=/{file},target={MOUNT}/{file},ro")
}

/// Removes the directory that mounts leave, in the layer that has it.
fn unmount() -> String {
    format!("RUN [\"rm\", \"-rf\", \"{MOUNT}\"]\n")
}

/// Enables and disables the config's units. Ignition leaves that to the first boot, and a node that takes the image has had its own. A unit
/// that the image does not have is skipped, as on a node; `verify` sees what is missing.
fn preset(spec: &HostSpec) -> String {
    let units: Vec<String> = spec.units.keys().map(|unit| format!("'{unit}'")).collect();
    if units.is_empty() {
        return String::new();
    }
    format!(
        "RUN for unit in {}; do SYSTEMD_OFFLINE=1 systemctl preset \"$unit\" || :; done && \\\n    rm -f {PRESETS}\n",
        units.join(" ")
    )
}

/// The certificates that the image trusts in addition, those of the config as well: the user's steps pull with them, and no node that boots
/// the image has to rebuild the trust store.
fn trusted(request: &Request<'_>, spec: &HostSpec) -> String {
    if request.trust.is_some() {
        return format!(
            "COPY --from={FILES} --chmod=0644 {TRUST} {ANCHORS}/anchors/{TRUST}\nRUN update-ca-trust\n"
        );
    }
    let of_config = spec.files.keys().any(|path| path.is_below(ANCHORS));
    // A base without the program has no such trust store.
    let rebuild = "RUN if command -v update-ca-trust >/dev/null; then update-ca-trust; else \
        echo 'the base has no update-ca-trust: certificates of the config are not in its trust store' >&2; fi\n";
    if of_config { rebuild.to_owned() } else { String::new() }
}

/// The instructions that bring the config in.
fn apply(by: ApplyBy, spec: &HostSpec, files: &mut BTreeMap<String, Vec<u8>>) -> String {
    let mut text = match by {
        ApplyBy::Agent => format!(
            "RUN {} {} \\\n    {MOUNT}/{AGENT} apply --to {MOUNT}/{APPLIED} --os-backend none --no-reboot --into-image --yes && \\\n    rm -rf {STATE}\n",
            mount_agent(),
            mount(APPLIED),
        ),
        // Ignition does by its own name what it does in this build.
        ApplyBy::Ignition => format!(
            "RUN {} \\\n    ln -s /usr/lib/dracut/modules.d/30ignition/ignition /tmp/ignition-apply && \\\n    \
             container=oci /tmp/ignition-apply --ignore-unsupported {MOUNT}/{IGNITION} && \\\n    \
             rm /tmp/ignition-apply\n{}",
            mount(IGNITION),
            preset(spec),
        ),
    };
    for copy in bound::copies(spec, files) {
        text = text + &copy + "\n";
    }
    // After `apply`, for which a config that is there would be that of a node to take over.
    text + &format!("COPY --from={FILES} --chmod=0600 {RENDERED} /etc/machine-config-daemon/currentconfig\n")
}

/// Values of the image's labels.
struct Labels<'a> {
    name: &'a str,
    pool: Option<&'a str>,
    base: &'a str,
}

/// Labels and `verify`, in the user's last stage. Without a shell: the user may have chosen another one.
fn ending(by: ApplyBy, Labels { name, pool, base }: &Labels<'_>, account: Option<&str>) -> String {
    let pool = pool.map(|pool| format!(" machineconfigpool=\"{pool}\"")).unwrap_or_default();
    let mut text = format!("LABEL machineconfig=\"{name}\"{pool} baseOSContainerImage=\"{base}\"\n");
    if account.is_some() {
        text += "USER 0\n";
    }
    // Ignition keeps no originals.
    let originals = if by == ApplyBy::Agent { ", \"--originals\"" } else { "" };
    text = text
        + &format!(
            "RUN {} {} {} [\"{MOUNT}/{AGENT}\", \"verify\", \"--config\", \"{MOUNT}/{APPLIED}\", \"--embedded\", \
             \"{MOUNT}/{RENDERED}\"{originals}, \"--os-backend\", \"none\"]\n",
            mount_agent(),
            mount(APPLIED),
            mount(RENDERED),
        )
        + &unmount();
    if let Some(account) = account {
        text = text + "USER " + account + "\n";
    }
    text
}

/// Reads an image of an instruction, as builders take it: without the tag beside a digest. Builders also have transports of
/// their own.
fn reference(field: &'static str, value: &str) -> Result<String, ImageError> {
    let cause = "it is not the name of an image; give it as registry/name@sha256:HEX or registry/name:tag";
    let wrong = || ImageError::Field { field, value: short(value, 100), cause };
    let image = value.strip_prefix(REGISTRY).unwrap_or(value);
    if let Ok(found) = Reference::parse(image) {
        return Ok(format!("{}{}", if image == value { "" } else { REGISTRY }, found.canonical()));
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-:/@+".contains(c);
    let is_local = LOCAL.into_iter().any(|transport| value.starts_with(transport));
    if is_local && value.len() <= 512 && value.chars().all(is_plain) {
        Ok(value.to_owned())
    } else {
        Err(wrong())
    }
}

fn label<'a>(field: &'static str, value: &'a str) -> Result<&'a str, ImageError> {
    if !value.is_empty() && value.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Ok(value);
    }
    let cause = "it is not the name of a pool; name one";
    Err(ImageError::Field { field, value: short(value, 100), cause })
}
