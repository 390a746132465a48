//! The fixed ids of the journal's lines, for `journalctl MESSAGE_ID=...`.
//!
//! `dist/machine-config-agent.catalog` explains each; a test holds code and catalog together.

/// Logged when the agent started.
pub const STARTED: &str = "62f746b484e64ceb95bd447e7184d454";
/// Logged when an update entered a phase.
pub const PHASE: &str = "b61e6ba536824dd6b80469b84b2d451c";
/// Logged when a step began.
pub const STEP_STARTED: &str = "ec7ac8ad1b2b406baae12c972399d29d";
/// Logged when a step ended well.
pub const STEP_DONE: &str = "dc36fc9022484d70aca4a1a9f5b19f71";
/// Logged when a step failed.
pub const STEP_FAILED: &str = "e500bddf37b043078f0f4c3c2052e52b";
/// Logged when an update, or the node, is at fault.
pub const FAULT: &str = "54a5054cda2e40039e0e14ca778e6176";
/// Logged when what an update had done is undone.
pub const ROLLED_BACK: &str = "8c0a70a7a84547f9953a5154281fa6f5";
/// Logged when the host is not as its config says.
pub const DRIFT: &str = "0db317d94c8e4fa3969a73bf4c83cf3b";
/// Logged when the host is as its config says again.
pub const DRIFT_GONE: &str = "939ae232588e4bceb71ed78a1dc02e27";
/// Logged when drift at a path that is to be repaired is being put right.
pub const REPAIR: &str = "6d1f3b0c5a8e4b7d9f2ac41e7053b896";
/// Logged when the reboot was asked for.
pub const REBOOT: &str = "5e571eaa66c144e7885990d2e844c762";
/// Logged when a reboot waits for somebody who blocks the shutdown.
pub const REBOOT_BLOCKED: &str = "076b8c24afa742329639cbaa1594c65e";
/// Logged when a reboot that was asked for did not come, or was taken back.
pub const REBOOT_ABORTED: &str = "17b30ccabf774a8daefd4c4bf3e12a33";
/// Logged when the update's config is the committed one.
pub const COMMITTED: &str = "5df6f817b0994bcfa0ec6db25097c040";
/// Logged when a host that is as wanted was taken over.
pub const ADOPTED: &str = "8c3f846cc6a942d383f84c485e5c4176";
/// Logged when another target is wanted.
pub const TARGET: &str = "3af9f30c5a664477bda9d8c096d38ff5";
/// Logged when the settings were read again.
pub const RELOADED: &str = "fa833a7a160e46d987760ffe7956e3f3";
/// Logged when the agent stopped.
pub const STOPPED: &str = "baa2919c0ded47bbbec0c9226ed91f2e";
/// Logged when the deployment before the booted one was given up.
pub const ROLLBACK_DROPPED: &str = "1f9a7b5e0c3d4e62a8b4d6f1c2e37590";
/// Logged when a new deployment has to prove itself.
pub const TRIAL_STARTED: &str = "4c2f4f6d5a3b4d0e9f0b7a6e1d8c2b35";
/// Logged when it has, or has not.
pub const TRIAL_ENDED: &str = "9b7e0a1c6f2d4835b1c4e8d7f3a60592";
/// Logged when certificates or the pull secret of the cluster changed on the host.
pub const TRUST: &str = "0bd3f74055fa4d8cb1bef5103f7bedaf";

/// Every id with its name, for the catalog's test.
pub const ALL: [(&str, &str); 22] = [
    ("STARTED", STARTED),
    ("PHASE", PHASE),
    ("STEP_STARTED", STEP_STARTED),
    ("STEP_DONE", STEP_DONE),
    ("STEP_FAILED", STEP_FAILED),
    ("FAULT", FAULT),
    ("ROLLED_BACK", ROLLED_BACK),
    ("DRIFT", DRIFT),
    ("DRIFT_GONE", DRIFT_GONE),
    ("REPAIR", REPAIR),
    ("REBOOT", REBOOT),
    ("REBOOT_BLOCKED", REBOOT_BLOCKED),
    ("REBOOT_ABORTED", REBOOT_ABORTED),
    ("COMMITTED", COMMITTED),
    ("ADOPTED", ADOPTED),
    ("TARGET", TARGET),
    ("RELOADED", RELOADED),
    ("STOPPED", STOPPED),
    ("ROLLBACK_DROPPED", ROLLBACK_DROPPED),
    ("TRIAL_STARTED", TRIAL_STARTED),
    ("TRIAL_ENDED", TRIAL_ENDED),
    ("TRUST", TRUST),
];
