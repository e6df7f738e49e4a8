//! ISA-L, loaded at run time if it is installed: the oracle of the tests and the baseline of the
//! benchmark. Only these two use it. `GABION_ISAL=/path/libisal.so.2` names another library.
#![allow(unsafe_code)]
// The test and the benchmark each use a part of it.
#![allow(dead_code)]

use std::env;
use std::ffi::{OsString, c_int, c_uchar};
use std::fs;

use libloading::Library;

/// The soname that ISA-L has had since 2.0.
const LIBRARY: &str = "libisal.so.2";

/// The environment variable that names another library.
const LIBRARY_VARIABLE: &str = "GABION_ISAL";

/// Most bytes of ISA-L's prepared form of one coefficient.
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
    /// Since 2.31, `init_tables` prepares for GFNI, and this function for AVX2.
    init_tables_avx2: InitTables,
    has_gfni: bool,
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

/// A matrix in ISA-L's prepared form for one implementation.
pub(crate) struct Tables {
    encoder: Encoder,
    row_count: usize,
    column_count: usize,
    bytes: Vec<u8>,
    /// The addresses of a call's sources and outputs, kept so that a call allocates nothing.
    sources: Vec<*mut u8>,
    outputs: Vec<*mut u8>,
}

impl Tables {
    fn keep_outputs(&mut self, outputs: &mut [&mut [u8]]) {
        let addresses = outputs.iter_mut().map(|output| output.as_mut_ptr());
        self.outputs.clear();
        self.outputs.extend(addresses);
    }
}

impl Isal {
    /// Loads the library, or reports in one line that it is missing.
    pub(crate) fn load() -> Option<Self> {
        let name = env::var_os(LIBRARY_VARIABLE).unwrap_or_else(|| OsString::from(LIBRARY));
        // SAFETY: the library's initialisers do nothing, and each symbol has the type that
        // `erasure_code.h` declares.
        let loaded = unsafe {
            Library::new(&name).and_then(|library| {
                let init_tables = *library.get::<InitTables>(b"ec_init_tables")?;
                let base = library.get::<InitTables>(b"ec_init_tables_base");
                Ok(Self {
                    init_tables,
                    init_tables_avx2: base.map_or(init_tables, |function| *function),
                    has_gfni: library.get::<InitTables>(b"ec_init_tables_gfni").is_ok(),
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
                println!("skipped: comparison with ISA-L; {} {error}", name.display());
                None
            }
        }
    }

    /// The file of the library, which ends in its version, as `libisal.so.2.0.30` of 2.30: the
    /// library has no function that returns it.
    pub(crate) fn file(&self) -> String {
        let address = self.multiply as usize;
        let holds_it = |line: &&str| {
            let (start, end) = line.split_once(' ')?.0.split_once('-')?;
            let start = usize::from_str_radix(start, 16).ok()?;
            let end = usize::from_str_radix(end, 16).ok()?;
            (start..end).contains(&address).then_some(())
        };
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let line = maps.lines().find(|line| holds_it(line).is_some());
        let path = line.and_then(|line| line.split_whitespace().nth(5));
        path.unwrap_or("unknown file").to_owned()
    }

    /// Whether the library has kernels for GFNI, as since 2.31.
    pub(crate) fn has_gfni(&self) -> bool {
        self.has_gfni
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

    /// Prepares a matrix of `row_count` outputs for an implementation.
    pub(crate) fn tables(
        &self,
        encoder: Encoder,
        row_count: usize,
        column_count: usize,
        elements: &[u8],
    ) -> Tables {
        assert_eq!(elements.len(), row_count * column_count);
        let mut elements = elements.to_vec();
        let mut bytes = vec![0; elements.len() * TABLE_BYTES];
        let function = match encoder {
            Encoder::Chosen => self.init_tables,
            Encoder::Avx2 => self.init_tables_avx2,
        };
        // SAFETY: the function reads the `row_count * column_count` elements and fills at most 32
        // bytes for each.
        unsafe {
            let (rows, columns) = (int(row_count), int(column_count));
            function(columns, rows, elements.as_mut_ptr(), bytes.as_mut_ptr());
        }
        Tables {
            encoder,
            row_count,
            column_count,
            bytes,
            sources: Vec::new(),
            outputs: Vec::new(),
        }
    }

    /// Overwrites the outputs with the matrix times the sources.
    pub(crate) fn encode(&self, tables: &mut Tables, sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let length = outputs[0].len();
        assert!(sources.iter().all(|source| source.len() == length));
        assert!(outputs.iter().all(|output| output.len() == length));
        assert_eq!(
            (outputs.len(), sources.len()),
            (tables.row_count, tables.column_count)
        );
        let addresses = sources.iter().map(|source| source.as_ptr().cast_mut());
        tables.sources.clear();
        tables.sources.extend(addresses);
        tables.keep_outputs(outputs);
        let function = match tables.encoder {
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
                tables.sources.as_mut_ptr(),
                tables.outputs.as_mut_ptr(),
            );
        }
    }

    /// Adds one source's part to the outputs.
    pub(crate) fn update(
        &self,
        tables: &mut Tables,
        column: usize,
        source: &[u8],
        outputs: &mut [&mut [u8]],
    ) {
        assert!(outputs.iter().all(|output| output.len() == source.len()));
        assert_eq!(outputs.len(), tables.row_count);
        assert!(column < tables.column_count);
        tables.keep_outputs(outputs);
        let function = match tables.encoder {
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
                tables.outputs.as_mut_ptr(),
            );
        }
    }
}

fn int(count: usize) -> c_int {
    c_int::try_from(count).expect("test sizes fit an int")
}
