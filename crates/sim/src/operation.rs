//! File system operations as the methods' plans cut them (crates/mpiio/src/methods), with what each costs on its way.
use penstock_base::Op;
use penstock_datatype::Pattern;
use penstock_mpiio::Form;
use penstock_mpiio::planning;

/// Bytes of a list entry in a request: offset and length.
const ENTRY: u64 = 16;
/// Bytes of a loop in a request, as the codec makes them for the regular patterns of programs; those of irregular ones
/// grow with their regions.
const LOOP: u64 = 64;

/// One file system operation.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub op: Op,
    /// What it covers of the file.
    pub pattern: Pattern,
    /// Pieces that the client gathers or scatters.
    pub regions: u64,
    /// Bytes that describe it in a request, beside the header.
    pub description: u64,
    /// Every server walks its regions, so each costs time there.
    pub structured: bool,
}

impl Operation {
    /// An operation of a plan, whose bytes lie in so many pieces of memory.
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
            structured: form != Form::Contiguous,
        }
    }
}
