//! Flags that are wrong, and flags that do nothing.

use crate::environment::Folder;

/// Starts a program that must refuse its flags, and gives what it says.
async fn refused(name: &str, flags: &[&str]) -> String {
    let folder = Folder::new();
    let mut program = folder.program(name);
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
        (&["--enable-admission-plugins=NoSuchPlugin"], "plugin \"NoSuchPlugin\" is unknown"),
        (
            &["--etcd-servers=http://127.0.0.1:1", "--authorization-mode=Nobody"],
            "\"Nobody\" is not a valid mode",
        ),
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
