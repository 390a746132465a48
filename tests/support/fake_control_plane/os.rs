//! Fake OS tooling: a libostree host, whose registry is set by the test.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use machine_config_agent::host::os::{PrefetchRequest, Prefetched, Preflight, ProgressSender};
use machine_config_agent::host::{AuthFile, BoxFuture, HostError, OsBackend, OsProgress, StageRequest};
use machine_config_agent::model::observation::{Booted, EmbeddedConfig, LocalPackages, ObservedOs, Staged};
use machine_config_agent::model::{Contents, ImageRef};

/// Result of a request.
pub type StageResult = Result<(), HostError>;

/// Requests that no test sets up succeed, and do nothing.
pub struct Played {
    pub seen: Rc<RefCell<ObservedOs>>,
    pub auth_file: AuthFile,
    /// At each question about an image.
    pub asked: Box<dyn Fn() -> StageResult>,
    /// True while the registry does not answer questions about an image.
    pub mute: Rc<Cell<bool>>,
    /// True if it reports no progress, as bootc under an old systemd.
    pub silent: bool,
    /// Reported at each staging, before it begins.
    pub says: Option<&'static str>,
    /// Number of stagings that were cleaned up.
    pub abandoned: Rc<Cell<u32>>,
    /// When a staged deployment is dropped.
    pub unstaged: Box<dyn Fn() -> StageResult>,
    /// At each staging, until its end.
    pub pulled: Box<dyn Fn() -> BoxFuture<'static, StageResult>>,
    /// At each prefetch, until its end.
    pub prefetched: Box<dyn Fn(PrefetchRequest) -> BoxFuture<'static, Result<Prefetched, HostError>>>,
    /// When the deployment before the booted one is given up.
    pub dropped: Box<dyn Fn()>,
    /// True if the host stops answering, as services do while it shuts down.
    pub gone: Rc<Cell<bool>>,
    /// When a deployment is to boot next.
    pub back: Box<dyn Fn(&str) -> StageResult>,
    /// True while another program holds the sysroot: a change of the deployments waits for its end.
    pub others: Rc<Cell<bool>>,
    /// Number of changes that were begun.
    pub changes: Rc<Cell<u32>>,
}

/// Names an image by one digit of its digest.
pub fn image(digit: &str) -> ImageRef {
    ImageRef::parse(&format!("registry.test/os@sha256:{}", digit.repeat(64))).unwrap()
}

impl Played {
    /// A host that runs an image; all that is asked for succeeds.
    pub fn running(image: ImageRef) -> Self {
        let booted = Booted {
            image: Some(image),
            deployment: "os-1.0".to_owned(),
            carries: EmbeddedConfig::Unknown,
            local: LocalPackages::default(),
        };
        Self {
            seen: Rc::new(RefCell::new(ObservedOs::Deployments { booted, staged: None, next: None })),
            auth_file: AuthFile::Run,
            mute: Rc::default(),
            silent: false,
            says: None,
            abandoned: Rc::default(),
            unstaged: Box::new(|| Ok(())),
            asked: Box::new(|| Ok(())),
            pulled: Box::new(|| Box::pin(async { Ok(()) })),
            prefetched: Box::new(|_| Box::pin(async { Ok(Prefetched { free: Some(1 << 30) }) })),
            dropped: Box::new(|| {}),
            gone: Rc::default(),
            back: Box::new(|_| Ok(())),
            others: Rc::default(),
            changes: Rc::default(),
        }
    }

    async fn await_others(&self, progress: &(dyn Fn(OsProgress) + '_)) {
        self.changes.set(self.changes.get() + 1);
        if self.others.get() {
            let text = "waiting for the rpm-ostree transaction \"upgrade\" of cli".to_owned();
            progress(OsProgress { text, percent: None });
        }
        while self.others.get() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

impl fmt::Debug for Played {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl OsBackend for Played {
    fn name(&self) -> &'static str {
        "played"
    }

    fn auth_file(&self) -> Option<AuthFile> {
        Some(self.auth_file)
    }

    fn reports_progress(&self) -> bool {
        !self.silent
    }

    fn abandon(&self) -> BoxFuture<'_, StageResult> {
        Box::pin(async {
            self.abandoned.set(self.abandoned.get() + 1);
            Ok(())
        })
    }

    fn observe(&self) -> BoxFuture<'_, Result<ObservedOs, HostError>> {
        Box::pin(async {
            if !self.gone.get() {
                return Ok(self.seen.borrow().clone());
            }
            let source = "the service ended".into();
            Err(HostError::Bus { call: "Reload".to_owned(), source })
        })
    }

    fn preflight<'a>(
        &'a self,
        _image: &'a ImageRef,
        _credentials: Option<&'a Contents>,
    ) -> BoxFuture<'a, Result<Preflight, HostError>> {
        Box::pin(async {
            while self.mute.get() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            (self.asked)().map(|()| Preflight { carries: EmbeddedConfig::Unknown, download: None })
        })
    }

    fn stage<'a>(
        &'a self,
        request: &'a StageRequest,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, Result<Staged, HostError>> {
        Box::pin(async {
            if let Some(text) = self.says {
                progress(OsProgress { text: text.to_owned(), percent: None });
            }
            (self.pulled)().await?;
            let mut seen = self.seen.borrow_mut();
            let image = request.image.clone().or_else(|| seen.booted()?.image.clone());
            let new = Staged { image, deployment: "os-2.0".to_owned(), kargs: Vec::new() };
            if let ObservedOs::Deployments { staged, .. } = &mut *seen {
                *staged = Some(new.clone());
            }
            Ok(new)
        })
    }

    fn prefetch(
        &self,
        request: PrefetchRequest,
        _progress: ProgressSender,
    ) -> BoxFuture<'static, Result<Prefetched, HostError>> {
        (self.prefetched)(request)
    }

    fn unstage<'a>(&'a self, progress: &'a (dyn Fn(OsProgress) + 'a)) -> BoxFuture<'a, StageResult> {
        Box::pin(async {
            self.await_others(progress).await;
            (self.unstaged)()?;
            if let ObservedOs::Deployments { staged, .. } = &mut *self.seen.borrow_mut() {
                *staged = None;
            }
            Ok(())
        })
    }

    fn ensure_finalizable(&self) -> BoxFuture<'_, StageResult> {
        Box::pin(async { Ok(()) })
    }

    fn set_default_deployment<'a>(
        &'a self,
        deployment: &'a str,
        progress: &'a (dyn Fn(OsProgress) + 'a),
    ) -> BoxFuture<'a, StageResult> {
        Box::pin(async move {
            self.await_others(progress).await;
            (self.back)(deployment)
        })
    }

    fn drop_rollback<'a>(&'a self, progress: &'a (dyn Fn(OsProgress) + 'a)) -> BoxFuture<'a, StageResult> {
        Box::pin(async {
            self.await_others(progress).await;
            (self.dropped)();
            Ok(())
        })
    }
}
