//! Who has the places of a server.
//!
//! What this file guarantees: clients by TCP, of whom anybody may come who reaches the port, and before it is known who they are, never
//! have all places where there is a socket of the owner's, too; and no other machine has more than half of theirs.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

/// Where a client comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// The socket that only its owner can connect to.
    Unix,
    /// This machine's address, or another one's.
    Tcp(IpAddr),
}

/// The places, and who has them.
#[derive(Debug)]
pub struct Places {
    most: usize,
    most_by_tcp: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_tcp: usize,
    /// Of other machines.
    by_address: HashMap<IpAddr, usize>,
}

/// A place, which is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    places: Arc<Places>,
    origin: Origin,
}

impl Places {
    /// So many; where clients come by both, a quarter of them is not for TCP.
    pub fn new(most: usize, has_unix: bool) -> Arc<Self> {
        let kept = if has_unix { most.div_ceil(4) } else { 0 };
        Arc::new(Self { most, most_by_tcp: most - kept, taken: Mutex::default() })
    }

    /// One for a client from there, if there is one left.
    pub fn take(self: &Arc<Self>, origin: Origin) -> Option<Place> {
        let mut taken = self.taken.lock();
        if taken.all >= self.most {
            return None;
        }
        if let Origin::Tcp(address) = origin {
            if taken.by_tcp >= self.most_by_tcp {
                return None;
            }
            if !address.is_loopback() {
                let of_address = taken.by_address.entry(address).or_default();
                if *of_address >= self.most_by_tcp.div_ceil(2) {
                    return None;
                }
                *of_address += 1;
            }
            taken.by_tcp += 1;
        }
        taken.all += 1;
        Some(Place { places: Arc::clone(self), origin })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.all -= 1;
        if let Origin::Tcp(address) = self.origin {
            taken.by_tcp -= 1;
            if let Some(of_address) = taken.by_address.get_mut(&address) {
                *of_address -= 1;
                if *of_address == 0 {
                    taken.by_address.remove(&address);
                }
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn address(last: u8) -> Origin {
        Origin::Tcp(IpAddr::from([192, 0, 2, last]))
    }

    /// As many as are to be had.
    fn all(places: &Arc<Places>, origin: Origin) -> Vec<Place> {
        std::iter::from_fn(|| places.take(origin)).collect()
    }

    #[test]
    fn another_machine_has_half_of_what_tcp_may_have_and_the_owner_the_rest() {
        let places = Places::new(16, true);
        let one = all(&places, address(1));
        let other = all(&places, address(2));
        assert_eq!((one.len(), other.len()), (6, 6));
        assert!(places.take(address(3)).is_none());
        assert!(places.take(Origin::Tcp(IpAddr::from([127, 0, 0, 1]))).is_none());
        assert_eq!(all(&places, Origin::Unix).len(), 4);
        drop(one);
        assert_eq!(all(&places, address(3)).len(), 6);
        drop(other);
        assert!(places.taken.lock().by_address.is_empty() && places.taken.lock().all == 0);
    }

    #[test]
    fn a_server_of_one_kind_has_all_places_for_it() {
        let here = Origin::Tcp(IpAddr::from([127, 0, 0, 1]));
        assert_eq!(all(&Places::new(5, false), here).len(), 5);
        let places = Places::new(5, true);
        assert_eq!(all(&places, Origin::Unix).len(), 5);
        assert_eq!(all(&places, here).len(), 3);
        // The owner's are never fewer than one.
        assert!(Places::new(1, true).take(here).is_none());
    }
}
