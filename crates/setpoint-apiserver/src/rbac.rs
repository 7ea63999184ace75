//! Who may do what, as roles and bindings say.
//!
//! - [`rule`]: what one rule allows, and whether rules cover others.
//! - [`index`]: all stored roles and bindings, by the subjects that they are for.
//! - [`bootstrap`]: the roles and bindings that a server starts with.
//! - [`aggregation`]: cluster roles that are made of others.
//! - [`escalation`]: nobody grants more than they have.
//!
//! The index reads the store's own history before it answers, so a decision follows from everything that was
//! committed before it: a binding works in the very next request.

mod aggregation;
mod bootstrap;
mod escalation;
mod index;
mod rule;

use parking_lot::{RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard};
use tokio::sync::OnceCell;

pub(crate) use aggregation::{gather, upkeep};
pub(crate) use escalation::{changes_only_ownership, check_create, check_update};
use index::Index;
pub(crate) use rule::{Rule, quoted};

use crate::authorize::Attributes;
use crate::server::Core;
use crate::status::{Result, Status};
use crate::user::User;

/// The API group of roles and bindings.
pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";

/// The roles and bindings of one server.
#[derive(Debug, Default)]
pub(crate) struct Rbac {
    is_prepared: OnceCell<()>,
    index: RwLock<Index>,
    /// Whose turn it is to load the index.
    loading: tokio::sync::Mutex<()>,
}

/// What the rules say about one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decision {
    pub allowed: bool,
    /// Which binding allows it, or which roles could not be found.
    pub reason: String,
}

impl Rbac {
    /// Makes the roles that every server has. It is done once, when somebody first asks for roles: most
    /// servers inside of tests are used by administrators alone, and start faster without.
    pub(crate) async fn prepare(&self, core: &Core) -> Result<()> {
        self.is_prepared.get_or_try_init(|| bootstrap::run(core)).await.map(|&()| ())
    }

    /// Whether roles allow it.
    pub(crate) async fn decide(&self, core: &Core, user: &User, attributes: &Attributes) -> Result<Decision> {
        self.prepare(core).await?;
        let mut missing = Vec::new();
        let mut allowed_by = None;
        let visitor = |source: &index::Source<'_>, rules: Result<&[Rule], String>| match rules {
            Ok(rules) if rules.iter().any(|rule| rule.allows(attributes)) => {
                allowed_by = Some(source.to_string());
                false
            }
            Ok(_) => true,
            Err(error) => {
                missing.push(error);
                true
            }
        };
        self.read(core, |index| index.visit(user, &attributes.namespace, visitor)).await?;
        Ok(match allowed_by {
            Some(source) => Decision { allowed: true, reason: format!("RBAC: allowed by {source}") },
            None if missing.is_empty() => Decision { allowed: false, reason: String::new() },
            None => Decision { allowed: false, reason: format!("rbac: RBAC: {}", aggregate(missing)) },
        })
    }

    /// Everything that the user may do in a namespace, and what could not be found out.
    pub(crate) async fn rules(
        &self,
        core: &Core,
        user: &User,
        namespace: &str,
    ) -> Result<(Vec<Rule>, Option<String>)> {
        self.prepare(core).await?;
        let (mut all, mut missing) = (Vec::new(), Vec::new());
        let visitor = |_: &index::Source<'_>, rules: Result<&[Rule], String>| {
            match rules {
                Ok(rules) => all.extend_from_slice(rules),
                Err(error) => missing.push(error),
            }
            true
        };
        self.read(core, |index| index.visit(user, namespace, visitor)).await?;
        Ok((all, (!missing.is_empty()).then(|| aggregate(missing))))
    }

    /// What `look` makes of the index as of now.
    async fn read<T>(&self, core: &Core, look: impl FnOnce(&Index) -> T) -> Result<T> {
        if let Some(index) = self.current() {
            return Ok(look(&index));
        }
        // One loads, and the others wait for it.
        let _turn = self.loading.lock().await;
        if let Some(index) = self.current() {
            return Ok(look(&index));
        }
        let loaded = Index::load(&*core.storage).await.map_err(Status::from)?;
        let mut index = self.index.write();
        *index = loaded;
        Ok(look(&index))
    }

    /// The index, if history tells all that has happened to it.
    fn current(&self) -> Option<RwLockReadGuard<'_, Index>> {
        {
            let index = self.index.read();
            if index.is_current() {
                return Some(index);
            }
        }
        let index = self.index.upgradable_read();
        if index.is_current() {
            return Some(RwLockUpgradableReadGuard::downgrade(index));
        }
        let mut index = RwLockUpgradableReadGuard::upgrade(index);
        index.follow().then(|| RwLockWriteGuard::downgrade(index))
    }
}

/// Several errors as one, each told once.
fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = std::collections::BTreeSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match errors.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}
