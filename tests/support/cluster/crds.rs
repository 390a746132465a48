//! The CRDs of the cluster, read from the module cache; none is copied into the repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt as _};

use super::objects::{changes, object_api};
use super::server;

/// Which feature set the CRDs are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gates {
    Default,
    TechPreview,
}

impl Gates {
    const fn name(self) -> &'static str {
        match self {
            Self::Default => "Default",
            Self::TechPreview => "TechPreviewNoUpgrade",
        }
    }
}

/// The group's folder in the module, and the plural.
const WANTED: [(&str, &str); 10] = [
    ("machineconfiguration/v1", "machineconfigs"),
    ("machineconfiguration/v1", "machineconfigpools"),
    ("machineconfiguration/v1", "machineconfignodes"),
    ("machineconfiguration/v1", "controllerconfigs"),
    ("machineconfiguration/v1", "machineosconfigs"),
    ("machineconfiguration/v1", "machineosbuilds"),
    ("machineconfiguration/v1", "pinnedimagesets"),
    ("operator/v1", "machineconfigurations"),
    ("config/v1", "featuregates"),
    ("config/v1", "clusterversions"),
];

/// The file of one CRD: that of the feature set, of a stand-alone cluster where there are two kinds, or the only one.
fn file(module: &Path, folder: &str, plural: &str, gates: Gates) -> PathBuf {
    let dir = module.join(folder).join("zz_generated.crd-manifests");
    let names: Vec<String> =
        fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let gates = gates.name();
    let endings = [
        format!("_{plural}-SelfManagedHA-{gates}.crd.yaml"),
        format!("_{plural}-{gates}.crd.yaml"),
        format!("_{plural}-SelfManagedHA.crd.yaml"),
        format!("_{plural}.crd.yaml"),
    ];
    let found = endings.iter().find_map(|ending| names.iter().find(|name| name.ends_with(ending)));
    dir.join(found.unwrap_or_else(|| panic!("no CRD of {plural} in {}", dir.display())))
}

/// Creates the CRDs and waits until the server serves all of them.
pub async fn apply(client: &Client, gates: Gates) {
    let listed = fs::read_to_string(server::built("openshift-api")).unwrap();
    let module = Path::new(listed.trim());
    for (folder, plural) in WANTED {
        let body = fs::read(file(module, folder, plural, gates)).unwrap();
        let request = http::Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            .header("content-type", "application/yaml")
            .body(body)
            .unwrap();
        if let Err(error) = client.request_text(request).await {
            panic!("the CRD of {plural}: {error}");
        }
    }
    super::within("the CRDs are established", established(client)).await;
    super::within("the CRDs are served", served(client)).await;
}

/// A real server serves a CRD a moment after it is established, and has no event for that: it is asked, at most until
/// the limit.
async fn served(client: &Client) {
    for (_, plural) in WANTED {
        while let Err(error) = object_api(client, plural).list(&ListParams::default().limit(1)).await {
            let kube::Error::Api(status) = &error else { panic!("{plural}: {error}") };
            assert!([404, 429, 503, 504].contains(&status.code), "{plural}: {error}");
            tokio::task::yield_now().await;
        }
    }
}

async fn established(client: &Client) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut missing: Vec<&str> = WANTED.iter().map(|(_, plural)| *plural).collect();
    let mut changes = pin!(changes(&api, &ListParams::default()).await.unwrap());
    while let Some((crd, _)) = changes.next().await {
        let conditions =
            crd.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        if conditions.iter().any(|condition| condition.type_ == "Established" && condition.status == "True") {
            missing.retain(|plural| !crd.name_any().starts_with(&format!("{plural}.")));
        }
        if missing.is_empty() {
            return;
        }
    }
    panic!("the watch ended before these CRDs were established: {missing:?}");
}

/// The namespaces that a cluster has.
pub async fn namespaces(client: &Client) {
    let api: Api<Namespace> = Api::all(client.clone());
    for name in ["default", "openshift-machine-config-operator"] {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        match api.create(&PostParams::default(), &namespace).await {
            // A real server makes the first one itself.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            made => drop(made.unwrap()),
        }
    }
}
