//! The template of a Deployment's pods, and the hash that tells its ReplicaSets apart.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::PodTemplateSpec;

use crate::hash;

/// The label that has the hash.
pub(super) const HASH_LABEL: &str = "pod-template-hash";

/// Whether two templates make the same pods, whatever their hashes say.
pub(super) fn is_same(a: &PodTemplateSpec, b: &PodTemplateSpec) -> bool {
    a.spec == b.spec && without_hash(a) == without_hash(b)
}

fn without_hash(template: &PodTemplateSpec) -> Cow<'_, PodTemplateSpec> {
    let labels = template.metadata.as_ref().and_then(|meta| meta.labels.as_ref());
    if labels.is_none_or(|labels| !labels.contains_key(HASH_LABEL)) {
        return Cow::Borrowed(template);
    }
    let mut template = template.clone();
    if let Some(meta) = &mut template.metadata {
        let labels = meta.labels.get_or_insert_default();
        labels.remove(HASH_LABEL);
        if labels.is_empty() {
            meta.labels = None;
        }
    }
    Cow::Owned(template)
}

/// A hash of a template. Another count gives another hash, should two templates have had the same.
///
/// It looks like kube-controller-manager's but is not the same number: that one hashes Go's way of printing a
/// struct. Nothing depends on it, since sets are told apart by their templates.
pub(super) fn hash(template: &PodTemplateSpec, collisions: Option<i32>) -> Result<String, serde_json::Error> {
    let mut text = serde_json::to_vec(template)?;
    text.extend(collisions.iter().flat_map(|count| count.to_le_bytes()));
    Ok(hash::word(hash::fnv_1a(&text)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(image: &str, hash: Option<&str>) -> PodTemplateSpec {
        let mut value = json!({
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": image}]},
        });
        if let Some(hash) = hash {
            value["metadata"]["labels"][HASH_LABEL] = json!(hash);
        }
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_hash_label_makes_no_difference() {
        assert!(is_same(&template("a", None), &template("a", Some("x"))));
        assert!(!is_same(&template("a", None), &template("b", None)));
    }

    #[test]
    fn hashes_differ_by_template_and_by_collisions() {
        let hash = |image, collisions| hash(&template(image, None), collisions).unwrap();
        assert_eq!(hash("a", None), hash("a", None));
        assert_ne!(hash("a", None), hash("b", None));
        assert_ne!(hash("a", None), hash("a", Some(1)));
    }
}
