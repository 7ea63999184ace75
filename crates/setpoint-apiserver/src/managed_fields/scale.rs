//! `/scale` writes one field of another kind: whoever owns the replicas of a Scale owns those of the workload.

use serde_json::Value;

use super::element::PathElement;
use super::field_set::FieldSet;
use super::managed::{Managed, Owned};

/// The version of Scale.
const SCALE: &str = "autoscaling/v1";

/// Where a workload has its replicas.
#[derive(Clone, Debug)]
pub(crate) struct ScalePath {
    api_version: String,
    path: Vec<PathElement>,
}

impl ScalePath {
    /// The names of the fields that lead there.
    pub(crate) fn new(api_version: &str, names: &[&str]) -> ScalePath {
        ScalePath {
            api_version: api_version.to_owned(),
            path: names.iter().map(|name| PathElement::field(name)).collect(),
        }
    }

    fn set(&self) -> FieldSet {
        let mut set = FieldSet::default();
        set.insert(&self.path);
        set
    }
}

fn scale_set() -> FieldSet {
    FieldSet::of_fields(&[&["spec", "replicas"]])
}

/// The owners of a workload that is scaled.
#[derive(Debug)]
pub(crate) struct ScaleOwners {
    workload: Managed,
    path: ScalePath,
}

impl ScaleOwners {
    /// Reads the `managedFields` of a workload.
    pub(crate) fn of(workload: &Value, path: ScalePath) -> ScaleOwners {
        let workload = Managed::decode(workload["metadata"].get("managedFields")).unwrap_or_default();
        ScaleOwners { workload, path }
    }

    /// The `managedFields` of the Scale.
    pub(crate) fn of_scale(&self) -> Option<Value> {
        let owners = self.workload.0.iter().filter(|(_, owned)| {
            owned.api_version == self.path.api_version && owned.set.has(&self.path.path)
        });
        let owners = owners.map(|(manager, owned)| {
            let owned = Owned { api_version: SCALE.to_owned(), set: scale_set(), time: owned.time.clone() };
            (manager.clone(), owned)
        });
        Managed(owners.collect()).encode()
    }

    /// The `managedFields` of the workload after its Scale has got new ones.
    pub(crate) fn of_workload(self, scale: Option<&Value>) -> Option<Value> {
        let mut scale = Managed::decode(scale).unwrap_or_default();
        let times: Vec<_> =
            self.workload.0.iter().map(|(manager, owned)| (manager.clone(), owned.time.clone())).collect();
        let mut out = Managed::default();
        for (manager, mut owned) in self.workload.0 {
            if owned.api_version != self.path.api_version {
                continue;
            }
            if owned.set.has(&self.path.path) && scale.0.remove(&manager).is_none() {
                // Somebody else has the replicas now.
                owned.set = owned.set.difference(&self.path.set());
            }
            if !owned.set.is_empty() {
                out.0.insert(manager, owned);
            }
        }
        for (manager, owned) in scale.0 {
            if owned.set.intersection(&scale_set()).is_empty() {
                continue;
            }
            let time = times.iter().find(|(found, _)| *found == manager).and_then(|(_, time)| time.clone());
            let owned = Owned { api_version: self.path.api_version.clone(), set: self.path.set(), time };
            out.0.insert(manager, owned);
        }
        out.encode()
    }
}
