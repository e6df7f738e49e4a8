//! Creates a store, opens it after any end, and rebuilds its metadata from the log.
//!
//! The map of pages is not stored: it follows from the tables of all stripes, in which the newest
//! entry of a page counts. Opening reads the tables from the non-volatile memory, 16 bytes a page.
//! If that memory is lost, the same tables are read from the stripes' summaries on the devices. The
//! contents of buffers are lost then. Older bytes of these pages may be back, and so may bytes in
//! holes punched and lengths cut since.

use crate::array::Array;
use crate::buffers::Buffers;
use crate::device::Device;
use crate::error::FlashError;
use crate::files::{Files, INODES_PER_PAGE, TABLE};
use crate::format::{
    Entry, INODE_BYTES, Inode, SUPERBLOCK_BYTES, StripeState, Superblock, decode_header,
    decode_summary, encode_header,
};
use crate::geometry::{ENTRY_BYTES, Geometry, HEADER_BYTES, PAGE_BYTES, header_offset};
use crate::log::Writer;
use crate::nvram::Nvram;
use crate::page_map::{PageMap, Place};
use crate::replace::{read_device_header, write_device_header};
use crate::store::{FlashOptions, FlashStore, Found};
use crate::stripes::{Stripe, Stripes};
use std::collections::BTreeMap;
use std::sync::Arc;

impl<D: Device, N: Nvram> FlashStore<D, N> {
    /// Creates an empty store of new devices and memory. `identity` distinguishes its devices from
    /// other stores'.
    ///
    /// # Errors
    /// [`FlashError::Unsupported`] when the parameters contradict each other or a part is too
    /// small, or when a device fails.
    pub fn format(
        geometry: Geometry,
        identity: u64,
        devices: Vec<D>,
        nvram: N,
        options: FlashOptions,
    ) -> Result<Self, FlashError> {
        geometry.check()?;
        let superblock = Superblock { identity, geometry };
        for (index, device) in devices.iter().enumerate() {
            write_device_header(&superblock, index, device)?;
        }
        format_nvram(&superblock, &nvram)?;
        Self::open(devices.into_iter().map(Some).collect(), nvram, options)
    }

    /// Opens a store. Devices are given in order; `None` is an absent one.
    ///
    /// # Errors
    /// [`FlashError::UnknownFormat`] when a part belongs to another store or is damaged;
    /// [`FlashError::TooManyMissing`]; or any error of the system.
    pub fn open(
        devices: Vec<Option<D>>,
        nvram: N,
        options: FlashOptions,
    ) -> Result<Self, FlashError> {
        nvram
            .forget_cached()
            .map_err(|source| FlashError::io("read the non-volatile memory's disk", source))?;
        let superblock = read_superblock(&nvram)?;
        let geometry = superblock.geometry;
        for (index, device) in devices.iter().enumerate() {
            if let Some(device) = device
                && read_device_header(device, index)? != superblock
            {
                return Err(FlashError::UnknownFormat {
                    place: format!("device {index}"),
                    reason: "it belongs to another array".to_owned(),
                });
            }
        }
        let array = Array::new(geometry, devices)?;
        array.check(array.absent())?;
        // Changes left by a killed process are visible, but perhaps not durable yet.
        nvram
            .persist(std::slice::from_ref(&(0..geometry.nvram_bytes())))
            .map_err(|source| FlashError::io("sync the non-volatile memory", source))?;
        let (found, replaced) = Scan::new(geometry, &array, &nvram)?.run()?;
        let store = Self::assemble(superblock.identity, options, array, nvram, found);
        store.back_at_start();
        for number in replaced {
            store.attempt(Writer::User, |state| store.put_inode(state, number, None))?;
        }
        store.persist()?;
        Ok(store)
    }

    /// Opens a store whose non-volatile memory is lost, on a new one. See the module's
    /// documentation for the losses.
    ///
    /// # Errors
    /// As for [`FlashStore::open`].
    pub fn open_without_nvram(
        devices: Vec<Option<D>>,
        nvram: N,
        options: FlashOptions,
    ) -> Result<Self, FlashError> {
        let first = devices
            .iter()
            .enumerate()
            .find_map(|(index, device)| Some((index, device.as_ref()?)));
        let Some((index, device)) = first else {
            return Err(FlashError::Unsupported {
                reason: "no device is given".to_owned(),
            });
        };
        let superblock = read_device_header(device, index)?;
        let geometry = superblock.geometry;
        format_nvram(&superblock, &nvram)?;
        let devices: Vec<Option<Arc<D>>> = devices
            .into_iter()
            .map(|device| device.map(Arc::new))
            .collect();
        let array = Array::new(geometry, devices.clone())?;
        array.check(array.absent())?;
        let mut summary = vec![0; geometry.summary_pages() as usize * PAGE_BYTES];
        for stripe in 0..geometry.stripe_count {
            if let Some((base, table)) = read_summary(&superblock, &array, stripe, &mut summary)? {
                let missing = array.absent();
                let header = encode_header(stripe, base, StripeState::Sealed { missing });
                let table_bytes = geometry.slot_count() as usize * ENTRY_BYTES as usize;
                let offset = header_offset(stripe);
                nvram
                    .write(geometry.entry_offset(stripe, 0), &table[..table_bytes])
                    .and_then(|()| nvram.write(offset + 8, &base.to_le_bytes()))
                    .and_then(|()| nvram.write(offset, &header))
                    .map_err(|source| FlashError::io("write to the non-volatile memory", source))?;
            }
        }
        drop(array);
        let devices = devices
            .into_iter()
            .map(|device| device.and_then(Arc::into_inner));
        Self::open(devices.collect(), nvram, options)
    }
}

/// The base and table of a stripe's summary, if it is whole or can be rebuilt.
fn read_summary<'a, D: Device>(
    superblock: &Superblock,
    array: &Array<D>,
    stripe: u32,
    bytes: &'a mut [u8],
) -> Result<Option<(u64, &'a [u8])>, FlashError> {
    // A summary is at the start of its stripe's first chunk. Its pages are read one by one, since others may be
    // unreadable at different places.
    let (identity, absent) = (superblock.identity, array.absent());
    let is_whole = |found: &[u8]| decode_summary(identity, stripe, found).is_some();
    let (mut is_blank, mut is_found) = (true, false);
    for is_rebuilt in [false, true] {
        let outputs = bytes.chunks_exact_mut(PAGE_BYTES);
        for (offset, output) in (0..).step_by(PAGE_BYTES).zip(outputs) {
            if !is_rebuilt {
                array.read(stripe, absent, 0, offset, output, &|_| true)?;
                is_blank &= output.iter().all(|byte| *byte == 0);
            } else if array
                .rebuild(stripe, absent, 0, offset, output, &|_, _| true)
                .is_err()
            {
                return Ok(None);
            }
        }
        is_found = is_whole(bytes);
        if is_found {
            break;
        }
    }
    if !is_found && !is_blank {
        let fits = |of: usize, found: &[u8]| of != 0 || is_whole(found);
        // If no choice of other chunks gives it, the check below fails too.
        let _ = array.rebuild(stripe, absent, 0, 0, bytes, &fits);
    }
    Ok(decode_summary(identity, stripe, bytes))
}

fn format_nvram<N: Nvram>(superblock: &Superblock, nvram: &N) -> Result<(), FlashError> {
    let geometry = &superblock.geometry;
    let (have, needed) = (nvram.length_bytes(), geometry.nvram_bytes());
    if have < needed {
        return Err(FlashError::Unsupported {
            reason: format!("the non-volatile memory has {have} bytes, but {needed} are needed"),
        });
    }
    let headers = header_offset(0)..header_offset(geometry.stripe_count);
    let zeros = vec![0; (headers.end - headers.start) as usize];
    nvram
        .write(headers.start, &zeros)
        .and_then(|()| nvram.persist(std::slice::from_ref(&headers)))
        .and_then(|()| nvram.write(0, &superblock.encode()))
        .and_then(|()| nvram.persist(std::slice::from_ref(&(0..PAGE_BYTES as u64))))
        .map_err(|source| FlashError::io("format the non-volatile memory", source))
}

fn read_superblock<N: Nvram>(nvram: &N) -> Result<Superblock, FlashError> {
    let unknown = |reason: &str| FlashError::UnknownFormat {
        place: "the non-volatile memory".to_owned(),
        reason: reason.to_owned(),
    };
    let mut bytes = [0; SUPERBLOCK_BYTES];
    if nvram.length_bytes() < bytes.len() as u64 {
        return Err(unknown("it is too short"));
    }
    nvram
        .read(0, &mut bytes)
        .map_err(|source| FlashError::io("read the non-volatile memory", source))?;
    let superblock =
        Superblock::decode(&bytes).ok_or_else(|| unknown("its superblock is damaged"))?;
    if nvram.length_bytes() < superblock.geometry.nvram_bytes() {
        return Err(unknown("it is too short"));
    }
    Ok(superblock)
}

/// Scans a store's contents.
struct Scan<'a, D, N> {
    geometry: Geometry,
    array: &'a Array<D>,
    nvram: &'a N,
    stripes: Vec<Stripe>,
    map: PageMap,
    /// The highest sequence number of all entries.
    newest: u64,
}

impl<'a, D: Device, N: Nvram> Scan<'a, D, N> {
    fn new(geometry: Geometry, array: &'a Array<D>, nvram: &'a N) -> Result<Self, FlashError> {
        let mut stripes = Vec::new();
        for stripe in 0..geometry.stripe_count {
            let mut bytes = [0; HEADER_BYTES as usize];
            nvram
                .read(header_offset(stripe), &mut bytes)
                .map_err(|source| FlashError::io("read the non-volatile memory", source))?;
            let (state, base) = decode_header(stripe, &bytes)
                .filter(|(state, _)| match state {
                    StripeState::Open { buffer } => usize::from(*buffer) < geometry.buffer_count(),
                    _ => true,
                })
                .ok_or_else(|| FlashError::UnknownFormat {
                    place: "the non-volatile memory".to_owned(),
                    reason: format!("the header of stripe {stripe} is damaged"),
                })?;
            stripes.push(Stripe {
                state,
                base,
                live: 0,
                sealed_at: 0,
                staled_at: 0,
                is_busy: false,
            });
        }
        Ok(Self {
            geometry,
            array,
            nvram,
            stripes,
            map: PageMap::default(),
            newest: 0,
        })
    }

    /// Returns the contents, and the numbers of files that lost their name to a later file.
    fn run(mut self) -> Result<(Found, Vec<u32>), FlashError> {
        self.drop_torn()?;
        // The table comes first: it determines which other pages count.
        self.scan(|entry| (entry.file == TABLE).then_some(true))?;
        let inodes = self.inodes()?;
        let (files, replaced) = Files::new(inodes);
        self.scan(|entry| {
            let inode = files.get(entry.file)?;
            if entry.sequence >= inode.born && u64::from(entry.page) >= inode.page_count() {
                return Some(false);
            }
            inode.holds(entry.page, entry.sequence).then_some(true)
        })?;
        let slot_count = self.geometry.slot_count();
        for (_, _, place) in self.map.pages() {
            self.stripes[(place.0 / slot_count) as usize].live += 1;
        }
        // Make cleared slots durable, so that they stay cleared.
        self.nvram
            .persist(std::slice::from_ref(&(0..self.geometry.nvram_bytes())))
            .map_err(|source| FlashError::io("sync the non-volatile memory", source))?;
        let buffers = self.buffers()?;
        let found = Found {
            geometry: self.geometry,
            map: self.map,
            files,
            stripes: Stripes::new(self.stripes, slot_count),
            buffers,
            sequence: self.newest + 1,
        };
        Ok((found, replaced))
    }

    /// The entry of a place.
    fn entry(&self, place: Place) -> Result<Option<Entry>, FlashError> {
        let slot_count = self.geometry.slot_count();
        let (stripe, slot) = (place.0 / slot_count, place.0 % slot_count);
        let mut bytes = [0; ENTRY_BYTES as usize];
        self.read(self.geometry.entry_offset(stripe, slot), &mut bytes)?;
        Ok(Entry::decode(self.stripes[stripe as usize].base, &bytes))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), FlashError> {
        self.nvram
            .read(offset, bytes)
            .map_err(|source| FlashError::io("read the non-volatile memory", source))
    }

    /// Clears a slot with an invalid entry, before it is used.
    fn clear(&self, stripe: u32, slot: u32) -> Result<(), FlashError> {
        let offset = self.geometry.entry_offset(stripe, slot);
        self.nvram
            .write(offset, &[0; 8])
            .map_err(|source| FlashError::io("write to the non-volatile memory", source))
    }

    /// Clears the slots of buffers whose entry and page do not match: writes that a crash tore.
    fn drop_torn(&mut self) -> Result<(), FlashError> {
        let mut page = vec![0; PAGE_BYTES];
        for stripe in 0..self.geometry.stripe_count {
            let StripeState::Open { buffer } = self.stripes[stripe as usize].state else {
                continue;
            };
            let buffer = self.geometry.buffer_offset(usize::from(buffer));
            for slot in 0..self.geometry.slot_count() {
                let place = Place(stripe * self.geometry.slot_count() + slot);
                if let Some(entry) = self.entry(place)? {
                    self.read(buffer + u64::from(slot) * PAGE_BYTES as u64, &mut page)?;
                    if !entry.fits(&page) {
                        self.clear(stripe, slot)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Puts entries into the map. `judge` returns for each whether it counts; `Some(false)`: it
    /// does not belong to a file and must not come back, so its slot is cleared.
    fn scan(&mut self, judge: impl Fn(&Entry) -> Option<bool>) -> Result<(), FlashError> {
        let slot_count = self.geometry.slot_count();
        let mut table = vec![0; slot_count as usize * ENTRY_BYTES as usize];
        for stripe in 0..self.geometry.stripe_count {
            let Stripe { state, base, .. } = self.stripes[stripe as usize];
            if state == StripeState::Free {
                continue;
            }
            self.read(self.geometry.entry_offset(stripe, 0), &mut table)?;
            for (slot, bytes) in (0_u32..).zip(table.chunks_exact(ENTRY_BYTES as usize)) {
                let Some(entry) = Entry::decode(base, bytes) else {
                    continue;
                };
                self.newest = self.newest.max(entry.sequence);
                match judge(&entry) {
                    None => continue,
                    Some(false) => {
                        self.clear(stripe, slot)?;
                        continue;
                    }
                    Some(true) => {}
                }
                let older = match self.map.get(entry.file, entry.page) {
                    Some(place) => self.entry(place)?,
                    None => None,
                };
                if older.is_none_or(|older| older.sequence < entry.sequence) {
                    let place = Place(stripe * slot_count + slot);
                    self.map.set(entry.file, entry.page, place);
                }
            }
        }
        Ok(())
    }

    /// The files in the table.
    fn inodes(&self) -> Result<BTreeMap<u32, Inode>, FlashError> {
        let mut inodes = BTreeMap::new();
        let mut contents = vec![0; PAGE_BYTES];
        for page in self.map.pages_of(TABLE) {
            let place = self.map.get(TABLE, page).expect("the page was just listed");
            self.fetch(place, &mut contents)?;
            let first = page * INODES_PER_PAGE;
            for (number, bytes) in (first..).zip(contents.chunks_exact(INODE_BYTES)) {
                if let Some(inode) = Inode::decode(bytes)? {
                    inodes.insert(number, inode);
                }
            }
        }
        Ok(inodes)
    }

    /// Reads a page of the table, from a buffer or the devices.
    fn fetch(&self, place: Place, output: &mut [u8]) -> Result<(), FlashError> {
        let slot_count = self.geometry.slot_count();
        let (stripe, slot) = (place.0 / slot_count, place.0 % slot_count);
        let entry = self.entry(place)?.expect("the map is made of entries");
        let is_whole = match self.stripes[stripe as usize].state {
            StripeState::Open { buffer } => {
                let buffer = self.geometry.buffer_offset(usize::from(buffer));
                self.read(buffer + u64::from(slot) * PAGE_BYTES as u64, output)?;
                entry.fits(output)
            }
            StripeState::Sealed { missing } => {
                let page = self.geometry.summary_pages() + u64::from(slot);
                let (chunk, offset) = self.geometry.locate(page);
                let fits = |bytes: &[u8]| entry.fits(bytes);
                self.array
                    .read(stripe, missing, chunk, offset, output, &fits)?
            }
            StripeState::Free => unreachable!("entries of free stripes are not looked at"),
        };
        if is_whole {
            return Ok(());
        }
        Err(FlashError::Damaged {
            file: entry.file,
            page: entry.page,
        })
    }

    /// The buffers with their free slots. Everything found is durable, so every stale slot is free.
    fn buffers(&self) -> Result<Buffers, FlashError> {
        let geometry = &self.geometry;
        let slot_count = geometry.slot_count();
        let mut buffers = Buffers::new(geometry.buffer_count(), geometry.group_count, slot_count);
        for stripe in 0..geometry.stripe_count {
            let StripeState::Open { buffer } = self.stripes[stripe as usize].state else {
                continue;
            };
            let mut free = Vec::new();
            for slot in (0..slot_count).rev() {
                let place = Place(stripe * slot_count + slot);
                let is_live = self
                    .entry(place)?
                    .is_some_and(|entry| self.map.get(entry.file, entry.page) == Some(place));
                if !is_live {
                    free.push(slot);
                }
            }
            buffers.restore(usize::from(buffer), stripe, free);
        }
        Ok(buffers)
    }
}
