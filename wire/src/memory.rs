// SPDX-License-Identifier: Apache-2.0
//! A file's memory that other processes and the kernel use as well: the only place with `unsafe`.

#![allow(unsafe_code)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::AsFd;
use std::ptr;

use rustix::fs::{fstat, FileType};
use rustix::mm::{mmap, munmap, MapFlags, ProtFlags};

/// Memory that may be looked at as a `T` whatever bytes it holds, and while others change it.
///
/// # Safety
///
/// A `T` consists of atomic integers alone, without padding.
pub unsafe trait Shareable: Sized {}

// SAFETY: the derivation rule of the trait; `shared` asserts the sizes.
unsafe impl Shareable for super::shared::Steer {}
// SAFETY: the same.
unsafe impl Shareable for super::shared::Nic {}
// SAFETY: the same.
unsafe impl Shareable for super::shared::Flow {}

/// An array of `T` in shared memory.
#[derive(Debug)]
pub struct Array<T> {
    start: *mut T,
    count: usize,
    what: PhantomData<T>,
}

// SAFETY: the memory belongs to the process, not to a thread, and consists of atomic integers.
unsafe impl<T: Shareable> Send for Array<T> {}
// SAFETY: the same.
unsafe impl<T: Shareable> Sync for Array<T> {}

impl<T: Shareable> Array<T> {
    /// Maps the first `count` elements of a file, such as a BPF array that may be mapped. An error
    /// if the kernel refuses that, as it does when the map is shorter.
    pub fn map(file: impl AsFd, count: usize) -> io::Result<Self> {
        let bytes = Self::bytes(count);
        // The kernel maps files beyond their ends, and kills who touches that.
        let about = fstat(file.as_fd())?;
        let is_file = FileType::from_raw_mode(about.st_mode) == FileType::RegularFile;
        if is_file && usize::try_from(about.st_size).is_ok_and(|size| size < bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let rights = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the place; nothing else is there.
        let start =
            unsafe { mmap(ptr::null_mut(), bytes, rights, MapFlags::SHARED, file.as_fd(), 0) }?;
        Ok(Array { start: start.cast(), count, what: PhantomData })
    }

    /// So many bytes has the file: whole pages.
    pub fn bytes(count: usize) -> usize {
        (count * size_of::<T>()).next_multiple_of(rustix::param::page_size())
    }

    /// All elements, in order.
    pub fn all(&self) -> &[T] {
        // SAFETY: `map` made room for `count` elements, the kernel aligns to pages, and a `T` may
        // be any bytes that others change meanwhile.
        unsafe { std::slice::from_raw_parts(self.start, self.count) }
    }
}

impl<T> Drop for Array<T> {
    fn drop(&mut self) {
        let bytes = (self.count * size_of::<T>()).next_multiple_of(rustix::param::page_size());
        // SAFETY: `map` mapped so many bytes there, and nobody has a reference any more.
        let _ = unsafe { munmap(self.start.cast(), bytes) };
    }
}
