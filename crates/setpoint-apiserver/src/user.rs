//! Who asks.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Extensions;

/// Who sends a request.
///
/// A `User` travels with its request, as an extension: what accepts the request (the TLS listener, the
/// in-process client) [attaches](User::attach) it once it is sure, as a member of [`User::AUTHENTICATED`], and the
/// server looks it up with [`User::of`]. A request without one is anonymous.
///
/// ```
/// # use std::sync::Arc;
/// use setpoint_apiserver::User;
///
/// let mut request = http::Request::new(());
/// assert!(User::of(request.extensions()).is_none());
///
/// Arc::new(User::new("jane", ["developers"])).attach(request.extensions_mut());
/// assert_eq!(User::of(request.extensions()).unwrap().name, "jane");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// The name that rules and audit records use. Unique among all users at one time.
    pub name: String,
    /// The groups that the user belongs to.
    pub groups: Vec<String>,
    /// Tells apart two users that had the same name at different times. Mostly empty.
    pub uid: String,
    /// What else the authenticator knows.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// The group of everybody whose identity is known.
    pub const AUTHENTICATED: &str = "system:authenticated";

    /// The name of whoever brings no credentials.
    pub const ANONYMOUS: &str = "system:anonymous";
    /// The group of unauthenticated users.
    pub const UNAUTHENTICATED: &str = "system:unauthenticated";

    /// A user with a name and groups.
    pub fn new<G: Into<String>>(name: impl Into<String>, groups: impl IntoIterator<Item = G>) -> User {
        let groups = groups.into_iter().map(Into::into).collect();
        User { name: name.into(), groups, ..User::default() }
    }

    /// The user of the admin kubeconfig, who may do everything.
    pub fn admin() -> User {
        User::new("kubernetes-admin", ["system:masters"])
    }

    /// The user of requests without credentials, where those are allowed.
    pub fn anonymous() -> User {
        User::new(User::ANONYMOUS, [User::UNAUTHENTICATED])
    }

    /// The name of a service account as a user.
    ///
    /// ```
    /// # use setpoint_apiserver::User;
    /// assert_eq!(User::service_account_name("ci", "builder"), "system:serviceaccount:ci:builder");
    /// ```
    pub fn service_account_name(namespace: &str, name: &str) -> String {
        format!("system:serviceaccount:{namespace}:{name}")
    }

    /// A service account as a user, with the groups that it is in.
    pub fn service_account(namespace: &str, name: &str) -> User {
        let own_group = format!("system:serviceaccounts:{namespace}");
        let groups = ["system:serviceaccounts".to_owned(), own_group];
        User::new(User::service_account_name(namespace, name), groups)
    }

    /// The namespace and the name of the service account that this user is, if it is one.
    pub(crate) fn as_service_account(&self) -> Option<(&str, &str)> {
        let (namespace, name) = self.name.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        (!namespace.is_empty() && !name.is_empty() && !name.contains(':')).then_some((namespace, name))
    }

    /// The same user as a member of [`User::AUTHENTICATED`], which an authenticator adds.
    #[must_use]
    pub fn authenticated(mut self) -> User {
        if !self.groups.iter().any(|group| group == User::AUTHENTICATED) {
            self.groups.push(User::AUTHENTICATED.to_owned());
        }
        self
    }

    /// The user that a request travels with.
    pub fn of(extensions: &Extensions) -> Option<&Arc<User>> {
        extensions.get()
    }

    /// Makes this the user that a request travels with, instead of any earlier one.
    pub fn attach(self: Arc<User>, extensions: &mut Extensions) {
        extensions.insert(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authenticated_user_is_in_that_group_once() {
        let user = User::new("jane", ["developers"]).authenticated().authenticated();
        assert_eq!(user.groups, ["developers", User::AUTHENTICATED]);
    }
}
