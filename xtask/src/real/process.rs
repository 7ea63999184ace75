//! Child processes that always end: bounded runs, and servers that are stopped
//! when their handle is dropped.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a bounded wait looks again.
const STEP: Duration = Duration::from_millis(2);

/// What a finished command left behind.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs a command to its end, or kills it after `limit`.
pub(crate) fn run(mut command: Command, input: Option<&[u8]>, limit: Duration) -> Result<Finished> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    let name = format!("{command:?}");
    let child = command
        .stdin(stdin)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let mut running = Running { child };
    let stdout = drain(running.child.stdout.take());
    let stderr = drain(running.child.stderr.take());
    if let (Some(mut pipe), Some(bytes)) = (running.child.stdin.take(), input) {
        // The child may stop reading early: its exit code tells that story.
        let _ = pipe.write_all(bytes);
    }
    let status = running.wait(limit).with_context(|| format!("{name} did not end in {limit:?}"))?;
    Ok(Finished { status, stdout: join(stdout), stderr: join(stderr) })
}

fn drain<R: Read + Send + 'static>(pipe: Option<R>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn join(reader: JoinHandle<String>) -> String {
    reader.join().unwrap_or_default()
}

/// A process that is killed when this is dropped.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    /// Starts a process whose pipes are already set in `command`.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        Ok(Self { child })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn exited(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if Instant::now() > deadline {
                bail!("it was still running and was killed");
            }
            thread::sleep(STEP);
        }
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Asks politely (SIGTERM), then waits.
    pub(crate) fn terminate(mut self, limit: Duration) -> Result<ExitStatus> {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status().context("cannot run kill")?;
        if !sent.success() {
            bail!("kill -TERM {id} failed");
        }
        self.wait(limit)
    }
}

impl From<Child> for Running {
    fn from(child: Child) -> Self {
        Self { child }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process whose standard output is read line by line, such as `get -w`.
pub(crate) struct Lines {
    process: Running,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Lines {
    pub(crate) fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Running::start(&mut command)?;
        let stdout = process.child.stdout.take().context("no pipe")?;
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { process, lines, seen: Vec::new() })
    }

    /// The process that writes them.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// The next line, whatever it is.
    pub(crate) fn next(&mut self, limit: Duration) -> Result<String> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => {
                self.seen.push(line.clone());
                Ok(line)
            }
            Err(RecvTimeoutError::Timeout) => {
                bail!("no line came in {limit:?}; seen:\n{}", self.seen.join("\n"))
            }
            Err(RecvTimeoutError::Disconnected) => bail!("it ended; seen:\n{}", self.seen.join("\n")),
        }
    }

    /// Skips lines until one starts like this, and returns it.
    pub(crate) fn until(&mut self, start: &str, limit: Duration) -> Result<String> {
        let deadline = Instant::now() + limit;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line =
                self.next(left).with_context(|| format!("waiting for a line that starts with {start:?}"))?;
            if line.starts_with(start) {
                return Ok(line);
            }
        }
    }
}

/// Looks again and again until `ready` gives something, or `limit` is over.
pub(crate) fn poll<T>(limit: Duration, mut ready: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(found) = ready()? {
            return Ok(Some(found));
        }
        if Instant::now() > deadline {
            return Ok(None);
        }
        thread::sleep(STEP);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_killed() {
        let mut command = Command::new("sleep");
        command.arg("60");
        let begun = Instant::now();
        assert!(run(command, None, Duration::from_millis(50)).is_err());
        assert!(begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn input_and_output_are_passed_through() {
        let finished = run(Command::new("cat"), Some(b"hello"), Duration::from_secs(30)).unwrap();
        assert!(finished.status.success());
        assert_eq!(finished.stdout, "hello");
    }

    #[test]
    fn lines_are_waited_for() {
        let mut command = Command::new("printf");
        command.arg("a\\nb\\n");
        let mut lines = Lines::start(command).unwrap();
        let limit = Duration::from_secs(30);
        assert_eq!(lines.until("b", limit).unwrap(), "b");
        assert!(lines.next(limit).is_err());
    }
}
