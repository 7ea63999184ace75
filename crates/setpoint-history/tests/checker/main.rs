//! The checker on histories that are written by hand, good and bad, and on those of a model.

#![allow(missing_docs)] // rustdoc does not read tests

mod lists;
mod model;
mod order;
mod selection;
mod served;
mod story;
mod sweeps;
mod watches;
mod writes;
