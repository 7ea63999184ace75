//! Does the same seed give the same run?

use crate::trace::{Entry, Trace};
use crate::world::{BURST, World};

/// Why a scenario cannot be replayed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Nondeterminism {
    /// Two runs of one seed differed.
    #[error(
        "two runs with seed {seed} differ at entry {index} of their traces\n  first:  {}\n  second: {}",
        describe(.first), describe(.second)
    )]
    Differs {
        /// The seed.
        seed: u64,
        /// Where in the traces the first difference is, from 0.
        index: usize,
        /// What happened there in the first run; nothing, when it was over.
        first: Option<Box<Entry>>,
        /// What happened there in the second run; nothing, when it was over.
        second: Option<Box<Entry>>,
    },
    /// The scenario has no burst, and a gentle start hides most differences.
    #[error(
        "the scenario never called World::burst; begin with {BURST} objects of the kind under test, \
         since a gentle start hides non-determinism"
    )]
    NoBurst,
}

fn describe(entry: &Option<Box<Entry>>) -> String {
    entry.as_ref().map_or_else(|| "(nothing more)".to_owned(), ToString::to_string)
}

/// Runs `scenario` twice with each seed and compares the traces: time, client, method, path, body, status,
/// resourceVersion and watch bytes of everything that passed between clients and server.
///
/// The scenario must call [`World::burst`], with objects of the kind that the code under test watches.
///
/// ```
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::api::{Api, ListParams};
/// use setpoint_sim::{World, check_determinism};
///
/// async fn scenario(world: World) {
///     let map = |n| ConfigMap {
///         metadata: kube::api::ObjectMeta {
///             name: Some(format!("map-{n}")),
///             namespace: Some("default".into()),
///             ..Default::default()
///         },
///         ..Default::default()
///     };
///     world.burst(map).await.unwrap();
///     let maps: Api<ConfigMap> = Api::default_namespaced(world.client_named("controller"));
///     maps.list(&ListParams::default()).await.unwrap();
/// }
/// check_determinism(0..3, scenario).unwrap();
/// ```
///
/// # Errors
/// The first difference, or that the scenario has no burst.
pub fn check_determinism(
    seeds: impl IntoIterator<Item = u64>,
    scenario: impl AsyncFn(World),
) -> Result<(), Nondeterminism> {
    for seed in seeds {
        let first = run(seed, &scenario)?;
        let second = run(seed, &scenario)?;
        if first.hash() != second.hash() {
            return Err(first_difference(seed, &first, &second));
        }
    }
    Ok(())
}

fn run(seed: u64, scenario: &impl AsyncFn(World)) -> Result<Trace, Nondeterminism> {
    World::run(seed, async |world| {
        scenario(world.clone()).await;
        if world.has_burst() { Ok(world.trace()) } else { Err(Nondeterminism::NoBurst) }
    })
}

pub(crate) fn first_difference(seed: u64, first: &Trace, second: &Trace) -> Nondeterminism {
    let (first, second) = (first.entries(), second.entries());
    let same = first.iter().zip(second).take_while(|(a, b)| a == b).count();
    let at = |entries: &[Entry]| entries.get(same).cloned().map(Box::new);
    Nondeterminism::Differs { seed, index: same, first: at(first), second: at(second) }
}
