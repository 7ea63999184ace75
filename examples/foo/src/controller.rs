//! The controller: what is watched, what a change does, and the loop.

use std::sync::Arc;
use std::time::Duration;

use futures::future;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use setpoint::conditions::{new_condition, set_condition};
use setpoint::facts::Name;
use setpoint::owner::{controller_of, is_controlled_by};
use setpoint::workqueue::ItemExponential;
use setpoint::{
    CacheSyncError, Cause, Env, Event, HandlerFns, Held, Lister, ObjectKey, Permissions, Reason, Recorder,
    Registration, SharedInformer, SharedInformerFactory, Verb, WorkQueue, is_resync, patch_status,
    run_workers,
};
use tokio_util::sync::CancellationToken;

use crate::{Foo, FooStatus, new_deployment};

/// How many keys are worked on at the same time.
pub const WORKERS: usize = 2;
/// How often every Foo is looked at, whether something has changed or not.
pub const RESYNC: Duration = Duration::from_secs(30);

/// How long the first lists may take.
const SYNC_LIMIT: Duration = Duration::from_secs(60);
/// How long events may take that were recorded just before the end.
const FLUSH_LIMIT: Duration = Duration::from_secs(5);

/// Keeps a Deployment for each Foo.
pub struct FooController {
    client: Client,
    factory: SharedInformerFactory,
    foos: Lister<Foo>,
    deployments: Lister<Deployment>,
    /// The handlers go with the controller: others may share the informers.
    _handlers: [Registration; 2],
    queue: WorkQueue<ObjectKey>,
    recorder: Recorder,
    env: Env,
}

/// Why a Foo is not as it should be yet.
#[derive(Debug, thiserror::Error)]
enum SyncError {
    #[error("Resource {0:?} already exists and is not managed by Foo")]
    ResourceExists(String),
    #[error("the server refuses a request")]
    Api(#[from] kube::Error),
    #[error("the Deployment cannot be put together")]
    Json(#[from] serde_json::Error),
}

impl FooController {
    /// A controller with its handlers in place. Nothing is watched until it runs.
    pub fn new(client: Client, factory: &SharedInformerFactory, env: Env) -> FooController {
        let (foos, deployments) = (factory.informer::<Foo>(), factory.informer::<Deployment>());
        let queue = WorkQueue::builder().rate_limiter(limiter()).facts("foo", factory.facts()).build();

        let (added, updated) = (Changes::new(&queue, &foos), Changes::new(&queue, &foos));
        let on_foo = foos.add_handler(
            HandlerFns::new()
                .on_add(move |foo, _| added.enqueue(Cause::Added, foo))
                // A resync comes here too: it repairs what no event told of.
                .on_update(move |old, new| {
                    updated.enqueue(if is_resync(old, new) { Cause::Resync } else { Cause::Updated }, new);
                }),
        );
        let changes = || Changes::new(&queue, &deployments);
        let (added, updated, deleted) = (changes(), changes(), changes());
        let on_deployment = deployments.add_handler(
            HandlerFns::new()
                .on_add(move |deployment, _| added.enqueue_owner(Cause::Added, deployment))
                .on_update(move |old, new| {
                    if !is_resync(old, new) {
                        updated.enqueue_owner(Cause::Updated, new);
                    }
                })
                .on_delete(move |gone| deleted.enqueue_owner(Cause::Deleted, &gone.object)),
        );
        let recorder = Recorder::builder(client.clone(), "foo-controller").env(env.clone()).build();
        FooController {
            client,
            factory: factory.clone(),
            foos: foos.lister(),
            deployments: deployments.lister(),
            _handlers: [on_foo, on_deployment],
            queue,
            recorder,
            env,
        }
    }

    /// Works until `shutdown`, then ends what is queued.
    pub async fn run(self, workers: usize, shutdown: CancellationToken) -> Result<(), CacheSyncError> {
        self.factory.start();
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(()),
            synced = self.factory.wait_for_cache_sync(SYNC_LIMIT) => synced?,
        }
        tracing::info!(workers, "caches are synced, workers start");
        let working = run_workers(workers, &self.queue, |key| self.sync(key));
        let stopping = async {
            shutdown.cancelled().await;
            self.queue.shut_down();
        };
        future::join(working, stopping).await;
        self.recorder.flush(FLUSH_LIMIT).await;
        self.factory.shutdown().await;
        Ok(())
    }

    /// Makes the world match one Foo.
    async fn sync(&self, key: ObjectKey) -> Result<(), SyncError> {
        let Some(foo) = self.foos.get(&key) else {
            tracing::info!(%key, "foo is gone; its deployment goes with it");
            return Ok(());
        };
        if foo.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        tracing::info!(%key, "reconcile");
        match self.sync_deployment(&foo).await {
            Ok(Some(deployment)) => {
                self.write_status(&foo, available_replicas(&deployment), ready(&foo, &deployment)).await?;
                self.recorder.event(&*foo, Event::normal("Synced", "Foo synced successfully"));
                tracing::info!(%key, "synced");
                Ok(())
            }
            Ok(None) => {
                // To try again would not help: the next change of the Foo comes as an event.
                let message = "spec.deploymentName is empty: say what the Deployment shall be called";
                tracing::warn!(%key, "deploymentName is empty");
                self.recorder.event(&*foo, Event::warning("DeploymentNameMissing", message));
                let condition = new_condition("Ready", false, "DeploymentNameMissing", message);
                self.write_status(&foo, 0, condition).await
            }
            Err(error @ SyncError::ResourceExists(_)) => {
                self.recorder.event(&*foo, Event::warning("ErrResourceExists", error.to_string()));
                let advice = format!("{error}: delete it, or choose another spec.deploymentName");
                self.write_status(&foo, 0, new_condition("Ready", false, "ErrResourceExists", advice))
                    .await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// The Deployment as the Foo wants it; none if the Foo does not name one.
    async fn sync_deployment(&self, foo: &Foo) -> Result<Option<Arc<Deployment>>, SyncError> {
        let (namespace, name) = (foo.namespace().unwrap_or_default(), &foo.spec.deployment_name);
        if name.is_empty() {
            return Ok(None);
        }
        let api: Api<Deployment> = Api::namespaced(self.client.clone(), &namespace);
        let Some(deployment) = self.deployments.namespace(&namespace).get(name) else {
            let created = api.create(&PostParams::default(), &new_deployment(foo)?).await?;
            tracing::info!(%namespace, %name, "created the deployment");
            return Ok(Some(Arc::new(created)));
        };
        if !is_controlled_by(&*deployment, foo) {
            return Err(SyncError::ResourceExists(name.clone()));
        }
        let wanted = foo.spec.replicas.filter(|wanted| Some(*wanted) != deployment.spec.replicas);
        let Some(wanted) = wanted else { return Ok(Some(deployment)) };
        // The uid: if it is another Deployment by now, it may be somebody else's.
        let patch = json!({"metadata": {"uid": deployment.uid()}, "spec": {"replicas": wanted}});
        let updated = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        tracing::info!(%namespace, %name, replicas = wanted, "scaled the deployment");
        Ok(Some(Arc::new(updated)))
    }

    async fn write_status(
        &self,
        foo: &Foo,
        available_replicas: i32,
        mut condition: Condition,
    ) -> Result<(), SyncError> {
        let old = foo.status.clone().unwrap_or_default();
        let observed_generation = foo.metadata.generation;
        condition.observed_generation = observed_generation;
        let mut conditions = old.conditions;
        set_condition(&mut conditions, condition, self.env.now());
        let status = FooStatus { available_replicas, observed_generation, conditions };
        let api: Api<Foo> = Api::namespaced(self.client.clone(), &foo.namespace().unwrap_or_default());
        patch_status(&api, foo, &status).await?;
        Ok(())
    }
}

/// What an API server has to allow the controller: `manifests/rbac.yaml` is made from it.
pub fn permissions() -> Permissions {
    let mut needs = Permissions::default();
    needs.allow::<Foo>(&[Verb::List, Verb::Watch]);
    needs.allow_subresource::<Foo>("status", &[Verb::Patch]);
    needs.allow::<Deployment>(&[Verb::List, Verb::Watch, Verb::Create, Verb::Patch]);
    needs.add("events.k8s.io", "events", &[Verb::Create, Verb::Patch]);
    needs
}

/// A failed Foo is tried again after a quarter of a second, then later and later.
fn limiter() -> ItemExponential<ObjectKey> {
    ItemExponential::new(Duration::from_millis(250), Duration::from_secs(300))
}

/// From the changes of a resource to keys in the queue, with the reason.
struct Changes {
    queue: WorkQueue<ObjectKey>,
    resource: Name,
}

impl Changes {
    fn new<T: setpoint::Object>(queue: &WorkQueue<ObjectKey>, informer: &SharedInformer<T>) -> Changes {
        Changes { queue: queue.clone(), resource: informer.name().into() }
    }

    /// Adds the key of a Foo.
    fn enqueue(&self, cause: Cause, foo: &Held<Foo>) {
        self.queue.add_because(foo.key().clone(), Reason::object(cause, &self.resource, foo));
    }

    /// Adds the key of the Foo that a Deployment belongs to, if it belongs to one.
    fn enqueue_owner(&self, cause: Cause, deployment: &Held<Deployment>) {
        let owner = controller_of(&**deployment).filter(|owner| owner.kind == Foo::kind(&()));
        if let (Some(owner), Some(namespace)) = (owner, deployment.namespace()) {
            let key = ObjectKey::namespaced(&namespace, &owner.name);
            self.queue.add_because(key, Reason::object(cause, &self.resource, deployment));
        }
    }
}

fn available_replicas(deployment: &Deployment) -> i32 {
    deployment.status.as_ref().and_then(|status| status.available_replicas).unwrap_or(0)
}

fn ready(foo: &Foo, deployment: &Deployment) -> Condition {
    let (wanted, available) = (foo.spec.replicas.unwrap_or(1), available_replicas(deployment));
    let message = format!("{available} of {wanted} replicas are available");
    let reason = if available >= wanted { "Available" } else { "Progressing" };
    new_condition("Ready", available >= wanted, reason, message)
}
