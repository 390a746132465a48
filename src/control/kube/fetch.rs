//! MachineConfigs and the policy: fetched by name when they are needed, and kept for the time without an API server.

use std::time::Duration;

use serde::Deserialize;
use tokio::time::Instant;
use tracing::warn;

use super::{Cluster, ConfigAndPolicy, ControlError, KubeError, invalid};
use crate::model::document;
use crate::model::machineconfig::MachineConfig;
use crate::model::policy::DisruptionPolicy;
use crate::model::text::chain;
use crate::model::{ConfigName, message};

/// Longest delay of a MachineConfig after the Node's annotation that names it: they are two objects (W-20).
const GRACE: Duration = Duration::from_secs(60);

/// Time limit for the operator to merge a changed policy, as MCD's (MCD-094).
const POLICY_GRACE: Duration = Duration::from_secs(120);

/// Path of the policy.
pub(super) const POLICY_PATH: &str = "/apis/operator.openshift.io/v1/machineconfigurations/cluster";

/// Its name for people.
pub(super) const POLICY_OBJECT: &str = "MachineConfiguration cluster";

/// Factor of the waits for an overdue object: a person has to create it.
const OVERDUE: u32 = 3;

impl Cluster {
    /// Reads an object, or fails at once if the API server is away.
    async fn fetch(&self, path: &str, object: &str) -> Result<Vec<u8>, KubeError> {
        match self.away() {
            Some(away) => Err(away),
            None => self.api.get(path, object).await.map(String::into_bytes),
        }
    }

    /// Returns true if an object that is not there or not ready has been waited for long enough. Either way it is
    /// requested again soon: nothing else signals that it came.
    fn is_overdue(&mut self, object: &str, grace: Duration) -> bool {
        let now = Instant::now();
        let since = match &self.awaited {
            Some((awaited, since)) if awaited == object => *since,
            Some(_) | None => {
                self.awaited = Some((object.to_owned(), now));
                self.awaited_backoff.reset();
                now
            }
        };
        let overdue = now.duration_since(since) >= grace;
        let wait = self.awaited_backoff.next_wait();
        self.due = Some(now + if overdue { wait * OVERDUE } else { wait });
        overdue
    }

    /// Has another config's mount looked for again: nothing signals that it came.
    fn await_mount(&mut self, error: Option<&ControlError>) {
        match error {
            Some(ControlError::WaitingForObject { object, .. }) => {
                self.is_overdue(object, GRACE);
            }
            Some(_) | None => self.awaited = None,
        }
    }

    /// Takes the answer for a MachineConfig.
    fn config_text(
        &mut self,
        name: &ConfigName,
        answer: Result<Vec<u8>, KubeError>,
    ) -> Result<Vec<u8>, ControlError> {
        let document = format!("MachineConfig {name}");
        match answer {
            Ok(bytes) => {
                // The policy may still be waited for, since when it was.
                self.awaited.take_if(|(awaited, _)| *awaited == document);
                Ok(bytes)
            }
            Err(error) if error.is_not_found() => {
                if self.is_overdue(&document, GRACE) {
                    let instead = self.instead.clone();
                    return Err(ControlError::NotInCluster { config: name.clone(), instead });
                }
                let why = format!("it does not exist; waiting up to {} s{}", GRACE.as_secs(), self.instead);
                Err(ControlError::WaitingForObject { object: document, why })
            }
            Err(error) if error.is_away() => Ok(self.cache.config(name)?.ok_or(error)?),
            Err(error) => Err(error.into()),
        }
    }

    /// Returns the policy, and keeps it.
    pub(super) async fn fetch_policy(&mut self) -> Result<DisruptionPolicy, ControlError> {
        let answer = self.fetch(POLICY_PATH, POLICY_OBJECT).await;
        self.take_policy(answer)
    }

    fn take_policy(&mut self, answer: Result<Vec<u8>, KubeError>) -> Result<DisruptionPolicy, ControlError> {
        let document = POLICY_OBJECT;
        let bytes = match answer {
            Ok(bytes) => bytes,
            // Neither the object nor its kind has to be there.
            Err(error) if error.is_not_found() => Vec::new(),
            Err(error) if error.is_away() => self.cache.policy()?.ok_or(error)?,
            Err(error) => return Err(error.into()),
        };
        if bytes.is_empty() {
            self.cache.store_policy(&bytes)?;
            return Ok(DisruptionPolicy::defaults());
        }
        let Some(policy) = parse_policy(&bytes)? else {
            let object = document.to_owned();
            if self.is_overdue(document, POLICY_GRACE) {
                return Err(ControlError::PolicyNotReady { object });
            }
            let why = "the operator has not merged its last change yet".to_owned();
            return Err(ControlError::WaitingForObject { object, why });
        };
        self.awaited = None;
        self.cache.store_policy(&bytes)?;
        Ok(policy)
    }

    /// Returns a MachineConfig, and keeps it.
    pub(super) async fn fetch_config(&mut self, name: &ConfigName) -> Result<MachineConfig, ControlError> {
        if let Some(mounted) = &self.mounted {
            let config = mounted.config(name);
            self.await_mount(config.as_ref().err());
            return config;
        }
        let answer = self.fetch(&config_path(name), &format!("MachineConfig {name}")).await;
        let answer = self.or_own(name, answer).await;
        self.take_config(name, answer)
    }

    /// Returns a MachineConfig and the policy, requested at the same time. While one is waited for, each is requested
    /// only when the other one is there: a try costs one request.
    pub(super) async fn fetch_both(&mut self, name: &ConfigName) -> Result<ConfigAndPolicy, ControlError> {
        if self.awaited.is_some() || self.mounted.is_some() {
            let config = self.fetch_config(name).await?;
            return Ok((config, self.fetch_policy().await));
        }
        let (path, object) = (config_path(name), format!("MachineConfig {name}"));
        let (config, policy) =
            tokio::join!(self.fetch(&path, &object), self.fetch(POLICY_PATH, POLICY_OBJECT));
        let config = self.or_own(name, config).await;
        let config = self.take_config(name, config)?;
        Ok((config, self.take_policy(policy)))
    }

    fn take_config(
        &mut self,
        name: &ConfigName,
        answer: Result<Vec<u8>, KubeError>,
    ) -> Result<MachineConfig, ControlError> {
        let bytes = self.config_text(name, answer)?;
        let config = parse_config(name, &bytes)?;
        if let Err(error) = self.cache.store_config(name, &bytes) {
            // It is there to be used: a fetched object is not refused for want of a place to keep it.
            warn!(
                MESSAGE_ID = message::NOT_CACHED,
                MCA_FAULT = error.reason(),
                "MachineConfig {name} is not kept: {}",
                chain(&error)
            );
        }
        Ok(config)
    }
}

/// Reads a MachineConfig, which has to be the one that was requested.
pub(super) fn parse_config(name: &ConfigName, bytes: &[u8]) -> Result<MachineConfig, ControlError> {
    let document = format!("MachineConfig {name}");
    let config = MachineConfig::parse(bytes, &document).map_err(|source| invalid(&document, source))?;
    if config.name() != name {
        let found = config.name().clone();
        return Err(ControlError::Misnamed { document, config: name.clone(), found });
    }
    Ok(config)
}

/// Reads the policy; `None` while the operator has not merged its last change.
pub(super) fn parse_policy(bytes: &[u8]) -> Result<Option<DisruptionPolicy>, ControlError> {
    if !is_observed(bytes) {
        return Ok(None);
    }
    let policy = DisruptionPolicy::parse(bytes, POLICY_OBJECT);
    policy.map(Some).map_err(|source| invalid(POLICY_OBJECT, source))
}

/// Returns the path of a MachineConfig.
pub(super) fn config_path(name: &ConfigName) -> String {
    format!("/apis/machineconfiguration.openshift.io/v1/machineconfigs/{name}")
}

#[derive(Deserialize)]
struct Observed {
    metadata: Generation,
    #[serde(default)]
    status: Option<ObservedGeneration>,
}

#[derive(Deserialize)]
struct Generation {
    #[serde(default)]
    generation: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ObservedGeneration {
    #[serde(default)]
    observed_generation: Option<i64>,
}

/// Returns true if the operator has merged the policy's last change. Without a status by an operator
/// the spec counts.
fn is_observed(bytes: &[u8]) -> bool {
    let policy = document::one(bytes, POLICY_OBJECT, document::Kind::POLICY);
    let Ok(read) = policy.and_then(|policy| policy.read::<Observed>()) else { return true };
    let read = read.value;
    let observed = read.status.and_then(|status| status.observed_generation);
    observed.is_none_or(|observed| observed >= read.metadata.generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::kube::{DrainBy, Identity};
    use crate::host::Root;

    /// MCD-094, MCD-095: two minutes for the operator; then the fault in MCD's words, which is retried, and ends with
    /// the operator's answer.
    #[tokio::test(start_paused = true)]
    async fn unmerged_policy_is_reported_after_two_minutes() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::open(directory.path()).unwrap();
        let access = Identity::kubeconfig(&[directory.path().join("none")]).unwrap();
        let mut cluster = Cluster::start(access, "a", root, DrainBy::Controller).unwrap();
        let policy = |observed: u32| {
            format!(
                r#"{{"apiVersion":"operator.openshift.io/v1","kind":"MachineConfiguration","metadata":{{"name":"cluster",
                "generation":2}},"status":{{"observedGeneration":{observed}}}}}"#
            )
        };
        let mut seconds = 0;
        let late = loop {
            let error = cluster.take_policy(Ok(policy(1).into_bytes())).unwrap_err();
            assert!(cluster.due.is_some(), "nothing else tells that it came");
            let ControlError::WaitingForObject { why, .. } = &error else { break error };
            assert!(why.contains("the operator"), "{why}");
            tokio::time::advance(Duration::from_secs(1)).await;
            seconds += 1;
        };
        assert_eq!(seconds, 120);
        assert_eq!((late.reason(), late.class()), ("PolicyNotReady", crate::model::FaultClass::Retry));
        assert!(late.to_string().starts_with("NodeDisruptionPolicyStatus was not ready: "), "{late}");
        cluster.take_policy(Ok(policy(2).into_bytes())).unwrap();
        // Another change has two minutes of its own.
        let again = cluster.take_policy(Ok(policy(1).into_bytes())).unwrap_err();
        assert!(matches!(again, ControlError::WaitingForObject { .. }), "{again}");
    }

    /// MCD-094: the operator's status has to be of the object's last change.
    #[test]
    fn policy_is_observed_first() {
        assert!(is_observed(br#"{"metadata":{"generation":2},"status":{"observedGeneration":2}}"#));
        assert!(!is_observed(br#"{"metadata":{"generation":2},"status":{"observedGeneration":1}}"#));
        assert!(is_observed(br#"{"metadata":{"generation":2}}"#));
    }
}
