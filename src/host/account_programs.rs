//! The host's own programs for accounts: useradd, usermod and groupadd.
//!
//! The machine's own root is changed as Ignition does it, without a prefix. A root in a directory is changed with
//! `--prefix`, which needs no program in it; `--root` would need the whole of libc there. With a prefix the programs follow
//! links of that root to the machine's own files, so the databases have to be plain files there, and the home is made by the
//! agent. Passwords are never arguments: everyone may read those.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::fs::Access;

use super::accounts::Accounts;
use super::root::Root;
use super::{HostError, command, durable};
pub(in crate::host) use crate::model::ids::ACCOUNT_DATABASES as DATABASES;
use crate::model::observation::ObservedFile;
use crate::model::users::{Account, Group};

/// Directories of the programs.
const DIRECTORIES: [&str; 4] = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
const PROGRAMS: [&str; 3] = ["useradd", "usermod", "groupadd"];

/// They wait 15 seconds for the lock of lckpwdf(3).
const LIMIT: Duration = Duration::from_secs(120);
/// Name services of a network may be away.
const NSS_LIMIT: Duration = Duration::from_secs(5);
pub(in crate::host) const DEFAULTS: &str = "/etc/default/useradd";
/// Ranges of ids, and defaults of passwords.
pub(in crate::host) const LOGIN_DEFS: &str = "/etc/login.defs";
/// Mode of a home that the agent makes.
const HOME_MODE: u32 = 0o700;

fn find(program: &str) -> Option<String> {
    let at = DIRECTORIES.iter().map(|directory| format!("{directory}/{program}"));
    at.into_iter().find(|path| rustix::fs::access(path.as_str(), Access::EXEC_OK).is_ok())
}

fn found(program: &'static str) -> Result<String, HostError> {
    find(program).ok_or_else(|| HostError::Command {
        program: program.to_owned(),
        cause: "it is not on this host (package shadow-utils, passwd or shadow)".to_owned(),
    })
}

/// Returns the programs that the host lacks.
pub fn missing() -> BTreeSet<String> {
    PROGRAMS.into_iter().filter(|program| find(program).is_none()).map(str::to_owned).collect()
}

/// Returns true if the host's name services know a name of a database that the database itself may lack (`getent`): useradd and groupadd
/// refuse to make it. With a prefix they do not ask, and one that does not answer is not awaited.
pub async fn is_known(root: &Root, database: &str, name: &str) -> bool {
    let Some(getent) = find("getent").filter(|_| root.is_machine()) else { return false };
    command::output(&getent, &[database, name], NSS_LIMIT).await.is_ok()
}

/// Returns the home of an account that is made; `None` if none is.
pub fn home_of(root: &Root, name: &str, account: &Account) -> Result<Option<String>, HostError> {
    if account.makes_home() { default_home(root, name, account).map(Some) } else { Ok(None) }
}

/// Returns the home that an account is given, whether it is made or not.
pub fn default_home(root: &Root, name: &str, account: &Account) -> Result<String, HostError> {
    if let Some(home) = &account.home {
        return Ok(home.clone());
    }
    let base = default_of(root, "HOME=", "/home")?;
    Ok(format!("{}/{name}", base.trim_end_matches('/')))
}

/// Returns a path that useradd takes from its defaults.
pub(in crate::host) fn default_of(root: &Root, key: &str, otherwise: &str) -> Result<String, HostError> {
    // What is no file is an obstacle of its own.
    let defaults = match root.read(DEFAULTS) {
        Err(HostError::Kind { .. }) => Vec::new(),
        read => read?.unwrap_or_default(),
    };
    let defaults = String::from_utf8_lossy(&defaults);
    let path = defaults.lines().find_map(|line| line.trim().strip_prefix(key).map(str::trim));
    Ok(path.filter(|path| path.starts_with('/')).unwrap_or(otherwise).to_owned())
}

/// Returns the shell of accounts that are made without one, as useradd itself says.
pub async fn default_shell(root: &Root) -> Result<String, HostError> {
    let mut arguments = vec!["-D".to_owned()];
    if !root.is_machine() {
        arguments.extend(["--prefix".to_owned(), root.base_path()?.display().to_string()]);
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let defaults = command::output(&found("useradd")?, &arguments, LIMIT).await?;
    let shell = defaults.lines().find_map(|line| line.strip_prefix("SHELL="));
    Ok(shell.unwrap_or_default().to_owned())
}

/// Makes a group.
pub async fn create_group(root: &Root, name: &str, group: &Group) -> Result<(), HostError> {
    run(root, "groupadd", group_arguments(group), name).await
}

fn group_arguments(group: &Group) -> Vec<String> {
    let gid = group.gid.map(|gid| format!("--gid={gid}"));
    gid.into_iter().chain(group.system.then(|| "--system".to_owned())).collect()
}

/// Makes an account, without keys and with a locked password.
pub async fn create_user(root: &Root, name: &str, account: &Account) -> Result<(), HostError> {
    let accounts = Accounts::load(root)?;
    let mut arguments = user_arguments(name, account, accounts.group(name).is_some());
    let makes_home = root.is_machine() && account.makes_home();
    arguments.push(if makes_home { "--create-home" } else { "--no-create-home" }.to_owned());
    run(root, "useradd", arguments, name).await?;
    let made = Accounts::load(root)?;
    let user =
        made.user(name).ok_or_else(|| HostError::UnknownAccount { kind: "user", name: name.to_owned() })?;
    let home = user.home.trim_end_matches('/');
    if !root.is_machine() && account.makes_home() && root.observe(home)? == ObservedFile::Absent {
        root.own_dir(home, HOME_MODE, user.uid, user.gid)?;
    }
    match home.rsplit_once('/') {
        Some((above, _)) if !above.is_empty() && account.makes_home() => durable::sync_directory(root, above),
        Some(_) | None => Ok(()),
    }
}

/// Returns the arguments of useradd but for the home's.
fn user_arguments(name: &str, account: &Account, has_group: bool) -> Vec<String> {
    let mut arguments = Vec::new();
    arguments.extend(account.uid.map(|uid| format!("--uid={uid}")));
    arguments.extend(account.gecos.as_ref().map(|gecos| format!("--comment={gecos}")));
    arguments.extend(account.home.as_ref().map(|home| format!("--home-dir={home}")));
    arguments.extend(account.shell.as_ref().map(|shell| format!("--shell={shell}")));
    let group = match &account.primary_group {
        Some(group) => format!("--gid={group}"),
        None if account.no_user_group => "--no-user-group".to_owned(),
        None if has_group => format!("--gid={name}"),
        None => "--user-group".to_owned(),
    };
    arguments.push(group);
    // The group of its name is its primary one, which useradd makes later than it looks at these.
    let groups = account.groups.iter().map(String::as_str);
    let groups: Vec<&str> = groups.filter(|group| !account.has_user_group() || *group != name).collect();
    if !groups.is_empty() {
        arguments.push(format!("--groups={}", groups.join(",")));
    }
    arguments.extend(account.system.then(|| "--system".to_owned()));
    arguments.extend(account.no_log_init.then(|| "--no-log-init".to_owned()));
    arguments
}

/// Sets comment and shell of an account, and adds it to groups.
pub async fn modify_user(
    root: &Root,
    name: &str,
    gecos: Option<&str>,
    shell: Option<&str>,
    groups: &BTreeSet<String>,
) -> Result<(), HostError> {
    let mut arguments = Vec::new();
    arguments.extend(gecos.map(|gecos| format!("--comment={gecos}")));
    arguments.extend(shell.map(|shell| format!("--shell={shell}")));
    if !groups.is_empty() {
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        arguments.extend(["--append".to_owned(), format!("--groups={}", groups.join(","))]);
    }
    if arguments.is_empty() {
        return Ok(());
    }
    run(root, "usermod", arguments, name).await
}

async fn run(
    root: &Root,
    program: &'static str,
    mut arguments: Vec<String>,
    name: &str,
) -> Result<(), HostError> {
    if !root.is_machine() {
        for path in DATABASES {
            plain(root, path)?.map_or(Ok(()), Err)?;
        }
        arguments.extend(["--prefix".to_owned(), root.base_path()?.display().to_string()]);
    }
    arguments.extend(["--".to_owned(), name.to_owned()]);
    let path = found(program)?;
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    command::run(&path, &arguments, LIMIT).await?;
    // Its own sync covers the files, not their names.
    durable::sync_directory(root, "/etc")
}

/// Returns an error for a database that is a link: the programs open none (`O_NOFOLLOW`). Of a root of another machine it may be in no
/// directory that is a link either: the programs would follow that out of the root.
pub(in crate::host) fn plain(root: &Root, path: &str) -> Result<Option<HostError>, HostError> {
    let is_file = matches!(root.observe(path)?, ObservedFile::Regular { .. } | ObservedFile::Absent);
    let is_plain = is_file && (root.is_machine() || root.real_path(path)? == path);
    let error = || HostError::Kind { path: path.to_owned(), expected: "a file", found: "a link" };
    Ok((!is_plain).then(error))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Each field that says how an account is made is an argument: no reader of the databases can tell all of them afterwards.
    #[test]
    fn fields_of_account_are_arguments() {
        let text = |text: &str| Some(text.to_owned());
        let plain = Account::default();
        let of = |account: &Account| user_arguments("app", account, false);
        assert_eq!(of(&plain), ["--user-group"]);
        assert_eq!(user_arguments("app", &plain, true), ["--gid=app"]);
        for (account, expected) in [
            (Account { uid: Some(7), ..plain.clone() }, "--uid=7"),
            (Account { gecos: text("An app"), ..plain.clone() }, "--comment=An app"),
            (Account { home: text("/srv/app"), ..plain.clone() }, "--home-dir=/srv/app"),
            (Account { shell: text("/bin/sh"), ..plain.clone() }, "--shell=/bin/sh"),
            (Account { primary_group: text("web"), ..plain.clone() }, "--gid=web"),
            (Account { no_user_group: true, ..plain.clone() }, "--no-user-group"),
            (Account { groups: ["a", "b"].map(str::to_owned).into(), ..plain.clone() }, "--groups=a,b"),
            (Account { system: true, ..plain.clone() }, "--system"),
            (Account { no_log_init: true, ..plain.clone() }, "--no-log-init"),
        ] {
            assert!(
                of(&account).iter().any(|argument| argument == expected),
                "{expected}: {:?}",
                of(&account)
            );
        }
        assert_eq!(group_arguments(&Group::default()), [""; 0]);
        let group = Group { gid: Some(7), system: true, ..Group::default() };
        assert_eq!(group_arguments(&group), ["--gid=7", "--system"]);
    }

    /// The databases of this machine decide, and those of another root are not asked for.
    #[tokio::test(flavor = "current_thread")]
    async fn names_are_known_by_name_services_of_machine() {
        let machine = Root::open(Path::new("/")).unwrap();
        for database in ["passwd", "group"] {
            assert!(is_known(&machine, database, "root").await, "{database}");
            assert!(!is_known(&machine, database, "no-such-name").await, "{database}");
        }
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_known(&Root::open(dir.path()).unwrap(), "passwd", "root").await);
    }
}
