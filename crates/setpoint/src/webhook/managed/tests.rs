//! On paused time, with an API server in the process.

use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::state::OVERLAP;
use super::*;
use crate::webhook::Certificates;

const HOUR: Duration = Duration::from_secs(3600);

/// A cluster that calls webhooks, and the clock of all.
struct Cluster {
    client: Client,
    env: Env,
}

impl Cluster {
    async fn new() -> Cluster {
        let env = Env::seeded(1);
        let client = setpoint_apiserver::ApiServer::builder().env(env.clone()).build().client();
        let cluster = Cluster { client, env };
        let webhook = |name: &str, path: &str| {
            json!({
                "name": name,
                "clientConfig": {"url": format!("https://127.0.0.1:9443{path}")},
                "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "rules": [{"apiGroups": ["none.example.com"], "apiVersions": ["v1"], "resources": ["nones"], "operations": ["CREATE"]}],
            })
        };
        let two = json!([webhook("a.example.com", "/a"), webhook("b.example.com", "/b")]);
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let object = json!({"metadata": {"name": "hooks"}, "webhooks": two});
            cluster.create("admissionregistration.k8s.io", kind, object).await;
        }
        let version = |name: &str, storage: bool| json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}});
        let definition = json!({
            "metadata": {"name": "things.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "things", "kind": "Thing"},
                "versions": [version("v1", true), version("v2", false)],
                "conversion": {"strategy": "Webhook", "webhook": {
                    "clientConfig": {"url": "https://127.0.0.1:9443/convert"}, "conversionReviewVersions": ["v1"],
                }},
            }
        });
        cluster.create("apiextensions.k8s.io", "CustomResourceDefinition", definition).await;
        cluster
    }

    fn api(&self, group: &str, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        Api::all_with(self.client.clone(), &resource)
    }

    async fn create(&self, group: &str, kind: &str, object: Value) {
        let object = serde_json::from_value(object).unwrap();
        self.api(group, kind).create(&PostParams::default(), &object).await.unwrap();
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn managed(&self) -> ManagedCertificates {
        ManagedCertificates::new(self.client.clone(), "default", "tls")
            .name("127.0.0.1")
            .service("hooks", "default")
            .mutating("hooks")
            .validating("hooks")
            .conversion("things.example.com")
            .lives(10 * DAY, 2 * DAY)
    }

    async fn replica(&self) -> (Keeper, Pair) {
        self.managed().first(&self.env).await.unwrap()
    }

    /// The bundle that everybody who calls has; they have the same.
    async fn bundle(&self) -> String {
        let mut bundles = Vec::new();
        for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
            let object = self.api("admissionregistration.k8s.io", kind).get("hooks").await.unwrap();
            let webhooks = object.data["webhooks"].as_array().unwrap().clone();
            bundles.extend(webhooks.iter().map(|webhook| webhook["clientConfig"]["caBundle"].clone()));
        }
        let definitions = self.api("apiextensions.k8s.io", "CustomResourceDefinition");
        let definition = definitions.get("things.example.com").await.unwrap();
        bundles.push(definition.data["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"].clone());
        assert_eq!(bundles.len(), 5);
        bundles.dedup();
        assert_eq!(bundles.len(), 1, "not all have the same");
        let bundle: ByteString = serde_json::from_value(bundles[0].clone()).unwrap();
        String::from_utf8(bundle.0).unwrap()
    }
}

fn certificates(bundle: &str) -> usize {
    bundle.matches("BEGIN CERTIFICATE").count()
}

#[derive(Debug)]
struct Clock(Env);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = self.0.now().as_second().try_into().ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

/// The certificate that a server shows to a caller with this bundle; none if the caller does not trust it.
async fn shown(env: &Env, server: Arc<ServerConfig>, bundle: &str, name: &str) -> Option<Vec<u8>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_details(provider, Arc::new(Clock(env.clone())))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let (near, far) = tokio::io::duplex(64 << 10);
    let accept = tokio_rustls::TlsAcceptor::from(server).accept(far);
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connect = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, near);
    let (_accepted, connected) = tokio::join!(accept, connect);
    let connected = connected.ok()?;
    Some(connected.get_ref().1.peer_certificates()?.first()?.to_vec())
}

async fn is_trusted(env: &Env, pair: &Pair, bundle: &str) -> bool {
    let pem = Certificates::pem(pair.certificate.clone(), pair.key.clone());
    let (server, _) = pem.start(env).await.unwrap();
    shown(env, server, bundle, "hooks.default.svc").await.is_some()
}

#[tokio::test(start_paused = true)]
async fn the_first_replica_makes_a_secret_and_tells_all_who_call() {
    let cluster = Cluster::new().await;
    let before =
        cluster.api("admissionregistration.k8s.io", "MutatingWebhookConfiguration").get("hooks").await;
    let (_, pair) = cluster.replica().await;
    let bundle = cluster.bundle().await;
    assert_eq!(certificates(&bundle), 1);
    let (server, _) = Certificates::pem(pair.certificate, pair.key).start(&cluster.env).await.unwrap();
    for name in ["hooks.default.svc", "127.0.0.1"] {
        assert!(shown(&cluster.env, server.clone(), &bundle, name).await.is_some(), "{name}");
    }
    assert!(shown(&cluster.env, server, &bundle, "other.default.svc").await.is_none());
    let secret = cluster.secrets().get("tls").await.unwrap();
    assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(secret.data.unwrap()["ca.crt"].0, bundle.into_bytes());
    // Nothing but the bundle has changed.
    let after =
        cluster.api("admissionregistration.k8s.io", "MutatingWebhookConfiguration").get("hooks").await;
    let without = |object: DynamicObject| {
        let mut webhooks = object.data["webhooks"].clone();
        for webhook in webhooks.as_array_mut().unwrap() {
            webhook["clientConfig"].as_object_mut().unwrap().remove("caBundle");
        }
        webhooks
    };
    assert_eq!(without(before.unwrap()), without(after.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn replicas_that_start_at_once_and_later_ones_show_the_same() {
    let cluster = Cluster::new().await;
    let all = futures::future::join_all((0..4).map(|_| cluster.replica())).await;
    sleep(HOUR).await;
    let (_, late) = cluster.replica().await;
    assert!(all.iter().all(|(_, pair)| *pair == late));
    assert!(is_trusted(&cluster.env, &late, &cluster.bundle().await).await);
}

#[tokio::test(start_paused = true)]
async fn certificates_and_authorities_change_and_no_call_fails_meanwhile() {
    let cluster = Cluster::new().await;
    let mut replicas = vec![cluster.replica().await, cluster.replica().await];
    let (mut shown, mut bundles) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    // What API servers may still go by: they learn of a change a little later.
    let mut stale = cluster.bundle().await;
    let mut most = 0;
    for step in 0..600 {
        sleep(HOUR / 2).await;
        let (keeper, pair) = &mut replicas[step % 2];
        *pair = keeper.look().await.unwrap();
        let bundle = cluster.bundle().await;
        for (_, pair) in &replicas {
            let is_new = shown.insert(pair.certificate.clone()) || bundle != stale;
            if is_new || step % 8 == 0 {
                assert!(is_trusted(&cluster.env, pair, &bundle).await, "step {step}");
                assert!(is_trusted(&cluster.env, pair, &stale).await, "step {step}, an old bundle");
            }
        }
        most = most.max(certificates(&bundle));
        bundles.insert(bundle.clone());
        stale = bundle;
    }
    // 12.5 days: a certificate lasts for 32 hours, an authority for 160.
    assert!((8..=12).contains(&shown.len()), "{} certificates", shown.len());
    assert_eq!((most, bundles.len()), (2, 3), "old, both, new");
    assert_eq!(certificates(&stale), 1);
}

#[tokio::test(start_paused = true)]
async fn after_a_long_time_without_any_replica_all_is_new() {
    let cluster = Cluster::new().await;
    let (keeper, old) = cluster.replica().await;
    drop(keeper);
    sleep(20 * DAY).await;
    let (_, new) = cluster.replica().await;
    assert!(new != old);
    let bundle = cluster.bundle().await;
    assert_eq!(certificates(&bundle), 1);
    assert!(is_trusted(&cluster.env, &new, &bundle).await);
}

#[tokio::test(start_paused = true)]
async fn a_secret_that_is_lost_or_damaged_is_written_again_as_it_was() {
    let cluster = Cluster::new().await;
    let (mut keeper, pair) = cluster.replica().await;
    let bundle = cluster.bundle().await;
    cluster.secrets().delete("tls", &DeleteParams::default()).await.unwrap();
    assert!(keeper.look().await.unwrap() == pair);
    for damage in
        [json!({"tls.crt": "eA=="}), json!({"ca.key": null}), json!({"ca.crt": "", "tls.key": "eA=="})]
    {
        let patch = json!({"data": damage});
        cluster.secrets().patch("tls", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
        assert!(keeper.look().await.unwrap() == pair, "{damage}");
        assert_eq!(cluster.bundle().await, bundle);
    }
    // Nobody knows it any more: all is new.
    drop(keeper);
    cluster.secrets().delete("tls", &DeleteParams::default()).await.unwrap();
    let (_, new) = cluster.replica().await;
    assert!(new != pair && is_trusted(&cluster.env, &new, &cluster.bundle().await).await);
}

#[tokio::test(start_paused = true)]
async fn an_edited_bundle_is_put_right_and_other_edits_stay() {
    let cluster = Cluster::new().await;
    let certificates = Certificates::from(cluster.managed());
    let (_tls, _keeping) = certificates.start(&cluster.env).await.unwrap();
    let bundle = cluster.bundle().await;
    let api: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client.clone());
    let mut edited = api.get("hooks").await.unwrap();
    let webhooks = edited.webhooks.as_mut().unwrap();
    let (_, other) = Certificates::self_signed(["other"]).unwrap();
    webhooks[1].client_config.ca_bundle = Some(ByteString(other.into_bytes()));
    webhooks[1].failure_policy = Some("Ignore".to_owned());
    api.replace("hooks", &PostParams::default(), &edited).await.unwrap();
    sleep(2 * LOOK).await;
    assert_eq!(cluster.bundle().await, bundle);
    let webhooks = api.get("hooks").await.unwrap().webhooks.unwrap();
    assert_eq!(webhooks[1].failure_policy.as_deref(), Some("Ignore"));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_runs_shows_the_new_certificate() {
    let cluster = Cluster::new().await;
    let certificates = Certificates::from(cluster.managed());
    let (tls, _keeping) = certificates.start(&cluster.env).await.unwrap();
    let before = shown(&cluster.env, tls.clone(), &cluster.bundle().await, "127.0.0.1").await;
    sleep(3 * DAY).await;
    let after = shown(&cluster.env, tls, &cluster.bundle().await, "127.0.0.1").await;
    assert!(before.is_some() && after.is_some() && before != after);
}

#[tokio::test(start_paused = true)]
async fn other_names_lead_to_another_certificate_of_the_same_authority() {
    let cluster = Cluster::new().await;
    let (_, old) = cluster.replica().await;
    let bundle = cluster.bundle().await;
    let (_, new) = cluster.managed().name("new.example.com").first(&cluster.env).await.unwrap();
    assert!(new != old);
    assert_eq!(cluster.bundle().await, bundle);
    assert!(is_trusted(&cluster.env, &new, &bundle).await);
    assert!(OVERLAP < DAY);
}

#[tokio::test(start_paused = true)]
async fn an_address_is_the_same_however_it_is_spelt() {
    let cluster = Cluster::new().await;
    let managed = cluster.managed().name("2001:DB8:0::1").name("2001:db8::1");
    let (mut keeper, first) = managed.first(&cluster.env).await.unwrap();
    let version = cluster.secrets().get("tls").await.unwrap().metadata.resource_version;
    assert!(keeper.look().await.unwrap() == first, "it is not issued again");
    assert_eq!(cluster.secrets().get("tls").await.unwrap().metadata.resource_version, version);
}

#[tokio::test(start_paused = true)]
async fn replicas_of_different_names_agree_on_one_certificate() {
    let cluster = Cluster::new().await;
    let replica = async |name: &str| {
        let (keeper, _) = cluster.managed().name(name).first(&cluster.env).await.unwrap();
        keeper
    };
    let (mut old, mut new) = (replica("old.example.com").await, replica("new.example.com").await);
    let agreed = new.look().await.unwrap();
    for _ in 0..3 {
        assert!(old.look().await.unwrap() == agreed && new.look().await.unwrap() == agreed);
    }
    let bundle = cluster.bundle().await;
    let pem = Certificates::pem(agreed.certificate, agreed.key);
    let (server, _) = pem.start(&cluster.env).await.unwrap();
    for name in ["old.example.com", "new.example.com"] {
        assert!(shown(&cluster.env, server.clone(), &bundle, name).await.is_some(), "{name}");
    }
    // A name that nobody has any more goes with the certificate.
    drop(old);
    sleep(2 * DAY).await;
    let renewed = new.look().await.unwrap();
    let pem = Certificates::pem(renewed.certificate, renewed.key);
    let (server, _) = pem.start(&cluster.env).await.unwrap();
    let bundle = cluster.bundle().await;
    assert!(shown(&cluster.env, server.clone(), &bundle, "old.example.com").await.is_none());
    assert!(shown(&cluster.env, server, &bundle, "new.example.com").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn the_key_of_another_authority_is_damage() {
    let cluster = Cluster::new().await;
    let (mut keeper, pair) = cluster.replica().await;
    let other = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let patch = json!({"data": {"ca.key": ByteString(other.into_bytes())}});
    cluster.secrets().patch("tls", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    assert!(keeper.look().await.unwrap() == pair);
    sleep(2 * DAY).await;
    let renewed = keeper.look().await.unwrap();
    assert!(renewed != pair && is_trusted(&cluster.env, &renewed, &cluster.bundle().await).await);
}

#[tokio::test(start_paused = true)]
async fn a_certificate_that_outlives_its_authority_is_replaced_with_it() {
    let cluster = Cluster::new().await;
    let managed = cluster.managed().lives(2 * DAY, 10 * DAY);
    let (keeper, _) = managed.first(&cluster.env).await.unwrap();
    drop(keeper);
    sleep(3 * DAY).await;
    let (_, pair) = managed.first(&cluster.env).await.unwrap();
    assert!(is_trusted(&cluster.env, &pair, &cluster.bundle().await).await);
}

#[tokio::test(start_paused = true)]
async fn who_may_not_read_the_secret_is_told_so() {
    let env = Env::seeded(1);
    let refuse = tower::service_fn(|_| async {
        let status = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "no"});
        let body = kube::client::Body::from(status.to_string().into_bytes());
        Ok::<_, std::convert::Infallible>(http::Response::builder().status(403).body(body).unwrap())
    });
    let managed = ManagedCertificates::new(Client::new(refuse, "default"), "there", "tls").name("a");
    let Err(error) = managed.first(&env).await else { panic!("it was refused") };
    assert_eq!(error.to_string(), "the API server refuses the Secret there/tls");
}
