//! Secrets with tokens of service accounts.

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use super::{Kubectl, Scenario, wait, wait_for_words};

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "the token of a secret", run: token },
    Scenario { name: "secrets of accounts that are gone", run: gone },
];

fn secret(kubectl: &Kubectl, name: &str, account: &str) -> Result<()> {
    let annotations = json!({"kubernetes.io/service-account.name": account});
    let metadata = json!({"name": name, "annotations": annotations});
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/service-account-token"});
    kubectl.file("secret.json", secret.to_string())?;
    kubectl.ok("create -f secret.json").map(drop)
}

/// The token of a secret, once it has one.
fn wait_token(kubectl: &Kubectl, name: &str) -> Result<String> {
    let words = wait_for_words(kubectl, &format!("get secret {name} -o jsonpath='{{.data.token}}'"), 1)?;
    Ok(String::from_utf8(STANDARD.decode(&words[0])?)?)
}

fn token(kubectl: &Kubectl) -> Result<String> {
    kubectl.ok("create serviceaccount builder")?;
    kubectl.ok("create rolebinding builder --clusterrole=view --serviceaccount={ns}:builder")?;
    secret(kubectl, "builder-token", "builder")?;
    let token = wait_token(kubectl, "builder-token")?;
    let claims = token.split('.').nth(1).context("a token has three parts")?;
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims)?)?;
    let uid = kubectl.field("serviceaccount builder", ".metadata.uid")?;
    let claim = &mut claims["kubernetes.io/serviceaccount/service-account.uid"];
    if *claim != uid.as_str() {
        bail!("the token is of another account: {claims}");
    }
    *claim = "<uid>".into();
    let keys =
        kubectl.ok("get secret builder-token -o go-template='{{range $k, $v := .data}}{{$k}} {{end}}'")?;
    let noted = kubectl
        .field("secret builder-token", ".metadata.annotations.kubernetes\\.io/service-account\\.uid")?;
    if noted != uid {
        bail!("the secret notes another account: {noted}");
    }
    // A kubeconfig with a certificate would win over the token: this one has none.
    let server = kubectl.ok("config view --raw -o jsonpath='{.clusters[0].cluster.server}'")?;
    let ca =
        kubectl.ok("config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority-data}'")?;
    let ca = if ca.is_empty() {
        let file =
            kubectl.ok("config view --raw -o jsonpath='{.clusters[0].cluster.certificate-authority}'")?;
        STANDARD.encode(std::fs::read(file)?)
    } else {
        ca
    };
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "a",
        "clusters": [{"name": "a", "cluster": {"server": server, "certificate-authority-data": ca}}],
        "users": [{"name": "a", "user": {"token": token}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}]
    });
    kubectl.file("token.json", config.to_string())?;
    let who = kubectl.ok("--kubeconfig token.json auth whoami -o jsonpath='{.status.userInfo.username} {.status.userInfo.groups}'")?;
    let may = kubectl.run("--kubeconfig token.json auth can-i list pods", None)?.stdout;
    kubectl.ok("delete secret builder-token")?;
    let refused = super::poll(super::LIMIT, || {
        let finished = kubectl.run("--kubeconfig token.json auth whoami", None)?;
        Ok((!finished.status.success()).then_some(finished.stderr))
    })?;
    let refused = refused.context("a token is good although its secret is gone")?;
    Ok(format!("{claims} | {keys} | {who} | {} | {}", may.trim(), refused.trim()))
}

fn gone(kubectl: &Kubectl) -> Result<String> {
    secret(kubectl, "orphan", "nobody")?;
    wait_for_words(kubectl, "get secrets -o name", 0)?;
    kubectl.ok("create serviceaccount short")?;
    secret(kubectl, "short-token", "short")?;
    wait_token(kubectl, "short-token")?;
    kubectl.ok("patch serviceaccount short -p '{\"secrets\":[{\"name\":\"short-token\"}]}'")?;
    kubectl.ok("delete secret short-token")?;
    wait(kubectl, "get serviceaccount short -o jsonpath='{.secrets}'", "")?;
    secret(kubectl, "short-token", "short")?;
    wait_token(kubectl, "short-token")?;
    kubectl.ok("delete serviceaccount short")?;
    wait_for_words(kubectl, "get secrets -o name", 0)?;
    Ok("gone".to_owned())
}
