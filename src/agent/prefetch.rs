//! The download of an image ahead of its update: it runs beside the waits of the loop, and is dropped for anything else.

use tokio::sync::watch;
use tracing::{info, warn};

use super::{Agent, AgentError};
use crate::control::ControlPlane;
use crate::host::Credentials;
use crate::host::os::{PrefetchRequest, Prefetched};
use crate::model::annotations::PREFETCH_IMAGE;
use crate::model::{FaultClass, ImageRef, message};
use crate::report::{PrefetchState, PrefetchStatus};
use crate::update::Fault;

impl<C: ControlPlane> Agent<C> {
    /// Reads the request, and takes a download's result.
    pub(super) fn read_prefetch(&mut self) {
        self.take_prefetched();
        let text = self.control.prefetch();
        let requested = text
            .as_deref()
            .map(|text| ImageRef::parse(text).map_err(|error| error.in_field(PREFETCH_IMAGE, "")));
        self.prefetching.requested = requested.as_ref().and_then(|image| image.as_ref().ok().cloned());
        let Some(text) = text else {
            self.health.prefetch = None;
            return;
        };
        if let Some(Err(error)) = requested {
            let fault = Fault {
                class: FaultClass::Degraded,
                reason: "InvalidImage".to_owned(),
                message: format!("the image to prefetch can't be used: {error}"),
                next: "Write an image by digest into the annotation machine-config-agent.io/prefetch-image."
                    .to_owned(),
            };
            if self.prefetching.refused.as_ref() != Some(&text) {
                log_failure(&fault);
                self.prefetching.refused = Some(text.clone());
            }
            let status = PrefetchStatus::new(text, PrefetchState::Failed);
            self.health.prefetch = Some(PrefetchStatus { fault: Some(fault), ..status });
            return;
        }
        self.prefetching.refused = None;
        if self.health.prefetch.as_ref().is_none_or(|status| status.image != text) {
            self.health.prefetch = Some(PrefetchStatus::new(text, PrefetchState::Waiting));
        }
    }

    fn take_prefetched(&mut self) {
        let Some(ended) = self.prefetching.take() else { return };
        let image = self.prefetching.requested.as_ref();
        match ended {
            Ok(Prefetched { free }) => {
                self.memory.prefetch.succeed();
                if let (Some(image), Some(status)) = (image, &mut self.health.prefetch) {
                    let room = free.map(|free| format!("; {} MiB are free", free >> 20)).unwrap_or_default();
                    info!(MESSAGE_ID = message::PREFETCHED, MCA_IMAGE = %image, "Prefetched {image}{room}");
                    let done = PrefetchStatus::new(&*status.image, PrefetchState::Done);
                    *status = PrefetchStatus { free_bytes: free, ..done };
                }
            }
            Err(error) => {
                self.memory.prefetch.fail(self.host.clock.monotonic());
                let fault = AgentError::from(error).fault();
                log_failure(&fault);
                if let Some(status) = &mut self.health.prefetch {
                    let failed = PrefetchStatus::new(&*status.image, PrefetchState::Failed);
                    *status = PrefetchStatus { fault: Some(fault), ..failed };
                }
            }
        }
    }

    /// Begins to download an image, or to drop the downloaded one.
    pub(super) fn begin_prefetch(&mut self, image: Option<ImageRef>) -> Result<(), AgentError> {
        let place = self.host.os.auth_file().filter(|_| image.is_some());
        let credentials =
            place.map(|place| Credentials::there(&self.host.root, place)).transpose()?.flatten();
        let request = PrefetchRequest {
            image: image.clone(),
            credentials: credentials.map(|found| found.json),
            bandwidth: self.node_settings.prefetch_bandwidth,
        };
        if let Some(image) = &image {
            info!(MESSAGE_ID = message::PREFETCH_STARTED, MCA_IMAGE = %image, "Prefetching {image}");
            let downloading = PrefetchStatus::new(image.to_string(), PrefetchState::Downloading);
            self.health.prefetch = Some(downloading);
        }
        let (sender, progress) = watch::channel(None);
        let work = self.host.os.prefetch(request, sender);
        self.memory.prefetch.begin(image.clone());
        self.prefetching.begin(image, work, progress);
        Ok(())
    }

    /// Ends the download: there is other work. Its finished part stays for its next begin.
    pub(super) fn end_prefetch(&mut self) {
        self.prefetching.end();
        self.memory.prefetch.interrupt();
        if let Some(status) = &mut self.health.prefetch {
            *status = PrefetchStatus::new(&*status.image, PrefetchState::Waiting);
        }
    }
}

fn log_failure(fault: &Fault) {
    warn!(MESSAGE_ID = message::PREFETCH_FAILED, MCA_FAULT = fault.reason, "Prefetch failed: {fault}");
}
