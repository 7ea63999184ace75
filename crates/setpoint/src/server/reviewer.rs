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
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// Longer ones are no tokens.
const MOST_BYTES: usize = 16 << 10;

/// Somebody whom the API server knows.
#[derive(Clone, Debug, PartialEq)]
pub struct Who(Arc<UserInfo>);

type Verdict = Result<Who, (u16, String)>;

/// Asks the API server by TokenReview and SubjectAccessReview, and remembers the answers for half a minute. The role
/// `system:auth-delegator` allows both.
pub struct Reviewer {
    client: Client,
    path: &'static str,
    env: Env,
    at_once: Semaphore,
    tokens: Mutex<LruCache<String, (Instant, Verdict)>>,
    rights: Mutex<LruCache<String, (Instant, bool)>>,
}

impl Reviewer {
    /// Lets those in who may `get` this non-resource URL.
    pub fn new(client: Client, env: Env, path: &'static str) -> Reviewer {
        Reviewer {
            client,
            path,
            env,
            at_once: Semaphore::new(AT_ONCE),
            tokens: Mutex::new(LruCache::new(MOST)),
            rights: Mutex::new(LruCache::new(MOST)),
        }
    }

    /// Whose token this is, if they may get the URL.
    pub async fn review(&self, token: &str) -> Result<Who, Refused> {
        if token.is_empty() || token.len() > MOST_BYTES {
            return Err(Refused(StatusCode::UNAUTHORIZED, "show a bearer token".to_owned()));
        }
        let known = self.tokens.lock().get(token).cloned();
        let now = self.env.instant();
        let verdict = match known {
            Some((until, verdict)) if until > now => verdict,
            _ => {
                let verdict = self.ask(token).await?;
                let time = if verdict.is_ok() { GOOD_FOR } else { BAD_FOR };
                let until = setpoint_env::Later::later(now, time);
                self.tokens.lock().put(token.to_owned(), (until, verdict.clone()));
                verdict
            }
        };
        verdict
            .map_err(|(code, why)| Refused(StatusCode::from_u16(code).unwrap_or(StatusCode::FORBIDDEN), why))
    }

    async fn ask(&self, token: &str) -> Result<Verdict, Refused> {
        let spec = TokenReviewSpec { token: token.to_owned(), ..TokenReviewSpec::default() };
        let review = self.post(TokenReview { spec, ..TokenReview::default() }).await?;
        let status = review.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else {
            return Ok(Err((401, "the API server does not know this token".to_owned())));
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
        Ok(Err((403, why)))
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
                let is_allowed = self.is_allowed(spec).await?;
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
        let failed = |why: String| {
            Refused(
                StatusCode::SERVICE_UNAVAILABLE,
                format!("the API server cannot be asked who you are: {why}"),
            )
        };
        let _place = self.at_once.acquire().await.map_err(|error| failed(error.to_string()))?;
        let api: Api<K> = Api::all(self.client.clone());
        let params = PostParams::default();
        match timeout(ANSWER_TIME, api.create(&params, &review)).await {
            Ok(answer) => answer.map_err(|error| failed(error.to_string())),
            Err(_) => Err(failed(format!("no answer within {ANSWER_TIME:?}"))),
        }
    }
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
