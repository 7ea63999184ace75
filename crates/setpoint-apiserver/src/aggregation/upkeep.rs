//! Looks after the backends: whether they answer, and what they have.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use setpoint_env::Later;

use super::{Backend, Registered, availability, documents, resource, sync};
use crate::resource::{Registry, Resource};
use crate::server::Core;
use crate::storage::{Event, Watch};

/// How often a backend that answers is asked whether it still does.
const GOOD: Duration = Duration::from_secs(30);
/// How long to wait after the first time that it did not; it doubles from time to time.
const FIRST_BAD: Duration = Duration::from_millis(100);
const LONGEST_BAD: Duration = Duration::from_secs(5);
/// How often is looked whether it has other resources or schemas.
const DOCUMENTS: Duration = Duration::from_secs(60);
/// What is asked for more often than this waits: requests that fail ask for a look each.
const LEAST_PAUSE: Duration = Duration::from_millis(50);
/// How long to wait after the APIServices could not be read.
const RETRY: Duration = Duration::from_secs(1);

/// Follows the APIServices, and looks after each backend, until the server has gone.
pub(crate) async fn run(core: Weak<Core>) {
    let mut tended = FuturesUnordered::new();
    let mut known = Registered::default();
    let Some(mut changes) = Changes::new(&core) else { return };
    loop {
        let Some(running) = core.upgrade() else { return };
        if let Err(error) = sync(&running).await {
            tracing::warn!(%error, "cannot read the APIServices; retrying");
            drop(running);
            tokio::time::sleep(RETRY).await;
            continue;
        }
        let now = running.aggregation.registered();
        for backend in now.all().filter(|backend| !known.has(backend)) {
            tended.push(tend(Weak::clone(&core), Arc::clone(backend)));
        }
        known = Registered::clone(&now);
        // It must not keep the server alive.
        drop((running, now));
        tokio::select! {
            biased;
            () = changes.next(&core, &known) => {}
            Some(()) = tended.next() => {}
        }
    }
}

/// The places in history of what backends depend on.
struct Changes {
    api_services: Watch,
    services: Watch,
    slices: Watch,
}

fn services() -> &'static Arc<Resource> {
    Registry::built_in().expect("", "v1", "services")
}

fn slices() -> &'static Arc<Resource> {
    Registry::built_in().expect("discovery.k8s.io", "v1", "endpointslices")
}

/// Changes from now on.
fn changes(core: &Weak<Core>, resource: &Resource) -> Option<Watch> {
    let core = core.upgrade()?;
    core.storage.watch(resource.collection(), core.storage.revision()).ok()
}

impl Changes {
    fn new(core: &Weak<Core>) -> Option<Changes> {
        Some(Changes {
            api_services: changes(core, resource())?,
            services: changes(core, services())?,
            slices: changes(core, slices())?,
        })
    }

    /// Waits for a change of an APIService. Meanwhile backends are woken whose services change.
    async fn next(&mut self, core: &Weak<Core>, known: &Registered) {
        loop {
            tokio::select! {
                biased;
                () = self.api_services.changed() => {
                    if self.api_services.ready().is_err() {
                        match changes(core, resource()) {
                            Some(newer) => self.api_services = newer,
                            None => return,
                        }
                    }
                    return;
                }
                () = self.services.changed(), if !known.is_empty() => {
                    let is_of = |event: &Event, backend: &Backend| *event.record.path == *service_path(backend);
                    if !wake(&mut self.services, core, services(), known, is_of) {
                        return;
                    }
                }
                () = self.slices.changed(), if !known.is_empty() => {
                    if !wake(&mut self.slices, core, slices(), known, is_slice_of) {
                        return;
                    }
                }
            }
        }
    }
}

fn service_path(backend: &Backend) -> String {
    format!("{}/{}", backend.spec.namespace, backend.spec.service)
}

fn is_slice_of(event: &Event, backend: &Backend) -> bool {
    let namespace = event.record.path.split('/').next().unwrap_or_default();
    let label = event.record.attributes.label(&event.record.value, "kubernetes.io/service-name");
    namespace == backend.spec.namespace && label == Some(&backend.spec.service)
}

/// Wakes the backends that a change is about; whether the server is still there.
fn wake(
    watch: &mut Watch,
    core: &Weak<Core>,
    resource: &Resource,
    known: &Registered,
    is_of: impl Fn(&Event, &Backend) -> bool,
) -> bool {
    match watch.ready() {
        Ok(batch) => {
            for backend in known.all() {
                if batch.events.iter().any(|event| is_of(event, backend)) {
                    backend.wake.notify_one();
                }
            }
            true
        }
        Err(_) => {
            // What has changed is not known any more: anything may have.
            known.all().for_each(|backend| backend.wake.notify_one());
            match changes(core, resource) {
                Some(newer) => {
                    *watch = newer;
                    true
                }
                None => false,
            }
        }
    }
}

/// Looks after one backend until another one takes its place.
async fn tend(core: Weak<Core>, backend: Arc<Backend>) {
    let both = async {
        // Schemas are large, and a backend may take its time to tell them. Whether it answers is known meanwhile.
        tokio::select! {
            () = look_again(Weak::clone(&core), &backend) => {}
            () = read_schemas(core, &backend) => {}
        }
    };
    backend.replaced.run_until_cancelled(both).await;
}

async fn look_again(core: Weak<Core>, backend: &Backend) {
    let mut bad_pause = FIRST_BAD;
    let mut documents_due = None;
    loop {
        let Some(running) = core.upgrade() else { return };
        let verdict = availability::check(&running, backend).await;
        let is_available = verdict.is_available();
        backend.set_available(is_available);
        if let Err(error) = availability::tell(&running, backend, &verdict).await {
            tracing::warn!(name = backend.spec.name, %error, "cannot update the status of an APIService");
        }
        let now = running.env.instant();
        if !is_available {
            documents_due = None;
            if documents::forget(backend) {
                running.aggregation.tell_change();
            }
        } else if documents_due.is_none_or(|due| due <= now) {
            let learned = documents::learn_resources(&running, backend).await;
            if learned.is_new {
                running.aggregation.tell_change();
            }
            documents_due = learned.is_known.then(|| now.later(DOCUMENTS));
            backend.schemas_due.notify_one();
        }
        let is_whole = is_available && documents_due.is_some();
        let pause = if is_whole { GOOD } else { bad_pause };
        bad_pause = if is_whole { FIRST_BAD } else { bad_pause.saturating_mul(2).min(LONGEST_BAD) };
        drop(running);
        tokio::time::sleep(LEAST_PAUSE).await;
        tokio::select! {
            biased;
            // What was in the way may be gone.
            () = backend.wake.notified() => bad_pause = FIRST_BAD,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

async fn read_schemas(core: Weak<Core>, backend: &Backend) {
    loop {
        backend.schemas_due.notified().await;
        let Some(running) = core.upgrade() else { return };
        if documents::learn_schemas(&running, backend).await {
            running.aggregation.tell_change();
        }
    }
}
