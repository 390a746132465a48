//! Inputs of a seed from its cluster: the version, and the credentials of the push. Both are read once, while the API server
//! still answers; nothing keeps the credentials.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::super::client::ApiClient;
use super::super::error::KubeError;
use crate::control::ControlError;
use crate::control::seed_generation::{NoInputs, SeedCluster, SeedInputs};
use crate::model::Contents;

const VERSION_PATH: &str = "/apis/config.openshift.io/v1/clusterversions/version";
const VERSION: &str = "ClusterVersion version";
const SECRET_PATH: &str = "/api/v1/namespaces/openshift-lifecycle-agent/secrets/seedgen";
const SECRET: &str = "Secret seedgen in openshift-lifecycle-agent";

/// Key of the credentials in the Secret.
const SEED_AUTH: &str = "seedAuth";

/// The cluster of this node.
#[derive(Debug)]
pub struct KubeSeedCluster(ApiClient);

#[derive(Deserialize, Default)]
#[serde(default)]
struct ClusterVersion {
    status: VersionStatus,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct VersionStatus {
    desired: Release,
    conditions: Vec<Condition>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Release {
    version: String,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    message: String,
}

impl KubeSeedCluster {
    /// Takes the client.
    pub(in crate::control::kube) fn new(api: &ApiClient) -> Self {
        Self(api.clone())
    }

    async fn read(&self, path: &str, object: &str, missing: &str) -> Result<String, NoInputs> {
        self.0.get(path, object).await.map_err(|error| {
            if error.is_not_found() {
                NoInputs::Missing(missing.to_owned())
            } else {
                NoInputs::Retry(ControlError::Kube(error))
            }
        })
    }
}

impl SeedCluster for KubeSeedCluster {
    async fn inputs(&self) -> Result<SeedInputs, NoInputs> {
        let missing = "Rejected: the cluster has no ClusterVersion; make the seed by `seed create --version`";
        let version = version(&self.read(VERSION_PATH, VERSION, missing).await?)?;
        let missing = "could not access secret seedgen in openshift-lifecycle-agent: it does not exist";
        let credentials = credentials(&self.read(SECRET_PATH, SECRET, missing).await?)?;
        Ok(SeedInputs { version, credentials })
    }
}

/// Returns the version of a cluster that is at rest.
fn version(json: &str) -> Result<String, NoInputs> {
    let ClusterVersion { status } = serde_json::from_str(json).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let cause = format!("the answer is not the expected object (line {line}, column {column})");
        NoInputs::Retry(ControlError::Kube(KubeError::Invalid { object: VERSION.to_owned(), cause }))
    })?;
    let moves = status.conditions.iter().find(|one| one.kind == "Progressing" && one.status == "True");
    match moves {
        Some(one) => Err(NoInputs::Waits(format!("the cluster version is changing: {}", one.message))),
        None if status.desired.version.is_empty() => {
            Err(NoInputs::Waits("the ClusterVersion has no version yet".to_owned()))
        }
        None => Ok(status.desired.version),
    }
}

/// Returns the credentials; an error quotes nothing of the Secret.
fn credentials(json: &str) -> Result<Contents, NoInputs> {
    #[derive(Deserialize)]
    struct Secret {
        #[serde(default)]
        data: std::collections::BTreeMap<String, String>,
    }
    let unusable = |why: &str| NoInputs::Missing(format!("{SECRET}: {why}"));
    let secret: Secret = serde_json::from_str(json).map_err(|_| unusable("it can't be read"))?;
    let missing = || NoInputs::Missing(format!("could not find {SEED_AUTH} in seedgen secret"));
    let encoded = secret.data.get(SEED_AUTH).ok_or_else(missing)?;
    let bytes = STANDARD.decode(encoded).map_err(|_| unusable("its data is not base64"))?;
    let is_object = serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(&bytes).is_ok();
    if is_object { Ok(Contents::new(bytes)) } else { Err(unusable("seedAuth is not JSON of credentials")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(error: &NoInputs) -> String {
        format!("{error:?}")
    }

    #[test]
    fn version_is_that_of_a_cluster_at_rest() {
        let of = |progressing: &str| {
            let condition =
                format!(r#"{{"type": "Progressing", "status": "{progressing}", "message": "Working"}}"#);
            format!(r#"{{"status": {{"desired": {{"version": "4.17.2"}}, "conditions": [{condition}]}}}}"#)
        };
        assert_eq!(version(&of("False")).unwrap(), "4.17.2");
        assert!(words(&version(&of("True")).unwrap_err()).contains("Working"));
        assert!(matches!(version("{}"), Err(NoInputs::Waits(_))));
        assert!(matches!(version("["), Err(NoInputs::Retry(_))));
    }

    /// LCA-020: the Secret's key is lifecycle-agent's; no error quotes what is in it.
    #[test]
    fn credentials_are_read_and_never_quoted() {
        let secret = |key: &str, value: &str| format!(r#"{{"data": {{"{key}": "{value}"}}}}"#);
        let good = STANDARD.encode(r#"{"auths": {}}"#);
        assert_eq!(credentials(&secret("seedAuth", &good)).unwrap().bytes(), br#"{"auths": {}}"#);
        let hunter = STANDARD.encode("hunter2");
        for bad in [
            secret("other", &good),
            secret("seedAuth", &hunter),
            secret("seedAuth", "hunter2!"),
            "hunter2".to_owned(),
        ] {
            let error = words(&credentials(&bad).unwrap_err());
            assert!(
                error.starts_with("Missing") && !error.contains("hunter") && !error.contains(&hunter),
                "{error}"
            );
        }
    }
}
