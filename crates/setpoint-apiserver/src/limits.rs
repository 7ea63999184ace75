//! How much the server holds for its clients at the same time, and how they share it.
//!
//! There are places for requests and for watches, and room for bodies that are large. Whoever asks for some gets it while
//! they have less than is free. So somebody alone can have half of all; two who take all they can get have a third each;
//! and there is always something free for somebody who has nothing yet. Whoever finds none is told to come back: the greedy
//! ones first.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::authorize;
use crate::lane::Lane;
use crate::status::{Result, Status};
use crate::user::User;

/// Requests at the same time that are not watches.
const REQUESTS: usize = 600;
/// Bytes of all bodies that are not small, as they are sent: what is made of one can be ten times as large, and waits for
/// webhooks.
const BODIES: usize = 64 * 1024 * 1024;
/// A body of so many bytes is small: the number of requests bounds those.
pub(crate) const SMALL_BODY: usize = 64 * 1024;
/// Watches at the same time.
const WATCHES: usize = 20_000;

/// Places for requests and for watches, and room for bodies.
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
    Body,
}

const KINDS: usize = 3;

impl Default for Limits {
    fn default() -> Limits {
        Limits::new(REQUESTS, WATCHES, BODIES)
    }
}

impl Limits {
    pub(crate) fn new(requests: usize, watches: usize, bodies: usize) -> Limits {
        Limits { capacity: [requests, watches, bodies], taken: Arc::default() }
    }

    /// A place for a request.
    pub(crate) fn request(&self, user: &User) -> Result<Place> {
        let message = "too many requests at the same time, please try again later";
        let is_master = authorize::is_master(user);
        self.take(Kind::Request, 1, &user.name, is_master)
            .ok_or_else(|| Status::too_many_requests(message, 1))
    }

    /// A place for a watch.
    pub(crate) fn watch(&self, user: &User) -> Result<Place> {
        let message = "too many watches at the same time, please try again later";
        let is_master = authorize::is_master(user);
        self.take(Kind::Watch, 1, &user.name, is_master).ok_or_else(|| Status::too_many_requests(message, 1))
    }

    /// Room for the body of a request that has this place; none is needed if it is small.
    pub(crate) fn body(&self, place: &Place, bytes: usize) -> Result<Option<Place>> {
        if bytes <= SMALL_BODY {
            return Ok(None);
        }
        let message = "too many large requests at the same time, please try again later";
        let room = self.take(Kind::Body, bytes, &place.user, place.is_master());
        room.map(Some).ok_or_else(|| Status::too_many_requests(message, 1))
    }

    fn take(&self, kind: Kind, size: usize, user: &str, is_master: bool) -> Option<Place> {
        let mut taken = self.taken.lock();
        let free = self.capacity[kind as usize].saturating_sub(taken.all[kind as usize]);
        let own = taken.by_user.get_key_value(user);
        let has = own.map_or(0, |(_, share)| share.places[kind as usize]);
        // Administrators share with nobody, but even they cannot have more than there is.
        let others = if is_master { 0 } else { has };
        if size.saturating_add(others) > free {
            return None;
        }
        let name: Arc<str> = own.map_or_else(|| user.into(), |(name, _)| Arc::clone(name));
        taken.all[kind as usize] += size;
        let share = taken.by_user.entry(Arc::clone(&name)).or_default();
        share.places[kind as usize] += size;
        let lane = (!is_master).then(|| share.lane.clone());
        drop(taken);
        Some(Place { taken: Arc::clone(&self.taken), kind, size, user: name, lane })
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

/// Somebody's place, or room; free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    taken: Arc<Mutex<Taken>>,
    kind: Kind,
    size: usize,
    user: Arc<str>,
    lane: Option<Lane>,
}

impl Place {
    /// The lane of all that its user does at the same time; administrators have none.
    pub(crate) fn lane(&self) -> Option<&Lane> {
        self.lane.as_ref()
    }

    fn is_master(&self) -> bool {
        self.lane.is_none()
    }

    /// Gives back what is not needed beyond `size`.
    pub(crate) fn shrink(&mut self, size: usize) {
        self.give_back(self.size.saturating_sub(size));
    }

    fn give_back(&mut self, size: usize) {
        self.size -= size;
        let mut taken = self.taken.lock();
        taken.all[self.kind as usize] -= size;
        if let Some(share) = taken.by_user.get_mut(&self.user) {
            share.places[self.kind as usize] -= size;
            if share.places == [0; KINDS] {
                taken.by_user.remove(&self.user);
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.give_back(self.size);
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
        let limits = Limits::new(1, 0, 0);
        let place = limits.request(&user("a")).unwrap();
        let refused = limits.request(&user("b")).unwrap_err();
        assert_eq!((refused.code.as_u16(), refused.details.unwrap().retry_after_seconds), (429, 1));
        drop(place);
        assert!(limits.request(&user("b")).is_ok());
        assert_eq!(limits.watch(&user("b")).unwrap_err().code, 429);
    }

    #[test]
    fn a_greedy_user_leaves_room_for_others() {
        let limits = Limits::new(60, 0, 0);
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
        let limits = Limits::new(10, 0, 0);
        let all = fill(&limits, &User::admin());
        assert_eq!(all.len(), 10);
        assert!(limits.request(&user("b")).is_err());
        drop(all);
        assert!(limits.taken.lock().by_user.is_empty());
        assert_eq!(fill(&limits, &user("b")).len(), 5);
    }

    #[test]
    fn large_bodies_share_their_room_as_requests_share_places() {
        let limits = Limits::new(60, 0, 10 * SMALL_BODY);
        let [greedy, modest] = ["greedy", "modest"].map(|name| limits.request(&user(name)).unwrap());
        assert!(limits.body(&greedy, SMALL_BODY).unwrap().is_none());
        let mut large = limits.body(&greedy, 5 * SMALL_BODY).unwrap().unwrap();
        assert_eq!(limits.body(&greedy, 2 * SMALL_BODY).unwrap_err().code, 429);
        let other = limits.body(&modest, 2 * SMALL_BODY).unwrap();
        large.shrink(2 * SMALL_BODY);
        assert!(limits.body(&greedy, 4 * SMALL_BODY).unwrap().is_some());
        drop((large, other));
        assert_eq!(limits.taken.lock().all, [2, 0, 0]);
    }
}
