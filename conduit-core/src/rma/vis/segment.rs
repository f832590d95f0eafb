//! Access to the ranges of this rank's segment that a message lists. The data of a put is written
//! to these ranges, and the data for a get's reply is read from them.

use crate::kernel::Kernel;
use crate::memory::{Memory, Unplaced};
use crate::messages::payload::ProtocolError;
use crate::ni::Ni;
use crate::process_memory;
use crate::rma::vis::{copy_rows, walk};
use crate::threads::Mode;

/// Writes data to the ranges in a list.
pub(crate) fn scatter<N: Ni, M: Mode>(
    memory: &Memory,
    kernel: &Kernel<N, M>,
    list: &[u8],
    data: &[u8],
) -> Result<(), ProtocolError> {
    let (own, len, is_everything) = memory.own_of_messages(kernel)?;
    walk(list, len, data.len(), |group, at| {
        let (len, count) = (group.len as usize, group.count as usize);
        let (offset, stride) = (group.start as usize, group.stride as isize);
        if is_everything {
            for (run, bytes) in data[at..at + len * count].chunks_exact(len).enumerate() {
                let offset = offset.wrapping_add_signed(stride.wrapping_mul(run as isize));
                if !process_memory::place(offset, bytes) {
                    return Err(Unplaced::NoMemory {
                        offset,
                        length: len,
                    }
                    .into());
                }
            }
            return Ok(());
        }
        let to = own.0.wrapping_add(offset);
        let from = data[at..].as_ptr();
        // SAFETY: `walk` has checked that all runs lie in this rank's segment and that the data has
        // as many bytes as the runs. The data belongs to a message, which never overlaps a segment.
        // Races are the program's own, as with every put.
        unsafe { copy_rows((to, stride), (from, len as isize), len, count) };
        Ok(())
    })
}

/// Reads data from the ranges in a list.
pub(crate) fn gather<N: Ni, M: Mode>(
    memory: &Memory,
    kernel: &Kernel<N, M>,
    list: &[u8],
    data: &mut [u8],
) -> Result<(), ProtocolError> {
    let (own, len, is_everything) = memory.own_of_messages(kernel)?;
    walk(list, len, data.len(), |group, at| {
        let (len, count) = (group.len as usize, group.count as usize);
        let (offset, stride) = (group.start as usize, group.stride as isize);
        let data = &mut data[at..at + len * count];
        if is_everything {
            for (run, bytes) in data.chunks_exact_mut(len).enumerate() {
                let offset = offset.wrapping_add_signed(stride.wrapping_mul(run as isize));
                let this = process_memory::this();
                // SAFETY: the destination is a slice, which is valid for writes of its length.
                let read =
                    unsafe { process_memory::read(bytes.as_mut_ptr(), this, offset as u64, len) };
                if read.is_err() {
                    return Err(Unplaced::NoMemory {
                        offset,
                        length: len,
                    }
                    .into());
                }
            }
            return Ok(());
        }
        let from = own.0.wrapping_add(offset);
        // SAFETY: `walk` has checked that all runs lie in this rank's segment and that the buffer
        // has as many bytes. Races are the program's own, as with every get.
        unsafe {
            copy_rows(
                (data.as_mut_ptr(), len as isize),
                (from, stride),
                len,
                count,
            )
        };
        Ok(())
    })
}
