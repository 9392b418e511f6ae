//! The generated parts of docs/use/hints.md about methods.
use super::Method;
use super::row::{BufferHint, Work};

/// A table of the methods.
pub fn methods() -> String {
    let mut out = String::from(
        "| method | file system operations | what it needs | `auto` considers it for |\n| --- | --- | --- | --- |\n",
    );
    for method in Method::ALL {
        let row = method.row();
        let needs = match row.work {
            Work::Alone { locks: false, .. } => "–",
            Work::Alone { locks: true, .. } => "not atomic mode",
            Work::Exchange { striped: false, .. } => {
                "a collective call of several ranks, not atomic mode"
            }
            Work::Exchange { striped: true, .. } => {
                "a collective call of several ranks on data servers, not atomic mode"
            }
            Work::SharedMemory { .. } => {
                "a collective call of several ranks on one node, not atomic mode"
            }
        };
        out += &format!(
            "| `{}` | {} | {needs} | {} |\n",
            row.name, row.summary, row.offered_when
        );
    }
    out
}

/// A table of the methods' own hints.
pub fn hints() -> String {
    let mut out =
        String::from("| hint | values | default | meaning |\n| --- | --- | --- | --- |\n");
    for method in Method::ALL {
        let row = method.row();
        if let Some([read, write]) = row.toggles {
            out += &format!(
                "| `{read}`, `{write}` | toggle | `automatic` | under `auto`, accesses without exchange: `enable` always uses `{}`, `disable` never does |\n",
                row.name
            );
        }
        if let Some(BufferHint {
            keys: [read, write],
            default,
            meaning,
        }) = row.buffer
        {
            let keys = if read == write {
                format!("`{read}`")
            } else {
                format!("`{read}`, `{write}`")
            };
            out += &format!("| {keys} | size | {default} | {meaning} |\n");
        }
    }
    out
}
