//! Networks that services get their addresses from: one, or one of each family.

use serde_json::Value;

use super::at::{At, items};
use super::formats::{self, Cidr};

pub(super) fn validate(range: &At, old: Option<&Value>) {
    let spec = range.field("spec");
    let cidrs = spec.field("cidrs");
    let Some(old) = old else { return validate_spec(&spec) };
    let old = &old["spec"]["cidrs"];
    match (items(old).len(), cidrs.len()) {
        (before, now) if before == now => {
            cidrs.items().zip(items(old)).for_each(|(cidr, old)| cidr.immutable(old));
        }
        // A network of the other family may join.
        (1, 2) => {
            cidrs.index(0).immutable(&old[0]);
            validate_spec(&spec);
        }
        _ => cidrs.immutable(old),
    }
}

fn validate_spec(spec: &At) {
    let cidrs = spec.field("cidrs");
    match cidrs.len() {
        0 => return cidrs.required("at least one CIDR required"),
        1 | 2 => {}
        _ => {
            return cidrs
                .invalid_as(spec.in_go(&[("CIDRs", "cidrs", "null")]), "may only hold up to 2 values");
        }
    }
    cidrs.items().for_each(|cidr| cidr.has_form(formats::canonical_cidr));
    let families: Vec<_> = cidrs.texts().map(|text| Cidr::parse_sloppy(text).map(Cidr::is_ipv4)).collect();
    if let [Some(one), Some(other)] = families[..]
        && one == other
    {
        cidrs.invalid(
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
}
