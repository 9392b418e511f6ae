//! The access patterns, and the decision tree that tells them apart.
//!
//! The tree is data, `data/patterns.json`, made by `python/learn/patterns.py` (docs/understand/detection.md). Each node
//! is checked when the tree is read: a tree that was truncated, edited or made for other features is refused. A
//! decision tree always ends in some leaf, even for a window unlike all training data. So each leaf stores the range of
//! each feature among its training windows. What lies outside is [`AccessPattern::Unknown`], and so is what ends in a leaf of
//! mixed windows.
use super::features::{FEATURES, Features};
use crate::Error;
use serde::{Deserialize, Serialize};

/// In which order the clients of a file access it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Order {
    /// Each client accesses a part of its own, from its beginning to its end.
    Contiguous,
    /// Clients take turns over the file, or leave gaps of one length.
    Strided,
    /// Anywhere.
    Random,
    /// Unlike the training data.
    Unknown,
}

impl Order {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Order::Contiguous => "contiguous",
            Order::Strided => "strided",
            Order::Random => "random",
            Order::Unknown => "unknown",
        }
    }
}

/// How the clients of a file access it, from their point of view. It says the order, and whether accesses are smaller
/// than a stripe unit or reach every server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccessPattern {
    /// Each client a part of its own, in small requests.
    ContiguousSmall,
    /// Each client a part of its own, in large requests.
    ContiguousLarge,
    /// Clients take turns over the file, in small requests.
    StridedSmall,
    /// Clients take turns over the file, in large requests.
    StridedLarge,
    /// Clients access any place of the file, in small requests.
    RandomSmall,
    /// Clients access any place of the file, in large requests.
    RandomLarge,
    /// Unlike the training data. No tree is trained on it.
    #[serde(skip)]
    Unknown,
}

impl AccessPattern {
    /// All known patterns.
    pub const ALL: [AccessPattern; 6] = [
        AccessPattern::ContiguousSmall,
        AccessPattern::ContiguousLarge,
        AccessPattern::StridedSmall,
        AccessPattern::StridedLarge,
        AccessPattern::RandomSmall,
        AccessPattern::RandomLarge,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            AccessPattern::ContiguousSmall => "contiguous_small",
            AccessPattern::ContiguousLarge => "contiguous_large",
            AccessPattern::StridedSmall => "strided_small",
            AccessPattern::StridedLarge => "strided_large",
            AccessPattern::RandomSmall => "random_small",
            AccessPattern::RandomLarge => "random_large",
            AccessPattern::Unknown => "unknown",
        }
    }

    /// In which order one client accesses the file.
    pub fn order(self) -> Order {
        match self {
            AccessPattern::ContiguousSmall | AccessPattern::ContiguousLarge => Order::Contiguous,
            AccessPattern::StridedSmall | AccessPattern::StridedLarge => Order::Strided,
            AccessPattern::RandomSmall | AccessPattern::RandomLarge => Order::Random,
            AccessPattern::Unknown => Order::Unknown,
        }
    }

    /// Accesses are smaller than a stripe unit; `None`: unknown.
    pub fn is_small(self) -> Option<bool> {
        match self {
            AccessPattern::ContiguousSmall
            | AccessPattern::StridedSmall
            | AccessPattern::RandomSmall => Some(true),
            AccessPattern::ContiguousLarge
            | AccessPattern::StridedLarge
            | AccessPattern::RandomLarge => Some(false),
            AccessPattern::Unknown => None,
        }
    }
}

/// The format of tree files.
const FORMAT: u32 = 2;
/// Most nodes of a tree.
const MAX_NODES: usize = 4096;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeFile {
    format: u32,
    made_by: String,
    features: Vec<String>,
    classes: Vec<AccessPattern>,
    /// Leaves with a smaller share answer [`AccessPattern::Unknown`].
    least_share: f64,
    nodes: Vec<Node>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Node {
    /// `features[feature] <= threshold` goes to `below`, all else to `above`.
    Split {
        feature: usize,
        threshold: f64,
        below: usize,
        above: usize,
    },
    /// A class, its share among the training windows of this leaf, and the range of each of their features.
    Leaf {
        class: usize,
        share: f64,
        low: Vec<f64>,
        high: Vec<f64>,
    },
}

/// A checked decision tree.
#[derive(Debug, Clone)]
pub struct Tree {
    classes: Vec<AccessPattern>,
    least_share: f64,
    nodes: Vec<Node>,
    made_by: String,
}

impl Tree {
    /// The tree that is delivered with this crate.
    pub fn builtin() -> Result<Tree, Error> {
        Tree::from_json(include_str!("../../data/patterns.json"))
    }

    /// Reads and checks a tree.
    pub fn from_json(text: &str) -> Result<Tree, Error> {
        let invalid = |why: String| {
            Error::Invalid(format!(
                "this is no decision tree for access patterns: {why}; python/learn/patterns.py makes one"
            ))
        };
        let file: TreeFile = serde_json::from_str(text).map_err(|e| invalid(e.to_string()))?;
        if file.format != FORMAT {
            return Err(invalid(format!(
                "format {}, this program reads format {FORMAT}",
                file.format
            )));
        }
        if file.features != FEATURES {
            return Err(invalid(format!(
                "it asks for the figures {}, known are {}",
                file.features.join(" "),
                FEATURES.join(" ")
            )));
        }
        if file.nodes.is_empty() || file.nodes.len() > MAX_NODES {
            return Err(invalid(format!(
                "it has {} nodes, between 1 and {MAX_NODES} are possible",
                file.nodes.len()
            )));
        }
        if !(0.0..=1.0).contains(&file.least_share) {
            return Err(invalid("its least_share is outside 0 to 1".into()));
        }
        for (i, node) in file.nodes.iter().enumerate() {
            let why = match node {
                Node::Split { feature, .. } if *feature >= FEATURES.len() => {
                    "splits on no known figure"
                }
                Node::Split { threshold, .. } if !threshold.is_finite() => {
                    "has no finite threshold"
                }
                // Children have larger numbers than their parent, so every walk ends.
                Node::Split { below, above, .. }
                    if *below.min(above) <= i || *below.max(above) >= file.nodes.len() =>
                {
                    "leads to a node that does not come after it"
                }
                Node::Leaf { class, .. } if *class >= file.classes.len() => {
                    "ends in no known class"
                }
                Node::Leaf { share, .. } if !(0.0..=1.0).contains(share) => {
                    "has a share outside 0 to 1"
                }
                Node::Leaf { low, high, .. }
                    if [low, high].iter().any(|l| l.len() != FEATURES.len()) =>
                {
                    "has no range for each figure"
                }
                Node::Leaf { low, high, .. }
                    if !low
                        .iter()
                        .zip(high)
                        .all(|(l, h)| l.is_finite() && h.is_finite() && l <= h) =>
                {
                    "has a range that ends before it begins"
                }
                _ => continue,
            };
            return Err(invalid(format!("node {i} {why}")));
        }
        Ok(Tree {
            classes: file.classes,
            least_share: file.least_share,
            nodes: file.nodes,
            made_by: file.made_by,
        })
    }

    /// The command that made it.
    pub fn made_by(&self) -> &str {
        &self.made_by
    }

    /// The pattern of a window with these features, and the confidence, 0 to 1; 0 for an unknown pattern.
    pub fn classify(&self, features: &Features) -> (AccessPattern, f64) {
        let mut at = 0;
        loop {
            match &self.nodes[at] {
                Node::Split {
                    feature,
                    threshold,
                    below,
                    above,
                } => {
                    at = if features[*feature] <= *threshold {
                        *below
                    } else {
                        *above
                    };
                }
                Node::Leaf {
                    class,
                    share,
                    low,
                    high,
                } => {
                    let mut ranges = low.iter().zip(high).zip(features);
                    let inside = ranges.all(|((low, high), x)| low <= x && x <= high);
                    return if inside && *share >= self.least_share {
                        (self.classes[*class], *share)
                    } else {
                        (AccessPattern::Unknown, 0.0)
                    };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(nodes: &str) -> String {
        let features = FEATURES.map(|f| format!("\"{f}\"")).join(",");
        format!(
            "{{\"format\":2,\"made_by\":\"test\",\"features\":[{features}],\
             \"classes\":[\"contiguous_small\",\"strided_large\"],\"least_share\":0.7,\"nodes\":[{nodes}]}}"
        )
    }

    fn leaf(class: usize, share: f64, high: f64) -> String {
        let range = |x: f64| format!("[{}]", vec![x.to_string(); FEATURES.len()].join(","));
        let (low, high) = (range(-1.0), range(high));
        format!(
            "{{\"leaf\":{{\"class\":{class},\"share\":{share},\"low\":{low},\"high\":{high}}}}}"
        )
    }

    fn leaves() -> String {
        [leaf(0, 1.0, 1.0), leaf(1, 0.8, 1.0)].join(",")
    }

    #[test]
    fn a_tree_is_walked() {
        let split = "{\"split\":{\"feature\":2,\"threshold\":-0.5,\"below\":1,\"above\":2}}";
        let tree = Tree::from_json(&json(&format!("{split},{}", leaves()))).unwrap();
        let mut features = [0.0; FEATURES.len()];
        assert_eq!(tree.classify(&features), (AccessPattern::StridedLarge, 0.8));
        features[2] = -0.5;
        assert_eq!(
            tree.classify(&features),
            (AccessPattern::ContiguousSmall, 1.0)
        );
        // Windows unlike all training data, and windows in a leaf of several classes.
        features[7] = 1.01;
        assert_eq!(tree.classify(&features), (AccessPattern::Unknown, 0.0));
        let mixed = Tree::from_json(&json(&leaf(0, 0.69, 1.0))).unwrap();
        let known = [0.0; FEATURES.len()];
        assert_eq!(mixed.classify(&known), (AccessPattern::Unknown, 0.0));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let split = |feature: usize, below: usize, above: usize| {
            format!(
                "{{\"split\":{{\"feature\":{feature},\"threshold\":0,\"below\":{below},\"above\":{above}}}}},{}",
                leaves()
            )
        };
        let whole = json(&split(0, 1, 2));
        assert!(Tree::from_json(&whole).is_ok());
        let cases = [
            (json(&split(99, 1, 2)), "figure"),
            (json(&split(0, 0, 2)), "after"),
            (json(&split(0, 1, 3)), "after"),
            (json(""), "0 nodes"),
            (json(&leaf(2, 1.0, 1.0)), "class"),
            (json(&leaf(0, 7.0, 1.0)), "share"),
            (json(&leaf(0, 1.0, -2.0)), "ends before"),
            (
                json(&leaf(0, 1.0, 1.0).replacen("[-1,", "[", 1)),
                "each figure",
            ),
            (whole.replace("0.7", "1.7"), "least_share"),
            (
                json("{\"leaf\":{\"class\":0,\"share\":1,\"x\":1}}"),
                "unknown field",
            ),
            (whole.replace("\"format\":2", "\"format\":1"), "format 1"),
            (whole.replace("\"spread\"", "\"spreed\""), "spreed"),
            (whole[..whole.len() / 2].to_string(), "EOF"),
            ("garbage".into(), "expected"),
        ];
        for (text, why) in cases {
            let error = Tree::from_json(&text).unwrap_err().to_string();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn the_delivered_tree_is_sound() {
        let tree = Tree::builtin().unwrap();
        assert_eq!(tree.classes, AccessPattern::ALL);
        assert!(tree.made_by().contains("patterns.py"));
    }
}
