//! The mechanics of a drive: seek, rotation and transfer, as expected values.

/// The properties of a drive.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Drive {
    /// Its size, which distances are measured against. A model of scaled-down data may have a
    /// drive as much smaller, so that data lies as far apart.
    pub capacity_bytes: u64,
    /// Seek to the next track.
    pub shortest_seek_ns: u64,
    /// Seek between two random places, on average.
    pub average_seek_ns: u64,
    /// One turn of the platters.
    pub rotation_ns: u64,
    /// Bytes a second once the head is there.
    pub bytes_per_s: u64,
}

/// The drives of the `CodFS` thesis, chapter 5: Seagate ST1000DM003, 1 TB, 7200 rpm. Seeks and rotation
/// are the data sheet's (8.5 ms on average for reads, 1 ms to the next track); the rate is the 144 MB/s
/// that the thesis measured (section 5.1).
pub const ST1000DM003: Drive = Drive {
    capacity_bytes: 1_000_000_000_000,
    shortest_seek_ns: 1_000_000,
    average_seek_ns: 8_500_000,
    rotation_ns: 8_333_333,
    bytes_per_s: 144_000_000,
};

/// The mean of the square root of the distance of two random places on a line of length 1.
const MEAN_ROOT_DISTANCE: f64 = 8.0 / 15.0;

impl Drive {
    /// The time of a seek: it grows with the square root of the distance, which is what constant
    /// acceleration and braking take.
    fn seek_ns(&self, from: u64, to: u64) -> f64 {
        let distance = from.abs_diff(to) as f64 / self.capacity_bytes as f64;
        let shortest = self.shortest_seek_ns as f64;
        let span = (self.average_seek_ns as f64 - shortest) / MEAN_ROOT_DISTANCE;
        shortest + span * distance.min(1.0).sqrt()
    }

    fn transfer_ns(&self, bytes: u64) -> f64 {
        bytes as f64 * 1e9 / self.bytes_per_s as f64
    }
}

/// The head: where it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    drive: Drive,
    address: u64,
}

impl Head {
    pub(super) const fn new(drive: Drive) -> Self {
        Self { drive, address: 0 }
    }

    /// The address at which a transfer costs no positioning.
    pub(super) const fn address(&self) -> u64 {
        self.address
    }

    /// Transfers bytes at an address: the time in nanoseconds, and whether the head was positioned.
    pub(super) fn transfer(&mut self, address: u64, length: u64) -> (u64, bool) {
        let drive = &self.drive;
        let positioned = drive.seek_ns(self.address, address) + drive.rotation_ns as f64 / 2.0;
        let passed = match address.checked_sub(self.address) {
            Some(gap) => drive.transfer_ns(gap),
            None => f64::INFINITY,
        };
        let arrival = positioned.min(passed);
        let time_ns = arrival + drive.transfer_ns(length);
        self.address = address + length;
        (time_ns.round() as u64, positioned < passed)
    }
}
