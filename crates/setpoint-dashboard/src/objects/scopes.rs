//! Where a process caches what: there it may read, elsewhere maybe not.

use std::collections::{BTreeMap, BTreeSet};

use setpoint::Facts;
use setpoint::facts::CacheState;

/// Resources, each with the namespaces of its caches; with all namespaces, if one of its caches has them.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Scopes(BTreeMap<String, Option<BTreeSet<String>>>);

impl Scopes {
    pub(super) fn of(facts: &Facts) -> Scopes {
        Scopes::of_caches(&facts.state(0).caches)
    }

    fn of_caches(caches: &[CacheState]) -> Scopes {
        let mut all: BTreeMap<String, Option<BTreeSet<String>>> = BTreeMap::new();
        for cache in caches.iter().filter(|cache| !cache.scopes.is_empty()) {
            let known = all.entry(cache.resource.to_string()).or_insert_with(|| Some(BTreeSet::new()));
            for scope in &cache.scopes {
                match (&scope.namespace, &mut *known) {
                    (Some(namespace), Some(namespaces)) => drop(namespaces.insert(namespace.to_string())),
                    _ => *known = None,
                }
            }
        }
        Scopes(all)
    }

    /// The namespaces of a resource, none for all of them; None if it is not cached.
    pub(super) fn namespaces(&self, resource: &str) -> Option<Vec<String>> {
        let namespaces = self.0.get(resource)?.as_ref();
        Some(namespaces.into_iter().flatten().cloned().collect())
    }

    /// Whether the others are among these.
    pub(super) fn contain(&self, others: &Scopes) -> bool {
        others.0.iter().all(|(resource, others)| match (self.0.get(resource), others) {
            (Some(None), _) => true,
            (Some(Some(known)), Some(others)) => others.is_subset(known),
            _ => false,
        })
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use setpoint::{SharedInformer, SharedInformerFactory};
    use setpoint_apiserver::ApiServer;
    use setpoint_env::Env;

    use super::*;

    #[tokio::test]
    async fn the_namespaces_of_all_caches_of_a_kind_are_one_scope_and_the_whole_cluster_has_them_all() {
        let (client, facts) = (ApiServer::builder().build().client(), Facts::new(Env::system()));
        let maps = |namespaces: &[&str]| {
            let builder = SharedInformer::<ConfigMap>::builder(client.clone()).facts(&facts);
            namespaces.iter().fold(builder, |builder, name| builder.namespace(*name)).build()
        };
        assert_eq!(Scopes::of(&facts).namespaces("configmaps"), None);
        let _first = maps(&["b", "a"]);
        let few = Scopes::of(&facts);
        assert_eq!(few.namespaces("configmaps"), Some(vec!["a".to_owned(), "b".to_owned()]));
        let _second = maps(&["c", "a"]);
        let more = Scopes::of(&facts);
        assert_eq!(more.namespaces("configmaps"), Some(["a", "b", "c"].map(str::to_owned).to_vec()));
        assert!(more.contain(&few) && !few.contain(&more));
        let third = maps(&[]);
        let all = Scopes::of(&facts);
        assert_eq!(all.namespaces("configmaps"), Some(vec![]));
        assert!(all.contain(&more) && !more.contain(&all));
        drop(third);
        assert_eq!(Scopes::of(&facts), more);
        let factory = SharedInformerFactory::new(client.clone()).with_facts(&facts).namespace("d");
        let _fourth = factory.informer::<k8s_openapi::api::core::v1::Secret>();
        assert!(!more.contain(&Scopes::of(&facts)));
    }
}
