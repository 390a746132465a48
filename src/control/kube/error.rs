//! Errors between the agent and the API server.

use super::untrusted;
use crate::model::FaultClass;

/// A failed request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// The API server is unreachable or overloaded.
    #[error("the API server {server} {}: {}", way(cause), of_reader(cause))]
    Away {
        /// URL of the server.
        server: String,
        /// The observed cause.
        cause: String,
    },
    /// There is no such object, or no such kind.
    #[error("{object} is not in the cluster")]
    NotFound {
        /// The object.
        object: String,
    },
    /// The API server refused.
    #[error("the API server refuses the request for {object}: {status} {reason}: {message}")]
    Refused {
        /// The object.
        object: String,
        /// The HTTP status.
        status: u16,
        /// The API server's word for it.
        reason: String,
        /// The API server's text, at most 500 characters.
        message: String,
        /// Further details.
        details: Details,
    },
    /// An answer that can't be read.
    #[error("{object} can't be read: {cause}")]
    Invalid {
        /// The object.
        object: String,
        /// The cause.
        cause: String,
    },
    /// The agent's own access can't be used.
    #[error("{file} can't be used to reach the API server: {cause}")]
    Config {
        /// The file.
        file: String,
        /// The cause.
        cause: String,
    },
    /// The credentials are another node's.
    #[error("{file} is of node {found}, and the agent is to be node {given}")]
    OtherNode {
        /// The file.
        file: String,
        /// The node that it names.
        found: String,
        /// The name that the agent was given.
        given: String,
    },
    /// No kubeconfig is there yet: the kubelet of a new node writes it when the cluster has taken the node in.
    #[error("there is no kubeconfig: {cause}")]
    NoKubeconfig {
        /// The cause for each file.
        cause: String,
    },
}

/// Details of a refusal.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Details {
    /// Message of the cause `DisruptionBudget`, at most 500 characters.
    pub budget: Option<String>,
    /// Seconds after which the request may be repeated; 0 where none are given.
    pub retry_after: u32,
}

/// Returns a cause without the page that TLS's library names for those who program with it.
fn of_reader(cause: &str) -> &str {
    cause.split_once(": https://docs.rs/").map_or(cause, |(cause, _)| cause)
}

fn way(cause: &str) -> &'static str {
    if untrusted::is_certificate(cause) {
        "is not trusted"
    } else if is_answer(cause) {
        "is not available"
    } else if untrusted::is_other_protocol(cause) {
        "can't be used"
    } else {
        "can't be reached"
    }
}

/// The beginning of causes that the server itself names.
pub(super) const ANSWERS: &str = "it answers ";
/// The same, while it is left alone for as long as it asked.
pub(super) const IS_BUSY: &str = "it is busy; ";

/// Returns true if the server was reached.
fn is_answer(cause: &str) -> bool {
    cause.starts_with(ANSWERS) || cause.starts_with(IS_BUSY)
}

impl KubeError {
    /// Takes the error of a request: an error of the way to the API server, or an answer that can't be read.
    pub(super) fn new(error: &kube::Error, object: &str) -> Self {
        let object = object.to_owned();
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(error) = cause {
            if let Some(known) = error.downcast_ref::<Self>() {
                return known.clone();
            }
            cause = error.source();
        }
        let cause = if let kube::Error::SerdeError(error) = error {
            // Without the parser's quotation: the position is enough, and an object may hold secrets.
            format!(
                "the answer is not the expected object (line {}, column {})",
                error.line(),
                error.column()
            )
        } else if let kube::Error::FromUtf8(_) = error {
            "the answer is not text".to_owned()
        } else if let kube::Error::Api(_) = error {
            // kube takes an object of another kind for a status: refusals are made by `client`.
            "the answer is not the expected object".to_owned()
        } else {
            error.to_string()
        };
        Self::Invalid { object, cause }
    }

    /// Adds a remark of this node to the server's text of a refusal.
    pub(super) fn with_remark(mut self, remark: &str) -> Self {
        if let Self::Refused { message, .. } = &mut self {
            message.push_str("; ");
            message.push_str(remark);
        }
        self
    }

    /// Returns a function that makes an error of a request for an object.
    pub(super) fn about(object: &str) -> impl Fn(kube::Error) -> Self + use<'_> {
        |error| Self::new(&error, object)
    }

    /// Returns true if the object is not there.
    pub(super) fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Returns its identity, for callers that report each once: a server that is away is so in many ways,
    /// a file is wrong in one.
    pub(super) fn identity(&self) -> String {
        match self {
            Self::Config { .. } | Self::OtherNode { .. } | Self::NoKubeconfig { .. } => self.to_string(),
            Self::Away { .. } | Self::NotFound { .. } | Self::Refused { .. } | Self::Invalid { .. } => {
                self.reason().to_owned()
            }
        }
    }

    /// Returns true if this passes without a change of the object: requests to the API server wait.
    pub fn is_away(&self) -> bool {
        match self {
            Self::Away { .. } | Self::Config { .. } | Self::OtherNode { .. } | Self::NoKubeconfig { .. } => {
                true
            }
            Self::NotFound { .. } | Self::Refused { .. } | Self::Invalid { .. } => false,
        }
    }

    /// Names what an error of [`Self::is_away`] waits for, to go on after "waits for".
    pub fn awaited(&self) -> String {
        match self {
            Self::Away { server, cause } => {
                format!("the API server {server}, which {}: {}", way(cause), of_reader(cause))
            }
            Self::NoKubeconfig { cause } => format!("a kubeconfig: {cause}"),
            Self::Config { .. } | Self::OtherNode { .. } => format!("access to the API server: {self}"),
            Self::NotFound { .. } | Self::Refused { .. } | Self::Invalid { .. } => self.to_string(),
        }
    }

    /// Returns the class for the node.
    pub fn class(&self) -> FaultClass {
        match self {
            // An answer that can't be read is requested again, too: it may have been a proxy's.
            Self::Away { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::Invalid { .. }
            | Self::Config { .. }
            | Self::OtherNode { .. }
            | Self::NoKubeconfig { .. } => FaultClass::Retry,
        }
    }

    /// Returns a bounded word.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Away { .. } => "ApiServerUnreachable",
            Self::NotFound { .. } => "NotFound",
            Self::Refused { status: 401, .. } => "Unauthorized",
            Self::Refused { status: 403, .. } => "Forbidden",
            Self::Refused { .. } => "ApiServerRefused",
            Self::Invalid { .. } => "InvalidObject",
            Self::Config { .. } | Self::OtherNode { .. } | Self::NoKubeconfig { .. } => "CredentialsUnusable",
        }
    }

    /// Returns the next step.
    pub fn next(&self) -> String {
        match self {
            Self::Away { cause, .. } if is_answer(cause) => {
                "Check the API server and its etcd if this lasts (kubectl get --raw /readyz?verbose); the agent retries.".to_owned()
            }
            Self::Away { cause, .. } => untrusted::next(cause)
                .unwrap_or("Check that the node reaches the API server; the agent connects automatically.")
                .to_owned(),
            Self::NotFound { object } => format!("Create {object}, or change what names it."),
            Self::Refused { status: 401, .. } => {
                "Renew the node's certificate or token; the agent rereads it automatically.".to_owned()
            }
            Self::Refused { status: 403, .. } => {
                "Grant the agent's identity this permission (its manifests have it); the agent retries.".to_owned()
            }
            Self::Refused { object, .. } | Self::Invalid { object, .. } => {
                format!("Correct {object}; the agent retries.")
            }
            Self::Config { file, .. } => format!("Correct {file}; the agent rereads it automatically."),
            Self::OtherNode { file, found, .. } => format!(
                "Start the agent as node {found} (--node-name, or NODE_NAME), or correct {file}, which the agent rereads automatically."
            ),
            Self::NoKubeconfig { .. } => "On a new node, wait until the kubelet has written it; otherwise name the right file with \
                --kubeconfig. The agent looks again by itself."
                .to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::ControlError;

    /// A server whose certificate is not taken was reached: the clock or the CA is wrong, not the way.
    #[test]
    fn refused_certificate_is_no_silence() {
        let refused = rustls::Error::InvalidCertificate(rustls::CertificateError::UnknownIssuer);
        let cause = untrusted::of_tls(&refused);
        let error = KubeError::Away { server: "https://a:6443".to_owned(), cause };
        let text = error.to_string();
        assert!(text.starts_with("the API server https://a:6443 is not trusted: its certificate "), "{text}");
        assert!(error.next().contains("certificate-authority"), "{}", error.next());
        let cause = "peer closed connection without sending TLS close_notify: \
            https://docs.rs/rustls/latest/rustls/manual/_03_howto/index.html#unexpected-eof";
        let error = KubeError::Away { server: "s".to_owned(), cause: cause.to_owned() };
        assert!(error.to_string().ends_with("TLS close_notify"), "{error}");
        let cause = untrusted::NO_HTTP2.to_owned();
        let error = KubeError::Away { server: "s".to_owned(), cause };
        assert_eq!(error.to_string(), "the API server s can't be used: it does not speak HTTP/2");
        assert!(error.next().contains("ends TLS"), "{}", error.next());
        let error = KubeError::Away { server: "s".to_owned(), cause: "connection refused".to_owned() };
        assert!(error.to_string().contains("can't be reached") && !error.next().contains("clock"));
        assert_eq!(error.awaited(), "the API server s, which can't be reached: connection refused");
    }

    /// After "waits for" `status` writes a thing: no sentence, and no second "waiting for".
    #[test]
    fn awaited_is_named_once() {
        let (file, cause) = ("/etc/kubernetes/kubeconfig".to_owned(), "it does not exist".to_owned());
        let all = [
            KubeError::Away { server: "https://a:6443".to_owned(), cause: "connection refused".to_owned() },
            KubeError::NoKubeconfig { cause: cause.clone() },
            KubeError::Config { file: file.clone(), cause: cause.clone() },
            KubeError::OtherNode { file, found: "n2".to_owned(), given: "n1".to_owned() },
        ];
        let kube = all.into_iter().map(ControlError::Kube);
        let object =
            ControlError::WaitingForObject { object: "MachineConfig rendered-a".to_owned(), why: cause };
        for error in kube.chain([object]) {
            let text = error.awaited();
            assert!(error.is_away() && !text.contains("waiting") && !text.contains("waits"), "{text}");
            let begins = [
                "the API server https://a:6443, which ",
                "a kubeconfig: ",
                "access to the API server: ",
                "MachineConfig rendered-a: ",
            ];
            assert!(begins.iter().any(|begin| text.starts_with(begin)), "{text}");
        }
    }

    /// A server that answers was reached.
    #[test]
    fn server_that_is_busy_is_not_called_unreachable() {
        for cause in [
            "it answers 503 for Node a: etcd has no leader",
            "it is busy; Node a is requested in 9 s, as the server requested",
        ] {
            let error = KubeError::Away { server: "s".to_owned(), cause: cause.to_owned() };
            assert_eq!(error.to_string(), format!("the API server s is not available: {cause}"));
            assert!(error.next().starts_with("Check the API server"), "{}", error.next());
        }
    }
}
