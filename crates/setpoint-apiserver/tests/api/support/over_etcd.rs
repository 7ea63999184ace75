//! The same tests over the etcd that `SETPOINT_ETCD` names: `cargo xtask real --only etcd` starts one.

use std::sync::LazyLock;
use std::sync::mpsc::channel;
use std::time::Duration;

use setpoint_apiserver::{ApiServer, EtcdOptions};
use setpoint_env::Env;
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;

/// Who talks to etcd. Tests have runtimes that stand still between their own steps.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap());

/// What is different over an etcd that other tests use at the same time.
const ELSEWHERE: [(&str, &str); 4] = [
    ("what_is_stored_can_be_sent_back_and_deleted", "etcd takes 1.5 MiB, objects may have 3"),
    (
        "a_definition_whose_objects_are_as_deep_as_can_be_is_deleted",
        "an event may come before the server has read it itself",
    ),
    ("a_page_of_a_compacted_list_expires_with_a_way_on", "etcd is not compacted by a call of the server's"),
    ("a_list_of_more_than_is_kept_is_whole", "others change the revision between two lists"),
];

/// A server with a prefix of its own; none where there is no etcd. Tests that stop the time have none either: an etcd takes its time,
/// and all of it would pass at once.
pub(super) fn server() -> Option<ApiServer> {
    let url = std::env::var("SETPOINT_ETCD").ok()?;
    let thread = std::thread::current();
    let test = thread.name().and_then(|name| name.rsplit("::").next()).unwrap_or_default();
    if ELSEWHERE.iter().any(|(name, _)| *name == test) {
        return None;
    }
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "only real time shows that tokio's stands still")]
    std::thread::sleep(Duration::from_millis(2));
    if Instant::now() == begun {
        return None;
    }
    let (sender, receiver) = channel();
    RUNTIME.spawn(async move {
        let options = EtcdOptions::new([url]).prefix(format!("/api/{}", Env::system().uuid()));
        let connected = ApiServer::builder().env(Env::seeded(1)).connect(&options).await;
        sender.send(connected.expect("there is an etcd")).unwrap();
    });
    Some(receiver.recv().expect("it was started"))
}
