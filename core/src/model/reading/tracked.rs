//! One pass over a document that knows where it is: it names the field of an error and the fields that no type has.
//!
//! It wraps any deserializer, so the text of a config is still read without a tree. What a struct knows is what its own
//! `Deserialize` asks for: there is no second list of fields to keep.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, IntoDeserializer as _, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;

use super::super::text::short;
use super::mends::{Mend, Mends, StandIn};

/// The most unknown fields that are kept of one document.
const MAX_UNKNOWN: usize = 32;

/// A field that no type has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Its path.
    pub(super) field: String,
    /// Its name.
    pub(super) name: String,
    /// The fields that are known in its place.
    pub(super) known: &'static [&'static str],
}

/// Findings of a pass beside its value.
#[derive(Debug, Default)]
pub(super) struct Sink {
    unknown: RefCell<Vec<Unknown>>,
    failed: RefCell<Option<String>>,
    count: Cell<usize>,
    mends: Mends,
}

impl Sink {
    /// Creates one of a later reading.
    pub(super) fn with(mends: Mends) -> Self {
        Self { mends, ..Self::default() }
    }

    /// Returns the unknown fields, how many more there are, the place of the error, and the mends.
    pub(super) fn into_parts(self) -> (Vec<Unknown>, usize, Option<String>, Mends) {
        let unknown = self.unknown.into_inner();
        let more = self.count.get().saturating_sub(unknown.len());
        (unknown, more, self.failed.into_inner(), self.mends)
    }

    fn ignored(&self, at: &At<'_>) {
        let At::Field { name, known: Some(known), .. } = at else { return };
        if known.contains(name) || self.count.replace(self.count.get() + 1) >= MAX_UNKNOWN {
            return;
        }
        let unknown = Unknown { field: at.to_string(), name: (*name).to_owned(), known };
        self.unknown.borrow_mut().push(unknown);
    }

    /// Keeps the innermost place of an error: it is the first one that sees it.
    fn fail(&self, at: &At<'_>) {
        self.failed.borrow_mut().get_or_insert_with(|| at.to_string());
    }
}

/// A place in a document.
#[derive(Debug, Clone, Copy)]
pub(super) enum At<'a> {
    /// Its beginning.
    Root,
    /// A field, and what its struct knows; `None` in a map.
    Field { above: &'a At<'a>, name: &'a str, known: Option<&'static [&'static str]> },
    /// An entry of a list.
    Item { above: &'a At<'a>, index: usize },
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Field { above: Self::Root, name, .. } => f.write_str(&shown(name)),
            Self::Field { above, name, .. } => write!(f, "{above}.{}", shown(name)),
            Self::Item { above, index } => write!(f, "{above}[{index}]"),
        }
    }
}

/// A deserializer at its place.
pub(super) struct Tracked<'a, D> {
    pub(super) inner: D,
    pub(super) at: &'a At<'a>,
    pub(super) sink: &'a Sink,
}

macro_rules! tracked {
    ($($method:ident($($argument:ident: $type:ty),*))*) => {$(
        fn $method<V: Visitor<'de>>(self, $($argument: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            let (at, sink) = (self.at, self.sink);
            let visitor = Watched { visitor, at, sink, known: None };
            self.inner.$method($($argument,)* visitor).inspect_err(|_| sink.fail(at))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Tracked<'_, D> {
    type Error = D::Error;

    tracked! {
        deserialize_any() deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64() deserialize_char() deserialize_str() deserialize_string()
        deserialize_bytes() deserialize_byte_buf() deserialize_option() deserialize_unit()
        deserialize_unit_struct(name: &'static str) deserialize_newtype_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(len: usize) deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map() deserialize_identifier()
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        let (at, sink) = (self.at, self.sink);
        let visitor = Watched { visitor, at, sink, known: Some(fields) };
        self.inner.deserialize_struct(name, fields, visitor).inspect_err(|_| sink.fail(at))
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.sink.ignored(self.at);
        self.inner.deserialize_ignored_any(visitor).inspect_err(|_| self.sink.fail(self.at))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

struct Watched<'a, V> {
    visitor: V,
    at: &'a At<'a>,
    sink: &'a Sink,
    known: Option<&'static [&'static str]>,
}

macro_rules! scalars {
    ($($method:ident: $type:ty),*) => {$(
        fn $method<E: serde::de::Error>(self, value: $type) -> Result<V::Value, E> {
            self.visitor.$method(value)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Watched<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.visitor.expecting(f)
    }

    scalars! {
        visit_bool: bool, visit_i64: i64, visit_i128: i128, visit_u64: u64, visit_u128: u128, visit_f64: f64,
        visit_char: char, visit_str: &str, visit_borrowed_str: &'de str, visit_string: String,
        visit_bytes: &[u8], visit_borrowed_bytes: &'de [u8], visit_byte_buf: Vec<u8>
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_none()
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<V::Value, E> {
        self.visitor.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_some(Tracked { inner, at: self.at, sink: self.sink })
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inner: D) -> Result<V::Value, D::Error> {
        self.visitor.visit_newtype_struct(Tracked { inner, at: self.at, sink: self.sink })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        // What is derived takes a list for a struct, field by field; no other reader of these documents does.
        if self.known.is_some() {
            return Err(serde::de::Error::invalid_type(Unexpected::Seq, &self));
        }
        self.visitor.visit_seq(Items { access, at: self.at, sink: self.sink, index: 0 })
    }

    fn visit_map<A: MapAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        let (at, sink, known) = (self.at, self.sink, self.known);
        self.visitor.visit_map(Fields { access, at, sink, known, key: String::new(), mending: None })
    }

    fn visit_enum<A: EnumAccess<'de>>(self, access: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_enum(access)
    }
}

struct Items<'a, A> {
    access: A,
    at: &'a At<'a>,
    sink: &'a Sink,
    index: usize,
}

impl<A> Items<'_, A> {
    fn is_skipped(&self) -> bool {
        let mends = &self.sink.mends;
        let place = || At::Item { above: self.at, index: self.index }.to_string();
        !mends.is_empty() && mends.at(&place()) == Some(&Mend::Skip)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Items<'_, A> {
    type Error = A::Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        while self.is_skipped() {
            self.index += 1;
            if self.access.next_element::<IgnoredAny>()?.is_none() {
                return Ok(None);
            }
        }
        let at = At::Item { above: self.at, index: self.index };
        self.index += 1;
        self.access.next_element_seed(Placed { seed, at: &at, sink: self.sink })
    }

    fn size_hint(&self) -> Option<usize> {
        self.access.size_hint()
    }
}

struct Fields<'a, A> {
    access: A,
    at: &'a At<'a>,
    sink: &'a Sink,
    known: Option<&'static [&'static str]>,
    key: String,
    mending: Option<Mending>,
}

/// State of a mapping in a later reading.
#[derive(Default)]
struct Mending {
    seen: BTreeSet<String>,
    /// Fields that come after its own, with their texts.
    stand_ins: Option<Vec<(String, String)>>,
    text: Option<String>,
}

impl<A> Fields<'_, A> {
    /// Reads the next key of a later reading.
    fn next_mended_key<'de, K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error>
    where
        A: MapAccess<'de>,
    {
        let mending = self.mending.get_or_insert_default();
        if mending.stand_ins.is_none() {
            while let Some(name) = self.access.next_key::<String>()? {
                let place = At::Field { above: self.at, name: &name, known: self.known }.to_string();
                let is_first = mending.seen.insert(name.clone());
                let is_read = match self.sink.mends.at(&place) {
                    None => true,
                    Some(Mend::First) => is_first,
                    Some(Mend::Skip | Mend::StandIn(_)) => false,
                };
                if is_read {
                    self.key = name;
                    return seed.deserialize(self.key.as_str().into_deserializer()).map(Some);
                }
                self.access.next_value::<IgnoredAny>()?;
            }
        }
        let all = || self.sink.mends.stand_ins(&self.at.to_string());
        let Some((name, text)) = mending.stand_ins.get_or_insert_with(all).pop() else { return Ok(None) };
        (self.key, mending.text) = (name, Some(text));
        seed.deserialize(self.key.as_str().into_deserializer()).map(Some)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Fields<'_, A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        self.key.clear();
        if !self.sink.mends.is_empty() {
            return self.next_mended_key(seed);
        }
        self.access.next_key_seed(Key { inner: seed, key: &mut self.key })
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, A::Error> {
        let at = At::Field { above: self.at, name: &self.key, known: self.known };
        if let Some(text) = self.mending.as_mut().and_then(|mending| mending.text.take()) {
            return Placed { seed, at: &at, sink: self.sink }.deserialize(StandIn::new(&text));
        }
        self.access.next_value_seed(Placed { seed, at: &at, sink: self.sink })
    }

    fn size_hint(&self) -> Option<usize> {
        self.access.size_hint()
    }
}

/// A value at its place.
struct Placed<'a, T> {
    seed: T,
    at: &'a At<'a>,
    sink: &'a Sink,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Placed<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        self.seed.deserialize(Tracked { inner, at: self.at, sink: self.sink })
    }
}

/// A key on its way to who asks for it: its name is kept.
struct Key<'a, T> {
    inner: T,
    key: &'a mut String,
}

impl<'de, T: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<'_, T> {
    type Value = T::Value;

    fn deserialize<D: Deserializer<'de>>(self, inner: D) -> Result<T::Value, D::Error> {
        self.inner.deserialize(Key { inner, key: self.key })
    }
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Key<'_, D> {
    type Error = D::Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_any(Key { inner: visitor, key: self.key })
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Key<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<V::Value, E> {
        self.key.push_str(name);
        self.inner.visit_str(name)
    }

    fn visit_borrowed_str<E: serde::de::Error>(self, name: &'de str) -> Result<V::Value, E> {
        self.key.push_str(name);
        self.inner.visit_borrowed_str(name)
    }

    fn visit_string<E: serde::de::Error>(self, name: String) -> Result<V::Value, E> {
        self.key.push_str(&name);
        self.inner.visit_string(name)
    }
}

/// Returns the name of a field for a text: it may be anything.
pub(super) fn shown(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./$".contains(c);
    if !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain) {
        name.to_owned()
    } else {
        format!("{:?}", short(name, 64))
    }
}
