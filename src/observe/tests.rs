//! Observation of a host in a directory.

#![expect(clippy::disallowed_methods, reason = "a test looks at the machine from outside")]

use std::fs;
use std::path::Path;

use super::*;
use crate::host::os::{OsBackend, OsProgress, Preflight, StageRequest};
use crate::host::{BoxFuture, FailPoints, HostError};
use crate::model::observation::{
    Booted, EmbeddedConfig, LocalPackages, ObservedFips, ObservedOs, Staged, UnitFileState,
};
use crate::model::units::{Enablement, Mask, UnitSpec};
use crate::model::users::PasswordHash;
use crate::model::{ConfigName, Contents, FaultClass, FileMode, FileSpec, ImageRef, Owner, Sha256};

fn write(at: &Path, path: &str, text: &str) {
    let path = at.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn host(at: &Path) -> Host {
    write(at, "proc/sys/kernel/random/boot_id", "boot-1\n");
    write(at, "proc/cmdline", "root=/dev/vda a=\"b c\"\n");
    let root = Root::open(at).unwrap();
    Host::in_directory(root, FailPoints::off())
}

fn spec(name: &str, paths: &[&str]) -> HostSpec {
    let mut spec = HostSpec::empty(ConfigName::new(name).unwrap());
    for path in paths {
        let contents = Contents::new(b"x".to_vec());
        let mode = FileMode::DEFAULT;
        let owner = Owner { user: Principal::Name("core".to_owned()), group: Principal::Id(0) };
        spec.files.insert(ManagedPath::new(*path).unwrap(), FileSpec { contents, mode, owner });
    }
    spec
}

#[tokio::test(flavor = "current_thread")]
async fn sees_files_units_account_and_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    write(dir.path(), "etc/passwd", "core:x:1000:1001::/home/core:/bin/sh\n");
    write(dir.path(), "etc/shadow", "core:*:1\n");
    write(dir.path(), "etc/motd", "hello");
    write(dir.path(), "usr/lib/systemd/system/a.service", "[Install]\nWantedBy=b.target\n");
    let mut spec = spec("rendered-a", &["/etc/motd", "/etc/none"]);
    let unit = UnitName::new("a.service").unwrap();
    spec.units.insert(
        unit.clone(),
        UnitSpec {
            contents: None,
            dropins: BTreeMap::new(),
            enablement: Enablement::Enabled,
            mask: Mask::Unset,
        },
    );
    let observed = observe(&host, &[&spec]).await.unwrap();
    assert_eq!(observed.boot_id.as_str(), "boot-1");
    assert_eq!(observed.kargs.iter().map(Karg::as_str).collect::<Vec<_>>(), ["root=/dev/vda", "a=\"b c\""]);
    let motd = &observed.files[&ManagedPath::new("/etc/motd").unwrap()];
    assert!(
        matches!(motd, ObservedFile::Regular { sha256, len: 5, .. } if *sha256 == Sha256::digest(b"hello")),
        "{motd:?}"
    );
    assert_eq!(observed.files[&ManagedPath::new("/etc/none").unwrap()], ObservedFile::Absent);
    assert_eq!(observed.units[&unit].enabled, UnitFileState::Disabled);
    assert_eq!(observed.user_ids, BTreeMap::from([("core".to_owned(), 1000)]));
    let core = &observed.accounts["core"];
    assert_eq!(core.keys_path.as_ref().unwrap().as_str(), "/home/core/.ssh/authorized_keys.d/ignition");
    assert_eq!((core.uid, core.gid, &core.foreign), (1000, 1001, &None));
    assert_eq!((&core.keys, &core.password), (&ObservedFile::Absent, &Some(PasswordHash::locked())));
}

#[derive(Debug)]
struct Booting {
    runs: ImageRef,
    answers: Answers,
}

/// The backend's answers about an image.
#[derive(Debug)]
enum Answers {
    Yes,
    No,
    Never,
}

impl OsBackend for Booting {
    fn name(&self) -> &'static str {
        "booting"
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        let carries = EmbeddedConfig::Config(ConfigName::new("rendered-a").unwrap());
        let booted = Booted {
            image: Some(self.runs.clone()),
            deployment: "os-1.0".to_owned(),
            carries,
            local: LocalPackages::default(),
        };
        Box::pin(async { Ok(ObservedOs::Deployments { booted, staged: None, next: None }) })
    }

    fn preflight<'a>(
        &'a self,
        image: &'a ImageRef,
        _credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        let carries = EmbeddedConfig::Config(ConfigName::new("asked-the-registry").unwrap());
        Box::pin(async move {
            let (object, cause) = (image.to_string(), "manifest unknown".to_owned());
            let (class, reason, next) = (FaultClass::Degraded, "ImageNotFound", "Push it.");
            match self.answers {
                Answers::Yes => Ok(Preflight { carries, download: None }),
                Answers::No => Err(HostError::Os { object, cause, class, reason, next: next.to_owned() }),
                Answers::Never => std::future::pending().await,
            }
        })
    }

    fn stage<'a>(
        &'a self,
        _request: &'a StageRequest,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async { unreachable!("facts stage nothing") })
    }

    fn unstage<'a>(
        &'a self,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}

/// OST-009: the booted digest under another name is the same image, and nothing is queried for it.
#[tokio::test(flavor = "current_thread")]
async fn facts_report_local_files_over_image() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = host(dir.path());
    let image =
        |name: &str, digit: &str| ImageRef::parse(&format!("{name}@sha256:{}", digit.repeat(64))).unwrap();
    write(dir.path(), "usr/etc/same", "x");
    write(dir.path(), "etc/same", "x");
    write(dir.path(), "usr/etc/deleted", "x");
    write(dir.path(), "usr/etc/changed", "x");
    write(dir.path(), "etc/changed", "y");
    write(dir.path(), "etc/added", "x");
    write(dir.path(), "etc/machine-config-daemon/orig/etc/added.mcdorig", "z");
    // Put aside on the host that the image was made of.
    for etc in ["etc", "usr/etc"] {
        write(dir.path(), &format!("{etc}/machine-config-daemon/orig/etc/neither.mcdorig"), "z");
    }
    write(dir.path(), "proc/sys/crypto/fips_enabled", "1\n");
    fs::create_dir_all(dir.path().join("var/home")).unwrap();
    std::os::unix::fs::symlink("var/home", dir.path().join("home")).unwrap();
    let paths =
        ["/etc/same", "/etc/deleted", "/etc/changed", "/etc/added", "/etc/neither", "/home/core/a", "/var/b"];
    let (from, mut to) = (spec("rendered-a", &paths), spec("rendered-b", &[]));

    let observed = facts(&host, &from, &to).await.unwrap();
    assert!(observed.local.is_empty(), "only an image-based host merges /etc");
    let names = |set: &BTreeSet<ManagedPath>| set.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(&observed.under_var), ["/home/core/a", "/var/b"]);
    assert_eq!(names(&observed.restorable), ["/etc/added", "/etc/changed", "/etc/deleted", "/etc/same"]);
    assert_eq!((observed.fips, observed.carries), (ObservedFips::On, EmbeddedConfig::Unknown));

    host.os = Box::new(Booting { runs: image("one.example/os", "a"), answers: Answers::Yes });
    // The same digest is the same image: the backend is not called.
    to.image = Some(image("two.example/os", "a"));
    let observed = facts(&host, &from, &to).await.unwrap();
    assert_eq!(names(&observed.local), ["/etc/added", "/etc/changed", "/etc/deleted"]);
    assert_eq!(observed.carries, EmbeddedConfig::Config(ConfigName::new("rendered-a").unwrap()));
    to.image = Some(image("one.example/os", "b"));
    let observed = facts(&host, &from, &to).await.unwrap();
    assert_eq!(observed.carries, EmbeddedConfig::Config(ConfigName::new("asked-the-registry").unwrap()));
}

/// The registry is queried before anything is planned, inside image mode and outside it; it has no answer for ever.
#[tokio::test(flavor = "current_thread")]
async fn unavailable_image_is_reported_before_plan() {
    let dir = tempfile::tempdir().unwrap();
    let mut host = host(dir.path());
    let image =
        |digit: &str| ImageRef::parse(&format!("one.example/os@sha256:{}", digit.repeat(64))).unwrap();
    let (from, mut to) = (spec("rendered-a", &[]), spec("rendered-b", &[]));
    host.os = Box::new(Booting { runs: image("a"), answers: Answers::No });
    to.os_image_url = Some(image("a"));
    assert_eq!(facts(&host, &from, &to).await.unwrap().carries, EmbeddedConfig::Unknown, "nobody is asked");
    to.os_image_url = Some(image("b"));
    let error = facts(&host, &from, &to).await.unwrap_err();
    assert_eq!((error.class(), error.reason()), (FaultClass::Degraded, "ImageNotFound"));
    assert_eq!(error.to_string(), format!("failed to update OS to {}", image("b")));
    (to.image, to.os_image_url) = (Some(image("c")), Some(image("a")));
    assert_eq!(facts(&host, &from, &to).await.unwrap_err().reason(), "ImageNotFound");

    host.os = Box::new(Booting { runs: image("a"), answers: Answers::Never });
    host.limits.stall = std::time::Duration::from_millis(20);
    let error = facts(&host, &from, &to).await.unwrap_err();
    assert_eq!((error.class(), error.reason()), (FaultClass::Retry, "TimedOut"));
}

/// The observation of the units and of the units enabled with them come from one look at their links.
#[tokio::test(flavor = "current_thread")]
async fn facts_read_unit_links_once() {
    use rustix::fs::inotify;
    let dir = tempfile::tempdir().unwrap();
    let host = host(dir.path());
    write(dir.path(), "usr/lib/systemd/system/a.service", "[Install]\nWantedBy=b.target\nAlso=c.service\n");
    fs::create_dir_all(dir.path().join("etc/systemd/system/b.target.wants")).unwrap();
    let (from, mut to) = (spec("rendered-a", &[]), spec("rendered-b", &[]));
    let unit = UnitSpec {
        contents: None,
        dropins: BTreeMap::new(),
        enablement: Enablement::Enabled,
        mask: Mask::Unset,
    };
    to.units.insert(UnitName::new("a.service").unwrap(), unit);

    let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
    let links = dir.path().join("etc/systemd/system/b.target.wants");
    inotify::add_watch(&watch, &links, inotify::WatchFlags::OPEN).unwrap();
    let facts = facts(&host, &from, &to).await.unwrap();
    assert_eq!(facts.companions.len(), 1);
    let (mut buffer, mut looks) = ([std::mem::MaybeUninit::uninit(); 4096], 0);
    let mut reader = inotify::Reader::new(&watch, &mut buffer);
    while reader.next().is_ok() {
        looks += 1;
    }
    assert_eq!(looks, 1, "times that the directory of links was opened");
}
