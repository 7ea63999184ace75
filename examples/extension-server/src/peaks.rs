//! The most that each node has used: a kind whose objects this program tells. Others list and watch them, and a watch that
//! was cut off goes on where it was.

use std::borrow::Cow;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint_apiserver::extension::ExtensionServer;
use setpoint_env::Env;

use crate::metrics::{NodeMetrics, Nodes};
use setpoint_apiserver::extension::{Asked, Resource};

/// How often is looked.
const INTERVAL: Duration = Duration::from_secs(5);

/// The most that a node has used.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
pub struct Peak {
    /// Its name is that of the node.
    pub metadata: ObjectMeta,
    /// How much of a processor.
    pub cpu: String,
    /// When that was.
    pub seen: String,
}

impl kube::Resource for Peak {
    type DynamicType = ();
    type Scope = kube::core::ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Peak".into()
    }
    fn group((): &()) -> Cow<'_, str> {
        "peaks.example.com".into()
    }
    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }
    fn plural((): &()) -> Cow<'_, str> {
        "peaks".into()
    }
    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }
    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn millis(metrics: &NodeMetrics) -> u64 {
    metrics.usage.get("cpu").and_then(|text| text.trim_end_matches('m').parse().ok()).unwrap_or(0)
}

/// Tells of each new peak, for as long as it is polled.
pub async fn follow(server: &ExtensionServer, nodes: Nodes, asked: Asked, env: Env) {
    let peaks: Api<Peak> = Api::all(server.client());
    loop {
        match nodes.list(&asked).await {
            Ok(all) => {
                for metrics in &all {
                    if let Err(error) = tell(&peaks, metrics, &env).await {
                        tracing::warn!(%error, "a peak could not be told");
                    }
                }
            }
            Err(error) => tracing::warn!(%error, "the nodes could not be measured"),
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

async fn tell(peaks: &Api<Peak>, metrics: &NodeMetrics, env: &Env) -> Result<(), kube::Error> {
    let name = metrics.name_any();
    let known = peaks.get_opt(&name).await?;
    let before = known.and_then(|peak| peak.cpu.trim_end_matches('m').parse::<u64>().ok());
    if before.is_some_and(|before| before >= millis(metrics)) {
        return Ok(());
    }
    let peak = json!({
        "apiVersion": "peaks.example.com/v1", "kind": "Peak", "metadata": {"name": name},
        "cpu": format!("{}m", millis(metrics)), "seen": format!("{:.0}", env.now()),
    });
    peaks.patch(&name, &PatchParams::apply("extension-server").force(), &Patch::Apply(&peak)).await.map(drop)
}
