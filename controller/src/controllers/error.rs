//! Errors that end the process.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::interlock::{ForeignTarget, NAMESPACE, TAKE_OVER};

/// Error that ends the process.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The kubeconfig.
    #[error("{path}: {cause}; name a readable kubeconfig with --kubeconfig")]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// Cause.
        cause: String,
    },
    /// No way to the API server.
    #[error("the API server can't be reached: {0}; run in a pod, or name a kubeconfig with --kubeconfig")]
    Client(String),
    /// Something can't be read.
    #[error("{what} can't be read: {cause}; {next}")]
    Unread {
        /// The kinds.
        what: String,
        /// Why.
        cause: String,
        /// Next step.
        next: &'static str,
    },
    /// The address is in use, or not this machine's.
    #[error("can't listen on {address}: {source}; choose another one with --metrics-listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// No runtime, no signals.
    #[error("can't start: {0}")]
    Start(#[from] std::io::Error),
    /// The Machine Config Operator leads, by its Lease.
    #[error(
        "the Machine Config Operator is at work here: {holder} renews Lease {NAMESPACE}/{lease}, and both would write to the same pools; \
         stop it first (\"Hand the pools over\" in the documentation), or run one controller beside it with --beside-mco"
    )]
    OperatorAtWork {
        /// Its Lease.
        lease: &'static str,
        /// The holder.
        holder: String,
    },
    /// A pool's target was rendered by another program, and nobody said that it is to be taken over.
    #[error(
        "pool {} has the target {} of another program (version {}); stop that program, then take the pool over with `kubectl annotate \
         machineconfigpool {} {TAKE_OVER}=` (\"Hand the pools over\" in the documentation)",
        .0.pool, .0.config, .0.version, .0.pool
    )]
    ForeignTarget(ForeignTarget),
    /// Another process leads.
    #[error(
        "Lease {0} is lost: another replica leads, or the API server did not answer in time; start again"
    )]
    LeaseLost(String),
    /// This process may act no longer.
    #[error("Lease {lease} is lost: it was not renewed in time: {cause}; start again")]
    LeaseNotRenewed {
        /// Its name.
        lease: String,
        /// The last failure, with the next step.
        cause: String,
    },
    /// Unreachable: a controller has no end.
    #[error("a controller task exited unexpectedly; start again")]
    Ended,
}
