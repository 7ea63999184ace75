//! `Backup` in two versions: what `v1alpha1` says in one line, `v1` says in fields.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The group of both versions.
pub const GROUP: &str = "backups.setpoint.dev";

/// The first version.
pub mod v1alpha1 {
    use super::*;

    /// When to make a backup, and how long to keep it.
    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(
        group = "backups.setpoint.dev",
        version = "v1alpha1",
        kind = "Backup",
        plural = "backups",
        namespaced
    )]
    #[serde(rename_all = "camelCase")]
    pub struct BackupSpec {
        /// A cron schedule, with `TZ=Zone ` before it for another time zone than UTC.
        pub schedule: String,
        /// How many days to keep a backup.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub keep_days: Option<u32>,
    }
}

/// The version that is stored.
pub mod v1 {
    use super::*;

    /// When to make a backup, and how long to keep it.
    #[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "backups.setpoint.dev", version = "v1", kind = "Backup", plural = "backups", namespaced)]
    pub struct BackupSpec {
        /// When.
        pub schedule: Schedule,
        /// How long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub retention: Option<Retention>,
    }

    /// When to make a backup.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct Schedule {
        /// Minute, hour, day of the month, month, day of the week.
        pub cron: String,
        /// The time zone; UTC if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub time_zone: Option<String>,
    }

    /// How long to keep a backup.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub struct Retention {
        /// Days.
        pub days: u32,
    }
}

impl From<v1alpha1::BackupSpec> for v1::BackupSpec {
    fn from(spec: v1alpha1::BackupSpec) -> v1::BackupSpec {
        let zoned = spec.schedule.strip_prefix("TZ=").and_then(|rest| rest.split_once(' '));
        let schedule = match zoned {
            Some((zone, cron)) => v1::Schedule { cron: cron.to_owned(), time_zone: Some(zone.to_owned()) },
            None => v1::Schedule { cron: spec.schedule, time_zone: None },
        };
        v1::BackupSpec { schedule, retention: spec.keep_days.map(|days| v1::Retention { days }) }
    }
}

impl From<v1::BackupSpec> for v1alpha1::BackupSpec {
    fn from(spec: v1::BackupSpec) -> v1alpha1::BackupSpec {
        let v1::Schedule { cron, time_zone } = spec.schedule;
        v1alpha1::BackupSpec {
            schedule: time_zone.map(|zone| format!("TZ={zone} {cron}")).unwrap_or(cron),
            keep_days: spec.retention.map(|retention| retention.days),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way_there_and_back() {
        for schedule in ["0 3 * * *", "TZ=Asia/Tokyo 0 3 * * *"] {
            for keep_days in [None, Some(7)] {
                let old = v1alpha1::BackupSpec { schedule: schedule.to_owned(), keep_days };
                assert_eq!(v1alpha1::BackupSpec::from(v1::BackupSpec::from(old.clone())), old);
            }
        }
    }
}
