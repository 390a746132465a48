//! Obstacles of the steps of accounts and groups on this host.

use std::collections::BTreeMap;

use super::in_the_way::waiting;
use super::input::PlanInput;
use super::reason::{ReasonKind, Unreachable, unreachable};
use super::{Batch, Op, Step};
use crate::model::observation::{Maker, ObservedGroup};
use crate::model::obstacles::{Obstacle, Obstacles};
use crate::model::users::{Account, group_field, groups_field, user_field};
use crate::model::{Principal, UserName};

const PASSWD: &str = "/etc/passwd";
const SHADOW: &str = "/etc/shadow";
const GROUP: &str = "/etc/group";
const GSHADOW: &str = "/etc/gshadow";
const SUBORDINATE: [&str; 2] = ["/etc/subuid", "/etc/subgid"];

impl Op {
    /// Returns true if the step is about a group.
    pub(super) fn is_of_group(&self) -> bool {
        matches!(self, Self::CreateGroup { .. } | Self::ModifyGroup { .. } | Self::RemoveGroup { .. })
    }
}

/// Returns the program that carries a step out, where that is one of the host's.
fn program(op: &Op) -> Option<&'static str> {
    if matches!(op, Op::CreateGroup { .. }) {
        Some("groupadd")
    } else if matches!(op, Op::CreateUser { .. }) {
        Some("useradd")
    } else {
        matches!(op, Op::ModifyUser { .. }).then_some("usermod")
    }
}

/// Returns the databases that a step opens to write.
fn databases(input: &PlanInput<'_>, op: &Op) -> Vec<&'static str> {
    let is_system = |account: &Account| account.system;
    if op.is_of_group() {
        vec![GROUP, GSHADOW]
    } else if let Op::CreateUser { user } = op {
        // A system account has no subordinate ids.
        let alone = input.to.users.accounts.get(user).is_some_and(is_system);
        let more = SUBORDINATE.into_iter().filter(|_| !alone);
        [PASSWD, SHADOW, GROUP, GSHADOW].into_iter().chain(more).collect()
    } else if matches!(op, Op::ModifyUser { .. }) {
        vec![PASSWD, SHADOW, GROUP, GSHADOW]
    } else if matches!(op, Op::SetPassword { .. } | Op::LockUser { .. }) {
        vec![SHADOW]
    } else {
        Vec::new()
    }
}

/// Returns true if a step changes a database of accounts.
pub(super) fn changes_databases(input: &PlanInput<'_>, op: &Op) -> bool {
    !databases(input, op).is_empty()
}

/// Returns the obstacles of the databases that a step changes.
fn closed<'a>(input: &'a PlanInput<'_>, op: &'a Op) -> impl Iterator<Item = &'a Obstacle> {
    let Obstacles {
        databases: closed,
        locks,
        unreadable,
        links,
        backups,
        endless,
        defaults,
        inherited_list,
        password_lock,
        ..
    } = &input.facts.obstacles;
    let opened = databases(input, op);
    let changes = !opened.is_empty();
    // The lines of an account are originals of its keys, too.
    let reads = matches!(op.batch(), Batch::Accounts | Batch::Users);
    let locked = password_lock.as_ref().filter(|_| changes);
    let by_program = program(op).is_some();
    let defaults = defaults.iter().chain(inherited_list).filter(move |_| by_program);
    let others: Vec<_> = unreadable
        .iter()
        .filter(|(database, _)| reads && !opened.contains(&database.as_str()))
        .chain(links.iter().filter(|(database, _)| by_program && !opened.contains(&database.as_str())))
        .map(|(_, obstacle)| obstacle)
        .collect();
    let of_each = opened.into_iter().flat_map(move |database| {
        let of_programs = [locks, backups, endless].into_iter().filter_map(|of| of.get(database));
        closed.get(database).into_iter().chain(of_programs.filter(move |_| by_program))
    });
    locked.into_iter().chain(defaults).chain(of_each).chain(others)
}

/// Returns the obstacles of the databases of accounts, each once, with the first step that it holds.
pub(super) fn databases_blocked(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let mut blocked = BTreeMap::new();
    for step in steps {
        for obstacle in closed(input, &step.op) {
            let name = step.op.target();
            let field = if step.op.is_of_group() {
                group_field(&name)
            } else if matches!(step.op, Op::SetPassword { .. }) {
                format!("{} passwordHash", user_field(&name))
            } else {
                user_field(&name)
            };
            blocked.entry(obstacle.to_string()).or_insert(field);
        }
    }
    blocked.into_iter().map(|(message, field)| unreachable(ReasonKind::Obstacle, field, message)).collect()
}

/// Returns the accounts of the new config that would be members of a group which leaves with the old one, and its entries that would
/// belong to one.
pub(super) fn dropped_groups(input: &PlanInput<'_>, steps: &[Step]) -> Vec<Unreachable> {
    let goes = |group: &str| {
        let removes =
            |step: &Step| matches!(&step.op, Op::RemoveGroup { group: one } if one.as_str() == group);
        steps.iter().any(removes)
    };
    let message = |group: &str| {
        format!(
            "the group {group} is removed with its entry in passwd.groups; keep the entry, or remove the group here"
        )
    };
    let entries = input.to.users.accounts.iter().filter(|(_, account)| account.should_exist);
    let members = entries.flat_map(|(name, account)| account.groups.iter().map(move |group| (name, group)));
    let refused = members.filter(|(_, group)| goes(group)).map(|(name, group)| {
        unreachable(ReasonKind::DroppedGroup, groups_field(name.as_str()), message(group))
    });
    let entries = input.to.entries();
    let owned = entries.iter().filter_map(|(path, entry)| match entry.owners().1 {
        Some(Principal::Name(group)) if goes(group) => Some(unreachable(
            ReasonKind::DroppedGroup,
            format!("{} {:?} group", entry.section(), path.as_str()),
            message(group),
        )),
        Some(_) | None => None,
    });
    refused.chain(owned).collect()
}

/// Returns the obstacles of a step on this host, its databases aside.
pub(super) fn blocked(input: &PlanInput<'_>, step: &Step) -> Vec<Unreachable> {
    let (users, facts, observed) = (&input.to.users, &input.facts.accounts, &input.facts.observed);
    let name = step.op.target();
    let field = if step.op.is_of_group() { group_field(&name) } else { user_field(&name) };
    let mut blocked = Vec::new();
    if let Some(program) = program(&step.op).filter(|program| facts.missing_programs.contains(*program)) {
        let message =
            format!("this host has no {program}; install it (package shadow-utils, passwd or shadow)");
        blocked.push(unreachable(ReasonKind::NoProgram, field.clone(), message));
    }
    if let Op::CreateGroup { group } = &step.op {
        let gid = users.groups.get(group).and_then(|group| group.gid);
        let owner = gid.and_then(|gid| facts.gid_owners.get(&gid));
        blocked.extend(gid.and_then(|gid| taken(&field, "gid", gid, owner, group.as_str())));
    }
    blocked.extend(of_entry(input, &step.op, &field));
    let is_of_image = |group: &ObservedGroup| group.maker == Maker::Image;
    if matches!(step.op, Op::ModifyGroup { .. }) && observed.groups.get(&name).is_some_and(is_of_image) {
        let message = "the group is in /usr/lib/group of the OS image, where it can have no password; copy its line to \
                       /etc/group first";
        blocked.push(unreachable(ReasonKind::OfImage, field.clone(), message));
    }
    let found = observed.accounts.get(&name);
    let has_no_line = found.map_or(facts.lacks_shadow, |found| found.password.is_none());
    if matches!(step.op, Op::SetPassword { .. }) && has_no_line {
        let message = if found.is_some() {
            "the account has no line in /etc/shadow for its password; add one (`pwconv`), or remove passwordHash"
        } else {
            "this host has no /etc/shadow for its password; make it (`pwconv`), or remove passwordHash"
        };
        blocked.push(unreachable(ReasonKind::NoShadow, format!("{field} passwordHash"), message));
    }
    let (Op::CreateUser { user } | Op::ModifyUser { user }) = &step.op else { return blocked };
    if found.is_some_and(|found| found.maker == Maker::Image) {
        let message = "the account is in /usr/lib/passwd of the OS image, which usermod can't change; \
                       copy its line to /etc/passwd first";
        blocked.push(unreachable(ReasonKind::OfImage, field.clone(), message));
    }
    let Some(account) = users.accounts.get(user) else { return blocked };
    if found.is_none() {
        let owner = account.uid.and_then(|uid| facts.uid_owners.get(&uid));
        blocked.extend(account.uid.and_then(|uid| taken(&field, "uid", uid, owner, user.as_str())));
        let home = input.facts.obstacles.homes.get(user.as_str());
        blocked.extend(
            home.map(|home| unreachable(ReasonKind::Obstacle, format!("{field} homeDir"), home.to_string())),
        );
    }
    blocked.extend(groups(input, &field, (user, account)));
    blocked
}

/// Returns the obstacles of the lines and the id of an account or a group.
fn of_entry(input: &PlanInput<'_>, op: &Op, field: &str) -> Vec<Unreachable> {
    let Obstacles { lines, ids, tabs, .. } = &input.facts.obstacles;
    let is_made = matches!(op, Op::CreateGroup { .. } | Op::CreateUser { .. });
    let exhausted = ids.get(field).filter(|_| is_made);
    // Keys are files of the home: no program reads the lines for them.
    let reads_lines = program(op).is_some() || matches!(op, Op::SetPassword { .. });
    let of_groups = groups_field(&op.target());
    let joins = matches!(op, Op::CreateUser { .. } | Op::ModifyUser { .. });
    let groups = lines.get(&of_groups).filter(|_| joins).map(|found| (of_groups.as_str(), found));
    let lines = lines.get(field).filter(|_| reads_lines);
    let with_tabs = [field, of_groups.as_str()].into_iter().filter(|_| joins);
    let with_tabs = with_tabs.filter_map(|field| tabs.get(field).map(|found| (field, found)));
    let found = lines.into_iter().chain(exhausted).map(|found| (field, found)).chain(groups).chain(with_tabs);
    found.map(|(field, found)| unreachable(ReasonKind::Obstacle, field, found.to_string())).collect()
}

fn taken(field: &str, part: &str, id: u32, owner: Option<&String>, name: &str) -> Option<Unreachable> {
    let owner = owner.filter(|owner| owner.as_str() != name)?;
    let (kind, next) =
        if id == 0 { (ReasonKind::Root, "") } else { (ReasonKind::TakenId, ", or free this one") };
    let message = format!("{part} {id} belongs to {owner} on this host; choose another {part}{next}");
    Some(unreachable(kind, format!("{field} {part}"), message))
}

/// Returns the groups that an account can't be given.
fn groups(input: &PlanInput<'_>, field: &str, (user, account): (&UserName, &Account)) -> Vec<Unreachable> {
    let (users, facts) = (&input.to.users, &input.facts.accounts);
    // The group of an account comes with it, and those with a uid come first, then by their names.
    let place = |name: &UserName, account: &Account| (account.uid.is_none(), name.clone());
    let comes_later = |other: &str| {
        let other = users.accounts.iter().find(|(name, _)| name.as_str() == other);
        other.is_some_and(|(name, other)| place(name, other) >= place(user, account))
    };
    let has_user = |user: &str| input.facts.observed.accounts.contains_key(user) || comes_later(user);
    let needed = account.groups.iter().map(|group| ("groups", group));
    let needed = needed.chain(account.primary_group.iter().map(|group| ("primaryGroup", group)));
    let refused = needed.filter_map(|(part, group)| {
        // The group of its name comes with it, as its primary one.
        let is_own = group.as_str() == user.as_str() && account.has_user_group();
        if facts.missing_groups.contains(group)
            && !is_own
            && !input.to.makes_group(input.from, group, has_user)
        {
            let next = waiting(input, "group", group);
            let next = next.unwrap_or_else(|| "add it to passwd.groups, or create it first".to_owned());
            let message = format!("this host has no group {group:?}; {next}");
            return Some(unreachable(ReasonKind::MissingGroup, format!("{field} {part}"), message));
        }
        None
    });
    refused.collect()
}
