//! Acting as somebody else: the `Impersonate-…` headers.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use percent_encoding::percent_decode_str;

use crate::authorize::{self, Attributes};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::user::User;

const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// The user that a request is to be seen as. Each part of another identity needs the right to `impersonate` it; or the
/// right to `impersonate:MODE` it together with the right to do this very request so (`impersonate-on:MODE:VERB`).
pub(crate) async fn apply(
    core: &Core,
    user: Arc<User>,
    request: &Attributes,
    headers: &HeaderMap,
) -> Result<Arc<User>> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let wanted = Wanted::parse(headers)?;
    let Some(other) = &wanted.user else { return Ok(user) };
    let constrained = match wanted.mode() {
        Some(mode) => constrained(core, &user, other, request, mode, wanted.groups_given).await.err(),
        None => Some(None),
    };
    if let Some(refusal) = constrained {
        let legacy = all(core, &user, rights(other, wanted.groups_given, None)).await;
        // What is told is the more modest right that is missing.
        legacy.map_err(|status| refusal.unwrap_or(status))?;
    }
    Ok(Arc::new(with_standard_groups(other.clone())))
}

async fn constrained(
    core: &Core,
    user: &User,
    other: &User,
    request: &Attributes,
    mode: &str,
    groups_given: bool,
) -> Result<(), Option<Status>> {
    let on = Attributes { verb: format!("impersonate-on:{mode}:{}", request.verb), ..request.clone() };
    authorize::authorize(core, user, &on).await.map_err(Some)?;
    all(core, user, rights(other, groups_given, Some(mode))).await.map_err(Some)
}

async fn all(core: &Core, user: &User, rights: Vec<Attributes>) -> Result<()> {
    for attributes in rights {
        authorize::authorize(core, user, &attributes).await?;
    }
    Ok(())
}

struct Wanted {
    user: Option<User>,
    /// Otherwise the groups of a service account follow from its name.
    groups_given: bool,
}

impl Wanted {
    /// The constrained way to become this user, if there is one.
    fn mode(&self) -> Option<&'static str> {
        let user = self.user.as_ref()?;
        let is_only_a_name = !self.groups_given && user.uid.is_empty() && user.extra.is_empty();
        match (user.as_service_account().is_some(), node_of(user).is_some()) {
            (true, _) => is_only_a_name.then_some("serviceaccount"),
            (_, true) => is_only_a_name.then_some("arbitrary-node"),
            _ => Some("user-info"),
        }
    }

    fn parse(headers: &HeaderMap) -> Result<Wanted> {
        let all = |name: &str| -> Result<Vec<String>> { headers.get_all(name).iter().map(text).collect() };
        let one = |name: &str| -> Result<String> {
            match <[String; 1]>::try_from(all(name)?) {
                Ok([value]) => Ok(value),
                Err(none) if none.is_empty() => Ok(String::new()),
                Err(_) => Err(Status::bad_request(format!("the header {name} may occur only once"))),
            }
        };
        let (name, uid, groups) = (one(USER)?, one(UID)?, all(GROUP)?);
        let mut user = User::new(name, groups.iter().map(String::as_str));
        user.uid = uid;
        for header in headers.keys() {
            let Some(key) = header.as_str().strip_prefix(EXTRA) else { continue };
            let key = percent_decode_str(key).decode_utf8().map_or_else(|_| key.to_owned(), Into::into);
            user.extra.entry(key).or_default().extend(all(header.as_str())?);
        }
        if user.name.is_empty() {
            let asks_more = !groups.is_empty() || !user.extra.is_empty() || !user.uid.is_empty();
            if asks_more {
                return Err(Status::bad_request(format!(
                    "requested {} without impersonating a user name",
                    in_go(&user)
                )));
            }
            return Ok(Wanted { user: None, groups_given: false });
        }
        if groups.is_empty()
            && let Some((namespace, account)) = user.as_service_account()
        {
            let groups = User::service_account(namespace, account).groups;
            user.groups = groups;
        }
        Ok(Wanted { user: Some(user), groups_given: !groups.is_empty() })
    }
}

fn text(value: &HeaderValue) -> Result<String> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| Status::bad_request("an Impersonate header is not UTF-8"))
}

/// The wanted identity as Go prints it.
fn in_go(user: &User) -> String {
    let list = |values: &[String]| match values {
        [] => "[]string(nil)".to_owned(),
        values => {
            let values: Vec<String> = values.iter().map(|value| format!("{value:?}")).collect();
            format!("[]string{{{}}}", values.join(", "))
        }
    };
    let extra: Vec<String> =
        user.extra.iter().map(|(key, values)| format!("{key:?}:{}", list(values))).collect();
    let extra = if extra.is_empty() { "(nil)".to_owned() } else { format!("{{{}}}", extra.join(", ")) };
    format!(
        "&user.DefaultInfo{{Name:{:?}, UID:{:?}, Groups:{}, Extra:map[string][]string{extra}}}",
        user.name,
        user.uid,
        list(&user.groups)
    )
}

/// What the impersonator must be allowed to do.
fn rights(other: &User, groups_given: bool, mode: Option<&str>) -> Vec<Attributes> {
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let verb = mode.map_or_else(|| "impersonate".to_owned(), |mode| format!("impersonate:{mode}"));
    let names = if mode.is_some() { AUTHENTICATION } else { "" };
    let right = |group: &str, resource: &str, name: &str| Attributes {
        verb: verb.clone(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        ..Attributes::default()
    };
    let mut rights = vec![match (other.as_service_account(), node_of(other)) {
        (Some((namespace, name)), _) => {
            Attributes { namespace: namespace.into(), ..right(names, "serviceaccounts", name) }
        }
        (None, Some(node)) if mode.is_some() => right(names, "nodes", node),
        _ => right(names, "users", &other.name),
    }];
    if groups_given {
        rights.extend(other.groups.iter().map(|group| right(names, "groups", group)));
    }
    for (key, values) in &other.extra {
        rights.extend(values.iter().map(|value| Attributes {
            subresource: key.clone(),
            ..right(AUTHENTICATION, "userextras", value)
        }));
    }
    if !other.uid.is_empty() {
        rights.push(right(AUTHENTICATION, "uids", &other.uid));
    }
    rights
}

fn node_of(user: &User) -> Option<&str> {
    user.name.strip_prefix("system:node:").filter(|name| !name.is_empty())
}

fn with_standard_groups(mut user: User) -> User {
    const UNAUTHENTICATED: &str = User::UNAUTHENTICATED;
    let is_in = |group: &str| user.groups.iter().any(|own| own == group);
    let missing = if user.name == User::ANONYMOUS {
        (!is_in(UNAUTHENTICATED)).then_some(UNAUTHENTICATED)
    } else {
        (!is_in(UNAUTHENTICATED) && !is_in(User::AUTHENTICATED)).then_some(User::AUTHENTICATED)
    };
    user.groups.extend(missing.map(str::to_owned));
    user
}
