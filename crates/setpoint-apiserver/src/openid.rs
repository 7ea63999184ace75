//! What others need to check the tokens of service accounts by themselves.

use http::{HeaderValue, Response, StatusCode, header};
use serde_json::{Value, json};

use crate::authenticate::ISSUER;
use crate::response::{Body, respond};
use crate::server::Core;

/// `/.well-known/openid-configuration`
pub(crate) fn configuration() -> Response<Body> {
    let body = json!({
        "issuer": ISSUER,
        "jwks_uri": format!("{ISSUER}/openid/v1/jwks"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": ["ES256"]
    });
    public("application/json", &body)
}

/// `/openid/v1/jwks`
pub(crate) fn keys(core: &Core) -> Response<Body> {
    public("application/jwk-set+json", &json!({"keys": [core.authenticator.key().to_jwk()]}))
}

fn public(media_type: &'static str, body: &Value) -> Response<Body> {
    let mut response = respond(StatusCode::OK, media_type, body.to_string());
    let for_an_hour = HeaderValue::from_static("public, max-age=3600");
    response.headers_mut().insert(header::CACHE_CONTROL, for_an_hour);
    response
}
