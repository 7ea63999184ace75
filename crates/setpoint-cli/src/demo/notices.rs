//! What was seen, on its way from where it happened to the screen.

use std::sync::Arc;

use example_foo::Foo;
use parking_lot::Mutex;
use setpoint::kube::ResourceExt;
use setpoint::{Deleted, HandlerFns, SharedInformerFactory};
use setpoint_env::Env;

use super::stage::{Notice, Stage};

/// More than a demo has; what comes beyond is not shown.
const MOST: usize = 1000;

/// Clones are the same list.
#[derive(Clone)]
pub(crate) struct Notices {
    env: Env,
    waiting: Arc<Mutex<Vec<Notice>>>,
}

impl Notices {
    pub(crate) fn new(env: Env) -> Notices {
        Notices { env, waiting: Arc::default() }
    }

    pub(crate) fn add(&self, stage: Stage, text: impl Into<String>) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MOST {
            waiting.push(Notice { stage, text: text.into(), at: self.env.instant() });
        }
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut *self.waiting.lock())
    }

    /// Watches the controller's own informer for deletes, by a handler beside the controller's: it has none for
    /// them, since a Deployment goes with its Foo.
    pub(crate) fn of_reflector(&self, factory: &SharedInformerFactory) {
        let notices = self.clone();
        let handler =
            factory.informer::<Foo>().add_handler(HandlerFns::new().on_delete(move |gone: &Deleted<Foo>| {
                let name = gone.object.name_any();
                notices.add(Stage::Reflector, format!("the watch says that foo/{name} is gone"));
            }));
        handler.detach();
    }
}
