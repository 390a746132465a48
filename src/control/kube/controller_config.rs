//! The `ControllerConfig`, as much of it as concerns trust: the second and last object that is watched.
//!
//! A cluster without its kind has none, which is no error: it is requested again ever less often, at once when the
//! API server was away or a controller gives the Node another target.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use kube::core::{ObjectList, WatchEvent};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use tokio::sync::watch::Receiver;
use tokio::task::AbortHandle;
use tracing::{info, warn};

use super::client::ApiClient;
use super::error::KubeError;
use super::node::{PREFIX, broken};
use super::node_watch::NodeSnapshot;
use super::optional_kind::OptionalKind;
use super::reflector::{Reflector, Requests, WatchHandler, WatchStep};
use super::server_ca::ServerCa;
use crate::control::trust::TrustSender;
use crate::model::backoff::Backoff;
use crate::model::certificates::{Registries, ServerCaRotation};
use crate::model::{ClusterTrust, Contents, ProxySettings, message};

/// Path of the kind in the API.
const PATH: &str = "/apis/machineconfiguration.openshift.io/v1/controllerconfigs";

/// Its name.
const NAME: &str = "machine-config-controller";

/// Its name for people.
const OBJECT: &str = "ControllerConfig machine-config-controller";

/// The task that follows it. Dropped, it ends.
#[derive(Debug)]
pub(super) struct ControllerConfigWatcher {
    task: AbortHandle,
}

impl ControllerConfigWatcher {
    /// Begins, once the Node is seen. Within a tokio runtime.
    pub(super) fn start(
        api: ApiClient,
        node: &str,
        snapshot: Receiver<NodeSnapshot>,
        sender: TrustSender,
    ) -> Self {
        let kind = OptionalKind::new(snapshot, &format!("{node}/trust"));
        let authority = ServerCa::new(api.clone(), Arc::new(sender), node);
        let mut handler = ControllerConfigHandler { authority, kind };
        // Spread otherwise than the Node's: the two do not come at once.
        let backoff = Backoff::for_requests(&format!("{node}/trust"));
        let task = tokio::spawn(async move {
            handler.kind.until_up().await;
            Reflector { api, handler, backoff }.run().await;
        });
        Self { task: task.abort_handle() }
    }
}

impl Drop for ControllerConfigWatcher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct ControllerConfigHandler {
    /// Receiver of the trust: with the API server's new CA, while it is rotated.
    authority: ServerCa,
    kind: OptionalKind,
}

impl ControllerConfigHandler {
    fn log_error(&mut self, error: &KubeError) {
        if self.kind.is_news(error) {
            warn!(
                MESSAGE_ID = message::TRUST_FAILED,
                MCA_FAULT = error.reason(),
                "Certificates and the merged pull secret are not watched: {error}. Next: {}",
                error.next()
            );
        }
    }
}

impl WatchHandler for ControllerConfigHandler {
    type Object = Object;

    fn requests(&self) -> Requests {
        Requests { path: PATH, name: NAME.to_owned(), metadata: false }
    }

    fn object(&self) -> &str {
        OBJECT
    }

    fn on_list(&mut self, list: ObjectList<Object>) -> String {
        self.kind.listed();
        self.authority.put(list.items.into_iter().next().map(ClusterTrust::from));
        list.metadata.resource_version.unwrap_or_default()
    }

    fn on_event(&mut self, event: WatchEvent<Object>) -> WatchStep {
        match event {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                let version = object.metadata.resource_version.clone().unwrap_or_default();
                self.authority.put(Some(object.into()));
                WatchStep::At(version)
            }
            WatchEvent::Deleted(object) => {
                // The trust is not revoked because its object is missing.
                info!(
                    MESSAGE_ID = message::TRUST_SOURCE_DELETED,
                    "{OBJECT} was deleted; its files stay on the host"
                );
                self.authority.put(None);
                WatchStep::At(object.metadata.resource_version.unwrap_or_default())
            }
            WatchEvent::Bookmark(bookmark) => WatchStep::At(bookmark.metadata.resource_version),
            WatchEvent::Error(status) => {
                broken(OBJECT, *status).map_or(WatchStep::Expired, WatchStep::Failed)
            }
        }
    }

    async fn on_error(&mut self, error: KubeError, wait: Duration) {
        self.authority.observed();
        self.log_error(&error);
        self.kind.wait_after(&error, wait).await;
    }
}

/// The object without the fields for others: of its hundreds of fields seven.
#[derive(Clone, Deserialize)]
pub(super) struct Object {
    metadata: Metadata,
    spec: Option<Spec>,
}

#[derive(Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    #[serde(rename = "kubeAPIServerServingCAData")]
    kubelet_ca: Option<Base64>,
    #[serde(rename = "cloudProviderCAData")]
    cloud_ca: Option<Base64>,
    image_registry_bundle_data: Option<Vec<Bundle>>,
    image_registry_bundle_user_data: Option<Vec<Bundle>>,
    internal_registry_pull_secret: Option<Base64>,
    proxy: Option<Proxy>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Proxy {
    #[serde(rename = "httpProxy")]
    http: Option<String>,
    #[serde(rename = "httpsProxy")]
    https: Option<String>,
    #[serde(rename = "noProxy")]
    exceptions: Option<String>,
}

#[derive(Clone, Deserialize)]
struct Bundle {
    file: String,
    data: Option<Base64>,
}

/// Bytes as JSON carries them.
#[derive(Clone)]
struct Base64(Vec<u8>);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Base64;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64")
            }
            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Base64, E> {
                // The decoder's words quote a byte: they are left out.
                let decoded = base64::engine::general_purpose::STANDARD.decode(text);
                decoded.map(Base64).map_err(|_| E::custom("no base64"))
            }
        }
        deserializer.deserialize_str(Text).map_err(D::Error::custom)
    }
}

fn contents(bytes: Option<Base64>) -> Option<Contents> {
    bytes.filter(|bytes| !bytes.0.trim_ascii().is_empty()).map(|bytes| Contents::new(bytes.0))
}

impl From<Object> for ClusterTrust {
    fn from(object: Object) -> Self {
        let annotations = object.metadata.annotations.unwrap_or_default();
        let on =
            annotations.get(&format!("{PREFIX}service-ca-rotate")).is_some_and(|rotate| rotate == "true");
        let spec = object.spec.unwrap_or_default();
        let mut registries = Registries::default();
        let bundles = [spec.image_registry_bundle_data, spec.image_registry_bundle_user_data];
        for bundle in bundles.into_iter().flatten().flatten() {
            let data = bundle.data.map(|data| data.0).unwrap_or_default();
            registries.add(&bundle.file, Contents::new(data));
        }
        let Proxy { http, https, exceptions } = spec.proxy.unwrap_or_default();
        Self {
            version: object.metadata.resource_version.unwrap_or_default(),
            rotation: if on { ServerCaRotation::On } else { ServerCaRotation::Off },
            server_ca: None,
            kubelet_ca: contents(spec.kubelet_ca),
            cloud_ca: contents(spec.cloud_ca),
            registries,
            pull_secret: contents(spec.internal_registry_pull_secret),
            proxy: ProxySettings::new(http, https, exceptions),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(object: &str) -> ClusterTrust {
        serde_json::from_str::<Object>(object).unwrap().into()
    }

    fn text(contents: Option<&Contents>) -> Option<&str> {
        contents.map(|contents| std::str::from_utf8(contents.bytes()).unwrap())
    }

    #[test]
    fn reads_trust_fields() {
        let trust = read(
            r#"{"metadata":{"name":"machine-config-controller","resourceVersion":"7","annotations":
            {"machineconfiguration.openshift.io/service-ca-rotate":"true"},"managedFields":[{"a":1}]},
            "spec":{"kubeAPIServerServingCAData":"a3ViZWxldA==","cloudProviderCAData":null,"images":{"a":"b"},
            "imageRegistryBundleData":[{"file":"reg.test..5000","data":"b25l"},{"file":"a.test","data":"YQ=="}],
            "imageRegistryBundleUserData":[{"file":"reg.test..5000","data":"dHdv"},{"file":"../x","data":"eA=="}],
            "internalRegistryPullSecret":"e30=","proxy":{"httpsProxy":"http://u:geheim@p.test:3128",
            "noProxy":".a.test"}},"status":{"x":1}}"#,
        );
        assert_eq!((trust.version.as_str(), trust.rotation), ("7", ServerCaRotation::On));
        assert_eq!(text(trust.kubelet_ca.as_ref()), Some("kubelet"));
        assert_eq!(trust.cloud_ca, None);
        assert_eq!(text(trust.pull_secret.as_ref()), Some("{}"));
        let registries: Vec<(&str, &[u8])> =
            trust.registries.bundles.iter().map(|(name, data)| (name.as_str(), data.bytes())).collect();
        assert_eq!(registries, [("a.test", &b"a"[..]), ("reg.test:5000", b"two")]);
        assert_eq!(trust.registries.refused.len(), 1);
        assert!(!format!("{trust:?}").contains("kubelet\""), "{trust:?}");
        let proxy = trust.proxy.as_ref().unwrap();
        assert_eq!(proxy.for_https("b.test", 443), Some("http://u:geheim@p.test:3128"));
        assert_eq!(proxy.for_https("b.a.test", 443), None);
        assert!(!format!("{trust:?}").contains("geheim"), "{trust:?}");
    }

    #[test]
    fn absent_fields_are_none() {
        let trust =
            read(r#"{"metadata":{"resourceVersion":"1"},"spec":{"kubeAPIServerServingCAData":"Cg=="}}"#);
        assert_eq!((trust.kubelet_ca, trust.pull_secret), (None, None));
        assert_eq!(trust.rotation, ServerCaRotation::Off);
    }

    #[test]
    fn null_equals_absent_field() {
        let read_of = |object: &str| format!("{:?}", read(object));
        let empty = read_of(r#"{"metadata":{}}"#);
        for nulls in [
            r#"{"metadata":{"resourceVersion":null,"annotations":null},"spec":null,"status":null}"#,
            r#"{"metadata":{},"spec":{"imageRegistryBundleData":null,"internalRegistryPullSecret":null}}"#,
        ] {
            assert_eq!(read_of(nulls), empty, "{nulls}");
        }
    }

    #[test]
    fn error_quotes_nothing() {
        let secret = r#"{"metadata":{},"spec":{"internalRegistryPullSecret":"geheim!"}}"#;
        let error = serde_json::from_str::<Object>(secret).err().unwrap();
        let logged = KubeError::new(&kube::Error::SerdeError(error), OBJECT).to_string();
        assert!(logged.contains(OBJECT) && !logged.contains("geheim"), "{logged}");
    }
}
