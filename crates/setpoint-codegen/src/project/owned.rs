//! What the objects of a new kind can own.

use std::str::FromStr;

use crate::error::Error;
use crate::types::names::snake;

macro_rules! owned {
    ($($kind:ident in $module:literal from $file:literal),* $(,)?) => {
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
        }
    };
}

owned! {
    ConfigMap in "core::v1" from "config_map.rs",
    CronJob in "batch::v1" from "cron_job.rs",
    DaemonSet in "apps::v1" from "daemon_set.rs",
    Deployment in "apps::v1" from "deployment.rs",
    Job in "batch::v1" from "job.rs",
    PersistentVolumeClaim in "core::v1" from "persistent_volume_claim.rs",
    Secret in "core::v1" from "secret.rs",
    Service in "core::v1" from "service.rs",
    ServiceAccount in "core::v1" from "service_account.rs",
    StatefulSet in "apps::v1" from "stateful_set.rs",
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
    use super::*;

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
