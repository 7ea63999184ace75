//! What is a Pod's own, and a text with places for it.

use serde_json::Value;

const COUNT: usize = 10;

/// The texts that differ from Pod to Pod: its name, those of its ReplicaSet and instance, its namespace, its uid and its
/// owner's, its node, the addresses of both, its container.
pub(super) struct Own([String; COUNT]);

impl Own {
    pub(super) fn of(n: usize) -> Own {
        let (set, node) = (n / 10, n % 997);
        let uid = |salt: usize| format!("{:08x}-0000-4000-8000-{:012x}", n * 31 + salt, n);
        Own([
            format!("web-{set:05}-7d9c{:06x}", n * 2_654_435 % 0xff_ffff),
            format!("web-{set:05}-7d9c"),
            format!("web-{set:05}"),
            format!("team-{:03}", set % 50),
            uid(0),
            uid(7),
            format!("node-{node:04}"),
            format!("192.168.{}.{}", node >> 8, node & 255),
            format!("10.{}.{}.{}", n >> 16 & 255, n >> 8 & 255, n & 255),
            format!("containerd://{n:064x}"),
        ])
    }

    /// One after another, as they are named above.
    pub(super) fn texts(&self) -> [&str; COUNT] {
        self.0.each_ref().map(String::as_str)
    }
}

/// The text of a Pod in pieces: what all have, each followed by what is its own.
pub(super) struct Template {
    pieces: Vec<(String, usize)>,
    end: String,
}

impl Template {
    pub(super) fn new(pod: impl FnOnce(&Own) -> Value) -> Template {
        let own = Own(std::array::from_fn(|place| format!("@{place}@")));
        let text = pod(&own).to_string();
        let mut rest = text.as_str();
        let mut pieces = Vec::new();
        let next = |rest: &str| {
            let found = own.0.iter().enumerate().filter_map(|(place, own)| Some((rest.find(own)?, place)));
            found.min()
        };
        while let Some((at, place)) = next(rest) {
            pieces.push((rest[..at].to_owned(), place));
            rest = &rest[at + own.0[place].len()..];
        }
        Template { pieces, end: rest.to_owned() }
    }

    pub(super) fn text(&self, own: &Own) -> String {
        let mut text = String::with_capacity(6 << 10);
        for (piece, place) in &self.pieces {
            text.push_str(piece);
            text.push_str(&own.0[*place]);
        }
        text.push_str(&self.end);
        text
    }
}
