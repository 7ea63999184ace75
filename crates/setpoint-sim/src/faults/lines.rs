//! A body, frame by frame or line by line.

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use tower::BoxError;

use super::layer::Body;

/// Reads a body. A watch is read line by line, since a line is an event; the lines are not parsed.
#[derive(Debug)]
pub(crate) struct Lines {
    body: Option<Body>,
    by_line: bool,
    /// What has arrived and is not yet handed on.
    rest: BytesMut,
    /// Where in `rest` to look for the end of the line.
    searched: usize,
}

impl Lines {
    pub(crate) fn new(body: Body, by_line: bool) -> Lines {
        Lines { body: Some(body), by_line, rest: BytesMut::new(), searched: 0 }
    }

    /// The next line with its line end, or the next frame. What follows the last line end of a body is handed
    /// on as it is. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Result<Bytes, BoxError>> {
        loop {
            if let Some(line) = self.take_line() {
                return Some(Ok(line));
            }
            let frame = match &mut self.body {
                Some(body) => body.frame().await,
                None => None,
            };
            match frame.map(|frame| frame.map(http_body::Frame::into_data)) {
                Some(Ok(Ok(data))) if !self.by_line || self.is_one_line(&data) => return Some(Ok(data)),
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

    /// The usual case, in which nothing needs to be copied.
    fn is_one_line(&self, data: &Bytes) -> bool {
        let end = data.iter().position(|byte| *byte == b'\n');
        self.rest.is_empty() && end.is_some_and(|end| end + 1 == data.len())
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use http_body_util::StreamBody;

    use super::*;

    async fn read(frames: &[&'static str], by_line: bool) -> Vec<String> {
        let frames: Vec<Result<_, BoxError>> =
            frames.iter().map(|frame| Ok(http_body::Frame::data(Bytes::from(*frame)))).collect();
        let mut lines = Lines::new(StreamBody::new(stream::iter(frames)).boxed_unsync(), by_line);
        let mut read = Vec::new();
        while let Some(Ok(line)) = lines.next().await {
            read.push(String::from_utf8(line.to_vec()).unwrap());
        }
        read
    }

    #[tokio::test]
    async fn lines_come_out_whole_however_they_were_cut_into_frames() {
        assert_eq!(read(&["a\n", "b\n"], true).await, ["a\n", "b\n"]);
        assert_eq!(read(&["a\nb\n"], true).await, ["a\n", "b\n"]);
        assert_eq!(read(&["a", "a\nb", "", "b\nc\n"], true).await, ["aa\n", "bb\n", "c\n"]);
        assert_eq!(read(&["a\nhalf"], true).await, ["a\n", "half"]);
        assert_eq!(read(&["\n", ""], true).await, ["\n"]);
    }

    #[tokio::test]
    async fn frames_of_other_bodies_are_left_alone() {
        assert_eq!(read(&["a\nb\n", "c"], false).await, ["a\nb\n", "c"]);
    }
}
