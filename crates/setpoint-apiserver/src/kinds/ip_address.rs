//! Addresses that somebody has taken: the name is the address, so that nobody else can take it.

use std::net::IpAddr;

use super::at::At;
use crate::field_error::Shown;

pub(super) fn validate_create(address: &At) {
    let metadata = address.field("metadata");
    let name = metadata.field("name");
    match name.text().parse::<IpAddr>() {
        Ok(parsed) if parsed.to_string() == name.text() => {}
        Ok(_) => name.invalid_text("must be a canonical form IP address"),
        Err(_) => {
            name.invalid_text(format!("ParseAddr({}): unable to parse IP", Shown::from(name.text())));
        }
    }
}
