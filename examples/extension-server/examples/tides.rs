//! A kind in thirty lines: what kubectl needs is all there.

use kube::{Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint_apiserver::extension::{Beside, Delegation, ExtensionServer, Kind};
use setpoint_apiserver::serve::CancellationToken;
use setpoint_env::Env;
use tokio::net::TcpListener;

/// How high the water is.
#[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[kube(group = "sea.example.com", version = "v1", kind = "Tide", namespaced)]
struct TideSpec {
    /// In centimetres.
    #[schemars(range(min = 0, max = 2000))]
    level: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let server = ExtensionServer::builder()
        .kind(Kind::<Tide>::stored().short_name("td").column("Level", "integer", ".spec.level"))
        .delegation(Delegation::to(client.clone()))
        .build(&Env::system())
        .await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let beside = Beside::new("sea", "tides");
    Ok(server.serve_beside(&client, &beside, listener, CancellationToken::new()).await?)
}
