//! The network. A message waits for the sender's card, the switch and the receiver's card, each of which carries one
//! byte after the other. It crosses in one latency. Messages cut through: the receiver's card is busy while the
//! sender's is. Two ends on one node exchange data through memory.
use penstock_base::Nanos;

/// Picoseconds per byte, so that arithmetic uses whole numbers at any rate.
fn per_byte(bytes_per_second: u64) -> u64 {
    1_000_000_000_000 / bytes_per_second.max(1)
}

fn time(bytes: u64, per_byte: u64) -> Nanos {
    (u128::from(bytes) * u128::from(per_byte) / 1000) as Nanos
}

#[derive(Clone, Copy)]
struct Card {
    per_byte: u64,
    send: Nanos,
    receive: Nanos,
}

/// Cards and the switch between them.
pub(crate) struct Network {
    latency: Nanos,
    cards: Vec<Card>,
    /// Bytes per second, and when it is free, if the switch can be the bottleneck.
    switch: Option<(u64, Nanos)>,
    memory: u64,
    /// Bytes sent from node to node.
    pub carried: u64,
}

/// A node's number on the network.
pub(crate) type Node = u32;

impl Network {
    /// `latency` is from card to card, `switch` the bytes per second of all together, `memory` those within a node.
    pub(crate) fn new(latency: Nanos, switch: Option<u64>, memory: u64) -> Network {
        Network {
            latency,
            cards: Vec::new(),
            switch: switch.map(|rate| (per_byte(rate), 0)),
            memory: per_byte(memory),
            carried: 0,
        }
    }

    /// A node with a card of this rate in each direction.
    pub(crate) fn node(&mut self, bytes_per_second: u64) -> Node {
        self.cards.push(Card {
            per_byte: per_byte(bytes_per_second),
            send: 0,
            receive: 0,
        });
        (self.cards.len() - 1) as Node
    }

    pub(crate) fn latency(&self) -> Nanos {
        self.latency
    }

    /// Sends `bytes` at `now` or as soon as cards and switch are free; returns when the last byte has arrived.
    pub(crate) fn send(&mut self, now: Nanos, from: Node, to: Node, bytes: u64) -> Nanos {
        if from == to {
            return now + time(bytes, self.memory);
        }
        self.carried += bytes;
        let sender = &mut self.cards[from as usize];
        let start = now.max(sender.send);
        let sent = start + time(bytes, sender.per_byte);
        sender.send = sent;
        let mut through = start;
        let mut end = sent;
        if let Some((per_byte, free)) = &mut self.switch {
            through = start.max(*free);
            *free = through + time(bytes, *per_byte);
            end = end.max(*free);
        }
        let receiver = &mut self.cards[to as usize];
        let begin = (through + self.latency).max(receiver.receive);
        receiver.receive = begin + time(bytes, receiver.per_byte);
        receiver.receive.max(end + self.latency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gigabit() -> (Network, [Node; 3]) {
        let mut network = Network::new(50_000, None, 2_000_000_000);
        let nodes = [(); 3].map(|()| network.node(125_000_000));
        (network, nodes)
    }

    #[test]
    fn one_message_pays_latency_and_bandwidth_once() {
        let (mut network, [a, b, _]) = gigabit();
        assert_eq!(network.send(0, a, b, 125_000), 1_050_000);
    }

    #[test]
    fn two_senders_share_the_receivers_card() {
        let (mut network, [a, b, c]) = gigabit();
        network.send(0, a, c, 125_000);
        assert_eq!(network.send(0, b, c, 125_000), 2_050_000);
    }

    #[test]
    fn the_switch_is_shared_by_all() {
        let mut network = Network::new(0, Some(125_000_000), 1);
        let nodes: Vec<Node> = (0..4).map(|_| network.node(125_000_000)).collect();
        network.send(0, nodes[0], nodes[1], 125_000);
        assert_eq!(network.send(0, nodes[2], nodes[3], 125_000), 2_000_000);
    }

    #[test]
    fn within_a_node_memory_carries() {
        let (mut network, [a, ..]) = gigabit();
        assert_eq!(network.send(7, a, a, 2000), 1007);
        assert_eq!(network.carried, 0);
    }
}
