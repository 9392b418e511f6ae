//! Statistics as Python dictionaries.
use penstock_client::{FormCounts, Stats};
use pyo3::prelude::*;
use pyo3::types::PyDict;

fn form<'py>(py: Python<'py>, counts: FormCounts) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("operations", counts.operations)?;
    dict.set_item("requests", counts.requests)?;
    dict.set_item("bytes_read", counts.bytes_read)?;
    dict.set_item("bytes_written", counts.bytes_written)?;
    Ok(dict)
}

/// `{"structured": {"operations": …}, …, "loops_sent": …}`.
pub fn to_dict<'py>(py: Python<'py>, stats: &Stats) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("contiguous", form(py, stats.contiguous)?)?;
    dict.set_item("list", form(py, stats.list)?)?;
    dict.set_item("structured", form(py, stats.structured)?)?;
    dict.set_item("shortcut", form(py, stats.shortcut)?)?;
    dict.set_item("shortcut_refused", stats.shortcut_refused)?;
    dict.set_item("loops_sent", stats.loops_sent)?;
    dict.set_item("reconnections", stats.reconnections)?;
    dict.set_item("locks", stats.locks)?;
    Ok(dict)
}
