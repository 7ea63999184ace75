//! What can be played with, in a demo.

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};

/// Something to play with: it says what can be done, and does it.
pub trait Stage: Send + Sync + 'static {
    /// What can be done now, and how things are.
    fn scene(&self) -> Scene;

    /// How fast the time of what is played goes, if that is not the time of this process: 10 is ten times as fast, 0 stands
    /// still. Its facts have that time.
    fn rate(&self) -> f64 {
        1.0
    }

    /// Does something. The answer, or the reason why not, is shown.
    fn act(&self, act: Act) -> BoxFuture<'_, Result<String, String>>;
}

/// What can be done, and how things are.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scene {
    /// What is played.
    pub title: String,
    /// What can be done.
    pub buttons: Vec<Button>,
    /// Whether it is paused.
    pub is_paused: bool,
    /// How much time one hop of a change takes beyond what it takes anyway, in milliseconds: slow motion.
    pub slow_ms: u64,
    /// How fast time goes while it is not paused: 10 is ten times as fast as here. None if it cannot be set; else time can also
    /// jump to where something happens.
    pub speed: Option<f64>,
    /// How things are: a name and a value each.
    pub status: Vec<(String, String)>,
    /// The controllers that are played with: what they do is told beside the buttons.
    pub controllers: Vec<String>,
}

/// Something that can be done.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Button {
    /// What is sent back when it is pressed.
    pub act: String,
    /// What is on it.
    pub label: String,
    /// What it does, in a sentence.
    pub help: String,
    /// Under which heading it stands.
    pub group: String,
    /// If it takes a number: what is suggested.
    pub value: Option<i64>,
}

/// A button that was pressed.
#[derive(Clone, Debug, Deserialize)]
pub struct Act {
    /// Which one.
    pub act: String,
    /// The number, if it takes one.
    #[serde(default)]
    pub value: Option<i64>,
}
