//! What a person does with `gpasswd` to a group that a config lists: a plan names what it overwrites or takes away, and an undo leaves it.

use serde_json::{Value, json};

use crate::plan_accounts::{applied, host, line};
use crate::test_host::{Node, apply, config, ignition};

/// A host of a config with a group of the agent's and one of the host, both with a password.
fn committed() -> Node {
    let node = host();
    node.commit("rendered-a.json", &groups("$6$a$b", "$6$a$w"));
    node
}

fn groups(own: &str, of_host: &str) -> Value {
    let list = json!([{"name": "gg", "passwordHash": own}, {"name": "wheel", "passwordHash": of_host}]);
    ignition(json!({"passwd": {"groups": list}}))
}

/// Writes the line of a group in `/etc/gshadow`, as `gpasswd` does it: its password, administrators and members.
fn set(node: &Node, group: &str, rest: &str) {
    let text = node.read("root/etc/gshadow");
    let old = line(node, "gshadow", group);
    node.put("root/etc/gshadow", text.replace(&old, &format!("{group}:{rest}")));
}

/// Adds members to a group in `/etc/group`.
fn join(node: &Node, group: &str, members: &str) {
    let old = line(node, "group", group);
    let end = if old.ends_with(':') { members.to_owned() } else { format!(",{members}") };
    node.put("root/etc/group", node.read("root/etc/group").replace(&old, &format!("{old}{end}")));
}

#[test]
fn new_hash_of_config_warns_of_password_of_person() {
    let node = committed();
    set(&node, "gg", "$6$person:ann:bob");
    set(&node, "wheel", "$6$persons::ann");
    node.put("b.json", config("rendered-b", &groups("$6$b$b", "$6$b$w")));
    let planned = node.plan("b.json").out;
    for group in ["gg", "wheel"] {
        let words = format!("passwd.groups \"{group}\" passwordHash: it was changed on this host");
        assert!(planned.contains(&words), "{planned}");
    }
    applied(&node, "b.json", "b");
    // No other part of the line is the config's.
    assert_eq!(line(&node, "gshadow", "gg"), "gg:$6$b$b:ann:bob");
    // What no person has changed is no reason to warn.
    node.put("c.json", config("rendered-c", &groups("$6$c$b", "$6$c$w")));
    let planned = node.plan("c.json").out;
    assert!(planned.contains("modify-group") && !planned.contains("Warn"), "{planned}");
}

/// Nor does the first config that sets one take the password of a host in silence.
#[test]
fn first_config_that_closes_group_warns() {
    let node = host();
    set(&node, "wheel", "$6$own::ann");
    for (hash, is_named) in [("!", true), ("$6$new", false)] {
        let list = json!([{"name": "wheel", "passwordHash": hash}]);
        node.put("b.json", config("rendered-b", &ignition(json!({"passwd": {"groups": list}}))));
        let planned = node.plan("b.json").out;
        assert!(planned.contains("modify-group"), "{planned}");
        assert_eq!(planned.contains("the group has a password on this host"), is_named, "{hash}: {planned}");
    }
}

/// A group of the agent's that leaves goes with those whom a person made members or administrators of it.
#[test]
fn people_of_group_that_goes_are_named() {
    let list = json!({"groups": [{"name": "gg"}], "users": [{"name": "guest", "groups": ["gg"]}]});
    let node = host();
    node.commit("rendered-a.json", &ignition(json!({ "passwd": list })));
    let words = "members or administrators of the group that no config lists";
    let planned = node.plan("none.json").out;
    assert!(planned.contains("remove-group") && !planned.contains(words), "{planned}");
    join(&node, "gg", "bob");
    set(&node, "gg", "!machine-config-agent:ann:guest,bob");
    let gone = json!({"groups": [{"name": "gg", "shouldExist": false}]});
    node.put("b.json", config("rendered-b", &ignition(json!({ "passwd": gone }))));
    for target in ["none.json", "b.json"] {
        let planned = node.plan(target).out;
        assert!(planned.contains(words) && planned.contains("(ann, bob)"), "{target}: {planned}");
        assert!(planned.contains("passwd.groups \"gg\":"), "{target}: {planned}");
    }
    applied(&node, "none.json", "none");
    assert_eq!(line(&node, "group", "gg"), "");
}

/// A host whose update of groups and memberships was killed at a point; `None` once it is not.
fn killed(point: usize) -> Option<Node> {
    let node = host();
    node.put(
        "root/etc/group",
        node.read("root/etc/group").replace("10:ann", "10:ann,guest") + "ops:x:20:eve\nadm:x:30:\n",
    );
    let gshadow = node.read("root/etc/gshadow").replace("!::ann", "!::ann,guest");
    node.put("root/etc/gshadow", gshadow + "ops:!::eve\nadm:!::\n");
    node.commit("rendered-a.json", &ignition(json!({})));
    let passwd = json!({"groups": [{"name": "wheel", "passwordHash": "$6$cfg"}, {"name": "ops", "passwordHash": "$6$ops"}],
        "users": [{"name": "guest", "groups": ["ops"]}]});
    node.put("b.json", config("rendered-b", &ignition(json!({ "passwd": passwd }))));
    let mut command = node.command(&apply("b.json"));
    let ended = command.env("MCA_FAIL_POINT", format!("kill:{point}")).output().unwrap().status;
    (!ended.success()).then_some(node)
}

#[test]
fn undo_leaves_what_person_has_changed_of_groups() {
    let mut undone = 0;
    for point in 1..200 {
        let Some(node) = killed(point) else { break };
        let is_set = line(&node, "gshadow", "wheel").starts_with("wheel:$6$cfg");
        // A password, an administrator, a member more and one less.
        set(&node, "wheel", "$6$person:ann:ann,bob");
        let group = node.read("root/etc/group").replace("10:ann,guest", "10:ann,bob");
        node.put("root/etc/group", group);
        join(&node, "adm", "guest");
        set(&node, "adm", "!::guest");
        let planned = node.plan("none.json").out;
        let ran = node.apply("none.json");
        let text = format!("kill:{point}: {planned}{}", ran.err);
        assert_eq!(ran.code, 0, "{text}");
        assert_eq!(line(&node, "gshadow", "wheel"), "wheel:$6$person:ann:ann,bob", "{text}");
        assert_eq!(line(&node, "group", "wheel"), "wheel:x:10:ann,bob", "{text}");
        // What the update did is undone.
        assert_eq!(line(&node, "gshadow", "ops"), "ops:!::eve", "{text}");
        assert_eq!(line(&node, "group", "ops"), "ops:x:20:eve", "{text}");
        assert_eq!(line(&node, "group", "adm"), "adm:x:30:guest", "{text}");
        if is_set && ran.err.contains("rolling back") {
            undone += 1;
            let words = "The group wheel was changed on this host since the update (administrators, members, password)";
            assert!(ran.err.contains(words), "{text}");
            assert!(planned.contains("group wheel (administrators, members, password)"), "{text}");
        }
    }
    assert!(undone > 3, "{undone}");
}
