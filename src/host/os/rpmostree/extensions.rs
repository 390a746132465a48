//! The packages of kernels and extensions: they come in an image of their own, and rpm-ostree reads them as a
//! repository of files while it works.
//!
//! Invariant: the repository's file and the packages are there from before the first transaction that may need them
//! until after the last one, and not longer (MCD-203); an agent that comes back in the middle finds them and continues.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;

use crate::host::os::OsProgress;
use crate::host::os::error::{OsError, OsErrorKind};
use crate::host::{HostError, Root, command};
use crate::model::ids::STATE_DIR;
use crate::model::image::Transport;
use crate::model::{Contents, FileMode, ImageRef, ProxySettings};

/// Directory of the packages, below [`STATE_DIR`]: on disk, since they are a gigabyte, and /run is memory.
const EXTENSIONS_DIRECTORY: &str = "extensions";

/// Repository file by which rpm-ostree finds them.
const REPOSITORY: &str = "/etc/yum.repos.d/coreos-extensions.repo";

/// Directory of the repositories that rpm-ostree reads.
const REPOSITORIES: &str = "/etc/yum.repos.d";

/// Their directory in the image.
const INSIDE: &str = "usr/share/rpm-ostree/extensions";

/// Time limit of one program: a gigabyte over a slow line, and its unpacking on a slow disk.
const TIMEOUT: Duration = Duration::from_secs(45 * 60);

/// The keys read from an image's manifest.
#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Layer>,
}

#[derive(Deserialize)]
struct Layer {
    digest: String,
}

/// Source of the packages.
#[derive(Debug)]
pub(super) struct Source<'a> {
    pub(super) image: &'a ImageRef,
    pub(super) credentials: Option<&'a Contents>,
    pub(super) proxies: ProxySettings,
}

/// Returns true if rpm-ostree has an enabled repository beside that of an image of packages. One that can't be read is left to it.
pub(super) fn has_repository(root: &Root) -> Result<bool, HostError> {
    let names = root.list(REPOSITORIES)?.into_iter().filter(|name| name.strip_suffix(".repo").is_some());
    let mut paths = names.map(|name| format!("{REPOSITORIES}/{name}")).filter(|path| path != REPOSITORY);
    Ok(paths.any(|path| match root.read(&path) {
        Ok(bytes) => has_enabled(&String::from_utf8_lossy(&bytes.unwrap_or_default())),
        Err(_) => true,
    }))
}

/// Returns true if one of a file's repositories is enabled, as each is that does not say otherwise.
fn has_enabled(text: &str) -> bool {
    let mut enabled = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            enabled.push(true);
        } else if let (Some((key, value)), Some(last)) = (line.split_once('='), enabled.last_mut())
            && key.trim_end() == "enabled"
        {
            *last = !["0", "false", "no"].iter().any(|no| value.trim().eq_ignore_ascii_case(no));
        }
    }
    enabled.contains(&true)
}

/// Brings the packages to the host, unless they are there.
pub(super) async fn provide(
    root: &Root,
    source: &Source<'_>,
    progress: &(dyn Fn(OsProgress) + '_),
) -> Result<(), HostError> {
    let image = source.image;
    let place = format!("{STATE_DIR}/{EXTENSIONS_DIRECTORY}");
    let whole = format!("{place}/image");
    if root.read_text(&whole)? != Some(image.canonical()) {
        root.remove_tree(&place)?;
        root.create_dir(&place, FileMode::PRIVATE_DIRECTORY)?;
        let tree = format!("{place}/tree");
        root.create_dir(&tree, FileMode::DIRECTORY)?;
        progress(OsProgress { text: format!("fetching the packages of {image}"), percent: None });
        let layers = layers(root, &place, source).await?;
        progress(OsProgress { text: "unpacking the packages".to_owned(), percent: None });
        for layer in &layers {
            unpack(root, layer, &tree).await?;
        }
        root.remove_tree(&format!("{place}/image.d"))?;
        if !root.exists(&format!("{tree}/{INSIDE}/repodata/repomd.xml"))? {
            let cause = format!("it holds no repository of packages in /{INSIDE}");
            return Err(OsError::new(OsErrorKind::NoPackage, image.to_string(), cause).into_error());
        }
        root.replace(&whole, image.canonical().as_bytes(), FileMode::PRIVATE)?;
    }
    // Not signed, as each image of a release: its digest identifies it.
    let text = format!(
        "[coreos-extensions]\nenabled=1\nmetadata_expire=1m\nbaseurl=file://{place}/tree/{INSIDE}/\ngpgcheck=0\n\
         skip_if_unavailable=False\n"
    );
    root.replace(REPOSITORY, text.as_bytes(), FileMode::DEFAULT)
}

/// Takes the packages away again; a missing one is ignored.
pub(super) fn withdraw(root: &Root) -> Result<(), HostError> {
    root.remove(REPOSITORY)?;
    root.remove_tree(&format!("{STATE_DIR}/{EXTENSIONS_DIRECTORY}"))
}

/// Finds the layers, as files below the root.
async fn layers(root: &Root, place: &str, source: &Source<'_>) -> Result<Vec<String>, HostError> {
    let image = source.image;
    let (manifest, blobs) = match image.transport() {
        Transport::OciDirectory => {
            let blobs = format!("{}/blobs/sha256", image.name());
            (format!("{blobs}/{}", image.digest()), blobs)
        }
        Transport::Registry => {
            let copy = format!("{place}/image.d");
            fetch(root, place, &copy, source).await?;
            (format!("{copy}/manifest.json"), copy)
        }
    };
    let wrong = |cause: &str| OsError::new(OsErrorKind::ImageNotFound, image.to_string(), cause).into_error();
    let text = root.read(&manifest)?.ok_or_else(|| wrong("there is no such manifest"))?;
    let found: Manifest = serde_json::from_slice(&text).map_err(|_| wrong("its manifest names no layers"))?;
    let layers = found.layers.iter().filter_map(|layer| layer.digest.strip_prefix("sha256:"));
    Ok(layers
        .filter(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
        .map(|hex| format!("{blobs}/{hex}"))
        .collect())
}

/// Copies an image from its registry. The credentials are in a file while that takes.
async fn fetch(root: &Root, place: &str, copy: &str, source: &Source<'_>) -> Result<(), HostError> {
    let image = source.image;
    let authfile = format!("{place}/auth.json");
    let (from, to) = (format!("docker://{}", image.canonical()), format!("dir:{}", outside(root, copy)));
    let mut arguments = vec!["copy".to_owned(), "--quiet".to_owned()];
    if let Some(json) = source.credentials {
        root.replace(&authfile, json.bytes(), FileMode::PRIVATE)?;
        arguments.extend(["--src-authfile".to_owned(), outside(root, &authfile)]);
    }
    arguments.extend([from, to]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let copied = command::run_with("skopeo", &arguments, TIMEOUT, &source.proxies).await;
    root.remove(&authfile)?;
    match copied {
        Err(HostError::Command { cause, .. }) => {
            Err(OsError::from_text(&image.to_string(), &cause, OsErrorKind::PullFailed).into_error())
        }
        done => done,
    }
}

/// Unpacks the packages of a layer; most have none.
async fn unpack(root: &Root, layer: &str, tree: &str) -> Result<(), HostError> {
    let (layer, tree, files) = (outside(root, layer), outside(root, tree), format!("{INSIDE}/*"));
    let arguments = [
        "--extract",
        "--no-same-owner",
        "--file",
        &layer,
        "--directory",
        &tree,
        "--wildcards",
        "--no-anchored",
        &files,
    ];
    match command::run("tar", &arguments, TIMEOUT).await {
        Err(HostError::Command { cause, .. })
            if cause.contains("Not found in archive") && !cause.contains("Cannot") =>
        {
            Ok(())
        }
        done => done,
    }
}

/// The path as programs see it.
fn outside(root: &Root, path: &str) -> String {
    root.base().join(Path::new(path.trim_start_matches('/'))).display().to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::model::Sha256;

    fn directory(dir: &Path) -> PathBuf {
        dir.join(STATE_DIR.trim_start_matches('/')).join(EXTENSIONS_DIRECTORY)
    }

    fn plain(image: &ImageRef) -> Source<'_> {
        Source { image, credentials: None, proxies: ProxySettings::default() }
    }

    /// An image of two layers, one with packages.
    async fn image(dir: &Path, packages: bool) -> ImageRef {
        let (tree, blobs) = (dir.join("made"), dir.join("images/blobs/sha256"));
        let inside = tree.join(INSIDE);
        fs::create_dir_all(inside.join("repodata")).unwrap();
        fs::create_dir_all(tree.join("etc")).unwrap();
        fs::create_dir_all(&blobs).unwrap();
        fs::write(inside.join("repodata/repomd.xml"), "<repomd/>").unwrap();
        fs::write(inside.join("usbguard.rpm"), "a package").unwrap();
        fs::write(tree.join("etc/other"), "not asked for").unwrap();
        let mut layers = Vec::new();
        for part in if packages { &["./etc", "./usr"][..] } else { &["./etc"] } {
            let made = dir.join("layer");
            let (made_at, tree_at) = (made.to_str().unwrap(), tree.to_str().unwrap());
            command::run("tar", &["-czf", made_at, "-C", tree_at, part], TIMEOUT).await.unwrap();
            let digest = Contents::new(fs::read(&made).unwrap()).sha256();
            fs::rename(made, blobs.join(digest.to_string())).unwrap();
            layers.push(format!(r#"{{"digest":"sha256:{digest}"}}"#));
        }
        let manifest = format!(r#"{{"layers":[{}]}}"#, layers.join(","));
        let digest: Sha256 = Contents::new(manifest.clone().into_bytes()).sha256();
        fs::write(blobs.join(digest.to_string()), manifest).unwrap();
        ImageRef::parse(&format!("oci:/images@sha256:{digest}")).unwrap()
    }

    /// MCD-203: the repository is there, with the packages, as long as it is needed.
    #[tokio::test(flavor = "current_thread")]
    async fn packages_come_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let image = image(dir.path(), true).await;
        provide(&root, &plain(&image), &|_| {}).await.unwrap();
        let text = fs::read_to_string(dir.path().join("etc/yum.repos.d/coreos-extensions.repo")).unwrap();
        let base = text.lines().find_map(|line| line.strip_prefix("baseurl=file:///")).unwrap();
        assert_eq!(fs::read_to_string(dir.path().join(base).join("usbguard.rpm")).unwrap(), "a package");
        assert!(!directory(dir.path()).join("tree/etc").exists(), "only the packages are unpacked");

        // An agent that comes back finds them: the source may be gone.
        fs::remove_dir_all(dir.path().join("images")).unwrap();
        provide(&root, &plain(&image), &|_| {}).await.unwrap();
        withdraw(&root).unwrap();
        withdraw(&root).unwrap();
        assert!(!dir.path().join("etc/yum.repos.d/coreos-extensions.repo").exists());
        assert!(!directory(dir.path()).exists());
    }

    #[test]
    fn enabled_repositories_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert!(!has_repository(&root).unwrap());
        let at = dir.path().join("etc/yum.repos.d");
        fs::create_dir_all(&at).unwrap();
        fs::write(at.join("coreos-extensions.repo"), "[coreos-extensions]\nenabled=1\n").unwrap();
        fs::write(at.join("a.repo.rpmsave"), "[a]\n").unwrap();
        fs::write(at.join("b.repo"), "[b]\nname=b\nenabled = 0\n[c]\nenabled=False\n").unwrap();
        assert!(!has_repository(&root).unwrap());
        fs::write(at.join("d.repo"), "# own\n[d]\nbaseurl=file:///srv\n").unwrap();
        assert!(has_repository(&root).unwrap());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn image_without_packages_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        let image = image(dir.path(), false).await;
        let error = provide(&root, &plain(&image), &|_| {}).await.unwrap_err();
        assert_eq!(error.reason(), "PackageNotStaged", "{error}");
        assert!(!dir.path().join("etc/yum.repos.d/coreos-extensions.repo").exists());
        let absent = ImageRef::parse(&format!("oci:/images@sha256:{}", "0".repeat(64))).unwrap();
        assert_eq!(provide(&root, &plain(&absent), &|_| {}).await.unwrap_err().reason(), "ImageNotFound");
    }
}
