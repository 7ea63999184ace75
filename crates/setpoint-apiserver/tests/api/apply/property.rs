//! The laws of apply, against a model that is a map of owners.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Value, json};

use super::apply;
use crate::support::{Api, DEPLOYMENTS, deployment, version};

/// What a manager applies: values of some of a few keys. Each key is a place of another sort.
type Wish = BTreeMap<u8, u8>;

const KEYS: u8 = 6;

/// A deployment with a label, an annotation, a number, an item of a keyed list or of a map for each key.
fn object(wish: &Wish) -> Value {
    let mut object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}});
    for (key, value) in wish {
        let text = format!("v{value}");
        match key {
            0 => object["metadata"]["labels"]["a"] = text.into(),
            1 => object["metadata"]["labels"]["b"] = text.into(),
            2 => object["metadata"]["annotations"]["a"] = text.into(),
            3 => object["spec"]["minReadySeconds"] = (u32::from(*value) + 1).into(),
            4 => {
                object["spec"]["template"]["spec"]["containers"] =
                    json!([{"name": "web", "env": [{"name": "A", "value": text}]}])
            }
            _ => object["spec"]["template"]["spec"]["nodeSelector"]["a"] = text.into(),
        }
    }
    object
}

/// What the object has at each key.
fn seen(object: &Value) -> Wish {
    let number = |value: &Value| value.as_str().and_then(|text| text.strip_prefix('v')?.parse::<u8>().ok());
    let spec = &object["spec"]["template"]["spec"];
    let env = spec["containers"][0]["env"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ready = object["spec"]["minReadySeconds"].as_u64().and_then(|n| u8::try_from(n - 1).ok());
    [
        number(&object["metadata"]["labels"]["a"]),
        number(&object["metadata"]["labels"]["b"]),
        number(&object["metadata"]["annotations"]["a"]),
        ready,
        env.first().and_then(|variable| number(&variable["value"])),
        number(&spec["nodeSelector"]["a"]),
    ]
    .into_iter()
    .zip(0u8..)
    .filter_map(|(value, key)| Some((key, value?)))
    .collect()
}

/// The naive model: of each key its value and its owners.
#[derive(Default)]
struct Model(BTreeMap<u8, (u8, BTreeSet<usize>)>);

impl Model {
    /// Whether it is a conflict without force.
    fn apply(&mut self, manager: usize, wish: &Wish, force: bool) -> bool {
        let conflict = wish.iter().any(|(key, value)| {
            self.0
                .get(key)
                .is_some_and(|(found, owners)| found != value && owners.iter().any(|owner| *owner != manager))
        });
        if conflict && !force {
            return true;
        }
        for (key, value) in wish {
            let (found, owners) = self.0.entry(*key).or_default();
            if found != value {
                owners.clear();
            }
            *found = *value;
            owners.insert(manager);
        }
        self.0.retain(|key, (_, owners)| {
            if !wish.contains_key(key) {
                owners.remove(&manager);
            }
            !owners.is_empty()
        });
        false
    }

    fn values(&self) -> Wish {
        self.0.iter().map(|(key, (value, _))| (*key, *value)).collect()
    }
}

fn wish() -> impl Strategy<Value = Wish> {
    proptest::collection::btree_map(0..KEYS, 0..3u8, 0..5)
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(test)
}

async fn begin() -> (Api, String) {
    let api = Api::new();
    // What the kind needs belongs to somebody who never gives it up.
    let path = format!("{DEPLOYMENTS}/web");
    apply(&api, &path, "base", "", &deployment("web")).await.ok();
    (api, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn managers_apply_as_the_model_says(
        steps in proptest::collection::vec((0..3usize, wish(), any::<bool>()), 1..10)
    ) {
        run(async {
            let (api, path) = begin().await;
            let mut model = Model::default();
            for (manager, wish, force) in steps {
                let name = format!("m{manager}");
                let more = if force { "&force=true" } else { "" };
                let answer = apply(&api, &path, &name, more, &object(&wish)).await;
                if model.apply(manager, &wish, force) {
                    assert_eq!(answer.code, 409, "{}", answer.body);
                    continue;
                }
                let applied = answer.ok();
                assert_eq!(seen(&applied), model.values());
                tokio::time::advance(std::time::Duration::from_secs(3)).await;
                let again = apply(&api, &path, &name, more, &object(&wish)).await.ok();
                assert_eq!(version(&again), version(&applied), "the same apply twice is no write");
            }
        });
    }

    #[test]
    fn managers_of_disjoint_fields_never_conflict_in_any_order(
        owners in proptest::collection::vec(0..3usize, usize::from(KEYS)),
        steps in proptest::collection::vec((0..3usize, 0..3u8), 1..12)
    ) {
        run(async {
            let (api, path) = begin().await;
            let mut last: BTreeMap<usize, u8> = BTreeMap::new();
            for (manager, value) in steps {
                let keys = (0..KEYS).filter(|key| owners[usize::from(*key)] == manager);
                let wish: Wish = keys.map(|key| (key, value)).collect();
                let answer = apply(&api, &path, &format!("m{manager}"), "", &object(&wish)).await;
                let applied = answer.ok();
                last.insert(manager, value);
                let expected: Wish = (0..KEYS)
                    .filter_map(|key| Some((key, *last.get(&owners[usize::from(key)])?)))
                    .collect();
                assert_eq!(seen(&applied), expected);
            }
        });
    }

    #[test]
    fn to_apply_and_to_apply_nothing_restores_the_object(wish in wish()) {
        run(async {
            let (api, path) = begin().await;
            let before = api.get(&path).await.ok();
            apply(&api, &path, "m", "", &object(&wish)).await.ok();
            let after = apply(&api, &path, "m", "", &object(&Wish::new())).await.ok();
            assert_eq!(after["spec"], before["spec"]);
            assert_eq!(after["metadata"]["labels"], before["metadata"]["labels"]);
            assert_eq!(after["metadata"]["managedFields"], before["metadata"]["managedFields"]);
        });
    }
}
