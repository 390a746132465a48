//! Places of the lines of accounts and groups in a database, so that an undo brings back the bytes that stood there.
//!
//! A group may stand on several lines: shadow-utils splits a large one (`MAX_MEMBERS_PER_GROUP` of login.defs(5)), joins the lines
//! again at its next change, and splits them anew. Each line has members of its own.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::saved::Bytes;

/// The field of the members of a group.
const MEMBERS: usize = 3;

/// Lines of some names, with their places among all lines.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(in crate::host) struct Layout {
    /// Lines of the whole file.
    total: usize,
    /// Set if the last line has no end.
    #[serde(default)]
    is_open: bool,
    /// A name without lines had none.
    names: BTreeMap<String, Vec<Placed>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Placed {
    at: usize,
    line: Bytes,
}

impl Layout {
    /// Reads the lines of names.
    pub(in crate::host) fn read<'a>(bytes: &[u8], names: impl Iterator<Item = &'a str>) -> Self {
        let lines = split(bytes);
        let of = |name: &str| -> Vec<Placed> {
            let own = lines.iter().enumerate().filter(|(_, line)| is_of(line, name));
            own.map(|(at, line)| Placed { at, line: Bytes::new(line) }).collect()
        };
        let is_open = bytes.last().is_some_and(|last| *last != b'\n');
        Self { total: lines.len(), is_open, names: names.map(|name| (name.to_owned(), of(name))).collect() }
    }

    /// Returns the database with the lines as they were, at their places where the file has as many other lines as it had. Of a name
    /// that is not whole the membership of these users alone goes back, where its lines have changed otherwise.
    pub(in crate::host) fn put_back(
        &self,
        bytes: &[u8],
        is_whole: &dyn Fn(&str) -> bool,
        users: &BTreeSet<&str>,
    ) -> Vec<u8> {
        let lines = split(bytes);
        let mut desired: BTreeMap<&str, Vec<Vec<u8>>> = BTreeMap::new();
        for (name, saved) in &self.names {
            let saved: Vec<&[u8]> = saved.iter().map(|placed| placed.line.as_slice()).collect();
            let now: Vec<&[u8]> = lines.iter().copied().filter(|line| is_of(line, name)).collect();
            let is_as_saved = is_whole(name) || is_same_group(&now, &saved, users);
            let new = if is_as_saved { owned(&saved) } else { with_membership(&now, &saved, users) };
            desired.insert(name, new);
        }
        let is_other = |line: &&[u8]| !self.names.keys().any(|name| is_of(line, name));
        let others: Vec<&[u8]> = lines.iter().copied().filter(is_other).collect();
        match self.in_places(&others, &desired) {
            Some(lines) => joined(&lines, self.is_open),
            None => joined(&in_order(&lines, desired), false),
        }
    }

    /// Returns all lines at their places; `None` if these are not known any more.
    fn in_places(&self, others: &[&[u8]], desired: &BTreeMap<&str, Vec<Vec<u8>>>) -> Option<Vec<Vec<u8>>> {
        let mut placed: BTreeMap<usize, &Vec<u8>> = BTreeMap::new();
        for (name, saved) in &self.names {
            let lines = desired.get(name.as_str()).filter(|lines| lines.len() == saved.len())?;
            placed.extend(saved.iter().map(|placed| placed.at).zip(lines));
        }
        if placed.len().saturating_add(others.len()) != self.total {
            return None;
        }
        let mut others = others.iter();
        let at = |at| {
            placed
                .get(&at)
                .map_or_else(|| others.next().map(|line| line.to_vec()), |line| Some((*line).clone()))
        };
        (0..self.total).map(at).collect()
    }
}

/// Returns the lines with those of each name in the places of its own, and what has none at the end.
fn in_order(lines: &[&[u8]], desired: BTreeMap<&str, Vec<Vec<u8>>>) -> Vec<Vec<u8>> {
    let mut left: BTreeMap<&str, _> =
        desired.into_iter().map(|(name, new)| (name, new.into_iter())).collect();
    let mut new = Vec::with_capacity(lines.len());
    for (number, line) in lines.iter().enumerate() {
        let Some((name, own)) = left.iter_mut().find(|(name, _)| is_of(line, name)) else {
            new.push(line.to_vec());
            continue;
        };
        new.extend(own.next());
        let is_last = !lines.iter().skip(number + 1).any(|line| is_of(line, name));
        if is_last {
            new.extend(own);
        }
    }
    new.extend(left.into_values().flatten());
    new
}

/// Returns true if the lines are of one group as before, its members but for these users the same.
fn is_same_group(now: &[&[u8]], saved: &[&[u8]], users: &BTreeSet<&str>) -> bool {
    let heads = |lines: &[&[u8]]| {
        let mut heads: Vec<Vec<u8>> = lines.iter().map(|line| head(line)).collect();
        heads.dedup();
        heads
    };
    let others = |lines: &[&[u8]]| -> Vec<Vec<u8>> {
        let all = lines.iter().flat_map(|line| members(line));
        all.filter(|member| !users.iter().any(|user| user.as_bytes() == *member))
            .map(<[u8]>::to_vec)
            .collect()
    };
    heads(now) == heads(saved) && others(now) == others(saved)
}

/// Returns the lines of a group with the membership of users as before: on its line, where there are as many.
fn with_membership(now: &[&[u8]], saved: &[&[u8]], users: &BTreeSet<&str>) -> Vec<Vec<u8>> {
    let mut lines = owned(now);
    for user in users {
        let was_member = saved.iter().any(|line| has_member(line, user));
        if now.len() == saved.len() {
            for (line, saved) in lines.iter_mut().zip(saved) {
                *line = with_member(line, user, has_member(saved, user));
            }
        } else if !was_member {
            let spare =
                emptied(&lines, |line| has_member(line, user).then(|| with_member(line, user, false)));
            for line in &mut lines {
                *line = with_member(line, user, false);
            }
            let mut at = 0..;
            lines.retain(|_| at.next().is_none_or(|at| !spare.contains(&at)));
        } else if !lines.iter().any(|line| has_member(line, user))
            && let Some(first) = lines.first_mut()
        {
            *first = with_member(first, user, true);
        }
    }
    lines
}

/// Returns the places of the lines that would have no member left without one that they have, beside another line of the group: shadow-utils
/// made them for it. One that had no member is the host's. `without` returns the line without its member, if it has that.
pub(in crate::host) fn emptied(
    lines: &[impl AsRef<[u8]>],
    without: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> BTreeSet<usize> {
    let is_left_empty = |line: &[u8]| without(line).is_some_and(|without| members(&without).next().is_none());
    let empty: Vec<(usize, &[u8])> = lines.iter().map(AsRef::as_ref).enumerate().collect();
    let (empty, others): (Vec<_>, Vec<_>) = empty.into_iter().partition(|(_, line)| is_left_empty(line));
    let is_spare = |(at, line): &&(usize, &[u8])| {
        let earlier = empty.iter().take_while(|(other, _)| other < at);
        others.iter().chain(earlier).any(|(_, other)| head(other) == head(line))
    };
    empty.iter().filter(is_spare).map(|(at, _)| *at).collect()
}

/// Returns true if a line is of a name.
pub(in crate::host) fn is_of(line: &[u8], name: &str) -> bool {
    line.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.first() == Some(&b':'))
}

/// Returns the first line of a name, without its end.
pub(in crate::host) fn line_of<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    bytes.split(|byte| *byte == b'\n').find(|line| is_of(line, name))
}

/// Returns the database with the lines of a name as they were.
pub(in crate::host) fn with_line(bytes: &[u8], name: &str, original: Option<&[u8]>) -> Vec<u8> {
    let (mut new, mut left) = (Vec::with_capacity(bytes.len()), original);
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        if is_of(line, name) {
            new.extend_from_slice(left.take().unwrap_or_default());
        } else {
            new.extend_from_slice(line);
        }
    }
    if let Some(original) = left {
        if new.last().is_some_and(|byte| *byte != b'\n') {
            new.push(b'\n');
        }
        new.extend_from_slice(original);
    }
    new
}

/// Returns the members of the line of a group.
pub(in crate::host) fn members(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    let field = line.split(|byte| *byte == b':').nth(MEMBERS).unwrap_or_default();
    field.split(|byte| *byte == b',').filter(|member| !member.is_empty())
}

/// Returns true if the line of a group has a member.
pub(in crate::host) fn has_member(line: &[u8], user: &str) -> bool {
    members(line).any(|member| member == user.as_bytes())
}

/// Returns the line of a group, without its end, with a member or without it; the others and their order stay.
pub(in crate::host) fn with_member(line: &[u8], user: &str, is_member: bool) -> Vec<u8> {
    if has_member(line, user) == is_member {
        return line.to_vec();
    }
    let mut members: Vec<&[u8]> = members(line).filter(|member| *member != user.as_bytes()).collect();
    members.extend(is_member.then_some(user.as_bytes()));
    let members = members.join(&b',');
    let mut fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
    if let Some(field) = fields.get_mut(MEMBERS) {
        *field = &members;
    }
    fields.join(&b':')
}

/// Returns the fields of the line of a group before its members.
pub(in crate::host) fn head(line: &[u8]) -> Vec<u8> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').take(MEMBERS).collect();
    fields.join(&b':')
}

fn owned(lines: &[&[u8]]) -> Vec<Vec<u8>> {
    lines.iter().map(|line| line.to_vec()).collect()
}

/// Splits a database into its lines, without their ends.
fn split(bytes: &[u8]) -> Vec<&[u8]> {
    match bytes.strip_suffix(b"\n").unwrap_or(bytes) {
        [] if bytes.is_empty() => Vec::new(),
        text => text.split(|byte| *byte == b'\n').collect(),
    }
}

fn joined(lines: &[Vec<u8>], is_open: bool) -> Vec<u8> {
    let mut bytes = lines.join(&b'\n');
    if !lines.is_empty() && !is_open {
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put_back(before: &str, now: &str, names: &[&str], whole: &[&str], users: &[&str]) -> String {
        let layout = Layout::read(before.as_bytes(), names.iter().copied());
        let users = users.iter().copied().collect();
        let new = layout.put_back(now.as_bytes(), &|name| whole.contains(&name), &users);
        String::from_utf8(new).unwrap()
    }

    #[test]
    fn lines_come_back_to_their_places() {
        let before = "a:x:1:\ng:x:2:u\nb:x:3:\nh:x:4:\ng:x:2:v\n";
        for now in [
            "a:x:1:\nb:x:3:\n",
            "a:x:1:\nb:x:3:\nh:x:4:u\ng:x:2:u,v\n",
            "a:x:1:\ng:x:2:u\ng:x:2:v\nb:x:3:\nh:x:4:\n",
            before,
        ] {
            assert_eq!(put_back(before, now, &["g", "h"], &["g", "h"], &[]), before, "{now}");
        }
        let open = before.trim_end();
        assert_eq!(put_back(open, before, &["g"], &["g"], &[]), open);
        assert_eq!(put_back("", "g:x:2:\n", &["g"], &["g"], &[]), "");
        assert_eq!(put_back("\na:x:1:\n\n", "\na:x:1:\n\ng:x:2:\n", &["g"], &["g"], &[]), "\na:x:1:\n\n");
    }

    /// A file that somebody has changed keeps that, and lines of the names stay where they are.
    #[test]
    fn other_changes_stay() {
        let before = "a:x:1:\ng:x:2:u\nb:x:3:\n";
        let back = |now| put_back(before, now, &["g"], &["g"], &[]);
        assert_eq!(back("a:x:1:w\ng:x:2:\nb:x:3:\n"), "a:x:1:w\ng:x:2:u\nb:x:3:\n");
        assert_eq!(back("n:x:9:\na:x:1:\ng:x:2:\nb:x:3:\n"), "n:x:9:\na:x:1:\ng:x:2:u\nb:x:3:\n");
        assert_eq!(back("n:x:9:\na:x:1:\nb:x:3:\n"), "n:x:9:\na:x:1:\nb:x:3:\ng:x:2:u\n");
    }

    /// Each member comes back on its line, and shadow-utils may have joined them or split them anew.
    #[test]
    fn members_come_back_on_their_lines() {
        let before = "w:x:10:a,u\nb:x:3:\nw:x:10:c,d\n";
        let back = |now| put_back(before, now, &["w"], &[], &["u"]);
        for now in [
            "w:x:10:a\nb:x:3:\nw:x:10:c,d\n",
            "w:x:10:a\nw:x:10:c\nw:x:10:d\nb:x:3:\n",
            "w:x:10:a,c,d,u\nb:x:3:\n",
        ] {
            assert_eq!(back(now), before, "{now}");
        }
        assert_eq!(back("w:x:10:a,e\nb:x:3:\nw:x:10:c,d\n"), "w:x:10:a,e,u\nb:x:3:\nw:x:10:c,d\n");
        assert_eq!(back("w:x:10:a,c\nb:x:3:\n"), "w:x:10:a,c,u\nb:x:3:\n");
        assert_eq!(back("b:x:3:\n"), "b:x:3:\n", "somebody has removed the group");
        let left = put_back("w:x:10:a\nw:x:10:c\n", "w:x:10:a,u,e\nw:x:10:c,u\n", &["w"], &[], &["u"]);
        assert_eq!(left, "w:x:10:a,e\nw:x:10:c\n");
        // A line that was made for the member goes with it; an empty one of the host stays.
        let back = |before, now| put_back(before, now, &["w"], &[], &["u"]);
        assert_eq!(back("w:x:10:a\n", "w:x:10:a,e\nw:x:10:u\n"), "w:x:10:a,e\n");
        assert_eq!(back("w:x:10:a\n", "w:x:10:u\nw:x:10:\nw:x:10:e\n"), "w:x:10:\nw:x:10:e\n");
        assert_eq!(back("b:x:3:\nw:x:10:a\n", "b:x:3:\nw:x:10:u\nw:x:10:u\n"), "b:x:3:\nw:x:10:\n");
    }
}
