//! The size of an image in its registry: `skopeo`'s to find out, which knows mirrors, credentials and architectures.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;

use super::{HostError, Root, command};
use crate::model::ProxySettings;
use crate::model::image::PULL_SECRETS;

/// Time limit of the request for a manifest.
const TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Inspected {
    layers_data: Option<Vec<Layer>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Layer {
    digest: String,
    size: u64,
}

/// Returns the compressed bytes of an image's layers by their digests; `None` where nothing on the host can tell them.
pub async fn layers(
    root: &Root,
    image: &str,
    proxies: &ProxySettings,
) -> Result<Option<BTreeMap<String, u64>>, HostError> {
    if !root.exists("/usr/bin/skopeo")? {
        return Ok(None);
    }
    let mut arguments = vec!["inspect", "--no-tags"];
    for path in PULL_SECRETS.into_iter().rev() {
        if root.exists(path)? {
            arguments.extend(["--authfile", path]);
            break;
        }
    }
    let image = format!("docker://{image}");
    arguments.push(&image);
    let text = command::output_with("skopeo", &arguments, TIMEOUT, proxies).await?;
    let inspected: Option<Inspected> = serde_json::from_str(&text).ok();
    let layers = inspected.and_then(|inspected| inspected.layers_data);
    Ok(layers.map(|layers| layers.into_iter().map(|layer| (layer.digest, layer.size)).collect()))
}
