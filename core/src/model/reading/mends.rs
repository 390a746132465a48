//! Treatment of a document's places where a reading ended: a later reading of the same text goes on behind them.
//!
//! What was wrong is passed over, and a field that has to be there gets a stand-in.

use std::collections::BTreeMap;
use std::marker::PhantomData;

use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{Deserializer, Visitor};
use serde::forward_to_deserialize_any;

/// Fields that a type lets be away, and a rule of Ignition does not.
const NEEDED: [&str; 1] = ["target"];

/// Treatment of a place where an earlier reading ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mend {
    /// It is passed over.
    Skip,
    /// The first of several fields with this name is read.
    First,
    /// This text, or an empty value, is read in its place.
    StandIn(String),
}

/// All of a reading.
#[derive(Debug, Default)]
pub(super) struct Mends(BTreeMap<String, Mend>);

impl Mends {
    /// Returns true for a first reading.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the treatment of a place.
    pub(super) fn at(&self, place: &str) -> Option<&Mend> {
        self.0.get(place)
    }

    /// Returns the fields of a mapping that have stand-ins, with their texts.
    pub(super) fn stand_ins(&self, mapping: &str) -> Vec<(String, String)> {
        let of = |(place, mend): (&String, &Mend)| {
            let Mend::StandIn(text) = mend else { return None };
            let name = match mapping {
                "" => place.as_str(),
                above => place.strip_prefix(above)?.strip_prefix('.')?,
            };
            (!name.contains(['.', '['])).then(|| (name.to_owned(), text.clone()))
        };
        self.0.iter().filter_map(of).collect()
    }

    /// Returns true if a value above a place, or that itself, is a stand-in.
    fn is_stand_in(&self, place: &str) -> bool {
        let is_above = |above: &String| {
            place
                .strip_prefix(above.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        self.0.iter().any(|(above, _)| is_above(above))
    }

    /// Takes an error; returns true if a next reading can go on, and whether it tells something new.
    pub(super) fn add(&mut self, error: &serde_json::Error, at: &str) -> (bool, bool) {
        if let Some(name) = missing(error) {
            let place = below(at, &name);
            let is_new = !self.is_stand_in(&place);
            let is_tried = matches!(self.0.get(&place), Some(Mend::StandIn(_)));
            return (if is_tried { self.skip(at) } else { self.stand_in(place) }, is_new);
        }
        if let Some(name) = quoted_name(error, "duplicate field `") {
            let place = below(at, &name);
            let is_tried = self.0.insert(place, Mend::First) == Some(Mend::First);
            return (if is_tried { self.skip(at) } else { true }, !is_tried);
        }
        if let Some(name) = quoted_name(error, "unknown field `") {
            return (self.skip(&below(at, &name)), true);
        }
        match self.0.get(at) {
            Some(Mend::StandIn(_)) => (self.skip(above(at)), false),
            Some(Mend::First | Mend::Skip) => (false, true),
            None if NEEDED.contains(&last(at)) => (self.stand_in(at.to_owned()), true),
            None => (self.skip(at), true),
        }
    }

    fn skip(&mut self, place: &str) -> bool {
        let is_known = place.is_empty() || self.0.get(place) == Some(&Mend::Skip);
        if !is_known {
            self.0.insert(place.to_owned(), Mend::Skip);
        }
        !is_known
    }

    fn stand_in(&mut self, place: String) -> bool {
        let number = self.0.len();
        let text = match last(&place) {
            "path" | "device" | "target" => format!("/unread/{number}"),
            "name" if place.contains(".dropins[") => format!("unread{number}.conf"),
            "name" if place.contains(".units[") => format!("unread{number}.service"),
            _ => format!("unread{number}"),
        };
        self.0.insert(place, Mend::StandIn(text));
        true
    }

    /// Returns a text with the places of entries instead of stand-ins: `storage.files[2] mode`.
    pub(super) fn without_stand_ins(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (place, mend) in &self.0 {
            let Mend::StandIn(name) = mend else { continue };
            let entry = above(place);
            let index = entry.rfind('[').and_then(|at| entry.get(at..)).unwrap_or_default();
            text = text.replace(&format!(" {name:?}"), index).replace(name.as_str(), entry);
        }
        text
    }

    /// Returns the list entries that were passed over: the lists' places and the indexes, in their order.
    pub(super) fn left_out(&self) -> Vec<(&str, usize)> {
        let skipped = self.0.iter().filter(|(_, mend)| **mend == Mend::Skip);
        let entry = |(place, _): (&'_ String, _)| -> Option<(usize, usize)> {
            let (list, index) = place.strip_suffix(']')?.rsplit_once('[')?;
            Some((list.len(), index.parse().ok()?))
        };
        let entries =
            skipped.filter_map(|one| entry(one).and_then(|(end, at)| Some((one.0.get(..end)?, at))));
        let mut found: Vec<(&str, usize)> = entries.collect();
        found.sort_unstable();
        found
    }
}

/// Returns the place above another one.
fn above(place: &str) -> &str {
    place.rfind(['.', '[']).and_then(|at| place.get(..at)).unwrap_or_default()
}

/// Returns the name of a place.
fn last(place: &str) -> &str {
    place.rsplit('.').next().unwrap_or_default()
}

/// A value of any type, for a field that has none.
pub(super) struct StandIn<'a, E> {
    text: &'a str,
    error: PhantomData<E>,
}

impl<'a, E> StandIn<'a, E> {
    /// Creates it: where a string is asked for, it is this one.
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, error: PhantomData }
    }
}

impl<'de, E: serde::de::Error> Deserializer<'de> for StandIn<'_, E> {
    type Error = E;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_str(self.text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_bool(false)
    }

    fn deserialize_i64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_u64(0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_some(self)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, E> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_seq(SeqDeserializer::new(std::iter::empty::<&str>()))
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, E> {
        visitor.visit_map(MapDeserializer::new(std::iter::empty::<(&str, &str)>()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, E> {
        self.deserialize_map(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, E> {
        Err(E::custom("there is no value to stand in"))
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit_struct tuple tuple_struct
        identifier ignored_any
    }
}

/// Returns the field that a message misses.
pub(super) fn missing(error: &serde_json::Error) -> Option<String> {
    quoted_name(error, "missing field `")
}

/// Returns the name that a message quotes after its beginning.
fn quoted_name(error: &serde_json::Error, begin: &str) -> Option<String> {
    let text = error.to_string();
    Some(text.strip_prefix(begin)?.split('`').next()?.to_owned())
}

/// Returns the path of a field below another.
pub fn below(above: &str, name: &str) -> String {
    match (above, name) {
        ("", name) => name.to_owned(),
        (above, "") => above.to_owned(),
        (above, name) => format!("{above}.{name}"),
    }
}
