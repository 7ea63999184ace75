//! This program under the name `etcd`: what test environments start first. It keeps no objects itself; it tells the server
//! in which folder to keep them.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{Arg, ArgAction, ArgMatches, Command};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::json;
use setpoint_env::Env;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::kube_apiserver::unusable;
use crate::logging;
use crate::parent::Parent;
use crate::signals::Signals;

const TABLE: &str = include_str!("etcd/flags.txt");
/// Where it tells its folder. A real etcd has no such path.
const PATH: &str = "/setpoint/store";
const PAUSE: Duration = Duration::from_millis(20);
const LONGEST_ANSWER: usize = 64 << 10;

/// Where the objects are.
#[derive(Debug, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Store {
    pub(crate) folder: PathBuf,
    /// Whether a write has to be on the disk before it is answered.
    pub(crate) is_synced: bool,
}

/// Runs it with the arguments of the process.
#[expect(clippy::print_stderr, reason = "whoever started it reads why it ended")]
pub(crate) fn main(env: &Env) -> ExitCode {
    match run(env) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("etcd (setpoint): {}", setpoint::in_words(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run(env: &Env) -> anyhow::Result<()> {
    // As early as can be, so that its end is not missed.
    let parent = Parent::now();
    let flags = match command().try_get_matches() {
        Ok(flags) => flags,
        Err(error) if error.use_stderr() => bail!(unusable(&error)),
        Err(help) => help.exit(),
    };
    logging::start("warn")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.context("cannot start")?.block_on(serve(env, &flags, parent))
}

async fn serve(env: &Env, flags: &ArgMatches, parent: Parent) -> anyhow::Result<()> {
    let mut signals = Signals::new().context("cannot listen to signals")?.or_end_of(parent);
    let store = store(flags)?;
    std::fs::create_dir_all(&store.folder).with_context(|| store.folder.display().to_string())?;
    let store = serde_json::to_vec(&store)?;
    let urls = text(flags, "listen-client-urls").unwrap_or("http://localhost:2379");
    let mut listeners = Vec::new();
    for url in urls.split(',') {
        let address =
            url.strip_prefix("http://").with_context(|| format!("{url}: only http:// is supported"))?;
        let listener = TcpListener::bind(address.trim_end_matches('/')).await;
        listeners.push(listener.with_context(|| format!("cannot listen on {url}"))?);
    }
    let tasks: Vec<_> = listeners
        .into_iter()
        .map(|listener| env.spawn(listen(listener, Bytes::from(store.clone()))))
        .collect();
    signals.next().await;
    drop(tasks);
    Ok(())
}

async fn listen(listener: TcpListener, store: Bytes) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let store = store.clone();
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let store = store.clone();
            async move { Ok::<_, Infallible>(answer(request.uri().path(), store)) }
        });
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
        let connection = http.serve_connection(TokioIo::new(stream), service);
        // A client that breaks off is no trouble of ours.
        connections.spawn(async move { drop(connection.await) });
        while connections.try_join_next().is_some() {}
    }
}

fn answer(path: &str, store: Bytes) -> Response<Full<Bytes>> {
    let (code, body) = match path {
        "/health" | "/readyz" | "/livez" => {
            (StatusCode::OK, json!({"health": "true", "reason": ""}).to_string().into())
        }
        "/version" => {
            (StatusCode::OK, json!({"etcdserver": "3.7.3", "etcdcluster": "3.7.0"}).to_string().into())
        }
        PATH => (StatusCode::OK, store),
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"404 page not found\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = code;
    response
}

/// Asks the etcd at a URL for its folder, until it answers. None if it is a real one.
pub(crate) async fn find(url: &str) -> anyhow::Result<Option<Store>> {
    if !url.starts_with("http://") {
        return Ok(None);
    }
    let client = Client::builder(TokioExecutor::new()).build_http::<Empty<Bytes>>();
    let uri: http::Uri = format!("{}{PATH}", url.trim_end_matches('/')).parse().context(url.to_owned())?;
    loop {
        let Ok(response) = client.get(uri.clone()).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        if response.status() != StatusCode::OK {
            return Ok(None);
        }
        let body = Limited::new(response.into_body(), LONGEST_ANSWER).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{url}: {error}"))?.to_bytes();
        return serde_json::from_slice(&body)
            .map(Some)
            .with_context(|| format!("--etcd-servers: {url} is not an etcd"));
    }
}

fn store(flags: &ArgMatches) -> anyhow::Result<Store> {
    let folder = match text(flags, "data-dir").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(format!("{}.etcd", text(flags, "name").unwrap_or("default"))),
    };
    let is_unsynced = text(flags, "unsafe-no-fsync") == Some("true");
    Ok(Store { folder: std::path::absolute(folder)?, is_synced: !is_unsynced })
}

fn text<'a>(flags: &'a ArgMatches, name: &str) -> Option<&'a str> {
    flags.get_many::<String>(name)?.next_back().map(String::as_str)
}

fn command() -> Command {
    let mut command = Command::new("etcd")
        .version(concat!("Version: 3.7.3 (setpoint ", env!("CARGO_PKG_VERSION"), ")"))
        .about("setpoint as etcd: tells the kube-apiserver beside it where to keep its objects")
        .max_term_width(100);
    for line in TABLE.lines() {
        let Some((kind, name)) = line.split_once(' ').filter(|(kind, _)| matches!(*kind, "flag" | "switch"))
        else {
            continue;
        };
        let help = match name {
            "data-dir" => "The folder for the objects",
            "listen-client-urls" => "Where to listen, http:// alone",
            "unsafe-no-fsync" => "Answer writes before they are on the disk",
            _ => "",
        };
        let argument = Arg::new(name).long(name).help(help).action(ArgAction::Append);
        command = command.arg(match kind {
            "switch" => argument.num_args(0..=1).require_equals(true).default_missing_value("true"),
            _ => argument.num_args(1).allow_hyphen_values(true),
        });
    }
    command
}
