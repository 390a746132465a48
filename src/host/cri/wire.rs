//! As much of protobuf's wire format as a handful of messages needs: varints and length-delimited fields.

/// A varint.
const VARINT: u64 = 0;
const FIXED64: u64 = 1;
/// A length and so many bytes.
const BYTES: u64 = 2;
const FIXED32: u64 = 5;

/// A message in the making.
#[derive(Debug, Clone, Default)]
pub(super) struct Message(Vec<u8>);

impl Message {
    /// Adds a text; an empty one is protobuf's default and not written.
    pub(super) fn text(self, field: u64, text: &str) -> Self {
        if text.is_empty() { self } else { self.bytes(field, text.as_bytes()) }
    }

    /// Adds a message.
    pub(super) fn message(self, field: u64, message: &Self) -> Self {
        self.bytes(field, &message.0)
    }

    /// Adds an entry of a map of texts.
    pub(super) fn entry(self, field: u64, key: &str, value: &str) -> Self {
        self.message(field, &Self::default().text(1, key).text(2, value))
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        varint(&mut self.0, field << 3 | BYTES);
        varint(&mut self.0, u64::try_from(bytes.len()).unwrap_or_default());
        self.0.extend_from_slice(bytes);
        self
    }

    /// Returns its bytes.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

fn varint(to: &mut Vec<u8>, mut number: u64) {
    loop {
        let [low, ..] = number.to_le_bytes();
        number >>= 7;
        if number == 0 {
            to.push(low & 0x7f);
            return;
        }
        to.push(low | 0x80);
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

/// Value of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// A number.
    Number(u64),
    /// A text, bytes or a message.
    Bytes(&'a [u8]),
}

/// The fields of a message that was received. It ends at the first byte that is not understood.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Fields<'a> {
    /// Returns the messages or texts of a field.
    pub(super) fn all(&self, field: u64) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        Fields(self.0).filter_map(move |(number, value)| match value {
            Value::Bytes(bytes) if number == field => Some(bytes),
            Value::Bytes(_) | Value::Number(_) => None,
        })
    }

    /// Returns the message of a field.
    pub(super) fn message(&self, field: u64) -> Option<Self> {
        self.all(field).last().map(Fields)
    }

    /// Returns the text of a field; empty where there is none.
    pub(super) fn text(&self, field: u64) -> String {
        self.all(field).last().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).unwrap_or_default()
    }

    /// Returns true if a field is set.
    pub(super) fn flag(&self, field: u64) -> bool {
        Fields(self.0).any(|(number, value)| number == field && value == Value::Number(1))
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let (first, rest) = self.0.split_first()?;
            self.0 = rest;
            number |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Value<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.number()?;
        let value = match key & 7 {
            VARINT => Value::Number(self.number()?),
            BYTES => {
                let length = self.number()?;
                Value::Bytes(self.take(length)?)
            }
            FIXED64 => Value::Number(little_endian(self.take(8)?)),
            FIXED32 => Value::Number(little_endian(self.take(4)?)),
            _ => return None,
        };
        Some((key >> 3, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn message_is_written_as_protobuf_does() {
        // protoc --encode of `a { s: "hi" } b: "x"`, with fields 1 and 300.
        let message =
            Message::default().message(1, &Message::default().text(2, "hi")).text(300, "x").text(4, "");
        assert_eq!(message.into_bytes(), [0x0a, 4, 0x12, 2, b'h', b'i', 0xe2, 0x12, 1, b'x']);
        let long = Message::default().text(1, &"y".repeat(300)).into_bytes();
        assert_eq!(long.get(..3), Some(&[0x0a, 0xac, 2][..]));
        assert_eq!(Fields(&long).text(1), "y".repeat(300));
    }

    #[test]
    fn message_is_read_as_protobuf_does() {
        let bytes = [
            0x0a, 2, b'a', b'b', 0x40, 1, 0x48, 0x96, 1, 0x0a, 1, b'c', 0x0d, 0, 0, 0, 0, 0x09, 0, 0, 0, 0,
            0, 0, 0, 0,
        ];
        let fields = Fields(&bytes);
        assert_eq!((fields.text(1), fields.flag(8), fields.flag(9)), ("c".to_owned(), true, false));
        assert_eq!(fields.clone().filter(|field| *field == (9, Value::Number(150))).count(), 1);
        assert_eq!(fields.all(1).count(), 2);
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Fields(&bytes).count() <= bytes.len());
        }
    }
}
