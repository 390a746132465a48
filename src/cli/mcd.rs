//! The command line of machine-config-daemon, for a binary that is installed under its name: MCD's DaemonSet and units run
//! with only the image replaced. Each word is translated to the agent's own, so that there is one verb of each kind.
//!
//! MCD's flags for its log and its release change nothing here, nor do the TLS settings of a listener that it has on
//! loopback only. A flag that would change the work, and has no equal here, is refused.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, CommandFactory as _, Parser, Subcommand};

/// The name that this command line goes with.
pub(super) const NAME: &str = "machine-config-daemon";

/// Access by which MCD writes its Node, as a path of the host: its service account may not.
const KUBELET_KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";

/// Mount point of the host's root in MCD's pods.
const ROOT_MOUNT: &str = "/rootfs";

#[derive(Debug, Parser)]
#[command(name = NAME, about = "machine-config-agent, by machine-config-daemon's command line")]
struct Words {
    #[command(flatten)]
    ignored: Ignored,
    #[command(subcommand)]
    verb: Verb,
}

/// Flags that mean nothing here: klog's, and those of other releases.
#[derive(Debug, clap::Args)]
struct Ignored {
    /// Ignored: the release
    #[arg(long, global = true)]
    payload_version: Option<String>,
    /// Ignored: the log has one level
    #[arg(short, long = "v", global = true)]
    verbosity: Option<String>,
    /// Ignored: the log goes to the journal or to standard error
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<String>,
    /// Ignored, as logtostderr
    #[arg(long, global = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    alsologtostderr: Option<String>,
    /// Ignored, as v
    #[arg(long, global = true)]
    vmodule: Option<String>,
    /// Ignored, as logtostderr
    #[arg(long, global = true)]
    stderrthreshold: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Start the daemon
    Start(Start),
    /// Complete the first boot from the encapsulated MachineConfig
    FirstbootCompleteMachineconfig(Firstboot),
    /// Print the version
    Version,
}

#[derive(Debug, clap::Args)]
struct Start {
    /// Kubeconfig (default: the pod's service account)
    #[arg(long)]
    kubeconfig: Option<String>,
    /// Name of this node (default: `NODE_NAME`)
    #[arg(long)]
    node_name: Option<String>,
    /// Where the host's root is mounted
    #[arg(long, default_value = ROOT_MOUNT)]
    root_mount: PathBuf,
    /// Where a hosted cluster's config is mounted
    #[arg(long)]
    desired_configmap: Option<String>,
    /// A MachineConfig to apply once
    #[arg(long)]
    once_from: Option<String>,
    /// Do not reboot after once-from
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    skip_reboot: Option<bool>,
    /// Address of the metrics
    #[arg(long)]
    metrics_url: Option<String>,
    /// Ignored: this agent does not probe the kubelet's healthz
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    kubelet_healthz_enabled: Option<String>,
    /// Ignored, as kubelet-healthz-enabled
    #[arg(long)]
    kubelet_healthz_endpoint: Option<String>,
    /// Ignored: the listener is on loopback, without TLS, as MCD's
    #[arg(long)]
    tls_cipher_suites: Option<String>,
    /// Ignored, as tls-cipher-suites
    #[arg(long)]
    tls_min_version: Option<String>,
}

#[derive(Debug, clap::Args)]
struct Firstboot {
    /// Where the host's root is mounted
    #[arg(long, default_value = ROOT_MOUNT)]
    root_mount: PathBuf,
    /// Only pin the names of network interfaces
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", action = ArgAction::Set)]
    persist_nics: Option<bool>,
    /// The MachineConfig's file
    #[arg(long)]
    machineconfig_file: Option<String>,
}

/// Meaning of MCD's command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// These words of the agent's own.
    Words(Vec<OsString>),
    /// A line of text.
    Text(String),
}

/// Returns true if a program's name selects this command line.
pub(super) fn is_program_name(program: Option<&OsString>) -> bool {
    program.and_then(|program| Path::new(program).file_name()).is_some_and(|name| name == NAME)
}

/// Translates MCD's words; `node` is the node's name in the environment, `has_root` is true if the directory exists.
pub(super) fn translate(
    words: impl IntoIterator<Item = OsString>,
    node: Option<&str>,
    has_root: impl Fn(&Path) -> bool,
) -> Result<Meaning, clap::Error> {
    let refused = |text: &str| Words::command().error(clap::error::ErrorKind::MissingRequiredArgument, text);
    let mut own: Vec<OsString> = vec!["machine-config-agent".into()];
    match Words::try_parse_from(words)?.verb {
        Verb::Version => {
            return Ok(Meaning::Text(format!(
                "MachineConfigDaemon {}-machine-config-agent",
                env!("CARGO_PKG_VERSION")
            )));
        }
        Verb::Start(Start { once_from: Some(from), skip_reboot, root_mount, .. }) => {
            own.extend(["apply".into(), "--yes".into(), "--to".into(), from.into()]);
            if skip_reboot == Some(true) {
                own.push("--no-reboot".into());
            }
            if has_root(&root_mount) {
                own.extend(["--root".into(), root_mount.into()]);
            }
        }
        Verb::Start(start) => {
            let named = start.node_name.or_else(|| node.map(str::to_owned)).filter(|name| !name.is_empty());
            let name =
                named.ok_or_else(|| refused("node-name is required: give --node-name or set NODE_NAME"))?;
            own.extend(["daemon".into(), "--node-name".into(), name.into()]);
            own.extend(["--kubelet-kubeconfig".into(), KUBELET_KUBECONFIG.into()]);
            let flags = [
                ("--kubeconfig", start.kubeconfig),
                ("--metrics-listen", start.metrics_url),
                ("--desired-configmap", start.desired_configmap),
            ];
            for (flag, value) in flags {
                if let Some(value) = value.filter(|value| !value.is_empty()) {
                    own.extend([flag.into(), value.into()]);
                }
            }
            own.extend(enters(start.root_mount, has_root));
        }
        Verb::FirstbootCompleteMachineconfig(firstboot) => {
            own.push("firstboot".into());
            if let Some(file) = firstboot.machineconfig_file {
                own.extend(["--machineconfig-file".into(), file.into()]);
            }
            if firstboot.persist_nics == Some(true) {
                own.push("--persist-nics".into());
            }
            own.extend(enters(firstboot.root_mount, has_root));
        }
    }
    Ok(Meaning::Words(own))
}

/// Returns the flag that enters the host: a unit that runs on the host itself has no such directory.
fn enters(root_mount: PathBuf, has_root: impl Fn(&Path) -> bool) -> Vec<OsString> {
    if root_mount == Path::new("/") || (root_mount == Path::new(ROOT_MOUNT) && !has_root(&root_mount)) {
        return Vec::new();
    }
    vec!["--root-mount".into(), root_mount.into()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meant(words: &str, node: Option<&str>, in_pod: bool) -> Result<String, String> {
        let words = std::iter::once(NAME).chain(words.split(' ')).map(OsString::from);
        match translate(words, node, |_| in_pod) {
            Ok(Meaning::Words(words)) => {
                let words: Vec<&str> = words.iter().skip(1).map(|word| word.to_str().unwrap()).collect();
                Ok(words.join(" "))
            }
            Ok(Meaning::Text(text)) => Ok(text),
            Err(error) => Err(error.to_string()),
        }
    }

    /// MCD-001, MCD-002, MCD-013: the arguments of MCD's DaemonSet; the flag wins over the variable; without both it is
    /// an error.
    #[test]
    fn start_of_daemonset_is_daemon() {
        let pod = "start --payload-version=4.20.1 --v=2 --tls-cipher-suites=TLS_AES_128_GCM_SHA256,B --tls-min-version=VersionTLS12";
        assert_eq!(
            meant(pod, Some("worker-0"), true).unwrap(),
            "daemon --node-name worker-0 --kubelet-kubeconfig /var/lib/kubelet/kubeconfig --root-mount /rootfs"
        );
        let named = "start --node-name worker-1 --metrics-url 127.0.0.1:9999 --kubelet-healthz-enabled=false";
        let own = "daemon --node-name worker-1 --kubelet-kubeconfig /var/lib/kubelet/kubeconfig --metrics-listen \
                   127.0.0.1:9999 --root-mount /rootfs";
        assert_eq!(meant(named, Some("worker-0"), true).unwrap(), own);
        for nameless in ["start", "start --node-name="] {
            assert!(meant(nameless, None, true).unwrap_err().contains("node-name is required"), "{nameless}");
        }
        let hosted = meant("start --desired-configmap=/c", Some("a"), true).unwrap();
        assert!(hosted.contains(" --desired-configmap /c --root-mount /rootfs"), "{hosted}");
    }

    #[test]
    fn first_boot_of_mcds_units_is_firstboot() {
        let verb = "firstboot-complete-machineconfig";
        assert_eq!(meant(verb, None, true).unwrap(), "firstboot --root-mount /rootfs");
        // By a unit of the host itself.
        assert_eq!(meant(verb, None, false).unwrap(), "firstboot");
        let pinned = format!(
            "{verb} --persist-nics --root-mount /host --machineconfig-file /etc/a.json --logtostderr=true"
        );
        let own = "firstboot --machineconfig-file /etc/a.json --persist-nics --root-mount /host";
        assert_eq!(meant(&pinned, None, true).unwrap(), own);
    }

    #[test]
    fn once_from_is_apply() {
        let own = "apply --yes --to /etc/a.yaml --no-reboot";
        assert_eq!(meant("start --once-from /etc/a.yaml --skip-reboot -v 4", None, false).unwrap(), own);
    }

    /// MCD-007.
    #[test]
    fn version_begins_as_mcds() {
        assert!(meant("version", None, false).unwrap().starts_with("MachineConfigDaemon "));
    }
}
