//! `setpoint up` as its users see it: a process, a file, and clients outside of it.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::client::ConfigExt;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rustix::process::{Pid, Signal, kill_process};
use setpoint_apiserver::User;
use setpoint_apiserver::pki::CertificateAuthority;
use setpoint_env::Env;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::{Child, ChildStdout, Command};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Anything that takes longer hangs.
const HANG: Duration = Duration::from_secs(20);

fn setpoint(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_setpoint"));
    command.args(arguments).current_dir(folder).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command that is expected to end by itself. Gives its exit code and what it wrote.
async fn run(folder: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = tokio::time::timeout(HANG, setpoint(folder, arguments).output()).await.unwrap().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

/// A server that has said that it is ready.
struct Server {
    folder: TempDir,
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    announcement: String,
}

impl Server {
    async fn start() -> Server {
        Server::start_with(&["--listen", "127.0.0.1:0", "--memory", "--no-controllers"]).await
    }

    async fn start_with(arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut child = setpoint(folder.path(), &[&["up"], arguments].concat()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut server = Server { folder, child, stdout, announcement: String::new() };
        loop {
            let line = tokio::time::timeout(HANG, server.stdout.next_line()).await.unwrap().unwrap();
            let line = line.expect("the server ended before it was ready");
            server.announcement += &line;
            server.announcement += "\n";
            if line.starts_with("ready in ") {
                return server;
            }
        }
    }

    fn kubeconfig_path(&self) -> PathBuf {
        self.folder.path().join(".setpoint/kubeconfig")
    }

    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::read_from(self.kubeconfig_path()).unwrap()
    }

    /// `HOST:PORT`
    fn address(&self) -> String {
        let url = self.kubeconfig().clusters[0].cluster.as_ref().unwrap().server.clone().unwrap();
        url.strip_prefix("https://").unwrap().to_owned()
    }

    async fn client(&self) -> Client {
        client(self.kubeconfig()).await
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    async fn exit_code(&mut self) -> Option<i32> {
        tokio::time::timeout(HANG, self.child.wait()).await.expect("the server does not stop").unwrap().code()
    }
}

async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

async fn create_config_map(client: Client, name: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    Api::default_namespaced(client).create(&PostParams::default(), &map).await.unwrap()
}

/// One line that starts with the name of the program, and has `hint` in it.
fn assert_one_line(stderr: &str, hint: &str) {
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("setpoint: ") && stderr.contains(hint), "{stderr}");
}

#[tokio::test]
async fn a_client_with_the_kubeconfig_is_the_administrator() {
    let server = Server::start().await;
    let client = server.client().await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let names: Vec<String> = namespaces
        .list(&ListParams::default())
        .await
        .unwrap()
        .into_iter()
        .filter_map(|namespace| namespace.metadata.name)
        .collect();
    assert_eq!(names, ["default", "kube-node-lease", "kube-public", "kube-system"]);
    let created = create_config_map(client, "greeting").await;
    assert!(created.metadata.uid.is_some() && created.metadata.resource_version.is_some());
}

#[tokio::test]
async fn the_servers_own_front_proxy_is_published_and_is_nobody_here() {
    let server = Server::start_with(&["--listen", "127.0.0.1:0", "--no-controllers"]).await;
    let maps: Api<ConfigMap> = Api::namespaced(server.client().await, "kube-system");
    let data = maps.get("extension-apiserver-authentication").await.unwrap().data.unwrap();
    let proxy = server.folder.path().join(".setpoint/pki/front-proxy");
    let read = |name: &str| std::fs::read_to_string(proxy.join(name)).unwrap();
    assert_eq!(data["requestheader-client-ca-file"], read("ca.crt"));
    assert_eq!(data["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
    assert_eq!(data["requestheader-username-headers"], r#"["X-Remote-User"]"#);
    assert_ne!(data["client-ca-file"], data["requestheader-client-ca-file"]);
    let mut kubeconfig = server.kubeconfig();
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().unwrap();
    user.client_certificate_data = None;
    user.client_key_data = None;
    user.client_certificate = Some(proxy.join("client.crt").display().to_string());
    user.client_key = Some(proxy.join("client.key").display().to_string());
    let maps: Api<ConfigMap> = Api::namespaced(client(kubeconfig).await, "kube-system");
    maps.list(&ListParams::default()).await.expect_err("it is not of the authority of clients");
}

#[tokio::test]
async fn the_kubeconfig_is_for_its_owner_alone_and_the_announcement_says_where_it_is() {
    let server = Server::start().await;
    let path = server.kubeconfig_path();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(path.parent().unwrap()).unwrap().permissions().mode() & 0o777, 0o700);
    let text = &server.announcement;
    assert!(text.contains(&format!("https://{}", server.address())), "{text}");
    assert!(text.contains(&format!("export KUBECONFIG={}", path.display())), "{text}");
    let last = text.lines().last().unwrap();
    let number = last.strip_prefix("ready in ").and_then(|rest| rest.strip_suffix(" ms"));
    assert!(number.is_some_and(|number| number.parse::<u64>().is_ok()), "{last}");
}

#[tokio::test]
async fn whoever_sees_the_kubeconfig_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let arguments = ["up", "--listen", ":0", "--kubeconfig", "kubeconfig"];
    let _child = setpoint(folder.path(), &arguments).spawn().unwrap();
    let appears = async {
        while !path.exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG, appears).await.unwrap();
    create_config_map(client(Kubeconfig::read_from(&path).unwrap()).await, "first").await;
}

#[tokio::test]
async fn a_client_without_a_certificate_is_unauthorized() {
    let server = Server::start().await;
    let mut kubeconfig = server.kubeconfig();
    kubeconfig.auth_infos[0].auth_info = Some(kube::config::AuthInfo::default());
    let anonymous = client(kubeconfig).await;
    let error = Api::<Namespace>::all(anonymous).list(&ListParams::default()).await.unwrap_err();
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    assert_eq!((status.code, status.reason.as_str()), (401, "Unauthorized"));
}

#[tokio::test]
async fn a_client_with_a_certificate_of_another_authority_is_refused() {
    let server = Server::start().await;
    let stranger = CertificateAuthority::generate(&Env::system()).unwrap();
    let pem = stranger.issue_client(&User::admin()).unwrap().to_pem();
    let mut config =
        Config::from_custom_kubeconfig(server.kubeconfig(), &KubeConfigOptions::default()).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate"), folder.path().join("key"));
    std::fs::write(&certificate, pem.certificate).unwrap();
    std::fs::write(&key, pem.key).unwrap();
    config.auth_info = kube::config::AuthInfo::default();
    config.auth_info.client_certificate = Some(certificate.display().to_string());
    config.auth_info.client_key = Some(key.display().to_string());
    let mallory = Client::try_from(config).unwrap();
    let error = Api::<Namespace>::all(mallory).list(&ListParams::default()).await.unwrap_err();
    assert!(matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_)), "{error:?}");
}

#[tokio::test]
async fn signals_stop_it_cleanly_also_while_a_watch_is_open() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start().await;
        let client = server.client().await;
        create_config_map(client.clone(), "seen").await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client);
        let mut watch = Box::pin(maps.watch(&WatchParams::default(), "0").await.unwrap());
        let first = tokio::time::timeout(HANG, watch.try_next()).await.unwrap().unwrap();
        assert!(matches!(first, Some(WatchEvent::Added(_))), "{first:?}");

        server.signal(signal);
        let stopped = tokio::time::timeout(Duration::from_secs(3), server.exit_code()).await;
        assert_eq!(stopped.expect("the watch holds the server up"), Some(0));
        assert!(!server.kubeconfig_path().exists(), "of no use any more");
        let rest = tokio::time::timeout(HANG, watch.try_collect::<Vec<_>>()).await.unwrap();
        assert_eq!(rest.unwrap().len(), 0, "the watch came to a proper end");
    }
}

#[tokio::test]
async fn a_second_signal_stops_it_at_once() {
    let mut server = Server::start().await;
    let client = server.client().await;
    // A request that never comes to its end holds a clean stop up.
    let _stuck = begin_a_request(&server).await;
    let begun = async {
        while !metrics(&client).await.contains(r#"inflight_requests{request_kind="mutating"} 1"#) {}
    };
    tokio::time::timeout(HANG, begun).await.unwrap();

    server.signal(Signal::TERM);
    let noticed = async {
        while server.kubeconfig_path().exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG, noticed).await.unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.exit_code().await, Some(128 + Signal::TERM.as_raw()));
}

async fn metrics(client: &Client) -> String {
    client.request_text(http::Request::get("/metrics").body(Vec::new()).unwrap()).await.unwrap()
}

/// Sends the first byte of a body.
async fn begin_a_request(server: &Server) -> TlsStream<TcpStream> {
    let config = Config::from_custom_kubeconfig(server.kubeconfig(), &KubeConfigOptions::default()).await;
    let tls = TlsConnector::from(Arc::new(config.unwrap().rustls_client_config().unwrap()));
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let mut stream = tls.connect("127.0.0.1".try_into().unwrap(), stream).await.unwrap();
    let head = "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\n\
        Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{";
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

#[tokio::test]
async fn a_kubeconfig_that_somebody_changed_stays() {
    let mut server = Server::start().await;
    let changed = std::fs::read_to_string(server.kubeconfig_path()).unwrap() + "# mine\n";
    std::fs::write(server.kubeconfig_path(), &changed).unwrap();
    server.signal(Signal::TERM);
    assert_eq!(server.exit_code().await, Some(0));
    assert_eq!(std::fs::read_to_string(server.kubeconfig_path()).unwrap(), changed);
}

#[tokio::test]
async fn a_port_in_use_is_an_error_that_leaves_the_first_server_alone() {
    let server = Server::start().await;
    let arguments = ["up", "--listen", &server.address()];
    let (code, stdout, stderr) = run(server.folder.path(), &arguments).await;
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_one_line(
        &stderr,
        "the port is in use; stop the other server or choose another port with --listen",
    );
    create_config_map(server.client().await, "still-there").await;
}

#[tokio::test]
async fn a_place_where_no_kubeconfig_can_be_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    // A file where a folder should be: not even the superuser can write below it.
    std::fs::write(folder.path().join("file"), "").unwrap();
    let arguments = ["up", "--listen", ":0", "--kubeconfig", "file/kubeconfig"];
    let (code, stdout, stderr) = run(folder.path(), &arguments).await;
    assert_eq!((code, stdout.as_str()), (Some(1), ""));
    assert_one_line(&stderr, "choose another place with --kubeconfig PATH");
}

#[tokio::test]
async fn a_folder_that_may_not_be_written_is_an_error() {
    // Nobody, the superuser included, makes files here.
    let arguments = ["up", "--memory", "--listen", ":0", "--kubeconfig", "/proc/setpoint/kubeconfig"];
    let (code, _, stderr) = run(Path::new("/"), &arguments).await;
    assert_eq!(code, Some(1));
    assert_one_line(&stderr, "choose another place with --kubeconfig PATH");
}

#[tokio::test]
async fn a_kubeconfig_with_other_clusters_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let text = "clusters: [{name: production, cluster: {server: 'https://production.example'}}]";
    std::fs::write(folder.path().join("config"), text).unwrap();
    let (code, _, stderr) = run(folder.path(), &["up", "--listen", ":0", "--kubeconfig", "config"]).await;
    assert_eq!(code, Some(1));
    assert_one_line(&stderr, "other clusters");
    assert_eq!(std::fs::read_to_string(folder.path().join("config")).unwrap(), text);
}

#[tokio::test]
async fn bad_arguments_are_one_line_errors() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, hint) in [
        (["up", "--listen", "nonsense"], "HOST:PORT"),
        (["up", "--listen", "192.0.2.1:0"], "no network interface"),
        (["up", "--log", "loud=very"], "--log takes"),
    ] {
        let (code, _, stderr) = run(folder.path(), &arguments).await;
        assert_eq!(code, Some(1), "{arguments:?}");
        assert_one_line(&stderr, hint);
    }
}

#[tokio::test]
async fn help_and_version_help() {
    let folder = tempfile::tempdir().unwrap();
    let (code, help, _) = run(folder.path(), &["up", "--help"]).await;
    assert_eq!(code, Some(0));
    for word in [
        "--listen",
        "--data",
        "--memory",
        "--kubeconfig",
        "--log",
        "--no-controllers",
        "--nodes",
        "127.0.0.1:6443",
        "Ctrl-C",
    ] {
        assert!(help.contains(word), "{word} is missing in:\n{help}");
    }
    let (code, version, _) = run(folder.path(), &["--version"]).await;
    assert_eq!((code, version), (Some(0), format!("setpoint {}\n", env!("CARGO_PKG_VERSION"))));
}

#[tokio::test]
async fn controllers_and_a_node_run_beside_the_server_unless_told_otherwise() {
    let mut server = Server::start_with(&["--listen", "127.0.0.1:0", "--memory"]).await;
    let client = server.client().await;
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let nodes: Api<Node> = Api::all(client);
    let there = async {
        while accounts.get_opt("default").await.unwrap().is_none()
            || nodes.get_opt("node-1").await.unwrap().is_none()
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(HANG, there).await.expect("a node and an account");
    server.signal(Signal::TERM);
    assert_eq!(server.exit_code().await, Some(0), "it stops in good order");
}

#[tokio::test]
async fn a_controller_that_does_not_exist_is_named_with_those_that_do() {
    let folder = tempfile::tempdir().unwrap();
    for command in ["up", "cluster"] {
        let (code, _, stderr) = run(folder.path(), &[command, "--controllers", "nonsense"]).await;
        assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
        assert!(stderr.contains("\"nonsense\"") && stderr.contains("deployment-controller"), "{stderr}");
    }
    let (code, _, stderr) = run(folder.path(), &["cluster", "--kubeconfig", "none"]).await;
    assert_eq!((code, stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("the kubeconfig none cannot be used"), "{stderr}");
}

/// What the user of a kubeconfig is told when it lists config maps.
async fn list_config_maps(path: &Path) -> Result<usize, String> {
    let maps: Api<ConfigMap> = Api::default_namespaced(client(Kubeconfig::read_from(path).unwrap()).await);
    match maps.list(&ListParams::default()).await {
        Ok(list) => Ok(list.items.len()),
        Err(kube::Error::Api(status)) => Err(format!("{} {}", status.code, status.message)),
        Err(error) => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn users_and_service_accounts_get_kubeconfigs_with_the_rights_that_roles_give() {
    let server = Server::start_with(&["--listen", "127.0.0.1:0", "--no-controllers"]).await;
    let folder = server.folder.path();
    let admin = server.client().await;
    create_config_map(admin.clone(), "a").await;

    let jane = ["kubeconfig", "--user", "jane", "--group", "readers", "--output", "jane"];
    assert_eq!(run(folder, &jane).await, (Some(0), String::new(), String::new()));
    assert_eq!(std::fs::metadata(folder.join("jane")).unwrap().permissions().mode() & 0o777, 0o600);
    let refused = list_config_maps(&folder.join("jane")).await.unwrap_err();
    assert!(refused.starts_with("403 configmaps is forbidden: User \"jane\" cannot list"), "{refused}");

    let robot = ["kubeconfig", "--service-account", "default/robot", "--output", "robot"];
    let (code, _, stderr) = run(folder, &robot).await;
    assert_eq!(code, Some(1));
    assert_one_line(&stderr, "serviceaccounts \"robot\" not found");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin.clone());
    let mut account = ServiceAccount::default();
    account.metadata.name = Some("robot".to_owned());
    accounts.create(&PostParams::default(), &account).await.unwrap();
    assert_eq!(run(folder, &robot).await.0, Some(0));
    assert!(list_config_maps(&folder.join("robot")).await.unwrap_err().starts_with("403 "));

    let binding: RoleBinding = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "readers"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "readers"},
            {"kind": "ServiceAccount", "name": "robot", "namespace": "default"}
        ]
    }))
    .unwrap();
    Api::default_namespaced(admin).create(&PostParams::default(), &binding).await.unwrap();
    assert!(list_config_maps(&folder.join("jane")).await.unwrap() > 0);
    assert!(list_config_maps(&folder.join("robot")).await.unwrap() > 0);
    accounts.delete("robot", &DeleteParams::default()).await.unwrap();
    assert_eq!(list_config_maps(&folder.join("robot")).await.unwrap_err(), "401 Unauthorized");
}

#[tokio::test]
async fn a_kubeconfig_needs_a_server_or_its_address() {
    let folder = tempfile::tempdir().unwrap();
    let (code, _, stderr) = run(folder.path(), &["kubeconfig", "--user", "jane"]).await;
    assert_eq!(code, Some(1));
    assert_one_line(&stderr, "setpoint up --data");
    assert!(!folder.path().join(".setpoint").exists(), "it makes no authority of its own");
    let (code, _, stderr) = run(folder.path(), &["kubeconfig"]).await;
    assert!(code == Some(2) && stderr.contains("--service-account"), "{stderr}");
}

#[tokio::test]
async fn a_token_file_is_checked_and_its_tokens_are_users() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens");
    std::fs::write(&path, "abc,jane\n").unwrap();
    let file = path.to_str().unwrap();
    let (code, _, stderr) =
        run(folder.path(), &["up", "--listen", ":0", "--memory", "--token-file", file]).await;
    assert_eq!(code, Some(1));
    assert_one_line(&stderr, "line 1 of the token file");
    std::fs::write(&path, "abc,jane,1,system:masters\n").unwrap();
    let server =
        Server::start_with(&["--listen", ":0", "--memory", "--no-controllers", "--token-file", file]).await;
    let mut kubeconfig = server.kubeconfig();
    let token = kube::config::AuthInfo { token: Some("abc".into()), ..Default::default() };
    kubeconfig.auth_infos[0].auth_info = Some(token);
    create_config_map(client(kubeconfig).await, "by-token").await;
}

#[tokio::test]
async fn it_takes_flags_of_kube_apiserver() {
    let folder = tempfile::tempdir().unwrap();
    for (flag, hint) in [
        ("--enable-admission-plugins=Nothing", "enable-admission-plugins plugin \"Nothing\" is unknown"),
        ("--service-cluster-ip-range=10.0.0.0/31", "must have at least 8 IP addresses"),
        ("--authorization-mode=Nobody", "\"Nobody\" is not a valid mode"),
        ("--client-ca-file=nothing.crt", "nothing.crt"),
    ] {
        let (code, _, stderr) = run(folder.path(), &["up", "--listen", ":0", "--memory", flag]).await;
        assert_eq!(code, Some(1), "{stderr}");
        assert_one_line(&stderr, hint);
    }
    let (code, help, _) = run(folder.path(), &["up", "--help"]).await;
    assert_eq!(code, Some(0));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[default: 10.96.0.0/12]") && help.contains("[default: RBAC]"), "{help}");
    assert!(!help.contains("--etcd-servers") && !help.contains("--secure-port"), "{help}");

    let tokens = folder.path().join("tokens");
    std::fs::write(&tokens, "abc,jane,1,developers\n").unwrap();
    let server = Server::start_with(&[
        "--listen",
        ":0",
        "--memory",
        "--no-controllers",
        "--service-cluster-ip-range=10.7.0.0/28",
        "--authorization-mode=AlwaysAllow",
        "--token-auth-file",
        tokens.to_str().unwrap(),
        "--enable-admission-plugins=AlwaysDeny",
    ])
    .await;
    let mut kubeconfig = server.kubeconfig();
    let token = kube::config::AuthInfo { token: Some("abc".into()), ..Default::default() };
    kubeconfig.auth_infos[0].auth_info = Some(token);
    let client = client(kubeconfig).await;
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let own = services.get("kubernetes").await.unwrap().spec.unwrap();
    assert_eq!(own.cluster_ip.as_deref(), Some("10.7.0.1"), "jane may read it, and it is in the range");
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let mut map = ConfigMap::default();
    map.metadata.name = Some("a".to_owned());
    let refused = maps.create(&PostParams::default(), &map).await.unwrap_err().to_string();
    assert!(refused.contains("admission control is denying all modifications"), "{refused}");
}
