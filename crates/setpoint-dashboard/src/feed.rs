//! Server-sent events: numbers, and the facts behind them, at a rate that a page can take.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::HeaderMap;
use serde_json::json;
use setpoint::Fact;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep, timeout};

use crate::app::App;
use crate::subject::Filter;

/// How often something is sent at most: below what the eye tells apart.
const EVERY: Duration = Duration::from_millis(100);
/// How often the numbers are sent though nothing happens: times go on.
const QUIET: Duration = Duration::from_secs(1);
/// How many facts are sent at once; a page has to draw them.
const MOST: usize = 250;
/// How many facts a new page gets of what happened before.
const BEFORE: u64 = 4000;
/// How many of these at most.
const MOST_BEFORE: usize = 3000;
/// How often it is asked whether somebody may still see this.
const REVIEW: Duration = Duration::from_secs(30);

/// What one page has been sent.
struct Feed {
    app: Arc<App>,
    headers: HeaderMap,
    filter: Filter,
    next: u64,
    most: usize,
    news: watch::Receiver<u64>,
    sent: Option<Instant>,
    reviewed: Instant,
    _place: OwnedSemaphorePermit,
}

/// The events of a page: from the beginning, or from what it has seen last (`Last-Event-ID`).
pub(crate) fn stream(
    app: Arc<App>,
    headers: HeaderMap,
    filter: Filter,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Bytes> + Send {
    let last = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let seen = last.and_then(|id| seen(id, app.recorder.boot()));
    let (next, most) = match seen {
        Some(seen) => (seen, MOST_BEFORE),
        None => (app.recorder.beginning(BEFORE), MOST_BEFORE),
    };
    let feed = Feed {
        news: app.recorder.news(),
        reviewed: app.env.instant(),
        headers,
        filter,
        next,
        most,
        sent: None,
        _place: place,
        app,
    };
    futures::stream::unfold(feed, async |mut feed| {
        let bytes = feed.next().await?;
        Some((bytes, feed))
    })
}

/// The number to go on from, if the id is one of this process.
fn seen(id: &str, boot: &str) -> Option<u64> {
    let (of, number) = id.split_once('-')?;
    (of == boot).then(|| number.parse().ok()).flatten()
}

impl Feed {
    /// What to send next; none at the end.
    async fn next(&mut self) -> Option<Bytes> {
        let shutdown = self.app.shutdown.clone();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return None,
            () = self.wait() => {}
        }
        let now = self.app.env.instant();
        if now.saturating_duration_since(self.reviewed) >= REVIEW {
            self.reviewed = now;
            if self.app.guard.admit(&self.headers).await.is_err() {
                return None;
            }
        }
        let is_first = self.sent.replace(now).is_none();
        self.news.borrow_and_update();
        let sample = self.app.recorder.sample(self.next, &self.filter, self.most);
        (self.next, self.most) = (sample.next, MOST);
        let mut text = if is_first { "retry: 1000\n\n".to_owned() } else { String::new() };
        event(&mut text, "state", None, &self.app.state());
        if !sample.facts.is_empty() || sample.left_out > 0 || is_first {
            let id = format!("{}-{}", self.app.recorder.boot(), self.next);
            let facts: Vec<&Fact> = sample.facts.iter().map(|fact| &**fact).collect();
            let data = json!({"facts": facts, "leftOut": sample.left_out}).to_string();
            event(&mut text, "facts", Some(&id), &data);
        }
        Some(text.into())
    }

    /// Until there is something new, but not too soon after the last time.
    async fn wait(&mut self) {
        let Some(sent) = self.sent else { return };
        // An error means that nobody records any more; times go on all the same.
        if let Ok(Err(_)) = timeout(QUIET, self.news.changed()).await {
            sleep(QUIET).await;
        }
        let since = self.app.env.instant().saturating_duration_since(sent);
        sleep(EVERY.saturating_sub(since)).await;
    }
}

/// One event. JSON has no line breaks, so the data is one line.
pub(crate) fn event(text: &mut String, name: &str, id: Option<&str>, data: &str) {
    if let Some(id) = id {
        let _never = writeln!(text, "id: {id}");
    }
    let _never = write!(text, "event: {name}\ndata: {data}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_id_of_this_process_is_gone_on_from() {
        assert_eq!(seen("abcd-12", "abcd"), Some(12));
        for bad in ["abce-12", "abcd-", "abcd", "", "abcd-x", "12"] {
            assert_eq!(seen(bad, "abcd"), None, "{bad}");
        }
    }
}
