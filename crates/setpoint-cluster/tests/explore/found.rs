//! What explorations found in the built-in controllers, and what was mended.

use setpoint_sim::{Effect, Fault, Match, Verb, replay};

use super::{account_and_token, service_of_pods};

/// An account that comes and goes while nothing is heard of accounts.
#[test]
fn a_token_goes_with_an_account_that_the_cache_never_saw() {
    let accounts = Match::any().verb(Verb::Watch).resource("serviceaccounts").client("serviceaccount-token");
    for effect in [Effect::HoldAfterEvents(1), Effect::HideAfterEvents(1), Effect::LagAfterEvents(1, 2)] {
        replay(account_and_token, [Fault::On(accounts.clone().nth(1), effect)]);
    }
}

/// The first slice of a Service is not seen for longer than the runtime waits for it.
#[test]
fn a_service_gets_no_second_slice_while_the_first_is_not_seen() {
    let slices =
        Match::any().verb(Verb::Watch).resource("endpointslices.discovery.k8s.io").client("endpointslice");
    replay(service_of_pods, [Fault::On(slices.nth(1), Effect::LagAfterEvents(1, 1))]);
}
