use anyhow::{Result, ensure};
use example_network::neutron::{Auth, Neutron};
use example_network::{Network, Settings, controller, crd};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use setpoint::{Env, Permissions};
use tokio::time::sleep;

use crate::NAMESPACE;
use crate::neutron::{Fault, Scripted};
use crate::scene::{SETTLED, Scene};

fn client(neutron: &Scripted, env: Env) -> Neutron {
    Neutron::new("http://neutron:9696", Auth::None, neutron.transport(), env)
}

pub(crate) fn permissions() -> Permissions {
    let neutron = client(&Scripted::default(), Env::seeded(1));
    controller(neutron, Settings::default()).permissions().clone()
}

pub(crate) async fn scenario(scene: Scene) -> Result<()> {
    scene.define(crd()).await?;
    let neutron = Scripted::default();
    let _running = scene.start(controller(client(&neutron, scene.world.env().clone()), Settings::default()));
    scene.idle().await;

    let networks: Api<Network> = Api::namespaced(scene.user(), NAMESPACE);
    for name in ["one", "two"] {
        let spec = json!({"cidr": "10.0.0.0/24"});
        let network: Network = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        networks.create(&PostParams::default(), &network).await?;
    }
    scene.prompt().await;
    sleep(SETTLED).await;
    ensure!(neutron.networks().len() == 2, "neutron has them");
    ensure!(networks.get("one").await?.status.is_some_and(|status| status.network_id.is_some()));

    networks.delete("one", &DeleteParams::default()).await?;
    sleep(SETTLED).await;
    ensure!(networks.get_opt("one").await?.is_none(), "the finalizer was taken off");

    // The other one loses its finalizer while Neutron is away: the key alone has to do.
    neutron.outage(Some(Fault::Refuse));
    networks.delete("two", &DeleteParams::default()).await?;
    scene.idle().await;
    ensure!(scene.told("NeutronUnreachable").await? > 1, "it was told once");
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    networks.patch("two", &PatchParams::default(), &patch).await?;
    neutron.outage(None);
    scene.idle().await;
    ensure!(neutron.networks().is_empty(), "nothing is left in neutron");
    Ok(())
}
