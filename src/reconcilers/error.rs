//! Errors of the reconcilers.

use crate::host::HostError;
use crate::model::{FaultClass, ModelError};

/// A duty that is not done. It is tried again; nothing else waits for it.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A certificate can't be written, or a stale one not removed.
    #[error("the cluster's certificates are not all on this node")]
    Certificates(#[source] HostError),
    /// A bundle whose name is no registry's.
    #[error("a registry's bundle of ControllerConfig machine-config-controller is skipped")]
    Registry(#[source] ModelError),
    /// The API server's new CA is not in each kubeconfig, or the kubelet has not read it.
    #[error("the API server's new CA is not known to this node's kubelet")]
    ServerCa(#[source] HostError),
    /// A proxy that can't be used.
    #[error("spec.proxy of ControllerConfig machine-config-controller is skipped")]
    Proxy(#[source] ModelError),
    /// The merged pull secret can't be written, or not linked.
    #[error("the cluster's merged pull secret is not on this node")]
    PullSecret(#[source] HostError),
}

impl ReconcileError {
    /// Returns the class.
    pub fn class(&self) -> FaultClass {
        match self {
            Self::Certificates(error) | Self::PullSecret(error) | Self::ServerCa(error) => error.class(),
            Self::Registry(error) | Self::Proxy(error) => error.class(),
        }
    }

    /// Returns true if it may pass without a change in the cluster: when a person repairs the host.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Certificates(_) | Self::PullSecret(_) | Self::ServerCa(_) => true,
            Self::Registry(_) | Self::Proxy(_) => false,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Certificates(_) => "CertificatesNotWritten",
            Self::Registry(_) => "RegistryNameRefused",
            Self::Proxy(_) => "ProxyUnusable",
            Self::ServerCa(_) => "ServerCaNotRotated",
            Self::PullSecret(_) => "PullSecretNotWritten",
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Certificates(error) | Self::PullSecret(error) | Self::ServerCa(error) => error.next(),
            Self::Proxy(_) => "Correct proxy.config.openshift.io cluster.".to_owned(),
            Self::Registry(_) => {
                "Name the registry HOST or HOST..PORT in the ConfigMap that image.config.openshift.io \
                                  cluster names in additionalTrustedCA."
                    .to_owned()
            }
        }
    }
}
