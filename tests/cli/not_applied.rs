//! Fields that this host does not get: named by each verb, or refused before anything is touched.

use crate::test_host::{Node, Ran, config, ignition};
use serde_json::{Value, json};

const TEXT: [&str; 2] = ["--root", "root"];

fn listed(json: &str) -> Vec<String> {
    let document: Value = serde_json::from_str(json).unwrap();
    let entries = document["notApplied"].as_array().unwrap();
    entries.iter().map(|one| format!("{} {}", one["because"], one["field"]).replace('"', "")).collect()
}

/// Storage that only an installation makes is named by plan, verify and status, and no longer once it is there.
#[test]
fn storage_that_host_lacks_is_named_by_each_verb() {
    let node = Node::new();
    let storage = json!({
        "disks": [{"device": "/dev/vda", "partitions": [{"number": 1, "label": "data"}]}],
        "luks": [{"name": "data", "device": "/dev/disk/by-partlabel/data", "keyFile": {"source": "data:,k"}}],
        "filesystems": [{"device": "/dev/mapper/data", "path": "/var/lib/data", "format": "xfs"}],
        "files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}],
    });
    let sections = json!({"storage": storage, "kernelArguments": {"shouldExist": ["mitigations=off"]}});
    node.put("a.json", config("rendered-a", &ignition(sections)));
    let fields = [
        "installation kernelArguments",
        "installation storage.disks \\/dev/vda\\",
        "installation storage.filesystems \\/var/lib/data\\",
        "installation storage.luks \\data\\",
    ];
    let json = |words: &[&str]| {
        let ran = node.run(&[words, &TEXT, &["--output", "json"]].concat());
        assert_eq!(ran.code, if words[0] == "status" { 0 } else { ran.code }, "{}", ran.err);
        listed(&ran.out)
    };
    assert_eq!(json(&["plan", "--to", "a.json"]), fields);
    let plan = node.run(&[&["plan", "--to", "a.json"], &TEXT[..]].concat());
    assert!(plan.out.contains("Not applied\n  kernelArguments: "), "{}", plan.out);
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert_eq!(json(&["verify"]), fields);
    assert_eq!(json(&["verify", "--config", "a.json"]), fields);
    assert_eq!(json(&["status"]), fields);
    let verify = node.run(&[&["verify"], &TEXT[..]].concat());
    assert!(verify.out.contains("the host matches rendered-a\nNot applied\n"), "{}", verify.out);
    let status = node.run(&[&["status"], &TEXT[..]].concat());
    assert!(status.out.contains("  not applied  storage.luks \"data\": "), "{}", status.out);
    // The secret of the volume is in none of them.
    assert!(!(verify.out + &status.out + &plan.out).contains("data:,k"));

    node.put("root/dev/disk/by-partlabel/data", "");
    node.put("root/dev/mapper/data", "");
    node.put("root/proc/cmdline", "quiet mitigations=off\n");
    assert_eq!(json(&["verify"]), ["installation storage.filesystems \\/var/lib/data\\"]);
    // What the host was installed with is there, wherever it shows.
    node.put("root/etc/mcs-machine-config-content.json", node.read("a.json"));
    assert_eq!(json(&["verify"]), [""; 0]);
}

/// A file system of the config is named until one is mounted on its path; a bind mount is one.
#[test]
fn mount_ends_remark_of_file_system() {
    let can_mount =
        std::process::Command::new("unshare").args(["-m", "mount", "-t", "tmpfs", "x", "/mnt"]).output();
    if !can_mount.is_ok_and(|output| output.status.success()) {
        crate::ran::not_run("mount_ends_remark_of_file_system", "to mount (CAP_SYS_ADMIN)");
        return;
    }
    let node = Node::new();
    let list = json!([{"device": "/dev/disk/by-partlabel/data", "path": "/var/mnt/data", "format": "xfs"}]);
    node.put("a.json", config("rendered-a", &ignition(json!({"storage": {"filesystems": list}}))));
    assert_eq!(node.apply("a.json").code, 0);
    node.put("root/var/mnt/data/a", "");
    node.put("disk/b", "");
    let fields = |mount: &str, verb: &str| {
        let script =
            format!("set -e; {mount}; exec \"$0\" {verb} --root root --os-backend none --output json");
        let mut shell = std::process::Command::new("unshare");
        shell.args(["-m", "bash", "-c", &script, crate::test_host::BINARY]).current_dir(node.dir.path());
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{verb} after {mount}: {output:?}");
        listed(&String::from_utf8(output.stdout).unwrap())
    };
    let named = ["installation storage.filesystems \\/var/mnt/data\\"];
    for verb in ["plan --to a.json", "verify", "status"] {
        assert_eq!(fields("true", verb), named, "{verb}");
        // A mount above or below is not one on the path.
        assert_eq!(fields("mount --bind disk root/var/mnt", verb), named, "{verb}");
        // Nor is a directory of the root's own, as libostree binds /var.
        assert_eq!(fields("mount --bind disk root/var/mnt/data", verb), named, "{verb}");
        assert_eq!(fields("mount -t tmpfs x root/var/mnt/data", verb), [""; 0], "{verb}");
    }
}

/// A host without an OS backend gets no OS: such a config is refused by its fields, and nothing is touched.
#[test]
fn os_fields_are_refused_without_os_backend() {
    let node = Node::new();
    let image = format!("registry.test/os@sha256:{}", "a".repeat(64));
    let fields = [
        ("kernelArguments", json!(["nosmt"])),
        ("kernelType", json!("realtime")),
        ("extensions", json!(["usbguard"])),
        ("osImageURL", json!(image)),
        ("fips", json!(true)),
    ];
    for (field, value) in fields {
        let mut spec = ignition(json!({"storage": {"files": [{"path": "/etc/a"}]}}));
        spec[field] = value;
        node.put("b.json", config("rendered-b", &spec));
        let before = node.listing("root");
        let refused = node.apply("b.json");
        assert_eq!(refused.code, 3, "{field}: {}", refused.err);
        let named = format!("spec.{field}: this host has no OS backend");
        assert!((refused.out + &refused.err).contains(&named), "{field}: {named}");
        assert_eq!(node.listing("root"), before, "{field}");
        let plan = node.plan("b.json");
        assert!(plan.code == 3 && plan.out.contains(&named), "{field}: {}", plan.out);
    }
}

/// What is only compared, or was imported from machine-config-daemon, is named by each verb; a run to it changes nothing.
#[test]
fn os_fields_that_are_not_planned_are_named_without_os_backend() {
    let image = format!("registry.test/os@sha256:{}", "a".repeat(64));
    let mut spec = ignition(json!({"storage": {"files": [{"path": "/etc/a", "mode": 420}]}}));
    let sections = json!({"kernelArguments": ["nosmt"], "kernelType": "realtime", "extensions": ["usbguard"],
        "osImageURL": image, "fips": true});
    spec.as_object_mut().unwrap().extend(sections.as_object().unwrap().clone());
    let fields = [
        "host-lacks spec.extensions",
        "host-lacks spec.fips",
        "host-lacks spec.kernelArguments",
        "host-lacks spec.kernelType",
        "host-lacks spec.osImageURL",
    ];
    let node = Node::new();
    node.put("root/etc/a", "");
    node.put("a.json", config("rendered-a", &spec));
    let json = |words: &[&str]| {
        let ran = node.run(&[words, &TEXT, &["--os-backend", "none", "--output", "json"]].concat());
        assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.out, ran.err);
        listed(&ran.out)
    };
    // It is refused as a target, so `verify` does not say that the host matches.
    let words = ["verify", "--config", "a.json", "--os-backend", "none"];
    let ran = node.run(&[&words[..], &TEXT, &["--output", "json"]].concat());
    assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
    // What is refused is not named as not applied as well.
    assert!(listed(&ran.out).is_empty(), "{}", ran.out);
    let refused: Value = serde_json::from_str(&ran.out).unwrap();
    let refused = refused["irreconcilable"].as_array().unwrap();
    let refused: Vec<&str> = refused.iter().map(|one| one["field"].as_str().unwrap()).collect();
    assert_eq!(
        refused,
        ["spec.osImageURL", "spec.kernelArguments", "spec.kernelType", "spec.extensions", "spec.fips"]
    );
    let text = node.run(&[&words[..], &TEXT].concat()).out;
    assert!(
        text.contains("spec.kernelType: this host has no OS backend") && !text.contains("matches"),
        "{text}"
    );
    node.put("root/etc/machine-config-daemon/currentconfig", config("rendered-a", &spec));
    for words in [&["plan", "--to", "a.json"][..], &["verify"], &["status"]] {
        let mut named = json(words);
        named.sort_by_key(|line| line.split(' ').nth(1).map(str::to_owned));
        assert_eq!(named, fields, "{words:?}");
    }
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
    for words in [&["plan", "--to", "a.json"][..], &["verify"], &["status"]] {
        assert_eq!(json(words).len(), fields.len(), "{words:?}");
    }
}

/// A unit that the host lacks, or that has nothing to be enabled by, is named by each verb, and no longer when it has.
#[test]
fn unit_with_nothing_to_enable_is_named_by_each_verb() {
    let node = Node::new();
    let bare = "[Service]\nExecStart=/bin/true\n";
    node.put("root/usr/lib/systemd/system/os.service", bare);
    let units = json!([{"name": "crio.service", "enabled": true}, {"name": "nowhere.service", "enabled": true},
        {"name": "os.service", "enabled": true}, {"name": "own.service", "enabled": true, "contents": bare},
        {"name": "off.service", "enabled": false}]);
    node.put("a.json", config("rendered-a", &ignition(json!({"systemd": {"units": units}}))));
    let quiet =
        ["crio.service", "own.service"].map(|name| json!({"name": name, "actions": [{"type": "None"}]}));
    let policy = json!({"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {"nodeDisruptionPolicy": {"units": quiet}}});
    node.put("policy.json", policy.to_string());
    let fields =
        ["nowhere", "os", "own"].map(|name| format!("host-lacks systemd.units \\{name}.service\\ enabled"));
    let json = |words: &[&str]| listed(&node.run(&[words, &TEXT, &["--output", "json"]].concat()).out);
    assert_eq!(json(&["plan", "--to", "a.json"]), fields);
    assert_eq!(node.apply("a.json").code, 0);
    for words in [&["verify"][..], &["verify", "--config", "a.json"], &["status"]] {
        assert_eq!(json(words), fields, "{words:?}");
    }
    let section = format!("{bare}[Install]\nWantedBy=multi-user.target\n");
    node.put("root/usr/lib/systemd/system/os.service", &section);
    node.put("root/usr/lib/systemd/system/nowhere.service", &section);
    // From now on they are drift, not a secret.
    let verify = node.run(&[&["verify"], &TEXT[..]].concat());
    assert_eq!(verify.code, 1, "{}", verify.out);
    assert!(verify.out.contains("os.service") && verify.out.contains("nowhere.service"), "{}", verify.out);
    assert_eq!(json(&["verify"]), [fields[2].clone()]);
}

/// Homes that are no account's own are refused before anything is touched, with the field and the next step.
#[test]
fn home_of_system_and_shared_home_are_refused() {
    let node = Node::new();
    let key = json!(["ssh-ed25519 k"]);
    for (users, field, words) in [
        (
            json!([{"name": "one", "homeDir": "/srv/app", "sshAuthorizedKeys": key},
                {"name": "two", "homeDir": "/srv/app", "sshAuthorizedKeys": key}]),
            "\"two\" homeDir",
            "/srv/app is the home of one, too",
        ),
        (
            json!([{"name": "one", "homeDir": "/etc", "sshAuthorizedKeys": key}]),
            "\"one\" homeDir",
            "choose a separate directory",
        ),
        (json!([{"name": "one", "homeDir": "/"}]), "\"one\" homeDir", "set noCreateHome: true and no keys"),
        (json!([{"name": "one", "homeDir": "/home/core"}]), "\"one\" homeDir", "home of core on this host"),
        (
            json!([{"name": "root2", "homeDir": "/home/../usr"}]),
            "homeDir",
            "/home/../usr is another name of /usr; write that",
        ),
        (json!([{"name": "one", "homeDir": "/home//one"}]), "\"one\" homeDir", "another name of /home/one"),
        (
            json!([{"name": "one", "homeDir": "/proc/one", "noCreateHome": true}]),
            "\"one\" homeDir",
            "choose a directory such as /home/one",
        ),
        (
            json!([{"name": "one", "homeDir": "/var/lib/machine-config-agent/one", "noCreateHome": true}]),
            "\"one\" homeDir",
            "it belongs to the agent's own state",
        ),
    ] {
        node.put("b.json", config("rendered-b", &ignition(json!({"passwd": {"users": users}}))));
        let before = node.listing("root");
        for ran in [node.plan("b.json"), node.apply("b.json")] {
            let text = ran.out + &ran.err;
            assert!(ran.code == 3 && text.contains(field) && text.contains(words), "{field}: {text}");
        }
        assert_eq!(node.listing("root"), before, "{field}");
    }
}

/// Without the databases no account is known, and no update could put them back.
#[test]
fn databases_of_accounts_are_files() {
    let node = Node::new();
    for path in ["/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow"] {
        let entries = [
            json!({"directories": [{"path": path, "overwrite": true}]}),
            json!({"links": [{"path": path, "target": "/etc/motd", "overwrite": true}]}),
        ];
        for storage in entries {
            node.put("b.json", config("rendered-b", &ignition(json!({ "storage": storage }))));
            let before = node.listing("root");
            for ran in [node.plan("b.json"), node.apply("b.json")] {
                let text = ran.out + &ran.err;
                assert!(ran.code == 3 && text.contains("database of accounts"), "{path}: {text}");
            }
            assert_eq!(node.listing("root"), before, "{path}");
        }
    }
}

/// Entries of an account in the way of its keys are named by the plan, moved aside, and shown by `status` from then on.
#[test]
fn link_in_place_of_keys_is_named_and_moved_aside() {
    let node = Node::new();
    let users =
        |key: &str| ignition(json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": [key]}]}}));
    std::os::unix::fs::chown(node.path("root/home/core"), Some(1000), Some(1000)).unwrap();
    node.put("a.json", config("rendered-a", &users("ssh-ed25519 k1")));
    assert_eq!(node.apply("a.json").code, 0);
    std::fs::rename(node.path("root/home/core/.ssh"), node.path("root/home/core/.x")).unwrap();
    std::os::unix::fs::symlink(".x", node.path("root/home/core/.ssh")).unwrap();
    std::os::unix::fs::lchown(node.path("root/home/core/.ssh"), Some(1000), Some(1000)).unwrap();
    node.put("b.json", config("rendered-b", &users("ssh-ed25519 k2")));
    let plan = node.plan("b.json");
    let warning =
        "/home/core/.ssh is in the way of the keys file, and is moved aside to /home/core/.ssh.mca-foreign";
    assert!(plan.code == 0 && plan.out.contains(warning), "{}", plan.out);
    let applied = node.apply("b.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert_eq!(node.read("root/home/core/.ssh/authorized_keys.d/ignition"), "ssh-ed25519 k2\n");
    let status = node.run(&[&["status"], &TEXT[..], &["--output", "json"]].concat());
    let status: Value = serde_json::from_str(&status.out).unwrap();
    let moved = json!([{"path": "/home/core/.ssh", "aside": "/home/core/.ssh.mca-foreign"}]);
    assert_eq!(status["movedAside"], moved);
    let text = node.run(&[&["status"], &TEXT[..]].concat());
    assert!(text.out.contains("  moved    /home/core/.ssh was in the way of keys"), "{}", text.out);
}

/// What each rendered config has, and a host without an OS backend has no use for.
#[test]
fn extensions_image_is_named_without_os_backend() {
    let mut spec = ignition(json!({"storage": {"files": [{"path": "/etc/a", "mode": 420}]}}));
    spec["baseOSExtensionsContainerImage"] = json!(format!("registry.test/ext@sha256:{}", "a".repeat(64)));
    let node = Node::new();
    node.put("a.json", config("rendered-a", &spec));
    let json = |words: &[&str]| {
        let ran = node.run(&[words, &TEXT, &["--os-backend", "none", "--output", "json"]].concat());
        assert_eq!(ran.code, 0, "{words:?}: {}{}", ran.out, ran.err);
        listed(&ran.out)
    };
    let fields = ["host-lacks spec.baseOSExtensionsContainerImage"];
    assert_eq!(json(&["plan", "--to", "a.json"]), fields);
    assert_eq!(node.apply("a.json").code, 0);
    for words in [&["verify"][..], &["status"]] {
        assert_eq!(json(words), fields, "{words:?}");
    }
}

/// FIPS mode is refused where the kernel does not have it, on a host without an OS backend also where it says nothing.
#[test]
fn fips_is_refused_where_kernel_lacks_it() {
    for (kernel, code) in [(None, 3), (Some("0\n"), 3), (Some("1\n"), 0)] {
        let node = Node::new();
        if let Some(text) = kernel {
            node.put("root/proc/sys/crypto/fips_enabled", text);
        }
        let mut spec = ignition(json!({}));
        spec["fips"] = json!(true);
        node.put("a.json", config("rendered-a", &spec));
        let (planned, applied) = (node.plan("a.json"), node.apply("a.json"));
        assert_eq!((planned.code, applied.code), (code, code), "{kernel:?}: {}{}", planned.out, applied.err);
        let named = (planned.out.clone() + &planned.err).matches("spec.fips").count();
        assert_eq!(named, usize::from(code == 3), "{kernel:?}: {}", planned.out);
    }
}

/// Without an agent that runs, an account that appears is named by verify until `apply` of the same config sets its keys, as its plan
/// shows.
#[test]
fn account_that_appeared_is_named_until_it_is_applied() {
    let node = Node::new();
    let passwd = node.read("root/etc/passwd");
    let without: Vec<&str> = passwd.lines().filter(|line| !line.starts_with("core:")).collect();
    node.put("root/etc/passwd", without.join("\n") + "\n");
    let users = json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]});
    node.put("a.json", config("rendered-a", &ignition(json!({"passwd": users}))));
    assert_eq!(node.apply("a.json").code, 0);
    let verified = || listed(&node.run(&[&["verify"], &TEXT[..], &["--output", "json"]].concat()).out);
    let named = ["host-lacks passwd.users \\core\\"];
    assert_eq!(verified(), named);
    node.put("root/etc/passwd", passwd);
    std::fs::create_dir_all(node.path("root/home/core")).unwrap();
    assert_eq!(verified(), named, "it is there, and its keys are not");
    let plan = node.run(&[&["plan", "--to", "a.json"], &TEXT[..]].concat());
    assert!(plan.code == 0 && plan.out.contains("set-ssh-keys"), "{}{}", plan.out, plan.err);
    assert!(!plan.out.contains("Drift"), "{}", plan.out);
    assert_eq!(node.apply("a.json").code, 0);
    assert_eq!(verified(), [""; 0]);
    let keys = node.read("root/home/core/.ssh/authorized_keys.d/ignition");
    assert_eq!(keys, "ssh-ed25519 AAAA a\n");
}

/// An entry of `core` alone makes no account, and says so where there is none.
#[test]
fn core_without_attributes_is_named_where_host_lacks_it() {
    for user in
        [json!({"name": "core"}), json!({"name": "core", "shouldExist": true, "sshAuthorizedKeys": []})]
    {
        let node = Node::new();
        let spec = ignition(json!({"passwd": {"users": [user]}}));
        node.commit("rendered-a.json", &spec);
        let plan = |node: &Node| {
            let ran =
                node.run(&[&["plan", "--to", "rendered-a.json", "--output", "json"], &TEXT[..]].concat());
            listed(&ran.out)
        };
        assert_eq!(plan(&node), [""; 0]);
        let node = Node::new();
        node.put("root/etc/passwd", "root:x:0:0::/root:/bin/sh\n");
        node.put("root/etc/group", "root:x:0:\n");
        node.put("root/etc/shadow", "root:*:19000:0:99999:7:::\n");
        node.commit("rendered-a.json", &spec);
        assert_eq!(plan(&node), [r"host-lacks passwd.users \core\"]);
        let verified = node.run(&[&["verify"], &TEXT[..]].concat());
        assert!(verified.out.contains("an entry that sets nothing makes none"), "{}", verified.out);
    }
}

#[test]
fn account_with_home_dev_null_has_no_home() {
    let node = Node::new();
    let user = json!({"name": "svc", "system": true, "homeDir": "/dev/null", "shell": "/sbin/nologin"});
    node.commit("rendered-a.json", &ignition(json!({"passwd": {"users": [user.clone()]}})));
    assert!(node.read("root/etc/passwd").contains(":/dev/null:/sbin/nologin"));
    assert_eq!(node.run(&[&["verify"], &TEXT[..]].concat()).code, 0);
    node.commit("rendered-b.json", &ignition(json!({})));
    let mut with_keys = user;
    with_keys["sshAuthorizedKeys"] = json!(["ssh-ed25519 AAAA a"]);
    node.put("c.json", config("rendered-c", &ignition(json!({"passwd": {"users": [with_keys]}}))));
    let planned = node.plan("c.json");
    assert!(planned.code == 3 && planned.out.contains("/dev/null"), "{}", planned.out);
}

/// Sections, and the fields in them that decide nothing.
fn without_effect() -> Vec<(Value, Vec<String>)> {
    let user = json!({"name": "bob", "shouldExist": false, "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"], "passwordHash": "$6$a$b",
        "uid": 1500, "gecos": "Bob", "homeDir": "/home/bob", "noCreateHome": true, "primaryGroup": "core", "groups": ["core"],
        "noUserGroup": true, "noLogInit": true, "shell": "/bin/sh", "system": true});
    let of_user = [
        "gecos",
        "groups",
        "homeDir",
        "noCreateHome",
        "noLogInit",
        "noUserGroup",
        "passwordHash",
        "primaryGroup",
        "shell",
        "sshAuthorizedKeys",
        "system",
        "uid",
    ];
    let bare = json!({"name": "eve", "shouldExist": false, "homeDir": "", "groups": [], "system": false, "gecos": ""});
    let group = json!({"name": "g", "shouldExist": false, "gid": 1600, "passwordHash": "x", "system": true});
    let dropin = |more: Value| json!({"systemd": {"units": [{"name": "crio.service", "dropins": [more]}]}});
    vec![
        (
            json!({"passwd": {"users": [user]}}),
            of_user.map(|part| format!(r"passwd.users \bob\ {part}")).to_vec(),
        ),
        // Without a value, too.
        (
            json!({"passwd": {"users": [bare]}}),
            ["gecos", "groups", "homeDir", "system"]
                .map(|part| format!(r"passwd.users \eve\ {part}"))
                .to_vec(),
        ),
        (
            json!({"passwd": {"groups": [{"name": "g", "shouldExist": false, "passwordHash": ""}]}}),
            vec![r"passwd.groups \g\ passwordHash".to_owned()],
        ),
        (
            json!({"passwd": {"groups": [group]}}),
            ["gid", "passwordHash", "system"].map(|part| format!(r"passwd.groups \g\ {part}")).to_vec(),
        ),
        (
            dropin(json!({"name": "a.conf"})),
            vec![r"systemd.units \crio.service\ dropins \a.conf\".to_owned()],
        ),
        (
            json!({"systemd": {"units": [{"name": "nowhere.service", "contents": ""}]}}),
            vec![r"systemd.units \nowhere.service\".to_owned()],
        ),
        (
            json!({"storage": {"files": [{"path": "/etc/passwd-x", "overwrite": false}]}}),
            vec![r"storage.files \/etc/passwd-x\ overwrite".to_owned()],
        ),
        (json!({"kernelArguments": {"shouldExist": [" "]}}), vec![r"kernelArguments \ \".to_owned()]),
    ]
}

/// Each verb names the fields.
fn has_no_effect(spec: &Value, fields: Vec<String>) {
    let node = Node::new();
    node.put("root/etc/passwd-x", "host");
    node.put("a.json", config("rendered-a", spec));
    let fields: Vec<String> = fields.into_iter().map(|field| format!("no-effect {field}")).collect();
    let json = |words: &[&str]| {
        let ran = node.run(&[words, &TEXT, &["--os-backend", "none", "--output", "json"]].concat());
        listed(&ran.out)
    };
    assert_eq!(json(&["plan", "--to", "a.json"]), fields, "{spec}");
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 0, "{spec}: {}", applied.err);
    for words in [&["verify"][..], &["verify", "--config", "a.json"], &["status"]] {
        assert_eq!(json(words), fields, "{words:?} {spec}");
    }
}

/// Fields that decide nothing, beside one that does or without a value, are named by each verb.
#[test]
fn fields_without_effect_are_named_by_each_verb() {
    for (sections, fields) in without_effect() {
        has_no_effect(&ignition(sections), fields);
    }
    for blank in ["", " "] {
        let mut spec = ignition(json!({}));
        spec["kernelArguments"] = json!([blank]);
        has_no_effect(&spec, vec![format!(r"spec.kernelArguments \{blank}\")]);
    }
    // A drop-in, or presets of a unit that is there: these count.
    for unit in [
        json!({"name": "crio.service"}),
        json!({"name": "crio.service", "dropins": [{"name": "10-mco-default-env.conf", "contents": ""}]}),
        json!({"name": "nowhere.service", "dropins": [{"name": "a.conf", "contents": "[Unit]"}]}),
    ] {
        let node = Node::new();
        node.put("a.json", config("rendered-a", &ignition(json!({"systemd": {"units": [unit]}}))));
        let planned = node.run(&[&["plan", "--to", "a.json", "--output", "json"], &TEXT[..]].concat());
        assert_eq!(listed(&planned.out), [""; 0], "{unit}");
    }
}

/// Empty contents write nothing: a file that the host has in that place stays, and is named until it goes.
#[test]
fn empty_contents_over_files_of_host_are_named() {
    let node = Node::new();
    let (dropin, file) =
        ("root/etc/systemd/system/crio.service.d/x.conf", "root/etc/systemd/system/own.service");
    node.put(dropin, "[Service]\n");
    node.put(file, "[Service]\nExecStart=/bin/true\n");
    let units = json!([
        {"name": "crio.service", "dropins": [{"name": "x.conf", "contents": ""}, {"name": "y.conf", "contents": ""}]},
        {"name": "own.service", "contents": ""},
        {"name": "masked.service", "contents": "", "mask": true},
    ]);
    let fields = [
        r"no-effect systemd.units \crio.service\ dropins \x.conf\ contents",
        r"no-effect systemd.units \own.service\ contents",
    ];
    let with_text =
        json!([{"name": "crio.service", "dropins": [{"name": "y.conf", "contents": "[Unit]\n"}]}]);
    node.commit("rendered-0.json", &ignition(json!({"systemd": {"units": with_text}})));
    node.put("a.json", config("rendered-a", &ignition(json!({"systemd": {"units": units}}))));
    let json = |words: &[&str]| listed(&node.run(&[words, &TEXT, &["--output", "json"]].concat()).out);
    // The one of the old config leaves.
    assert_eq!(json(&["plan", "--to", "a.json"]), fields);
    let applied = node.apply("a.json");
    assert!([0, 133].contains(&applied.code), "{}", applied.err);
    assert_eq!(json(&["verify", "--config", "a.json"]), fields);
    assert_eq!(node.read(dropin), "[Service]\n");
    node.put(dropin, "");
    std::fs::remove_file(node.path(file)).unwrap();
    assert!(!json(&["verify", "--config", "a.json"]).iter().any(|field| field.contains("contents")));
}

/// As the Machine Config Operator refuses an extension without a name. What the API server adds to an object is read with it.
#[test]
fn empty_extension_is_refused_and_status_is_not() {
    let node = Node::new();
    let mut spec = ignition(json!({}));
    spec["extensions"] = json!([""]);
    node.put("a.json", config("rendered-a", &spec));
    for ran in [node.plan("a.json"), node.apply("a.json")] {
        assert!(ran.code == 4 && ran.err.contains("there is no such extension"), "{}", ran.err);
    }
    let mut object: Value = serde_json::from_str(&config("rendered-a", &ignition(json!({})))).unwrap();
    object["metadata"]["managedFields"] =
        json!([{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}]);
    object["metadata"]["ownerReferences"] = json!([{"kind": "MachineConfigPool", "name": "worker"}]);
    node.put("a.json", object.to_string());
    assert_eq!(node.plan("a.json").code, 0);
    object["status"] = json!({"conditions": []});
    node.put("a.json", object.to_string());
    assert_eq!(node.plan("a.json").code, 0);
}

/// A password that is locked in another way opens nothing either and stays; one behind the lock is named by each verb.
#[test]
fn password_behind_a_lock_is_named() {
    for (found, is_named) in
        [("*", false), ("!", false), ("!!", false), ("!*", false), ("!$6$salt$hash", true)]
    {
        let node = Node::new();
        let shadow = node.read("root/etc/shadow").replace("core:*:", &format!("core:{found}:"));
        node.put("root/etc/shadow", &shadow);
        let user = json!({"name": "core", "passwordHash": "*"});
        node.put("a.json", config("rendered-a", &ignition(json!({"passwd": {"users": [user]}}))));
        let said = |ran: Ran| {
            assert_eq!(ran.code, 0, "{found}: {}{}", ran.out, ran.err);
            let said = ran.out + &ran.err;
            assert!(!said.contains("hash:"), "{said}");
            said.contains("usermod -p '*' core")
        };
        let host = ["--root", "root", "--os-backend", "none"];
        let verify = [&["verify"], &host[..]].concat();
        let verbs = [node.plan("a.json"), node.apply("a.json"), node.run(&verify), node.plan("a.json")];
        assert_eq!(verbs.map(said), [is_named; 4], "{found}");
        assert_eq!(node.read("root/etc/shadow"), shadow);
    }
}
