//! ISA-L, loaded at run time if it is installed: the oracle of the tests and the baseline of the
//! benchmark. Only these two use it.
#![allow(unsafe_code)]
// The test and the benchmark each use a part of it.
#![allow(dead_code)]

use std::ffi::{c_int, c_uchar};

use libloading::Library;

/// The soname that ISA-L has had since 2.0.
const LIBRARY: &str = "libisal.so.2";

/// Bytes of ISA-L's prepared form of one coefficient.
const TABLE_BYTES: usize = 32;

type InitTables = unsafe extern "C" fn(c_int, c_int, *mut c_uchar, *mut c_uchar);
type Encode =
    unsafe extern "C" fn(c_int, c_int, c_int, *mut c_uchar, *mut *mut c_uchar, *mut *mut c_uchar);
type Update =
    unsafe extern "C" fn(c_int, c_int, c_int, c_int, *mut c_uchar, *mut c_uchar, *mut *mut c_uchar);
type GenerateMatrix = unsafe extern "C" fn(*mut c_uchar, c_int, c_int);
type Multiply = unsafe extern "C" fn(c_uchar, c_uchar) -> c_uchar;

/// The library's functions.
pub(crate) struct Isal {
    init_tables: InitTables,
    encode: Encode,
    encode_avx2: Encode,
    update: Update,
    update_avx2: Update,
    generate_cauchy: GenerateMatrix,
    multiply: Multiply,
    /// Invariant: dropped last, since the pointers above point into it.
    _library: Library,
}

/// The ISA-L implementation to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Encoder {
    /// The one that it chooses for the processor.
    Chosen,
    /// The one for AVX2, on any processor.
    Avx2,
}

/// A matrix in ISA-L's prepared form.
pub(crate) struct Tables {
    row_count: usize,
    column_count: usize,
    bytes: Vec<u8>,
}

impl Isal {
    /// Loads the library, or reports in one line that it is missing.
    pub(crate) fn load() -> Option<Self> {
        // SAFETY: the library's initialisers do nothing, and each symbol has the type that
        // `erasure_code.h` declares.
        let loaded = unsafe {
            Library::new(LIBRARY).and_then(|library| {
                Ok(Self {
                    init_tables: *library.get::<InitTables>(b"ec_init_tables")?,
                    encode: *library.get::<Encode>(b"ec_encode_data")?,
                    encode_avx2: *library.get::<Encode>(b"ec_encode_data_avx2")?,
                    update: *library.get::<Update>(b"ec_encode_data_update")?,
                    update_avx2: *library.get::<Update>(b"ec_encode_data_update_avx2")?,
                    generate_cauchy: *library.get::<GenerateMatrix>(b"gf_gen_cauchy1_matrix")?,
                    multiply: *library.get::<Multiply>(b"gf_mul")?,
                    _library: library,
                })
            })
        };
        match loaded {
            Ok(isal) => Some(isal),
            Err(error) => {
                println!("skipped: comparison with ISA-L, which is not installed ({error})");
                None
            }
        }
    }

    /// The product of two field elements.
    pub(crate) fn multiply(&self, a: u8, b: u8) -> u8 {
        // SAFETY: the function takes and returns bytes.
        unsafe { (self.multiply)(a, b) }
    }

    /// ISA-L's systematic Cauchy matrix of n rows and k columns.
    pub(crate) fn cauchy_matrix(&self, n: usize, k: usize) -> Vec<u8> {
        let mut elements = vec![0; n * k];
        // SAFETY: the function fills `n * k` bytes.
        unsafe { (self.generate_cauchy)(elements.as_mut_ptr(), int(n), int(k)) }
        elements
    }

    /// Prepares a matrix of `row_count` outputs.
    pub(crate) fn tables(&self, row_count: usize, column_count: usize, elements: &[u8]) -> Tables {
        assert_eq!(elements.len(), row_count * column_count);
        let mut elements = elements.to_vec();
        let mut bytes = vec![0; elements.len() * TABLE_BYTES];
        // SAFETY: the function reads the `row_count * column_count` elements and fills 32 bytes
        // for each.
        unsafe {
            let (rows, columns) = (int(row_count), int(column_count));
            (self.init_tables)(columns, rows, elements.as_mut_ptr(), bytes.as_mut_ptr());
        }
        Tables {
            row_count,
            column_count,
            bytes,
        }
    }

    /// Overwrites the outputs with the matrix times the sources.
    pub(crate) fn encode(
        &self,
        encoder: Encoder,
        tables: &mut Tables,
        sources: &[&[u8]],
        outputs: &mut [&mut [u8]],
    ) {
        let length = outputs[0].len();
        assert!(sources.iter().all(|source| source.len() == length));
        assert!(outputs.iter().all(|output| output.len() == length));
        assert_eq!(
            (outputs.len(), sources.len()),
            (tables.row_count, tables.column_count)
        );
        let mut sources: Vec<*mut u8> = sources
            .iter()
            .map(|source| source.as_ptr().cast_mut())
            .collect();
        let mut outputs: Vec<*mut u8> = outputs
            .iter_mut()
            .map(|output| output.as_mut_ptr())
            .collect();
        let function = match encoder {
            Encoder::Chosen => self.encode,
            Encoder::Avx2 => self.encode_avx2,
        };
        // SAFETY: all buffers are `length` bytes, their number matches the tables, and ISA-L only
        // reads the sources, though it does not declare so.
        unsafe {
            function(
                int(length),
                int(sources.len()),
                int(outputs.len()),
                tables.bytes.as_mut_ptr(),
                sources.as_mut_ptr(),
                outputs.as_mut_ptr(),
            );
        }
    }

    /// Adds one source's part to the outputs.
    pub(crate) fn update(
        &self,
        encoder: Encoder,
        tables: &mut Tables,
        column: usize,
        source: &[u8],
        outputs: &mut [&mut [u8]],
    ) {
        assert!(outputs.iter().all(|output| output.len() == source.len()));
        assert_eq!(outputs.len(), tables.row_count);
        assert!(column < tables.column_count);
        let mut outputs: Vec<*mut u8> = outputs
            .iter_mut()
            .map(|output| output.as_mut_ptr())
            .collect();
        let function = match encoder {
            Encoder::Chosen => self.update,
            Encoder::Avx2 => self.update_avx2,
        };
        // SAFETY: as for `encode`.
        unsafe {
            function(
                int(source.len()),
                int(tables.column_count),
                int(outputs.len()),
                int(column),
                tables.bytes.as_mut_ptr(),
                source.as_ptr().cast_mut(),
                outputs.as_mut_ptr(),
            );
        }
    }
}

fn int(count: usize) -> c_int {
    c_int::try_from(count).expect("test sizes fit an int")
}
