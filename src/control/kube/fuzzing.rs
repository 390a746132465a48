//! The parsers of what comes from the cluster and of its credentials, as targets of `fuzz/`.

use std::path::Path;

use super::identity::{common_name, selected};
use super::node::NodeView;
use super::pem;
use crate::model::annotations;

/// Reads a kubelet's kubeconfig. No text has anything of it but names.
pub(crate) fn kubeconfig(bytes: &[u8]) -> Vec<String> {
    let Ok(text) = std::str::from_utf8(bytes) else { return Vec::new() };
    selected(text, Path::new("/etc/kubeconfig")).err().map(|error| error.to_string()).into_iter().collect()
}

/// Reads a kubelet's certificate.
pub(crate) fn certificate(bytes: &[u8]) -> Vec<String> {
    let _ = common_name(bytes);
    match pem::certificates(bytes, "client.pem") {
        Ok(ders) => {
            let _ = ders.iter().filter_map(|der| common_name(der)).count();
            Vec::new()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Reads a Node, and the target in its annotations.
pub(crate) fn node(bytes: &[u8]) -> Vec<String> {
    match NodeView::parse(bytes, "Node a") {
        Ok(view) => {
            let _ = (view.is_control_plane(), view.is_older(&view));
            annotations::target(&view.annotations).err().map(|error| error.to_string()).into_iter().collect()
        }
        Err(error) => vec![error.to_string()],
    }
}
