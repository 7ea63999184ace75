//! A body, frame by frame, or event by event.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use tower::BoxError;

use super::layer::Body;

/// Larger events are none.
const MOST_BYTES: usize = 64 << 20;

/// What a body is read by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As it comes.
    Frames,
    /// An event of a watch in JSON is a line.
    Lines,
    /// An event of a watch in protobuf has its length before it, in four bytes.
    Messages,
}

impl Framing {
    /// How the events of a watch are told apart.
    pub(crate) fn of_watch(headers: &HeaderMap) -> Framing {
        let media = headers.get(header::CONTENT_TYPE).and_then(|media| media.to_str().ok());
        if media.is_some_and(|media| media.starts_with("application/vnd.kubernetes.protobuf")) {
            Framing::Messages
        } else {
            Framing::Lines
        }
    }
}

/// Reads a body. A watch is read event by event; the events are not parsed.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Option<Body>,
    framing: Framing,
    /// What has arrived and is not yet handed on.
    rest: BytesMut,
    /// Where in `rest` to look for the end of the line.
    searched: usize,
}

impl Lines {
    pub(crate) fn new(body: Body, framing: Framing) -> Lines {
        Lines { body: Some(body), framing, rest: BytesMut::new(), searched: 0 }
    }

    /// The next event with its line end or its length, or the next frame. What follows the last whole event of a body is
    /// handed on as it is. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            let whole = match self.framing {
                Framing::Frames => None,
                Framing::Lines => self.take_line(),
                Framing::Messages => self.take_message(),
            };
            if let Some(whole) = whole {
                return Some(Ok(whole));
            }
            if self.rest.len() > MOST_BYTES {
                self.body = None;
                self.rest.clear();
                return Some(Err("an event of a watch is too large".into()));
            }
            let frame = match &mut self.body {
                Some(body) => body.frame().await,
                None => None,
            };
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) if self.framing == Framing::Frames || self.is_one_line(&data) => {
                    return Some(Ok(data));
                }
                Some(Ok(Ok(data))) => self.rest.extend_from_slice(&data),
                Some(Ok(Err(_trailers))) => {}
                Some(Err(error)) => {
                    self.body = None;
                    return Some(Err(error));
                }
                None => {
                    self.body = None;
                    self.searched = 0;
                    return (!self.rest.is_empty()).then(|| Ok(self.rest.split().freeze()));
                }
            }
        }
    }

    fn take_line(&mut self) -> Option<Bytes> {
        let end = self.rest[self.searched..].iter().position(|byte| *byte == b'\n');
        match end {
            Some(end) => {
                let line = self.rest.split_to(self.searched + end + 1).freeze();
                self.searched = 0;
                Some(line)
            }
            None => {
                self.searched = self.rest.len();
                None
            }
        }
    }

    fn take_message(&mut self) -> Option<Bytes> {
        let length: [u8; 4] = self.rest.get(..4)?.try_into().ok()?;
        let end = usize::try_from(u32::from_be_bytes(length)).ok()?.checked_add(4)?;
        (self.rest.len() >= end).then(|| self.rest.split_to(end).freeze())
    }

    /// The usual case, in which nothing needs to be copied.
    fn is_one_line(&self, data: &Bytes) -> bool {
        if self.framing != Framing::Lines {
            return false;
        }
        let end = data.iter().position(|byte| *byte == b'\n');
        self.rest.is_empty() && end.is_some_and(|end| end + 1 == data.len())
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    async fn read(frames: &[&'static str], framing: Framing) -> Vec<String> {
        let frames: Vec<Result<_, BoxError>> =
            frames.iter().map(|frame| Ok(http_body::Frame::data(Bytes::from(*frame)))).collect();
        let mut lines = Lines::new(StreamBody::new(stream::iter(frames)).boxed_unsync(), framing);
        let mut read = Vec::new();
        while let Some(Ok(line)) = lines.next().await {
            read.push(String::from_utf8(line.to_vec()).unwrap());
        }
        read
    }

    #[tokio::test]
    async fn lines_come_out_whole_however_they_were_cut_into_frames() {
        assert_eq!(read(&["a\n", "b\n"], Framing::Lines).await, ["a\n", "b\n"]);
        assert_eq!(read(&["a\nb\n"], Framing::Lines).await, ["a\n", "b\n"]);
        assert_eq!(read(&["a", "a\nb", "", "b\nc\n"], Framing::Lines).await, ["aa\n", "bb\n", "c\n"]);
        assert_eq!(read(&["a\nhalf"], Framing::Lines).await, ["a\n", "half"]);
        assert_eq!(read(&["\n", ""], Framing::Lines).await, ["\n"]);
    }

    #[tokio::test]
    async fn frames_of_other_bodies_are_left_alone() {
        assert_eq!(read(&["a\nb\n", "c"], Framing::Frames).await, ["a\nb\n", "c"]);
    }

    #[tokio::test]
    async fn messages_come_out_whole_with_their_lengths() {
        let messages = async |frames: &[&'static str]| read(frames, Framing::Messages).await;
        let (one, two) = ("\0\0\0\u{2}ab".to_owned(), "\0\0\0\u{1}c".to_owned());
        assert_eq!(messages(&["\0\0\0\u{2}ab", "\0\0\0\u{1}c"]).await, [one.clone(), two.clone()]);
        assert_eq!(messages(&["\0\0", "\0\u{2}a", "b\0\0\0\u{1}c"]).await, [one.clone(), two]);
        assert_eq!(messages(&["\0\0\0\u{2}ab\0\0\0\u{9}half"]).await, [one, "\0\0\0\u{9}half".to_owned()]);
    }
}
