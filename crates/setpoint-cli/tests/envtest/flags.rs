//! Flags that are wrong, and flags that do nothing.

use crate::environment::Folder;

/// Starts a program that must refuse its flags, and gives what it says.
async fn refused(name: &str, flags: &[&str]) -> String {
    let folder = Folder::new();
    let mut program = folder.program(name);
    if name == "kube-apiserver" {
        program.args([
            "--bind-address=127.0.0.1",
            "--secure-port=0",
            "--cert-dir=certs",
            "--authorization-mode=RBAC",
        ]);
    }
    let ended = tokio::time::timeout(crate::environment::HANG, program.args(flags).status()).await;
    assert_eq!(ended.expect("it must not run").unwrap().code(), Some(1), "{flags:?}");
    folder.log(name)
}

#[tokio::test]
async fn what_kubernetes_does_not_have_is_refused() {
    for (flags, words) in [
        (&["--insecure-port=0"][..], "unknown flag: --insecure-port"),
        (&["--feature-gates=NoSuchGate=true"], "unrecognized feature gate: NoSuchGate"),
        (&["--runtime-config=example.com/v1=true"], "unknown api groups example.com/v1"),
        (
            &["--enable-admission-plugins=No,None", "--disable-admission-plugins=Nothing"],
            "[enable-admission-plugins plugin \"No\" is unknown, enable-admission-plugins plugin \"None\" is unknown, \
             disable-admission-plugins plugin \"Nothing\" is unknown]",
        ),
        (
            &["--enable-admission-plugins=Priority", "--disable-admission-plugins=Priority"],
            "[Priority] in enable-admission-plugins and disable-admission-plugins overlapped",
        ),
        (&["--admission-control=Nothing"], "admission-control plugin \"Nothing\" is unknown"),
        (&["--admission-control=Priority", "--enable-admission-plugins=Priority"], "are mutually exclusive"),
        (
            &["--etcd-servers=http://127.0.0.1:1", "--authorization-mode=Nobody"],
            "\"Nobody\" is not a valid mode",
        ),
        (
            &["--service-cluster-ip-range=nonsense"],
            "--service-cluster-ip-range: the service IP range \"nonsense\" is not",
        ),
        (&["--service-cluster-ip-range=10.0.0.0/24,10.1.0.0/24"], "must be of different IP families"),
        (&["--advertise-address=here"], "invalid argument \"here\" for --advertise-address"),
        (
            &["--advertise-address=fd00::1"],
            "service IP family \"10.0.0.0/24\" must match public address family \"fd00::1\"",
        ),
        (&["--etcd-compaction-interval=soon"], "invalid argument \"soon\" for --etcd-compaction-interval"),
        (&["--requestheader-username-headers= "], "empty value in \"requestheader-username-headers\""),
        (&["--requestheader-client-ca-file=/nothing/here"], "/nothing/here: No such file"),
    ] {
        let said = refused("kube-apiserver", flags).await;
        assert!(said.starts_with("kube-apiserver (setpoint): ") && said.contains(words), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    let said = refused("etcd", &["--no-such-flag"]).await;
    assert!(said.contains("unknown flag: --no-such-flag"), "{said}");
}

#[tokio::test]
async fn what_has_no_effect_is_said_once() {
    let folder = Folder::new();
    let flags = [
        "--feature-gates=AllAlpha=true,WatchList=true",
        "--runtime-config=api/all=true",
        "--enable-aggregator-routing=true",
        "--max-requests-inflight=10",
    ];
    let mut environment = folder.start(&flags).await;
    environment.stop().await;
    let said = folder.log("kube-apiserver");
    let warnings: Vec<&str> = said.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 3, "{said}");
    for (words, name) in
        [("flags=", "enable-aggregator-routing"), ("gates=", "AllAlpha=true"), ("versions=", "api/all=true")]
    {
        let line = warnings.iter().find(|line| line.contains(words)).expect(words);
        assert!(line.contains(name) && !line.contains("WatchList") && !line.contains("inflight"), "{line}");
    }
}

#[tokio::test]
async fn without_flags_of_its_own_an_environment_says_nothing() {
    let folder = Folder::new();
    let mut environment = folder.start(&[]).await;
    environment.stop().await;
    assert_eq!((folder.log("kube-apiserver"), folder.log("etcd")), (String::new(), String::new()));
}
