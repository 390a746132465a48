//! Registry credentials for the pull of the OS image (MCD-3.30).
//!
//! A config may bring the image and the secret that pulls it, and the image comes first. So the contents are handed to
//! the pull itself, as the config brings them or else as the host has them, and never copied to a second file. The
//! links at ostree's own places are for the backends that take no contents and for the host's other tools; they lead
//! to the secret once that is written.
//!
//! Invariant: an administrator's file at ostree's place wins, and stays.

use super::durable::{self, Attempt, Change, DesiredPath};
use super::{FailPoints, HostError, Root};
use crate::model::image::PULL_SECRETS;
use crate::model::{Contents, FileMode, HostSpec, ManagedPath, ObservedFile};

/// The reason of a registry's refusal, as in [`super::os`].
const REFUSED: &str = "ImagePullUnauthorized";

/// The place of registry credentials that a backend reads. The first place hides the second one, also when it is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthFile {
    /// For this boot: rpm-ostree's, and libostree's.
    Run,
    /// Permanent: for bootc, which works in a mount namespace of its own at times when no agent runs to link the file.
    Etc,
}

impl AuthFile {
    /// Returns the path.
    pub fn path(self) -> &'static str {
        match self {
            Self::Run => "/run/ostree/auth.json",
            Self::Etc => "/etc/ostree/auth.json",
        }
    }

    /// The places in the order in which the tools read them.
    const READ: [Self; 2] = [Self::Run, Self::Etc];

    /// Returns the places that are looked at up to this one, before the secret.
    fn up_to(self) -> &'static [Self] {
        match self {
            Self::Run => &[Self::Run],
            Self::Etc => &[Self::Run, Self::Etc],
        }
    }

    /// Returns true if an administrator's own file is found there first.
    fn is_taken(self, root: &Root) -> Result<bool, HostError> {
        for place in self.up_to() {
            if matches!(root.observe(place.path())?, ObservedFile::Regular { .. }) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Credentials and where they are. `Debug` shows no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The secret's file.
    pub path: ManagedPath,
    /// Its JSON.
    pub json: Contents,
}

impl Credentials {
    /// Picks the credentials to reach a config with; `None` leaves the pull to ostree's own files.
    pub fn pick(root: &Root, to: &HostSpec, place: AuthFile) -> Result<Option<Self>, HostError> {
        Self::first(root, place, |path| to.files.get(path).map(|file| file.contents.clone()))
    }

    /// Picks the credentials that the host has.
    pub fn there(root: &Root, place: AuthFile) -> Result<Option<Self>, HostError> {
        Self::first(root, place, |_| None)
    }

    /// Takes the first file that holds JSON: the merged one is a bare newline at first.
    fn first(
        root: &Root,
        place: AuthFile,
        brought: impl Fn(&ManagedPath) -> Option<Contents>,
    ) -> Result<Option<Self>, HostError> {
        if place.is_taken(root)? {
            return Ok(None);
        }
        for path in PULL_SECRETS.into_iter().filter_map(|path| ManagedPath::new(path).ok()) {
            let json = match brought(&path) {
                Some(contents) => Some(contents),
                None => root.read(path.as_str())?.map(Contents::new),
            };
            if let Some(json) = json.filter(is_json) {
                return Ok(Some(Self { path, json }));
            }
        }
        Ok(None)
    }

    /// Adds to a registry's refusal the credentials file that was used.
    pub fn explain(error: HostError, root: &Root, to: &HostSpec, place: Option<AuthFile>) -> HostError {
        match (error, place) {
            (HostError::Os { object, cause, class, reason, next }, Some(place)) if reason == REFUSED => {
                let (cause, next) = match Self::used(root, to, place) {
                    Ok(Some(file)) => (
                        format!(
                            "{cause} (asked with the credentials in {file}{})",
                            Self::unread(root, &file)
                        ),
                        next.replace("skopeo inspect ", &format!("skopeo inspect --authfile {file} ")),
                    ),
                    Ok(None) => {
                        let own = AuthFile::READ.map(AuthFile::path);
                        let places = [&PULL_SECRETS[..], &own].concat().join(", ");
                        (format!("{cause} (asked without credentials: none are in {places})"), next)
                    }
                    Err(_) => (cause, next),
                };
                HostError::Os { object, cause, class, reason, next }
            }
            (error, _) => error,
        }
    }

    /// Returns the file with the credentials that are used.
    fn used(root: &Root, to: &HostSpec, place: AuthFile) -> Result<Option<String>, HostError> {
        for own in place.up_to() {
            if matches!(root.observe(own.path())?, ObservedFile::Regular { .. }) {
                return Ok(Some(own.path().to_owned()));
            }
        }
        if let Some(found) = Self::pick(root, to, place)? {
            return Ok(Some(found.path.to_string()));
        }
        // Without a secret the tools look at all of their own places.
        for own in AuthFile::READ {
            if matches!(root.observe(own.path())?, ObservedFile::Regular { .. }) {
                return Ok(Some(own.path().to_owned()));
            }
        }
        Ok(None)
    }

    /// Names an administrator's file that another place hides.
    fn unread(root: &Root, used: &str) -> String {
        let (etc, run) = (AuthFile::Etc.path(), AuthFile::Run.path());
        let is_there = matches!(root.observe(etc), Ok(ObservedFile::Regular { .. }));
        if used == etc || !is_there {
            return String::new();
        }
        format!("; {etc} is not read: {run} comes before it")
    }

    /// Links the secret's file where the backend looks: switched at once, and untouched when it is right.
    pub fn link(&self, root: &Root, place: AuthFile, fail_points: &FailPoints) -> Result<(), HostError> {
        for at in place.up_to() {
            // Another backend's link, or MCD's, would hide this one.
            let hides = *at != place && matches!(root.observe(at.path())?, ObservedFile::Symlink { .. });
            if *at == place || hides {
                let change = Change::new(at.path(), 0, DesiredPath::link(self.path.as_str()));
                durable::apply_changes(root, std::slice::from_ref(&change), Attempt::First, fail_points)?;
            }
        }
        Ok(())
    }

    /// Returns the mode of the secret's file when others than its owner may use it.
    pub fn loose(&self, root: &Root) -> Result<Option<FileMode>, HostError> {
        let set_metadata = root.dress_of(self.path.as_str())?;
        Ok(set_metadata
            .and_then(|(mode, ..)| FileMode::new(i64::from(mode & 0o777)))
            .filter(|mode| mode.is_shared()))
    }
}

/// Returns true if these are credentials.
pub fn is_json(contents: &Contents) -> bool {
    serde_json::from_slice::<serde::de::IgnoredAny>(contents.bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::{Path, PathBuf};

    use super::*;

    const MERGED: &str = "/etc/mco/internal-registry-pull-secret.json";
    const KUBELET: &str = "/var/lib/kubelet/config.json";

    struct TestHost {
        dir: tempfile::TempDir,
        root: Root,
    }

    impl TestHost {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::open(dir.path()).unwrap();
            Self { dir, root }
        }

        fn path(&self, path: &str) -> PathBuf {
            self.dir.path().join(path.trim_start_matches('/'))
        }

        fn put(&self, path: &str, text: &str) {
            self.root.replace(path, text.as_bytes(), FileMode::PRIVATE).unwrap();
        }

        fn links(&self, place: AuthFile) -> [Option<String>; 2] {
            if let Some(found) = Credentials::there(&self.root, place).unwrap() {
                found.link(&self.root, place, &FailPoints::off()).unwrap();
            }
            [AuthFile::Run, AuthFile::Etc].map(|place| {
                let target = std::fs::read_link(self.path(place.path())).ok()?;
                Some(target.to_str().unwrap().to_owned())
            })
        }
    }

    /// MCD-242, OCL-002: to the merged file when it is JSON, else to the kubelet's; where depends on the backend.
    #[test]
    fn link_leads_to_first_json_file() {
        let rows: [(&str, Option<&str>, Option<&str>); 6] = [
            ("{}", Some("{}"), Some(MERGED)),
            ("\n", Some("{}"), Some(KUBELET)),
            ("{\"auths\":", Some("{}"), Some(KUBELET)),
            ("{}", None, Some(MERGED)),
            ("\n", None, None),
            ("\n", Some("\n"), None),
        ];
        for (merged, kubelet, expected) in rows {
            let expected = expected.map(str::to_owned);
            for (place, at) in [(AuthFile::Run, 0), (AuthFile::Etc, 1)] {
                let host = TestHost::new();
                host.put(MERGED, merged);
                if let Some(kubelet) = kubelet {
                    host.put(KUBELET, kubelet);
                }
                let links = host.links(place);
                assert_eq!(links.get(at), Some(&expected), "{merged:?} {kubelet:?} {place:?}");
                assert_eq!(links.get(1 - at), Some(&None), "{merged:?} {kubelet:?} {place:?}");
            }
        }
    }

    /// The link moves with the files, in one step: there is always one.
    #[test]
    fn link_follows_files() {
        let host = TestHost::new();
        host.put(KUBELET, "{}");
        let run = |links: [Option<String>; 2]| links.into_iter().next().flatten();
        assert_eq!(run(host.links(AuthFile::Run)).as_deref(), Some(KUBELET));
        host.put(MERGED, "{}");
        assert_eq!(run(host.links(AuthFile::Run)).as_deref(), Some(MERGED));
        // Left by another backend, it would hide the own one.
        host.put(MERGED, "\n");
        assert_eq!(host.links(AuthFile::Etc), [Some(KUBELET.to_owned()), Some(KUBELET.to_owned())]);
    }

    #[test]
    fn administrators_file_wins() {
        for (place, own) in
            [(AuthFile::Run, AuthFile::Run), (AuthFile::Etc, AuthFile::Etc), (AuthFile::Etc, AuthFile::Run)]
        {
            let host = TestHost::new();
            host.put(KUBELET, "{}");
            host.put(own.path(), "{\"own\":1}");
            assert_eq!(host.links(place), [None, None]);
            assert_eq!(std::fs::read_to_string(host.path(own.path())).unwrap(), "{\"own\":1}");
        }
        // One at bootc's place means nothing to rpm-ostree, which looks at its own first.
        let host = TestHost::new();
        host.put(KUBELET, "{}");
        host.put(AuthFile::Etc.path(), "{\"own\":1}");
        assert_eq!(host.links(AuthFile::Run), [Some(KUBELET.to_owned()), None]);
    }

    /// Issue 33: the file that was read is named, also where only the tools' second place has one.
    #[test]
    fn refusal_names_file_in_force() {
        let to = HostSpec::empty(crate::model::ConfigName::new("a").unwrap());
        let refused = |host: &TestHost, place| {
            let (object, cause, next) = ("image".to_owned(), "401".to_owned(), "skopeo inspect x".to_owned());
            let class = crate::model::FaultClass::Retry;
            let error = HostError::Os { object, cause, class, reason: REFUSED, next };
            let HostError::Os { cause, next, .. } = Credentials::explain(error, &host.root, &to, Some(place))
            else {
                panic!("it is another error")
            };
            (cause, next)
        };
        let (run, etc) = (AuthFile::Run.path(), AuthFile::Etc.path());
        for place in [AuthFile::Run, AuthFile::Etc] {
            let host = TestHost::new();
            let (cause, _) = refused(&host, place);
            assert!(cause.contains("asked without credentials") && cause.contains(run), "{cause}");
            assert!(cause.contains(etc), "{cause}");
            host.put(etc, "{}");
            let (cause, next) = refused(&host, place);
            assert_eq!(cause, format!("401 (asked with the credentials in {etc})"));
            assert_eq!(next, format!("skopeo inspect --authfile {etc} x"));
            host.put(run, "{}");
            let (cause, _) = refused(&host, place);
            let hidden = format!("; {etc} is not read: {run} comes before it");
            assert_eq!(cause, format!("401 (asked with the credentials in {run}{hidden})"));
        }
        // The secret is linked at the first place.
        let host = TestHost::new();
        host.put(etc, "{}");
        host.put(KUBELET, "{}");
        let (cause, _) = refused(&host, AuthFile::Run);
        assert!(cause.contains(&format!("in {KUBELET}; {etc} is not read")), "{cause}");
    }

    #[test]
    fn credentials_readable_by_others_are_found() {
        let host = TestHost::new();
        host.put(KUBELET, "{}");
        let found = Credentials::there(&host.root, AuthFile::Run).unwrap().unwrap();
        assert_eq!(found.loose(&host.root).unwrap(), None);
        for mode in [0o640, 0o604, 0o644] {
            let expected = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(host.path(KUBELET), expected).unwrap();
            assert_eq!(found.loose(&host.root).unwrap().map(FileMode::bits), Some(mode));
        }
    }

    #[test]
    fn config_may_bring_secret() {
        let host = TestHost::new();
        std::fs::create_dir_all(host.path("/run/ostree")).unwrap();
        symlink("/nowhere", host.path(AuthFile::Run.path())).unwrap();
        assert_eq!(Credentials::there(&host.root, AuthFile::Run).unwrap(), None);
        let brought = |path: &ManagedPath| (path.as_str() == KUBELET).then(|| Contents::new(&b"{}"[..]));
        let found = Credentials::first(&host.root, AuthFile::Run, brought).unwrap().unwrap();
        found.link(&host.root, AuthFile::Run, &FailPoints::off()).unwrap();
        assert_eq!(std::fs::read_link(host.path(AuthFile::Run.path())).unwrap(), Path::new(KUBELET));
    }
}
