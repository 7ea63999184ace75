//! The tokens in secrets of service accounts. They have no end: they are good as long as the secret holds them.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::signing_key::{PublicKey, SigningKey};
use super::{Verified, jwt, shared};
use crate::contention;
use crate::handlers::get::known;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::storage::{Action, Key, Record};
use crate::user::User;

/// Whom all such tokens are from.
pub(super) const ISSUER: &str = "kubernetes/serviceaccount";
const LAST_USED: &str = "kubernetes.io/legacy-token-last-used";
const INVALID_SINCE: &str = "kubernetes.io/legacy-token-invalid-since";

/// Signs the tokens of secrets of the type `kubernetes.io/service-account-token`, as kube-controller-manager does. A
/// server that has the key takes them as long as the secret and the account are there.
///
/// ```
/// use setpoint_apiserver::{ApiServer, SigningKey, TokenSigner};
///
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// // With the key of a server in the same process,
/// let signer = ApiServer::builder().build().token_signer();
/// let token = signer.sign("ci", "builder", "uid-of-the-account", "builder-token");
/// assert_eq!(token.split('.').count(), 3);
/// // or with the one that a server elsewhere was started with.
/// let signer = TokenSigner::new(SigningKey::generate());
/// # });
/// ```
#[derive(Clone)]
pub struct TokenSigner(Signer);

#[derive(Clone)]
enum Signer {
    Key(Arc<SigningKey>),
    /// A server may make its key only when it is first needed.
    Server(Arc<Core>),
}

impl fmt::Debug for TokenSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSigner").finish_non_exhaustive()
    }
}

impl TokenSigner {
    /// With this key.
    pub fn new(key: SigningKey) -> TokenSigner {
        TokenSigner(Signer::Key(Arc::new(key)))
    }

    pub(crate) fn of(core: Arc<Core>) -> TokenSigner {
        TokenSigner(Signer::Server(core))
    }

    /// The token of an account that a secret is going to hold.
    #[must_use]
    pub fn sign(&self, namespace: &str, account: &str, uid: &str, secret: &str) -> String {
        let claims = Claims {
            iss: ISSUER.to_owned(),
            sub: User::service_account_name(namespace, account),
            aud: Vec::new(),
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            uid: uid.to_owned(),
            secret: secret.to_owned(),
        };
        let key = match &self.0 {
            Signer::Key(key) => key,
            Signer::Server(core) => core.authenticator.signing_key(),
        };
        jwt::sign(key, &serde_json::to_value(claims).unwrap_or_default())
    }
}

#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
struct Claims {
    iss: String,
    sub: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    aud: Vec<String>,
    #[serde(rename = "kubernetes.io/serviceaccount/namespace")]
    namespace: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.name")]
    account: String,
    #[serde(rename = "kubernetes.io/serviceaccount/service-account.uid")]
    uid: String,
    #[serde(rename = "kubernetes.io/serviceaccount/secret.name")]
    secret: String,
}

/// Who a token is of, if its secret still holds it. Such a token is for the server itself.
pub(super) async fn verify(
    core: &Core,
    keys: &[PublicKey],
    token: &str,
    audiences: &[String],
) -> Result<Verified, String> {
    let claims: Claims = jwt::open(keys, token)?;
    let own = if claims.aud.is_empty() { core.authenticator.audiences() } else { &claims.aud };
    let shared = shared(own, audiences);
    if shared.is_empty() {
        return Err(format!(
            "token audiences {} is invalid for the target audiences {}",
            crate::rbac::quoted(own),
            crate::rbac::quoted(audiences)
        ));
    }
    check_claims(&claims)?;
    let Claims { namespace, account, uid, secret, .. } = &claims;
    const VOID: &str = "Token has been invalidated";
    let key = Registry::built_in().expect("", "v1", "secrets").key(Some(namespace), secret);
    let held = find(core, &key).await.ok_or(VOID)?;
    if object::is_being_deleted(&held) {
        return Err(VOID.to_owned());
    }
    // How long it takes to compare digests tells nothing about what they are of.
    let data = STANDARD.decode(held["data"]["token"].as_str().unwrap_or_default()).unwrap_or_default();
    if digest(&SHA256, &data).as_ref() != digest(&SHA256, token.as_bytes()).as_ref() {
        return Err("Token does not match server's copy".to_owned());
    }
    let accounts = Registry::built_in().expect("", "v1", "serviceaccounts");
    let found = find(core, &accounts.key(Some(namespace), account)).await;
    let found = found.ok_or_else(|| format!("serviceaccounts {account:?} not found"))?;
    if object::is_being_deleted(&found) {
        return Err(format!("ServiceAccount {namespace}/{account} has been deleted"));
    }
    if found["metadata"]["uid"] != *uid {
        let known = found["metadata"]["uid"].as_str().unwrap_or_default();
        return Err(format!("ServiceAccount UID ({known}) does not match claim ({uid})"));
    }
    note_use(core, key, &held).await;
    if held["metadata"]["labels"][INVALID_SINCE].as_str().is_some_and(|since| !since.is_empty()) {
        return Err(format!(
            "the token in secret {namespace}/{secret} for service account {namespace}/{account} has been marked invalid. \
             Use tokens from the TokenRequest API or manually created secret-based tokens, or remove the \
             '{INVALID_SINCE}' label from the secret to temporarily allow use of this token"
        ));
    }
    let mut user = User::service_account(namespace, account).authenticated();
    user.uid.clone_from(uid);
    Ok(Verified { user, audiences: shared })
}

fn check_claims(claims: &Claims) -> Result<(), String> {
    let named = [
        (&claims.sub, "sub"),
        (&claims.namespace, "namespace"),
        (&claims.secret, "secretName"),
        (&claims.account, "serviceAccountName"),
        (&claims.uid, "serviceAccountUID"),
    ];
    if let Some((_, name)) = named.into_iter().find(|(claim, _)| claim.is_empty()) {
        return Err(format!("{name} claim is missing"));
    }
    if claims.sub != User::service_account_name(&claims.namespace, &claims.account) {
        return Err("sub claim is invalid".to_owned());
    }
    Ok(())
}

async fn find(core: &Core, key: &Key) -> Option<Value> {
    let record = known(core, key).await.ok()??;
    Some(object::decode(&record.value, record.revision))
}

/// Notes on the secret that its token was used today: once a day, so that whoever cleans up knows which are in use.
async fn note_use(core: &Core, key: Key, secret: &Value) {
    let today: Date = core.env.now().to_zoned(TimeZone::UTC).date();
    let days = [Some(today), today.tomorrow().ok()];
    let is_noted = |secret: &Value| {
        let noted = secret["metadata"]["labels"][LAST_USED].as_str().unwrap_or_default();
        days.iter().flatten().any(|day| day.to_string() == noted)
    };
    if is_noted(secret) {
        return;
    }
    let change = |record: &Record| {
        let mut found = object::decode(&record.value, record.revision);
        if found["metadata"]["uid"] != secret["metadata"]["uid"] || is_noted(&found) {
            return None;
        }
        let labels = object::metadata_mut(&mut found).entry("labels").or_insert_with(|| json!({}));
        if labels.is_null() {
            *labels = json!({});
        }
        labels[LAST_USED] = today.to_string().into();
        Some(Action::Put { value: object::encode(&found), ttl: None })
    };
    if let Err(status) = contention::swap(core, key, change).await {
        tracing::warn!(error = status.message, "cannot record the use of a service account token");
    }
}
