//! Streams of bytes on one pipe: each begins with [`NEXT`], has parts with their lengths, and ends with an empty part.

use std::io::{self, Read};

/// Begins a stream.
pub(super) const NEXT: u8 = 1;

/// No stream follows.
pub(super) const LAST: u8 = 0;

/// The end of a stream.
pub(super) const END: [u8; 4] = [0; 4];

/// The longest part.
const MAX_PART_BYTES: u32 = 1 << 20;

/// Reads streams.
#[derive(Debug)]
pub(super) struct Streams<R>(pub(super) R);

impl<R: Read> Streams<R> {
    /// Begins the next stream, if there is one. One before is read to its end.
    pub(super) fn next(&mut self) -> io::Result<Option<Stream<'_, R>>> {
        let mut mark = [LAST];
        self.0.read_exact(&mut mark)?;
        Ok((mark == [NEXT]).then_some(Stream { source: &mut self.0, left: 0, is_over: false }))
    }
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream<'a, R> {
    source: &'a mut R,
    /// Bytes of the part.
    left: u32,
    is_over: bool,
}

impl<R: Read> Stream<'_, R> {
    /// Reads one part, as text.
    pub(super) fn text(&mut self) -> io::Result<String> {
        let mut text = String::new();
        if self.part()? > 0 {
            Read::by_ref(self.source).take(self.left.into()).read_to_string(&mut text)?;
            self.left = 0;
        }
        Ok(text)
    }

    /// Returns the bytes that are left of a part; none at the end of the stream.
    fn part(&mut self) -> io::Result<u32> {
        if self.left == 0 && !self.is_over {
            let mut length = END;
            self.source.read_exact(&mut length)?;
            self.left = u32::from_be_bytes(length);
            self.is_over = length == END;
            if self.left > MAX_PART_BYTES {
                return Err(io::Error::other("a part of a stream is too long"));
            }
        }
        Ok(self.left)
    }
}

impl<R: Read> Read for Stream<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.part()?).map_err(io::Error::other)?;
        let most = left.min(buffer.len());
        if most == 0 {
            return Ok(0);
        }
        let read = self.source.read(buffer.get_mut(..most).unwrap_or_default())?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left = self.left.saturating_sub(u32::try_from(read).unwrap_or(u32::MAX));
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_read_one_after_the_other() {
        let bytes =
            [&[NEXT, 0, 0, 0, 2][..], b"ab", &[0, 0, 0, 1], b"c", &END, &[NEXT], &END, &[LAST]].concat();
        let mut streams = Streams(&bytes[..]);
        let mut first = String::new();
        streams.next().unwrap().unwrap().read_to_string(&mut first).unwrap();
        assert_eq!(first, "abc");
        let mut empty = String::new();
        streams.next().unwrap().unwrap().read_to_string(&mut empty).unwrap();
        assert_eq!(empty, "");
        assert!(streams.next().unwrap().is_none());
    }

    #[test]
    fn stream_that_is_cut_short_is_an_error() {
        let bytes = [&[NEXT, 0, 0, 0, 4][..], b"ab", &[0, 0, 0, 1], b"c", &END].concat();
        for length in 0..bytes.len() - 1 {
            let mut streams = Streams(&bytes[..length]);
            let mut text = Vec::new();
            let read = streams.next().and_then(|stream| stream.unwrap().read_to_end(&mut text));
            assert!(read.is_err(), "{length}");
        }
        let long = [NEXT, 0xff, 0, 0, 0];
        assert!(Streams(&long[..]).next().unwrap().unwrap().read(&mut [0]).is_err());
    }
}
