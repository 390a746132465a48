//! What `plan` says `apply` does: a config that can't be applied here is refused before anything is touched, and one that was
//! applied can be left.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::test_host::{Node, config, ignition};

fn file(path: &str) -> Value {
    json!({"path": path, "contents": {"source": "data:,new"}})
}

fn files(paths: &[&str]) -> Value {
    ignition(json!({"storage": {"files": paths.iter().map(|path| file(path)).collect::<Vec<_>>()}}))
}

fn with_users(mut spec: Value, users: Value) -> Value {
    spec["config"]["passwd"] = json!({ "users": users });
    spec
}

fn keys() -> Value {
    json!([{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}])
}

/// Plans and applies; both are refused, and the host is as before.
fn is_refused(node: &Node, spec: &Value, words: &str) {
    node.put("b.json", config("rendered-b", spec));
    let before = node.listing("root/etc");
    let planned = node.plan("b.json");
    assert_eq!(planned.code, 3, "{spec}: {}{}", planned.out, planned.err);
    assert!(planned.out.contains(words), "{}", planned.out);
    let verified = node.run(&["verify", "--config", "b.json", "--root", "root", "--os-backend", "none"]);
    assert!(verified.code == 3 && verified.out.contains(words), "{}: {}", verified.code, verified.out);
    let applied = node.apply("b.json");
    assert!(applied.code == 3 && applied.err.contains(words), "{}: {}", applied.code, applied.err);
    assert_eq!(node.listing("root/etc"), before);
}

#[test]
fn paths_that_agent_writes_itself_are_refused_beside_it() {
    let user = json!([{"name": "guest"}]);
    let link = json!([{"path": "/home/core/.ssh", "target": "/etc"}]);
    let table = [
        (
            with_users(files(&["/etc/passwd"]), user.clone()),
            r#"storage.files "/etc/passwd": passwd of the same config"#,
        ),
        (
            with_users(files(&["/etc/shadow"]), json!([{"name": "core", "passwordHash": "$6$a$b"}])),
            "/etc/shadow",
        ),
        (
            with_users(files(&["/home/core/.ssh/authorized_keys.d/ignition"]), keys()),
            r#"the agent writes the keys of passwd.users "core""#,
        ),
        (
            with_users(ignition(json!({"storage": {"links": link}})), keys()),
            r#"storage.links "/home/core/.ssh""#,
        ),
        (files(&["/etc/machine-config-daemon/currentconfig"]), "the agent writes this file"),
        (files(&["/etc/systemd/system-preset/20-ignition.preset"]), "the agent removes this file"),
        (files(&["/etc/ignition-machine-config-encapsulated.json"]), "the agent removes this file"),
        (files(&["/etc/ignition-machine-config-encapsulated.json.bak"]), "the agent writes this file"),
        (files(&["/etc/yum.repos.d/coreos-extensions.repo"]), "the agent removes this file"),
        (files(&["/run/motd.d/90-machine-config-agent.motd"]), "the agent removes this file"),
        (files(&["/etc/machine-config-daemon/node-annotations.json"]), "the agent removes this file"),
    ];
    for (spec, words) in table {
        is_refused(&Node::new(), &spec, words);
    }
    // Each alone, and the directory of the keys as the agent makes it.
    let node = Node::new();
    node.commit("rendered-a.json", &files(&["/etc/subuid"]));
    let ssh = json!([{"path": "/home/core/.ssh", "mode": 448, "user": {"name": "core"}, "group": {"name": "core"}}]);
    node.put(
        "b.json",
        config("rendered-b", &with_users(ignition(json!({"storage": {"directories": ssh}})), keys())),
    );
    assert_eq!(node.plan("b.json").code, 0);
}

/// Files that the agent reads or writes as root's alone: an entry that takes them from it would end each later run.
#[test]
fn entries_that_keep_agent_from_its_own_files_are_refused() {
    const SETTINGS: &str = "/etc/machine-config-agent/settings.toml";
    let settings = |text: &str, mode: u32| {
        let entry = json!({"path": SETTINGS, "mode": mode, "contents": {"source": format!("data:,{}", text.replace(' ', "%20"))}});
        ignition(json!({"storage": {"files": [entry]}}))
    };
    let directory =
        |path: &str, mode: u32| ignition(json!({"storage": {"directories": [{"path": path, "mode": mode}]}}));
    let link = |path: &str| ignition(json!({"storage": {"links": [{"path": path, "target": "/etc/motd"}]}}));
    let of_user = json!({"path": "/etc/machine-config-agent", "user": {"name": "core"}});
    let table = [
        (settings("nonsense", 0o644), "line 1: "),
        (settings("keep-rollback = 15", 0o644), "line 1: it is the number 15, and must be a string"),
        (settings("%5Bos%5D%0Astall = '1s'", 0o644), "os.stall"),
        (settings(&"a".repeat(300_000), 0o644), "is larger than 262144 bytes"),
        (settings("", 0o666), "no write permission for group and others"),
        (directory(SETTINGS, 0o755), "a regular file here"),
        (link(SETTINGS), "a regular file here"),
        (link("/etc/machine-config-agent"), "a directory here"),
        (directory("/etc/machine-config-agent", 0o777), "no write permission for group and others"),
        (ignition(json!({"storage": {"directories": [of_user]}})), "set owner root"),
        (directory("/var/lib", 0o777), "no write permission for group and others"),
        (directory("/etc/machine-config-daemon", 0o775), "no write permission for group and others"),
        (directory("/etc/mcd-currentconfig.json", 0o755), "the agent writes this file"),
        (directory("/run/machine-config-agent/report.json", 0o755), "the agent writes this file"),
    ];
    for (spec, words) in table {
        is_refused(&Node::new(), &spec, words);
    }
    let node = Node::new();
    node.commit("rendered-a.json", &settings("keep-rollback = '24h'", 0o644));
    node.put("b.json", config("rendered-b", &directory("/etc/machine-config-agent", 0o755)));
    assert_eq!((node.plan("b.json").code, node.apply("b.json").code), (0, 0));
}

#[test]
fn two_names_of_one_file_are_refused() {
    let host = || {
        let node = Node::new();
        std::fs::create_dir_all(node.path("root/etc/real")).unwrap();
        symlink("real", node.path("root/etc/alias")).unwrap();
        node
    };
    is_refused(
        &host(),
        &files(&["/etc/alias/x", "/etc/real/x"]),
        "on this host it is the same file as /etc/real/x (/etc/real/x)",
    );
    let node = host();
    node.commit("rendered-a.json", &files(&["/etc/alias/x"]));
    is_refused(&node, &files(&["/etc/real/x"]), "on this host it is the same file as");
    assert_eq!(node.read("root/etc/real/x"), "new");
    node.commit("rendered-c.json", &files(&[]));
    node.commit("rendered-d.json", &files(&["/etc/real/x"]));
    assert_eq!(node.read("root/etc/alias/x"), "new");
}

#[test]
fn homes_that_no_account_can_have_are_refused() {
    let users = |users: Value| with_users(files(&[]), users);
    let two = |one: &str, other: &str| {
        users(json!([{"name": "u1", "homeDir": one}, {"name": "u2", "homeDir": other}]))
    };
    is_refused(&Node::new(), &two("/home/x", "/home/x/sub"), "/home/x/sub is in /home/x, the home of u1");
    is_refused(&Node::new(), &two("/home/x/sub", "/home/x"), "/home/x/sub is in /home/x, the home of u2");
    let node = Node::new();
    std::os::unix::fs::chown(node.path("root/home/core"), Some(1000), Some(1000)).unwrap();
    let below = users(json!([{"name": "u1", "homeDir": "/home/core/a/b"}]));
    is_refused(&node, &below, "would be in /home/core, which belongs to core");
    for home in ["/etc/systemd/system", "/usr/lib/systemd", "/run/lock"] {
        let node = Node::new();
        std::fs::create_dir_all(node.path(&format!("root{home}"))).unwrap();
        let spec = users(json!([{"name": "u1", "homeDir": home}]));
        is_refused(&node, &spec, "is a directory of the system, which belongs to root");
    }
    // The agent refuses files of its own that others own: no later update could start.
    for home in ["/etc/machine-config-agent", "/etc/machine-config-daemon/x", "/run/machine-config-agent"] {
        let spec = users(json!([{"name": "u1", "homeDir": home}]));
        is_refused(&Node::new(), &spec, "is reserved for the agent and can't be a home");
    }
    let node = Node::new();
    std::fs::remove_file(node.path("root/etc/shadow")).unwrap();
    let spec = users(json!([{"name": "u1", "passwordHash": "$6$a$b"}]));
    is_refused(&node, &spec, "this host has no /etc/shadow for its password");
}

/// useradd and usermod add a second line beside one that they can't read, or read another for ever.
#[test]
fn lines_that_programs_do_not_read_are_refused() {
    let user = with_users(files(&[]), json!([{"name": "bob"}]));
    for (database, line, words) in [
        ("passwd", "bob:x:1007", "/etc/passwd has a line of bob that is not valid (passwd(5))"),
        ("shadow", "bob:*", "/etc/shadow has a line of bob that is not valid (shadow(5))"),
        (
            "shadow",
            "x:*:99999999999999999999999:0:99999:7:::",
            "/etc/shadow has a number that is too long, in the line of x",
        ),
    ] {
        let node = Node::new();
        let path = format!("root/etc/{database}");
        node.put(&path, format!("{}{line}\n", node.read(&path)));
        is_refused(&node, &user, words);
    }
    let group = ignition(json!({"passwd": {"groups": [{"name": "ops"}]}}));
    for (database, spec) in [
        ("passwd", &user),
        ("shadow", &user),
        ("group", &user),
        ("gshadow", &user),
        ("subuid", &user),
        ("group", &group),
        ("gshadow", &group),
    ] {
        let node = Node::new();
        node.put(&format!("root/etc/{database}"), "a:x:900:\nb\0c:x:901:\n");
        is_refused(&node, spec, &format!("/etc/{database} has a NUL byte in line 2"));
        // The agent's own reader is in no trouble, and neither is another file.
        node.commit("rendered-b.json", &files(&["/etc/a"]));
    }
}

/// A pipe has no end that could be read.
#[test]
fn pipes_in_place_of_databases_and_lock_are_refused() {
    let pipe = |node: &Node, path: &str| {
        drop(std::fs::remove_file(node.path(path)));
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(rustix::fs::CWD, node.path(path), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    };
    let password = json!([{"name": "core", "passwordHash": "$6$a$b"}]);
    for (path, users) in [
        ("/etc/shadow", json!([{"name": "bob"}])),
        ("/etc/shadow", password.clone()),
        ("/etc/shadow", keys()),
        ("/etc/gshadow", json!([{"name": "bob"}])),
        ("/etc/.pwd.lock", json!([{"name": "bob"}])),
        ("/etc/.pwd.lock", password),
    ] {
        let node = Node::new();
        pipe(&node, &format!("root{path}"));
        is_refused(&node, &with_users(files(&[]), users), path);
    }
    let node = Node::new();
    pipe(&node, "root/etc/shadow");
    node.commit("rendered-a.json", &files(&["/etc/a"]));
}

/// Programs take `//home/a` for `/home/a`.
#[test]
fn home_with_empty_parts_is_taken() {
    let node = Node::new();
    node.put("root/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000:://home/core:/bin/sh\n");
    let user = json!([{"name": "core", "gecos": "Core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
    node.put("b.json", config("rendered-b", &with_users(files(&[]), user)));
    assert_eq!(node.plan("b.json").code, 0);
}

/// A hard link needs a file, also after this update.
#[test]
fn hard_link_to_what_becomes_link_is_refused() {
    let hard = json!([{"path": "/etc/h", "target": "/etc/l", "hard": true}]);
    let node = Node::new();
    node.put("root/etc/target", "t");
    symlink("target", node.path("root/etc/l")).unwrap();
    node.commit("rendered-a.json", &files(&["/etc/l"]));
    let spec = ignition(json!({"storage": {"links": hard}}));
    is_refused(&node, &spec, "its target /etc/l is a file that leaves with the old config");
}

/// The advice of a field that is named leads on: the entry can be removed, as long as nothing shows that it was applied.
#[test]
fn installation_that_host_never_got_can_be_left() {
    let storage = [
        json!({"luks": [{"name": "data", "device": "/dev/sdb", "clevis": {"tpm2": true}}]}),
        json!({"disks": [{"device": "/dev/vdb", "partitions": [{"label": "data", "number": 1}]}]}),
        json!({"filesystems": [{"device": "/dev/vdb1", "format": "xfs", "path": "/var/data"}]}),
    ];
    let mut specs: Vec<Value> =
        storage.into_iter().map(|storage| ignition(json!({ "storage": storage }))).collect();
    specs.push(ignition(json!({"kernelArguments": {"shouldExist": ["quiet2"]}})));
    for spec in specs {
        let node = Node::new();
        node.put("a.json", config("rendered-a", &spec));
        let ran = node.apply("a.json");
        assert_eq!(ran.code, 0, "{spec}: {}", ran.err);
        let planned = node.plan("a.json");
        assert!(planned.out.contains("\nNot applied\n"), "{}", planned.out);
        node.commit("rendered-b.json", &files(&["/etc/new"]));
        // It is not taken back in on a running host.
        node.put("a.json", config("rendered-a", &spec));
        assert_eq!(node.plan("a.json").code, 3, "{spec}");
    }
}

/// What others wrote on the host moves no terminal, in no verb.
#[test]
fn control_characters_of_host_are_escaped() {
    let node = Node::new();
    let link = json!([{"path": "/etc/l", "target": "/etc/motd"}]);
    let luks = json!([{"name": "\u{1b}[2Jx", "device": "/dev/sdb"}]);
    node.commit("rendered-a.json", &ignition(json!({"storage": {"links": link, "luks": luks}})));
    std::fs::remove_file(node.path("root/etc/l")).unwrap();
    symlink("\u{1b}]0;x\u{7}\u{202e}\u{9b}31m", node.path("root/etc/l")).unwrap();
    let host = ["--root", "root", "--os-backend", "none"];
    let mut wrong = String::new();
    for verb in
        [&["verify"][..], &["verify", "--output", "json"], &["status"], &["status", "--output", "json"]]
    {
        let ran = node.run(&[verb, &host].concat());
        let text = format!("{}{}", ran.out, ran.err);
        let bad = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        if text.contains(bad) || !text.contains("/etc/l") {
            writeln!(wrong, "{verb:?}: {text:?}").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The lock of the accounts is opened without waiting: a pipe in its place is no lock.
#[test]
fn pipe_in_place_of_lock_of_accounts_is_named() {
    let node = Node::new();
    let lock = node.path("root/etc/.pwd.lock");
    assert!(std::process::Command::new("mkfifo").arg(&lock).status().unwrap().success());
    let spec = ignition(
        json!({"passwd": {"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]}}),
    );
    node.put("b.json", config("rendered-b", &spec));
    // Keys need no lock.
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    assert_eq!((planned.code, applied.code), (0, 0), "{}{} {}", planned.out, planned.err, applied.err);
    node.put("b.json", config("rendered-b", &with_users(files(&[]), json!([{"name": "guest"}]))));
    for ran in [node.plan("b.json"), node.apply("b.json")] {
        let text = ran.out + &ran.err;
        assert_eq!(ran.code, 3, "{text}");
        assert!(text.contains("/etc/.pwd.lock") && text.contains("a regular file"), "{text}");
    }
}

/// What programs that change accounts make for themselves is no config's.
#[test]
fn paths_of_account_programs_are_refused() {
    let user = json!([{"name": "guest"}]);
    let directory = |path: &str| ignition(json!({"storage": {"directories": [{"path": path}]}}));
    let at = [
        "/etc/.pwd.lock",
        "/etc/passwd-",
        "/etc/shadow-",
        "/etc/group-",
        "/etc/gshadow-",
        "/etc/subuid-",
        "/etc/passwd+",
        "/etc/shadow.lock",
        "/etc/group.lock",
        "/etc/subgid.lock",
        "/etc/passwd.4711",
    ];
    for path in at {
        is_refused(&Node::new(), &with_users(directory(path), user.clone()), path);
        is_refused(&Node::new(), &with_users(files(&[path]), user.clone()), path);
        is_refused(&Node::new(), &files(&[&format!("{path}/below")]), "remove the entry");
        is_refused(&Node::new(), &directory(path), "remove the entry");
    }
    for path in ["/etc/subuid", "/etc/subgid", "/etc/gshadow", "/etc/shadow"] {
        is_refused(&Node::new(), &with_users(directory(path), user.clone()), path);
        is_refused(&Node::new(), &with_users(files(&[&format!("{path}/below")]), user.clone()), path);
    }
    for path in ["/etc/.shadow.mca-new", "/etc/.a.mca-new", "/var/lib/x/.y.mca-new"] {
        is_refused(&Node::new(), &files(&[path]), "the agent gives such a name");
        is_refused(&Node::new(), &directory(path), "the agent gives such a name");
    }
    // A config may bring a backup that nothing here writes, and what only looks like one.
    let node = Node::new();
    node.commit(
        "rendered-a.json",
        &files(&["/etc/passwd-", "/etc/passwd.d/x", "/etc/a.lock", "/etc/mca-new"]),
    );
    // The accounts of the old config go in the same update.
    let node = Node::new();
    node.commit("rendered-a.json", &with_users(files(&[]), user));
    is_refused(&node, &directory("/etc/subuid"), "/etc/subuid");
}

/// Plans and applies: both end alike, in time; what is refused names its cause and touches nothing.
fn is_obstacle(node: &Node, spec: &Value, words: &str) {
    node.put("b.json", config("rendered-b", spec));
    let before = node.listing("root/etc");
    for verb in [
        &["plan", "--to", "b.json", "--root", "root", "--os-backend", "none"][..],
        &crate::test_host::apply("b.json"),
    ] {
        let mut bounded = std::process::Command::new("timeout");
        bounded.arg("60").arg(crate::test_host::BINARY).args(verb).current_dir(node.dir.path());
        let output = bounded.env_clear().env("PATH", "/usr/sbin:/usr/bin").output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(
            output.status.code() == Some(3) && text.contains(words),
            "{} {spec}: {:?} {text}",
            verb[0],
            output.status
        );
    }
    assert_eq!(node.listing("root/etc"), before);
}

fn fifo(node: &Node, path: &str) {
    std::fs::create_dir_all(node.path(path).parent().unwrap()).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(node.path(path)).status().unwrap().success());
}

/// What keeps useradd and its like from their work is seen before.
#[test]
fn obstacles_of_account_programs_are_seen_before() {
    let with = |users: Value| ignition(json!({"passwd": {"users": users}}));
    let guest = || with(json!([{"name": "guest"}]));
    let system = || with(json!([{"name": "guest", "system": true}]));
    for path in ["passwd-", "shadow-", "group-", "passwd+", "shadow+"] {
        let node = Node::new();
        std::fs::create_dir(node.path(&format!("root/etc/{path}"))).unwrap();
        is_obstacle(&node, &guest(), &format!("/etc/{path}"));
        let node = Node::new();
        fifo(&node, &format!("root/etc/{path}"));
        is_obstacle(&node, &guest(), &format!("/etc/{path}"));
        let node = Node::new();
        symlink("/nowhere", node.path(&format!("root/etc/{path}"))).unwrap();
        is_obstacle(&node, &guest(), &format!("/etc/{path}"));
    }
    for path in ["subuid", "subgid", "gshadow", "login.defs", "default/useradd"] {
        for spec in [guest(), system()] {
            let node = Node::new();
            fifo(&node, &format!("root/etc/{path}"));
            is_obstacle(&node, &spec, &format!("/etc/{path}"));
        }
    }
    let node = Node::new();
    node.put("root/etc/login.defs", "UID_MIN 1000\nUID_MAX 1000\n");
    is_obstacle(&node, &guest(), "no free uid left from 1000 (UID_MIN) to 1000 (UID_MAX");
    node.put("root/etc/login.defs", "GID_MIN 1000\nGID_MAX 1000\n");
    is_obstacle(&node, &guest(), "no free gid left");
    let groups = ignition(json!({"passwd": {"groups": [{"name": "staff"}]}}));
    is_obstacle(&node, &groups, r#"passwd.groups "staff": this host has no free gid left"#);
    // An account that leaves needs all databases.
    let node = Node::new();
    node.commit("rendered-a.json", &guest());
    fifo(&node, "root/etc/subuid");
    is_obstacle(&node, &files(&[]), "/etc/subuid");
}

/// A pipe in the place of a file that only labels a metric.
#[test]
fn pipe_in_place_of_os_release_is_no_obstacle() {
    let node = Node::new();
    fifo(&node, "root/etc/os-release");
    node.commit("rendered-a.json", &files(&["/etc/a"]));
}

#[test]
fn homes_that_lead_through_entries_are_refused() {
    let home = |storage: Value, home: &str| {
        let users = json!([{"name": "guest", "homeDir": home, "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
        with_users(ignition(json!({ "storage": storage })), users)
    };
    let link = json!({"links": [{"path": "/srv/l", "target": "/var/l"}]});
    let file = json!({"files": [{"path": "/srv/l"}]});
    for (storage, at) in
        [(&link, "/srv/l"), (&link, "/srv/l/guest"), (&file, "/srv/l"), (&file, "/srv/l/a/b")]
    {
        is_refused(&Node::new(), &home(storage.clone(), at), "it leads through /srv/l, a ");
    }
    // What the old config had there goes.
    let node = Node::new();
    let link = json!({"links": [{"path": "/etc/l", "target": "/var/l"}]});
    node.commit("rendered-a.json", &ignition(json!({ "storage": link })));
    is_refused(&node, &home(json!({}), "/etc/l/guest"), "/etc/l");
    for at in ["/etc/systemd/system/a.service.d", "/etc/systemd/guest", "/run/systemd/system/a.service.d"] {
        is_refused(&Node::new(), &home(json!({}), at), "is a directory of the system and no account's home");
    }
    let dropin = json!([{"name": "a.service", "dropins": [{"name": "a.conf", "contents": "[Service]\n"}]}]);
    let mut spec = home(json!({}), "/etc/systemd/system/a.service.d");
    spec["config"]["systemd"] = json!({ "units": dropin });
    is_refused(&Node::new(), &spec, "no account's home");
    // A file, or a link, of the host.
    let node = Node::new();
    node.put("root/srv/l", "");
    is_refused(&node, &home(json!({}), "/srv/l/guest"), "/srv/l");
    let node = Node::new();
    std::fs::create_dir_all(node.path("root/var/real")).unwrap();
    std::fs::create_dir_all(node.path("root/srv")).unwrap();
    symlink("/var/real", node.path("root/srv/l")).unwrap();
    node.commit("rendered-a.json", &home(json!({}), "/srv/l/guest"));
    assert!(node.path("root/var/real/guest/.ssh/authorized_keys.d/ignition").exists());
}

/// The password of an account that is made is the config's, also one that opens nothing.
#[test]
fn locked_password_of_new_account_is_that_of_config() {
    for (hash, field) in [(json!("*"), "*"), (json!("!"), "!"), (json!("!!"), "!!"), (Value::Null, "!")] {
        let node = Node::new();
        let mut user = json!({"name": "guest"});
        if hash != Value::Null {
            user["passwordHash"] = hash;
        }
        node.commit("rendered-a.json", &with_users(files(&[]), json!([user])));
        let shadow = node.read("root/etc/shadow");
        assert!(shadow.contains(&format!("\nguest:{field}:")), "{shadow}");
        let verify = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
        assert_eq!(verify.code, 0, "{}", verify.out);
        node.commit("rendered-b.json", &files(&[]));
    }
}

/// What a kill leaves beside the databases goes with the next run, whatever that leads to.
#[test]
fn new_version_of_database_does_not_outlive_next_run() {
    let users =
        json!([{"name": "core", "passwordHash": "$6$a$b"}, {"name": "guest", "passwordHash": "$6$a$b"}]);
    let spec = with_users(files(&[]), users);
    let drafts = |node: &Node| {
        let names = std::fs::read_dir(node.path("root/etc")).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with(".mca-new")).collect::<Vec<_>>()
    };
    let mut kills = 0;
    for number in 1..1000 {
        let node = Node::new();
        node.put("rendered-b.json", config("rendered-b", &spec));
        node.put("rendered-c.json", config("rendered-c", &files(&[])));
        let mut command = node.command(&crate::test_host::apply("rendered-b.json"));
        let output = command.env("MCA_FAIL_POINT", format!("kill:{number}")).output().unwrap();
        if output.status.success() {
            break;
        }
        if drafts(&node).is_empty() {
            continue;
        }
        kills += 1;
        let then = if kills % 2 == 0 { "rendered-b.json" } else { "rendered-c.json" };
        let ran = node.apply(then);
        assert_eq!((ran.code, drafts(&node)), (0, Vec::new()), "{number} {then}: {}", ran.err);
    }
    assert!(kills > 3, "{kills} kills left anything");
}

/// A file that a boot takes away, as the plan warned: neither the update that needs the boot fails, nor the next one.
#[test]
fn update_that_reboots_does_not_fail_for_what_boot_takes_away() {
    let node = Node::new();
    std::fs::write(
        node.path("policy.json"),
        r#"{"apiVersion": "operator.openshift.io/v1", "kind": "MachineConfiguration",
        "metadata": {"name": "cluster"}, "spec": {}}"#,
    )
    .unwrap();
    let storage = json!({
        "directories": [{"path": "/run/app"}],
        "files": [{"path": "/run/app/x", "contents": {"source": "data:,x"}}, file("/etc/needs-reboot")],
        "links": [{"path": "/run/l", "target": "/etc/motd"}],
    });
    node.put("a.json", config("rendered-a", &ignition(json!({ "storage": storage }))));
    let planned = node.plan("a.json");
    assert!(planned.code == 0, "{}{}", planned.out, planned.err);
    for path in ["/run/app", "/run/app/x", "/run/l"] {
        assert!(
            planned.out.contains(&format!("{path:?}: /run may be empty after a boot")),
            "{}",
            planned.out
        );
    }
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 133, "{}", applied.err);
    let boot = || {
        for path in ["app", "l"] {
            let path = node.path(&format!("root/run/{path}"));
            drop(std::fs::remove_dir_all(&path));
            drop(std::fs::remove_file(&path));
        }
    };
    boot();
    node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
    let applied = node.apply("a.json");
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(
        applied.err.contains("/run/app/x") && applied.out.contains("the host matches"),
        "{}",
        applied.err
    );
    // An idle host is reported as it is.
    let verify = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert!(verify.code == 1 && verify.out.contains("/run/app/x"), "{}", verify.out);
    for name in ["a.json", "b.json"] {
        let mut spec = ignition(json!({ "storage": storage }));
        spec["config"]["storage"]["files"][1]["contents"] = json!({"source": "data:,other"});
        node.put("b.json", config("rendered-b", &spec));
        let planned = node.plan(name);
        assert!(planned.code == 0 && !planned.out.contains("rift"), "{name}: {}", planned.out);
        let applied = node.apply(name);
        assert_eq!(applied.code, if name == "a.json" { 0 } else { 133 }, "{name}: {}", applied.err);
    }
}

/// A person's file in the way of what is left of an update: the plan shows what a run would fail at.
#[test]
fn obstacle_of_open_update_is_shown() {
    let node = Node::new();
    let storage = json!({"directories": [{"path": "/etc/d"}], "files": [file("/etc/d/a"), file("/etc/b")]});
    node.put("b.json", config("rendered-b", &ignition(json!({ "storage": storage }))));
    let killed = |point: &str| {
        let output =
            node.command(&crate::test_host::apply("b.json")).env("MCA_FAIL_POINT", point).output().unwrap();
        assert!(!output.status.success());
    };
    killed("kill:originals-saved");
    assert_eq!(node.plan("b.json").code, 0);
    node.put("root/etc/b/x", "a person's");
    let planned = node.plan("b.json");
    assert!(
        planned.code == 3 && planned.out.contains("/etc/b"),
        "{}: {}{}",
        planned.code,
        planned.out,
        planned.err
    );
    let applied = node.apply("b.json");
    assert_eq!(applied.code, 4, "{}", applied.err);
    assert_eq!(node.read("root/etc/b.mca-foreign/x"), "a person's");
}

/// A person's file in the place of what an interrupted update makes is not replaced, as by a first run.
#[test]
fn file_put_in_place_of_entry_of_open_update_is_kept() {
    let directory = |overwrite: bool| json!({"directories": [{"path": "/etc/d", "overwrite": overwrite}], "files": [file("/etc/b")]});
    let above = json!({"directories": [{"path": "/etc/d"}], "files": [file("/etc/d/a"), file("/etc/b")]});
    let link = |overwrite: bool| json!({"links": [{"path": "/etc/d", "target": "b", "overwrite": overwrite}], "files": [file("/etc/b")]});
    let begun = |storage: &Value| {
        let node = Node::new();
        node.put("b.json", config("rendered-b", &ignition(json!({ "storage": storage }))));
        node.put("empty.json", config("rendered-empty", &files(&[])));
        let mut command = node.command(&crate::test_host::apply("b.json"));
        let output = command.env("MCA_FAIL_POINT", "kill:originals-saved").output().unwrap();
        assert!(!output.status.success());
        node.put("root/etc/d", "a person's");
        node
    };
    for storage in [directory(false), above, link(false)] {
        let node = begun(&storage);
        for (plan, apply) in [(3, 4), (3, 3)] {
            let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
            let text = format!("{storage}: {}{}{}", planned.out, planned.err, applied.err);
            assert_eq!((planned.code, applied.code), (plan, apply), "{text}");
            assert!(planned.out.contains("/etc/d") && applied.err.contains("/etc/d"), "{text}");
            assert_eq!(node.read("root/etc/d"), "a person's");
            assert!(!node.path("root/etc/b").exists());
        }
        std::fs::remove_file(node.path("root/etc/d")).unwrap();
        assert_eq!(node.apply("b.json").code, 0);
    }
    for storage in [directory(true), link(true)] {
        let node = begun(&storage);
        assert_eq!((node.plan("b.json").code, node.apply("b.json").code), (0, 0), "{storage}");
        assert_eq!(node.apply("empty.json").code, 0);
        assert_eq!(node.read("root/etc/d"), "a person's", "{storage}");
    }
}

/// A directory at the name under which the agent prepares a new version.
#[test]
fn directory_in_place_of_new_version_is_seen_before() {
    let node = Node::new();
    std::fs::create_dir_all(node.path("root/etc/.a.mca-new/x")).unwrap();
    is_obstacle(&node, &files(&["/etc/a"]), "/etc/.a.mca-new, the name of the new version of /etc/a");
    std::fs::create_dir_all(node.path("root/etc/.shadow.mca-new")).unwrap();
    let guest = with_users(files(&[]), json!([{"name": "guest"}]));
    is_obstacle(&node, &guest, "/etc/.shadow.mca-new, the name of the new version of /etc/shadow");
}

/// Found by comparing random plans with their runs.
#[test]
fn accounts_that_programs_refuse_are_refused_before() {
    let with = |passwd: Value| ignition(json!({ "passwd": passwd }));
    let own = with(json!({"users": [{"name": "guest", "groups": ["guest"]}]}));
    // The group of its name is made with the account.
    Node::new().commit("rendered-a.json", &own);
    // `app` is made before `guest` and its group.
    let later = with(json!({"users": [{"name": "app", "groups": ["guest"]}, {"name": "guest"}]}));
    is_obstacle(&Node::new(), &later, r#"passwd.users "app" groups: this host has no group "guest""#);
    let first =
        with(json!({"users": [{"name": "app", "groups": ["guest"]}, {"name": "guest", "uid": 1500}]}));
    Node::new().commit("rendered-a.json", &first);
    let node = Node::new();
    let passwd = node.read("root/etc/passwd");
    node.put("root/etc/passwd", format!("{passwd}{}", passwd.lines().nth(1).unwrap()));
    let gecos = with(json!({"users": [{"name": "core", "gecos": "Core"}]}));
    is_obstacle(&node, &gecos, "/etc/passwd has several lines of core");
    let link = json!({"links": [{"path": "/var/core", "target": "/home/core", "user": {"name": "core"}}]});
    let node = Node::new();
    node.put("root/etc/passwd", "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/var/core:/bin/sh\n");
    is_refused(
        &node,
        &with_users(ignition(json!({ "storage": link })), keys()),
        "it leads through /var/core, a link",
    );
    let keys = json!({"directories": [{"path": "/home/guest/.ssh/authorized_keys.d/ignition"}]});
    let node = Node::new();
    node.commit("rendered-a.json", &with(json!({"users": [{"name": "guest"}]})));
    is_refused(&node, &ignition(json!({ "storage": keys })), r#"the keys of passwd.users "guest""#);
    for path in ["/etc/login.defs", "/etc/default/useradd"] {
        let directory = ignition(json!({"storage": {"directories": [{"path": path}]}}));
        is_refused(&Node::new(), &directory, "which has to be a file");
        is_refused(&Node::new(), &files(&[&format!("{path}/x")]), "which has to be a file");
        Node::new().commit("rendered-a.json", &files(&[path]));
    }
}

/// A comment in another encoding, and a password of a group that is no hash.
#[test]
fn odd_fields_of_databases_are_taken() {
    let node = Node::new();
    node.put(
        "root/etc/passwd",
        b"root:x:0:0::/root:/bin/sh\ncore:x:1000:1000:J\xfcrgen:/home/core:/bin/sh\n",
    );
    node.put("root/etc/group", b"root:x:0:\ncore:x:1000:\nb\xfcro:x:20:core\n");
    let passwd = json!({"users": [{"name": "guest", "groups": ["core"]}],
        "groups": [{"name": "core", "passwordHash": "x"}, {"name": "staff", "passwordHash": "x"}]});
    node.commit("rendered-a.json", &ignition(json!({ "passwd": passwd })));
    node.commit("rendered-b.json", &files(&[]));
    let passwd = std::fs::read(node.path("root/etc/passwd")).unwrap();
    assert!(passwd.windows(8).any(|part| part == b":J\xfcrgen:"), "{}", String::from_utf8_lossy(&passwd));
}

/// A group that leaves owns nothing of the config that it leaves with, also what the config had before.
#[test]
fn group_that_leaves_owns_no_entry_of_new_config() {
    let of_group = |list: &str, mut entry: Value| {
        entry["group"] = json!({ "name": "staff1" });
        let mut storage = json!({});
        storage[list] = json!([entry]);
        ignition(json!({ "storage": storage }))
    };
    let entries = [
        ("files", file("/etc/f")),
        ("directories", json!({"path": "/etc/d"})),
        ("links", json!({"path": "/etc/l", "target": "f"})),
    ];
    for (list, entry) in entries {
        for has_entry in [true, false] {
            let node = Node::new();
            let mut first = if has_entry { of_group(list, entry.clone()) } else { ignition(json!({})) };
            first["config"]["passwd"] = json!({ "groups": [{"name": "staff1", "gid": 5000}] });
            node.commit("rendered-a.json", &first);
            is_obstacle(&node, &of_group(list, entry.clone()), "the group staff1 is removed with its entry");
        }
    }
}

/// Directories of the config on the way of keys: others can't change what is in them.
#[test]
fn directories_of_keys_are_not_open_to_others() {
    let new = json!([{"name": "bob", "homeDir": "/srv/h/bob", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]);
    for (directory, users) in [
        (json!({"path": "/home/core/.ssh", "mode": 0o775}), keys()),
        (json!({"path": "/home/core/.ssh", "mode": 0o1777}), keys()),
        (json!({"path": "/home/core/.ssh/authorized_keys.d", "user": {"id": 7}}), keys()),
        (json!({"path": "/home/core", "mode": 0o777}), keys()),
        (json!({"path": "/home", "mode": 0o777}), keys()),
        (json!({"path": "/srv/h", "mode": 0o777}), new.clone()),
        (json!({"path": "/srv/h", "user": {"id": 1000}}), new),
    ] {
        let spec = ignition(json!({ "storage": { "directories": [directory] } }));
        is_obstacle(&Node::new(), &with_users(spec, users), "storage.directories");
    }
    let good = ignition(
        json!({ "storage": { "directories": [{"path": "/home/core/.ssh", "mode": 0o700, "user": {"name": "core"},
        "group": {"name": "core"}}] } }),
    );
    let node = Node::new();
    node.put("a.json", config("rendered-a", &with_users(good, keys())));
    let planned = node.plan("a.json");
    assert_eq!(planned.code, 0, "{}{}", planned.out, planned.err);
}
