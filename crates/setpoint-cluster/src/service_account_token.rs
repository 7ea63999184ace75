//! Fills secrets of the type `kubernetes.io/service-account-token` with a token of the account that they name, and deletes
//! them with it.

use std::fmt;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::api::{DeleteParams, PostParams, Preconditions};
use kube::core::PartialObjectMeta;
use kube::{Api, Client, ResourceExt};
use setpoint::{HandlerFns, Held, Lister, Manager, ObjectKey, SharedInformer, WorkQueue, run_workers};
use setpoint_apiserver::TokenSigner;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::controllers::Setup;
use crate::failure;

const NAME: &str = "serviceaccount-token-controller";
const OF_TOKENS: &str = "type=kubernetes.io/service-account-token";
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";
/// The keys of a secret's data.
const ROOT_CA: &str = "ca.crt";
const NAMESPACE: &str = "namespace";
const TOKEN: &str = "token";
/// Secrets by the account that they name, as `namespace/name`.
const BY_ACCOUNT: &str = "account";
/// How many secrets are looked at at the same time.
const WORKERS: usize = 2;
/// How long one secret may take.
const TIME_LIMIT: Duration = Duration::from_secs(60);
/// When a secret is looked at again whose account the cache does not know yet. An account that comes and goes before the cache
/// hears of it is no news: nobody would look at its secrets any more.
const CATCH_UP: Duration = Duration::from_secs(10);

type Account = PartialObjectMeta<ServiceAccount>;

/// What may have to be done.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Work {
    /// Fill a secret, or delete it if there is no account for it.
    Fill(ObjectKey),
    /// An account may name a secret that is gone.
    Forget { account: ObjectKey, secret: String },
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Fill(key) => write!(f, "fill/{key}"),
            Work::Forget { account, secret } => write!(f, "forget/{account}/{secret}"),
        }
    }
}

/// Why a secret has to wait; it is tried again.
#[derive(Debug, thiserror::Error)]
enum TokenError {
    #[error(transparent)]
    Server(#[from] kube::Error),
    #[error("it took longer than {TIME_LIMIT:?}")]
    Late,
}

struct Tokens {
    client: Client,
    signer: TokenSigner,
    root_ca: Option<String>,
    secrets: SharedInformer<Secret>,
    accounts: SharedInformer<Account>,
    queue: WorkQueue<Work>,
}

/// Adds the controller to a manager, if there is a key to sign with.
pub(crate) fn add_to(manager: Manager, setup: &Setup) -> Manager {
    let Some(signer) = setup.token_signer.clone() else { return manager };
    let (client, root_ca, metrics) = (setup.client.clone(), setup.root_ca.clone(), manager.metrics().clone());
    let (facts, env) = (manager.facts().clone(), setup.env.clone());
    let accounts = manager.informers().metadata::<ServiceAccount>();
    manager.runnable(NAME, move |cx| async move {
        // Of all secrets these alone are of interest, and cached.
        let secrets = SharedInformer::<Secret>::builder(client.clone())
            .field_selector(OF_TOKENS)
            .env(env)
            .metrics(metrics.clone())
            .facts(&facts)
            .build();
        let queue = WorkQueue::builder().metrics(NAME, &metrics).facts(NAME, &facts).build();
        Tokens { client, signer, root_ca, secrets, accounts, queue }.run(cx.stopping().clone()).await;
        Ok(())
    })
}

/// The account that a secret names.
fn account_of(secret: &Secret) -> Option<ObjectKey> {
    let name = secret.annotations().get(ACCOUNT_NAME).filter(|name| !name.is_empty())?;
    Some(ObjectKey::namespaced(secret.metadata.namespace.as_deref()?, name))
}

impl Tokens {
    async fn run(self, shutdown: CancellationToken) {
        self.watch();
        let work = async {
            self.secrets.wait_for_sync().await;
            self.accounts.wait_for_sync().await;
            run_workers(WORKERS, &self.queue, |work| self.work(work)).await;
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = work => {}
        }
        self.queue.shut_down();
        self.secrets.shutdown().await;
    }

    fn watch(&self) {
        let by_account = |secret: &Secret| account_of(secret).iter().map(ToString::to_string).collect();
        // The only error is that the index is there.
        let _ = self.secrets.add_index(BY_ACCOUNT, by_account);
        let (added, updated, gone) = (self.queue.clone(), self.queue.clone(), self.queue.clone());
        let handler = HandlerFns::new()
            .on_add(move |secret: &Held<Secret>, _| added.add(Work::Fill(secret.key().clone())))
            .on_update(move |_, secret: &Held<Secret>| updated.add(Work::Fill(secret.key().clone())))
            .on_delete(move |secret| {
                let Some(account) = account_of(&secret.object) else { return };
                gone.add(Work::Forget { account, secret: secret.object.name_any() });
            });
        self.secrets.add_handler(handler).detach();
        let (added, gone) = (self.notice(), self.notice());
        let handler = HandlerFns::new()
            // One may have another uid than the last one of its name.
            .on_add(move |account: &Held<Account>, _| added(account.key()))
            .on_delete(move |account| {
                let metadata = &account.object.metadata;
                let (Some(namespace), Some(name)) = (&metadata.namespace, &metadata.name) else { return };
                gone(&ObjectKey::namespaced(namespace, name));
            });
        self.accounts.add_handler(handler).detach();
        self.secrets.start();
        self.accounts.start();
    }

    /// Looks at the secrets of an account.
    fn notice(&self) -> impl Fn(&ObjectKey) + Send + Sync + 'static {
        let (secrets, queue) = (self.secrets.lister(), self.queue.clone());
        move |account| {
            let keys = secrets.index_keys(BY_ACCOUNT, &account.to_string()).unwrap_or_default();
            keys.into_iter().for_each(|key| queue.add(Work::Fill(key)));
        }
    }

    async fn work(&self, work: Work) -> Result<(), TokenError> {
        let done = async {
            match &work {
                Work::Fill(key) => self.fill(key).await,
                Work::Forget { account, secret } => self.forget(account, secret).await,
            }
        };
        timeout(TIME_LIMIT, done).await.map_err(|_| TokenError::Late)??;
        Ok(())
    }

    /// The uid of the account that a secret is for; none if there is no such account.
    async fn uid_of(&self, key: &ObjectKey, wanted: Option<&String>) -> kube::Result<Option<String>> {
        let is_it = |uid: &String| wanted.is_none_or(|wanted| wanted.is_empty() || wanted == uid);
        let accounts: Lister<Account> = self.accounts.lister();
        let cached = accounts.get(key).and_then(|account| account.metadata.uid.clone()).filter(is_it);
        if cached.is_some() {
            return Ok(cached);
        }
        // The cache may be behind: nothing is deleted for what only a cache says.
        let api: Api<ServiceAccount> =
            Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        let live = api.get_metadata_opt(key.name()).await?;
        Ok(live.and_then(|account| account.metadata.uid).filter(is_it))
    }

    /// Whether the cache has this account.
    fn is_known(&self, account: &ObjectKey, uid: &str) -> bool {
        let cached = self.accounts.lister().get(account);
        cached.is_some_and(|cached| cached.metadata.uid.as_deref() == Some(uid))
    }

    async fn fill(&self, key: &ObjectKey) -> kube::Result<()> {
        let Some(secret) = self.secrets.lister().get(key) else { return Ok(()) };
        let Some(account) = account_of(&secret) else { return Ok(()) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), key.namespace().unwrap_or_default());
        let Some(uid) = self.uid_of(&account, secret.annotations().get(ACCOUNT_UID)).await? else {
            let only = Preconditions { uid: secret.uid(), resource_version: None };
            let parameters = DeleteParams { preconditions: Some(only), ..DeleteParams::default() };
            return match api.delete(key.name(), &parameters).await {
                Err(error) if failure::is_not_found(&error) || failure::is_conflict(&error) => Ok(()),
                deleted => deleted.map(drop),
            };
        };
        if !self.is_known(&account, &uid) {
            self.queue.add_after(Work::Fill(key.clone()), CATCH_UP);
        }
        if !self.is_incomplete(&secret) {
            return Ok(());
        }
        let Some(live) = api.get_opt(key.name()).await? else { return Ok(()) };
        // If the cache is behind, the change that it has not seen yet leads here again.
        if live.resource_version() != secret.resource_version() || !self.is_incomplete(&live) {
            return Ok(());
        }
        match api.replace(key.name(), &PostParams::default(), &self.filled(live, &account, &uid)).await {
            Err(error) if failure::is_not_found(&error) || failure::is_conflict(&error) => Ok(()),
            written => written.map(drop),
        }
    }

    fn is_incomplete(&self, secret: &Secret) -> bool {
        let get =
            |key: &str| secret.data.as_ref().and_then(|data| data.get(key)).filter(|data| !data.0.is_empty());
        let has_ca =
            self.root_ca.as_ref().is_none_or(|ca| get(ROOT_CA).is_some_and(|data| data.0 == ca.as_bytes()));
        !has_ca || get(NAMESPACE).is_none() || get(TOKEN).is_none()
    }

    fn filled(&self, mut secret: Secret, account: &ObjectKey, uid: &str) -> Secret {
        let (namespace, name) = (account.namespace().unwrap_or_default(), secret.name_any());
        let data = secret.data.get_or_insert_default();
        if let Some(ca) = &self.root_ca {
            data.insert(ROOT_CA.to_owned(), ByteString(ca.as_bytes().to_vec()));
        }
        let mut fill = |key: &str, make: &dyn Fn() -> String| {
            let value = data.entry(key.to_owned()).or_default();
            if value.0.is_empty() {
                value.0 = make().into_bytes();
            }
        };
        fill(NAMESPACE, &|| namespace.to_owned());
        fill(TOKEN, &|| self.signer.sign(namespace, account.name(), uid, &name));
        let annotations = secret.metadata.annotations.get_or_insert_default();
        annotations.insert(ACCOUNT_NAME.to_owned(), account.name().to_owned());
        annotations.insert(ACCOUNT_UID.to_owned(), uid.to_owned());
        secret
    }

    /// Takes a secret that is gone out of the account's list.
    async fn forget(&self, account: &ObjectKey, secret: &str) -> kube::Result<()> {
        let namespace = account.namespace().unwrap_or_default();
        let api: Api<ServiceAccount> = Api::namespaced(self.client.clone(), namespace);
        // Most accounts of such secrets list none, and are gone as often as not.
        let Some(mut found) = api.get_opt(account.name()).await? else { return Ok(()) };
        let Some(secrets) = &mut found.secrets else { return Ok(()) };
        let before = secrets.len();
        secrets.retain(|reference| reference.name.as_deref() != Some(secret));
        if secrets.len() == before {
            return Ok(());
        }
        match api.replace(account.name(), &PostParams::default(), &found).await {
            Err(error) if failure::is_not_found(&error) => Ok(()),
            written => written.map(drop),
        }
    }
}
