//! What changes the API server itself: webhooks, policies, flow control, definitions, aggregation.

use std::sync::Arc;

use serde_json::Value;

use super::cells::{condition, flag, has, int, list, name, scalar, text};
use super::{AGE, CREATED_AT, Column, NAME, Printer, created_at};
use crate::object;
use crate::storage::Record;

pub(super) fn printer(plural: &str) -> Option<&'static Printer> {
    Some(match plural {
        "mutatingwebhookconfigurations" | "validatingwebhookconfigurations" => &WEBHOOKS,
        "validatingadmissionpolicies" => &VALIDATING_POLICY,
        "mutatingadmissionpolicies" => &MUTATING_POLICY,
        "validatingadmissionpolicybindings" | "mutatingadmissionpolicybindings" => &POLICY_BINDING,
        "flowschemas" => &FLOW_SCHEMA,
        "prioritylevelconfigurations" => &PRIORITY_LEVEL,
        "apiservices" => &API_SERVICE,
        "customresourcedefinitions" => &DEFINITION,
        _ => return None,
    })
}

const WEBHOOKS: Printer = Printer {
    columns: &[NAME, Column::integer("Webhooks", "How many webhooks there are."), AGE],
    cells: |object, context| vec![name(object), list(object, "/webhooks").len().into(), context.age(object)],
};

const PARAM_KIND: Column = Column::text("ParamKind", "The kind of the policy's parameters.");

const VALIDATING_POLICY: Printer = Printer {
    columns: &[NAME, Column::integer("Validations", "How many rules there are."), PARAM_KIND, AGE],
    cells: |object, context| {
        let rules = list(object, "/spec/validations").len();
        vec![name(object), rules.into(), param_kind(object).into(), context.age(object)]
    },
};

const MUTATING_POLICY: Printer = Printer {
    columns: &[NAME, Column::integer("Mutations", "How many rules there are."), PARAM_KIND, AGE],
    cells: |object, context| {
        let rules = list(object, "/spec/mutations").len();
        vec![name(object), rules.into(), param_kind(object).into(), context.age(object)]
    },
};

fn param_kind(policy: &Value) -> String {
    policy.pointer("/spec/paramKind").map_or_else(
        || "<unset>".to_owned(),
        |kind| format!("{}/{}", text(kind, "/apiVersion"), text(kind, "/kind")),
    )
}

const POLICY_BINDING: Printer = Printer {
    columns: &[
        NAME,
        Column::text("PolicyName", "The policy that is bound."),
        Column::text("ParamRef", "The parameters that it is bound with."),
        AGE,
    ],
    cells: |object, context| {
        vec![
            name(object),
            text(object, "/spec/policyName").into(),
            param_ref(object).into(),
            context.age(object),
        ]
    },
};

fn param_ref(binding: &Value) -> String {
    let Some(reference) = binding.pointer("/spec/paramRef") else { return "<unset>".to_owned() };
    match (text(reference, "/namespace"), text(reference, "/name")) {
        ("", "") | (_, "") if has(reference, "/selector") => selector_text(&reference["selector"]),
        (_, "") => "<unset>".to_owned(),
        ("", name) => format!("*/{name}"),
        (namespace, name) => format!("{namespace}/{name}"),
    }
}

/// A selector as Go's generated code prints it.
fn selector_text(selector: &Value) -> String {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let labels: String = labels.map(|(key, value)| format!("{key}: {},", scalar(value))).collect();
    let terms = list(selector, "/matchExpressions").iter().map(|term| {
        let values: Vec<String> = list(term, "/values").iter().map(scalar).collect();
        let (key, operator) = (text(term, "/key"), text(term, "/operator"));
        let values = values.join(" ");
        format!("LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}},")
    });
    let terms: String = terms.collect();
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
    )
}

const FLOW_SCHEMA: Printer = Printer {
    columns: &[
        NAME,
        Column::text("PriorityLevel", "The priority level that its requests get."),
        Column::text("MatchingPrecedence", "Of several that match, the lowest counts."),
        Column::text("DistinguisherMethod", "What tells its flows apart."),
        AGE,
        Column::text("MissingPL", "Whether its priority level is missing."),
    ],
    cells: |object, context| {
        let method = object.pointer("/spec/distinguisherMethod");
        let dangling = condition(object, "Dangling").map_or("?", |found| text(found, "/status"));
        vec![
            name(object),
            text(object, "/spec/priorityLevelConfiguration/name").into(),
            int(object, "/spec/matchingPrecedence").into(),
            method.map_or("<none>", |method| text(method, "/type")).into(),
            context.age(object),
            dangling.into(),
        ]
    },
};

/// A list of flow schemas is in the order in which they are tried.
pub(super) fn sort_flow_schemas(records: &mut [Arc<Record>]) {
    records.sort_by_cached_key(|record| {
        let schema = object::decode(&record.value, record.revision);
        (int(&schema, "/spec/matchingPrecedence"), record.path.clone())
    });
}

const PRIORITY_LEVEL: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Type", "Whether the level is limited."),
        Column::text("NominalConcurrencyShares", "Its share of the server."),
        Column::text("Queues", "How many queues it has."),
        Column::text("HandSize", "How many queues a flow may use."),
        Column::text("QueueLengthLimit", "How many requests may wait in a queue."),
        AGE,
    ],
    cells: |object, context| {
        let number = |limit: &str| {
            let limited = object.pointer("/spec/limited")?;
            let (parent, field) = limit.rsplit_once('/')?;
            limited.pointer(parent).map(|found| found.get(field).cloned().unwrap_or_else(|| 0.into()))
        };
        let number = |limit: &str| number(limit).unwrap_or_else(|| "<none>".into());
        vec![
            name(object),
            text(object, "/spec/type").into(),
            number("/nominalConcurrencyShares"),
            number("/limitResponse/queuing/queues"),
            number("/limitResponse/queuing/handSize"),
            number("/limitResponse/queuing/queueLengthLimit"),
            context.age(object),
        ]
    },
};

const API_SERVICE: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Service", "Who serves this version of the API."),
        Column::text("Available", "Whether it can be reached."),
        AGE,
    ],
    cells: |object, context| {
        let service = object.pointer("/spec/service").map_or_else(
            || "Local".to_owned(),
            |service| format!("{}/{}", text(service, "/namespace"), text(service, "/name")),
        );
        let available = condition(object, "Available").map_or_else(
            || "Unknown".to_owned(),
            |found| match (text(found, "/status"), text(found, "/reason")) {
                (status @ "True", _) | (status, "") => status.to_owned(),
                (status, reason) => format!("{status} ({reason})"),
            },
        );
        vec![name(object), service.into(), available.into(), context.age(object)]
    },
};

const DEFINITION: Printer = Printer {
    columns: &[
        NAME,
        Column::text("Scope", "Whether objects belong to a namespace or to the cluster."),
        Column::text("Versions", "The versions that are served."),
        CREATED_AT,
        Column::text("Group", "The API group.").wide(),
        Column::text("Kind", "The kind of the objects.").wide(),
        Column::text("ShortNames", "What people may type for short.").wide(),
        Column::boolean("Established", "Whether the kind is served.").wide(),
    ],
    cells: |object, _| {
        let short_names: Vec<String> = list(object, "/spec/names/shortNames").iter().map(scalar).collect();
        let established = condition(object, "Established");
        vec![
            name(object),
            text(object, "/spec/scope").into(),
            served_versions(object).into(),
            created_at(object),
            text(object, "/spec/group").into(),
            text(object, "/spec/names/kind").into(),
            short_names.join(",").into(),
            established.is_some_and(|found| text(found, "/status") == "True").into(),
        ]
    },
};

fn served_versions(definition: &Value) -> String {
    let served = list(definition, "/spec/versions").iter().filter(|version| flag(version, "/served"));
    let mut versions: Vec<String> = served
        .map(|version| {
            let storage = if flag(version, "/storage") { "(storage)" } else { "" };
            format!("{}{storage}", text(version, "/name"))
        })
        .collect();
    versions.sort_unstable();
    versions.join(",")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_definition_shows_the_versions_that_it_serves() {
        let definition = json!({"spec": {"versions": [
            {"name": "v1", "served": true, "storage": true}, {"name": "v1beta1", "served": true},
            {"name": "v1alpha1", "served": false}]}});
        assert_eq!(served_versions(&definition), "v1(storage),v1beta1");
    }

    #[test]
    fn a_binding_names_its_parameters() {
        let check = |reference: Value, expect: &str| {
            assert_eq!(param_ref(&json!({"spec": {"paramRef": reference}})), expect);
        };
        check(json!({"name": "a"}), "*/a");
        check(json!({"name": "a", "namespace": "n"}), "n/a");
        check(json!({}), "<unset>");
        check(
            json!({"selector": {"matchLabels": {"a": "b"}}}),
            "&LabelSelector{MatchLabels:map[string]string{a: b,},MatchExpressions:[]LabelSelectorRequirement{},}",
        );
    }
}
