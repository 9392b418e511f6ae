//! Devices by name, with the figures of their data sheets or of the papers that used them.

use crate::disk::{Disk, DiskOptions};
use crate::geometry::{Geometry, GeometryOptions};
use crate::kind::DeviceKind;
use crate::nand::{
    AllocationOrder, Collect, Condition, Ftl, Multiplane, NandGeometry, NandOptions, NandTiming,
    Slabs, Victim,
};
use crate::raid::RaidOptions;
use crate::ssd::SsdOptions;
use crate::{Nanos, Queueing, SeekCurve};

const MICRO: Nanos = 1_000;
const MEGA: u64 = 1_000_000;
/// One turn at 7200 and at 15,000 per minute.
const TURN_7200: Nanos = 8_333_333;
const TURN_15000: Nanos = 4_000_000;

/// Hard disks with published seek points.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardDisk {
    /// Seagate Constellation ST9500430SS, 7200 rpm SAS.
    St9500430ss,
    /// Seagate Constellation.2 ST9500620SS, 7200 rpm SAS.
    St9500620ss,
}

/// Names and what they are, for help texts.
pub(crate) const NAMES: &[(&str, &str)] = &[
    ("hdd", "ST9500430SS, 7200 rpm SAS (same as st9500430ss)"),
    ("st9500620ss", "ST9500620SS, 7200 rpm SAS"),
    (
        "barracuda",
        "150 GB SATA disk, 7200 rpm, of a small cluster's data servers",
    ),
    (
        "sata80",
        "80 GB SATA disk, 7200 rpm, of a small cluster's data servers",
    ),
    (
        "atlas-iv",
        "9 GB SCSI disk, 7200 rpm, of the Chiba City cluster",
    ),
    ("pastel", "250 GB SATA disk of the Pastel cluster"),
    ("graphene", "320 GB SATA disk of the Graphene cluster"),
    (
        "suno",
        "RAID 0 of two 15,000 rpm SAS disks of the Suno cluster",
    ),
    ("edel", "64 GB flash of the Edel cluster"),
    ("hdd1", "a hard disk, 84 MB/s, files spread over it"),
    ("hdd2", "an old hard disk, 40 MB/s, files spread over it"),
    ("ssd1", "flash with 410 MiB/s of sequential 32 KiB reads"),
    ("ssd2", "flash with 264 MiB/s of sequential 32 KiB reads"),
    (
        "raid",
        "RAID 0 of two ST9500620SS of a Darwin server (same as darwin-raid)",
    ),
    (
        "ssd",
        "120 GB flash of a Darwin server (same as darwin-ssd)",
    ),
    (
        "nand",
        "MLC flash page by page: channels, dies, planes, map, collection (docs/understand/flash.md)",
    ),
    ("nand-16k", "MLC flash of 16 KiB pages, page by page"),
    ("nand-slc", "SLC flash, page by page"),
    ("nand-tlc", "TLC flash, page by page"),
    ("rram", "resistive memory in slabs on fast channels"),
];

pub(crate) fn by_name(name: &str) -> Option<DeviceKind> {
    Some(match name {
        "hdd" | "st9500430ss" => DeviceKind::Disk(hard_disk(HardDisk::St9500430ss)),
        "st9500620ss" => DeviceKind::Disk(hard_disk(HardDisk::St9500620ss)),
        "sata80" => DeviceKind::Disk(sata80()),
        "barracuda" => DeviceKind::Disk(barracuda()),
        "atlas-iv" => DeviceKind::Disk(atlas_iv()),
        "pastel" => DeviceKind::Disk(pastel()),
        "graphene" => DeviceKind::Disk(graphene()),
        "suno" => suno(),
        "edel" => DeviceKind::Ssd(edel()),
        "hdd1" => DeviceKind::Disk(hdd1()),
        "hdd2" => DeviceKind::Disk(hdd2()),
        "ssd1" => DeviceKind::Ssd(ssd1()),
        "ssd2" => DeviceKind::Ssd(ssd2()),
        "raid" | "darwin-raid" => darwin_raid(),
        "ssd" | "darwin-ssd" => DeviceKind::Ssd(darwin_ssd()),
        "nand" => DeviceKind::Nand(Box::new(nand())),
        "nand-16k" => DeviceKind::Nand(Box::new(nand_16k())),
        "nand-slc" => DeviceKind::Nand(Box::new(nand_slc())),
        "nand-tlc" => DeviceKind::Nand(Box::new(nand_tlc())),
        "rram" => DeviceKind::Nand(Box::new(rram())),
        _ => return None,
    })
}

struct Sheet {
    turn: Nanos,
    /// Single, average and full seek in µs.
    read: [u64; 3],
    write: [u64; 3],
    cylinders: u64,
    heads: u64,
    mean_track: u64,
    /// Media rates in bytes per second at the outer and the inner edge.
    outer: u64,
    inner: u64,
    skew: Nanos,
}

impl Sheet {
    fn disk(&self) -> DiskOptions {
        let curve = |p: [u64; 3]| SeekCurve::from_points(p[0] * MICRO, p[1] * MICRO, p[2] * MICRO);
        let track = |rate: u64| (rate as u128 * self.turn as u128 / 1_000_000_000) as u64;
        DiskOptions {
            geometry: Geometry::new(GeometryOptions {
                turn: self.turn,
                cylinders: self.cylinders,
                heads: self.heads,
                zones: 16,
                outer_track: track(self.outer),
                mean_track: self.mean_track,
                inner_track: track(self.inner),
                head_skew: self.skew,
                cylinder_skew: self.skew,
            }),
            read_seek: curve(self.read),
            write_seek: curve(self.write),
            overhead: 200 * MICRO,
            queueing: Queueing::Sptf,
            depth: 32,
            patience: 2_000_000_000,
            bus: 600 * MEGA,
            read_ahead: 512 << 10,
            adaptive: false,
            segments: 16,
            write_cache: 0,
            write_runs: 0,
            phase: 0,
        }
    }
}

/// The options of a disk with published figures. Server disks come with the write cache off.
pub fn hard_disk(which: HardDisk) -> DiskOptions {
    let sheet = match which {
        HardDisk::St9500430ss => Sheet {
            turn: TURN_7200,
            read: [500, 8_000, 17_350],
            write: [700, 8_400, 17_820],
            cylinders: 123_148,
            heads: 6,
            mean_track: 890_823,
            outer: 142 * MEGA,
            inner: 75 * MEGA,
            // Implied by the published sequential rate: 890,823 B / (turn + skew) = 97.5 MB/s.
            skew: 800 * MICRO,
        },
        HardDisk::St9500620ss => Sheet {
            turn: TURN_7200,
            read: [230, 7_500, 17_060],
            write: [440, 8_500, 18_080],
            cylinders: 165_800,
            heads: 4,
            mean_track: 732_998,
            outer: 163 * MEGA,
            inner: 84 * MEGA,
            skew: 800 * MICRO,
        },
    };
    sheet.disk()
}

impl HardDisk {
    /// A disk of this kind at rest.
    pub fn build(self) -> Disk {
        Disk::new(hard_disk(self))
    }
}

/// An 80 GB SATA disk at 7200 rpm, on one platter: the data servers of RS chapter 4, which does not name the disk. The
/// figures are typical of data sheets (47 MB/s sustained at the outer edge). Its read-ahead follows sequential reads
/// only: in RS figure 4.2, collective calls pay a part of a turn for each request out of order.
fn sata80() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [800, 8_500, 18_000],
        write: [1_000, 9_500, 19_000],
        cylinders: 111_000,
        heads: 2,
        mean_track: 360_000,
        outer: 52 * MEGA,
        inner: 30 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        bus: 150 * MEGA,
        adaptive: true,
        write_cache: 8 << 20,
        write_runs: 16,
        ..sheet.disk()
    }
}

/// Seagate Barracuda 7200.10, 150 GB, SATA: data servers of RS chapter 5. The figures are those of its data sheet. The
/// drive's own read-ahead is not published: it is set to the kernel's read-ahead window.
fn barracuda() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [800, 8_500, 16_000],
        write: [1_000, 9_500, 17_000],
        cylinders: 155_000,
        heads: 2,
        mean_track: 483_000,
        outer: 78 * MEGA,
        inner: 38 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        bus: 300 * MEGA,
        read_ahead: 128 << 10,
        write_cache: 8 << 20,
        write_runs: 16,
        ..sheet.disk()
    }
}

/// Quantum Atlas IV, 9 GB, Ultra2 SCSI: data servers of DT. Figures of its data sheet.
fn atlas_iv() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [900, 6_900, 14_500],
        write: [1_100, 7_700, 15_300],
        cylinders: 7_790,
        heads: 8,
        mean_track: 146_000,
        outer: 21 * MEGA,
        inner: 13 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        bus: 80 * MEGA,
        read_ahead: 256 << 10,
        segments: 8,
        ..sheet.disk()
    }
}

/// Pastel: Hitachi HDS7225SC, 250 GB, SATA 1.5 Gb/s. The write cache is as deep as the published write ratio implies.
fn pastel() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [1_100, 8_500, 15_100],
        write: [1_300, 9_500, 16_100],
        cylinders: 100_000,
        heads: 6,
        mean_track: 416_667,
        outer: 67 * MEGA,
        inner: 33 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        overhead: 70 * MICRO,
        bus: 150 * MEGA,
        write_cache: 4 << 20,
        write_runs: 8,
        ..sheet.disk()
    }
}

/// Graphene: Hitachi HDS72103, 320 GB, SATA 3 Gb/s.
fn graphene() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [800, 8_500, 15_500],
        write: [1_000, 9_500, 16_500],
        cylinders: 190_000,
        heads: 2,
        mean_track: 842_105,
        outer: 135 * MEGA,
        inner: 67 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        overhead: 110 * MICRO,
        bus: 300 * MEGA,
        write_cache: 8 << 20,
        write_runs: 16,
        ..sheet.disk()
    }
}

/// Suno: two Seagate ST9300653SS, 300 GB at 15,000 rpm, SAS, RAID 0.
fn suno() -> DeviceKind {
    let sheet = Sheet {
        turn: TURN_15000,
        read: [200, 2_600, 5_200],
        write: [400, 2_900, 5_600],
        cylinders: 75_000,
        heads: 4,
        mean_track: 1_000_000,
        outer: 265 * MEGA,
        inner: 190 * MEGA,
        skew: 500 * MICRO,
    };
    let member = DiskOptions {
        overhead: 60 * MICRO,
        bus: 300 * MEGA,
        write_cache: 8 << 20,
        write_runs: 4,
        ..sheet.disk()
    };
    DeviceKind::Raid {
        disks: 2,
        member,
        array: RaidOptions {
            unit: 64 << 10,
            read_bus: 300 * MEGA,
            write_bus: 300 * MEGA,
            overhead: 10 * MICRO,
        },
    }
}

/// Edel: Micron C400, 64 GB, SATA 1.5 Gb/s, with spare room. Times are per 8 KiB, several planes together.
fn edel() -> SsdOptions {
    SsdOptions {
        capacity: 64_000_000_000,
        units: 16,
        interleave: 64 << 10,
        page: 8 << 10,
        block_pages: 256,
        read: 115 * MICRO,
        program: 86 * MICRO,
        erase: 3_000 * MICRO,
        overhead: 30 * MICRO,
        read_bus: 150 * MEGA,
        write_bus: 300 * MEGA,
        buffer: 16 << 10,
        prefetch: 512 << 10,
        over_provisioning: 0.25,
        fresh: 64_000_000_000,
    }
}

/// The disks of a Darwin data server: two 500 GB 7200 rpm SAS disks on a hardware RAID 0 controller. The controller
/// gives each of them as many commands as it takes. Of the two disks with published curves this one comes near the
/// published random reads.
fn darwin_raid() -> DeviceKind {
    let member = DiskOptions {
        overhead: 50 * MICRO,
        write_cache: 4 << 20,
        write_runs: 6,
        depth: 256,
        ..hard_disk(HardDisk::St9500620ss)
    };
    DeviceKind::Raid {
        disks: 2,
        member,
        array: RaidOptions {
            unit: 64 << 10,
            read_bus: 172 * MEGA,
            write_bus: 162 * MEGA,
            overhead: 20 * MICRO,
        },
    }
}

/// A Darwin data server's flash, 120 GB SATA, in use for long.
fn darwin_ssd() -> SsdOptions {
    SsdOptions {
        capacity: 120_000_000_000,
        units: 32,
        interleave: 4 << 10,
        page: 4 << 10,
        block_pages: 256,
        read: 32 * MICRO,
        program: 750 * MICRO,
        erase: 3_000 * MICRO,
        overhead: 10 * MICRO,
        read_bus: 162 * MEGA,
        write_bus: 142 * MEGA,
        buffer: 1 << 20,
        prefetch: 256 << 10,
        over_provisioning: 0.16,
        fresh: 0,
    }
}

/// A disk known only by measurements that contradict each other. 4 MiB at a random place take 144 ms. Of these the
/// transfer at the sequential rate takes 47, and the positioning of a random 32 KiB read 12. The parameters are chosen
/// so that as few figures as possible are missed. The random 4 MiB read is the one that is missed.
fn hdd1() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [1_000, 8_000, 17_000],
        write: [1_200, 8_500, 18_000],
        cylinders: 12_450,
        heads: 2,
        mean_track: 807_000,
        outer: 97 * MEGA,
        inner: 97 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        bus: 150 * MEGA,
        write_cache: 8 << 20,
        write_runs: 8,
        ..sheet.disk()
    }
}

/// A disk known only by measurements: reads and writes of 32 KiB and 4 MiB in a file of 20 GB. The file fills most of
/// it.
fn hdd2() -> DiskOptions {
    let sheet = Sheet {
        turn: TURN_7200,
        read: [1_000, 9_000, 18_000],
        write: [1_200, 9_500, 19_000],
        cylinders: 24_500,
        heads: 2,
        mean_track: 410_000,
        outer: 46 * MEGA,
        inner: 46 * MEGA,
        skew: 800 * MICRO,
    };
    DiskOptions {
        bus: 100 * MEGA,
        write_cache: 2 << 20,
        write_runs: 4,
        ..sheet.disk()
    }
}

/// Flash known only by measurements. Times are per 8 KiB, several planes together.
fn ssd1() -> SsdOptions {
    SsdOptions {
        capacity: 120_000_000_000,
        units: 64,
        interleave: 8 << 10,
        page: 8 << 10,
        block_pages: 256,
        read: 122 * MICRO,
        program: 750 * MICRO,
        erase: 3_000 * MICRO,
        overhead: 20 * MICRO,
        read_bus: 560 * MEGA,
        write_bus: 373 * MEGA,
        buffer: 4 << 20,
        prefetch: 512 << 10,
        over_provisioning: 0.25,
        fresh: 120_000_000_000,
    }
}

/// Another one, long in use: random writes cause collection.
fn ssd2() -> SsdOptions {
    SsdOptions {
        units: 32,
        read: 209 * MICRO,
        overhead: 54 * MICRO,
        read_bus: 510 * MEGA,
        write_bus: 485 * MEGA,
        buffer: 32 << 20,
        over_provisioning: 0.55,
        fresh: 0,
        ..ssd1()
    }
}

/// MLC flash with the times and counts of MQSim's default device. Planes have 128 blocks instead of 2048, to save
/// memory. Buffer, read-ahead, controller times and idle bounds are chosen here.
fn nand() -> NandOptions {
    NandOptions {
        geometry: NandGeometry {
            channels: 8,
            ways: 4,
            dies: 2,
            planes: 2,
            blocks: 128,
            pages: 256,
            page: 8 << 10,
        },
        order: AllocationOrder::CWDP,
        timing: NandTiming {
            read: vec![75 * MICRO],
            program: vec![750 * MICRO],
            erase: 3_800 * MICRO,
            command: 300,
            channel: 333 * MEGA,
            slabs: None,
        },
        multiplane: Multiplane::Aligned,
        interleave: true,
        cache: false,
        spare: 0.07,
        ftl: Ftl::Page,
        logs: 0,
        victim: Victim::Greedy,
        collect: Collect::Demand,
        soft: 0.25,
        ahead: 0.5,
        short_idle: 2_000 * MICRO,
        long_idle: 50_000 * MICRO,
        condition: Condition::Steady,
        seed: 1,
        lookup: 100,
        overhead: 5 * MICRO,
        // PCIe 3, four lanes.
        link: 3_500 * MEGA,
        buffer: 16 << 20,
        read_ahead: 256 << 10,
        reads_first: 16,
        disturb_limit: 100_000,
    }
}

/// MLC flash with the times of SimpleSSD's sample: the two pages of a cell differ.
fn nand_16k() -> NandOptions {
    let mlc = nand();
    NandOptions {
        geometry: NandGeometry {
            page: 16 << 10,
            ..mlc.geometry
        },
        timing: NandTiming {
            read: vec![40 * MICRO, 65 * MICRO],
            program: vec![500 * MICRO, 1_300 * MICRO],
            erase: 3_500 * MICRO,
            channel: 400 * MEGA,
            ..mlc.timing.clone()
        },
        spare: 0.25,
        ..mlc
    }
}

/// SLC flash with the times of FEMU: 4 KiB cross a channel in 20 µs.
fn nand_slc() -> NandOptions {
    let mlc = nand();
    NandOptions {
        geometry: NandGeometry {
            ways: 8,
            dies: 1,
            planes: 1,
            blocks: 256,
            page: 4 << 10,
            ..mlc.geometry
        },
        timing: NandTiming {
            read: vec![40 * MICRO],
            program: vec![800 * MICRO],
            erase: 2_000 * MICRO,
            channel: 205 * MEGA,
            ..mlc.timing.clone()
        },
        ..mlc
    }
}

/// TLC flash with the times of FEMU: the three pages of a cell differ; 16 KiB cross a channel in 52.4 µs.
fn nand_tlc() -> NandOptions {
    let mlc = nand();
    NandOptions {
        geometry: NandGeometry {
            ways: 8,
            dies: 1,
            pages: 384,
            page: 16 << 10,
            ..mlc.geometry
        },
        timing: NandTiming {
            read: vec![56_500, 77_500, 106_000],
            program: vec![820 * MICRO, 2_225 * MICRO, 5_734 * MICRO],
            erase: 3_000 * MICRO,
            channel: 312 * MEGA,
            ..mlc.timing.clone()
        },
        ..mlc
    }
}

/// Resistive memory: a slab is the ISSCC 2012 macro (25 ns to open, 443 MB/s). A line of 64 bytes takes 25 ns + 145 ns
/// for either operation. A die has 64 slabs, of which 16 work on a page; global bitlines and channels have 1.6 GB/s
/// each. Counts, global bitlines and channels are chosen here: IT prints none.
fn rram() -> NandOptions {
    let mlc = nand();
    NandOptions {
        geometry: NandGeometry {
            dies: 4,
            planes: 1,
            pages: 512,
            page: 4 << 10,
            ..mlc.geometry
        },
        timing: NandTiming {
            channel: 1_600 * MEGA,
            slabs: Some(Slabs {
                slabs: 64,
                parallel: 16,
                line: 64,
                read: 170,
                write: 170,
                global: 1_600 * MEGA,
            }),
            ..mlc.timing.clone()
        },
        multiplane: Multiplane::Off,
        ftl: Ftl::InPlace,
        condition: Condition::Full,
        // PCIe 3, sixteen lanes.
        link: 15_750 * MEGA,
        ..mlc
    }
}
