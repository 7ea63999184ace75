//! The commands of docs/first-controller.md, as they stand there.

use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::Programs;
use super::stage::{LIMIT, Stage};

pub(crate) const NAME: &str = "docs: the commands of the first controller";

pub(crate) fn run(stage: &Stage, programs: &Programs, root: &Path) -> Result<()> {
    let guide = std::fs::read_to_string(root.join("docs/first-controller.md"))?;
    let (_, rest) = guide.split_once("```sh\n").context("the guide has no commands")?;
    let (commands, _) = rest.split_once("```").context("the block has no end")?;
    let _controller = stage.start(programs.command("example-first-controller"), "greeting.log")?;
    let mut tried = 0;
    for line in commands.lines() {
        let line = line.strip_prefix("kubectl ").with_context(|| format!("not kubectl: {line}"))?;
        // People type slowly enough; a program waits until the controller has had its turn.
        stage.until(line, LIMIT, || Ok(stage.kubectl(line).is_ok()))?;
        tried += 1;
    }
    ensure!(tried >= 4, "only {tried} commands");
    stage.kubectl("annotate namespace default example.com/greeting-").map(drop)
}
