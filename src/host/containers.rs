//! The containers of CRI-O, by its client `crictl`. A host without it has none to stop.

use std::time::Duration;

use super::{HostError, Root, command};

/// The client, as images of OpenShift have it.
const CLIENT: &str = "/usr/bin/crictl";

/// Time for an answer.
const ANSWER: Duration = Duration::from_secs(60);

/// Time in which all containers end; each has 10 s before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(300);

/// Stops all containers.
pub async fn stop_all(root: &Root) -> Result<(), HostError> {
    if !root.exists(CLIENT)? {
        return Ok(());
    }
    let ids = command::output(CLIENT, &["ps", "--quiet"], ANSWER).await?;
    let ids: Vec<&str> = ids.split_whitespace().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let arguments = [&["stop", "--timeout", "10"], &ids[..]].concat();
    command::run(CLIENT, &arguments, STOP_TIMEOUT).await
}

/// Returns the images on this host as JSON; `None` without the client.
pub async fn images(root: &Root) -> Result<Option<String>, HostError> {
    if !root.exists(CLIENT)? {
        return Ok(None);
    }
    command::output(CLIENT, &["images", "--output", "json"], ANSWER).await.map(Some)
}
