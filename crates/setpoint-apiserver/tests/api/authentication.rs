//! Who sends a request: tokens, service accounts, impersonation.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use setpoint_apiserver::{ApiServer, Authorization, TokenFile, User};
use setpoint_env::Env;
use tower::ServiceExt;

use crate::support::{Answer, Api, PODS, pod};

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// A request without a certificate, with these headers.
async fn send(server: &ApiServer, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut request =
        Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
    let (parts, body) = server.clone().oneshot(request).await.unwrap().into_parts();
    let bytes = body.collect().await.unwrap().to_bytes();
    Answer {
        code: parts.status.as_u16(),
        body: serde_json::from_slice(&bytes).unwrap(),
        headers: parts.headers,
    }
}

/// Who a token is, or the code of the refusal.
async fn who(server: &ApiServer, token: &str) -> Result<Value, u16> {
    let header = format!("Bearer {token}");
    let answer = send(server, "POST", WHO, &[("authorization", &header)], "{}").await;
    if answer.code == 201 { Ok(answer.body["status"]["userInfo"].clone()) } else { Err(answer.code) }
}

async fn account(api: &Api, name: &str) -> Value {
    api.post(ACCOUNTS, &json!({"metadata": {"name": name}})).await.ok()
}

async fn request_token(api: &Api, account: &str, spec: Value) -> Answer {
    api.post(&format!("{ACCOUNTS}/{account}/token"), &json!({"spec": spec})).await
}

async fn token(api: &Api, account: &str, spec: Value) -> String {
    let answer = request_token(api, account, spec).await.ok();
    answer["status"]["token"].as_str().expect("a token").to_owned()
}

async fn review(api: &Api, spec: Value) -> Value {
    api.post(REVIEWS, &json!({"spec": spec})).await.ok()["status"].clone()
}

#[tokio::test]
async fn the_tokens_of_a_file_are_users() {
    let tokens = TokenFile::parse("abc,jane,7,\"developers,testers\"\n").unwrap();
    let server = ApiServer::builder().tokens(tokens).build();
    let jane = who(&server, "abc").await.unwrap();
    let groups = json!(["developers", "testers", "system:authenticated"]);
    assert_eq!(jane, json!({"username": "jane", "uid": "7", "groups": groups}));
    for bad in ["abd", "", "abc abc", "ABC"] {
        assert_eq!(who(&server, bad).await, Err(401), "{bad}");
    }
    let two = [("authorization", "Bearer abc"), ("authorization", "Bearer abc")];
    assert_eq!(send(&server, "GET", "/version", &two, "").await.code, 401);
    let basic = [("authorization", "Basic abc")];
    let refused = send(&server, "GET", "/version", &basic, "").await;
    assert_eq!((refused.code, refused.reason()), (401, "Unauthorized"));
}

#[tokio::test(start_paused = true)]
async fn a_service_account_gets_a_token_that_ends() {
    let api = Api::new();
    let uid = account(&api, "robot").await["metadata"]["uid"].clone();
    let answer = request_token(&api, "robot", json!({"expirationSeconds": 600})).await.ok();
    assert_eq!(answer["kind"], "TokenRequest");
    assert_eq!(answer["spec"]["audiences"], json!([ISSUER]));
    let token = answer["status"]["token"].as_str().unwrap();
    let user = who(&api.server, token).await.unwrap();
    assert_eq!(user["username"], "system:serviceaccount:default:robot");
    assert_eq!(user["uid"], uid);
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(user["groups"], groups);
    let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str().unwrap();
    assert!(id.starts_with("JTI="), "{id}");

    tokio::time::sleep(Duration::from_secs(655)).await;
    assert!(who(&api.server, token).await.is_ok(), "clocks may be a minute apart");
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(who(&api.server, token).await, Err(401));
    let error = &review(&api, json!({"token": token})).await["error"];
    assert_eq!(*error, "[invalid bearer token, service account token has expired]");

    let short = request_token(&api, "robot", json!({"expirationSeconds": 1})).await;
    short.refused(
        422,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 1: may not specify a \
         duration less than 10 minutes",
    );
    request_token(&api, "nobody", json!({})).await.refused(404, "serviceaccounts \"nobody\" not found");
}

#[tokio::test]
async fn a_token_is_void_once_its_account_is_deleted_even_if_it_comes_back() {
    let api = Api::new();
    account(&api, "robot").await;
    let token = token(&api, "robot", json!({})).await;
    assert!(who(&api.server, &token).await.is_ok());
    api.delete(&format!("{ACCOUNTS}/robot"), &Value::Null).await.ok();
    assert_eq!(who(&api.server, &token).await, Err(401));
    account(&api, "robot").await;
    assert_eq!(who(&api.server, &token).await, Err(401), "it is another one of the same name");
}

#[tokio::test]
async fn a_token_is_void_once_what_it_is_bound_to_is_gone() {
    let api = Api::new();
    account(&api, "default").await;
    let secrets = "/api/v1/namespaces/default/secrets";
    let mut pod = pod("web");
    pod["spec"]["serviceAccountName"] = "default".into();
    let pod = api.post(PODS, &pod).await.ok();
    api.post(secrets, &json!({"metadata": {"name": "s"}})).await.ok();
    let reference = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "name": name});
    let of_pod = token(&api, "default", json!({"boundObjectRef": reference("Pod", "web")})).await;
    let of_secret = token(&api, "default", json!({"boundObjectRef": reference("Secret", "s")})).await;
    let user = who(&api.server, &of_pod).await.unwrap();
    assert_eq!(user["extra"]["authentication.kubernetes.io/pod-uid"][0], pod["metadata"]["uid"]);
    assert!(who(&api.server, &of_secret).await.is_ok());
    api.delete(&format!("{PODS}/web"), &json!({"gracePeriodSeconds": 0})).await.ok();
    api.delete(&format!("{secrets}/s"), &Value::Null).await.ok();
    assert_eq!(who(&api.server, &of_pod).await, Err(401));
    assert_eq!(who(&api.server, &of_secret).await, Err(401));

    account(&api, "other").await;
    let mut elsewhere = crate::support::pod("elsewhere");
    elsewhere["spec"]["serviceAccountName"] = "other".into();
    api.post(PODS, &elsewhere).await.ok();
    request_token(&api, "default", json!({"boundObjectRef": reference("Pod", "elsewhere")})).await.refused(
        400,
        "cannot bind token for serviceaccount \"default\" to pod running with different serviceaccount name.",
    );
    let wrong = request_token(&api, "default", json!({"boundObjectRef": reference("ConfigMap", "x")})).await;
    assert_eq!(wrong.code, 400);
}

#[tokio::test]
async fn a_token_for_somebody_else_is_not_for_this_server() {
    let api = Api::new();
    account(&api, "robot").await;
    let token = token(&api, "robot", json!({"audiences": ["vault"]})).await;
    assert_eq!(who(&api.server, &token).await, Err(401));
    let wrong = review(&api, json!({"token": token})).await;
    assert_eq!(
        wrong["error"],
        format!(
            "[invalid bearer token, token audiences [\"vault\"] is invalid for the target audiences [\"{ISSUER}\"]]"
        )
    );
    assert_ne!(wrong["authenticated"], true);
    let right = review(&api, json!({"token": token, "audiences": ["vault", "x"]})).await;
    assert_eq!((&right["authenticated"], &right["audiences"]), (&json!(true), &json!(["vault"])));
    assert_eq!(right["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(review(&api, json!({"token": "nonsense"})).await["error"], "invalid bearer token");
}

#[tokio::test]
async fn a_token_that_was_tampered_with_is_refused() {
    let (api, other) = (Api::new(), Api::new());
    account(&api, "robot").await;
    account(&other, "robot").await;
    let token = token(&api, "robot", json!({})).await;
    let [header, claims, signature] = token.split('.').collect::<Vec<_>>()[..] else { panic!("{token}") };
    let mut forged: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
    forged["sub"] = "system:serviceaccount:kube-system:root".into();
    let forged = URL_SAFE_NO_PAD.encode(forged.to_string());
    let none = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
    for bad in [
        format!("{header}.{forged}.{signature}"),
        format!("{none}.{claims}."),
        format!("{none}.{forged}."),
        format!("{header}.{claims}."),
        format!("{header}.{claims}"),
        self::token(&other, "robot", json!({})).await,
        "x".repeat(100_000),
    ] {
        assert_eq!(who(&api.server, &bad).await, Err(401), "{bad}");
    }
    assert!(who(&api.server, &token).await.is_ok());
}

#[tokio::test]
async fn tokens_outlive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let first = Api::with(ApiServer::builder().open(folder.path()).await.unwrap());
    account(&first, "robot").await;
    let token = token(&first, "robot", json!({})).await;
    let keys = first.get("/openid/v1/jwks").await.ok();
    first.server.close().await;
    drop(first);
    let again = Api::with(ApiServer::builder().open(folder.path()).await.unwrap());
    assert!(who(&again.server, &token).await.is_ok());
    assert_eq!(again.get("/openid/v1/jwks").await.ok(), keys);
    assert_eq!((&keys["keys"][0]["alg"], &keys["keys"][0]["kty"]), (&json!("ES256"), &json!("EC")));
    let configuration = again.get("/.well-known/openid-configuration").await.ok();
    assert_eq!(configuration["issuer"], ISSUER);
}

#[tokio::test]
async fn whoever_may_impersonate_acts_as_somebody_else() {
    let api = Api::new();
    let server = ApiServer::builder()
        .env(Env::seeded(1))
        .tokens(TokenFile::parse("admin,admin,1,system:masters\nhelper,helper,2\n").unwrap())
        .build();
    drop(api);
    let as_admin =
        |more: &[(&'static str, &'static str)]| [&[("authorization", "Bearer admin")], more].concat();
    let seen = |headers: Vec<(&'static str, &'static str)>| {
        let server = server.clone();
        async move { send(&server, "POST", WHO, &headers, "{}").await }
    };
    let jane = as_admin(&[
        ("impersonate-user", "jane"),
        ("impersonate-group", "a"),
        ("impersonate-group", "b"),
        ("impersonate-uid", "7"),
        ("impersonate-extra-acme.com%2fproject", "x"),
    ]);
    assert_eq!(
        seen(jane).await.ok()["status"]["userInfo"],
        json!({
            "username": "jane", "uid": "7", "groups": ["a", "b", "system:authenticated"],
            "extra": {"acme.com/project": ["x"]}
        })
    );
    let robot = as_admin(&[("impersonate-user", "system:serviceaccount:ci:robot")]);
    assert_eq!(
        seen(robot).await.ok()["status"]["userInfo"]["groups"],
        json!(["system:serviceaccounts", "system:serviceaccounts:ci", "system:authenticated"])
    );
    let no_user = as_admin(&[("impersonate-group", "a")]);
    seen(no_user).await.refused(
        400,
        "requested &user.DefaultInfo{Name:\"\", UID:\"\", Groups:[]string{\"a\"}, Extra:map[string][]string(nil)} \
         without impersonating a user name",
    );
    let twice = as_admin(&[("impersonate-user", "jane"), ("impersonate-user", "admin")]);
    assert_eq!(seen(twice).await.code, 400);

    // The rights of the impersonated user count, not those of the impersonator.
    let jane = as_admin(&[("impersonate-user", "jane")]);
    assert_eq!(send(&server, "GET", "/api/v1/nodes", &jane, "").await.code, 403);
    let helper = [("authorization", "Bearer helper"), ("impersonate-user", "jane")];
    send(&server, "POST", WHO, &helper, "{}").await.refused(
        403,
        "selfsubjectreviews.authentication.k8s.io is forbidden: User \"helper\" cannot \
         impersonate-on:user-info:create resource \"selfsubjectreviews\" in API group \"authentication.k8s.io\" at \
         the cluster scope",
    );
    let admin = Api::with(server.clone());
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({
        "metadata": {"name": "helpers"},
        "rules": [{"apiGroups": [""], "resources": ["users"], "verbs": ["impersonate"], "resourceNames": ["jane"]}]
    });
    admin.post(&format!("{rbac}/clusterroles"), &role).await.ok();
    let binding = json!({
        "metadata": {"name": "helpers"}, "subjects": [{"kind": "User", "name": "helper"}],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "helpers"}
    });
    admin.post(&format!("{rbac}/clusterrolebindings"), &binding).await.ok();
    send(&server, "POST", WHO, &helper, "{}").await.ok();
    let masters = [&helper[..], &[("impersonate-group", "system:masters")]].concat();
    assert_eq!(send(&server, "POST", WHO, &masters, "{}").await.code, 403);
    let root = [("authorization", "Bearer helper"), ("impersonate-user", "admin")];
    assert_eq!(send(&server, "POST", WHO, &root, "{}").await.code, 403);

    // A right to impersonate for one kind of request only.
    let role = json!({
        "metadata": {"name": "constrained"},
        "rules": [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["users"], "verbs": ["impersonate:user-info"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["impersonate-on:user-info:list"]}
        ]
    });
    admin.post(&format!("{rbac}/clusterroles"), &role).await.ok();
    let mut binding = binding;
    binding["metadata"]["name"] = "constrained".into();
    binding["roleRef"]["name"] = "constrained".into();
    admin.post(&format!("{rbac}/clusterrolebindings"), &binding).await.ok();
    let pods = send(&server, "GET", PODS, &root, "").await;
    assert!(pods.code == 403 && pods.message().contains("User \"admin\" cannot list"), "{}", pods.body);
    assert_eq!(send(&server, "POST", WHO, &root, "{}").await.code, 403);
}

#[tokio::test]
async fn a_certificate_counts_more_than_a_token() {
    let tokens = TokenFile::parse("admin,admin,1,system:masters\n").unwrap();
    let server = ApiServer::builder().tokens(tokens).build();
    let jane = Api::as_user(server, User::new("jane", [""; 0]));
    let request = Request::builder()
        .method("POST")
        .uri(WHO)
        .header(header::AUTHORIZATION, "Bearer admin")
        .body(Full::new(Bytes::from("{}")))
        .unwrap();
    assert_eq!(jane.answer(request).await.ok()["status"]["userInfo"]["username"], "jane");
}

#[tokio::test(start_paused = true)]
async fn a_pod_needs_a_service_account_and_gets_its_token() {
    let api = Api::with(ApiServer::builder().env(Env::seeded(1)).service_accounts(true).build());
    let missing = api.post(PODS, &pod("early")).await;
    missing.refused(
        403,
        "pods \"early\" is forbidden: error looking up service account default/default: serviceaccount \"default\" \
         not found",
    );
    let pull = json!({"metadata": {"name": "default"}, "imagePullSecrets": [{"name": "registry"}]});
    api.post(ACCOUNTS, &pull).await.ok();
    let spec = api.post(PODS, &pod("web")).await.ok()["spec"].clone();
    let volume = &spec["volumes"][0];
    let name = volume["name"].as_str().unwrap();
    assert!(name.starts_with("kube-api-access-") && name.len() == 21, "{name}");
    let token = json!({"serviceAccountToken": {"path": "token", "expirationSeconds": 3607}});
    assert_eq!(volume["projected"]["sources"][0], token);
    let mount = &spec["containers"][0]["volumeMounts"][0];
    assert_eq!((&mount["name"], &mount["readOnly"]), (&json!(name), &json!(true)));
    assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount");
    assert_eq!(spec["imagePullSecrets"], json!([{"name": "registry"}]));

    let mut bare = pod("bare");
    bare["spec"]["automountServiceAccountToken"] = false.into();
    assert!(api.post(PODS, &bare).await.ok()["spec"].get("volumes").is_none());
    api.post(ACCOUNTS, &json!({"metadata": {"name": "quiet"}, "automountServiceAccountToken": false}))
        .await
        .ok();
    let mut quiet = pod("quiet");
    quiet["spec"]["serviceAccountName"] = "quiet".into();
    assert!(api.post(PODS, &quiet).await.ok()["spec"].get("volumes").is_none());
    quiet["metadata"]["name"] = "loud".into();
    quiet["spec"]["automountServiceAccountToken"] = true.into();
    assert!(api.post(PODS, &quiet).await.ok()["spec"].get("volumes").is_some());
}

#[tokio::test]
async fn strangers_are_anonymous_where_that_is_allowed() {
    let server = ApiServer::builder().anonymous(true).build();
    let stranger = |method, path| send(&server, method, path, &[], "{}");
    assert_eq!(stranger("GET", "/version").await.code, 200);
    let refused = stranger("GET", PODS).await;
    assert_eq!((refused.code, refused.reason()), (403, "Forbidden"));
    assert!(
        refused.message().contains("User \"system:anonymous\" cannot list resource \"pods\""),
        "{refused:?}"
    );
    let bad = send(&server, "GET", "/version", &[("authorization", "Bearer wrong")], "").await;
    assert_eq!(bad.code, 401, "bad credentials are not the same as none");
}

#[tokio::test]
async fn everything_or_nothing_can_be_allowed_to_those_who_are_known() {
    for (authorization, code) in
        [(Authorization::Rbac, 403), (Authorization::AlwaysAllow, 200), (Authorization::AlwaysDeny, 403)]
    {
        let tokens = TokenFile::parse("abc,jane,7\nroot,root,8,\"system:masters\"\n").unwrap();
        let server = ApiServer::builder().tokens(tokens).anonymous(true).authorization(authorization).build();
        let of = |token| {
            let server = server.clone();
            async move { send(&server, "GET", PODS, &[("authorization", token)], "").await.code }
        };
        assert_eq!(of("Bearer abc").await, code, "{authorization:?}");
        assert_eq!(of("Bearer root").await, 200, "{authorization:?}");
        let stranger = send(&server, "GET", PODS, &[], "").await.code;
        let expected = if authorization == Authorization::AlwaysAllow { 401 } else { 403 };
        assert_eq!(stranger, expected, "strangers are never allowed everything: {authorization:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_token_of_a_secret_is_good_as_long_as_the_secret_holds_it() {
    const SECRETS: &str = "/api/v1/namespaces/default/secrets";
    let server = ApiServer::builder().env(Env::seeded(1)).build();
    let api = Api::with(server.clone());
    let builder = account(&api, "builder").await;
    let uid = builder["metadata"]["uid"].as_str().unwrap().to_owned();
    let token = server.token_signer().sign("default", "builder", &uid, "builder-token");
    assert_eq!(who(&server, &token).await, Err(401), "no secret holds it");
    let annotations = json!({"kubernetes.io/service-account.name": "builder"});
    let data = |token: &str| json!({"token": base64::engine::general_purpose::STANDARD.encode(token)});
    let secret = json!({
        "metadata": {"name": "builder-token", "annotations": annotations}, "data": data(&token),
        "type": "kubernetes.io/service-account-token"
    });
    api.post(SECRETS, &secret).await.ok();
    let user = who(&server, &token).await.unwrap();
    assert_eq!(user["username"], "system:serviceaccount:default:builder");
    assert_eq!(user["uid"], uid);
    let groups = json!(["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"]);
    assert_eq!(user["groups"], groups);
    let path = format!("{SECRETS}/builder-token");
    let used =
        api.get(&path).await.ok()["metadata"]["labels"]["kubernetes.io/legacy-token-last-used"].clone();
    assert!(used.as_str().is_some_and(|day| day.len() == 10), "{used}");
    let version = api.get(&path).await.ok()["metadata"]["resourceVersion"].clone();
    who(&server, &token).await.unwrap();
    assert_eq!(api.get(&path).await.ok()["metadata"]["resourceVersion"], version, "it is noted once a day");

    // It is for the server, and for nobody else.
    let asked = review(&api, json!({"token": token, "audiences": ["vault"]})).await;
    assert!(asked["error"].as_str().unwrap().contains("is invalid for the target audiences"), "{asked}");

    let invalid = json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": "2030-01-01"}}});
    api.merge(&path, &invalid).await.ok();
    assert_eq!(who(&server, &token).await, Err(401));
    api.merge(&path, &json!({"metadata": {"labels": {"kubernetes.io/legacy-token-invalid-since": null}}}))
        .await
        .ok();
    api.merge(&path, &json!({"data": data("another")})).await.ok();
    let asked = review(&api, json!({"token": token})).await;
    assert_eq!(asked["error"], "[invalid bearer token, Token does not match server's copy]");
    api.merge(&path, &json!({"data": data(&token)})).await.ok();
    who(&server, &token).await.unwrap();

    // Another account of the same name is not the same.
    api.delete(&format!("{ACCOUNTS}/builder"), &Value::Null).await.ok();
    assert_eq!(who(&server, &token).await, Err(401));
    account(&api, "builder").await;
    assert_eq!(who(&server, &token).await, Err(401));
    // Nor is a token that somebody else has signed.
    let other = setpoint_apiserver::TokenSigner::new(setpoint_apiserver::SigningKey::generate());
    let forged = other.sign("default", "builder", &uid, "builder-token");
    assert_eq!(who(&server, &forged).await, Err(401));
}
