//! Low priority for the processor and the disk.
use rustix::io::Errno;
use std::io::Result;

/// Uses the processor only when nobody else wants it, and the disk only when it is idle. The latter needs a disk
/// scheduler with priorities, such as BFQ.
pub fn lower() -> Result<()> {
    rustix::process::setpriority_process(None, 19)?;
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_IDLE: libc::c_int = 3;
    const CLASS_SHIFT: libc::c_int = 13;
    // SAFETY: the call takes three integers and touches no memory of this process; 0 means the calling thread.
    let done = unsafe {
        libc::syscall(
            libc::SYS_ioprio_set,
            WHO_PROCESS,
            0,
            CLASS_IDLE << CLASS_SHIFT,
        )
    };
    match done {
        0 => Ok(()),
        _ => match std::io::Error::last_os_error() {
            // A kernel without priorities for disks.
            e if e.raw_os_error() == Some(Errno::NOSYS.raw_os_error()) => Ok(()),
            e => Err(e),
        },
    }
}
