//! kube-rs' side of the benchmarks: `[--drop] [--streaming] PORT EVENTS` is the informer, `controller KUBECONFIG` the
//! controller of the end-to-end benchmark. `greeting` is the operator that docs/from-kube-rs.md shows.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
#![expect(clippy::print_stdout, reason = "it prints its result")]

#[path = "../../src/e2e/child.rs"]
mod child;
mod controller;
mod greeting;
mod informer;
#[path = "../../src/measure.rs"]
mod measure;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [name, kubeconfig] if name == "controller" => controller::run(kubeconfig).await,
        [name] if name == "greeting" => {
            greeting::run(kube::Client::try_default().await?).await;
            Ok(())
        }
        _ => informer::run(&arguments).await,
    }
}
