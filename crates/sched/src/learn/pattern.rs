//! The four access patterns, and the decision tree that tells them apart.
//!
//! The tree is data, `data/patterns.json`, made by `python/learn/patterns.py` (docs/understand/detection.md). It is checked when
//! it is read, node by node: a tree that was cut, edited or made for other figures is refused.
use super::features::{FEATURES, Features};
use crate::Error;
use serde::{Deserialize, Serialize};

/// How the clients of a file access it, as seen by themselves: whether one client's accesses follow one another, and
/// whether they are smaller than a stripe unit or reach every server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Each client a part of its own, in small requests.
    ContiguousSmall,
    /// Each client a part of its own, in large requests.
    ContiguousLarge,
    /// Clients take turns over the file, in small requests.
    StridedSmall,
    /// Clients take turns over the file, in large requests.
    StridedLarge,
}

impl Pattern {
    /// All of them.
    pub const ALL: [Pattern; 4] = [
        Pattern::ContiguousSmall,
        Pattern::ContiguousLarge,
        Pattern::StridedSmall,
        Pattern::StridedLarge,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Pattern::ContiguousSmall => "contiguous_small",
            Pattern::ContiguousLarge => "contiguous_large",
            Pattern::StridedSmall => "strided_small",
            Pattern::StridedLarge => "strided_large",
        }
    }

    /// One client's accesses follow one another.
    pub fn is_contiguous(self) -> bool {
        matches!(self, Pattern::ContiguousSmall | Pattern::ContiguousLarge)
    }

    /// Accesses are smaller than a stripe unit.
    pub fn is_small(self) -> bool {
        matches!(self, Pattern::ContiguousSmall | Pattern::StridedSmall)
    }
}

/// The format of tree files.
const FORMAT: u32 = 1;
/// Nodes of a tree at most.
const MAX_NODES: usize = 4096;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct TreeFile {
    format: u32,
    made_by: String,
    features: Vec<String>,
    classes: Vec<Pattern>,
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
    /// A class, and the share of it among the training windows that end here.
    Leaf { class: usize, share: f64 },
}

/// A checked decision tree.
#[derive(Debug, Clone)]
pub struct Tree {
    classes: Vec<Pattern>,
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
        for (i, node) in file.nodes.iter().enumerate() {
            let why = match *node {
                Node::Split { feature, .. } if feature >= FEATURES.len() => {
                    "splits on no known figure"
                }
                Node::Split { threshold, .. } if !threshold.is_finite() => {
                    "has no finite threshold"
                }
                // Children come later: every walk ends.
                Node::Split { below, above, .. }
                    if below.min(above) <= i || below.max(above) >= file.nodes.len() =>
                {
                    "leads to a node that does not come after it"
                }
                Node::Leaf { class, .. } if class >= file.classes.len() => "ends in no known class",
                Node::Leaf { share, .. } if !(0.0..=1.0).contains(&share) => {
                    "has a share outside 0 to 1"
                }
                _ => continue,
            };
            return Err(invalid(format!("node {i} {why}")));
        }
        Ok(Tree {
            classes: file.classes,
            nodes: file.nodes,
            made_by: file.made_by,
        })
    }

    /// The command that made it.
    pub fn made_by(&self) -> &str {
        &self.made_by
    }

    /// The pattern of a window with these figures, and how sure that is, 0 to 1.
    pub fn classify(&self, features: &Features) -> (Pattern, f64) {
        let mut at = 0;
        loop {
            match self.nodes[at] {
                Node::Split {
                    feature,
                    threshold,
                    below,
                    above,
                } => {
                    at = if features[feature] <= threshold {
                        below
                    } else {
                        above
                    };
                }
                Node::Leaf { class, share } => return (self.classes[class], share),
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
            "{{\"format\":1,\"made_by\":\"test\",\"features\":[{features}],\
             \"classes\":[\"contiguous_small\",\"strided_large\"],\"nodes\":[{nodes}]}}"
        )
    }

    const LEAVES: &str =
        "{\"leaf\":{\"class\":0,\"share\":1.0}},{\"leaf\":{\"class\":1,\"share\":0.8}}";

    #[test]
    fn a_tree_is_walked() {
        let split = "{\"split\":{\"feature\":2,\"threshold\":-0.5,\"below\":1,\"above\":2}}";
        let tree = Tree::from_json(&json(&format!("{split},{LEAVES}"))).unwrap();
        let mut features = [0.0; FEATURES.len()];
        assert_eq!(tree.classify(&features), (Pattern::StridedLarge, 0.8));
        features[2] = -0.5;
        assert_eq!(tree.classify(&features), (Pattern::ContiguousSmall, 1.0));
    }

    #[test]
    fn what_is_no_tree_is_refused() {
        let split = |feature: usize, below: usize, above: usize| {
            format!(
                "{{\"split\":{{\"feature\":{feature},\"threshold\":0,\"below\":{below},\"above\":{above}}}}},{LEAVES}"
            )
        };
        let whole = json(&split(0, 1, 2));
        assert!(Tree::from_json(&whole).is_ok());
        let cases = [
            (json(&split(99, 1, 2)), "figure"),
            (json(&split(0, 0, 2)), "after"),
            (json(&split(0, 1, 3)), "after"),
            (json(""), "0 nodes"),
            (json("{\"leaf\":{\"class\":2,\"share\":1}}"), "class"),
            (json("{\"leaf\":{\"class\":0,\"share\":7}}"), "share"),
            (
                json("{\"leaf\":{\"class\":0,\"share\":1,\"x\":1}}"),
                "unknown field",
            ),
            (whole.replace("\"format\":1", "\"format\":2"), "format 2"),
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
        assert_eq!(tree.classes, Pattern::ALL);
        assert!(tree.made_by().contains("patterns.py"));
    }
}
