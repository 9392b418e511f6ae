//! Selection trees T1 to T4, and `own`.
//!
//! Problem: no algorithm is best for all access patterns and devices; the wrong one costs up to 278%. Idea: a decision
//! tree learnt from measurements chooses by what the server can see. T1 uses all attributes, T2 all but the memory. T3
//! uses neither memory nor bytes per file, so that it needs no trace (the source's default). T4 does not use the number
//! of files either. When it pays: at once, without trials; as long as the measurements fit the deployment. Source: TS
//! section 6.1. T3 is printed there. T1, T2 and T4 are learnt from the source's table of best choices (`learnt`), with
//! as many leaves as the source's. `own`, the default, uses T3's attributes, the numbers of processes and servers and
//! the request size. It is learnt from Penstock's own measurements (`own`), because the best algorithm on the source's
//! servers is not the best here.

use super::nodes::{Attribute, Node};
use super::own::Expectation;
use super::{learnt, own};
use crate::learn::Order;
use crate::{Algorithm, Error, Op};
use std::fmt;
use std::str::FromStr;

/// Which tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tree {
    /// All attributes.
    T1,
    /// Without the memory.
    T2,
    /// Without memory and bytes per file.
    T3,
    /// Without memory, bytes per file and number of files.
    T4,
    /// From measurements on modelled devices. It uses T3's attributes, the numbers of processes and servers and the
    /// request size.
    #[default]
    Own,
}

/// The attributes that a tree decides by.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Situation {
    /// The operation of most requests.
    pub op: Op,
    /// Files in use.
    pub files: u32,
    /// Bytes accessed per file, where known (traces); T1 and T2 use it.
    pub bytes_per_file: u64,
    /// In which order a process makes its accesses.
    pub order: Order,
    /// Whether the programs' requests are larger than a stripe.
    pub large: bool,
    /// Sequential / random throughput of the device for `op` at the mean request size (`penstock profile`).
    pub ratio: f64,
    /// Memory of the server in bytes; T1 uses it.
    pub memory: u64,
    /// Processes of all programs; 0: unknown. Only `own` uses it.
    pub processes: u32,
    /// Mean bytes of a request as it reaches the server; 0: unknown. Only `own` uses it.
    pub request_bytes: u64,
    /// Data servers of the deployment; 0: unknown. Only `own` uses it.
    pub servers: u32,
}

impl Situation {
    fn attribute(&self, which: Attribute) -> f64 {
        match which {
            Attribute::Write => f64::from(u8::from(self.op == Op::Write)),
            Attribute::Files => f64::from(self.files),
            Attribute::BytesPerFile => self.bytes_per_file as f64,
            Attribute::Large => f64::from(u8::from(self.large)),
            Attribute::Ratio => self.ratio,
            Attribute::Memory => self.memory as f64,
        }
    }
}

impl fmt::Display for Situation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |yes, a: &'static str, b: &'static str| if yes { a } else { b };
        let some = |n: u32, one: &str, more: &str| match n {
            0 => String::new(),
            n => format!(", {n} {}", if n == 1 { one } else { more }),
        };
        write!(
            f,
            "{}, {} file{}, {} {}, ratio {:.2}{}{}",
            word(self.op == Op::Write, "write", "read"),
            self.files,
            word(self.files == 1, "", "s"),
            match self.order {
                Order::Unknown => "in no known order,",
                known => known.name(),
            },
            word(self.large, "large", "small"),
            self.ratio,
            some(self.processes, "process", "processes"),
            some(self.servers, "server", "servers"),
        )
    }
}

impl Tree {
    /// All of them.
    pub const ALL: [Tree; 5] = [Tree::T1, Tree::T2, Tree::T3, Tree::T4, Tree::Own];

    /// The name that users write.
    pub fn name(self) -> &'static str {
        match self {
            Tree::T1 => "t1",
            Tree::T2 => "t2",
            Tree::T3 => "t3",
            Tree::T4 => "t4",
            Tree::Own => "own",
        }
    }

    /// The algorithm for a situation; [`Algorithm::Noop`] where no scheduling is best. `None`: no measurement covers
    /// this order of accesses.
    pub fn choose(self, situation: &Situation) -> Option<Algorithm> {
        if !matches!(situation.order, Order::Contiguous | Order::Strided) {
            return None;
        }
        let walk = |mut node: &Node| loop {
            match node {
                Node::Leaf(algorithm) => return *algorithm,
                Node::Split(attribute, threshold, low, high) => {
                    let left = situation.attribute(*attribute) <= *threshold;
                    node = if left { low } else { high };
                }
            }
        };
        Some(match self {
            Tree::T1 => walk(&learnt::T1),
            Tree::T2 => walk(&learnt::T2),
            Tree::T3 => t3(situation),
            Tree::T4 => walk(&learnt::T4),
            Tree::Own => {
                let expected = own::expected(situation);
                expected.map_or_else(|| t3(situation), |e| e.best())
            }
        })
    }

    /// The expected score of each algorithm, relative to each other. Only `own` has one.
    pub fn expect(self, situation: &Situation) -> Option<Expectation> {
        match self {
            Tree::Own => own::expected(situation),
            _ => None,
        }
    }
}

impl FromStr for Tree {
    type Err = Error;

    fn from_str(text: &str) -> Result<Tree, Error> {
        let wanted = text.to_ascii_lowercase();
        let found = Tree::ALL.into_iter().find(|t| t.name() == wanted);
        found.ok_or_else(|| Error::UnknownAlgorithm(text.to_owned()))
    }
}

/// The rules that the source prints (TS figure of section 6.1).
fn t3(s: &Situation) -> Algorithm {
    use Algorithm::{Aioli, Mlf, Noop, Sjf, ToAgg};
    let (write, files, ratio) = (s.op == Op::Write, s.files, s.ratio);
    match () {
        () if ratio <= 8.17 && write => match files {
            0..=1 if s.large => Aioli,
            5..=16 if ratio <= 2.37 => ToAgg,
            _ => Sjf,
        },
        () if ratio <= 8.17 => match files {
            5..=16 => ToAgg,
            17.. => Aioli,
            _ if s.large => Aioli,
            0..=1 => Sjf,
            _ => ToAgg,
        },
        () if files <= 1 && write && s.large => Aioli,
        () if files <= 1 && write && ratio <= 15.12 => Sjf,
        () if files <= 1 && write => Noop,
        () if files <= 1 && ratio > 25.46 && ratio <= 38.91 => Noop,
        () if files <= 1 => Sjf,
        () if ratio <= 15.12 && files <= 4 => Mlf,
        () if ratio <= 15.12 => Sjf,
        () if ratio <= 25.46 && !write => Sjf,
        () if ratio <= 38.91 => Aioli,
        () if files > 4 => Sjf,
        () if s.order == Order::Contiguous && !s.large => Noop,
        () => Mlf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The source's situations as a server sees them.
    fn situations() -> Vec<Situation> {
        let clusters = [
            (21.29, 38.91, 8u64),
            (15.12, 40.68, 16),
            (8.17, 25.46, 32),
            (0.66, 2.37, 24),
        ];
        let mut all = Vec::new();
        for (write, read, memory) in clusters {
            for op in [Op::Read, Op::Write] {
                for large in [false, true] {
                    for processes in [8u32, 16] {
                        for (apps, own, order) in [
                            (1, false, Order::Contiguous),
                            (1, false, Order::Strided),
                            (1, true, Order::Contiguous),
                            (4, false, Order::Contiguous),
                            (4, false, Order::Strided),
                            (4, true, Order::Contiguous),
                        ] {
                            let per_file: u64 = match (own, apps) {
                                (true, 1) => 1024,
                                (true, _) => 512,
                                _ => 64 * u64::from(processes),
                            };
                            all.push(Situation {
                                op,
                                files: apps * if own { processes } else { 1 },
                                bytes_per_file: per_file << 20,
                                order,
                                large,
                                ratio: if op == Op::Write { write } else { read },
                                memory: memory << 30,
                                processes: apps * processes,
                                request_bytes: 0,
                                servers: 0,
                            });
                        }
                    }
                }
            }
        }
        all
    }

    #[test]
    fn trees_choose_as_often_like_the_table_as_those_of_the_source() {
        let all = situations();
        assert_eq!(all.len(), 192);
        let agree = |tree: Tree| {
            let same = |s: &&Situation| tree.choose(s) == Tree::T3.choose(s);
            all.iter().filter(same).count()
        };
        // The source: 184, 192, 192 and 142 of 192.
        let source = [Tree::T1, Tree::T2, Tree::T3, Tree::T4];
        assert_eq!(source.map(agree), [186, 186, 192, 140]);
    }

    #[test]
    fn rules_of_t3() {
        let base = Situation {
            op: Op::Write,
            files: 1,
            bytes_per_file: 0,
            order: Order::Contiguous,
            large: true,
            ratio: 21.29,
            memory: 0,
            processes: 0,
            request_bytes: 0,
            servers: 0,
        };
        assert_eq!(Tree::T3.choose(&base), Some(Algorithm::Aioli));
        let read = Situation {
            op: Op::Read,
            ratio: 38.91,
            ..base
        };
        assert_eq!(Tree::T3.choose(&read), Some(Algorithm::Noop));
        let four = Situation {
            files: 4,
            ratio: 15.12,
            ..base
        };
        assert_eq!(Tree::T3.choose(&four), Some(Algorithm::Mlf));
        let flash = Situation {
            files: 16,
            ratio: 0.66,
            ..base
        };
        assert_eq!(Tree::T3.choose(&flash), Some(Algorithm::ToAgg));
        // No tree has an answer for orders that were not measured.
        for order in [Order::Random, Order::Unknown] {
            let other = Situation { order, ..base };
            assert!(
                Tree::ALL
                    .iter()
                    .all(|t| t.choose(&other).is_none() && t.expect(&other).is_none())
            );
        }
        assert_eq!("T3".parse(), Ok(Tree::T3));
        assert!("t5".parse::<Tree>().is_err());
        assert!(base.to_string().contains("write, 1 file, contiguous large"));
    }
}
