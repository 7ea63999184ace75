//! What is in a namespace, of every kind, and how it is deleted.

use std::collections::BTreeMap;

use kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kube::{Client, ResourceExt};

use crate::failure;
use setpoint::discovery::{self, ServedResource};

/// A condition of a namespace: type, status, reason, message.
type Condition = (&'static str, bool, &'static str, String);

/// What is left in a namespace.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// How many objects of each kind.
    objects: BTreeMap<String, usize>,
    /// How many objects each finalizer holds.
    finalizers: BTreeMap<String, usize>,
    /// What the server said to deletions that it refused.
    refusals: Vec<String>,
    /// The group-versions of which nobody knows what they have here.
    unknown: Vec<String>,
}

impl Remaining {
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.refusals.is_empty() && self.unknown.is_empty()
    }

    /// What kube-controller-manager says of such a namespace.
    pub(super) fn conditions(&self) -> Vec<Condition> {
        let objects: Vec<String> = self
            .objects
            .iter()
            .map(|(kind, count)| {
                // Kinds of the core group end with a dot there.
                let dot = if kind.contains('.') { "" } else { "." };
                format!("{kind}{dot} has {count} resource instances")
            })
            .collect();
        let finalizers = self.finalizers.iter();
        let finalizers: Vec<String> =
            finalizers.map(|(name, count)| format!("{name} in {count} resource instances")).collect();
        let verdict = |type_, is_true, bad: (&'static str, String), good: (&'static str, &str)| {
            let (reason, message) = if is_true { bad } else { (good.0, good.1.to_owned()) };
            (type_, is_true, reason, message)
        };
        let refused = format!(
            "Failed to delete all resource types, {} remaining: {}",
            self.refusals.len(),
            self.refusals.join(", ")
        );
        let stale = |version: &String| format!("{version}: stale GroupVersion discovery: {version}");
        let undiscovered = format!(
            "Discovery failed for some groups, {} failing: unable to retrieve the complete list of server APIs: {}",
            self.unknown.len(),
            self.unknown.iter().map(stale).collect::<Vec<_>>().join(", ")
        );
        vec![
            verdict(
                "NamespaceDeletionDiscoveryFailure",
                !self.unknown.is_empty(),
                ("DiscoveryFailed", undiscovered),
                ("ResourcesDiscovered", "All resources successfully discovered"),
            ),
            verdict(
                "NamespaceDeletionGroupVersionParsingFailure",
                false,
                ("", String::new()),
                ("ParsedGroupVersions", "All legacy kube types successfully parsed"),
            ),
            verdict(
                "NamespaceDeletionContentFailure",
                !self.refusals.is_empty(),
                ("ContentDeletionFailed", refused),
                ("ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
            ),
            verdict(
                "NamespaceContentRemaining",
                !objects.is_empty(),
                ("SomeResourcesRemain", format!("Some resources are remaining: {}", objects.join(", "))),
                ("ContentRemoved", "All content successfully removed"),
            ),
            verdict(
                "NamespaceFinalizersRemaining",
                !finalizers.is_empty(),
                (
                    "SomeFinalizersRemain",
                    format!(
                        "Some content in the namespace has finalizers remaining: {}",
                        finalizers.join(", ")
                    ),
                ),
                ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
            ),
        ]
    }
}

/// Deletes everything in a namespace: the pods first, and when they are gone the rest. Says what is left. A kind that cannot
/// be listed does not stop the others.
pub(super) async fn delete(client: &Client, namespace: &str) -> Result<Remaining, kube::Error> {
    let mut kinds = discovery::served(client).await?;
    kinds.retain(|kind| kind.is_namespaced && kind.has("delete") && kind.has("list"));
    let is_pods = |kind: &ServedResource| kind.api.group.is_empty() && kind.api.plural == "pods";
    let mut remaining = Remaining::default();
    for pods in kinds.iter().filter(|kind| is_pods(kind)) {
        remaining.delete_kind(client, namespace, pods).await;
    }
    if !remaining.is_empty() {
        return Ok(remaining);
    }
    for kind in kinds.iter().filter(|kind| !is_pods(kind)) {
        remaining.delete_kind(client, namespace, kind).await;
    }
    remaining.unknown = discovery::unknown(client).await?;
    Ok(remaining)
}

impl Remaining {
    async fn delete_kind(&mut self, client: &Client, namespace: &str, kind: &ServedResource) {
        if let Err(error) = self.try_to_delete(client, namespace, kind).await {
            self.refusals.push(failure::message(&error));
        }
    }

    async fn try_to_delete(
        &mut self,
        client: &Client,
        namespace: &str,
        kind: &ServedResource,
    ) -> Result<(), kube::Error> {
        let api = kind.objects(client, Some(namespace));
        let everything = ListParams::default();
        let list = async || match api.list_metadata(&everything).await {
            // The kind has gone meanwhile.
            Err(error) if failure::is_not_found(&error) => Ok(Vec::new()),
            listed => listed.map(|list| list.items),
        };
        let found = list().await?;
        if found.is_empty() {
            return Ok(());
        }
        let background = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        let deleted = if kind.has("deletecollection") {
            api.delete_collection(&background, &everything).await.map(drop)
        } else {
            let mut deleted = Ok(());
            for object in &found {
                match api.delete(&object.name_any(), &background).await {
                    Err(error) if !failure::is_not_found(&error) => deleted = Err(error),
                    _ => {}
                }
            }
            deleted
        };
        if let Err(error) = deleted {
            self.refusals.push(failure::message(&error));
        }
        let left = list().await?;
        if !left.is_empty() {
            self.objects.insert(kind.name(), left.len());
        }
        for finalizer in left.iter().flat_map(|object| object.finalizers()) {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        Ok(())
    }
}
