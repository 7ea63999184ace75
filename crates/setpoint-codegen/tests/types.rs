//! CRD YAML → Rust types → CRD YAML.

mod types {
    pub(crate) mod bad_input;
    pub(crate) mod round_trip;
}

#[rustfmt::skip]
#[path = "generated/kitchen_sink.rs"]
mod kitchen_sink;
