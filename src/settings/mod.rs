//! Environment of the process, of which this is the only reader, and its settings file.
//!
//! Command-line flags are `cli`'s; of settings in both, the flag wins.

pub mod file;

use std::path::PathBuf;
use std::time::Duration;

use crate::host::failpoint::FailPoints;
use crate::model::ProxySettings;

/// Variables of the environment.
#[derive(Debug, Clone)]
pub struct Environment {
    /// Standard error is connected to the journal (`JOURNAL_STREAM`, systemd.exec(5)).
    pub journal: bool,
    /// Socket of systemd for readiness and status (`NOTIFY_SOCKET`, `sd_notify(3)`).
    pub notify: Option<PathBuf>,
    /// Interval of systemd's watchdog (`WATCHDOG_USEC`, for the process of `WATCHDOG_PID`).
    pub watchdog: Option<Duration>,
    /// Fail points of a crash test (`MCA_FAIL_POINT`: `count`, `kill:K` or `kill:NAME`).
    pub fail_points: FailPoints,
    /// Standard output wants plain text (`NO_COLOR`, or `TERM=dumb`).
    pub plain: bool,
    /// Endpoint of the API server for a pod: host and port (`KUBERNETES_SERVICE_HOST`, `KUBERNETES_SERVICE_PORT`).
    pub kubernetes: Option<(String, String)>,
    /// Through which proxies others are reached (`HTTP_PROXY`, `HTTPS_PROXY`, `NO_PROXY`, or in lower case).
    pub proxy: ProxySettings,
    /// The node's name, as a DaemonSet hands it to its pod (`NODE_NAME`).
    pub node_name: Option<String>,
}

/// A variable that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value:?} is invalid: {rule}")]
pub struct EnvironmentError {
    name: &'static str,
    value: String,
    rule: &'static str,
}

impl Environment {
    /// Returns true if standard error is connected to the journal. A terminal inherits the variable from the service
    /// that started it, so the stream is compared.
    pub fn under_journal() -> bool {
        variable("JOURNAL_STREAM").is_some_and(|stream| crate::host::is_stderr(&stream))
    }

    /// Reads the node's name alone.
    pub fn node_name() -> Option<String> {
        variable("NODE_NAME")
    }

    /// Reads the environment.
    pub fn read() -> Result<Self, EnvironmentError> {
        let fail_points = fail_points(variable("MCA_FAIL_POINT"), FailPoints::ARE_BUILT)?;
        Ok(Self {
            journal: Self::under_journal(),
            notify: variable("NOTIFY_SOCKET").map(PathBuf::from),
            watchdog: watchdog(),
            fail_points,
            plain: variable("NO_COLOR").is_some() || variable("TERM").is_some_and(|term| term == "dumb"),
            kubernetes: variable("KUBERNETES_SERVICE_HOST")
                .map(|host| (host, variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned()))),
            proxy: ProxySettings::from_variables(variable).map_err(|_| EnvironmentError {
                name: "HTTPS_PROXY",
                value: "(not shown)".to_owned(),
                rule: "HTTP_PROXY, HTTPS_PROXY and NO_PROXY must not hold control characters",
            })?,
            node_name: Self::node_name(),
        })
    }
}

/// Reads the fail points. A build without them returns an error: a crash test without a crash would pass.
fn fail_points(value: Option<String>, are_built: bool) -> Result<FailPoints, EnvironmentError> {
    let Some(value) = value else { return Ok(FailPoints::off()) };
    let rule = if are_built {
        "it is count, kill:NUMBER or kill:NAME; unset it outside of crash tests"
    } else {
        "this build has no fail points; unset it, or for crash tests build with `--features fail-points`"
    };
    let read = FailPoints::parse(&value).filter(|_| are_built);
    read.ok_or(EnvironmentError { name: "MCA_FAIL_POINT", value, rule })
}

/// Reads systemd's variables of the watchdog; those for another process, or without numbers, are ignored.
fn watchdog() -> Option<Duration> {
    let ours = variable("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
    let micros = variable("WATCHDOG_USEC").filter(|_| ours)?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|every| !every.is_zero())
}

#[expect(clippy::disallowed_methods, reason = "this is the one reader of the environment")]
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_refuses_fail_points() {
        let read = |value: &str, are_built| fail_points(Some(value.to_owned()), are_built);
        assert_eq!(read("count", true).unwrap().counted(), Some(0));
        for value in ["count", "kill:1", "kill:renamed", "x"] {
            let refused = read(value, false).unwrap_err().to_string();
            assert!(refused.contains("--features fail-points"), "{refused}");
        }
        assert!(read("x", true).is_err());
        assert_eq!(fail_points(None, false).unwrap().counted(), None);
        assert_eq!(FailPoints::ARE_BUILT, cfg!(debug_assertions) || cfg!(feature = "fail-points"));
    }
}
