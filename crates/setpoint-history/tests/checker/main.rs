//! The checker on histories that are written by hand, good and bad, and on those of a model.

#![allow(missing_docs)] // rustdoc does not read tests

mod lists;
mod model;
mod order;
mod story;
mod watches;
mod writes;
