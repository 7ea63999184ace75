//! `Priority`: what the priority class of a pod says, and that one class at most is the default.

use serde_json::Value;

use super::super::{Attributes, Operation};
use crate::handlers::get::read;
use crate::object;
use crate::resource::Registry;
use crate::server::Core;
use crate::status::Result;
use crate::storage::ListQuery;

/// Looks up what the priority class of a new pod says.
pub(super) async fn resolve(core: &Core, attributes: &Attributes<'_>, pod: &mut Value) -> Result<()> {
    let class_name = object::text(pod, &["spec", "priorityClassName"]).unwrap_or_default().to_owned();
    let forbidden = |why: String| attributes.forbidden(Some(pod), &why);
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

/// An update that leaves them out keeps them.
pub(super) fn keep(attributes: &Attributes<'_>, pod: &mut Value) {
    let (Some(old), Some(spec)) = (attributes.old, pod["spec"].as_object_mut()) else { return };
    for field in ["priority", "preemptionPolicy"] {
        if let Some(value) = old["spec"].get(field)
            && spec.get(field).is_none_or(Value::is_null)
        {
            spec.insert(field.to_owned(), value.clone());
        }
    }
}

/// Refuses a second default class.
pub(super) async fn validate_class(core: &Core, attributes: &Attributes<'_>, class: &Value) -> Result<()> {
    if class["globalDefault"] != true || attributes.operation == Operation::Delete {
        return Ok(());
    }
    let Some(other) = default_class(core).await? else { return Ok(()) };
    let name = object::name(&other);
    if attributes.operation == Operation::Update && name == object::name(class) {
        return Ok(());
    }
    let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
    Err(attributes.forbidden(Some(class), &why))
}

/// The class of pods that name none: the lowest of those that are marked for it.
async fn default_class(core: &Core) -> Result<Option<Value>> {
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
