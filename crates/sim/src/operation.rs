//! File system operations as the methods' plans make them (crates/mpiio/src/methods), with their costs.
use penstock_base::Op;
use penstock_datatype::Pattern;
use penstock_mpiio::Form;
use penstock_mpiio::planning;

/// Bytes of a list entry in a request: offset and length.
const ENTRY: u64 = 16;
/// Bytes of an encoded loop in a request, for regular patterns; those of irregular ones grow with their regions.
const LOOP: u64 = 64;

/// One file system operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub op: Op,
    /// The file range that it covers.
    pub pattern: Pattern,
    /// Pieces of memory that the client gathers or scatters.
    pub regions: u64,
    /// Bytes of its description in a request, besides the header.
    pub description: u64,
    /// Only fetched into the servers' caches; answered when they have the request.
    pub fetch: bool,
    /// Whether the server walks its regions, so that each costs time there.
    pub structured: bool,
}

impl Operation {
    /// What servers fetch and do not return. The client has nothing to gather.
    pub(crate) fn fetch(self) -> Operation {
        Operation {
            regions: 1,
            fetch: true,
            ..self
        }
    }

    /// An operation of a plan with its pieces of memory.
    pub(crate) fn new(
        op: Op,
        form: Form,
        operation: planning::Operation,
        memory_regions: u64,
    ) -> Operation {
        let pattern = operation.part.pattern;
        let (regions, description) = match form {
            Form::Contiguous => (1, 0),
            Form::List => {
                let pieces = operation.pieces.unwrap_or_else(|| pattern.regions());
                (pieces, pieces * ENTRY)
            }
            Form::Structured | Form::Shortcut => {
                let description = if pattern.is_contiguous() {
                    0
                } else if pattern.tile.kind() == "indexed" {
                    ENTRY * pattern.tile.regions()
                } else {
                    LOOP
                };
                (pattern.regions().max(memory_regions), description)
            }
        };
        Operation {
            op,
            pattern,
            regions,
            description,
            fetch: false,
            structured: form != Form::Contiguous,
        }
    }
}
