//! What others need to check the tokens of service accounts by themselves.

use std::collections::BTreeSet;

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::authenticate::PublicKey;
use crate::response::{Body, respond};
use crate::server::Core;

/// `/.well-known/openid-configuration`
pub(crate) fn configuration(core: &Core) -> Response<Body> {
    let issuer = core.authenticator.issuer();
    let keys = core.authenticator.verifying_keys();
    let algorithms: BTreeSet<&str> = keys.iter().map(|key| key.algorithm().name()).collect();
    let body = json!({
        "issuer": issuer,
        "jwks_uri": format!("{}/openid/v1/jwks", issuer.trim_end_matches('/')),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms
    });
    public("application/json", &body)
}

/// `/openid/v1/jwks`
pub(crate) fn keys(core: &Core) -> Response<Body> {
    let keys: Vec<Value> = core.authenticator.verifying_keys().iter().map(PublicKey::to_jwk).collect();
    public("application/jwk-set+json", &json!({"keys": keys}))
}

fn public(media_type: &'static str, body: &Value) -> Response<Body> {
    let mut response = respond(StatusCode::OK, media_type, body.to_string());
    let for_an_hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, for_an_hour);
    response
}
