//! `/healthz`, `/livez` and `/readyz`, in the text format of kube-apiserver.

use http::{HeaderValue, Response, StatusCode, header};

use crate::options::Query;
use crate::response::{Body, respond as response};
use crate::server::Core;
use crate::status::{Result, Status};

/// What can be unhealthy: a name and a look at it.
type Check<'a> = (&'static str, Box<dyn Fn() -> Result<(), String> + 'a>);

/// What is looked at for `/healthz`, `/livez` or `/readyz`.
fn checks<'a>(core: &'a Core, endpoint: &str) -> Vec<Check<'a>> {
    let storage = || core.storage.failure().map_or(Ok(()), |why| Err(why.to_string()));
    let mut checks: Vec<Check<'a>> = vec![
        ("ping", Box::new(|| Ok(()))),
        ("log", Box::new(|| Ok(()))),
        (core.storage.name(), Box::new(storage)),
    ];
    if endpoint == "readyz" {
        let shutdown = || if core.is_ending() { Err("process is shutting down".to_owned()) } else { Ok(()) };
        checks.push(("shutdown", Box::new(shutdown)));
        let tasks = || match core.background.down().as_slice() {
            [] => Ok(()),
            down => Err(format!("restarting after a panic: {}", down.join(", "))),
        };
        checks.push(("tasks", Box::new(tasks)));
    }
    checks
}

/// Answers `/readyz`, `/readyz?verbose&exclude=log` and `/readyz/ping`.
pub(crate) fn respond(core: &Core, segments: &[&str], query: &Query) -> Result<Response<Body>> {
    respond_with(&checks(core, segments.first().copied().unwrap_or_default()), segments, query)
}

fn respond_with(checks: &[Check<'_>], segments: &[&str], query: &Query) -> Result<Response<Body>> {
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

fn all(checks: &[Check<'_>], endpoint: &str, query: &Query) -> Response<Body> {
    let excluded: Vec<&str> = query.all("exclude").filter(|name| !name.is_empty()).collect();
    let is_unknown = |name: &&&str| !checks.iter().any(|(known, _)| known == *name);
    let unknown: Vec<String> = excluded.iter().filter(is_unknown).map(|name| format!("{name:?}")).collect();
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
        let names = unknown.join(", ");
        report.push_str(&format!("warn: some health checks cannot be excluded: no matches for {names}\n"));
    }
    if !healthy {
        return text(StatusCode::INTERNAL_SERVER_ERROR, format!("{report}{endpoint} check failed\n"));
    }
    if query.flag("verbose") {
        return text(StatusCode::OK, format!("{report}{endpoint} check passed\n"));
    }
    text(StatusCode::OK, "ok".to_owned())
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

    fn good() -> Vec<Check<'static>> {
        ["ping", "log", "storage"].map(|name| (name, Box::new(|| Ok(())) as Box<_>)).into()
    }

    fn half_dead() -> Vec<Check<'static>> {
        vec![("ping", Box::new(|| Ok(()))), ("disk", Box::new(|| Err("it is full".to_owned())))]
    }

    async fn check(checks: &[Check<'_>], url: &str, code: u16, expect: &str) {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let segments: Vec<&str> = path.split('/').skip(1).collect();
        let response = respond_with(checks, &segments, &Query::parse(query)).unwrap();
        assert_eq!(response.status(), code, "{url}");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(String::from_utf8_lossy(&body), expect, "{url}");
    }

    #[tokio::test]
    async fn health_reads_as_in_kube_apiserver() {
        check(&good(), "/readyz", 200, "ok").await;
        check(&good(), "/livez/ping", 200, "ok").await;
        check(&good(), "/readyz?verbose", 200, "[+]ping ok\n[+]log ok\n[+]storage ok\nreadyz check passed\n")
            .await;
        check(
            &good(),
            "/healthz?verbose=1&exclude=log",
            200,
            "[+]ping ok\n[+]log excluded: ok\n[+]storage ok\nhealthz check passed\n",
        )
        .await;
        check(
            &good(),
            "/livez?verbose&exclude=x",
            200,
            "[+]ping ok\n[+]log ok\n[+]storage ok\nwarn: some health checks cannot be excluded: no matches for \
             \"x\"\nlivez check passed\n",
        )
        .await;
        check(
            &half_dead(),
            "/livez",
            500,
            "[+]ping ok\n[-]disk failed: reason withheld\nlivez check failed\n",
        )
        .await;
        check(&half_dead(), "/livez?exclude=disk", 200, "ok").await;
        check(&half_dead(), "/livez/disk", 500, "internal server error: it is full\n").await;
        let unknown = respond_with(&good(), &["readyz", "none"], &Query::default()).unwrap_err();
        assert_eq!(unknown.code, 404);
    }
}
