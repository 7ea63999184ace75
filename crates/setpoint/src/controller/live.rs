//! What the server has, asked when nobody else knows: after a write whose answer was lost, and when a term begins.
//!
//! After a lost answer, the answer is a list of metadata, of one object by its name or of a collection. What a cache must show to be as new
//! follows from the answer's *objects*: the newest version among them, and that what is not among them has gone. The
//! version of the answer itself is the server's, which goes on with every write to any kind; a cache of a quiet kind gets
//! there only by a bookmark, perhaps a minute later. So it decides only where the cache is there already, or soon.
//!
//! A write that the server commits only after it was asked is not found. Nobody could: the server does not know of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use kube::Client;
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::caches::{Cache, concerned};
use super::writes::Unknown;
use crate::reflector::Target;
use crate::workqueue::Until;
use crate::{ObjectKey, ResourceVersion};

/// How many objects one answer has.
const PAGE: u32 = 500;
/// How long a cache of more than a page may take to get to the version of the first page by itself, before all is listed.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long to wait before asking again a server that does not answer.
const AGAIN: Duration = Duration::from_secs(1);

/// What the server has said about one object, or about all of a namespace or of the cluster.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) namespace: Option<String>,
    /// The one object that it is about, if it is one.
    pub(super) name: Option<ObjectKey>,
    /// The version of the answer.
    pub(super) version: ResourceVersion,
    /// What is there.
    pub(super) keys: BTreeSet<ObjectKey>,
    /// The object of it that was written last.
    pub(super) newest: Option<(ObjectKey, ResourceVersion)>,
}

/// Why there is no answer.
enum Unanswered {
    /// Asking again may help.
    Again,
    /// The list was too old for its next page.
    Expired,
    /// The server does not let us know.
    Refused(Box<kube::Error>),
}

/// What to wait for until each cache shows what became of writes whose answers were lost. Asks until the server answers:
/// the wait as a whole is bounded by whoever waits.
pub(super) async fn until_known(
    caches: &[Arc<dyn Cache>],
    client: &Client,
    unknown: &[(String, Unknown)],
) -> Vec<Until> {
    let mut untils = Vec::new();
    for (resource, Unknown { collection, namespace, name }) in unknown {
        let any = key_of(namespace.as_deref(), name.as_deref().unwrap_or_default());
        for cache in concerned(caches, resource) {
            let target = cache.targets().into_iter().find(|target| target.scope.contains(&any));
            if let Some(target) = target {
                let about = (collection.as_str(), namespace.as_deref(), name.as_deref());
                untils.extend(ask(cache, client, target, about).await);
            }
        }
    }
    untils
}

/// Waits until a cache is at least as new as what the server has now. It lists again, unless it is there soon: that it has
/// the same objects is not enough, since it could still be told of some that came and went.
pub(super) async fn catch_up(cache: &dyn Cache, client: &Client) {
    for target in cache.targets() {
        let Some(Newest { version, is_long }) = newest(cache, client, target).await else { continue };
        let patience = if is_long { PATIENCE } else { Duration::ZERO };
        if timeout(patience, cache.wait_until_at(target, &version)).await.is_err() {
            target.list_again();
            cache.wait_until_at(target, &version).await;
        }
    }
}

/// The version that the server is at.
struct Newest {
    version: ResourceVersion,
    /// Whether there is more than a page.
    is_long: bool,
}

/// Asks until the server answers; none if it refuses to.
async fn newest(cache: &dyn Cache, client: &Client, target: &Target) -> Option<Newest> {
    loop {
        match page(client, target, &target.path, None, None).await {
            Ok(Page { metadata, .. }) => {
                let version = ResourceVersion::from(metadata.resource_version.as_str());
                return Some(Newest { version, is_long: metadata.next.is_some_and(|next| !next.is_empty()) });
            }
            Err(Unanswered::Again | Unanswered::Expired) => sleep(AGAIN).await,
            Err(Unanswered::Refused(error)) => {
                tracing::warn!(resource = cache.resource(), %error, "cannot find out whether a write happened");
                return None;
            }
        }
    }
}

/// What to wait for until a cache is as new as the server's answer about a collection, or one name in it.
async fn ask(
    cache: &dyn Cache,
    client: &Client,
    target: &Target,
    about: (&str, Option<&str>, Option<&str>),
) -> Vec<Until> {
    loop {
        match list(cache, client, target, about).await {
            Ok(Some(live)) => return cache.until_like(&live),
            Ok(None) => return Vec::new(),
            Err(Unanswered::Expired) => {}
            Err(Unanswered::Again) => sleep(AGAIN).await,
            Err(Unanswered::Refused(error)) => {
                tracing::warn!(resource = cache.resource(), %error, "cannot find out whether a write happened");
                return Vec::new();
            }
        }
    }
}

/// None if the cache has got to the version of the answer before all of it was read.
async fn list(
    cache: &dyn Cache,
    client: &Client,
    target: &Target,
    (path, namespace, name): (&str, Option<&str>, Option<&str>),
) -> Result<Option<Live>, Unanswered> {
    let mut live: Option<Live> = None;
    let mut next: Option<String> = None;
    loop {
        let page = page(client, target, path, name, next.as_deref()).await?;
        let version = ResourceVersion::from(page.metadata.resource_version.as_str());
        let first = live.is_none();
        let live = live.get_or_insert_with(|| Live {
            namespace: namespace.map(str::to_owned),
            name: name.map(|name| key_of(namespace, name)),
            version: version.clone(),
            keys: BTreeSet::new(),
            newest: None,
        });
        page.items.into_iter().flatten().for_each(|item| live.add(item.metadata));
        next = page.metadata.next.filter(|next| !next.is_empty());
        if next.is_none() {
            break;
        }
        if first && timeout(PATIENCE, cache.wait_until_at(target, &version)).await.is_ok() {
            return Ok(None);
        }
    }
    Ok(live.filter(|live| !cache.is_at(target, &live.version)))
}

async fn page(
    client: &Client,
    target: &Target,
    path: &str,
    name: Option<&str>,
    next: Option<&str>,
) -> Result<Page, Unanswered> {
    let answer = client.request::<Page>(target.metadata_page(path, name, PAGE, next)).await;
    answer.map_err(|error| match &error {
        kube::Error::Api(status) if status.code == 410 => Unanswered::Expired,
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => {
            Unanswered::Refused(Box::new(error))
        }
        kube::Error::SerdeError(_) => Unanswered::Refused(Box::new(error)),
        _ => Unanswered::Again,
    })
}

fn key_of(namespace: Option<&str>, name: &str) -> ObjectKey {
    match namespace {
        Some(namespace) => ObjectKey::namespaced(namespace, name),
        None => ObjectKey::cluster(name),
    }
}

impl Live {
    fn add(&mut self, item: ItemMeta) {
        let key = key_of(item.namespace.as_deref(), &item.name);
        let version = ResourceVersion::from(item.resource_version.as_str());
        if self.newest.as_ref().is_none_or(|(_, newest)| newest.is_before(&version)) {
            self.newest = Some((key.clone(), version));
        }
        self.keys.insert(key);
    }
}

#[derive(Deserialize)]
struct Page {
    metadata: PageMeta,
    items: Option<Vec<Listed>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PageMeta {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Listed {
    metadata: ItemMeta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ItemMeta {
    name: String,
    namespace: Option<String>,
    resource_version: String,
}
