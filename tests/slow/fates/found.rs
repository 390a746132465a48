//! Cases that the series found, as small as they are.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::json;

use super::entry::{Check, Entry, Fate};
use super::{Case, Counts, Host, Outcome, play};
use crate::sweep;

fn plays(case: &Case) {
    let home = sweep::scratch();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let played = play(home.path(), case, &mut Counts::default());
    assert!(played.is_ok(), "{played:?}");
}

/// An update was rolled back after its write: the lock that was asked for was not seen as one.
#[test]
fn locked_password_of_group_is_applied() {
    for hash in ["*", "!", "!$6$a$b"] {
        let mut group = Entry::new("config.passwd.groups");
        group.set("name", json!("ops"), Fate::Way);
        let check = Check::Shadow("gshadow", "ops".to_owned(), hash.to_owned());
        group.set("passwordHash", json!(hash), Fate::Applied(check));
        plays(&Case { host: vec![], first: vec![group.clone()], second: vec![group] });
    }
}

/// A kernel that does not report its FIPS mode is not in it, and this host has no OS backend.
#[test]
fn fips_is_refused_where_kernel_does_not_report_it() {
    let home = sweep::scratch();
    let mut host = Host::new(home.path().join("host"), &[]);
    fs::remove_file(host.root().join("proc/sys/crypto/fips_enabled")).unwrap();
    let mut entry = Entry::new("");
    entry.set("fips", json!(true), Fate::Refused);
    let played = host.play("first", &[entry], &mut Counts::default());
    assert!(matches!(played, Ok(Outcome::Refused)), "{played:?}");
}

fn user(groups: &[&str], more: &[(&str, serde_json::Value)]) -> Entry {
    let mut user = Entry::new("config.passwd.users");
    user.set("name", json!("svc"), Fate::Way);
    if !groups.is_empty() {
        let checks = groups.iter().map(|group| Check::Member("svc".to_owned(), (*group).to_owned()));
        for check in checks {
            user.implied.push(check);
        }
        user.set("groups", json!(groups), Fate::Way);
    }
    for (field, value) in more {
        user.set(field, value.clone(), Fate::Way);
    }
    user
}

/// An account that must not exist is in no group that an earlier config gave it.
#[test]
fn account_that_must_not_exist_leaves_its_groups() {
    let second = vec![user(&[], &[("shouldExist", json!(false))])];
    plays(&Case { host: vec![], first: vec![user(&["wheel"], &[])], second });
}

/// A user that was made with another primary group has brought none of its name.
#[test]
fn group_that_no_account_brings_is_refused() {
    let of_wheel = user(&[], &[("primaryGroup", json!("wheel"))]);
    let mut file = Entry::new("config.storage.files");
    file.set("path", json!("/etc/of-svc"), Fate::Way);
    file.value["group"] = json!({ "name": "svc" });
    file.fates.push(("group.".to_owned(), Fate::Refused));
    let second = vec![of_wheel.clone(), file];
    plays(&Case { host: vec![], first: vec![of_wheel], second });
}

/// An instance was taken for a unit without a file, although the same config brings its template.
#[test]
fn instance_of_template_is_enabled() {
    let mut template = Entry::new("config.systemd.units");
    template.set("name", json!("tpl@.service"), Fate::Way);
    let text = "[Service]\nExecStart=/bin/true %i\n[Install]\nWantedBy=multi-user.target\n";
    let check = Check::Text("/etc/systemd/system/tpl@.service".to_owned(), text.as_bytes().to_vec());
    template.set("contents", json!(text), Fate::Applied(check));
    let mut instance = Entry::new("config.systemd.units");
    instance.set("name", json!("tpl@a.service"), Fate::Way);
    let check = Check::State("tpl@a.service".to_owned(), "enabled");
    instance.set("enabled", json!(true), Fate::Applied(check));
    plays(&Case { host: vec![], first: vec![], second: vec![template, instance] });
}
