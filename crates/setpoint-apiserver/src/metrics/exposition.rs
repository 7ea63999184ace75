//! The text that Prometheus reads: a HELP and a TYPE line a metric, then one line a series.

use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{BUCKETS, CODES, Labels, ListCounts, NAMES, Own, Place, Series, Shared, process};
use crate::storage::Stats;
#[cfg(feature = "etcd")]
use crate::storage::{RemoteStats, Requests};

pub(super) fn text(shared: &Shared, storage: &Stats, own: &Own) -> String {
    let mut page = Page(String::with_capacity(16 * 1024));
    let places: Vec<(Labels, &Place)> = NAMES.places.iter().copied().zip(&shared.places).collect();
    requests(&mut page, &places);
    latencies(&mut page, &places);
    in_flight(&mut page, shared);
    panics(&mut page, shared);
    watches(&mut page, shared);
    lists(&mut page, shared);
    stored(&mut page, storage);
    figures(&mut page, shared, storage);
    #[cfg(feature = "etcd")]
    if let Some(stats) = &storage.remote {
        remote(&mut page, stats);
    }
    own_figures(&mut page, own);
    page.0
}

fn requests(page: &mut Page, places: &[(Labels, &Place)]) {
    page.metric(
        "apiserver_request_total",
        "counter",
        "Requests by what they ask for and how they were answered.",
    );
    for (labels, request, series) in counted(places) {
        for (code, count) in CODES.iter().zip(&series.codes) {
            let count = count.load(Relaxed);
            if count > 0 {
                let code = code.to_string();
                let labels = with(&[("code", code.as_str())], &all(&labels, &request));
                page.line("apiserver_request_total", &labels, count);
            }
        }
    }
}

fn latencies(page: &mut Page, places: &[(Labels, &Place)]) {
    let name = "apiserver_request_duration_seconds";
    page.metric(name, "histogram", "How long it took until the answer was ready, in seconds.");
    for (labels, request, series) in counted(places) {
        let labels = all(&labels, &request);
        let mut count = 0;
        let bounds = BUCKETS.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&series.buckets) {
            count += bucket.load(Relaxed);
            page.line(&format!("{name}_bucket"), &with(&labels, &[("le", bound.as_str())]), count);
        }
        #[allow(clippy::cast_precision_loss)]
        let seconds = series.nanoseconds.load(Relaxed) as f64 / 1e9;
        page.line(&format!("{name}_sum"), &labels, seconds);
        page.line(&format!("{name}_count"), &labels, count);
    }
}

fn in_flight(page: &mut Page, shared: &Shared) {
    let name = "apiserver_current_inflight_requests";
    page.metric(name, "gauge", "Requests that are being answered now, without watches.");
    page.line(name, &[("request_kind", "mutating")], shared.mutating.load(Relaxed));
    page.line(name, &[("request_kind", "readOnly")], shared.reading.load(Relaxed));
}

fn panics(page: &mut Page, shared: &Shared) {
    let name = "setpoint_request_panics_total";
    page.metric(name, "counter", "Requests whose handler panicked; each was answered with 500.");
    page.line(name, &[], shared.panics.load(Relaxed));
}

fn watches(page: &mut Page, shared: &Shared) {
    let mut watches: Vec<_> = NAMES.watches.iter().zip(&shared.watches).collect();
    // A resource that was never watched has nothing to tell.
    watches.retain(|(_, counts)| counts.running.load(Relaxed) > 0 || counts.events.load(Relaxed) > 0);
    let name = "apiserver_longrunning_requests";
    page.metric(name, "gauge", "Watches that are running now.");
    for ((group, version, resource), counts) in &watches {
        let labels = all(&(group, version, resource, ""), &["WATCH", "", ""]);
        let labels: Vec<_> = labels.into_iter().filter(|(name, _)| *name != "dry_run").collect();
        page.line(name, &labels, counts.running.load(Relaxed));
    }
    let name = "apiserver_watch_events_total";
    page.metric(name, "counter", "Events that were sent to watches.");
    for ((group, version, resource), counts) in &watches {
        let labels = [("group", *group), ("resource", *resource), ("version", *version)];
        page.line(name, &labels, counts.events.load(Relaxed));
    }
}

/// kube-apiserver counts the versions of a kind together; so does the sum over `version`.
fn lists(page: &mut Page, shared: &Shared) {
    let mut metric = |name: &str, help: &str, count: fn(&ListCounts) -> &AtomicU64| {
        page.metric(name, "counter", help);
        for ((group, version, resource), counts) in NAMES.watches.iter().zip(&shared.lists) {
            if counts.lists.load(Relaxed) > 0 {
                let labels = [("group", *group), ("resource", *resource), ("version", *version)];
                page.line(name, &labels, count(counts).load(Relaxed));
            }
        }
    };
    metric("apiserver_storage_list_total", "Lists that were read from the store.", |counts| &counts.lists);
    let fetched = "apiserver_storage_list_fetched_objects_total";
    metric(fetched, "Objects and changes that lists have looked at.", |counts| &counts.fetched);
    let returned = "apiserver_storage_list_returned_objects_total";
    metric(returned, "Objects that lists have found.", |counts| &counts.returned);
}

fn stored(page: &mut Page, storage: &Stats) {
    let objects = || {
        storage.records.iter().map(|(collection, count)| {
            let (group, resource) = collection.split_once('/').unwrap_or(("core", collection));
            (if group == "core" { "" } else { group }, resource, count)
        })
    };
    let name = "apiserver_resource_objects";
    page.metric(name, "gauge", "Stored objects by resource.");
    for (group, resource, count) in objects() {
        page.line(name, &[("group", group), ("resource", resource)], count);
    }
    let name = "apiserver_storage_objects";
    page.metric(name, "gauge", "Stored objects by resource; the older name of apiserver_resource_objects.");
    for (group, resource, count) in objects() {
        let dot = if group.is_empty() { "" } else { "." };
        page.line(name, &[("resource", &format!("{resource}{dot}{group}"))], count);
    }
}

fn figures(page: &mut Page, shared: &Shared, storage: &Stats) {
    let mut figure = |name: &str, kind: &str, help: &str, value: &dyn Display| {
        page.metric(name, kind, help);
        page.line(name, &[], value);
    };
    figure("setpoint_storage_revision", "gauge", "The newest revision of the store.", &storage.revision);
    let help = "Events that watches can still go back to.";
    figure("setpoint_storage_history_events", "gauge", help, &storage.history_events);
    let help = "Bytes that these events take.";
    figure("setpoint_storage_history_bytes", "gauge", help, &storage.history_bytes);
    let help = "1 while the disk is full, and only changes that need no room are stored.";
    figure("setpoint_storage_full", "gauge", help, &u8::from(storage.is_full));
    let help = "Changes that were refused because they made the storage writer panic.";
    figure("setpoint_storage_writer_panics_total", "counter", help, &storage.writer_panics);
    figure("process_start_time_seconds", "gauge", "When the server started, since 1970.", &shared.started);
    let usage = process::usage();
    if let Some(bytes) = usage.resident_bytes {
        figure("process_resident_memory_bytes", "gauge", "Memory that is resident.", &bytes);
    }
    if let Some(seconds) = usage.cpu_seconds {
        figure("process_cpu_seconds_total", "counter", "CPU time, user and system.", &seconds);
    }
    if let Some(files) = usage.open_files {
        figure("process_open_fds", "gauge", "Open file descriptors.", &files);
    }
}

/// In kube-apiserver's words, as far as it has some.
#[cfg(feature = "etcd")]
fn remote(page: &mut Page, remote: &RemoteStats) {
    let name = "etcd_request_duration_seconds";
    page.metric(name, "summary", "How long requests to etcd took.");
    for Requests { operation, count, seconds, .. } in &remote.requests {
        let labels = [("operation", *operation)];
        page.line(&format!("{name}_sum"), &labels, seconds);
        page.line(&format!("{name}_count"), &labels, count);
    }
    let name = "etcd_request_errors_total";
    page.metric(name, "counter", "Requests to etcd that failed.");
    for Requests { operation, errors, .. } in &remote.requests {
        page.line(name, &[("operation", operation)], errors);
    }
    let mut figure = |name: &str, kind: &str, help: &str, value: &dyn Display| {
        page.metric(name, kind, help);
        page.line(name, &[], value);
    };
    let help = "How often the watch of etcd had to be begun again.";
    figure("setpoint_etcd_watch_restarts_total", "counter", help, &remote.watch_restarts);
    let help = "How many revisions the copy in memory is behind what etcd was heard to be at.";
    figure("setpoint_etcd_watch_lag_revisions", "gauge", help, &remote.lag_revisions);
    let help = "How long the copy in memory was behind at the last answer of the watch.";
    figure("setpoint_etcd_watch_lag_seconds", "gauge", help, &remote.lag_seconds);
    let help = "Compactions of etcd by this server.";
    figure("setpoint_etcd_compactions_total", "counter", help, &remote.compactions);
    figure("setpoint_etcd_leases_total", "counter", "Leases that were granted.", &remote.leases);
    let help = "Objects that were attached to leases.";
    figure("setpoint_etcd_leased_objects_total", "counter", help, &remote.leased_objects);
}

fn own_figures(page: &mut Page, own: &Own) {
    let name = "setpoint_task_panics_total";
    page.metric(name, "counter", "Panics of background tasks, each of which was restarted.");
    for (task, panics) in &own.panics {
        page.line(name, &[("task", task)], panics);
    }
    let Some((events, lost)) = own.audit else { return };
    page.metric("apiserver_audit_event_total", "counter", "Audit events, written or lost.");
    page.line("apiserver_audit_event_total", &[], events);
    page.metric("apiserver_audit_error_total", "counter", "Audit events that are not in the log.");
    page.line("apiserver_audit_error_total", &[("plugin", "log")], lost);
}

type Label<'a> = (&'a str, &'a str);

fn counted<'a>(
    places: &'a [(Labels, &'a Place)],
) -> impl Iterator<Item = (Labels, [&'static str; 3], &'a Series)> {
    let each =
        |(labels, place): &'a (Labels, &'a Place)| place.counted().map(|(request, s)| (*labels, request, s));
    places.iter().flat_map(each)
}

/// The labels of a request, in alphabetical order as Go's library writes them.
fn all<'a>(labels: &(&'a str, &'a str, &'a str, &'a str), request: &[&'a str; 3]) -> Vec<Label<'a>> {
    let (group, version, resource, subresource) = *labels;
    let [verb, scope, dry_run] = *request;
    vec![
        ("component", "apiserver"),
        ("dry_run", dry_run),
        ("group", group),
        ("resource", resource),
        ("scope", scope),
        ("subresource", subresource),
        ("verb", verb),
        ("version", version),
    ]
}

fn with<'a>(first: &[Label<'a>], then: &[Label<'a>]) -> Vec<Label<'a>> {
    [first, then].concat()
}

struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = write!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, labels: &[Label<'_>], value: impl Display) {
        self.0.push_str(name);
        for (i, (label, value)) in labels.iter().enumerate() {
            // The values are names from the table of kinds: nothing in them needs escaping.
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{value}\"");
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }
}
