//! Probes and hooks of containers.

use super::super::at::At;
use super::super::formats;
use super::container::Context;

pub(super) fn validate_all(container: &At, context: &Context) {
    let [liveness, readiness, startup] =
        ["livenessProbe", "readinessProbe", "startupProbe"].map(|name| container.field(name));
    if liveness.exists() {
        validate(&liveness, context);
        succeeds_once(&liveness);
    }
    if readiness.exists() {
        validate(&readiness, context);
        if readiness.field("terminationGracePeriodSeconds").exists() {
            readiness.field("terminationGracePeriodSeconds").invalid("must not be set for readinessProbes");
        }
    }
    if startup.exists() {
        validate(&startup, context);
        succeeds_once(&startup);
    }
}

fn validate(probe: &At, context: &Context) {
    handler(probe, &["exec", "httpGet", "tcpSocket", "grpc"], context);
    for field in
        ["initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold"]
    {
        probe.field(field).non_negative();
    }
    let grace = probe.field("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|seconds| seconds <= 0) {
        grace.invalid("must be greater than 0");
    }
}

fn succeeds_once(probe: &At) {
    if probe.field("successThreshold").number().unwrap_or(0) != 1 {
        probe.field("successThreshold").invalid_number("must be 1");
    }
}

pub(super) fn lifecycle(lifecycle: &At, context: &Context) {
    for hook in ["postStart", "preStop"].map(|name| lifecycle.field(name)) {
        if hook.exists() {
            handler(&hook, &["exec", "httpGet", "tcpSocket", "sleep"], context);
        }
    }
    let signal = lifecycle.field("stopSignal");
    if signal.exists() && context.system.is_none() {
        signal.forbidden("may not be set for containers with empty `spec.os.name`");
    }
}

fn handler(at: &At, kinds: &[&str], context: &Context) {
    let mut found = false;
    for kind in kinds {
        let handler = at.field(kind);
        if !handler.exists() {
            continue;
        }
        if found {
            handler.forbidden("may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if handler.field("command").is_empty() => handler.field("command").required(""),
            "httpGet" => http_get(&handler),
            "tcpSocket" => handler.field("port").port(),
            "grpc" => handler.field("port").port_number(),
            "sleep" => sleep(&handler, context.grace),
            _ => {}
        }
    }
    if !found {
        at.required("must specify a handler type");
    }
}

fn http_get(request: &At) {
    request.field("path").has_text();
    request.field("port").port();
    if !["HTTP", "HTTPS"].contains(&request.field("scheme").text()) {
        request.field("scheme").not_supported(&["HTTP", "HTTPS"]);
    }
    let headers = request.field("httpHeaders");
    for header in headers.items() {
        let name = header.field("name").text();
        for problem in formats::http_header_name(name) {
            headers.invalid_as(name, problem);
        }
    }
}

fn sleep(sleep: &At, grace: Option<i64>) {
    let seconds = sleep.field("seconds").number().unwrap_or(0);
    if let Some(grace) = grace
        && !(0..=grace).contains(&seconds)
    {
        let detail = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        sleep.invalid_as(seconds, detail);
    }
}
