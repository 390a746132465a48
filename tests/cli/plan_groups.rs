//! Groups on several lines of a database, as shadow-utils splits large ones and as people leave them: no member is lost, an undo brings
//! back the bytes that stood there, and what the host's programs would refuse is refused by `plan`.

use rustix::fs::IFlags;
use serde_json::{Value, json};

use crate::plan_flags::Flagged;
use crate::ran;
use crate::test_host::{Node, STATE, apply, config, files, ignition};

const GROUPS: &str =
    "root:x:0:\nwheel:x:10:ann,core\ncore:x:1000:\nops:x:20:eve\nwheel:x:10:cid\nadm:x:30:\n";
const SHADOWED: &str = "root:*::\nwheel:!:ann:ann,core,cid\ncore:!::\nops:!::eve\nadm:!::\n";

fn host(groups: &str, gshadow: &str, defaults: &str) -> Node {
    let node = Node::new();
    node.put("root/etc/group", groups);
    node.put("root/etc/gshadow", gshadow);
    node.put("root/etc/login.defs", defaults);
    node.put("none.json", config("rendered-none", &files(&[])));
    node
}

fn passwd(passwd: Value) -> Value {
    ignition(json!({ "passwd": passwd }))
}

fn core_in(groups: &[&str]) -> Value {
    passwd(json!({"users": [{"name": "core", "groups": groups}]}))
}

fn databases(node: &Node) -> [String; 2] {
    ["root/etc/group", "root/etc/gshadow"].map(|path| node.read(path))
}

fn is_refused(node: &Node, target: &str, case: &str, words: &[&str]) {
    let before = node.listing("root/etc");
    let (planned, applied) = (node.plan(target), node.apply(target));
    for (code, text) in [(planned.code, planned.out + &planned.err), (applied.code, applied.err)] {
        assert!(code == 3 && words.iter().all(|word| text.contains(word)), "{case}: {code} {text}");
    }
    assert_eq!(node.listing("root/etc"), before, "{case}: it was touched");
}

fn is_applied(node: &Node, target: &str, case: &str) {
    let (planned, applied) = (node.plan(target), node.apply(target));
    let text = format!("{case}: {}{}{}", planned.out, planned.err, applied.err);
    assert_eq!((planned.code, applied.code), (0, 0), "{text}");
}

/// Wherever the update is cut off, its undo leaves each member on its line, and each line at its place.
#[test]
fn undo_brings_back_lines_as_they_were() {
    let everything = json!({"groups": [{"name": "gg", "passwordHash": "$6$a$b"}],
        "users": [{"name": "core", "groups": ["ops", "adm"]}, {"name": "bob", "groups": ["ops", "gg"]}]});
    let wheel = "MAX_MEMBERS_PER_GROUP 2\n";
    for (defaults, target) in [
        ("", passwd(everything)),
        (wheel, core_in(&["ops"])),
        (wheel, passwd(json!({"users": [{"name": "bob", "groups": ["wheel", "ops"]}]}))),
    ] {
        let mut undone = 0;
        for point in 1..200 {
            let node = host(GROUPS, SHADOWED, defaults);
            node.put("b.json", config("rendered-b", &target));
            let mut command = node.command(&apply("b.json"));
            let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
            let record = std::fs::read_to_string(node.path(&format!("root/{STATE}/record.json")));
            // From the verification on the update is committed first.
            if ended.success() || record.is_ok_and(|record| record.contains("erifying")) {
                assert!(undone > 2, "{undone}");
                break;
            }
            let is_changed = databases(&node) != [GROUPS, SHADOWED];
            let applied = node.apply("none.json");
            assert_eq!(applied.code, 0, "kill:{point}: {}", applied.err);
            assert_eq!(databases(&node), [GROUPS, SHADOWED], "{defaults} {target} kill:{point}");
            undone += u32::from(is_changed);
        }
    }
}

/// A person, or shadow-utils, has split a group that a config made an account a member of.
#[test]
fn account_leaves_split_group_alone() {
    let node = host(&GROUPS.replace("ann,core", "ann"), &SHADOWED.replace("ann,core", "ann"), "");
    let single = node.read("root/etc/group").replace("wheel:x:10:cid\n", "");
    node.put("root/etc/group", single);
    node.commit("rendered-a.json", &core_in(&["wheel"]));
    let joined = "wheel:x:10:ann,core\n";
    assert!(node.read("root/etc/group").contains(joined), "{}", node.read("root/etc/group"));
    let split = node.read("root/etc/group").replace(joined, "wheel:x:10:ann\n")
        + "wheel:x:10:core,cid\nwheel:x:10:dan\n";
    node.put("root/etc/group", split);
    let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
    is_applied(&node, "none.json", "none");
    let left = node.read("root/etc/group");
    assert!(
        left.ends_with("wheel:x:10:cid\nwheel:x:10:dan\n") && left.contains("wheel:x:10:ann\n"),
        "{left}"
    );
}

/// What a config does with other groups leaves a split one as it is, and an account that is a member by any line is one.
#[test]
fn member_on_any_line_is_one() {
    for defaults in ["", "MAX_MEMBERS_PER_GROUP 2\n"] {
        let node = host(GROUPS, SHADOWED, defaults);
        node.commit("rendered-a.json", &core_in(&["wheel", "ops"]));
        assert_eq!(node.read("root/etc/group").replace("eve,core", "eve").len(), GROUPS.len(), "{defaults}");
        is_applied(&node, "none.json", "none");
        let mut lines: Vec<String> = node.read("root/etc/group").lines().map(str::to_owned).collect();
        let mut expected: Vec<String> = GROUPS.lines().map(str::to_owned).collect();
        // shadow-utils brings lines of a group together.
        lines.sort();
        expected.sort();
        assert_eq!(lines, expected, "{defaults}");
    }
}

#[test]
fn joined_group_on_several_lines_is_refused_before_anything_is_touched() {
    let (core, bob) = (core_in(&["wheel"]), passwd(json!({"users": [{"name": "bob", "groups": ["wheel"]}]})));
    let double = "root:x:0:\nwheel:x:10:ann\ncore:x:1000:\nwheel:x:10:cid\n";
    let other = double.replace("10:cid", "11:cid");
    let (single, shadowed) = ("root:x:0:\nwheel:x:10:ann,cid\ncore:x:1000:\n", "wheel:!::ann,cid\n");
    for (target, field) in [(core, r#"passwd.users "core" groups"#), (bob, r#"passwd.users "bob" groups"#)] {
        for (group, gshadow, defaults, words) in [
            (double, shadowed, "", "/etc/group has several lines of the group wheel"),
            (
                &*other,
                shadowed,
                "MAX_MEMBERS_PER_GROUP 2\n",
                "/etc/group has several lines of the group wheel",
            ),
            (single, "wheel:!::ann\nwheel:!::cid\n", "", "/etc/gshadow has several lines of the group wheel"),
        ] {
            let node = host(group, gshadow, defaults);
            node.put("b.json", config("rendered-b", &target));
            is_refused(&node, "b.json", words, &[words, field, "vigr", "grpck"]);
            node.put("root/etc/group", single);
            node.put("root/etc/gshadow", shadowed);
            is_applied(&node, "b.json", words);
        }
        // Lines that shadow-utils has split are its own.
        let node = host(double, shadowed, "MAX_MEMBERS_PER_GROUP 1\n");
        node.put("b.json", config("rendered-b", &target));
        is_applied(&node, "b.json", field);
    }
}

/// The locks of accounts can't be opened or removed.
#[test]
fn immutable_locks_of_accounts_are_named() {
    let target = passwd(json!({"users": [{"name": "bob"}]}));
    for (path, text) in [("/etc/.pwd.lock", ""), ("/etc/passwd.lock", "4194303"), ("/etc/passwd-", "")] {
        let node = host(GROUPS, SHADOWED, "");
        node.put("b.json", config("rendered-b", &target));
        node.put(&format!("root{path}"), text);
        let Some(flagged) = Flagged::new(node.path(&format!("root{path}")), IFlags::IMMUTABLE) else {
            ran::not_run("immutable_locks_of_accounts_are_named", "chattr");
            return;
        };
        is_refused(&node, "b.json", path, &[path, "lsattr -d"]);
        drop(flagged);
        is_applied(&node, "b.json", path);
    }
}

/// A home with a part that leads nowhere else is the plain one.
#[test]
fn home_with_dot_is_plain_home() {
    let node = Node::new();
    let accounts = node.read("root/etc/passwd").replace("/home/core", "/home/./core/");
    node.put("root/etc/passwd", accounts);
    std::os::unix::fs::chown(node.path("root/home/core"), Some(1000), Some(1000)).unwrap();
    let keys = passwd(json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-ed25519 AAAA a"]}]}));
    node.put("b.json", config("rendered-b", &keys));
    is_applied(&node, "b.json", "keys");
    assert_eq!(node.read("root/home/core/.ssh/authorized_keys.d/ignition"), "ssh-ed25519 AAAA a\n");
    let verified = node.run(&["verify", "--root", "root", "--os-backend", "none"]);
    assert_eq!(verified.code, 0, "{}", verified.out);
}

/// useradd, usermod and groupadd refuse to write a control character: the line is named before anything is touched. What they do not
/// write anew is in no way.
#[test]
fn control_characters_in_databases_have_one_answer() {
    let bob = |more: Value| {
        let mut user = json!({"name": "bob"});
        user.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        passwd(json!({"users": [user]}))
    };
    let targets = [
        core_in(&["wheel"]),
        passwd(json!({"users": [{"name": "core", "gecos": "Core"}]})),
        passwd(json!({"users": [{"name": "core", "passwordHash": "$6$a$b"}]})),
        bob(json!({"groups": ["wheel"]})),
        passwd(json!({"groups": [{"name": "new"}]})),
    ];
    let (mut refused, mut taken) = (0, 0);
    for (number, target) in targets.iter().enumerate() {
        for database in ["passwd", "group", "gshadow", "shadow"] {
            for (mark, at) in [("\r", "all"), ("\u{c}", "first"), ("\t", "last"), ("\0", "open")] {
                let case = format!("target {number} {database} {mark:?} {at}");
                if is_refused_with_mark(target, (database, mark, at), &case) {
                    refused += 1;
                } else {
                    taken += 1;
                }
            }
        }
    }
    assert!(refused > 25 && taken > 25, "{refused} {taken}");
}

fn is_refused_with_mark(target: &Value, (database, mark, at): (&str, &str, &str), case: &str) -> bool {
    let groups = "root:x:0:\ncore:x:1000:\nwheel:x:10:ann\n";
    let node = host(groups, "root:*::\ncore:!::\nwheel:!::ann\n", "");
    let path = format!("root/etc/{database}");
    node.put(&path, marked(&node.read(&path), mark, at));
    node.put("b.json", config("rendered-b", target));
    let before = node.listing("root/etc");
    let (planned, applied) = (node.plan("b.json"), node.apply("b.json"));
    let text = format!("{case}: {}{}{}", planned.out, planned.err, applied.err);
    assert_eq!(planned.code, applied.code, "{text}");
    if planned.code == 0 {
        return false;
    }
    assert_eq!(planned.code, 3, "{text}");
    assert_eq!(node.listing("root/etc"), before, "{case}: it was touched");
    let words = if planned.out.contains("is not valid") {
        ["/etc/shadow", "pwck"]
    } else {
        [" in line ", "grep -naP"]
    };
    assert!(words.iter().all(|word| planned.out.contains(*word)), "{text}");
    true
}

fn marked(text: &str, mark: &str, at: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let last = lines.len() - 1;
    match at {
        "first" => lines[0] += mark,
        "all" => lines.iter_mut().for_each(|line| *line += mark),
        _ => lines[last] += mark,
    }
    lines.join("\n") + if at == "open" { "" } else { "\n" }
}

/// shadow-utils makes a line of a split group for the account: it goes with the membership.
#[test]
fn line_that_was_made_for_member_goes_with_it() {
    let groups = "root:x:0:\ncore:x:1000:\nwheel:x:10:ann\nadm:x:30:\n";
    let node = host(groups, "root:*::\ncore:!::\nwheel:!::ann\nadm:!::\n", "MAX_MEMBERS_PER_GROUP 1\n");
    node.commit("rendered-a.json", &core_in(&["wheel"]));
    let split = node.read("root/etc/group");
    assert_eq!(split.matches("wheel:x:10:").count(), 2, "{split}");
    is_applied(&node, "none.json", "none");
    let left = node.read("root/etc/group");
    let mut lines: Vec<&str> = left.lines().collect();
    let mut expected: Vec<&str> = groups.lines().collect();
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}
