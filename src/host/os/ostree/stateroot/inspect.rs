//! The labels of an image: its manifest and config are fetched, no layer.

use std::collections::BTreeMap;

use ostree_ext::oci_spec::image::Descriptor;
use serde::Deserialize;

use super::super::super::error::OsError;
use super::super::super::worker::protocol::{Secret, StaterootReply};
use super::super::image::{Source, pull_failed};
use crate::model::ImageRef;

/// Reads the labels.
pub(super) async fn labels(
    image: &ImageRef,
    credentials: Option<&Secret>,
) -> Result<StaterootReply, OsError> {
    let open = Source::new(image, credentials)?.open(image).await?;
    let (_, manifest) = open.proxy.fetch_manifest(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let config = open.proxy.fetch_config_raw(&open.image).await.map_err(|e| pull_failed(image, e))?;
    let document: Document = serde_json::from_slice(&config)
        .map_err(|e| pull_failed(image, format!("the config of the image can't be read: {e}")))?;
    let labels = document.config.and_then(|config| config.labels).unwrap_or_default();
    Ok(StaterootReply::Labels { labels, download: manifest.layers().iter().map(Descriptor::size).sum() })
}

/// Part of an image's config that is read: a seed from scratch has no more than that.
#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    config: Option<Config>,
}

#[derive(Deserialize)]
struct Config {
    #[serde(rename = "Labels", default)]
    labels: Option<BTreeMap<String, String>>,
}
