//! Images: their names, their layers in the repository, pulling, and the config that they carry.
//!
//! Invariant: an image counts as present only by the digest of its manifest, so nothing is pulled twice, and nothing
//! is taken for another image because its name is the same.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek as _, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use ostree_ext::container::store::{
    ImageImporter, ImageProxyConfig, ImportProgress, LayerProgress, LayeredImageState, PrepareResult,
    PreparedImport, list_images, query_image,
};
use ostree_ext::container::{
    ImageReference, OstreeImageReference, SignatureSource, Transport as From,
    merge_default_container_proxy_opts,
};
use ostree_ext::containers_image_proxy::{ImageProxy, OpenedImage};
use ostree_ext::gio::Cancellable;
use ostree_ext::glib::{Variant, VariantDict};
use ostree_ext::oci_spec::image::{Descriptor, ImageConfiguration};
use ostree_ext::ostree::{Repo, Sysroot, commit_get_parent};
use ostree_ext::prelude::FileExt as _;
use ostree_ext::refescape::prefix_escape_for_ref;
use rustix::fs::{MemfdFlags, memfd_create};

use super::super::Preflight;
use super::super::error::{OsError, OsErrorKind, of_skopeo};
use super::super::rate::Rate;
use super::super::worker::protocol::{Secret, WithoutCommit};
use super::failed::failed;
use super::oci::View;
use super::pace::Pace;
use super::space;
use super::unverified::{self, Unverified};
use crate::model::image::Transport;
use crate::model::observation::EmbeddedConfig;
use crate::model::{ConfigName, ImageRef, Sha256};

/// Prefix of ostree-ext's refs of images.
const IMAGE_REFS: &str = "ostree/container/image";

/// The longest pause after a layer: a clock or a size that is wrong holds nothing up for good.
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// Interval between reports of a pause.
const PAUSE_REPORT_INTERVAL: Duration = Duration::from_secs(20);

/// Keys of the metadata of an image's commit.
const MANIFEST_DIGEST: &str = "ostree.manifest-digest";
const IMAGE_CONFIG: &str = "ostree.container.image-config";

/// The label of an image's config that names the MachineConfig it carries.
const CONFIG_LABEL: &str = "machineconfig";

/// The same in the image's tree, where there is no label: MCD's own file.
const EMBEDDED_CONFIG: &str = "usr/etc/machine-config-daemon/currentconfig";

/// Returns the reference that goes into the origin file, as rpm-ostree and bootc write it.
pub(super) fn reference(image: &ImageRef) -> OstreeImageReference {
    let (transport, name) = match image.transport() {
        Transport::Registry => (From::Registry, image.name()),
        Transport::OciDirectory => (From::OciDir, image.name()),
    };
    let name = format!("{name}@sha256:{}", image.digest());
    unverified(ImageReference { transport, name })
}

/// The signature policy is the host's (`containers-policy.json`), which skopeo applies.
pub(super) fn unverified(imgref: ImageReference) -> OstreeImageReference {
    OstreeImageReference { sigverify: SignatureSource::ContainerPolicyAllowInsecure, imgref }
}

/// Reads a reference of an origin file. A name by digest is taken at its word: that of a manifest list is not the
/// digest of the manifest that was picked from it.
pub(super) fn named(reference: &OstreeImageReference, manifest: Option<Sha256>) -> Option<ImageRef> {
    let prefix = match reference.imgref.transport {
        From::Registry => "",
        From::OciDir => "oci:",
        From::OciArchive | From::DockerArchive | From::ContainerStorage | From::Dir => return None,
    };
    let name = reference.imgref.name.as_str();
    if let Ok(image) = ImageRef::parse(&format!("{prefix}{name}")) {
        return Some(image);
    }
    let name = name.split_once('@').map_or(name, |(name, _)| name);
    let bare = match name.rsplit_once(':') {
        Some((bare, tag)) if !tag.contains('/') => bare,
        Some(_) | None => name,
    };
    ImageRef::parse(&format!("{prefix}{bare}@sha256:{}", manifest?)).ok()
}

/// Returns the manifest's digest of a commit that was made from an image.
pub(super) fn digest_of_commit(repo: &Repo, commit: &str) -> Option<Sha256> {
    parse_digest(&metadata(repo, commit, MANIFEST_DIGEST)?)
}

/// Reads a text of a commit's metadata; of its parent's when packages were layered on the image.
fn metadata(repo: &Repo, commit: &str, key: &str) -> Option<String> {
    let (commit, _) = repo.load_commit(commit).ok()?;
    let value =
        |commit: &Variant| VariantDict::new(Some(&commit.child_value(0))).lookup::<String>(key).ok()?;
    value(&commit).or_else(|| value(&repo.load_commit(&commit_get_parent(&commit)?).ok()?.0))
}

fn digest_of(state: &LayeredImageState) -> Option<Sha256> {
    parse_digest(state.manifest_digest.as_ref())
}

pub(super) fn parse_digest(digest: &str) -> Option<Sha256> {
    Sha256::parse(digest.strip_prefix("sha256:")?).ok()
}

/// Finds an image in the repository, by name and digest, then by digest alone.
pub(super) fn present(repo: &Repo, image: &ImageRef) -> Option<Box<LayeredImageState>> {
    // An image that can't be read whole is not present: it is pulled again.
    let whole = |reference: &ImageReference| query_image(repo, reference).ok().flatten();
    whole(&reference(image).imgref).or_else(|| {
        let names = list_images(repo).unwrap_or_default();
        names
            .iter()
            .filter_map(|name| ImageReference::try_from(name.as_str()).ok())
            .filter_map(|reference| whole(&reference))
            .find(|state| digest_of(state) == Some(image.digest()))
    })
}

/// Gives an image that is present the name by which it was requested: the name in the origin, which marks images in
/// use.
pub(super) fn name(repo: &Repo, image: &ImageRef, state: &LayeredImageState) -> Result<(), OsError> {
    let text = reference(image).imgref.to_string();
    let name = prefix_escape_for_ref(IMAGE_REFS, &text).map_err(failed)?;
    repo.set_ref_immediate(None, &name, Some(&state.merge_commit), Cancellable::NONE).map_err(failed)
}

/// Reads an image's properties: from the repository, else from its manifest and config; no layer is pulled. One that
/// this machine can't boot, or has no room for, is an error.
pub(super) async fn preflight(
    sysroot: &Sysroot,
    path: &Path,
    image: &ImageRef,
    credentials: Option<&Secret>,
    without_commit: WithoutCommit,
) -> Result<Preflight, OsError> {
    let repo = sysroot.repo();
    let present_already = |state: &LayeredImageState| {
        space::before_staging(sysroot, path, image, &state.merge_commit)?;
        let carries = carried_by_commit(&repo, &state.merge_commit)?;
        Ok(Preflight { carries, download: Some(0) })
    };
    if let Some(state) = present(&repo, image) {
        return present_already(&state);
    }
    let mut pull = Pull::open(&repo, image, credentials).await?;
    let prepared = match pull.prepare(image).await {
        Err(OsError { trouble: OsErrorKind::NoCommit, .. }) if without_commit == WithoutCommit::Taken => {
            return plain(image, credentials).await;
        }
        prepared => prepared?,
    };
    match prepared {
        PrepareResult::AlreadyPresent(state) => present_already(&state),
        PrepareResult::Ready(prepared) => {
            space::before_pull(sysroot, path, image, &prepared)?;
            let missing = prepared.all_layers().filter(|layer| layer.commit.is_none());
            let download = Some(missing.map(|layer| layer.layer().size()).sum());
            Ok(Preflight { carries: labelled(&prepared.config).unwrap_or(EmbeddedConfig::Unknown), download })
        }
    }
}

/// Finds out which config a commit of the repository carries.
pub(super) fn carried_by_commit(repo: &Repo, commit: &str) -> Result<EmbeddedConfig, OsError> {
    let config = metadata(repo, commit, IMAGE_CONFIG).and_then(|text| serde_json::from_str(&text).ok());
    if let Some(carries) = config.and_then(|config| labelled(&config)) {
        return Ok(carries);
    }
    let (root, _) = repo.read_commit(commit, Cancellable::NONE).map_err(failed)?;
    let file = root.resolve_relative_path(EMBEDDED_CONFIG);
    let name = file
        .load_contents(Cancellable::NONE)
        .ok()
        .and_then(|(bytes, _)| serde_json::from_slice::<serde_json::Value>(&bytes).ok())
        .and_then(|config| config.pointer("/metadata/name")?.as_str().map(str::to_owned));
    Ok(name
        .and_then(|name| ConfigName::new(name).ok())
        .map_or(EmbeddedConfig::Unknown, EmbeddedConfig::Config))
}

fn labelled(config: &ImageConfiguration) -> Option<EmbeddedConfig> {
    let labels: &HashMap<String, String> = config.config().as_ref()?.labels().as_ref()?;
    ConfigName::new(labels.get(CONFIG_LABEL)?.as_str()).ok().map(EmbeddedConfig::Config)
}

/// Location of an image, and the proxy that reaches it.
pub(super) struct Source {
    reference: OstreeImageReference,
    proxy: ImageProxyConfig,
    /// Kept until the image was read.
    view: Option<View>,
}

/// An image that is read as it is.
pub(super) struct OpenSource {
    /// Fetches its parts.
    pub(super) proxy: ImageProxy,
    /// The image, as the proxy knows it.
    pub(super) image: OpenedImage,
    /// Kept until the image was read.
    _view: Option<View>,
}

impl Source {
    /// Opens the image. skopeo holds its manifest against its digest.
    ///
    /// As the importer of images does: without credentials of ours skopeo gets those of the host or none, and under systemd it runs
    /// as `nobody`, without capabilities and with `no_new_privs`.
    pub(super) async fn open(mut self, image: &ImageRef) -> Result<OpenSource, OsError> {
        merge_default_container_proxy_opts(&mut self.proxy).map_err(|e| pull_failed(image, e))?;
        let name = self.reference.imgref.to_string();
        let proxy = ImageProxy::new_with_config(self.proxy).await.map_err(|e| pull_failed(image, e))?;
        let open = proxy.open_image(&name).await.map_err(|e| pull_failed(image, e))?;
        Ok(OpenSource { proxy, image: open, _view: self.view })
    }

    /// Finds out where an image is.
    pub(super) fn new(image: &ImageRef, credentials: Option<&Secret>) -> Result<Self, OsError> {
        match image.transport() {
            Transport::Registry => {
                let proxy = registry_proxy(credentials).map_err(|e| {
                    let cause = format!("the credentials can't be handed to skopeo: {e}");
                    OsError::new(OsErrorKind::Libostree, image.to_string(), cause)
                })?;
                Ok(Self { reference: reference(image), proxy, view: None })
            }
            Transport::OciDirectory => {
                let view = View::new(image)?;
                let name = view.path().display().to_string();
                let reference = unverified(ImageReference { transport: From::OciDir, name });
                Ok(Self { reference, proxy: local_proxy(), view: Some(view) })
            }
        }
    }
}

/// Reads the properties of an image without an ostree commit in it. That it has the marks of a bootable one, and is for
/// this machine, was requested before.
async fn plain(image: &ImageRef, credentials: Option<&Secret>) -> Result<Preflight, OsError> {
    let open = Source::new(image, credentials)?.open(image).await?;
    let (_, manifest) = open.proxy.fetch_manifest(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let config = open.proxy.fetch_config(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let download = Some(manifest.layers().iter().map(Descriptor::size).sum());
    Ok(Preflight { carries: labelled(&config).unwrap_or(EmbeddedConfig::Unknown), download })
}

/// An image that is open at its source.
pub(super) struct Pull {
    importer: ImageImporter,
    image: ImageRef,
    /// Kept until the pull ends.
    _view: Option<View>,
}

impl Pull {
    /// Opens an image at its registry or directory.
    pub(super) async fn open(
        repo: &Repo,
        image: &ImageRef,
        credentials: Option<&Secret>,
    ) -> Result<Self, OsError> {
        let Source { reference: source, proxy, view } = Source::new(image, credentials)?;
        let mut importer =
            ImageImporter::new(repo, &source, proxy).await.map_err(|e| pull_failed(image, e))?;
        importer.require_bootable();
        importer.set_target(&reference(image));
        Ok(Self { importer, image: image.clone(), _view: view })
    }

    /// Fetches manifest and config, and compares the manifest with the desired digest. The importer checks the marks of
    /// a bootable image, and this machine's architecture.
    ///
    /// A registry's answer was held against it by skopeo already, manifest lists included: there the digest is the
    /// list's and differs from the manifest's.
    pub(super) async fn prepare(&mut self, image: &ImageRef) -> Result<PrepareResult, OsError> {
        let result = self.importer.prepare().await.map_err(|e| pull_failed(image, e))?;
        let found = match &result {
            PrepareResult::AlreadyPresent(state) => state.manifest_digest.to_string(),
            PrepareResult::Ready(prepared) => prepared.manifest_digest.to_string(),
        };
        if image.transport() == Transport::OciDirectory && parse_digest(&found) != Some(image.digest()) {
            let cause = format!("its manifest has the digest {found}");
            return Err(OsError::new(OsErrorKind::DigestMismatch, image.to_string(), cause));
        }
        Ok(result)
    }

    /// Pulls the layers that are missing and writes the image's commit. A layer that was not verified is forgotten.
    pub(super) async fn import(
        self,
        repo: &Repo,
        path: &Path,
        prepared: Box<PreparedImport>,
        bandwidth: Option<u64>,
        progress: &dyn Fn(String, Option<u8>),
    ) -> Result<Box<LayeredImageState>, OsError> {
        let missing = prepared.all_layers().filter(|layer| layer.commit.is_none());
        let names = missing.map(|layer| (layer.layer().digest().to_string(), layer.ostree_ref.clone()));
        let mut unverified = Unverified::begin(path, names)?;
        match self.pull(prepared, &mut unverified, Pace(bandwidth), progress).await {
            Ok(state) => unverified.end().map(|()| state),
            Err(failure) => unverified::forget(repo, path).and(Err(failure)),
        }
    }

    async fn pull(
        mut self,
        prepared: Box<PreparedImport>,
        unverified: &mut Unverified,
        pace: Pace,
        progress: &dyn Fn(String, Option<u8>),
    ) -> Result<Box<LayeredImageState>, OsError> {
        let missing = prepared.all_layers().filter(|layer| layer.commit.is_none());
        let mut tally = Tally::new(missing.map(|layer| layer.layer().size()));
        let mut layers = self.importer.request_progress();
        let mut bytes = self.importer.request_layer_progress();
        let began = Instant::now();
        let import = self.importer.import(prepared);
        tokio::pin!(import);
        loop {
            tokio::select! {
                // Both channels lose nothing when another arm wins: `recv` and `changed` are cancel-safe.
                done = &mut import => {
                    // Progress sent before the end is still reported, so that a watcher sees 100 percent.
                    while let Ok(event) = layers.try_recv() {
                        unverified.record(&event);
                        tally.layer(&event, progress);
                    }
                    return done.map_err(|e| pull_failed(&self.image, e));
                }
                Some(event) = layers.recv() => {
                    unverified.record(&event);
                    tally.layer(&event, progress);
                    // The importer is not polled meanwhile: it begins no further layer.
                    rest(pace.pause(tally.done, began.elapsed()), tally.reported, progress).await;
                }
                Ok(()) = bytes.changed() => tally.bytes(bytes.borrow_and_update().as_ref(), progress),
            }
        }
    }
}

/// Pauses a pull, and reports that repeatedly: silence would be taken for a stall.
async fn rest(left: Duration, percent: Option<u8>, progress: &dyn Fn(String, Option<u8>)) {
    let end = Instant::now() + left.min(LONGEST_PAUSE);
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        progress(format!("pausing {} s for the limit of the bandwidth", left.as_secs()), percent);
        tokio::time::sleep(left.min(PAUSE_REPORT_INTERVAL)).await;
    }
}

/// Configures skopeo for a registry. Without credentials of ours ostree-ext finds those of the host: `ostree/auth.json`
/// below /run, /etc or /usr/lib.
fn registry_proxy(credentials: Option<&Secret>) -> io::Result<ImageProxyConfig> {
    let auth_data = credentials
        .map(|secret| {
            let mut file = File::from(memfd_create("auth.json", MemfdFlags::CLOEXEC)?);
            file.write_all(secret.bytes())?;
            file.rewind()?;
            Ok::<_, io::Error>(file)
        })
        .transpose()?;
    Ok(ImageProxyConfig { auth_data, ..ImageProxyConfig::default() })
}

/// Configures skopeo for a local directory: with our own rights (ostree-ext would drop them under systemd, and the
/// directory is root's).
fn local_proxy() -> ImageProxyConfig {
    ImageProxyConfig { skopeo_cmd: Some(std::process::Command::new("skopeo")), ..ImageProxyConfig::default() }
}

/// Counts pulled layers and bytes.
struct Tally {
    layers: usize,
    begun: usize,
    total: u64,
    done: u64,
    reported: Option<u8>,
    began: Instant,
    rate: Rate,
}

impl Tally {
    fn new(sizes: impl Iterator<Item = u64>) -> Self {
        let (layers, total) = sizes.fold((0, 0), |(layers, total), size| (layers + 1, total + size));
        let (began, rate) = (Instant::now(), Rate::default());
        Self { layers, begun: 0, total, done: 0, reported: None, began, rate }
    }

    fn layer(&mut self, event: &ImportProgress, progress: &dyn Fn(String, Option<u8>)) {
        match event {
            ImportProgress::OstreeChunkStarted(_) | ImportProgress::DerivedLayerStarted(_) => self.begun += 1,
            ImportProgress::OstreeChunkCompleted(layer) | ImportProgress::DerivedLayerCompleted(layer) => {
                self.done += layer.size();
            }
        }
        self.report_progress(0, progress);
    }

    fn bytes(&mut self, layer: Option<&LayerProgress>, progress: &dyn Fn(String, Option<u8>)) {
        if let Some(layer) = layer {
            self.report_progress(layer.fetched.min(layer.total), progress);
        }
    }

    /// Reports each percent once.
    fn report_progress(&mut self, fetched: u64, progress: &dyn Fn(String, Option<u8>)) {
        let bytes = (self.done + fetched).min(self.total);
        let percent = (bytes * 100).checked_div(self.total).and_then(|p| u8::try_from(p).ok());
        let rate = self.rate.at(self.began.elapsed(), bytes);
        if percent > self.reported {
            self.reported = percent;
            let rate = rate.map(|rate| format!(", {rate}")).unwrap_or_default();
            // The bytes of a layer may be reported before its start.
            progress(format!("pulling layer {} of {}{rate}", self.begun.max(1), self.layers), percent);
        }
    }
}

pub(super) fn pull_failed(image: &ImageRef, error: impl std::fmt::Display) -> OsError {
    OsError::from_text(&image.to_string(), &of_skopeo(&format!("{error:#}")), OsErrorKind::PullFailed)
}
