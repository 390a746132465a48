//! `passwd`: each account, group, key and membership once.

use ignition_config::v3_6::Passwd;

use super::found::{Found, entry};
use crate::model::text::short;

pub(super) fn check(found: &mut Found, passwd: &Passwd) {
    let users = passwd.users.as_deref().unwrap_or_default();
    for user in users {
        let field = || entry("passwd.users", &user.name);
        let groups = user.groups.iter().flatten().map(String::as_str);
        found.add_repeated(groups, |_, group| format!("{} groups {:?}", field(), short(group, 40)));
        let keys = user.ssh_authorized_keys.iter().flatten().map(String::as_str);
        found.add_repeated(keys, |place, _| format!("{} sshAuthorizedKeys[{place}]", field()));
    }
    found.add_repeated(users.iter().map(|user| user.name.as_str()), |_, name| entry("passwd.users", name));
    let groups = passwd.groups.iter().flatten().map(|group| group.name.as_str());
    found.add_repeated(groups, |_, name| entry("passwd.groups", name));
}
