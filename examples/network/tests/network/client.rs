//! The Neutron client alone.

use std::time::Duration;

use example_network::neutron::{Auth, Neutron, NeutronError, NewSubnet, https};
use http::Method;
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::json;
use setpoint::Env;

use crate::scripted::{Fault, Scripted};

fn client(neutron: &Scripted) -> Neutron {
    Neutron::new("http://neutron:9696/", Auth::None, neutron.transport(), Env::system())
}

#[tokio::test(start_paused = true)]
async fn networks_and_subnets_are_made_found_changed_and_deleted() {
    let scripted = Scripted::default();
    let neutron = client(&scripted);
    let network = neutron.create_network("default/a", "mine").await.unwrap();
    assert_eq!(neutron.networks_described("mine").await.unwrap(), std::slice::from_ref(&network));
    assert_eq!(neutron.networks_described("yours").await.unwrap(), []);
    let wanted = NewSubnet {
        network_id: network.id.clone(),
        name: "default/a".into(),
        description: "mine".into(),
        cidr: "10.0.0.5/24".into(),
        ip_version: 4,
        gateway_ip: None,
    };
    let subnet = neutron.create_subnet(&wanted).await.unwrap();
    assert_eq!((subnet.cidr.as_str(), subnet.gateway_ip.as_deref()), ("10.0.0.0/24", Some("10.0.0.1")));
    let changed = neutron.update_subnet(&subnet.id, 0, &json!({"name": "b"})).await.unwrap();
    assert_eq!((changed.name.as_str(), changed.revision_number), ("b", 1));
    assert_eq!(neutron.subnets(&network.id).await.unwrap(), [changed]);
    neutron.delete_subnet(&subnet.id).await.unwrap();
    neutron.delete_network(&network.id).await.unwrap();
    neutron.delete_network(&network.id).await.unwrap();
    assert_eq!(neutron.network(&network.id).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_long_list_comes_page_by_page() {
    let scripted = Scripted::default();
    for n in 0..100 {
        scripted.by_hand(
            Method::POST,
            "/v2.0/networks",
            json!({"network": {"name": "n", "description": n.to_string()}}),
        );
    }
    // The quota ends at a hundred, less than a page: so pages are made smaller by asking for them by hand.
    assert_eq!(client(&scripted).networks().await.unwrap().len(), 100);
    let (_, page) = scripted.by_hand(Method::GET, "/v2.0/networks?limit=40", json!(null));
    assert_eq!(page["networks"].as_array().unwrap().len(), 40);
    assert_eq!(page["networks_links"][0]["rel"], "next");
}

#[tokio::test(start_paused = true)]
async fn a_change_of_an_older_revision_is_stale() {
    let scripted = Scripted::default();
    let neutron = client(&scripted);
    let network = neutron.create_network("a", "mine").await.unwrap();
    neutron.update_network(&network.id, 1, &json!({"name": "b"})).await.unwrap();
    let error = neutron.update_network(&network.id, 1, &json!({"name": "c"})).await.unwrap_err();
    assert!(matches!(error, NeutronError::Stale));
}

#[tokio::test(start_paused = true)]
async fn what_can_be_repeated_is_and_a_create_is_not() {
    let scripted = Scripted::default();
    let neutron = client(&scripted);
    scripted.fault("GET", Fault::Answer(500, "database is locked"));
    scripted.fault("GET", Fault::Refuse);
    assert_eq!(neutron.networks().await.unwrap(), []);
    assert_eq!(scripted.requests().len(), 3);

    scripted.fault("POST", Fault::LoseAnswer);
    let error = neutron.create_network("a", "mine").await.unwrap_err();
    assert_eq!(error.reason(), "NeutronUnreachable");
    assert_eq!(neutron.networks_described("mine").await.unwrap().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn patience_ends() {
    let scripted = Scripted::default();
    scripted.outage(Some(Fault::Hang));
    let before = tokio::time::Instant::now();
    let error = client(&scripted).networks().await.unwrap_err();
    assert_eq!(error.to_string(), "Neutron did not answer within 10s");
    assert_eq!(scripted.requests().len(), 3);
    assert!(before.elapsed() < Duration::from_secs(32), "{:?}", before.elapsed());
}

#[tokio::test]
async fn the_token_is_read_anew_for_each_request() {
    let scripted = Scripted::default();
    let file = tempfile::NamedTempFile::new().unwrap();
    let auth = Auth::TokenFile(file.path().to_owned());
    let neutron = Neutron::new("http://neutron:9696", auth, scripted.transport(), Env::system());
    for token in ["first\n", "second\n"] {
        std::fs::write(file.path(), token).unwrap();
        neutron.networks().await.unwrap();
    }
    assert_eq!(scripted.tokens(), [Some("first".to_owned()), Some("second".to_owned())]);
    drop(file);
    let error = neutron.networks().await.unwrap_err();
    assert_eq!(error.reason(), "NeutronUnauthorized");
}

/// The only test on a socket: that HTTP itself works.
#[tokio::test]
async fn it_speaks_http() {
    let scripted = Scripted::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = scripted.clone();
    let _server = Env::system().spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let served = served.clone();
            let service = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let served = served.clone();
                async move {
                    let (parts, body) = request.into_parts();
                    let bytes = body.collect().await?.to_bytes();
                    let response = served.serve(hyper::Request::from_parts(parts, bytes)).await;
                    Ok::<_, hyper::Error>(response.unwrap().map(Full::new))
                }
            });
            let _closed = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    });
    let neutron = Neutron::new(&url, Auth::None, https(None).unwrap(), Env::system());
    let network = neutron.create_network("a", "über/ein & zwei").await.unwrap();
    assert_eq!(neutron.networks_described("über/ein & zwei").await.unwrap(), [network]);
}
