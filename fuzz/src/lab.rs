//! Where inputs run: a thread with the stack of a server's worker, on which time stands still unless it is waited for.

use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_apiserver::ApiServer;
use setpoint_env::Env;
use tokio::runtime::{Builder, Runtime};

use crate::Api;

/// What tokio's workers have. A recursion that is too deep for a server is too deep here.
const STACK: usize = 2 << 20;

/// A runtime on paused time, and a server in it.
pub struct Lab {
    runtime: Runtime,
    server: OnceLock<ApiServer>,
}

type Case = fn(&Lab, &[u8]);

struct Thread {
    cases: SyncSender<(Case, Vec<u8>)>,
    done: Receiver<()>,
}

/// Runs one input.
pub fn start(input: &[u8], case: Case) {
    static THREAD: OnceLock<Mutex<Thread>> = OnceLock::new();
    let thread = THREAD.get_or_init(|| Mutex::new(Thread::new())).lock();
    thread.cases.send((case, input.to_vec())).expect("the thread ends with the process");
    thread.done.recv().expect("a panic ends the process");
}

impl Thread {
    fn new() -> Thread {
        ignore_foreign_panics();
        let (cases, inputs) = sync_channel::<(Case, Vec<u8>)>(1);
        let (finished, done) = sync_channel(1);
        let run = move || {
            let lab = Lab::new();
            for (case, input) in inputs {
                case(&lab, &input);
                let _ = finished.send(());
            }
        };
        std::thread::Builder::new().stack_size(STACK).spawn(run).expect("a thread can be started");
        Thread { cases, done }
    }
}

/// What is not ours panics now and then, and the server is ready for it (the parser of CEL, redb on a damaged file): such a
/// panic is an answer. libFuzzer's hook ends the process at any other, also at those that somebody would catch.
fn ignore_foreign_panics() {
    let abort = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let is_foreign = |file: &str| {
            ["/cel-", "/kube-cel-", "/antlr4rust-", "/redb-"].iter().any(|name| file.contains(name))
        };
        let is_parser = std::thread::current().name() == Some("cel-parser");
        if !is_parser && !panic.location().is_some_and(|place| is_foreign(place.file())) {
            abort(panic);
        }
    }));
}

impl Lab {
    fn new() -> Lab {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build();
        Lab { runtime: runtime.expect("a runtime can be built"), server: OnceLock::new() }
    }

    /// Runs a future to its end, and then what it has left to others.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let output = self.runtime.block_on(future);
        // Time passes when nobody has anything to do.
        self.runtime.block_on(tokio::time::sleep(Duration::from_millis(1)));
        output
    }

    /// The server that all inputs share: leave it as you found it.
    pub fn shared(&self) -> Api {
        let _inside = self.runtime.enter();
        Api::of(self.server.get_or_init(build))
    }

    /// A server that nobody has used.
    pub fn fresh(&self) -> Api {
        let _inside = self.runtime.enter();
        Api::of(&build())
    }
}

fn build() -> ApiServer {
    ApiServer::builder().env(Env::seeded(1)).history(100, 1 << 20).build()
}
