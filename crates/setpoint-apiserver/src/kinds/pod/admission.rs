//! What kube-apiserver's admission plugins do to every new pod.

use serde_json::{Value, json};

use super::super::at::items;
use super::super::fill::{Fields, default_text, text};
use crate::handlers::get::read;
use crate::object;
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::status::{Result, Status};
use crate::storage::ListQuery;

/// Nodes that are in trouble keep their pods for this long.
const TROUBLE: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// Every pod runs as some service account.
pub(super) fn service_account(spec: &mut Fields) {
    default_text(spec, "serviceAccountName", "default");
    let name = text(spec, "serviceAccountName").to_owned();
    spec.insert("serviceAccount".to_owned(), name.into());
}

/// Pods stay for five minutes on a node that is in trouble, unless they say otherwise.
pub(super) fn default_tolerations(spec: &mut Fields) {
    let tolerates = |trouble: &str| {
        let tolerations = spec.get("tolerations").map(items).unwrap_or_default();
        tolerations.iter().any(|toleration| {
            let is = |field: &str, value: &str| {
                toleration
                    .get(field)
                    .and_then(Value::as_str)
                    .is_none_or(|text| text.is_empty() || text == value)
            };
            is("key", trouble) && is("effect", "NoExecute")
        })
    };
    let missing: Vec<Value> = TROUBLE
        .into_iter()
        .filter(|trouble| !tolerates(trouble))
        .map(|key| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}))
        .collect();
    if !missing.is_empty() {
        let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
        if let Value::Array(list) = tolerations {
            list.extend(missing);
        }
    }
}

/// Looks up what the priority class of a new pod says.
pub(crate) async fn resolve_priority(core: &Core, pods: &Resource, pod: &mut Value) -> Result<()> {
    let class_name = object::text(pod, &["spec", "priorityClassName"]).unwrap_or_default().to_owned();
    let forbidden = |why: String| Status::forbidden(pods.group_resource(), object::name(pod), &why);
    let class = if class_name.is_empty() {
        default_class(core).await?
    } else {
        let classes = Registry::built_in().expect("scheduling.k8s.io", "v1", "priorityclasses");
        let Some(record) = read(core, &classes.key(None, &class_name)).await? else {
            return Err(forbidden(format!("no PriorityClass with name {class_name} was found")));
        };
        Some(object::decode(&record.value, record.revision))
    };
    let (priority, policy) = match &class {
        Some(class) => (
            class["value"].as_i64().unwrap_or(0),
            class["preemptionPolicy"].as_str().unwrap_or("PreemptLowerPriority"),
        ),
        None => (0, "PreemptLowerPriority"),
    };
    let given = &pod["spec"]["priority"];
    if given.as_i64().is_some_and(|given| given != priority) {
        return Err(forbidden(format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {priority} from the given PriorityClass name"
        )));
    }
    if let Some(given) = object::text(pod, &["spec", "preemptionPolicy"]).filter(|given| *given != policy) {
        return Err(forbidden(format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        )));
    }
    let Some(spec) = pod["spec"].as_object_mut() else { return Ok(()) };
    spec.insert("priority".to_owned(), priority.into());
    spec.insert("preemptionPolicy".to_owned(), policy.into());
    if let Some(class) = class.filter(|_| class_name.is_empty()) {
        spec.insert("priorityClassName".to_owned(), class["metadata"]["name"].clone());
    }
    Ok(())
}

/// The class of pods that name none: the lowest of those that are marked for it.
pub(crate) async fn default_class(core: &Core) -> Result<Option<Value>> {
    let classes = Registry::built_in().expect("scheduling.k8s.io", "v1", "priorityclasses");
    let query = ListQuery::all(classes.collection());
    let page = core.storage.list(&query).await?;
    let marked = page.records.iter().filter(|record| {
        // Reading every class for every pod is needed only if one is marked at all.
        record.value.windows(MARK.len()).any(|window| window == MARK)
    });
    let classes = marked.map(|record| object::decode(&record.value, record.revision));
    Ok(classes.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64()))
}

const MARK: &[u8] = b"\"globalDefault\":true";
