//! Prints the records of streams as CSV, for tests: `records PART...`
use penstock_trace::{Error, Parent, Stream};
use std::io::Write;
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    writeln!(
        out,
        "part,pid,rank,dropped,whole,id,parent,layer,operation,file,offset,bytes,begin,duration,error,thread,code"
    )?;
    for path in std::env::args_os().skip(1) {
        let path = Path::new(&path);
        let stream = Stream::open(path)?;
        let (head, summary) = (stream.head(), stream.summary());
        for record in stream.records() {
            let r = match record {
                // It is still being written: `whole` says so.
                Err(Error::Truncated { .. }) => break,
                record => record?,
            };
            let parent = match r.parent {
                Parent::Here(id) => id,
                _ => 0,
            };
            let file = stream.file(r.file).map_or("", |f| f.path.as_str());
            writeln!(
                out,
                "{},{},{},{},{},{},{parent},{},{},{file},{},{},{},{},{},{},{}",
                path.file_name().unwrap_or_default().display(),
                head.pid,
                head.rank,
                summary.dropped,
                stream.damage().is_none(),
                r.id,
                r.layer.name(),
                r.operation.name(),
                r.offset,
                r.bytes,
                r.begin,
                r.duration,
                r.error,
                r.thread,
                r.code
            )?;
        }
    }
    Ok(())
}
