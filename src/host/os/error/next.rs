//! Next steps for a person, for each kind of error. Commands are complete: they name the image.

use crate::model::ImageRef;
use crate::model::image::Transport;

/// Placeholder for the command that inspects the image.
const INSPECT: &str = " (INSPECT)";
/// Name of the stateroot that the error is about.
const STATEROOT: &str = "STATEROOT";

/// Puts the image into a text; a text about no image of a registry goes without the command.
pub(super) fn about(text: &str, object: &str) -> String {
    let image = ImageRef::parse(object).ok().filter(|image| image.transport() == Transport::Registry);
    let command =
        image.map(|image| format!(" (skopeo inspect docker://{})", image.canonical())).unwrap_or_default();
    text.replace(INSPECT, &command).replace(STATEROOT, object)
}

pub(super) const NOT_BOOTED: &str =
    "Run the agent on the host that booted this sysroot (as root, in the host's mount namespace).";
pub(super) const BUSY: &str =
    "Wait for the other program, or end it (rpm-ostree status; ostree admin status); the agent retries.";
pub(super) const PULL_FAILED: &str = "Check that the node reaches the registry (INSPECT); the agent retries.";
pub(super) const UNAUTHORIZED: &str = "Check the credentials of the registry (/run/ostree/auth.json or /etc/ostree/auth.json), or the cluster's pull secret (INSPECT); the agent retries.";
pub(super) const PUSH_FAILED: &str = "Check that this host reaches the registry, and that --authfile names credentials that may push there; run the command again.";
pub(super) const SEED_UNFIT: &str = "Leave the path out (--exclude, or [seed] exclude in settings.toml), take a secret with \
    `seed create --include-secret`, or remove the path; then make the seed again. The host is unchanged.";
pub(super) const IMAGE_NOT_FOUND: &str = "Push the image, or set another image on the pool (INSPECT).";
pub(super) const DIGEST_MISMATCH: &str =
    "Push the image again, or set another image on the pool; nothing was staged.";
pub(super) const WRONG_STAGED: &str =
    "Find the program that stages deployments on this node (rpm-ostree status); the agent retries.";
pub(super) const CORRUPTED: &str =
    "Check the mirror, the proxy or the cache between (INSPECT); the agent retries.";
pub(super) const NOT_BOOTABLE: &str =
    "Build the image from a bootable base (its config needs the labels of an ostree or bootc image).";
pub(super) const KERNELS: &str =
    "Build the image with exactly one kernel: one directory below /usr/lib/modules with a vmlinuz.";
pub(super) const WRONG_ARCHITECTURE: &str =
    "Set an image of this machine's architecture on the pool, or a manifest list that has one.";
pub(super) const BOOT_FULL: &str = "Free space in /boot (df -h /boot; ostree admin status; ostree admin undeploy 1, or rpm-ostree cleanup -r, removes the previous deployment); the agent retries.";
pub(super) const CANNOT_LAYER: &str =
    "Install rpm-ostree in the OS image, or build kernel and extensions into the image.";
pub(super) const CANNOT_PREFETCH: &str =
    "Remove the annotation machine-config-agent.io/prefetch-image; the update downloads the image.";
pub(super) const LOCAL_PACKAGES: &str =
    "Revert the changes (rpm-ostree reset, then a reboot), or build them into the image.";
pub(super) const COMPOSEFS: &str =
    "Install this machine with bootc's ostree backend: composefs without libostree is not supported.";
pub(super) const BOOTC: &str = "Check its lines (journalctl -t machine-config-agent-bootc; journalctl -u machine-config-agent); the agent retries.";
pub(super) const WRONG_LAYERS: &str =
    "Correct spec.kernelType or spec.extensions in a MachineConfig of the pool.";
pub(super) const NO_PACKAGE: &str =
    "Check that the extensions image of the release has these packages; nothing is staged.";
pub(super) const RPM_OSTREE: &str =
    "Check the daemon's messages (journalctl -u rpm-ostreed; rpm-ostree status); the agent retries.";
pub(super) const DAEMON_LOST: &str =
    "Find out why it ended (systemctl status rpm-ostreed; journalctl -u rpm-ostreed); the agent retries.";
pub(super) const DAEMON_MASKED: &str =
    "Unmask it (systemctl unmask rpm-ostreed.service), or set another --os-backend; the agent retries.";
pub(super) const NO_REPOSITORIES: &str = "Remove the manually layered package (rpm-ostree status lists it; rpm-ostree uninstall with its name), or give the node a repository that has it (/etc/yum.repos.d); the agent retries.";
pub(super) const MISSING_TOOL: &str = "Install the package skopeo in the OS image, or on this machine.";
pub(super) const LOCKED: &str = "Drop it (rpm-ostree cleanup -p, or ostree admin undeploy 0): the agent stages it again without the lock.";
pub(super) const NOT_INSTALLED: &str = "Install machine-config-agent-ostree of the agent's own build beside it, or in /usr/libexec/machine-config-agent; the agent retries.";
pub(super) const LIBOSTREE: &str = "Check the host's deployments (ostree admin status; journalctl -b).";
pub(super) const WORKER: &str =
    "Check the agent's messages (journalctl -u machine-config-agent); the agent retries.";
pub(super) const NO_SPACE: &str =
    "Free space in /sysroot (df -h /sysroot; ostree admin cleanup); the agent retries.";
pub(super) const NO_COMMIT: &str =
    "Install bootc or a recent rpm-ostree in the OS image that runs, or build the image from an ostree base.";
pub(super) const DEPLOYMENT_GONE: &str =
    "See which deployments there are (ostree admin status), or change the target.";
pub(super) const SEED_DAMAGED: &str =
    "Make the seed image again, or name another one; no stateroot was made.";
pub(super) const STATEROOT_IN_USE: &str = "List the stateroots (machine-config-agent stateroot list); while it neither runs nor boots next, it can be removed (machine-config-agent stateroot remove STATEROOT).";
pub(super) const NO_STATEROOT: &str = "List the stateroots (machine-config-agent stateroot list).";
pub(super) const STATEROOT_BLOCKED: &str = "Fix the cause above, then repeat the command.";

#[cfg(test)]
mod tests {
    use super::*;

    /// A command of a next step is complete.
    #[test]
    fn next_step_names_object_and_its_image() {
        let text = about(STATEROOT_IN_USE, "rhcos_4.17");
        assert!(text.contains("(machine-config-agent stateroot remove rhcos_4.17)"), "{text}");
        let image = format!("registry.test/os@sha256:{}", "a".repeat(64));
        let text = about(PULL_FAILED, &image);
        assert!(text.contains(&format!("(skopeo inspect docker://{image})")), "{text}");
        let text = about(NO_REPOSITORIES, "rpm-ostree");
        assert!(!text.contains("NAME"), "{text}");
    }
}
