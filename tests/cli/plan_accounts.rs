//! Accounts whose record was lost or does not fit any more, keys that can't be removed, shared homes, and access lists of `/etc`: a
//! revoked key opens no account in silence, and `plan` has the answer of `apply`.

use std::fs;
use std::os::unix::fs::chown;
use std::process::Command;

use rustix::fs::IFlags;
use serde_json::{Value, json};

use crate::access_list::{lists, pass_on};
use crate::plan_flags::Flagged;
use crate::ran;
use crate::test_host::{Node, Ran, STATE, config, ignition};

pub const KEYS: &str = ".ssh/authorized_keys.d/ignition";
pub const K1: &str = "ssh-ed25519 AAAA k1";
pub const K2: &str = "ssh-ed25519 AAAA k2";

/// A host with an account of its own, and shadowed groups.
pub fn host() -> Node {
    let node = Node::new();
    let add = |path: &str, line: &str| node.put(path, node.read(path) + line);
    add("root/etc/passwd", "guest:x:1100:1100:The guest:/home/guest:/bin/sh\n");
    add("root/etc/group", "guest:x:1100:\nwheel:x:10:ann\n");
    add("root/etc/shadow", "guest:$6$own:19000:0:99999:7:::\n");
    node.put("root/etc/gshadow", "root:*::\ncore:!::\nguest:!::\nwheel:!::ann\n");
    for (name, id) in [("core", 1000), ("guest", 1100)] {
        fs::create_dir_all(node.path(&format!("root/home/{name}"))).unwrap();
        chown(node.path(&format!("root/home/{name}")), Some(id), Some(id)).unwrap();
    }
    node.put("none.json", config("rendered-none", &ignition(json!({}))));
    node
}

pub fn users(users: Value) -> Value {
    ignition(json!({"passwd": {"users": users}}))
}

pub fn verify(node: &Node) -> Ran {
    node.run(&["verify", "--root", "root", "--os-backend", "none"])
}

pub fn status(node: &Node) -> String {
    node.run(&["status", "--root", "root", "--os-backend", "none"]).out
}

pub fn applied(node: &Node, target: &str, case: &str) {
    let ran = node.apply(target);
    assert_eq!(ran.code, 0, "{case}: {}", ran.err);
}

pub fn keys_path(user: &str) -> String {
    format!("root/home/{user}/{KEYS}")
}

pub fn keys(node: &Node, user: &str) -> String {
    fs::read_to_string(node.path(&keys_path(user))).unwrap_or_default()
}

pub fn line(node: &Node, database: &str, name: &str) -> String {
    let text = node.read(&format!("root/etc/{database}"));
    text.lines().find(|line| line.starts_with(&format!("{name}:"))).unwrap_or_default().to_owned()
}

pub fn program(node: &Node, program: &str, arguments: &[&str]) {
    let mut command = Command::new(program);
    let root = node.path("root");
    // pwconv has no prefix.
    let output = command.arg(if program.starts_with("pw") { "-R" } else { "-P" }).arg(root).args(arguments);
    let output = output.output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
}

/// A change of a node by hand.
type ByHand = fn(&Node);

/// What becomes of the record of accounts, and of what it says.
const LOST: [(&str, ByHand); 5] = [
    ("kept", |_| {}),
    ("uid", |node| {
        for user in ["app", "guest"] {
            program(node, "usermod", &["--uid", if user == "app" { "1777" } else { "1778" }, user]);
            let id = if user == "app" { 1777 } else { 1778 };
            let home = node.path(&format!("root/home/{user}"));
            for path in
                [home.clone(), home.join(".ssh"), home.join(".ssh/authorized_keys.d"), home.join(KEYS)]
            {
                chown(path, Some(id), None).unwrap();
            }
        }
    }),
    ("pwunconv", |node| {
        program(node, "pwunconv", &[]);
        program(node, "pwconv", &[]);
    }),
    ("record", |node| fs::remove_file(node.path(&format!("root/{STATE}/accounts.json"))).unwrap()),
    ("state", |node| {
        fs::remove_dir_all(node.path(&format!("root/{STATE}"))).unwrap();
        applied(node, "a.json", "again");
    }),
];

/// What a config gave is never the host's original, whatever became of the agent's record.
#[test]
fn key_of_config_is_no_original_of_account() {
    for (case, lose) in LOST {
        let node = host();
        let account = |name: &str, password: &str| json!({"name": name, "sshAuthorizedKeys": [K1], "passwordHash": password, "groups": ["wheel"]});
        let both = |password: &str| users(json!([account("app", password), account("guest", password)]));
        node.put("a.json", config("rendered-a", &both("$6$one")));
        node.put("b.json", config("rendered-b", &both("$6$two")));
        applied(&node, "a.json", case);
        lose(&node);
        applied(&node, "b.json", case);
        for user in ["app", "guest"] {
            assert!(line(&node, "shadow", user).starts_with(&format!("{user}:$6$two:")), "{case}");
        }
        applied(&node, "none.json", case);
        let verified = verify(&node);
        assert_eq!(verified.code, 0, "{case}: {}", verified.out);
        for user in ["app", "guest"] {
            assert_eq!(keys(&node, user), "", "{case} {user}: a revoked key came back");
            let shadow = line(&node, "shadow", user);
            assert!(!shadow.contains("$6$one") && !shadow.contains("$6$two"), "{case}: {shadow}");
        }
        assert_eq!(line(&node, "group", "wheel"), "wheel:x:10:ann", "{case}");
        // pwunconv takes the mark of all accounts.
        let is_locked = line(&node, "shadow", "app").split(':').nth(7) == Some("1");
        assert_eq!(is_locked, case != "pwunconv", "{case}");
    }
}

/// Lines of a person in the same file stay; a key that both list is the config's.
#[test]
fn key_of_config_leaves_file_of_person() {
    let node = host();
    let path = node.path(&keys_path("guest"));
    node.put(&keys_path("guest"), format!("{K1}\n"));
    for path in [".ssh", ".ssh/authorized_keys.d", KEYS] {
        chown(node.path("root/home/guest").join(path), Some(1100), Some(1100)).unwrap();
    }
    for directory in ["root/home/guest/.ssh", "root/home/guest/.ssh/authorized_keys.d"] {
        node.mode(directory, 0o700);
    }
    node.mode(&keys_path("guest"), 0o600);
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    fs::write(&path, format!("{K1}\nssh-ed25519 AAAA own\n")).unwrap();
    applied(&node, "none.json", "none");
    assert_eq!(keys(&node, "guest"), "ssh-ed25519 AAAA own\n");
}

/// Memberships that the host gave stay, also where the first config that lists them has nothing to do.
#[test]
fn membership_of_host_stays_whatever_config_lists() {
    let node = host();
    node.put("root/etc/group", node.read("root/etc/group").replace("10:ann", "10:ann,guest"));
    node.put("root/etc/gshadow", node.read("root/etc/gshadow").replace(":ann", ":ann,guest"));
    let guest = |more: Value| {
        let mut user = json!({"name": "guest", "groups": ["wheel"]});
        user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        users(json!([user]))
    };
    node.commit("rendered-a.json", &guest(json!({})));
    node.commit("rendered-b.json", &guest(json!({"gecos": "Managed", "sshAuthorizedKeys": [K1]})));
    applied(&node, "none.json", "none");
    assert_eq!(line(&node, "group", "wheel"), "wheel:x:10:ann,guest");
    assert_eq!(line(&node, "passwd", "guest"), "guest:x:1100:1100:The guest:/home/guest:/bin/sh");
}

/// Another account under the name of one that a config changed gets nothing of it back.
#[test]
fn original_is_of_account_with_its_uid() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "passwordHash": "$6$one"}])));
    program(&node, "userdel", &["guest"]);
    program(&node, "useradd", &["--uid=1300", "--no-create-home", "--password=$6$another", "guest"]);
    let before = line(&node, "shadow", "guest");
    let planned = node.plan("none.json");
    assert!(planned.out.contains("another uid (1300)"), "{}", planned.out);
    applied(&node, "none.json", "none");
    assert_eq!(line(&node, "shadow", "guest"), before);
}

fn not_run(case: &str) {
    ran::not_run(case, "chattr");
}

/// Keys that can't be removed are on record: named by each verb, and removed as soon as nothing keeps them.
#[test]
fn keys_that_could_not_leave_are_named_until_they_are_gone() {
    // The record of accounts is lost, or not.
    for (user, opens, lost) in
        [("guest", true, false), ("guest", true, true), ("app", false, true), ("core", true, false)]
    {
        let node = host();
        node.commit("rendered-a.json", &users(json!([{"name": user, "sshAuthorizedKeys": [K1]}])));
        let Some(flagged) = Flagged::new(node.path(&keys_path(user)), IFlags::IMMUTABLE) else {
            return not_run("keys_that_could_not_leave_are_named_until_they_are_gone");
        };
        if lost {
            fs::remove_file(node.path(&format!("root/{STATE}/accounts.json"))).unwrap();
        }
        let before = node.plan("none.json").out;
        let stay = if opens {
            "the keys stay and open the account"
        } else {
            "the keys stay, and the account is locked"
        };
        assert!(before.contains(stay) && before.contains("chattr -i"), "{user}: {before}");
        applied(&node, "none.json", user);
        node.put(
            "other.json",
            config("rendered-o", &ignition(json!({"passwd": {"groups": [{"name": "gg"}]}}))),
        );
        let verified = verify(&node);
        assert_eq!(verified.code, 1, "{user}: {}", verified.out);
        let planned = [node.plan("none.json").out, node.plan("other.json").out];
        let words = [user, "1 SSH key that left the config could not be removed", "chattr -i"];
        for text in planned.iter().chain([&verified.out, &status(&node)]) {
            assert!(words.iter().all(|word| text.contains(word)), "{user}: {text}");
            assert_eq!(text.contains("and open it"), opens, "{user}: {text}");
        }
        // Another update neither fails nor waits for them, and neither does the same again.
        applied(&node, "other.json", user);
        applied(&node, "other.json", user);
        assert_eq!(verify(&node).code, 1, "{user}");
        assert_eq!(keys(&node, user), format!("{K1}\n"));
        drop(flagged);
        applied(&node, "other.json", user);
        assert_eq!(keys(&node, user), "", "{user}");
        let verified = verify(&node);
        assert_eq!(
            (verified.code, status(&node).contains("SSH key")),
            (0, false),
            "{user}: {}",
            verified.out
        );
    }
}

/// The next update removes them, too; what they stood in the place of comes back then.
#[test]
fn next_update_removes_keys_that_could_not_leave() {
    let node = host();
    node.put(&keys_path("guest"), "ssh-ed25519 AAAA own\n");
    for path in [".ssh", ".ssh/authorized_keys.d", KEYS] {
        chown(node.path("root/home/guest").join(path), Some(1100), Some(1100)).unwrap();
    }
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    let Some(flagged) = Flagged::new(node.path(&keys_path("guest")), IFlags::IMMUTABLE) else {
        return not_run("next_update_removes_keys_that_could_not_leave");
    };
    applied(&node, "none.json", "none");
    drop(flagged);
    node.put("b.json", config("rendered-b", &users(json!([{"name": "guest", "gecos": "Managed"}]))));
    let planned = node.plan("b.json").out;
    assert!(planned.contains("set-ssh-keys  guest"), "{planned}");
    applied(&node, "b.json", "b");
    assert_eq!(keys(&node, "guest"), "ssh-ed25519 AAAA own\n");
    assert_eq!(verify(&node).code, 0);
}

/// A key that stayed is no original of the next config.
#[test]
fn key_that_could_not_leave_does_not_come_back() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    let Some(flagged) = Flagged::new(node.path(&keys_path("guest")), IFlags::IMMUTABLE) else {
        return not_run("key_that_could_not_leave_does_not_come_back");
    };
    applied(&node, "none.json", "none");
    drop(flagged);
    node.commit("rendered-c.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K2]}])));
    applied(&node, "none.json", "none");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (String::new(), 0));
}

/// An account that was locked is opened without its old keys, or not at all.
#[test]
fn locked_account_is_not_opened_with_old_keys() {
    let node = host();
    node.commit("rendered-a.json", &users(json!([{"name": "app", "sshAuthorizedKeys": [K1]}])));
    let Some(flagged) = Flagged::new(node.path(&keys_path("app")), IFlags::IMMUTABLE) else {
        return not_run("locked_account_is_not_opened_with_old_keys");
    };
    let absent = users(json!([{"name": "app", "shouldExist": false}]));
    node.put("absent.json", config("rendered-absent", &absent));
    assert_eq!(node.plan("absent.json").code, 0);
    applied(&node, "absent.json", "absent");
    node.put("c.json", config("rendered-c", &users(json!([{"name": "app"}]))));
    let before = line(&node, "shadow", "app");
    for target in ["absent.json", "none.json"] {
        applied(&node, target, target);
        for ran in [node.plan("c.json"), node.apply("c.json")] {
            assert!(ran.code == 3 && (ran.out + &ran.err).contains("chattr -i"), "{target}");
        }
        assert_eq!(line(&node, "shadow", "app"), before, "{target}");
    }
    drop(flagged);
    applied(&node, "c.json", "c");
    assert_eq!(keys(&node, "app"), "");
    assert_eq!(line(&node, "shadow", "app").split(':').nth(7), Some(""));
}

/// A file system that is read-only: `plan` and `apply` agree, and the next step is said.
#[test]
fn keys_on_read_only_file_system_are_left_and_named() {
    let node = host();
    let home = node.text("root/home/guest");
    let mount = |arguments: &[&str]| {
        let mut command = Command::new("mount");
        command.args(arguments).arg(&home).output().is_ok_and(|output| output.status.success())
    };
    if !mount(&["-t", "tmpfs", "none"]) {
        return ran::not_run("keys_on_read_only_file_system_are_left_and_named", "mount");
    }
    let _mounted = Mounted(home.clone());
    chown(&home, Some(1100), Some(1100)).unwrap();
    node.mode("root/home/guest", 0o700);
    node.commit("rendered-a.json", &users(json!([{"name": "guest", "sshAuthorizedKeys": [K1]}])));
    assert!(mount(&["-o", "remount,ro"]));
    let planned = node.plan("none.json");
    assert!(planned.code == 0 && planned.out.contains("remount it"), "{}", planned.out);
    applied(&node, "none.json", "read-only");
    let verified = verify(&node);
    assert!(verified.code == 1 && verified.out.contains("remount it"), "{}", verified.out);
    assert!(mount(&["-o", "remount,rw"]));
    applied(&node, "none.json", "writable");
    assert_eq!((keys(&node, "guest"), verify(&node).code), (String::new(), 0));
}

/// A mount, until the end.
struct Mounted(String);

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).output());
    }
}

/// Two accounts with one home: the keys of one would go with those of the other.
#[test]
fn shared_home_is_refused_before_keys_of_another_go() {
    for (old, new) in [("guest", "core"), ("core", "guest")] {
        let node = host();
        let passwd = node.read("root/etc/passwd");
        let shared =
            passwd.replace("guest:x:1100:1100:The guest:/home/guest", "guest:x:1000:1000::/home/core");
        node.put("root/etc/passwd", shared);
        let of = |user: &str| users(json!([{"name": user, "sshAuthorizedKeys": [K1]}]));
        node.commit("rendered-a.json", &of(old));
        node.put("b.json", config("rendered-b", &of(new)));
        let before = keys(&node, "core");
        for ran in [node.plan("b.json"), node.apply("b.json")] {
            let text = ran.out + &ran.err;
            let words = ["core", "guest", "/home/core", "usermod --home"];
            assert!(
                ran.code == 3 && words.iter().all(|word| text.contains(word)),
                "{old}: {} {text}",
                ran.code
            );
        }
        assert_eq!(keys(&node, "core"), before);
        // With a home of its own.
        let other = node
            .read("root/etc/passwd")
            .replace("guest:x:1000:1000::/home/core", "guest:x:1100:1100::/home/guest");
        node.put("root/etc/passwd", other);
        node.put("b.json", config("rendered-b", &of("guest")));
        applied(&node, "none.json", old);
        applied(&node, "b.json", old);
    }
}

/// useradd, usermod and groupadd write the databases as new files, which inherit a default access list.
#[test]
fn default_access_list_of_etc_is_refused_before_program_writes() {
    if Command::new("setfacl").arg("--version").output().is_err() {
        return ran::not_run("default_access_list_of_etc_is_refused_before_program_writes", "setfacl");
    }
    let group = ignition(json!({"passwd": {"groups": [{"name": "gg"}]}}));
    let cases = [
        ("useradd", users(json!([{"name": "bob"}]))),
        ("usermod", users(json!([{"name": "guest", "shell": "/bin/bash"}]))),
        ("groupadd", group),
    ];
    for (program, target) in cases {
        let node = host();
        let etc = node.path("root/etc");
        let setfacl = |arguments: &[&str]| {
            assert!(
                Command::new("setfacl").args(arguments).arg(&etc).status().unwrap().success(),
                "{arguments:?}"
            );
        };
        node.mode("root/etc/shadow", 0o640);
        node.put("b.json", config("rendered-b", &target));
        setfacl(&["-d", "-m", "u:1234:rwx"]);
        let before = node.listing("root/etc");
        for ran in [node.plan("b.json"), node.apply("b.json")] {
            let text = ran.out + &ran.err;
            let words = ["default access list", "/etc/shadow", "setfacl -k /etc"];
            assert!(ran.code == 3 && words.iter().all(|word| text.contains(word)), "{program}: {text}");
        }
        assert_eq!(node.listing("root/etc"), before, "{program}");
        setfacl(&["-k"]);
        applied(&node, "b.json", program);
        for name in ["passwd", "shadow", "group", "gshadow"] {
            assert_eq!(lists(&etc.join(name)), [""; 0], "{program} {name}");
        }
        // One that says no more than a mode is no list, and what runs no program passes none on.
        setfacl(&["-d", "-m", "u::rwx,g::rx,o::rx"]);
        applied(&node, "none.json", program);
        applied(&node, "b.json", program);
        for name in ["passwd", "shadow", "group", "gshadow"] {
            assert_eq!(lists(&etc.join(name)), [""; 0], "{program} {name}");
        }
        pass_on(&etc);
        node.put(
            "password.json",
            config("rendered-p", &users(json!([{"name": "core", "passwordHash": "$6$x"}]))),
        );
        let planned = node.plan("password.json");
        assert!(!planned.out.contains("set-password") || planned.code == 0, "{program}: {}", planned.out);
    }
}

/// What a person renamed stays, and the plan names it.
#[test]
fn renamed_accounts_and_groups_are_named_when_config_leaves() {
    let node = host();
    let target = ignition(json!({"passwd": {
        "groups": [{"name": "staff", "gid": 1600}, {"name": "ops", "gid": 1601}],
        "users": [{"name": "app", "sshAuthorizedKeys": [K1]}, {"name": "guest", "gecos": "Managed"}]}}));
    node.commit("rendered-a.json", &target);
    program(&node, "groupmod", &["--new-name=staff2", "staff"]);
    program(&node, "groupmod", &["--gid=1700", "ops"]);
    program(&node, "usermod", &["--login=app2", "app"]);
    program(&node, "usermod", &["--login=guest2", "guest"]);
    let planned = node.plan("none.json");
    let words =
        ["staff2", "groupdel staff2", "app2", "usermod --lock --expiredate 1 app2", "guest2", "its uid 1100"];
    assert!(words.iter().all(|word| planned.out.contains(word)), "{}", planned.out);
    let before = ["app2", "guest2"].map(|name| (line(&node, "passwd", name), line(&node, "shadow", name)));
    applied(&node, "none.json", "none");
    assert_eq!(
        ["app2", "guest2"].map(|name| (line(&node, "passwd", name), line(&node, "shadow", name))),
        before
    );
    assert_eq!(keys(&node, "app"), "", "a key of the config is known where it was written");
    assert_eq!(line(&node, "group", "staff2"), "staff2:x:1600:");
    assert_eq!(line(&node, "group", "ops"), "", "the agent's, by its mark");
}

/// useradd makes the group of a new user after it has looked for its other groups.
#[test]
fn group_of_new_user_may_be_listed() {
    let node = host();
    node.put("b.json", config("rendered-b", &users(json!([{"name": "bob", "groups": ["bob", "wheel"]}]))));
    let planned = node.plan("b.json");
    assert_eq!(planned.code, 0, "{}", planned.err);
    applied(&node, "b.json", "bob");
    assert_eq!(line(&node, "group", "wheel"), "wheel:x:10:ann,bob");
    let verified = verify(&node);
    assert_eq!(verified.code, 0, "{}", verified.out);
}

/// machine-config-daemon wrote the keys of all users into the file of `core`: that is named, and no drift.
#[test]
fn keys_of_others_in_file_of_core_are_named_after_import() {
    let node = host();
    let target = users(
        json!([{"name": "core", "sshAuthorizedKeys": [K1]}, {"name": "guest", "sshAuthorizedKeys": [K2]}]),
    );
    node.put("root/etc/machine-config-daemon/currentconfig", config("rendered-a", &target));
    node.put(&keys_path("core"), format!("{K1}\n{K2}\n"));
    for path in [".ssh", ".ssh/authorized_keys.d", KEYS] {
        chown(node.path("root/home/core").join(path), Some(1000), Some(1000)).unwrap();
    }
    node.mode(&keys_path("core"), 0o600);
    let verified = verify(&node);
    assert_eq!(verified.code, 0, "{}", verified.out);
    let words = [r#"passwd.users "core""#, "machine-config-daemon wrote the keys of other users"];
    for text in [verified.out, status(&node)] {
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }
}
