//! `/healthz`, `/livez` and `/readyz`, in the text format of kube-apiserver.

use http::{HeaderValue, Response, StatusCode, header};

use crate::options::Query;
use crate::response::{Body, respond as response};
use crate::status::{Result, Status};

/// What can be unhealthy: a name and a look at it.
type Check = (&'static str, fn() -> Result<(), String>);

/// A server that answers has what it needs: its storage is in memory, and it serves only once it is complete.
const CHECKS: &[Check] = &[("ping", || Ok(())), ("log", || Ok(())), ("storage", || Ok(()))];

/// Answers `/readyz`, `/readyz?verbose&exclude=log` and `/readyz/ping`.
pub(crate) fn respond(segments: &[&str], query: &Query) -> Result<Response<Body>> {
    respond_with(CHECKS, segments, query)
}

fn respond_with(checks: &[Check], segments: &[&str], query: &Query) -> Result<Response<Body>> {
    match segments {
        [endpoint] => Ok(all(checks, endpoint, query)),
        [_, name @ ..] => {
            let name = name.join("/");
            let (_, check) =
                checks.iter().find(|(known, _)| *known == name).ok_or_else(Status::no_such_path)?;
            Ok(match check() {
                Ok(()) => text(StatusCode::OK, "ok".to_owned()),
                Err(why) => {
                    text(StatusCode::INTERNAL_SERVER_ERROR, format!("internal server error: {why}\n"))
                }
            })
        }
        [] => Err(Status::no_such_path()),
    }
}

fn all(checks: &[Check], endpoint: &str, query: &Query) -> Response<Body> {
    let mut unknown: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    let excluded = unknown.clone();
    unknown.retain(|name| !checks.iter().any(|(known, _)| known == name));
    unknown.sort_unstable();
    unknown.dedup();
    let mut report = String::new();
    let mut healthy = true;
    for (name, check) in checks {
        if excluded.contains(name) {
            report.push_str(&format!("[+]{name} excluded: ok\n"));
        } else if check().is_ok() {
            report.push_str(&format!("[+]{name} ok\n"));
        } else {
            // Who may see this page may not be one who may see the reason.
            report.push_str(&format!("[-]{name} failed: reason withheld\n"));
            healthy = false;
        }
    }
    if !unknown.is_empty() {
        let names: Vec<String> = unknown.iter().map(|name| format!("{name:?}")).collect();
        let names = names.join(", ");
        report.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    if !healthy {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{endpoint} check failed\n"));
    }
    match query.all("verbose").next() {
        None => text(StatusCode::OK, "ok".to_owned()),
        Some(_) => text(StatusCode::OK, format!("{report}{endpoint} check passed\n")),
    }
}

fn text(code: StatusCode, body: String) -> Response<Body> {
    let mut response = response(code, "text/plain; charset=utf-8", body);
    response.headers_mut().insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    const HALF_DEAD: &[Check] = &[("ping", || Ok(())), ("disk", || Err("it is full".to_owned()))];

    #[track_caller]
    fn check(checks: &[Check], url: &str, code: u16, expect: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let response = respond_with(checks, &segments, &Query::parse(query)).unwrap();
        assert_eq!(response.status(), code, "{url}");
        let body = futures::executor::block_on(response.into_body().collect()).unwrap().to_bytes();
        assert_eq!(String::from_utf8_lossy(&body), expect, "{url}");
    }

    #[test]
    fn health_reads_as_in_kube_apiserver() {
        check(CHECKS, "/readyz", 200, "ok");
        check(CHECKS, "/livez/ping", 200, "ok");
        check(CHECKS, "/readyz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]storage ok\nreadyz check passed\n");
        check(
            CHECKS,
            "/healthz?verbose=1&exclude=log&exclude=x",
            200,
            "[+]ping ok\n[+]log excluded: ok\n[+]storage ok\nwarn: some health checks cannot be excluded: no matches \
             for \"x\"\nhealthz check passed\n",
        );
        check(HALF_DEAD, "/livez", 500, "[+]ping ok\n[-]disk failed: reason withheld\nlivez check failed\n");
        check(HALF_DEAD, "/livez?exclude=disk", 200, "ok");
        check(HALF_DEAD, "/livez/disk", 500, "internal server error: it is full\n");
        let unknown = respond(&["readyz", "none"], &Query::default()).unwrap_err();
        assert_eq!(unknown.code, 404);
    }
}
