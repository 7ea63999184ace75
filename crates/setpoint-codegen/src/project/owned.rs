//! What the objects of a new kind can own.

use std::str::FromStr;

use crate::error::Error;
use crate::types::names::snake;

macro_rules! owned {
    ($($kind:ident in $module:literal from $file:literal $(until $available:literal is $status:literal)?),* $(,)?) => {
        /// A kind that a new project can make for each of its objects.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "the kinds of Kubernetes")]
        pub enum Owned { $($kind),* }

        impl Owned {
            /// All of them.
            pub const ALL: &[Owned] = &[$(Owned::$kind),*];

            /// `ConfigMap`
            pub fn kind(self) -> &'static str {
                match self { $(Owned::$kind => stringify!($kind)),* }
            }

            /// `core::v1`
            pub(super) fn module(self) -> &'static str {
                match self { $(Owned::$kind => $module),* }
            }

            /// The function that makes one.
            pub(super) fn function(self) -> &'static str {
                match self { $(Owned::$kind => include_str!(concat!("../../templates/owned/", $file))),* }
            }

            /// The function that says whether one does its work, and a status, as JSON, of one that does. None for what is
            /// of use as soon as it is stored.
            pub(super) fn available(self) -> Option<(&'static str, &'static str)> {
                match self {
                    $($(Owned::$kind => {
                        Some((include_str!(concat!("../../templates/owned/", $available)), $status))
                    })?)*
                    _ => None,
                }
            }
        }
    };
}

owned! {
    ConfigMap in "core::v1" from "config_map.rs",
    CronJob in "batch::v1" from "cron_job.rs",
    DaemonSet in "apps::v1" from "daemon_set.rs"
        until "daemon_set_is_available.rs"
        is r#"{"observedGeneration": 1, "currentNumberScheduled": 1, "desiredNumberScheduled": 1, "numberAvailable": 1, "numberMisscheduled": 0, "numberReady": 1}"#,
    Deployment in "apps::v1" from "deployment.rs"
        until "deployment_is_available.rs"
        is r#"{"observedGeneration": 1, "conditions": [{"type": "Available", "status": "True"}]}"#,
    Job in "batch::v1" from "job.rs"
        until "job_is_available.rs"
        is r#"{"active": 1, "ready": 1, "startTime": "2026-01-01T00:00:00Z"}"#,
    PersistentVolumeClaim in "core::v1" from "persistent_volume_claim.rs",
    Secret in "core::v1" from "secret.rs",
    Service in "core::v1" from "service.rs",
    ServiceAccount in "core::v1" from "service_account.rs",
    StatefulSet in "apps::v1" from "stateful_set.rs"
        until "stateful_set_is_available.rs"
        is r#"{"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1}"#,
}

impl FromStr for Owned {
    type Err = Error;

    /// As people write it: `Deployment`, `deployment`, `deployments`, `config-map`.
    fn from_str(text: &str) -> Result<Owned, Error> {
        let plain = |text: &str| text.to_lowercase().replace(['-', '_'], "");
        let wanted = plain(text);
        let is_it = |owned: &&Owned| [plain(owned.kind()), owned.plural()].contains(&wanted);
        Owned::ALL.iter().find(is_it).copied().ok_or_else(|| {
            let kinds: Vec<&str> = Owned::ALL.iter().map(|owned| owned.kind()).collect();
            let problem = format!("there is no template for {text:?}; there are: {}", kinds.join(", "));
            Error::new("--owns", problem)
        })
    }
}

impl Owned {
    pub(super) fn group(self) -> &'static str {
        match self.module().split_once("::") {
            Some(("core", _)) | None => "",
            Some((group, _)) => group,
        }
    }

    pub(super) fn plural(self) -> String {
        super::plural(self.kind())
    }

    /// `config_map`
    pub(super) fn name(self) -> String {
        snake(self.kind())
    }

    pub(super) fn has_pods(self) -> bool {
        use Owned::{CronJob, DaemonSet, Deployment, Job, StatefulSet};
        matches!(self, CronJob | DaemonSet | Deployment | Job | StatefulSet)
    }

    pub(super) fn has_message(self) -> bool {
        matches!(self, Owned::ConfigMap | Owned::Secret)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
    use k8s_openapi::api::batch::v1::Job;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, json};

    use super::*;

    include!("../../templates/owned/daemon_set_is_available.rs");
    include!("../../templates/owned/deployment_is_available.rs");
    include!("../../templates/owned/job_is_available.rs");
    include!("../../templates/owned/stateful_set_is_available.rs");

    /// The second has another spec than the one that its status is about.
    fn with<K: DeserializeOwned>(status: &str) -> (K, K) {
        let status: Value = serde_json::from_str(status).expect("JSON");
        let of = |generation| {
            let object = json!({"metadata": {"generation": generation}, "status": status});
            serde_json::from_value(object).expect("such an object")
        };
        (of(1), of(2))
    }

    #[test]
    fn a_child_is_available_when_its_status_says_so() {
        for owned in Owned::ALL {
            let Some((_, status)) = owned.available() else { continue };
            let (now, later) = match owned {
                Owned::DaemonSet => {
                    let (one, other) = with(status);
                    (daemon_set_is_available(&one), daemon_set_is_available(&other))
                }
                Owned::Deployment => {
                    let (one, other) = with(status);
                    (deployment_is_available(&one), deployment_is_available(&other))
                }
                // Its pods stay as they are.
                Owned::Job => (job_is_available(&with(status).0), false),
                Owned::StatefulSet => {
                    let (one, other) = with(status);
                    (stateful_set_is_available(&one), stateful_set_is_available(&other))
                }
                other => panic!("{other:?} has no test"),
            };
            assert!(now && !later, "{owned:?}");
        }
        let nothing: (DaemonSet, _) = with("{}");
        let (lacks, _) =
            with::<StatefulSet>(r#"{"replicas": 1, "observedGeneration": 1, "readyReplicas": 1}"#);
        assert!(!stateful_set_is_available(&lacks) && !job_is_available(&Job::default()));
        assert!(!deployment_is_available(&Deployment::default()) && !daemon_set_is_available(&nothing.0));
    }

    #[test]
    fn a_kind_is_found_however_it_is_written() -> Result<(), Error> {
        for text in ["ConfigMap", "configmap", "configmaps", "config-map", "CONFIGMAPS"] {
            assert_eq!(text.parse::<Owned>()?, Owned::ConfigMap);
        }
        let error = "Pod".parse::<Owned>().map_err(|error| error.to_string());
        assert!(error.is_err_and(|error| error.contains("\"Pod\"") && error.contains("StatefulSet")));
        Ok(())
    }
}
