//! Where a byte lies on a disk: zones, tracks, heads, and the angle at which it passes the head.
//!
//! Addresses run through all heads of a cylinder and then to the next one, from the outside in. Outer tracks hold more:
//! the disk is cut into zones of equal numbers of cylinders with one track length each. The first sector of each track
//! is skewed against the one before by the time that a switch of head or cylinder takes. A sequential transfer then
//! loses no turn: its rate is track / (turn + skew).

use crate::Nanos;

/// Parameters of a geometry.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GeometryOptions {
    /// Time of one turn.
    pub turn: Nanos,
    /// Tracks on each surface.
    pub cylinders: u64,
    /// Surfaces.
    pub heads: u64,
    /// Zones of equal numbers of cylinders.
    pub zones: u64,
    /// Bytes on an outermost track.
    pub outer_track: u64,
    /// Mean bytes per track.
    pub mean_track: u64,
    /// Bytes on an innermost track.
    pub inner_track: u64,
    /// Skew to the next track of the same cylinder.
    pub head_skew: Nanos,
    /// Skew to the first track of the next cylinder.
    pub cylinder_skew: Nanos,
}

#[derive(Debug, Clone, Copy)]
struct Zone {
    first_cylinder: u64,
    first_address: u64,
    track: u64,
}

/// The map from address to place.
#[derive(Debug, Clone)]
pub struct Geometry {
    options: GeometryOptions,
    zones: Vec<Zone>,
    capacity: u64,
}

/// Where a byte lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskAddress {
    pub cylinder: u64,
    pub head: u64,
    /// Angle of the byte, as time after the index mark.
    pub angle: Nanos,
    /// Bytes of this track from here on.
    pub left: u64,
    /// Bytes of the whole track.
    pub track: u64,
}

/// a · b mod n.
fn product_mod(a: u64, b: u64, n: u64) -> u64 {
    match a.checked_mul(b) {
        Some(product) => product % n,
        None => (a as u128 * b as u128 % n as u128) as u64,
    }
}

impl Geometry {
    /// Lays out the zones. Counts of zero are taken as one.
    pub fn new(mut options: GeometryOptions) -> Geometry {
        options.turn = options.turn.max(1);
        options.cylinders = options.cylinders.max(1);
        options.heads = options.heads.max(1);
        options.zones = options.zones.clamp(1, options.cylinders);
        let (outer, inner) = (options.outer_track as f64, options.inner_track as f64);
        // A parabola through both ends whose mean is the published one: ∫x(1−x) = 1/6.
        let bend = 6.0 * (options.mean_track as f64 - (outer + inner) / 2.0);
        let mut zones = Vec::with_capacity(options.zones as usize);
        let mut address = 0;
        for i in 0..options.zones {
            let x = (i as f64 + 0.5) / options.zones as f64;
            let track = outer + (inner - outer) * x + bend * x * (1.0 - x);
            let track = (track.max(512.0) as u64) / 512 * 512;
            let first_cylinder = options.cylinders * i / options.zones;
            let end = options.cylinders * (i + 1) / options.zones;
            zones.push(Zone {
                first_cylinder,
                first_address: address,
                track,
            });
            address += (end - first_cylinder) * options.heads * track;
        }
        Geometry {
            options,
            zones,
            capacity: address,
        }
    }

    /// Bytes of all tracks.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Time of one turn.
    pub fn turn(&self) -> Nanos {
        self.options.turn
    }

    /// Tracks that a full stroke crosses.
    pub fn stroke(&self) -> u64 {
        self.options.cylinders - 1
    }

    pub(crate) fn place(&self, address: u64) -> DiskAddress {
        let address = address.min(self.capacity - 1);
        let zone = &self.zones[self.zones.partition_point(|z| z.first_address <= address) - 1];
        let within = address - zone.first_address;
        let track = within / zone.track;
        let offset = within % zone.track;
        let cylinder = zone.first_cylinder + track / self.options.heads;
        let head = track % self.options.heads;
        let head_switches = cylinder * (self.options.heads - 1) + head;
        let turn = self.options.turn;
        let skew = product_mod(head_switches, self.options.head_skew, turn)
            + product_mod(cylinder, self.options.cylinder_skew, turn);
        let angle = (skew + self.span(offset, zone.track)) % turn;
        DiskAddress {
            cylinder,
            head,
            angle,
            left: zone.track - offset,
            track: zone.track,
        }
    }

    fn span(&self, bytes: u64, track: u64) -> Nanos {
        let turn = self.options.turn;
        match bytes.checked_mul(turn) {
            Some(product) => product / track,
            None => (bytes as u128 * turn as u128 / track as u128) as Nanos,
        }
    }

    /// How long the platter turns until `place` passes the head, from `now` on.
    pub(crate) fn rotation(&self, now: Nanos, place: &DiskAddress) -> Nanos {
        let turn = self.options.turn;
        let angle = now % turn;
        if place.angle >= angle {
            place.angle - angle
        } else {
            place.angle + turn - angle
        }
    }

    /// The time that `bytes` from `address` on take under the head, switches included.
    pub(crate) fn transfer(&self, address: u64, bytes: u64) -> Nanos {
        let mut time = 0;
        let (mut at, mut left) = (address, bytes);
        while left > 0 {
            let place = self.place(at);
            if left <= place.left || at >= self.capacity {
                return time + self.span(left, place.track);
            }
            time += self.span(place.left, place.track) + self.switch(&place);
            at += place.left;
            left -= place.left;
        }
        time
    }

    /// The bytes that pass the head in `time`, from the moment at which `address` does; at most `most`.
    pub fn passed(&self, address: u64, time: Nanos, most: u64) -> u64 {
        let (mut bytes, mut left) = (0, time);
        while bytes < most {
            let place = self.place(address + bytes);
            let rest = self.span(place.left, place.track);
            if left < rest || address + bytes >= self.capacity {
                bytes += (left as u128 * place.track as u128 / self.options.turn as u128) as u64;
                break;
            }
            bytes += place.left;
            let gone = rest + self.switch(&place);
            if left < gone {
                break;
            }
            left -= gone;
        }
        bytes.min(most)
    }

    /// The bytes from `address` to the end of its track, and when the next track's first byte passes the head after it.
    pub(crate) fn rest_of_track(&self, address: u64) -> (u64, Nanos) {
        let place = self.place(address);
        let time = self.span(place.left, place.track) + self.switch(&place);
        (place.left, time)
    }

    fn switch(&self, place: &DiskAddress) -> Nanos {
        if place.head + 1 < self.options.heads {
            self.options.head_skew
        } else {
            self.options.cylinder_skew
        }
    }

    /// The time between heads of one cylinder.
    pub(crate) fn head_switch(&self) -> Nanos {
        self.options.head_skew
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Geometry {
        Geometry::new(GeometryOptions {
            turn: 8_333_333,
            cylinders: 1000,
            heads: 3,
            zones: 8,
            outer_track: 1 << 20,
            mean_track: 800 << 10,
            inner_track: 600 << 10,
            head_skew: 800_000,
            cylinder_skew: 900_000,
        })
    }

    #[test]
    fn a_sequential_transfer_never_loses_a_turn() {
        let g = small();
        let mut at = 0;
        let mut now = 0;
        while at < 64 << 20 {
            let wait = g.rotation(now, &g.place(at));
            // Rounding may put the head just behind the sector, which would show as a wait of a whole turn.
            assert!(wait < 1_000 || g.turn() - wait < 1_000, "{at}: {wait}");
            now += g.transfer(at, 65_536);
            at += 65_536;
            let place = g.place(at);
            if place.left == place.track {
                let before = g.place(at - 1);
                now += g.switch(&before);
            }
        }
    }

    #[test]
    fn zones_cover_the_disk_and_passed_inverts_transfer() {
        let g = small();
        let mean = g.capacity() as f64 / 3000.0;
        assert!((mean / (800.0 * 1024.0) - 1.0).abs() < 0.01, "{mean}");
        for address in [0, 5 << 20, g.capacity() / 2, g.capacity() - (8 << 20)] {
            for bytes in [512, 4096, 1 << 20, 5 << 20] {
                let t = g.transfer(address, bytes);
                let back = g.passed(address, t + 10, u64::MAX);
                assert!(back.abs_diff(bytes) < 16, "{address} {bytes} {back}");
            }
        }
        assert_eq!(g.place(g.capacity() + 5).cylinder, 999);
    }
}
