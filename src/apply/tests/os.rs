//! The OS batch against a backend that records its requests.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use super::*;
use crate::host::os::{OsBackend, OsChange, OsProgress, Preflight, StageRequest};
use crate::host::{BoxFuture, HostError};
use crate::model::node_settings::OsLimits;
use crate::model::observation::{EmbeddedConfig, ObservedOs, Staged};
use crate::model::os::{KernelType, Layers};
use crate::model::{FaultClass, HostSpec, ImageRef, Karg};

#[derive(Debug, Default, Clone)]
struct Remembering {
    asked: Rc<RefCell<Vec<StageRequest>>>,
    unstaged: Rc<RefCell<u32>>,
    stages_instead: Option<ImageRef>,
    fails: Option<(&'static str, FaultClass)>,
    pace: Pace,
    abandoned: Rc<RefCell<u32>>,
}

/// Progress of a backend.
#[derive(Debug, Default, Clone, Copy)]
enum Pace {
    /// To the end, at once.
    #[default]
    Done,
    /// Not at all, after its first words.
    Stands,
    /// It reports the same progress again and again.
    Repeats,
    /// Always a little further.
    Creeps,
    /// Not at all: another program works.
    Waits,
}

impl OsBackend for Remembering {
    fn name(&self) -> &'static str {
        "remembering"
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        Box::pin(async { Ok(ObservedOs::NotImageBased) })
    }

    fn preflight<'a>(
        &'a self,
        _image: &'a ImageRef,
        _credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(async { Ok(Preflight { carries: EmbeddedConfig::Unknown, download: None }) })
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async move {
            progress(OsProgress { text: "pulling".to_owned(), percent: Some(50) });
            let mut layer = 0;
            loop {
                layer += 1;
                match self.pace {
                    Pace::Done => break,
                    Pace::Stands => std::future::pending::<()>().await,
                    Pace::Waits => {
                        progress(OsProgress {
                            text: "waiting for the upgrade of another".to_owned(),
                            percent: None,
                        });
                        std::future::pending::<()>().await;
                    }
                    Pace::Repeats => progress(OsProgress { text: "pulling".to_owned(), percent: Some(50) }),
                    Pace::Creeps => progress(OsProgress { text: format!("layer {layer}"), percent: None }),
                }
                // The speed of this backend; nothing waits for it.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            if let Some((cause, class)) = self.fails {
                let (object, cause) = (request.image.clone().unwrap().to_string(), cause.to_owned());
                return Err(HostError::Os {
                    object,
                    cause,
                    class,
                    reason: "ImagePullFailed",
                    next: "Wait.".to_owned(),
                });
            }
            self.asked.borrow_mut().push(request.clone());
            let image = self.stages_instead.clone().or_else(|| request.image.clone());
            Ok(Staged { image, deployment: "os-1.0".to_owned(), kargs: Vec::new() })
        })
    }

    fn abandon(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async {
            *self.abandoned.borrow_mut() += 1;
            Ok(())
        })
    }

    fn unstage<'a>(
        &'a self,
        _progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async {
            *self.unstaged.borrow_mut() += 1;
            Ok(())
        })
    }

    fn set_default_deployment<'a>(
        &'a self,
        _deployment: &'a str,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<(), HostError>> {
        Box::pin(async move {
            progress(OsProgress { text: "running bootc rollback".to_owned(), percent: None });
            std::future::pending().await
        })
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, Result<(), HostError>> {
        Box::pin(async { Ok(()) })
    }
}

fn image(digit: char) -> ImageRef {
    ImageRef::parse(&format!("registry.example/os@sha256:{}", String::from(digit).repeat(64))).unwrap()
}

#[tokio::test(flavor = "current_thread")]
async fn image_and_arguments_are_one_request_after_pull_secret() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let backend = Remembering::default();
    let mut host = host(dir.path(), FailPoints::off());
    host.os = Box::new(backend.clone());
    let (delete, append) = (Karg::split("quiet"), Karg::split("nosmt \"a b\""));
    let steps = steps(vec![
        Op::LinkPullSecret { path: path("/var/lib/kubelet/config.json") },
        Op::StageOs { image: image('a') },
        Op::SetKargs { delete: delete.clone(), append: append.clone() },
    ]);
    apply_batch(&host, 0, Batch::Os, &steps).await.unwrap();
    let auth = dir.path().join("run/ostree/auth.json");
    assert!(fs::symlink_metadata(&auth).is_err(), "there is no secret to link to");
    let expected = StageRequest {
        image: Some(image('a')),
        credentials: None,
        delete_kargs: delete,
        append_kargs: append,
        ..StageRequest::default()
    };
    assert_eq!(*backend.asked.borrow(), [expected]);

    fs::create_dir_all(dir.path().join("var/lib/kubelet")).unwrap();
    fs::write(dir.path().join("var/lib/kubelet/config.json"), "{}").unwrap();
    apply_batch(&host, 0, Batch::Os, &steps).await.unwrap();
    assert_eq!(fs::read_link(&auth).unwrap(), Path::new("/var/lib/kubelet/config.json"));
    assert_eq!(backend.asked.borrow()[1].credentials, Some(contents("{}")));

    let undo = Undo::UnstageOs;
    let (old, new) = (old(), new());
    let work = Work::Undo { undo: &undo, steps: &[] };
    apply(&Intent::for_tests(work, &old, &new, originals(0)), &host, &|_| {}).await.unwrap();
    assert_eq!(*backend.unstaged.borrow(), 1);
}

#[tokio::test(flavor = "current_thread")]
async fn another_image_than_desired_is_error() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let mut host = host(dir.path(), FailPoints::off());
    host.os = Box::new(Remembering { stages_instead: Some(image('b')), ..Remembering::default() });
    let steps = steps(vec![Op::StageOs { image: image('a') }]);
    let error = apply_batch(&host, 0, Batch::Os, &steps).await.unwrap_err();
    assert_eq!(error.reason(), "WrongImageStaged");
    assert!(error.to_string().contains(&image('a').to_string()), "{error}");
}

/// MCD-195, MCD-199: kernel and extensions of the config go with the image, in one request; those that stay go with
/// another image as well. MCD-204: in image mode they are in the image.
#[tokio::test(flavor = "current_thread")]
async fn packages_and_image_are_one_request() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let backend = Remembering::default();
    let mut host = host(dir.path(), FailPoints::off());
    host.os = Box::new(backend.clone());
    let mut to = new();
    to.kernel_type = KernelType::Realtime;
    to.extensions = BTreeSet::from(["usbguard".to_owned()]);
    to.extensions_image = Some(image('e'));
    let apply_batch = async |to: &HostSpec, ops: Vec<Op>| {
        let (old, steps) = (old(), steps(ops));
        let work = Work::Apply { batch: Batch::Os, steps: &steps };
        apply(&Intent::for_tests(work, &old, to, originals(0)), &host, &|_| {}).await.unwrap();
        backend.asked.borrow_mut().pop().unwrap()
    };
    let extensions = vec!["usbguard".to_owned()];
    let layers = Some(Layers { kernel: KernelType::Realtime, extensions: to.extensions.clone() });
    let switch = Op::SwitchKernel { kernel: KernelType::Realtime };
    let asked = apply_batch(
        &to,
        vec![Op::StageOs { image: image('a') }, switch, Op::InstallExtensions { extensions }],
    )
    .await;
    assert_eq!((asked.image, &asked.layers), (Some(image('a')), &layers));
    assert_eq!(asked.extensions_image, Some(image('e')));
    let asked = apply_batch(&to, vec![Op::StageOs { image: image('b') }]).await;
    assert_eq!((asked.layers, asked.extensions_image), (layers, Some(image('e'))));
    to.image = Some(image('b'));
    let asked = apply_batch(&to, vec![Op::StageOs { image: image('b') }]).await;
    assert_eq!((asked.layers, asked.extensions_image), (None, None));
    let drop = Op::InstallExtensions { extensions: Vec::new() };
    let asked = apply_batch(&to, vec![Op::StageOs { image: image('b') }, drop]).await;
    assert_eq!((asked.layers, asked.extensions_image), (Some(Layers::default()), None));
}

/// MCD-190: the result of the pull begins with the words that tests of clusters look for, and the registry's follow.
#[tokio::test(flavor = "current_thread")]
async fn failed_pull_names_image_and_cause() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let mut host = host(dir.path(), FailPoints::off());
    let fails = Some(("received unexpected HTTP status: 503", FaultClass::Retry));
    host.os = Box::new(Remembering { fails, ..Remembering::default() });
    let steps = steps(vec![Op::StageOs { image: image('a') }]);
    let error = apply_batch(&host, 0, Batch::Os, &steps).await.unwrap_err();
    assert_eq!((error.class(), error.reason()), (FaultClass::Retry, "ImagePullFailed"));
    let text = crate::model::text::chain(&error);
    assert!(text.starts_with(&format!("failed to update OS to {}", image('a'))), "{text}");
    assert!(text.ends_with("received unexpected HTTP status: 503"), "{text}");
    assert_eq!(text.matches(&image('a').to_string()).count(), 1, "it is named once: {text}");
}

/// OCL-029: a pull without progress, and one without end, are abandoned, and the backend ends its work.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn hung_backend_is_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let (short, never) = (Duration::from_millis(50), Duration::from_secs(24 * 3600));
    for (pace, limits, reason, words) in [
        (Pace::Stands, OsLimits { stall: short, total: never }, "OsStalled", "progress is: pulling, 50 %"),
        (Pace::Repeats, OsLimits { stall: short, total: never }, "OsStalled", "progress is: pulling, 50 %"),
        (Pace::Stands, OsLimits { stall: never, total: short }, "OsTooSlow", "progress is: pulling, 50 %"),
        (Pace::Creeps, OsLimits { stall: never, total: short }, "OsTooSlow", "progress is: layer "),
        // Another program's work is not the pull's: all of the time is its limit.
        (
            Pace::Waits,
            OsLimits { stall: short, total: short * 10 },
            "OsTooSlow",
            "progress is: waiting for the upgrade",
        ),
    ] {
        let mut host = host(dir.path(), FailPoints::off());
        let backend = Remembering { pace, ..Remembering::default() };
        host.os = Box::new(backend.clone());
        host.limits = limits;
        let steps = steps(vec![Op::StageOs { image: image('a') }]);
        let error = apply_batch(&host, 0, Batch::Os, &steps).await.unwrap_err();
        assert_eq!((error.class(), error.reason()), (FaultClass::Retry, reason), "{pace:?}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("failed to update OS to {}: ", image('a'))), "{text}");
        assert!(text.contains(words) && !text.contains("can't be stopped"), "{text}");
        assert_eq!((*backend.abandoned.borrow(), backend.asked.borrow().len()), (1, 0), "{pace:?}");
    }
}

/// The same for a change of the deployments beside a staging.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn hung_change_of_deployments_is_abandoned() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let backend = Remembering::default();
    let mut host = host(dir.path(), FailPoints::off());
    host.os = Box::new(backend.clone());
    let change = OsChange::SetDefault("os-1.0");
    let error = host.change_deployments(change, &|_| {}).await.unwrap_err();
    assert_eq!(error.class(), FaultClass::Retry);
    let text = error.to_string();
    assert!(text.ends_with("s; the last progress is: running bootc rollback"), "{text}");
    assert_eq!(*backend.abandoned.borrow(), 1);
}

/// Each sign of progress begins the time without progress again.
#[tokio::test(flavor = "current_thread", start_paused = true)]
async fn progress_keeps_slow_pull_alive() {
    let dir = tempfile::tempdir().unwrap();
    fixture(dir.path());
    let mut host = host(dir.path(), FailPoints::off());
    // Far more than a millisecond, and far less than all of it takes.
    host.limits = OsLimits { stall: Duration::from_secs(2), total: Duration::from_secs(4) };
    host.os = Box::new(Remembering { pace: Pace::Creeps, ..Remembering::default() });
    let steps = steps(vec![Op::StageOs { image: image('a') }]);
    assert_eq!(apply_batch(&host, 0, Batch::Os, &steps).await.unwrap_err().reason(), "OsTooSlow");
}
