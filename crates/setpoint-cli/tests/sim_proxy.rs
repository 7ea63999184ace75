//! `setpoint sim proxy` as its users see it: a process between a client and a server, over TLS.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use futures::TryStreamExt;
use http::{Request, StatusCode, header};
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::KubeConfigOptions;
use kube::{Client, Config, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use setpoint_apiserver::kubeconfig::Kubeconfig;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_apiserver::serve::CancellationToken;
use setpoint_apiserver::{ApiServer, User};
use setpoint_env::{Env, Task};
use setpoint_kinds::protobuf;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader, Lines};
use tokio::net::TcpListener;
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

/// Anything that takes longer hangs.
const HANG: Duration = Duration::from_secs(60);
/// A request that is never answered: this is long enough to be sure.
const NEVER: Duration = Duration::from_secs(3);

/// A real server: it listens with TLS, and wants a certificate.
struct Server {
    folder: TempDir,
    server: ApiServer,
    _serving: Task<()>,
}

impl Server {
    async fn start() -> Server {
        let (env, folder) = (Env::system(), tempfile::tempdir().unwrap());
        let server = ApiServer::builder().build();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let authority = CertificateAuthority::generate(&env).unwrap();
        let tls = authority.server_config(&authority.issue_server(["127.0.0.1"]).unwrap()).unwrap();
        let admin = authority.issue_client(&User::admin()).unwrap();
        Kubeconfig::new(&url, &authority, &admin).write(&folder.path().join("kubeconfig")).unwrap();
        let serving = {
            let server = server.clone();
            env.spawn(async move { server.serve(listener, tls, CancellationToken::new()).await })
        };
        Server { folder, server, _serving: serving }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Around the proxy.
    fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.server.client())
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
        command.args(["sim", "proxy", "--kubeconfig", "kubeconfig"]).args(arguments);
        command.current_dir(self.folder.path()).kill_on_drop(true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    async fn proxy(&self, arguments: &[&str]) -> Proxy {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        loop {
            let line = timeout(HANG, stdout.next_line()).await.unwrap().unwrap().expect("it ended");
            if let Some(path) = line.strip_prefix("kubeconfig for the controller: ") {
                return Proxy { child, stdout, kubeconfig: path.into() };
            }
        }
    }
}

struct Proxy {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    kubeconfig: PathBuf,
}

impl Proxy {
    async fn client(&self) -> Client {
        client(&self.kubeconfig).await
    }

    async fn maps(&self) -> Api<ConfigMap> {
        Api::default_namespaced(self.client().await)
    }

    /// Ends it as Ctrl-C does. Gives its exit code, its summary and its complaints.
    async fn end(mut self) -> (Option<i32>, String, String) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let (mut summary, mut errors) = (String::new(), String::new());
        while let Some(line) = timeout(HANG, self.stdout.next_line()).await.unwrap().unwrap() {
            summary += &line;
            summary.push('\n');
        }
        self.child.stderr.take().unwrap().read_to_string(&mut errors).await.unwrap();
        let code = timeout(HANG, self.child.wait()).await.unwrap().unwrap().code();
        (code, summary, errors)
    }
}

async fn client(kubeconfig: &Path) -> Client {
    let kubeconfig = kube::config::Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

fn map(name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map
}

fn code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

#[tokio::test]
async fn requests_pass_and_faults_happen_as_the_script_says() {
    let server = Server::start().await;
    let script = "# A comment.\non create configmaps default/a: lose answer\non update configmaps: refuse 409\n\
                  on watch configmaps: cut after 2 events\n";
    std::fs::write(server.path("faults"), script).unwrap();
    let proxy = server.proxy(&["--faults", "faults", "--log", "log"]).await;
    let maps = proxy.maps().await;
    let post = PostParams::default();

    let lost = maps.create(&post, &map("a")).await.unwrap_err();
    assert_eq!(code(&lost), None, "{lost}");
    assert!(server.maps().get_opt("a").await.unwrap().is_some(), "it was committed");

    // A client without retries may try the connection that broke.
    let maps = proxy.maps().await;
    let made = maps.create(&post, &map("b")).await.unwrap();
    assert_eq!(code(&maps.replace("b", &post, &made).await.unwrap_err()), Some(409));
    maps.replace("b", &post, &made).await.unwrap();

    let mut events = std::pin::pin!(maps.watch(&WatchParams::default(), "0").await.unwrap());
    let mut names = Vec::new();
    let end = loop {
        match events.try_next().await {
            Ok(Some(WatchEvent::Added(map))) => names.push(map.name_any()),
            end => break end,
        }
    };
    assert_eq!(names.len(), 2, "{names:?}, then {end:?}");
    assert!(!matches!(end, Ok(Some(_))), "{end:?}");

    let (exit, summary, errors) = proxy.end().await;
    assert_eq!(exit, Some(0), "{errors}");
    assert!(summary.contains("3 faults") && summary.contains("1 watches with 2 events"), "{summary}");
    assert!(
        summary.contains("lost the response of POST configmaps/default/a after it was committed"),
        "{summary}"
    );
    let log = std::fs::read_to_string(server.path("log")).unwrap();
    assert!(log.contains(": 201,"), "{log}");
    assert!(log.contains("cut WATCH configmaps"), "{log}");
}

#[tokio::test]
async fn a_watch_in_protobuf_is_held_and_expires_between_its_events() {
    let server = Server::start().await;
    server.maps().create(&PostParams::default(), &map("a")).await.unwrap();
    let proxy = server.proxy(&["--fault", "on watch configmaps: expire after 1 event"]).await;
    let request = Request::get(
        "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=0&fieldSelector=metadata.name%3Da",
    )
    .header(header::ACCEPT, "application/vnd.kubernetes.protobuf;stream=watch")
    .body(kube::client::Body::empty())
    .unwrap();
    let response = proxy.client().await.send(request).await.unwrap();
    let body = timeout(HANG, response.into_body().collect()).await.unwrap().unwrap().to_bytes();
    let mut rest = &body[..];
    let mut kinds = Vec::new();
    let mut last = None;
    while let Some((length, after)) = rest.split_first_chunk::<4>() {
        let (message, after) = after.split_at(u32::from_be_bytes(*length) as usize);
        let event = protobuf::WatchEvent::parse(message).unwrap();
        kinds.push(String::from_utf8(event.kind.to_vec()).unwrap());
        last = Some(protobuf::decode(event.object).unwrap().value);
        rest = after;
    }
    assert_eq!(kinds, ["ADDED", "ERROR"]);
    assert_eq!(last.unwrap()["code"], 410);
}

#[tokio::test]
async fn a_fault_kills_the_command_when_its_write_is_committed_and_starts_it_again() {
    let server = Server::start().await;
    let command = ["--", "sh", "-c", "echo $0 >> starts; exec sleep 1000", "{kubeconfig}"];
    let faults = [
        "--down",
        "100ms",
        "--fault",
        "on 2nd create configmaps: crash after commit",
        "--fault",
        "on create secrets: crash before",
    ];
    let proxy = server.proxy(&[&faults[..], &command[..]].concat()).await;
    let starts = || std::fs::read_to_string(server.path("starts")).unwrap_or_default().lines().count();
    let started = async |n: usize| {
        let wait = async {
            while starts() < n {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(HANG, wait).await.unwrap_or_else(|_| panic!("it was started {} times, not {n}", starts()));
    };
    started(1).await;
    let (maps, post) = (proxy.maps().await, PostParams::default());
    maps.create(&post, &map("a")).await.unwrap();
    assert!(timeout(NEVER, maps.create(&post, &map("b"))).await.is_err(), "the dead get no answer");
    assert!(server.maps().get_opt("b").await.unwrap().is_some(), "it was committed");
    started(2).await;

    proxy.maps().await.create(&post, &map("c")).await.unwrap();

    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(proxy.client().await);
    let secret: k8s_openapi::api::core::v1::Secret =
        serde_json::from_value(serde_json::json!({"metadata": {"name": "s"}})).unwrap();
    assert!(timeout(NEVER, secrets.create(&post, &secret)).await.is_err());
    started(3).await;
    let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::default_namespaced(server.server.client());
    assert!(secrets.get_opt("s").await.unwrap().is_none(), "it never reached the server");

    let (exit, summary, errors) = proxy.end().await;
    assert_eq!(exit, Some(0), "{errors}");
    assert!(summary.contains("started 3 times, killed 2 times, ended by itself 0 times"), "{summary}");
}

#[tokio::test]
async fn a_seed_chooses_faults_and_a_check_says_whether_all_is_well() {
    let server = Server::start().await;
    let run = async |check: &str| {
        let arguments = [
            "--seed",
            "7",
            "--chance",
            "0.3",
            "--heal-after",
            "3s",
            "--check-within",
            "2s",
            "--check",
            check,
        ];
        let mut proxy = server.proxy(&arguments).await;
        let maps = proxy.maps().await;
        for _ in 0..40 {
            let _maybe = timeout(Duration::from_millis(200), maps.list(&ListParams::default())).await;
        }
        let code = timeout(HANG, proxy.child.wait()).await.unwrap().unwrap().code();
        let mut summary = String::new();
        while let Some(line) = proxy.stdout.next_line().await.unwrap() {
            summary += &line;
            summary.push('\n');
        }
        (code, summary)
    };
    let (code, summary) = run("test -n \"$KUBECONFIG\"").await;
    assert_eq!(code, Some(0), "{summary}");
    assert!(summary.contains("the check succeeded") && !summary.contains("\n0 faults"), "{summary}");
    let (code, summary) = run("false").await;
    assert_eq!(code, Some(1), "{summary}");
    assert!(summary.contains("the check failed"), "{summary}");
}

#[tokio::test]
async fn a_command_that_ends_well_is_checked_and_the_check_asks_the_cluster_of_the_context() {
    let server = Server::start().await;
    // Another cluster is the current one, and is not there.
    let path = server.path("kubeconfig");
    let mut kubeconfig = kube::config::Kubeconfig::read_from(&path).unwrap();
    let mine = kubeconfig.current_context.replace("away".to_owned()).unwrap();
    let mut away = kubeconfig.contexts[0].clone();
    away.name = "away".to_owned();
    away.context.as_mut().unwrap().cluster = "away".to_owned();
    kubeconfig.contexts.push(away);
    let mut cluster = kubeconfig.clusters[0].clone();
    cluster.name = "away".to_owned();
    cluster.cluster.as_mut().unwrap().server = Some("https://127.0.0.1:1".to_owned());
    kubeconfig.clusters.push(cluster);
    std::fs::write(&path, serde_json::to_vec(&kubeconfig).unwrap()).unwrap();
    let run = async |check: &str| {
        let arguments = ["--context", &mine, "--check-within", "2s", "--check", check, "--", "true"];
        let output = timeout(HANG, server.command(&arguments).output()).await.unwrap().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (code, summary, errors) = run("false").await;
    assert_eq!(code, Some(1), "{summary}{errors}");
    assert!(errors.contains("the check did not succeed within 2s"), "{errors}");
    let current = format!("grep -Eq '\"current-context\": ?\"{mine}\"' \"$KUBECONFIG\"");
    let (code, summary, errors) = run(&current).await;
    assert_eq!(code, Some(0), "{summary}{errors}");
    assert!(summary.contains("the check succeeded"), "{summary}");
}

#[tokio::test]
async fn a_check_that_could_never_run_is_refused() {
    let server = Server::start().await;
    let output = server.command(&["--for", "5s", "--check", "true"]).output().await.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("--check would never run") && errors.contains("--heal-after 30s"), "{errors}");
    let arguments = ["--for", "2s", "--heal-after", "100ms", "--check", "false"];
    let output = timeout(HANG, server.command(&arguments).output()).await.unwrap().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("did not succeed before --for was over"), "{errors}");
}

#[tokio::test]
async fn who_does_not_have_the_kubeconfig_gets_nowhere() {
    let server = Server::start().await;
    let proxy = server.proxy(&[]).await;
    let mut kubeconfig = kube::config::Kubeconfig::read_from(&proxy.kubeconfig).unwrap();
    kubeconfig.auth_infos[0].auth_info.as_mut().unwrap().token = Some("guessed".to_owned().into());
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config).unwrap());
    let refused = maps.list(&ListParams::default()).await.unwrap_err();
    assert_eq!(code(&refused), Some(StatusCode::UNAUTHORIZED.as_u16()), "{refused}");
}

#[tokio::test]
async fn what_is_wrong_is_said_with_the_next_step() {
    let server = Server::start().await;
    let output = server.command(&["--fault", "on create pods: explode"]).output().await.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        errors.contains("there is no fault \"explode\"") && errors.contains("crash after commit"),
        "{errors}"
    );

    let output = server.command(&["--", "./is-not-there"]).output().await.unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(errors.contains("cannot start \"./is-not-there\""), "{errors}");

    let proxy = server.proxy(&["--fault", "on 3rd create pods: lose answer"]).await;
    let (exit, _, errors) = proxy.end().await;
    assert_eq!(exit, Some(1));
    assert!(
        errors.contains("never injected") && errors.contains("on 3rd create pods: lose answer"),
        "{errors}"
    );
}
