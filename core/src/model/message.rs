//! The fixed ids of the journal's lines, for `journalctl MESSAGE_ID=...`.
//!
//! `dist/machine-config-agent.catalog` explains each; a test holds code and catalog together.

/// Logged when the agent started.
pub const STARTED: &str = "62f746b484e64ceb95bd447e7184d454";
/// Logged when an update entered a phase.
pub const PHASE: &str = "b61e6ba536824dd6b80469b84b2d451c";
/// Logged when a step of an update, a stateroot or a seed began.
pub const STEP_STARTED: &str = "ec7ac8ad1b2b406baae12c972399d29d";
/// Logged when a step ended well.
pub const STEP_DONE: &str = "dc36fc9022484d70aca4a1a9f5b19f71";
/// Logged when a step failed.
pub const STEP_FAILED: &str = "e500bddf37b043078f0f4c3c2052e52b";
/// Logged when an update, or the node, is at fault.
pub const FAULT: &str = "54a5054cda2e40039e0e14ca778e6176";
/// Logged when the effects of an update are undone.
pub const ROLLED_BACK: &str = "8c0a70a7a84547f9953a5154281fa6f5";
/// Logged when the host differs from its config.
pub const DRIFT: &str = "0db317d94c8e4fa3969a73bf4c83cf3b";
/// Logged when the host is as its config again.
pub const DRIFT_GONE: &str = "939ae232588e4bceb71ed78a1dc02e27";
/// Logged when drift at a path that is to be repaired is being put right.
pub const REPAIR: &str = "6d1f3b0c5a8e4b7d9f2ac41e7053b896";
/// Logged when the reboot was requested.
pub const REBOOT: &str = "5e571eaa66c144e7885990d2e844c762";
/// Logged when a shutdown inhibitor delays the reboot.
pub const REBOOT_BLOCKED: &str = "076b8c24afa742329639cbaa1594c65e";
/// Logged when a reboot that was requested did not come, or was canceled.
pub const REBOOT_ABORTED: &str = "17b30ccabf774a8daefd4c4bf3e12a33";
/// Logged when the update's config is the committed one.
pub const COMMITTED: &str = "5df6f817b0994bcfa0ec6db25097c040";
/// Logged when a host that is as desired was taken over.
pub const ADOPTED: &str = "8c3f846cc6a942d383f84c485e5c4176";
/// Logged when another target is desired.
pub const TARGET: &str = "3af9f30c5a664477bda9d8c096d38ff5";
/// Logged when the settings were read again.
pub const RELOADED: &str = "fa833a7a160e46d987760ffe7956e3f3";
/// Logged when a first boot is complete, was left over or was given up.
pub const FIRST_BOOT: &str = "5d0f5b3c8e6a4b1f9c27d6a0e3f4b812";
/// Logged when the state of an earlier installation was dropped.
pub const EARLIER_STATE_DROPPED: &str = "7a1e0c94d35b4f7f9b62c8ad04f1e6d3";
/// Logged when the agent stopped: by a signal, or for a start under another name of the node.
pub const STOPPED: &str = "baa2919c0ded47bbbec0c9226ed91f2e";
/// Logged when the previous deployment was given up.
pub const ROLLBACK_DROPPED: &str = "1f9a7b5e0c3d4e62a8b4d6f1c2e37590";
/// Logged when the health trial of a new deployment started.
pub const TRIAL_STARTED: &str = "4c2f4f6d5a3b4d0e9f0b7a6e1d8c2b35";
/// Logged when a new deployment passed its health trial.
pub const TRIAL_PASSED: &str = "9b7e0a1c6f2d4835b1c4e8d7f3a60592";
/// Logged when certificates or the pull secret of the cluster changed on the host.
pub const TRUST: &str = "0bd3f74055fa4d8cb1bef5103f7bedaf";
/// Logged when the agent ended with an error: at its start, or because its own state can't be read.
pub const FAILED: &str = "31336de13d595b219a998c581486c865";
/// Logged when the node came up in its old deployment, so the update is staged again.
pub const RESTAGED: &str = "b983d64b14205a04b64027a9b1a32c86";
/// Logged when another program has dropped the staged deployment before the reboot, so it is staged again.
pub const STAGED_DROPPED: &str = "5f6f0c9c2b6e4f0f8b7f3b1d7a0e94c3";
/// Logged when an update ended with its effects in place, and the rest is planned again.
pub const REPLANNED: &str = "88d7d24793b25d9991910e3c0ba93ee2";
/// Logged when the agent begins to wait: for the cluster, another program or a person.
pub const WAITING: &str = "859d677d8578523c94f496e53b95c52c";
/// Logged when the API server can no longer be reached.
pub const API_SERVER_LOST: &str = "bbc4217395a052d9a670e1654137e120";
/// Logged when the agent connected to the API server.
pub const API_SERVER_CONNECTED: &str = "94a7c7d5c69750de8e28105f2ecc529e";
/// Logged when a report, an event or a condition could not be sent.
pub const NOT_PUBLISHED: &str = "255c00c74b5e57be821bd9d1f8b7b83c";
/// Logged when a fetched MachineConfig could not be kept on this host.
pub const NOT_CACHED: &str = "0b00fb759867588696639c0e10719916";
/// Logged when settings.toml can't be used.
pub const SETTINGS_INVALID: &str = "4287fbfe2dfd51d68fa7738ffaf454f4";
/// Logged when the previous deployment can't be made the next boot's.
pub const FALL_BACK_FAILED: &str = "724db8bf320a58d6b84fbcef3aff211d";
/// Logged when a new deployment failed its health trial.
pub const TRIAL_FAILED: &str = "fbf8ff74b0845feb930e6f3b124e79c9";
/// Logged when certificates, the pull secret or the API server's new CA can't be followed.
pub const TRUST_FAILED: &str = "064cd4111ee35abbbbbda601e261742f";
/// Logged when certificates and the pull secret are as the cluster's again.
pub const TRUST_RESTORED: &str = "0e54ef1dc3065684bc99ce5b863bb98a";
/// Logged when the `ControllerConfig` was deleted; its content stays in force.
pub const TRUST_SOURCE_DELETED: &str = "9b7da52610c758b3823757866ec3760a";
/// Logged when users other than root may read registry credentials.
pub const CREDENTIALS_READABLE: &str = "252c027cad475776ae8cafb9388686d6";
/// Logged when the cluster rotates the API server's CA.
pub const CA_ROTATION: &str = "0de5543e73cd5c7a8dc9d3e0e067b0fe";
/// Logged when the state of machine-config-daemon was imported.
pub const IMPORTED: &str = "76e766858a3857279dba6cc5a5470985";
/// Logged when the Node gets the annotations of its provisioning.
pub const PROVISIONED: &str = "ee282fac1c6a56efb0c47b6b4d32b7e6";
/// Logged when a start continues with an update of an earlier one.
pub const RESUMED: &str = "c1d7a0f2b85c4f0e9a3670d2d7a5be14";
/// Logged when a roll-back leaves a path, since it is out of reach.
pub const NOT_RESTORED: &str = "f0a84f1c3e4b4b7c9d15a6c2b7e93d08";
/// Logged when a directory that left the config stays, since something is in it.
pub const DIRECTORY_STAYS: &str = "3d0c6b52a1e94f7f8a5be46c07d9f213";

/// Logged when the download of an image ahead of its update starts.
pub const PREFETCH_STARTED: &str = "5b0a3c7d9e214f6d8f7a4c1be06d2a91";
/// Logged when an image is on the node ahead of its update.
pub const PREFETCHED: &str = "d7c6e1f0a94b4c5f9a3d82e75b18c604";
/// Logged when an image can't be downloaded ahead of its update.
pub const PREFETCH_FAILED: &str = "8f2d5a6b1c3e47d09b6e0a4f7c9d3e15";

/// Logged when the reboot into another stateroot was requested.
pub const STATEROOT_REBOOT: &str = "87731ce3356c4ff1f9d4dcc2eb5a68ec";
/// Logged when the health trial of a stateroot that was activated started.
pub const STATEROOT_TRIAL: &str = "f50a067488e3682db1e0f52036680a75";
/// Logged when a stateroot that was activated passed its health trial.
pub const STATEROOT_PASSED: &str = "794176f46da24d180dbbe871710ad16f";
/// Logged when a stateroot that was activated failed its health trial, or was left.
pub const STATEROOT_FAULT: &str = "38095aaa7512148815408bd20b8eceda";
/// Logged when a stage of an image-based upgrade is completed, or a seed is begun or pushed.
pub const STAGE: &str = "c7eb6f5b14e94a2b8e3ceab69e849573";
/// Logged when a stage of an image-based upgrade or a seed failed, or waits.
pub const STAGE_FAILED: &str = "79c668d263c549e1b113d7b6d6436599";
/// Logged when a program before or after a stage ran.
pub const HOOK_RAN: &str = "b02d564fadba4313bd01880fa493de77";
/// Logged when a program before or after a stage failed.
pub const HOOK_FAILED: &str = "cd02c959bed74f709475030cf2a4d47e";

/// Logged when pinned images are on the node, or no longer kept.
pub const PINNED: &str = "49c8bc3b12d8474aa9426ebe6108bcc4";
/// Logged when pinned images can't be kept on the node.
pub const PINS_FAILED: &str = "02b12e69023740e1829163562176bfec";

/// Every id with its name, for the catalog's test.
pub const ALL: [(&str, &str); 59] = [
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
    ("FIRST_BOOT", FIRST_BOOT),
    ("EARLIER_STATE_DROPPED", EARLIER_STATE_DROPPED),
    ("TARGET", TARGET),
    ("RELOADED", RELOADED),
    ("STOPPED", STOPPED),
    ("ROLLBACK_DROPPED", ROLLBACK_DROPPED),
    ("TRIAL_STARTED", TRIAL_STARTED),
    ("TRIAL_PASSED", TRIAL_PASSED),
    ("TRUST", TRUST),
    ("FAILED", FAILED),
    ("RESTAGED", RESTAGED),
    ("STAGED_DROPPED", STAGED_DROPPED),
    ("REPLANNED", REPLANNED),
    ("WAITING", WAITING),
    ("API_SERVER_LOST", API_SERVER_LOST),
    ("API_SERVER_CONNECTED", API_SERVER_CONNECTED),
    ("NOT_PUBLISHED", NOT_PUBLISHED),
    ("NOT_CACHED", NOT_CACHED),
    ("SETTINGS_INVALID", SETTINGS_INVALID),
    ("FALL_BACK_FAILED", FALL_BACK_FAILED),
    ("TRIAL_FAILED", TRIAL_FAILED),
    ("TRUST_FAILED", TRUST_FAILED),
    ("TRUST_RESTORED", TRUST_RESTORED),
    ("TRUST_SOURCE_DELETED", TRUST_SOURCE_DELETED),
    ("CREDENTIALS_READABLE", CREDENTIALS_READABLE),
    ("CA_ROTATION", CA_ROTATION),
    ("IMPORTED", IMPORTED),
    ("PROVISIONED", PROVISIONED),
    ("RESUMED", RESUMED),
    ("NOT_RESTORED", NOT_RESTORED),
    ("DIRECTORY_STAYS", DIRECTORY_STAYS),
    ("PREFETCH_STARTED", PREFETCH_STARTED),
    ("PREFETCHED", PREFETCHED),
    ("PREFETCH_FAILED", PREFETCH_FAILED),
    ("STATEROOT_REBOOT", STATEROOT_REBOOT),
    ("STATEROOT_TRIAL", STATEROOT_TRIAL),
    ("STATEROOT_PASSED", STATEROOT_PASSED),
    ("STATEROOT_FAULT", STATEROOT_FAULT),
    ("STAGE", STAGE),
    ("STAGE_FAILED", STAGE_FAILED),
    ("HOOK_RAN", HOOK_RAN),
    ("HOOK_FAILED", HOOK_FAILED),
    ("PINNED", PINNED),
    ("PINS_FAILED", PINS_FAILED),
];
