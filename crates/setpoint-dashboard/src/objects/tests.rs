use k8s_openapi::api::core::v1::ConfigMap;
use setpoint_apiserver::{ApiServer, Authorization, User};

use super::*;

#[tokio::test(start_paused = true)]
async fn the_first_look_does_not_wait_for_what_may_not_be_listed() {
    let server = ApiServer::builder().authorization(Authorization::Rbac).build();
    let client = server.client_as(User::new("nobody", [User::AUTHENTICATED]));
    let env = Env::system();
    let objects = Objects::new(client, env.clone(), Facts::new(env.clone()), true);
    let begun = env.instant();
    let kinds = objects.kinds().await.unwrap();
    let kinds = kinds["kinds"].as_array().unwrap();
    assert!(kinds.iter().any(|kind| kind["resource"] == "pods"));
    assert!(kinds.iter().all(|kind| kind["trouble"].is_string()), "{kinds:?}");
    assert!(env.instant().saturating_duration_since(begun) < SYNC_TIME / 2);
}

#[tokio::test(start_paused = true)]
async fn what_the_process_caches_later_is_shown_too() {
    let server = ApiServer::builder().build();
    let env = Env::system();
    let facts = Facts::new(env.clone());
    let objects = Objects::new(server.client(), env.clone(), facts.clone(), false);
    assert_eq!(objects.kinds().await.unwrap(), json!({"kinds": []}));
    let maps = SharedInformer::<ConfigMap>::builder(server.client()).facts(&facts).build();
    assert_eq!(objects.kinds().await.unwrap()["kinds"][0]["resource"], "configmaps");
    let shown = objects.shown().await.unwrap();
    drop(maps);
    assert!(Arc::ptr_eq(&shown, &objects.shown().await.unwrap()), "what it has is kept");
}
