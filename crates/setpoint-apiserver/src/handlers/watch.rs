//! Watches: a response that goes on, one JSON line or one frame of protobuf a change.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::json;
use setpoint_env::Later;
use setpoint_kinds::protobuf::append_event;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::get::wait_until_fresh;
use super::list::gather;
use crate::answer::{protobuf, write_object};
use crate::convert;
use crate::limits::Place;
use crate::negotiate::{Media, Shape};
use crate::object;
use crate::options::ListOptions;
use crate::request::ResourceRequest;
use crate::resource::Resource;
use crate::response::{Body, respond};
use crate::selection::Selection;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::{Event, Freshness, Hint, ListQuery, Record, Revision, Watch};
use crate::table::Tabulator;

/// How often a client that asked for bookmarks gets one.
const BOOKMARKS: Duration = Duration::from_secs(60);
/// A watch without a time limit of its own ends after this, or up to twice this.
const TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// A piece of the body is sent once it is this long.
const PIECE: usize = 32 * 1024;
/// Or once so many bytes of stored objects were read for it: what is left of them may be little.
const WORK: usize = 1024 * 1024;

pub(crate) async fn handle(core: &Arc<Core>, request: &ResourceRequest) -> Result<Response<Body>> {
    let media_type = request.representation.stream_type()?;
    let place = core.limits.watch(&request.user)?;
    let options = ListOptions::parse(&request.query, true)?;
    let selection =
        Selection::new(&request.resource, request.namespace.as_deref(), request.name.as_deref(), &options)?;
    let start = start(core, request, &options, &selection).await?;
    let limit = match options.timeout_seconds.filter(|seconds| *seconds > 0) {
        Some(seconds) => Duration::from_secs(seconds),
        None => core.env.jitter(TIMEOUT, 1.0),
    };
    let limit = request.time_left(&core.env).map_or(limit, |left| limit.min(left));
    let now = core.env.instant();
    let shape = request.representation.shape;
    let rows = match shape {
        Shape::Table(shape) => {
            let tabulator = Tabulator::new(&request.resource, shape, request.received);
            Some(Rows { tabulator, with_columns: true })
        }
        _ => None,
    };
    let stream = Stream {
        ended: core.watch_token(),
        retired: request.resource.definition().map(|custom| custom.ended.clone()),
        resource: Arc::clone(&request.resource),
        shape,
        is_protobuf: request.representation.media == Media::Protobuf,
        rows,
        selection,
        initial: start.initial,
        initial_end: start.initial_end,
        position: start.watch.position(),
        watch: start.watch,
        bookmarks: options.bookmarks.then(|| now.later(BOOKMARKS)),
        deadline: now.later(limit),
        running: core.metrics.watch_started(&request.resource),
        core: Arc::clone(core),
        _place: place,
    };
    let body = Body::stream(futures::stream::unfold(Some(stream), |state| async {
        let mut stream = state?;
        let (piece, end) = stream.next_piece().await?;
        Some((piece, (!end).then_some(stream)))
    }));
    let mut response = respond(StatusCode::OK, media_type, Bytes::new());
    *response.body_mut() = body;
    Ok(response)
}

/// Where a watch begins.
struct Start {
    watch: Watch,
    /// Objects to tell as ADDED before anything else.
    initial: VecDeque<Arc<Record>>,
    /// The revision for the bookmark that ends a streaming list.
    initial_end: Option<Revision>,
}

async fn start(
    core: &Core,
    request: &ResourceRequest,
    options: &ListOptions,
    selection: &Selection,
) -> Result<Start> {
    let fresh = match options.resource_version {
        None => Freshness::Latest,
        Some(0) => Freshness::Any,
        Some(version) => Freshness::AtLeast(version),
    };
    let collection = request.resource.collection();
    if let Freshness::AtLeast(version) = fresh {
        wait_until_fresh(core, collection, version).await?;
    }
    let wants_initial = options.initial_events.unwrap_or(!matches!(fresh, Freshness::AtLeast(_)));
    if !wants_initial {
        let after = match fresh {
            Freshness::AtLeast(version) => version,
            _ if core.storage.is_foreign(collection) => {
                core.storage.scan(&selection.query()).await?.revision()
            }
            Freshness::Latest => {
                let latest = core.storage.latest().await?;
                wait_until_fresh(core, collection, latest).await?;
                latest
            }
            _ => core.storage.revision(),
        };
        let watch = open(core, selection, after)?;
        return Ok(Start { watch, initial: VecDeque::new(), initial_end: None });
    }
    let query = ListQuery { fresh, ..selection.query() };
    let listing = gather(core, &query, usize::MAX, selection).await.map_err(Status::from)?;
    let revision = listing.meta.revision;
    let watch = open(core, selection, revision)?;
    let initial = listing.records.into();
    let streaming = options.initial_events == Some(true) && options.bookmarks;
    Ok(Start { watch, initial, initial_end: streaming.then_some(revision) })
}

/// A watch of what the selection may see.
fn open(core: &Core, selection: &Selection, after: Revision) -> Result<Watch> {
    let ListQuery { collection, hint, .. } = selection.query();
    Ok(match hint {
        Some(Hint::Field(field, value)) => core.storage.watch_value(&collection, after, field, &value)?,
        _ => core.storage.watch(&collection, after)?,
    })
}

/// One running watch.
struct Stream {
    core: Arc<Core>,
    resource: Arc<Resource>,
    shape: Shape,
    is_protobuf: bool,
    /// Makes rows, if events are tables.
    rows: Option<Rows>,
    selection: Selection,
    initial: VecDeque<Arc<Record>>,
    initial_end: Option<Revision>,
    watch: Watch,
    /// Everything up to here has been told.
    position: Revision,
    bookmarks: Option<Instant>,
    deadline: Instant,
    ended: CancellationToken,
    /// Cancelled when the definition of a custom resource changes or goes.
    retired: Option<CancellationToken>,
    running: crate::metrics::RunningWatch,
    _place: Place,
}

/// How a watch makes tables: each event is one of a single row.
struct Rows {
    tabulator: Tabulator,
    /// Only the first event says what the columns are.
    with_columns: bool,
}

impl Stream {
    /// The next bytes of the body, and whether they are the last. None: the watch has ended.
    async fn next_piece(&mut self) -> Option<(Bytes, bool)> {
        let mut out = Vec::new();
        if !self.initial.is_empty() {
            // There may be many, and others want to work, too.
            tokio::task::yield_now().await;
        }
        if self.write_initial(&mut out) {
            return Some((out.into(), false));
        }
        let mut is_bookmark_due = false;
        loop {
            // Looked at before the changes are: what happened before the end is still told.
            let retired = self.retired.as_ref().is_some_and(CancellationToken::is_cancelled);
            match self.watch.ready() {
                Ok(batch) => {
                    if let Err(status) = self.write_events(&batch.events, &mut out).await {
                        self.write_error(&status, &mut out);
                        return Some((out.into(), true));
                    }
                    self.position = batch.complete_to;
                }
                Err(error) => {
                    self.write_error(&Status::from(error), &mut out);
                    return Some((out.into(), true));
                }
            }
            if is_bookmark_due {
                self.append_bookmark(&mut out);
            }
            if !out.is_empty() {
                return Some((out.into(), false));
            }
            if retired || self.watch.has_ended() {
                return None;
            }
            let bookmark = self.bookmarks.unwrap_or(self.deadline);
            let retirement = async {
                match &self.retired {
                    Some(retired) => retired.cancelled().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.ended.cancelled() => return None,
                () = tokio::time::sleep_until(self.deadline.min(bookmark)) => {
                    if self.core.env.instant() >= self.deadline {
                        return None;
                    }
                    // What others did has not woken this watch, but it has seen it: a bookmark says how far the store is.
                    is_bookmark_due = true;
                }
                () = retirement => {}
                () = self.watch.changed() => {}
            }
        }
    }

    /// Writes some more of the initial objects; false when all are told.
    fn write_initial(&mut self, out: &mut Vec<u8>) -> bool {
        let mut work = 0;
        while let Some(record) = self.initial.pop_front() {
            self.write_change("ADDED", &record, record.revision, out);
            work += record.value.len();
            if out.len() >= PIECE || work >= WORK {
                return true;
            }
        }
        if let Some(revision) = self.initial_end.take() {
            let annotations = json!({"k8s.io/initial-events-end": "true"});
            self.write_bookmark(revision, Some(annotations), out);
        }
        !out.is_empty()
    }

    /// Tells changes, those of a custom resource in the version that is watched.
    async fn write_events(&mut self, events: &[Arc<Event>], out: &mut Vec<u8>) -> Result<()> {
        if convert::webhook::is_needed(&self.resource) {
            return self.write_converted(events, out).await;
        }
        for event in events {
            let seen = self.selection_sees(event.previous.as_ref(), &event.record, event.deleted);
            if let Some((kind, record)) = seen {
                self.write_event(kind, event, record, out);
            }
        }
        Ok(())
    }

    /// The same where a webhook converts: selectors see what it makes of both states of an object.
    async fn write_converted(&mut self, events: &[Arc<Event>], out: &mut Vec<u8>) -> Result<()> {
        let events = events.iter().filter(|event| self.selection.has_path(&event.record.path));
        let events: Vec<_> = events.collect();
        let is_by_path = self.selection.is_by_path();
        // What an object was before matters to selectors only; without them it is enough that it was there.
        let previous_of = |event: &Event| event.previous.clone().filter(|_| !is_by_path);
        let states = events.iter().flat_map(|event| [Some(Arc::clone(&event.record)), previous_of(event)]);
        let states: Vec<_> = states.flatten().collect();
        let mut converted = convert::webhook::records(&self.core, &self.resource, states).await?.into_iter();
        for event in events {
            let Some(record) = converted.next() else { break };
            let previous = match previous_of(event) {
                Some(_) => converted.next(),
                None => event.previous.clone(),
            };
            if let Some((kind, record)) = self.selection_sees(previous.as_ref(), &record, event.deleted) {
                let record = Arc::clone(record);
                self.write_change(kind, &record, event.revision(), out);
            }
        }
        Ok(())
    }

    /// One change as the selection sees it: an object may enter or leave it.
    fn selection_sees<'e>(
        &self,
        previous: Option<&'e Arc<Record>>,
        record: &'e Arc<Record>,
        deleted: bool,
    ) -> Option<(&'static str, &'e Arc<Record>)> {
        let before = previous.filter(|previous| self.selection.matches(previous));
        let after = !deleted && self.selection.matches(record);
        match (before, after) {
            (None, true) => Some(("ADDED", record)),
            (Some(_), true) => Some(("MODIFIED", record)),
            (Some(_), false) if deleted => Some(("DELETED", record)),
            (Some(previous), false) => Some(("DELETED", previous)),
            (None, false) => None,
        }
    }

    /// Tells a change with `record`, which is that of the event or the one before it.
    fn write_event(&mut self, kind: &str, event: &Event, record: &Arc<Record>, out: &mut Vec<u8>) {
        if self.is_protobuf
            && Arc::ptr_eq(record, &event.record)
            && let Some(body) = protobuf::event_object(&self.resource, self.shape, event)
        {
            append_event(kind, &body, out);
            self.running.event();
        } else {
            self.write_change(kind, record, event.revision(), out);
        }
    }

    fn write_change(&mut self, kind: &str, record: &Record, revision: Revision, out: &mut Vec<u8>) {
        let value = &record.value;
        if !self.is_protobuf {
            return self.write_line(kind, value, revision, out);
        }
        match protobuf::stored_object(&self.resource, self.shape, value, revision) {
            Some(body) => append_event(kind, &body, out),
            // Rather than a change that nobody is told of: who is told this lists again.
            None => self.write_error(&Status::internal("an object has no protobuf form"), out),
        }
        self.running.event();
    }

    fn write_line(&mut self, kind: &str, value: &[u8], revision: Revision, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"type\":\"");
        out.extend_from_slice(kind.as_bytes());
        out.extend_from_slice(b"\",\"object\":");
        if let Some(Rows { tabulator, with_columns }) = &mut self.rows {
            tabulator.set_now(self.core.env.now());
            tabulator.write_one(value, revision, std::mem::take(with_columns), out);
            end_line(out);
        } else {
            write_object(&self.resource, self.shape, value, revision, out);
        }
        out.extend_from_slice(b"}\n");
        self.running.event();
    }

    fn append_bookmark(&mut self, out: &mut Vec<u8>) {
        self.bookmarks = Some(self.core.env.instant().later(BOOKMARKS));
        self.write_bookmark(self.position, None, out);
    }

    fn write_bookmark(
        &mut self,
        revision: Revision,
        annotations: Option<serde_json::Value>,
        out: &mut Vec<u8>,
    ) {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if let Some(annotations) = annotations {
            metadata["annotations"] = annotations;
        }
        if self.is_protobuf {
            if let Some(body) = protobuf::bookmark(&self.resource, self.shape, metadata) {
                append_event("BOOKMARK", &body, out);
            }
            return;
        }
        if let Some(Rows { tabulator, with_columns }) = &mut self.rows {
            out.extend_from_slice(b"{\"type\":\"BOOKMARK\",\"object\":");
            tabulator.write_bookmark(metadata, std::mem::take(with_columns), out);
            end_line(out);
            out.extend_from_slice(b"}\n");
            return;
        }
        let (kind, api_version) = match self.shape {
            Shape::PartialMetadata(version) => ("PartialObjectMetadata", version.api_version()),
            _ => (self.resource.kind(), self.resource.api_version()),
        };
        let object = json!({"kind": kind, "apiVersion": api_version, "metadata": metadata});
        out.extend_from_slice(b"{\"type\":\"BOOKMARK\",\"object\":");
        object::append_object(out, &object);
        out.extend_from_slice(b"}\n");
    }

    fn write_error(&self, status: &Status, out: &mut Vec<u8>) {
        if self.is_protobuf {
            if let Some(body) = protobuf::status(status) {
                append_event("ERROR", &body, out);
            }
            return;
        }
        out.extend_from_slice(b"{\"type\":\"ERROR\",\"object\":");
        out.extend_from_slice(&status.to_json());
        out.extend_from_slice(b"}\n");
    }
}

/// A table ends its line; here the event goes on.
fn end_line(out: &mut Vec<u8>) {
    if out.last() == Some(&b'\n') {
        out.pop();
    }
}
