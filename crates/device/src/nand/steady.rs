//! The steady state of collection under uniform random writes, in closed form.
//!
//! A plane has P programmable pages and U logical ones, a = P / U. A block filled t host writes ago has the share
//! exp(−t / U) of its pages valid. Let v be the valid share of a victim. Between the filling of a block and its
//! collection all other blocks are filled, which takes P · (1 − v) host writes. Hence v = exp(−a (1 − v)). Each host
//! write then costs 1 / (1 − v) = a / (a + W₀(−a·e^(−a))) programs (Xiang and Kurkoski, arXiv 1110.4245). So, of the
//! blocks ordered by age, the one at share r of the order has exp(−r · a · (1 − v)) of its pages valid. The mean is 1 /
//! a.

use crate::write_amplification;
use penstock_base::Random;

pub(crate) struct Cycle {
    /// Valid share of a victim.
    pub victim: f64,
    ratio: f64,
}

impl Cycle {
    /// The cycle of `logical` pages on `programmable` ones.
    pub(crate) fn new(logical: u32, programmable: u32) -> Cycle {
        let ratio = f64::from(programmable) / f64::from(logical.max(1));
        Cycle {
            victim: 1.0 - 1.0 / write_amplification(ratio - 1.0),
            ratio,
        }
    }

    /// Draws which of `slots` are valid, the oldest first; exactly `logical` of them where there is room.
    ///
    /// Pages are drawn independently. No block has fewer valid pages than a victim: greedy collection has taken those.
    pub(crate) fn draw(
        &self,
        slots: u32,
        pages: u32,
        logical: u32,
        random: &mut Random,
    ) -> Vec<bool> {
        let share = |slot: u32| {
            // All pages of a block count as filled in its middle.
            let block = f64::from(slot / pages) + 0.5;
            let age = 1.0 - block * f64::from(pages) / f64::from(slots.max(1));
            (-age.max(0.0) * self.ratio * (1.0 - self.victim)).exp()
        };
        let mut valid: Vec<bool> = (0..slots).map(|s| random.unit() < share(s)).collect();
        let least = (self.victim * f64::from(pages)) as usize;
        let mut counts: Vec<usize> = valid
            .chunks_mut(pages as usize)
            .map(|block| {
                let mut count = block.iter().filter(|v| **v).count();
                while count < least.min(block.len()) {
                    let page = &mut block[random.index(block.len())];
                    count += usize::from(!std::mem::replace(page, true));
                }
                count
            })
            .collect();
        let mut count: usize = counts.iter().sum();
        let wanted = logical.min(slots) as usize;
        while count != wanted {
            let slot = random.index(slots as usize);
            let of_block = &mut counts[slot / pages as usize];
            let change = match (count < wanted, valid[slot]) {
                (true, false) => random.unit() < share(slot as u32),
                (false, true) => *of_block > least,
                _ => false,
            };
            if change {
                valid[slot] = count < wanted;
                let more = usize::from(valid[slot]);
                *of_block = *of_block + 2 * more - 1;
                count = count + 2 * more - 1;
            }
        }
        valid
    }
}
