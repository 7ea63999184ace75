//! Who asks a source.

use std::sync::Arc;

use crate::user::User;

tokio::task_local! {
    /// Who asks what is being answered. Stores know keys, not users; a source may show each user something else.
    static ASKING: Arc<User>;
}

/// What somebody asks for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Asked {
    /// Who asks. It is known already that they may.
    pub user: Arc<User>,
    /// In which namespace; none for all of them.
    pub namespace: Option<String>,
}

impl Asked {
    /// A question of this program's own, about all namespaces.
    pub fn by(user: User) -> Asked {
        Asked { user: Arc::new(user), namespace: None }
    }

    /// A request of this user.
    pub(crate) fn of(user: &Arc<User>, namespace: Option<&str>) -> Asked {
        Asked { user: Arc::clone(user), namespace: namespace.map(str::to_owned) }
    }

    /// The question that is being answered; what nobody has asked, the server itself wants to know.
    pub(super) fn now(namespace: Option<&str>) -> Asked {
        let user = ASKING.try_with(Arc::clone).unwrap_or_else(|_| Arc::new(User::admin()));
        Asked { user, namespace: namespace.map(str::to_owned) }
    }
}

/// Answers a request of this user.
pub(crate) async fn asked_by<T>(user: &Arc<User>, answer: impl Future<Output = T>) -> T {
    ASKING.scope(Arc::clone(user), answer).await
}
