//! What objects count against a ResourceQuota. Admission charges by these rules, and a controller that recomputes a
//! quota's status sums up by the same.
//!
//! ```
//! use serde_json::json;
//! use setpoint_apiserver::quota::{Amounts, Counted};
//!
//! let pods = Counted::of("", "pods").unwrap();
//! let container = json!({"name": "a", "resources": {"requests": {"cpu": "250m"}}});
//! let pod = json!({"spec": {"containers": [container]}});
//! let usage = pods.usage(&pod, jiff::Timestamp::UNIX_EPOCH);
//! assert_eq!(usage.to_string(), "count/pods=1,cpu=250m,pods=1,requests.cpu=250m");
//!
//! let quota = json!({"spec": {"hard": {"pods": "4"}, "scopes": ["BestEffort"]}});
//! assert!(!pods.is_in_scope(&quota, &pod));
//! assert_eq!(pods.tracked(&Amounts::of(&quota["spec"]["hard"])), ["pods"]);
//! ```

mod amounts;
mod claims;
pub(crate) mod pods;
mod scopes;
mod services;

use jiff::Timestamp;
use serde_json::Value;
use setpoint_kinds::Quantity;

pub use self::amounts::Amounts;

/// Resources that are not stored, or that were never counted.
const IGNORED: [(&str, &str); 10] = [
    ("", "bindings"),
    ("", "componentstatuses"),
    ("", "events"),
    ("events.k8s.io", "events"),
    ("authentication.k8s.io", "tokenreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "subjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "localsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];
/// Resources that have a second name in quotas, older than `count/`.
const ALIASES: [&str; 4] = ["configmaps", "resourcequotas", "replicationcontrollers", "secrets"];

/// The objects of one resource, as quotas count them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    rules: Rules,
    /// `count/deployments.apps`.
    count: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rules {
    Pods,
    Services,
    Claims,
    /// Each counts as one, also under the older name.
    Number(Option<&'static str>),
}

impl Counted {
    /// The rules of a resource by its group and plural; none for those that no quota counts.
    pub fn of(group: &str, plural: &str) -> Option<Counted> {
        if IGNORED.contains(&(group, plural)) {
            return None;
        }
        let count =
            if group.is_empty() { format!("count/{plural}") } else { format!("count/{plural}.{group}") };
        let rules = match (group, plural) {
            ("", "pods") => Rules::Pods,
            ("", "services") => Rules::Services,
            ("", "persistentvolumeclaims") => Rules::Claims,
            ("", plural) => Rules::Number(ALIASES.into_iter().find(|alias| *alias == plural)),
            _ => Rules::Number(None),
        };
        Some(Counted { rules, count })
    }

    /// Those of a quota's resources that objects of this kind use.
    pub fn tracked(&self, hard: &Amounts) -> Vec<String> {
        hard.names().filter(|name| self.tracks(name)).map(str::to_owned).collect()
    }

    fn tracks(&self, name: &str) -> bool {
        let by_rules = match self.rules {
            Rules::Pods => pods::tracks(name),
            Rules::Services => services::tracks(name),
            Rules::Claims => claims::tracks(name),
            Rules::Number(alias) => alias == Some(name),
        };
        by_rules || name == self.count
    }

    /// Whether an object is among those that the scopes of a quota mean.
    pub fn is_in_scope(&self, quota: &Value, object: &Value) -> bool {
        scopes::of(quota).all(|scope| match self.rules {
            Rules::Pods => pods::matches(&scope, object),
            Rules::Claims => claims::matches(&scope, object),
            Rules::Services | Rules::Number(_) => false,
        })
    }

    /// How much of what an object uses at a time.
    pub fn usage(&self, object: &Value, now: Timestamp) -> Amounts {
        let mut usage = match self.rules {
            Rules::Pods => pods::usage(object, now),
            Rules::Services => services::usage(object),
            Rules::Claims => claims::usage(object),
            Rules::Number(alias) => {
                alias.into_iter().map(|alias| (alias.to_owned(), Quantity::ONE)).collect()
            }
        };
        usage.set(&self.count, Quantity::ONE);
        usage
    }

    /// Whether the number of objects is all that counts.
    pub fn is_number(&self) -> bool {
        matches!(self.rules, Rules::Number(_))
    }

    /// What an object must say because a quota tracks these resources, if it does not.
    pub(crate) fn missing(&self, tracked: &[String], object: &Value) -> Option<String> {
        match self.rules {
            Rules::Pods => pods::missing(tracked, object),
            _ => None,
        }
    }

    /// Whether a write to a subresource can change what an object uses.
    pub(crate) fn is_changed_by(
        &self,
        is_create: bool,
        subresource: &str,
        old: Option<&Value>,
        new: &Value,
    ) -> bool {
        match (self.rules, subresource) {
            (Rules::Pods, "") if !is_create => {
                old.is_some_and(|old| pods::is_terminating(old) != pods::is_terminating(new))
            }
            (Rules::Pods, "resize") => !is_create,
            (Rules::Services | Rules::Claims, "") => true,
            (Rules::Claims, "status") => old.is_some_and(|old| claims::differ(old, new)),
            (_, "") => is_create,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn usage(plural: &str, object: &Value) -> String {
        Counted::of("", plural).unwrap().usage(object, Timestamp::UNIX_EPOCH).to_string()
    }

    #[test]
    fn services_count_ports_and_balancers() {
        let ports = json!([{"port": 1, "nodePort": 30000}, {"port": 2}]);
        let of = |spec: Value| usage("services", &json!({"spec": spec}));
        let text = |ports: u8, balancers: u8| {
            format!(
                "count/services=1,services=1,services.loadbalancers={balancers},services.nodeports={ports}"
            )
        };
        assert_eq!(of(json!({"type": "ClusterIP", "ports": ports})), text(0, 0));
        assert_eq!(of(json!({"type": "NodePort", "ports": ports})), text(2, 0));
        assert_eq!(of(json!({"type": "LoadBalancer", "ports": ports})), text(2, 1));
        let spec = json!({"type": "LoadBalancer", "ports": ports, "allocateLoadBalancerNodePorts": false});
        assert_eq!(of(spec), text(1, 1));
    }

    #[test]
    fn claims_count_their_storage_by_class_too() {
        let mut claim =
            json!({"spec": {"storageClassName": "gold", "resources": {"requests": {"storage": "1Gi"}}}});
        let text = "count/persistentvolumeclaims=1,gold.storageclass.storage.k8s.io/persistentvolumeclaims=1,\
                    gold.storageclass.storage.k8s.io/requests.storage=1Gi,persistentvolumeclaims=1,requests.storage=1Gi";
        assert_eq!(usage("persistentvolumeclaims", &claim), text);
        claim["status"] = json!({"allocatedResources": {"storage": "2Gi"}});
        assert_eq!(usage("persistentvolumeclaims", &claim), text.replace("1Gi", "2Gi"));
        let claims = Counted::of("", "persistentvolumeclaims").unwrap();
        let hard = json!({
            "requests.storage": "1", "gold.storageclass.storage.k8s.io/requests.storage": "1", "pods": "1",
            "silver.storageclass.storage.k8s.io/persistentvolumeclaims": "1", "count/persistentvolumeclaims": "1"
        });
        assert_eq!(claims.tracked(&Amounts::of(&hard)).len(), 4);
    }

    #[test]
    fn everything_else_counts_by_number() {
        assert_eq!(usage("configmaps", &json!({})), "configmaps=1,count/configmaps=1");
        let deployments = Counted::of("apps", "deployments").unwrap();
        assert_eq!(
            deployments.usage(&json!({}), Timestamp::UNIX_EPOCH).to_string(),
            "count/deployments.apps=1"
        );
        assert!(deployments.is_number() && Counted::of("", "events").is_none());
        // Scopes say something about pods and claims only.
        let quota = json!({"spec": {"scopes": ["NotTerminating"]}});
        assert!(!deployments.is_in_scope(&quota, &json!({})));
        assert!(deployments.is_in_scope(&json!({"spec": {}}), &json!({})));
    }
}
