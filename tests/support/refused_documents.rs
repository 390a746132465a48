//! Documents that every host refuses, for each kind of reason that the config alone causes. `tests/goldens/refused-documents.txt` has the
//! answer, which is the same in every entry of both programs.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

/// Kind of reason, and the Ignition config beside its version.
pub type Row = (&'static str, &'static str);

/// The rows.
pub const ROWS: &[Row] = &[
    ("ForceFile", r#""storage":{"files":[{"path":"/run/machine-config-daemon-force"}]}"#),
    ("OwnPath", r#""storage":{"files":[{"path":"/etc/machine-config-daemon/currentconfig"}]}"#),
    ("OwnPath", r#""storage":{"links":[{"path":"/etc/passwd.lock","target":"/a"}]}"#),
    ("OwnPath", r#""storage":{"directories":[{"path":"/etc/shadow-"}]}"#),
    ("OwnPath", r#""storage":{"directories":[{"path":"/etc/machine-config-agent","mode":511}]}"#),
    ("OwnPath", r#""storage":{"files":[{"path":"/etc/machine-config-agent/settings.toml/a"}]}"#),
    ("OwnPath", r#""storage":{"directories":[{"path":"/etc/machine-config-daemon/currentconfig/a"}]}"#),
    (
        "OwnPath",
        r#""storage":{"links":[{"path":"/etc/a","target":"/etc/machine-config-daemon/currentconfig","hard":true}]}"#,
    ),
    (
        "ChangedDatabase",
        r#""passwd":{"users":[{"name":"core","passwordHash":"$6$a$b"}]},"storage":{"links":[{"path":"/etc/a","target":"/etc/shadow","hard":true}]}"#,
    ),
    (
        "ChangedDatabase",
        r#""passwd":{"users":[{"name":"app"}]},"storage":{"files":[{"path":"/etc/passwd"}]}"#,
    ),
    (
        "ChangedDatabase",
        r#""passwd":{"groups":[{"name":"app"}]},"storage":{"files":[{"path":"/etc/subuid"}]}"#,
    ),
    ("DatabaseInPlace", r#""storage":{"directories":[{"path":"/etc/shadow"}]}"#),
    ("DatabaseInPlace", r#""storage":{"directories":[{"path":"/etc/passwd"}]}"#),
    ("DatabaseInPlace", r#""storage":{"links":[{"path":"/etc/group","target":"/srv/group"}]}"#),
    (
        "DatabaseInPlace",
        r#""storage":{"links":[{"path":"/etc/gshadow","target":"/srv/gshadow","overwrite":true}]}"#,
    ),
    ("DatabaseInPlace", r#""storage":{"links":[{"path":"/etc/shadow","target":"/etc/issue","hard":true}]}"#),
    ("DatabaseInPlace", r#""storage":{"files":[{"path":"/etc/passwd/a"}]}"#),
    ("DatabaseInPlace", r#""storage":{"directories":[{"path":"/etc/shadow/a/b"}]}"#),
    ("DatabaseInPlace", r#""storage":{"links":[{"path":"/etc/group/a","target":"/srv/a"}]}"#),
    ("SystemDirectory", r#""storage":{"files":[{"path":"/usr"}]}"#),
    ("SystemDirectory", r#""storage":{"files":[{"path":"/tmp"}]}"#),
    ("SystemDirectory", r#""storage":{"files":[{"path":"/bin"}]}"#),
    ("SystemDirectory", r#""storage":{"files":[{"path":"/usr/bin"}]}"#),
    ("SystemDirectory", r#""storage":{"files":[{"path":"/etc/systemd/system"}]}"#),
    ("SystemDirectory", r#""storage":{"links":[{"path":"/usr","target":"/srv/usr"}]}"#),
    ("SystemDirectory", r#""storage":{"links":[{"path":"/lib","target":"/srv/lib","overwrite":true}]}"#),
    ("SystemDirectory", r#""storage":{"directories":[{"path":"/sbin","overwrite":true}]}"#),
    ("SystemDirectory", r#""storage":{"links":[{"path":"/etc/a","target":"/usr/lib","hard":true}]}"#),
    ("SystemDirectory", r#""storage":{"directories":[{"path":"/usr","mode":511}]}"#),
    ("SystemDirectory", r#""storage":{"directories":[{"path":"/usr/bin","user":{"id":5}}]}"#),
    ("SystemDirectory", r#""storage":{"directories":[{"path":"/etc/systemd","mode":511}]}"#),
    ("ReservedHome", r#""passwd":{"users":[{"name":"app","homeDir":"/var/lib/machine-config-agent/app"}]}"#),
    (
        "ContradictedLink",
        r#""storage":{"links":[{"path":"/etc/systemd/system/x.service","target":"/dev/null"}]},
        "systemd":{"units":[{"name":"x.service","mask":false}]}"#,
    ),
    (
        "ContradictedLink",
        r#""storage":{"links":[{"path":"/etc/systemd/system/x.service","target":"/dev/null"}]},
        "systemd":{"units":[{"name":"x.service","enabled":true}]}"#,
    ),
    (
        "ContradictedLink",
        r#""storage":{"links":[{"path":"/etc/systemd/system/a.target.wants/x.service","target":"/usr/lib/systemd/system/x.service"}]},
        "systemd":{"units":[{"name":"x.service","enabled":false}]}"#,
    ),
    (
        "ContradictedLink",
        r#""storage":{"links":[{"path":"/etc/systemd/system/y.service","target":"/usr/lib/systemd/system/x.service"}]},
        "systemd":{"units":[{"name":"x.service","enabled":false}]}"#,
    ),
    (
        "ContradictedGroup",
        r#""passwd":{"groups":[{"name":"ops","shouldExist":false}],"users":[{"name":"app","groups":["ops"]}]}"#,
    ),
    (
        "ContradictedGroup",
        r#""passwd":{"groups":[{"name":"ops","shouldExist":false}],"users":[{"name":"app","primaryGroup":"ops"}]}"#,
    ),
    (
        "ContradictedGroup",
        r#""passwd":{"groups":[{"name":"ops","shouldExist":false}]},
        "storage":{"files":[{"path":"/etc/a","group":{"name":"ops"}}]}"#,
    ),
    (
        "ContradictedUser",
        r#""passwd":{"users":[{"name":"app","shouldExist":false}]},"storage":{"files":[{"path":"/etc/a","user":{"name":"app"}}]}"#,
    ),
    (
        "ContradictedUser",
        r#""passwd":{"users":[{"name":"app","shouldExist":false}]},"storage":{"links":[{"path":"/etc/a","target":"/b","user":{"name":"app"}}]}"#,
    ),
    (
        "Settings",
        r#""storage":{"files":[{"path":"/etc/machine-config-agent/settings.toml","contents":{"source":"data:,nonsense"}}]}"#,
    ),
    (
        "Settings",
        r#""storage":{"files":[{"path":"/etc/machine-config-agent/settings.toml","contents":{"source":"data:,keep-rollback%20%3D%20%22soon%22"}}]}"#,
    ),
    (
        "KeysInPlace",
        r#""passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-rsa a"]}]},
        "storage":{"files":[{"path":"/home/core/.ssh/authorized_keys.d/ignition"}]}"#,
    ),
    (
        "KeysInPlace",
        r#""passwd":{"users":[{"name":"app","homeDir":"/srv/app","sshAuthorizedKeys":["ssh-rsa a"]}]},
        "storage":{"links":[{"path":"/srv/app/.ssh","target":"/srv/keys"}]}"#,
    ),
    (
        "KeysInPlace",
        r#""passwd":{"users":[{"name":"app","sshAuthorizedKeys":["ssh-rsa a"]}]},
        "storage":{"links":[{"path":"/etc/a","target":"/home/app/.ssh/authorized_keys.d/ignition","hard":true}]}"#,
    ),
    (
        "TemplateWithoutInstance",
        r#""systemd":{"units":[{"name":"x@.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=a.target\n"}]}"#,
    ),
    ("SystemHome", r#""passwd":{"users":[{"name":"app","homeDir":"/"}]}"#),
    ("SystemHome", r#""passwd":{"users":[{"name":"app","homeDir":"/etc"}]}"#),
    (
        "SystemHome",
        r#""passwd":{"users":[{"name":"app","homeDir":"/usr/lib","noCreateHome":true,"sshAuthorizedKeys":["ssh-rsa a"]}]}"#,
    ),
    (
        "HomeThroughEntry",
        r#""passwd":{"users":[{"name":"app","homeDir":"/srv/a/app"}]},"storage":{"files":[{"path":"/srv/a"}]}"#,
    ),
    (
        "HomeThroughEntry",
        r#""passwd":{"users":[{"name":"app","homeDir":"/srv/a"}]},"storage":{"links":[{"path":"/srv/a","target":"/srv/b"}]}"#,
    ),
    ("HomeThroughEntry", r#""passwd":{"users":[{"name":"app"}]},"storage":{"files":[{"path":"/home/app"}]}"#),
    ("UnfitHome", r#""passwd":{"users":[{"name":"app","homeDir":"/srv/../opt/app"}]}"#),
    ("UnfitHome", r#""passwd":{"users":[{"name":"app","homeDir":"/proc/app"}]}"#),
    ("UnfitHome", r#""passwd":{"users":[{"name":"app","homeDir":"/etc/passwd"}]}"#),
    ("UnfitHome", r#""passwd":{"users":[{"name":"app","homeDir":"/etc/group/app"}]}"#),
    ("Root", r#""passwd":{"users":[{"name":"root","shouldExist":false}]}"#),
    ("Root", r#""passwd":{"users":[{"name":"root","uid":5}]}"#),
    ("Root", r#""passwd":{"users":[{"name":"root","homeDir":"/home/root"}]}"#),
    ("Root", r#""passwd":{"users":[{"name":"root","primaryGroup":"wheel"}]}"#),
    ("Root", r#""passwd":{"users":[{"name":"toor","uid":0}]}"#),
    ("Root", r#""passwd":{"users":[{"name":"app","homeDir":"/root"}]}"#),
    ("Root", r#""passwd":{"groups":[{"name":"root","shouldExist":false}]}"#),
    ("Root", r#""passwd":{"groups":[{"name":"root","gid":5}]}"#),
    ("Root", r#""passwd":{"groups":[{"name":"superusers","gid":0}]}"#),
    (
        "SharedHome",
        r#""passwd":{"users":[{"name":"app","homeDir":"/srv/a"},{"name":"bpp","homeDir":"/srv/a"}]}"#,
    ),
    (
        "SharedHome",
        r#""passwd":{"users":[{"name":"app","homeDir":"/srv/a"},{"name":"bpp","homeDir":"/srv/a/b"}]}"#,
    ),
    ("SharedHome", r#""passwd":{"users":[{"name":"app","homeDir":"/home/bpp"},{"name":"bpp"}]}"#),
    (
        "OpenDirectory",
        r#""storage":{"directories":[{"path":"/srv/a","mode":511,"user":{"name":"ops"},"group":{"name":"ops"}}],
        "files":[{"path":"/srv/a/b","user":{"name":"ops"},"group":{"name":"ops"}}]}"#,
    ),
    (
        "OpenDirectory",
        r#""storage":{"directories":[{"path":"/srv/a","mode":511}],"files":[{"path":"/srv/a/b"}]}"#,
    ),
    ("OpenDirectory", r#""storage":{"directories":[{"path":"/srv/a","mode":509},{"path":"/srv/a/b"}]}"#),
    (
        "OpenDirectory",
        r#""storage":{"directories":[{"path":"/srv/a","mode":511}],"links":[{"path":"/srv/a/b","target":"/c"}]}"#,
    ),
    (
        "OpenDirectory",
        r#""passwd":{"users":[{"name":"app","homeDir":"/srv/app","sshAuthorizedKeys":["ssh-rsa a"]}]},
        "storage":{"directories":[{"path":"/srv/app","mode":511}]}"#,
    ),
    (
        "OpenDirectory",
        r#""storage":{"directories":[{"path":"/etc/systemd/system/a.target.wants","mode":511}]},
        "systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=a.target\n"}]}"#,
    ),
    (
        "ForeignDirectory",
        r#""storage":{"directories":[{"path":"/srv/a","user":{"id":7}},{"path":"/srv/a/b","user":{"id":8}}],"files":[{"path":"/srv/a/b/f"}]}"#,
    ),
    (
        "ForeignDirectory",
        r#""storage":{"directories":[{"path":"/opt/e","user":{"id":4242}}]},
        "passwd":{"users":[{"name":"app","homeDir":"/opt/e/app","sshAuthorizedKeys":["ssh-rsa a"]}]}"#,
    ),
    (
        "ForeignDirectory",
        r#""storage":{"directories":[{"path":"/etc/systemd/system/x.service.d","user":{"id":7}}]},
        "systemd":{"units":[{"name":"x.service","dropins":[{"name":"a.conf","contents":"[Unit]\n"}]}]}"#,
    ),
    (
        "ForeignDirectory",
        r#""storage":{"directories":[{"path":"/tmp/a","user":{"id":7}}],"files":[{"path":"/tmp/a/b"}]}"#,
    ),
    (
        "ForeignDirectory",
        r#""storage":{"directories":[{"path":"/var/tmp/a","user":{"id":7}}],"links":[{"path":"/var/tmp/a/b","target":"/c"}]}"#,
    ),
    (
        "EnabledLink",
        r#""storage":{"links":[{"path":"/etc/systemd/system/b.target.wants/x.service","target":"../x.service"}]},
        "systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=a.target\n"}]}"#,
    ),
    (
        "InvalidInstall",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=y.socket\n"}]}"#,
    ),
    (
        "InvalidInstall",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n",
        "dropins":[{"name":"a.conf","contents":"[Install]\nWantedBy=../a\n"}]}]}"#,
    ),
    (
        "InvalidInstall",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlso=../a\n"}]}"#,
    ),
    (
        "LinkInPlace",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=y.service\n"},
        {"name":"y.service","contents":"[Service]\nExecStart=/bin/a\n"}]}"#,
    ),
    (
        "LinkInPlace",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=n.service\n"},
        {"name":"y.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=n.service\n"}]}"#,
    ),
    (
        "LinkInPlace",
        r#""storage":{"files":[{"path":"/etc/systemd/system/a.target.wants"}]},
        "systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=a.target\n"}]}"#,
    ),
    (
        "LinkInPlace",
        r#""storage":{"links":[{"path":"/etc/systemd/system/n.service","target":"/opt/n.service"}]},
        "systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=n.service\n"}]}"#,
    ),
    (
        "LinkInPlace",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=y.service\n"},
        {"name":"y.service","mask":true}]}"#,
    ),
    (
        "ContradictedUnit",
        r#""systemd":{"units":[{"name":"x.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nAlias=y.service\n"},
        {"name":"y.service","enabled":false}]}"#,
    ),
    (
        "ContradictedUnit",
        r#""systemd":{"units":[{"name":"x@.service","enabled":true,"contents":"[Service]\nExecStart=/bin/a\n[Install]\nWantedBy=a.target\nDefaultInstance=i\n"},
        {"name":"x@i.service","enabled":false}]}"#,
    ),
];

/// Documents that are wrong beside their spec, and the words of the refusal, which ends with 4 in both programs.
pub const HEADS: &[(&str, &str)] = &[
    (
        r#"{"apiVersion":"machineconfiguration.openshift.io/v1","metadata":{"name":"50-a"},"spec":{}}"#,
        "kind: it is missing; set `kind: MachineConfig` and `apiVersion: machineconfiguration.openshift.io/v1`",
    ),
    (r#"{"kind":"","metadata":{"name":"50-a"},"spec":{}}"#, "kind: it is missing; set `kind: MachineConfig`"),
    (
        r#"{"kind":"List","apiVersion":"v9","items":[{"kind":"MachineConfig","metadata":{"name":"50-a"},"spec":{}}]}"#,
        r#"apiVersion: its apiVersion is "v9"; a List has apiVersion v1"#,
    ),
    (
        r#"{"kind":"MachineConfigList","apiVersion":"machineconfiguration.openshift.io/v9","items":[{"metadata":{"name":"50-a"},"spec":{}}]}"#,
        "a MachineConfigList has apiVersion machineconfiguration.openshift.io/v1",
    ),
    (
        r#"{"kind":"List","items":[{"kind":"MachineConfig","metadata":{"name":"50-a"},"spec":{}},{"kind":"MachineConfig","metadata":{"name":"50-a"},"spec":{}}]}"#,
        "MachineConfig 50-a",
    ),
    (r#"{"kind":"MachineConfig","metadata":{"name":"50-a","labels":"x"},"spec":{}}"#, "metadata.labels"),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","labels":{"a":5}},"spec":{}}"#,
        "metadata.labels.a",
    ),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","labels":{"a":null}},"spec":{}}"#,
        "metadata.labels.a",
    ),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","annotations":[]},"spec":{}}"#,
        "metadata.annotations",
    ),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","annotations":{"a":true}},"spec":{}}"#,
        "metadata.annotations.a",
    ),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","generation":"x"},"spec":{}}"#,
        "metadata.generation",
    ),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","finalizers":"x"},"spec":{}}"#,
        "metadata.finalizers",
    ),
    (r#"{"kind":"MachineConfig","metadata":{"name":"50-a","namespace":5},"spec":{}}"#, "metadata.namespace"),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","ownerReferences":5},"spec":{}}"#,
        "metadata.ownerReferences",
    ),
    (
        r#"{"kind":"MachineConfig","metadata":{"name":"50-a","creationTimestamp":5},"spec":{}}"#,
        "metadata.creationTimestamp",
    ),
    (r#"{"kind":"List","items":null}"#, "a.json can't be read"),
    (r#"{"kind":"List","items":{}}"#, "items"),
    (
        r#"{"kind":"List","items":[{"kind":"MachineConfig","metadata":{"name":"50-a"},"spec":{}},null]}"#,
        "it is not a mapping of fields to values; correct it, or remove it",
    ),
    (
        r#"{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfigList","items":[{"metadata":{"name":"50-a"},"spec":{}},5]}"#,
        "it is not a mapping of fields to values; correct it, or remove it",
    ),
    (r#"{"variant":"openshift","version":"4.14.0","metadata":{"name":"50-a"}}"#, "run `butane FILE`"),
    (r#"{"variant":"fcos","version":"1.5.0"}"#, "put its output below spec.config of one"),
];

/// An Ignition config alone: verbs of a host take it for a config, and what reads objects of a cluster says which kind it wants.
pub const LONE_IGNITION: &str = r#"{"ignition":{"version":"3.4.0"}}"#;
pub const LONE_IGNITION_WORDS: &str =
    "it is an Ignition config without a kind, so it is not read; put it below spec.config of a MachineConfig";

/// A cluster's report is no part of a config, in every entry.
pub const WITH_STATUS: [&str; 2] = [
    r#"{"kind":"MachineConfig","metadata":{"name":"50-a"},"spec":{},"status":{}}"#,
    r#"{"kind":"MachineConfig","metadata":{"name":"50-a"},"spec":{},"status":{"a":[1]}}"#,
];

/// A MachineConfig of a row, in JSON.
pub fn document(part: &str) -> String {
    format!(
        r#"{{"apiVersion":"machineconfiguration.openshift.io/v1","kind":"MachineConfig",
        "metadata":{{"name":"50-a","labels":{{"machineconfiguration.openshift.io/role":"worker"}}}},
        "spec":{{"config":{{"ignition":{{"version":"3.4.0"}},{part}}}}}}}"#
    )
}

/// The answers: of each row the kind, the field and the message, from the refusals of an entry.
pub fn lines(mut refused: impl FnMut(&Row) -> Vec<(String, String)>) -> String {
    let mut text = String::new();
    for row in ROWS {
        text += &format!("{}\n", row.0);
        let mut found = refused(row);
        found.sort();
        for (field, message) in found {
            text += &format!("    {field}: {message}\n");
        }
    }
    text
}
