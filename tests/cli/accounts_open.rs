//! What a person does to accounts while an update is open: no lock of his is opened, and an undo leaves what is not the update's.

use std::os::unix::fs::chown;

use serde_json::{Value, json};

use crate::plan_accounts::{applied, host, keys, keys_path, line, program, users};
use crate::test_host::{Node, STATE, apply, config, files, ignition};

fn password(node: &Node) -> String {
    line(node, "shadow", "guest").split(':').nth(1).unwrap_or_default().to_owned()
}

fn spec() -> Value {
    json!([{"name": "guest", "shell": "/bin/zsh", "gecos": "CFG", "passwordHash": "$6$cfg"}])
}

/// A host whose update was killed after it had set the password, for each point of that.
fn killed() -> impl Iterator<Item = (Node, String)> {
    (1..200)
        .map(|point| {
            let node = host();
            node.commit("rendered-a.json", &ignition(json!({})));
            node.put("b.json", config("rendered-b", &users(spec())));
            let mut command = node.command(&apply("b.json"));
            let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
            (node, format!("kill:{point}"), ended.success())
        })
        .take_while(|(_, _, is_done)| !is_done)
        .filter(|(node, _, _)| password(node) == "$6$cfg")
        .map(|(node, case, _)| (node, case))
}

#[test]
fn open_update_opens_no_lock() {
    let (mut refused, mut undone) = (0, 0);
    for (node, case) in killed() {
        program(&node, "usermod", &["-L", "guest"]);
        let (planned, ran) = (node.plan("b.json"), node.apply("b.json"));
        let text = format!("{case}: {}{}{}", planned.out, planned.err, ran.err);
        assert!(password(&node).starts_with('!'), "{text}");
        if ran.code != 0 {
            assert_ne!(planned.code, 0, "{text}");
            refused += 1;
            let is_told =
                |text: &str| text.contains("locked on this host") || text.contains("another password");
            assert!(is_told(&ran.err) && is_told(&(planned.out + &planned.err)), "{text}");
        }
        if ran.code == 4 {
            assert_ne!(node.apply("b.json").code, 0, "{case}");
        }
        let ran = node.apply("none.json");
        let text = format!("{text}{}", ran.err);
        assert!(password(&node) == "!$6$own", "{}: {text}", password(&node));
        undone += usize::from(text.contains("The account guest was changed on this host"));
    }
    assert!(refused > 3 && undone > 3, "{refused} {undone}");
}

/// After the reboot it is planned anew.
#[test]
fn update_that_waits_for_its_reboot_opens_no_lock() {
    let node = host();
    node.commit("rendered-a.json", &ignition(json!({})));
    let mut both = files(&[("/usr/local/b", "new")]);
    both["config"]["passwd"] = json!({ "users": spec() });
    node.put("b.json", config("rendered-b", &both));
    let words = ["apply", "--to", "b.json", "--yes", "--no-reboot", "--root", "root", "--os-backend", "none"];
    assert_eq!(node.run(&words).code, 0);
    assert_eq!(password(&node), "$6$cfg");
    program(&node, "usermod", &["-L", "guest"]);
    node.put("root/proc/sys/kernel/random/boot_id", "1f1e2d3c-4b5a-4978-8796-a5b4c3d2e1f0\n");
    let ran = node.run(&words);
    assert_eq!((ran.code, password(&node).as_str()), (3, "!$6$cfg"), "{}", ran.err);
    assert!(ran.err.contains("locked on this host"), "{}", ran.err);
    program(&node, "usermod", &["-U", "guest"]);
    let ran = node.run(&words);
    assert_eq!(ran.code, 0, "{}", ran.err);
}

/// Neither does a config with another password; nor the first one of an account that was locked before it. One that never had a password gets it.
#[test]
fn new_password_opens_no_lock() {
    let node = host();
    node.commit("rendered-a.json", &users(spec()));
    program(&node, "usermod", &["-L", "guest"]);
    node.put("b.json", config("rendered-b", &users(json!([{"name": "guest", "passwordHash": "$6$two"}]))));
    let (planned, ran) = (node.plan("b.json"), node.apply("b.json"));
    let text = format!("{}{}{}", planned.out, planned.err, ran.err);
    assert_eq!((planned.code, ran.code, password(&node).as_str()), (3, 3, "!$6$cfg"), "{text}");
    assert!(planned.out.contains("locked on this host") && ran.err.contains("locked on this host"), "{text}");
    program(&node, "usermod", &["-U", "guest"]);
    applied(&node, "b.json", "unlocked");

    let node = host();
    program(&node, "usermod", &["-L", "guest"]);
    node.put("b.json", config("rendered-b", &users(spec())));
    let planned = node.plan("b.json");
    assert!(planned.code == 3 && planned.out.contains("locked on this host"), "{}", planned.out);
    program(&node, "usermod", &["-p", "!!", "guest"]);
    applied(&node, "b.json", "first");
}

/// As when the config leaves: what is not the update's value any more stays, and is named.
#[test]
fn undo_leaves_what_person_has_changed_since() {
    let changes: [(&str, &[&str], &str, &str); 6] = [
        ("password", &["-p", "$6$person"], "shadow", "guest:$6$person:"),
        ("comment", &["-c", "Person"], "passwd", ":Person:"),
        ("shell", &["-s", "/bin/person"], "passwd", ":/bin/person"),
        ("home", &["-d", "/srv/g"], "passwd", ":/srv/g:"),
        ("expiry", &["-e", "1970-01-02"], "shadow", ":1:"),
        ("password", &["-L"], "shadow", "guest:!$6$own:"),
    ];
    let mut undone = 0;
    for (index, (node, case)) in killed().enumerate() {
        let (part, words, database, left) = changes[index % changes.len()];
        program(&node, "usermod", &[words, &["guest"]].concat());
        let planned = node.plan("none.json").out;
        let ran = node.apply("none.json");
        let text = format!("{case} {part}: {planned}{}\n{}", ran.err, line(&node, database, "guest"));
        assert!(ran.code == 0 && line(&node, database, "guest").contains(left), "{text}");
        if ran.err.contains("rolling back") {
            undone += 1;
            assert!(ran.err.contains(&format!("since the update ({part})")), "{text}");
            let words = format!("The undo keeps what was changed on this host since: account guest ({part})");
            assert!(planned.contains(&words), "{text}");
        }
        let others = [("passwd", "The guest"), ("passwd", ":/bin/sh"), ("shadow", "$6$own")];
        for (database, value) in others {
            let is_changed = line(&node, database, "guest").contains(left);
            assert!(is_changed || line(&node, database, "guest").contains(value), "{text}");
        }
    }
    assert!(undone >= changes.len(), "{undone}");
}

/// What a person adds to the keys file of the config while the update is open stays, and what he takes away stays away.
#[test]
fn undo_keeps_lines_of_person_in_keys_file() {
    let [old_key, both, new, person] =
        ["ssh-ed25519 AAAA old", "ssh-ed25519 AAAB both", "ssh-ed25519 AAAC new", "ssh-ed25519 AAAD person"];
    let spec = |keys: &[&str]| users(json!([{"name": "guest", "sshAuthorizedKeys": keys}]));
    let cases = [(spec(&[both, new]), true), (spec(&[both, new]), false), (ignition(json!({})), false)];
    for (target, takes) in cases {
        let mut undone = 0;
        for point in 1..200 {
            let node = host();
            node.commit("rendered-a.json", &spec(&[old_key, both]));
            node.put("b.json", config("rendered-b", &target));
            node.put("c.json", config("rendered-c", &spec(&[old_key, both, person])));
            let mut command = node.command(&apply("b.json"));
            let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
            let record = std::fs::read_to_string(node.path(&format!("root/{STATE}/record.json")));
            if ended.success() || record.is_ok_and(|record| record.contains("erifying")) {
                break;
            }
            let at = keys_path("guest");
            let before = keys(&node, "guest");
            let mut text = before.clone();
            if before == format!("{old_key}\n{both}\n") {
                // The file is as it was before the update.
                continue;
            }
            if takes {
                text = text.replace(&format!("{both}\n"), "");
            }
            node.put(&at, format!("{text}{person}\n"));
            chown(node.path(&at), Some(1100), Some(1100)).unwrap();
            node.mode(&at, 0o600);
            let ran = node.apply("rendered-a.json");
            let said = format!("kill:{point} {takes}: {}", ran.err);
            if !ran.err.contains("rolling back") {
                continue;
            }
            undone += 1;
            assert!(
                ran.err.contains("The account guest was changed on this host since the update (keys"),
                "{said}"
            );
            let left = if takes {
                format!("{old_key}\n{person}\n")
            } else {
                format!("{old_key}\n{both}\n{person}\n")
            };
            assert_eq!(keys(&node, "guest"), left, "{said}");
            if !takes {
                applied(&node, "c.json", "c");
            }
        }
        assert!(undone > 0, "{undone}");
    }
}
