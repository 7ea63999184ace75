//! The tokens of service accounts: what they claim, and whether it still holds.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::signing_key::PublicKey;
use super::{Verified, jwt, shared};
use crate::handlers::get::known;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::user::User;

/// How far clocks may be apart; also how long a token outlives the moment at which what it is bound to was
/// asked to end.
const LEEWAY: Duration = Duration::from_secs(60);

/// An object that a token names: it is void when the object is gone, or another one has its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Reference {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl Reference {
    pub(crate) fn to(object: &Value) -> Reference {
        let uid = object::text(object, &["metadata", "uid"]).unwrap_or_default().to_owned();
        Reference { name: object::name(object).to_owned(), uid }
    }
}

/// What only Kubernetes knows.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Bound {
    pub namespace: String,
    pub serviceaccount: Reference,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pod: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<Reference>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warnafter: Option<i64>,
}

#[derive(Deserialize)]
struct Claims {
    #[serde(default)]
    aud: Audience,
    exp: i64,
    #[serde(default)]
    nbf: i64,
    #[serde(default)]
    iat: i64,
    #[serde(default)]
    jti: String,
    #[serde(rename = "kubernetes.io")]
    bound: Bound,
}

/// One, or several.
#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Audience {
        Audience::Many(Vec::new())
    }
}

/// Signs a token for `audiences` that ends after `lifetime` seconds.
pub(crate) fn issue(core: &Core, bound: &Bound, audiences: &[String], lifetime: i64) -> String {
    let now = core.env.now().as_second();
    let claims = json!({
        "iss": core.authenticator.issuer(),
        "sub": User::service_account_name(&bound.namespace, &bound.serviceaccount.name),
        "aud": audiences,
        "iat": now,
        "nbf": now,
        "exp": now.saturating_add(lifetime),
        "jti": core.env.uuid(),
        "kubernetes.io": bound,
    });
    jwt::sign(core.authenticator.signing_key(), &claims)
}

/// Who a token is of, if everything that it names is still there.
pub(super) async fn verify(
    core: &Core,
    keys: &[PublicKey],
    token: &str,
    audiences: &[String],
) -> Result<Verified, String> {
    let claims: Claims = jwt::open(keys, token)?;
    let own = match claims.aud {
        Audience::One(one) => vec![one],
        Audience::Many(many) => many,
    };
    let shared = shared(&own, audiences);
    if shared.is_empty() {
        return Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            crate::rbac::quoted(&own),
            crate::rbac::quoted(audiences)
        ));
    }
    let now = core.env.now().as_second();
    let leeway = LEEWAY.as_secs().cast_signed();
    if now - leeway > claims.exp {
        return Err("service account token has expired".to_owned());
    }
    if now + leeway < claims.nbf {
        return Err("service account token is not valid yet".to_owned());
    }
    if now + leeway < claims.iat {
        return Err("service account token is issued in the future".to_owned());
    }
    check(core, &claims.bound).await?;
    Ok(Verified { user: user(claims.bound, &claims.jti), audiences: shared })
}

/// Whether what the token is bound to is still there.
async fn check(core: &Core, bound: &Bound) -> Result<(), String> {
    let Bound { namespace, serviceaccount, pod, secret, node, .. } = bound;
    match find(core, "serviceaccounts", Some(namespace), serviceaccount).await {
        Found::Same => {}
        Found::Nothing => return Err(format!("serviceaccounts {:?} not found", serviceaccount.name)),
        Found::Other(uid) => {
            let claimed = &serviceaccount.uid;
            return Err(format!("service account UID ({uid}) does not match claim ({claimed})"));
        }
        Found::Leaving => {
            return Err(format!("service account {namespace}/{} has been deleted", serviceaccount.name));
        }
    }
    // The node of a pod is only told, the pod is what counts.
    let node = node.as_ref().filter(|_| pod.is_none());
    for (kind, plural, namespace, reference) in [
        ("secret", "secrets", Some(namespace), secret.as_ref()),
        ("pod", "pods", Some(namespace), pod.as_ref()),
        ("node", "nodes", None, node),
    ] {
        let Some(reference) = reference else { continue };
        match find(core, plural, namespace.map(String::as_str), reference).await {
            Found::Same => {}
            Found::Nothing | Found::Leaving => {
                return Err("service account token has been invalidated".to_owned());
            }
            Found::Other(uid) => {
                let claimed = &reference.uid;
                return Err(format!(
                    "{kind} UID ({uid}) does not match service account {kind} ref claim ({claimed})"
                ));
            }
        }
    }
    Ok(())
}

enum Found {
    Same,
    Nothing,
    /// One with another uid.
    Other(String),
    /// It was deleted a while ago, and is held back by something.
    Leaving,
}

async fn find(core: &Core, plural: &str, namespace: Option<&str>, reference: &Reference) -> Found {
    let resource = Registry::built_in().expect("", "v1", plural);
    let Ok(Some(record)) = known(core, &resource.key(namespace, &reference.name)).await else {
        return Found::Nothing;
    };
    let object = object::decode(&record.value, record.revision);
    let found = Reference::to(&object);
    if found.uid != reference.uid {
        return Found::Other(found.uid);
    }
    let deleted = object::text(&object, &["metadata", "deletionTimestamp"]);
    let deleted = deleted.and_then(|time| time.parse::<Timestamp>().ok());
    let is_over =
        |time: Timestamp| time.as_second() + LEEWAY.as_secs().cast_signed() < core.env.now().as_second();
    if deleted.is_some_and(is_over) { Found::Leaving } else { Found::Same }
}

fn user(bound: Bound, id: &str) -> User {
    let Bound { namespace, serviceaccount, pod, node, .. } = bound;
    let mut user = User::service_account(&namespace, &serviceaccount.name).authenticated();
    user.uid = serviceaccount.uid;
    let mut tell = |key: &str, value: String| {
        if !value.is_empty() {
            user.extra.insert(format!("authentication.kubernetes.io/{key}"), vec![value]);
        }
    };
    if !id.is_empty() {
        tell("credential-id", format!("JTI={id}"));
    }
    for (kind, reference) in [("pod", pod), ("node", node)] {
        let Some(Reference { name, uid }) = reference else { continue };
        tell(&format!("{kind}-name"), name);
        tell(&format!("{kind}-uid"), uid);
    }
    user
}
