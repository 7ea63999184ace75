//! Server-sent events: numbers, and the facts behind them, at a rate that a page can take.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use http::HeaderMap;
use serde_json::json;
use setpoint::Fact;
use setpoint_env::Later;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::app::App;
use crate::history::Sample;
use crate::subject::Filter;

/// How soon after the last facts the next ones are sent, if they are few: what happens is seen when it happens.
const SOON: Duration = Duration::from_millis(25);
/// How often the numbers are sent at most, and facts, if they are many: below what the eye tells apart.
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
    /// When it may be sent something again; none at first.
    next_at: Option<Instant>,
    /// When the numbers are due, if it was sent facts since the last ones.
    numbers_at: Option<Instant>,
    numbers_sent: Option<Instant>,
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
        None => (app.recorder.beginning(BEFORE, &filter), MOST_BEFORE),
    };
    let feed = Feed {
        news: app.recorder.news(),
        reviewed: app.env.instant(),
        headers,
        filter,
        next,
        most,
        next_at: None,
        numbers_at: None,
        numbers_sent: None,
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
        loop {
            let text = self.turn().await?;
            // Nothing of what happened is wanted here, and the numbers are not due.
            if !text.is_empty() {
                return Some(text.into());
            }
        }
    }

    async fn turn(&mut self) -> Option<String> {
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
        let is_first = self.next_at.is_none();
        self.news.borrow_and_update();
        let sample = self.app.recorder.sample(self.next, &self.filter, self.most);
        (self.next, self.most) = (sample.next, MOST);
        self.next_at = Some(now.later(pause_after(&sample)));
        let mut text = if is_first { "retry: 1000\n\n".to_owned() } else { String::new() };
        if !sample.facts.is_empty() || sample.left_out > 0 || is_first {
            let id = format!("{}-{}", self.app.recorder.boot(), self.next);
            let facts: Vec<&Fact> = sample.facts.iter().map(|fact| &**fact).collect();
            let data = json!({"facts": facts, "leftOut": sample.left_out}).to_string();
            event(&mut text, "facts", Some(&id), &data);
        }
        match self.numbers_sent.map(|sent| sent.later(EVERY)).filter(|due| now < *due) {
            Some(due) => self.numbers_at = Some(due),
            None => {
                event(&mut text, "state", None, &self.app.state());
                (self.numbers_at, self.numbers_sent) = (None, Some(now));
            }
        }
        Some(text)
    }

    /// Until there is something new, or numbers are due; but not too soon after the last time.
    async fn wait(&mut self) {
        let Some(next_at) = self.next_at else { return };
        let quiet = self.app.env.instant().later(QUIET);
        let until = self.numbers_at.map_or(quiet, |due| due.min(quiet));
        // An error means that nobody records any more; times go on all the same.
        if let Ok(Err(_)) = timeout_at(until, self.news.changed()).await {
            sleep_until(until).await;
        }
        sleep_until(next_at).await;
    }
}

/// How long a page is left alone after this: the more it got, the longer, so that it never gets more than [`MOST`] in
/// [`EVERY`].
fn pause_after(sample: &Sample) -> Duration {
    if sample.left_out > 0 {
        return EVERY;
    }
    let part = u32::try_from(sample.facts.len().min(MOST)).unwrap_or(u32::MAX);
    (EVERY.saturating_mul(part) / MOST as u32).max(SOON)
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
    fn a_page_gets_few_facts_at_once_and_many_seldom() {
        let pause = |facts: usize, left_out: u64| {
            let fact = Arc::new(Fact {
                number: 1,
                at: k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
                event: setpoint::facts::LoopEvent::Missed { count: 1 },
            });
            pause_after(&Sample { facts: vec![fact; facts], next: 0, left_out })
        };
        assert_eq!((pause(0, 0), pause(10, 0)), (SOON, SOON));
        assert_eq!((pause(125, 0), pause(250, 0)), (EVERY / 2, EVERY));
        assert_eq!((pause(10, 1), pause(3000, 0)), (EVERY, EVERY));
    }

    #[test]
    fn only_an_id_of_this_process_is_gone_on_from() {
        assert_eq!(seen("abcd-12", "abcd"), Some(12));
        for bad in ["abce-12", "abcd-", "abcd", "", "abcd-x", "12"] {
            assert_eq!(seen(bad, "abcd"), None, "{bad}");
        }
    }
}
