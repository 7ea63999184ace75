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

/// The user that a request of `user` is to be seen as. Each part of another identity needs the right to
/// `impersonate` it.
pub(crate) async fn apply(core: &Core, user: Arc<User>, headers: &HeaderMap) -> Result<Arc<User>> {
    if !headers.keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(user);
    }
    let wanted = Wanted::parse(headers)?;
    let Some(other) = wanted.user else { return Ok(user) };
    for attributes in rights(&other, wanted.groups_given) {
        authorize::authorize(core, &user, &attributes).await?;
    }
    Ok(Arc::new(with_standard_groups(other)))
}

struct Wanted {
    user: Option<User>,
    /// Otherwise the groups of a service account follow from its name.
    groups_given: bool,
}

impl Wanted {
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
                    "requested {} without impersonating a user",
                    references(&user)
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

/// The wanted identity as Go prints a list of object references.
fn references(user: &User) -> String {
    let groups = user.groups.iter().map(|group| format!("{{Group  {group}    }}"));
    let version = "authentication.k8s.io/v1";
    let extra = user.extra.iter().flat_map(|(key, values)| {
        values.iter().map(move |value| format!("{{UserExtra  {value}  {version}  {key}}}"))
    });
    let uid = (!user.uid.is_empty()).then(|| format!("{{UID  {}  {version}  }}", user.uid));
    format!("[{}]", groups.chain(extra).chain(uid).collect::<Vec<_>>().join(" "))
}

/// What the impersonator must be allowed to do.
fn rights(other: &User, groups_given: bool) -> Vec<Attributes> {
    let right = |group: &str, resource: &str, name: &str| Attributes {
        verb: "impersonate".into(),
        group: group.into(),
        resource: resource.into(),
        name: name.into(),
        ..Attributes::default()
    };
    const AUTHENTICATION: &str = "authentication.k8s.io";
    let mut rights = vec![match other.as_service_account() {
        Some((namespace, name)) => {
            Attributes { namespace: namespace.into(), ..right("", "serviceaccounts", name) }
        }
        None => right("", "users", &other.name),
    }];
    if groups_given {
        rights.extend(other.groups.iter().map(|group| right("", "groups", group)));
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

fn with_standard_groups(mut user: User) -> User {
    const UNAUTHENTICATED: &str = "system:unauthenticated";
    let is_in = |group: &str| user.groups.iter().any(|own| own == group);
    let missing = if user.name == "system:anonymous" {
        (!is_in(UNAUTHENTICATED)).then_some(UNAUTHENTICATED)
    } else {
        (!is_in(UNAUTHENTICATED) && !is_in(User::AUTHENTICATED)).then_some(User::AUTHENTICATED)
    };
    user.groups.extend(missing.map(str::to_owned));
    user
}
