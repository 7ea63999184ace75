//! An extension API server with two group-versions: `metrics.k8s.io/v1beta1`, which `kubectl top` and the
//! HorizontalPodAutoscaler read, and `peaks.example.com/v1`: peaks, which this program keeps, with a change feed of its own, and
//! alarms, which clients write.

mod alarms;
mod metrics;
mod peaks;

use kube::Client;
use setpoint_apiserver::extension::{Delegation, ExtensionError, ExtensionServer, Kind};
use setpoint_env::Env;

pub use alarms::{Alarm, AlarmSpec, AlarmStatus};
pub use metrics::{CPU, MEMORY, NodeMetrics, Nodes, PodMetrics, Pods};
pub use peaks::{Peak, Peaks, follow};

/// Where the service is.
pub const NAMESPACE: &str = "extension-server";
/// What it is called.
pub const SERVICE: &str = "extension-server";

/// The server; `client` is the cluster's.
pub async fn server(client: Client, peaks: Peaks, env: &Env) -> Result<ExtensionServer, ExtensionError> {
    ExtensionServer::builder()
        .kind(Kind::made(Nodes::new(client.clone(), env.clone())).column("CPU", "string", ".usage.cpu"))
        .kind(Kind::made(Pods::new(client.clone(), env.clone())).column("Window", "string", ".window"))
        .kind(
            Kind::made(peaks)
                .short_name("pk")
                .column("CPU", "string", ".cpu")
                .column("Seen", "date", ".seen"),
        )
        .kind(alarms::kind())
        .delegation(Delegation::to(client))
        .build(env)
        .await
}
