//! `passwd.users`: keys and password of `core`. Other settings are listed; the reconcilability check
//! refuses it only when the section changes, because it may be there since the installation (RC5, RC6).

use ignition_config::v3_6::User;

use super::super::UserName;
use super::super::error::ModelError;
use super::super::text::short;
use super::super::users::{CORE, Core, PasswordHash, SshKey, Unsupported, UnsupportedUser, Users};
use super::within::Within;

/// Reads all users.
pub(super) fn read(within: Within<'_>, users: Vec<User>) -> Result<Users, ModelError> {
    let mut read = Users::default();
    let mut sets = false;
    let mut names = std::collections::BTreeSet::new();
    for user in users {
        let field = format!("passwd.users {:?}", short(&user.name, 40));
        let name = UserName::new(user.name.as_str())
            .map_err(|error| within.error(field.clone(), error.to_string()))?;
        if !names.insert(name.clone()) {
            return Err(within.unreachable(field, "the user is listed twice; keep one entry"));
        }
        let unsupported =
            if name.as_str() == CORE { unsupported(&user) } else { vec![Unsupported::OtherUser] };
        read.unsupported
            .extend(unsupported.into_iter().map(|why| UnsupportedUser { user: name.clone(), why }));
        sets |= sets_something(&user);
        let core =
            read.core.get_or_insert_with(|| Core { keys: Vec::new(), password: PasswordHash::locked() });
        for (place, line) in user.ssh_authorized_keys.unwrap_or_default().into_iter().enumerate() {
            let key = SshKey::new(line).ok_or_else(|| {
                within.error(
                    format!("{field} sshAuthorizedKeys[{place}]"),
                    "a key is one line; list each key by itself",
                )
            })?;
            core.keys.push(key);
        }
        if let (CORE, Some(hash)) = (name.as_str(), user.password_hash.filter(|hash| !hash.is_empty())) {
            core.password = PasswordHash::new(hash).ok_or_else(|| {
                within.error(
                    format!("{field} passwordHash"),
                    "it holds `:` or a line break; give a crypt(3) hash",
                )
            })?;
        }
    }
    // A config without settings changes nothing: MCD refuses such a change, so it was so since the installation.
    read.core = read.core.filter(|_| sets);
    Ok(read)
}

fn sets_something(user: &User) -> bool {
    user.password_hash.is_some() || user.ssh_authorized_keys.as_ref().is_some_and(|keys| !keys.is_empty())
}

fn unsupported(user: &User) -> Vec<Unsupported> {
    let fields = [
        ("gecos", user.gecos.is_some()),
        ("groups", user.groups.as_ref().is_some_and(|groups| !groups.is_empty())),
        ("homeDir", user.home_dir.is_some()),
        ("noCreateHome", user.no_create_home.is_some()),
        ("noLogInit", user.no_log_init.is_some()),
        ("noUserGroup", user.no_user_group.is_some()),
        ("primaryGroup", user.primary_group.is_some()),
        ("shell", user.shell.is_some()),
        ("shouldExist", user.should_exist.is_some()),
        ("system", user.system.is_some()),
        ("uid", user.uid.is_some()),
    ];
    let nothing = (!sets_something(user)).then_some(Unsupported::NothingSet);
    let set = fields.into_iter().filter(|(_, set)| *set).map(|(field, _)| Unsupported::Field(field));
    set.chain(nothing).collect()
}
