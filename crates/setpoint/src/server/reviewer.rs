//! Asks the API server who somebody is, and what they may do.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::{Api, PostParams};
use kube::{Client, Resource};
use lru::LruCache;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use setpoint_env::Env;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use super::Refused;

/// A token that was good is asked about again after this time.
const GOOD_FOR: Duration = Duration::from_secs(30);
/// One that was refused: soon, but not with every request.
const BAD_FOR: Duration = Duration::from_secs(5);
const MOST: NonZeroUsize = NonZeroUsize::new(512).unwrap();
/// Strangers must not keep the API server busy.
const AT_ONCE: usize = 8;
/// What is asked for one request, and the wait for a place before it.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Longer ones are no tokens.
const MOST_BYTES: usize = 16 << 10;

/// Somebody whom the API server knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Who(Arc<UserInfo>);

/// Asks the API server by TokenReview and SubjectAccessReview, and remembers the answers for half a minute. The role
/// `system:auth-delegator` allows both.
///
/// Everybody is answered within ten seconds. Strangers take nothing from those whose token was good when it was last
/// asked about: each group has a cache of its own, and places of its own to wait for the API server.
pub struct Reviewer {
    client: Client,
    path: &'static str,
    env: Env,
    strangers: Semaphore,
    known: Semaphore,
    good: Mutex<LruCache<String, (Instant, Who)>>,
    refused: Mutex<LruCache<String, (Instant, Refused)>>,
    rights: Mutex<LruCache<String, (Instant, bool)>>,
}

impl Reviewer {
    /// Lets those in who may `get` this non-resource URL.
    pub fn new(client: Client, env: Env, path: &'static str) -> Reviewer {
        Reviewer {
            client,
            path,
            env,
            strangers: Semaphore::new(AT_ONCE),
            known: Semaphore::new(AT_ONCE),
            good: Mutex::new(LruCache::new(MOST)),
            refused: Mutex::new(LruCache::new(MOST)),
            rights: Mutex::new(LruCache::new(MOST)),
        }
    }

    /// Whose token this is, if they may get the URL.
    pub async fn review(&self, token: &str) -> Result<Who, Refused> {
        if token.is_empty() || token.len() > MOST_BYTES {
            return Err(Refused(StatusCode::UNAUTHORIZED, "show a bearer token".to_owned()));
        }
        let now = self.env.instant();
        let known = self.good.lock().get(token).cloned();
        let places = match known {
            Some((until, who)) if until > now => return Ok(who),
            Some(_) => &self.known,
            None => &self.strangers,
        };
        if let Some((until, refused)) = self.refused.lock().get(token)
            && *until > now
        {
            return Err(refused.clone());
        }
        let verdict = within(places, self.ask(token)).await?;
        match &verdict {
            Ok(who) => {
                let until = setpoint_env::Later::later(now, GOOD_FOR);
                self.good.lock().put(token.to_owned(), (until, who.clone()));
            }
            Err(refused) => {
                let until = setpoint_env::Later::later(now, BAD_FOR);
                self.good.lock().pop(token);
                self.refused.lock().put(token.to_owned(), (until, refused.clone()));
            }
        }
        verdict
    }

    /// What the API server says about a token; an error if it does not say anything.
    async fn ask(&self, token: &str) -> Result<Result<Who, Refused>, Refused> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = self.post(TokenReview { spec, ..TokenReview::default() }).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            let why = "the API server does not know this token".to_owned();
            return Ok(Err(Refused(StatusCode::UNAUTHORIZED, why)));
        };
        let who = Who(Arc::new(user));
        let attributes = NonResourceAttributes { path: Some(self.path.into()), verb: Some("get".into()) };
        let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..who.spec() };
        if self.is_allowed(spec).await? {
            return Ok(Ok(who));
        }
        let name = who.0.username.as_deref().unwrap_or("unnamed");
        let why =
            format!("{name} may not get the non-resource URL {}; allow it with a ClusterRole", self.path);
        Ok(Err(Refused(StatusCode::FORBIDDEN, why)))
    }

    /// Whether somebody may do something with the objects of a kind.
    pub async fn may(
        &self,
        who: &Who,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Result<(), Refused> {
        let asked = format!("{:?} {verb} {group} {resource} {namespace:?}", who.0);
        let known = self.rights.lock().get(&asked).copied();
        let now = self.env.instant();
        let is_allowed = match known {
            Some((until, is_allowed)) if until > now => is_allowed,
            _ => {
                let text = |text: &str| Some(text.to_owned());
                let attributes = ResourceAttributes {
                    verb: text(verb),
                    group: text(group),
                    resource: text(resource),
                    namespace: namespace.map(str::to_owned),
                    ..ResourceAttributes::default()
                };
                let spec = SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..who.spec() };
                let is_allowed = within(&self.known, self.is_allowed(spec)).await?;
                self.rights.lock().put(asked, (setpoint_env::Later::later(now, GOOD_FOR), is_allowed));
                is_allowed
            }
        };
        if is_allowed {
            return Ok(());
        }
        let name = who.0.username.as_deref().unwrap_or("unnamed");
        Err(Refused(StatusCode::FORBIDDEN, format!("{name} may not {verb} {resource}")))
    }

    async fn is_allowed(&self, spec: SubjectAccessReviewSpec) -> Result<bool, Refused> {
        let review = self.post(SubjectAccessReview { spec, ..SubjectAccessReview::default() }).await?;
        Ok(review.status.is_some_and(|status| status.allowed))
    }

    async fn post<K>(&self, review: K) -> Result<K, Refused>
    where
        K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + std::fmt::Debug,
    {
        let api: Api<K> = Api::all(self.client.clone());
        let created = api.create(&PostParams::default(), &review).await;
        created.map_err(|error| cannot_ask(&error.to_string()))
    }
}

/// Asks when a place is free. All of it is done in time, or given up.
async fn within<T>(
    places: &Semaphore,
    asking: impl Future<Output = Result<T, Refused>>,
) -> Result<T, Refused> {
    let asked = async {
        let _place = places.acquire().await.map_err(|error| cannot_ask(&error.to_string()))?;
        asking.await
    };
    let late = |_| cannot_ask(&format!("no answer within {ANSWER_TIME:?}"));
    timeout(ANSWER_TIME, asked).await.map_err(late)?
}

fn cannot_ask(why: &str) -> Refused {
    let why = format!("the API server cannot be asked who you are: {why}");
    Refused(StatusCode::SERVICE_UNAVAILABLE, why)
}

impl std::fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reviewer").field("path", &self.path).finish_non_exhaustive()
    }
}

impl Who {
    fn spec(&self) -> SubjectAccessReviewSpec {
        let user = &*self.0;
        SubjectAccessReviewSpec {
            user: user.username.clone(),
            groups: user.groups.clone(),
            uid: user.uid.clone(),
            extra: user.extra.clone().map(|extra| extra.into_iter().collect::<BTreeMap<_, _>>()),
            ..SubjectAccessReviewSpec::default()
        }
    }
}
