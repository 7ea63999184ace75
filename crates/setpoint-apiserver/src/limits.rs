//! How much the server holds for its clients at the same time, and how they share it.
//!
//! There are places for requests and for watches. Whoever asks for one gets it while they have fewer places than are
//! free. So somebody alone can have half of all; two who take all they can get have a third each; and there are always
//! free places for somebody who has none yet. Whoever finds none is told to come back: the greedy ones first.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::authorize;
use crate::lane::Lane;
use crate::status::{Result, Status};
use crate::user::User;

/// Requests at the same time that are not watches. Each may hold a body of a few MiB.
const REQUESTS: usize = 600;
/// Watches at the same time.
const WATCHES: usize = 20_000;

/// Places for requests and for watches.
#[derive(Debug)]
pub(crate) struct Limits {
    capacity: [usize; KINDS],
    taken: Arc<Mutex<Taken>>,
}

/// What places there are.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Request,
    Watch,
}

const KINDS: usize = 2;

impl Default for Limits {
    fn default() -> Limits {
        Limits::new(REQUESTS, WATCHES)
    }
}

impl Limits {
    pub(crate) fn new(requests: usize, watches: usize) -> Limits {
        Limits { capacity: [requests, watches], taken: Arc::default() }
    }

    /// A place for a request.
    pub(crate) fn request(&self, user: &User) -> Result<Place> {
        let message = "too many requests at the same time, please try again later";
        self.take(Kind::Request, user).ok_or_else(|| Status::too_many_requests(message, 1))
    }

    /// A place for a watch.
    pub(crate) fn watch(&self, user: &User) -> Result<Place> {
        let message = "too many watches at the same time, please try again later";
        self.take(Kind::Watch, user).ok_or_else(|| Status::too_many_requests(message, 1))
    }

    fn take(&self, kind: Kind, user: &User) -> Option<Place> {
        let mut taken = self.taken.lock();
        let free = self.capacity[kind as usize].saturating_sub(taken.all[kind as usize]);
        let own = taken.by_user.get_key_value(user.name.as_str());
        let has = own.map_or(0, |(_, share)| share.places[kind as usize]);
        // Administrators share with nobody, but even they cannot have more than there is.
        let is_master = authorize::is_master(user);
        let is_fair = has < free || is_master;
        if free == 0 || !is_fair {
            return None;
        }
        let name: Arc<str> = own.map_or_else(|| user.name.as_str().into(), |(name, _)| Arc::clone(name));
        taken.all[kind as usize] += 1;
        let share = taken.by_user.entry(Arc::clone(&name)).or_default();
        share.places[kind as usize] += 1;
        let lane = (!is_master).then(|| share.lane.clone());
        drop(taken);
        Some(Place { taken: Arc::clone(&self.taken), kind, user: name, lane })
    }
}

#[derive(Debug, Default)]
struct Taken {
    all: [usize; KINDS],
    by_user: BTreeMap<Arc<str>, Share>,
}

/// What one user has. Requests and watches go through one lane.
#[derive(Debug, Default)]
struct Share {
    places: [usize; KINDS],
    lane: Lane,
}

/// Somebody's place; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<Mutex<Taken>>,
    kind: Kind,
    user: Arc<str>,
    lane: Option<Lane>,
}

impl Place {
    /// The lane of all that its user does at the same time; administrators have none.
    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.taken.lock();
        taken.all[self.kind as usize] -= 1;
        if let Some(share) = taken.by_user.get_mut(&self.user) {
            share.places[self.kind as usize] -= 1;
            if share.places == [0; KINDS] {
                taken.by_user.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(name: &str) -> User {
        User::new(name, [""; 0])
    }

    /// Takes places until there are no more for this user.
    fn fill(limits: &Limits, user: &User) -> Vec<Place> {
        std::iter::from_fn(|| limits.request(user).ok()).collect()
    }

    #[test]
    fn whoever_finds_no_place_is_told_when_to_come_back() {
        let limits = Limits::new(1, 0);
        let place = limits.request(&user("a")).unwrap();
        let refused = limits.request(&user("b")).unwrap_err();
        assert_eq!((refused.code.as_u16(), refused.details.unwrap().retry_after_seconds), (429, 1));
        drop(place);
        assert!(limits.request(&user("b")).is_ok());
        assert_eq!(limits.watch(&user("b")).unwrap_err().code, 429);
    }

    #[test]
    fn a_greedy_user_leaves_room_for_others() {
        let limits = Limits::new(60, 0);
        let first = fill(&limits, &user("greedy"));
        assert_eq!(first.len(), 30);
        let second = fill(&limits, &user("also greedy"));
        assert_eq!(second.len(), 15);
        let modest = fill(&limits, &user("modest"));
        assert!(!modest.is_empty());
        // As places come free, the greedy ones even out.
        drop(first);
        assert!(fill(&limits, &user("greedy")).len() >= 15);
    }

    #[test]
    fn administrators_can_have_everything_and_places_are_given_back() {
        let limits = Limits::new(10, 0);
        let all = fill(&limits, &User::admin());
        assert_eq!(all.len(), 10);
        assert!(limits.request(&user("b")).is_err());
        drop(all);
        assert!(limits.taken.lock().by_user.is_empty());
        assert_eq!(fill(&limits, &user("b")).len(), 5);
    }
}
