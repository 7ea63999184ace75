//! The program under test: started, stopped, killed, and started again.

use std::process::ExitStatus;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use setpoint_env::{Env, Phase, Process};
use tokio::process::Command;
use tokio::time::sleep;

use super::front::Current;
use super::log::Log;

/// More ends by itself, each after less than [`SHORT`], are a crash loop.
const MOST_ENDS: u32 = 5;
const SHORT: Duration = Duration::from_secs(10);

/// The program that the proxy runs.
pub(super) struct Child {
    env: Env,
    command: Command,
    down: Duration,
    current: Current,
    log: Arc<Log>,
}

/// Why it does not run any more.
#[derive(Debug)]
pub(super) enum Ended {
    /// It has ended with success.
    Well,
    /// It ends by itself again and again.
    TooOften(ExitStatus),
    /// It cannot be started.
    NotStarted(std::io::Error),
}

/// Kills the whole group with its leader: a program may have been started through another.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.0 {
            let _is_gone_already = kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Child {
    pub(super) fn new(
        env: Env,
        mut command: Command,
        down: Duration,
        current: Current,
        log: Arc<Log>,
    ) -> Child {
        command.process_group(0).kill_on_drop(true);
        Child { env, command, down, current, log }
    }

    /// Runs it, again after each of its ends, until it ends well or ends too often. Dropping this kills it.
    pub(super) async fn run(mut self) -> Ended {
        let mut short_ends = 0;
        loop {
            let (_, process) = self.env.process();
            // Before it can connect.
            self.current.set(&process);
            let mut child = match self.command.spawn() {
                Ok(child) => child,
                Err(error) => return Ended::NotStarted(error),
            };
            let started = self.env.instant();
            let group = Group(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
            self.log.started();
            let ended = tokio::select! {
                biased;
                () = follow(&process, &group) => None,
                ended = child.wait() => Some(ended),
            };
            process.kill();
            drop(group);
            let _reaped = child.wait().await;
            match ended {
                None => {
                    self.log.killed();
                    short_ends = 0;
                }
                Some(Err(error)) => return Ended::NotStarted(error),
                Some(Ok(status)) => {
                    self.log.ended(&status.to_string());
                    if status.success() {
                        return Ended::Well;
                    }
                    short_ends = if started.elapsed() < SHORT { short_ends + 1 } else { 1 };
                    if short_ends >= MOST_ENDS {
                        return Ended::TooOften(status);
                    }
                }
            }
            sleep(self.down).await;
        }
    }
}

/// Does to the program what faults do to its process, until it is killed.
async fn follow(process: &Process, group: &Group) {
    let mut phase = Phase::Running;
    loop {
        phase = process.other_than(phase).await;
        match phase {
            Phase::Running => group.signal(Signal::CONT),
            Phase::Paused => group.signal(Signal::STOP),
            Phase::Killed => return group.signal(Signal::KILL),
        }
    }
}
