//! Alarms: a kind whose objects clients write, and the library keeps. The program only says which nodes raise them.

use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_apiserver::extension::{Invalid, Kind};

use crate::metrics::millis;
use crate::peaks::Peak;

/// When somebody wants to know that a node works hard.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "peaks.example.com",
    version = "v1",
    kind = "Alarm",
    plural = "alarms",
    status = "AlarmStatus"
)]
pub struct AlarmSpec {
    /// How much of a processor a node may use: `900m`, `2`.
    pub cpu: String,
    /// Why somebody wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Who has raised it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct AlarmStatus {
    /// The nodes that have used more.
    #[serde(default)]
    pub raised: Vec<String>,
}

/// How alarms are served.
pub(crate) fn kind() -> Kind<Alarm> {
    Kind::<Alarm>::stored()
        .status()
        .column("CPU", "string", ".spec.cpu")
        .column("Raised", "string", ".status.raised")
        .validation(|alarm, _old| match millis(&alarm.spec.cpu) {
            Some(_) => Vec::new(),
            None => {
                vec![Invalid::value("spec.cpu", alarm.spec.cpu.as_str(), "must be a quantity, such as 900m")]
            }
        })
}

/// Says in each alarm which nodes raise it.
pub(crate) async fn raise(alarms: &Api<Alarm>, peaks: &[Peak]) -> Result<(), kube::Error> {
    for alarm in alarms.list(&ListParams::default()).await?.items {
        let most = millis(&alarm.spec.cpu).unwrap_or(u64::MAX);
        let above = peaks.iter().filter(|peak| millis(&peak.cpu).is_some_and(|cpu| cpu > most));
        let raised: Vec<String> = above.map(ResourceExt::name_any).collect();
        let told = alarm.status.as_ref().map(|status| &status.raised[..]).unwrap_or_default();
        if told != raised {
            let status = json!({"status": AlarmStatus { raised }});
            alarms.patch_status(&alarm.name_any(), &PatchParams::default(), &Patch::Merge(&status)).await?;
        }
    }
    Ok(())
}
