//! What a modelled device is, with its options.
use crate::disk::DiskOptions;
use crate::nand::NandOptions;
use crate::raid::RaidOptions;
use crate::ssd::SsdOptions;

/// What kind of device, with all its options.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // One per device.
pub enum DeviceKind {
    /// A hard disk.
    Disk(DiskOptions),
    /// RAID 0 of equal disks with unsynchronised spindles.
    Raid {
        /// How many.
        disks: usize,
        /// Each of them.
        member: DiskOptions,
        /// The controller.
        array: RaidOptions,
    },
    /// Flash at block level, by its measured behaviour.
    Ssd(SsdOptions),
    /// NAND flash, or other memory on its channels, page by page.
    Nand(Box<NandOptions>),
}
