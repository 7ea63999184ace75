//! The API server: ours on its durable store, and kube-apiserver over an etcd that syncs, both over TLS.

mod ceiling;
mod fan_out;
mod operations;
mod startup;
mod stored;

use std::cell::RefCell;
use std::path::PathBuf;

use anyhow::Result;
use clap::ValueEnum;

use super::Bench;
use super::figures::{Figures, OURS};
use crate::real::peers::Peers;
use crate::real::servers::{Reference, Server};

const REFERENCE: &str = "kube-apiserver";

#[derive(clap::Args)]
#[group(id = "apiserver")]
pub(super) struct Options {
    /// apiserver: what to measure; everything unless named.
    #[arg(long, value_enum, value_delimiter = ',')]
    of: Vec<Of>,
    /// apiserver: how many connections, each with one request at a time.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16, 64])]
    connections: Vec<usize>,
    /// apiserver: create, update, patch or apply.
    #[arg(long, value_delimiter = ',', default_values_t = ["create", "update", "patch", "apply"].map(String::from))]
    operations: Vec<String>,
    /// apiserver: how long each turn is.
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// apiserver: how many Pods are stored and listed.
    #[arg(long, default_value_t = 50_000)]
    stored_pods: usize,
    /// apiserver: how many ConfigMaps are stored beside them.
    #[arg(long, default_value_t = 120_000)]
    config_maps: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Of {
    /// From exec until a create from outside succeeds, and memory at rest.
    Startup,
    /// Operations a second of client-go programs.
    Operations,
    /// Creates a second of a client that has encoded them beforehand.
    Ceiling,
    /// Deliveries a second to many watchers.
    FanOut,
    /// Many objects: memory, lists, and the time to start after a kill.
    Stored,
}

pub(super) fn run(bench: &Bench, figures: &mut Figures) -> Result<()> {
    let peers = Peers::new(!bench.skip_build)?;
    let binary = crate::real::setpoint_release(bench.skip_build)?;
    let reference = match bench.takes(REFERENCE) {
        true => Reference::get(&peers).inspect_err(|error| println!("skipped {REFERENCE}: {error:#}")).ok(),
        false => None,
    };
    let sides = Sides { bench, peers, binary, reference, kept: RefCell::default() };
    let all = Of::value_variants();
    for of in if bench.apiserver.of.is_empty() { all } else { &bench.apiserver.of } {
        match of {
            Of::Startup => startup::run(&sides, figures)?,
            Of::Operations => operations::run(&sides, figures)?,
            Of::Ceiling => ceiling::run(&sides, figures)?,
            Of::FanOut => fan_out::run(&sides, figures)?,
            Of::Stored => stored::run(&sides, figures)?,
        }
    }
    Ok(())
}

/// Who is measured.
struct Sides<'a> {
    bench: &'a Bench,
    peers: Peers,
    binary: PathBuf,
    reference: Option<Reference>,
    /// With `--quick`, the server of each side that all turns have.
    kept: RefCell<Vec<(&'static str, Server)>>,
}

impl Sides<'_> {
    /// Turn by turn, a fresh server of each side.
    fn each(&self, mut turn: impl FnMut(&'static str, &Server) -> Result<()>) -> Result<()> {
        for _ in 0..self.bench.rounds() {
            for side in [OURS, REFERENCE] {
                if let Some(server) = self.server(side)? {
                    turn(side, &server)?;
                    self.keep(side, server);
                }
            }
        }
        Ok(())
    }

    /// A server of this side, if it is measured: a fresh one, or the one that was kept.
    fn server(&self, side: &'static str) -> Result<Option<Server>> {
        let kept = self.kept.borrow().iter().position(|(of, _)| *of == side);
        if let Some(at) = kept {
            return Ok(Some(self.kept.borrow_mut().swap_remove(at).1));
        }
        match (side, &self.reference) {
            (OURS, _) => Server::durable_setpoint(&self.binary).map(Some),
            (_, Some(reference)) => Server::durable_kube_apiserver(reference).map(Some),
            (_, None) => Ok(None),
        }
    }

    /// Keeps the server for later turns if it shall be quick: the peer takes seconds to start.
    fn keep(&self, side: &'static str, server: Server) {
        if self.bench.quick {
            self.kept.borrow_mut().push((side, server));
        }
    }
}
