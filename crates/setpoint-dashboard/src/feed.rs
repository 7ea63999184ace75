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
use setpoint_env::watch;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until, timeout_at};

use crate::app::App;
use crate::history::Sample;
use crate::subject::Filter;

/// How soon after the last facts the next ones are sent, if they are few: what happens is seen when it happens.
const SOON: Duration = Duration::from_millis(25);
/// How often the numbers are sent at most.
const NUMBERS: Duration = Duration::from_millis(50);
/// How often both are sent, if there are many facts: below what the eye tells apart.
const EVERY: Duration = Duration::from_millis(100);
/// How often the numbers are sent though nothing happens: times go on.
const QUIET: Duration = Duration::from_secs(1);
/// How many facts are sent at once; a page has to draw them.
const MOST: usize = 250;
/// How many facts a page that opens or comes back gets of what happened before.
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
    /// When the numbers are due, if something may have happened since the last ones.
    numbers_at: Option<Instant>,
    /// Of when the last numbers were.
    numbers_sent: Option<Instant>,
    reviewed: Instant,
    _place: OwnedSemaphorePermit,
}

/// The events of a page: from the beginning, or from what it has seen last, if `last` is the id of an event.
pub(crate) fn stream(
    app: Arc<App>,
    headers: HeaderMap,
    last: &str,
    filter: Filter,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = Bytes> + Send + use<> {
    let seen = seen(last, app.recorder.boot());
    let feed = Feed {
        news: app.recorder.news(),
        reviewed: app.env.instant(),
        headers,
        filter,
        // What a key did may be older than all that others did since.
        next: seen.unwrap_or_else(|| app.recorder.beginning()),
        most: MOST_BEFORE,
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
        let pause = pause_after(&sample);
        self.next_at = Some(now.later(pause));
        let mut text = if is_first { "retry: 1000\n\n".to_owned() } else { String::new() };
        if !sample.facts.is_empty() || sample.left_out > 0 || is_first {
            let id = format!("{}-{}", self.app.recorder.boot(), self.next);
            let facts: Vec<&Fact> = sample.facts.iter().map(|fact| &**fact).collect();
            let data = json!({"facts": facts, "leftOut": sample.left_out}).to_string();
            event(&mut text, "facts", Some(&id), &data);
        }
        match self.numbers_sent.map(|sent| sent.later(pause.max(NUMBERS))).filter(|due| now < *due) {
            Some(due) => self.numbers_at = Some(due),
            None => {
                let (of, state) = self.app.state();
                event(&mut text, "state", None, &state);
                // Drawn for another page a moment ago: what happened since is not in it.
                self.numbers_at = (of < now).then(|| of.later(NUMBERS));
                self.numbers_sent = Some(of);
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
    EVERY.saturating_mul(part).checked_div(MOST as u32).unwrap_or(EVERY).max(SOON)
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
    use std::pin::pin;

    use futures::StreamExt;
    use setpoint::{Facts, WorkQueue};
    use setpoint_apiserver::ApiServer;
    use setpoint_env::Env;

    use super::*;
    use crate::DashboardConfig;

    #[tokio::test(start_paused = true)]
    async fn numbers_that_were_drawn_for_another_page_are_soon_followed_by_newer_ones() {
        let (facts, env) = (Facts::default(), Env::system());
        let client = ApiServer::builder().build().client();
        let app = Arc::new(App::new(&facts, client, env.clone(), DashboardConfig::default()));
        let _recording = app.recorder.start(&env, &facts);
        let queue: WorkQueue<String> = WorkQueue::builder().facts("web", &facts).build();
        app.state();
        tokio::time::sleep(NUMBERS / 2).await;
        queue.add("default/new".into());
        let place = app.streams.clone().try_acquire_owned().unwrap();
        let opened = env.instant();
        let mut page = pin!(stream(app, HeaderMap::new(), "", Filter::default(), place));
        loop {
            let text = page.next().await.unwrap();
            if String::from_utf8_lossy(&text).contains("\"ready\":1") {
                break;
            }
        }
        let took = env.instant().saturating_duration_since(opened);
        assert!(took <= NUMBERS, "{took:?}");
    }

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
