//! The distribution of a piece of an update over racks: the racks with changed rows, the racks with parity rows to
//! update, and the counts of both. Cross-rack schemes decide by these counts alone (CAU section 3.2, `RackCU` section
//! III-B), and the counts are also the cost of the plans.

use super::piece::Cell;
use crate::Stripe;
use gabion_codec::Matrix;
use gabion_layout::{ChunkIndex, NodeId, RackId, Topology};

/// A parity row that must follow, and what each cell's delta is multiplied with on its way there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Target {
    pub(crate) chunk: ChunkIndex,
    pub(crate) row: usize,
    pub(crate) node: NodeId,
    /// Number of its rack within the spread.
    pub(crate) rack: usize,
    /// By cell; not all are 0.
    pub(crate) coefficients: Vec<u8>,
}

/// Cells and targets by rack. Racks are numbered from 0 in the order in which the stripe's chunks
/// name them; those without chunks of the stripe cannot help and are left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Spread {
    pub(crate) rack_count: usize,
    /// Rack of each cell.
    pub(crate) cell_racks: Vec<usize>,
    pub(crate) targets: Vec<Target>,
    /// `cells[a * rack_count + b]`: cells in rack `a` that some target in rack `b` depends on.
    cells: Vec<u32>,
    /// `rows[a * rack_count + b]`: targets in rack `b` that depend on some cell in rack `a`.
    rows: Vec<u32>,
    /// By rack: its cells that some target of another rack depends on.
    cells_out: Vec<u32>,
    /// By rack: targets of other racks that depend on its cells, once for each rack.
    rows_out: Vec<u32>,
    /// By rack: cells of other racks that its targets depend on.
    cells_in: Vec<u32>,
    /// By rack: its targets that depend on some cell of another rack.
    rows_in: Vec<u32>,
    /// By rack: whether some cell that it needs is in a rack that gives sums instead of deltas.
    gets_sums: Vec<bool>,
}

impl Spread {
    /// The spread of the cells of one piece.
    pub(super) fn of_cells(stripe: &Stripe<'_>, topology: &Topology, changed: &[Cell]) -> Self {
        let racks = Racks::of(stripe, topology);
        let code = stripe.code;
        let mut targets = Vec::with_capacity(stripe.geometry.m() * code.sub_chunks());
        for chunk in stripe.geometry.parity_chunks() {
            for row in 0..code.sub_chunks() {
                let factor =
                    |cell: &Cell| code.coefficient(chunk.at(), row, cell.chunk.at(), cell.row);
                let coefficients: Vec<u8> = changed.iter().map(factor).collect();
                if coefficients.iter().any(|&coefficient| coefficient != 0) {
                    targets.push(Target {
                        chunk,
                        row,
                        node: stripe.node_of(chunk),
                        rack: racks.of_chunk[chunk.at()],
                        coefficients,
                    });
                }
            }
        }
        let cell_racks = changed.iter().map(|cell| racks.of_chunk[cell.chunk.at()]);
        Self::count(racks.count, cell_racks.collect(), targets)
    }

    /// The spread of whole data chunks.
    pub(crate) fn of_chunks(
        stripe: &Stripe<'_>,
        topology: &Topology,
        chunks: &[ChunkIndex],
    ) -> Self {
        let rows = |&chunk| (0..stripe.code.sub_chunks()).map(move |row| Cell { chunk, row });
        let cells: Vec<Cell> = chunks.iter().flat_map(rows).collect();
        Self::of_cells(stripe, topology, &cells)
    }

    fn count(rack_count: usize, cell_racks: Vec<usize>, targets: Vec<Target>) -> Self {
        let mut spread = Self {
            rack_count,
            cells: vec![0; rack_count * rack_count],
            rows: vec![0; rack_count * rack_count],
            cells_out: vec![0; rack_count],
            rows_out: vec![0; rack_count],
            cells_in: vec![0; rack_count],
            rows_in: vec![0; rack_count],
            gets_sums: vec![false; rack_count],
            cell_racks,
            targets,
        };
        let mut is_met = vec![false; rack_count];
        for (cell, &a) in spread.cell_racks.iter().enumerate() {
            is_met.fill(false);
            for target in &spread.targets {
                is_met[target.rack] |= target.coefficients[cell] != 0;
            }
            for (b, _) in is_met.iter().enumerate().filter(|(_, is_met)| **is_met) {
                spread.cells[a * rack_count + b] += 1;
            }
            is_met[a] = false;
            spread.cells_out[a] += u32::from(is_met.contains(&true));
        }
        for target in &spread.targets {
            let b = target.rack;
            is_met.fill(false);
            for (&coefficient, &a) in target.coefficients.iter().zip(&spread.cell_racks) {
                is_met[a] |= coefficient != 0;
            }
            for (a, _) in is_met.iter().enumerate().filter(|(_, is_met)| **is_met) {
                spread.rows[a * rack_count + b] += 1;
            }
            is_met[b] = false;
            spread.rows_in[b] += u32::from(is_met.contains(&true));
        }
        spread.sum_up();
        spread
    }

    /// Sums the pairs by rack.
    fn sum_up(&mut self) {
        for (a, b) in self.pairs() {
            self.rows_out[a] += self.rows(a, b);
            self.cells_in[b] += self.cells(a, b);
        }
        for (a, b) in self.pairs() {
            self.gets_sums[b] |= self.cells(a, b) > 0 && !self.is_raw(a);
        }
    }

    /// Data deltas that rack `b` needs of rack `a`.
    pub(crate) fn cells(&self, a: usize, b: usize) -> u32 {
        self.cells[a * self.rack_count + b]
    }

    /// Parity deltas that rack `b` needs of rack `a`.
    pub(crate) fn rows(&self, a: usize, b: usize) -> u32 {
        self.rows[a * self.rack_count + b]
    }

    /// Returns the number of deltas that the selective update sends from one rack to another: the fewer of data deltas
    /// and parity deltas.
    pub(crate) fn selective(&self, a: usize, b: usize) -> u32 {
        self.cells(a, b).min(self.rows(a, b))
    }

    /// Rows that cross racks when every rack updates every other by the selective update.
    pub(crate) fn direct_rows(&self) -> u32 {
        let pairs = self.pairs().map(|(a, b)| self.selective(a, b));
        pairs.sum()
    }

    /// Whether rack `a` gives a collector its data deltas as they are: they are no more than the
    /// parity deltas that it could give instead.
    pub(crate) fn is_raw(&self, a: usize) -> bool {
        self.cells_out[a] <= self.rows_out[a]
    }

    /// The least that rack `a` must give to others, if one rack takes it for all.
    pub(crate) fn out(&self, a: usize) -> u32 {
        self.cells_out[a].min(self.rows_out[a])
    }

    /// Whether rack `b` gets data deltas from a collector: they are there as they are, and no more
    /// than the parity deltas.
    pub(crate) fn takes_data(&self, b: usize) -> bool {
        self.cells_in[b] <= self.rows_in[b] && !self.gets_sums[b]
    }

    /// The least that rack `b` must get from others, if one rack has it all.
    pub(crate) fn needs(&self, b: usize) -> u32 {
        if self.takes_data(b) {
            self.cells_in[b]
        } else {
            self.rows_in[b]
        }
    }

    /// All pairs of different racks.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let racks = self.rack_count;
        (0..racks).flat_map(move |a| (0..racks).filter(move |&b| b != a).map(move |b| (a, b)))
    }

    /// The rank of what targets outside a set of racks need of the cells inside: in any plan, at
    /// least this many rows leave the set.
    pub(crate) fn cut_rank(&self, is_inside: &dyn Fn(usize) -> bool) -> u32 {
        let columns: Vec<usize> = (0..self.cell_racks.len())
            .filter(|&cell| is_inside(self.cell_racks[cell]))
            .collect();
        let outside = self.targets.iter().filter(|target| !is_inside(target.rack));
        let rows: Vec<&Target> = outside.collect();
        let mut needs = Matrix::zeros(rows.len(), columns.len());
        for (row, target) in rows.iter().enumerate() {
            for (column, &cell) in columns.iter().enumerate() {
                needs.set(row, column, target.coefficients[cell]);
            }
        }
        needs.rank() as u32
    }

    /// Targets in rack `b` that depend on some cell in the racks that `is_giver` names.
    pub(crate) fn rows_from(&self, b: usize, is_giver: impl Fn(usize) -> bool) -> u32 {
        let depends = |target: &&Target| {
            let cells = target.coefficients.iter().zip(&self.cell_racks);
            let mut given = cells.filter(|&(_, &rack)| is_giver(rack));
            given.any(|(&coefficient, _)| coefficient != 0)
        };
        let here = self.targets.iter().filter(|target| target.rack == b);
        here.filter(depends).count() as u32
    }
}

/// The racks of a stripe's chunks, numbered.
struct Racks {
    count: usize,
    of_chunk: Vec<usize>,
}

impl Racks {
    fn of(stripe: &Stripe<'_>, topology: &Topology) -> Self {
        let mut seen: Vec<Option<RackId>> = Vec::new();
        let number = |&node: &NodeId| {
            let rack = topology.rack_of(node);
            let known = seen.iter().position(|other| *other == rack);
            known.unwrap_or_else(|| {
                seen.push(rack);
                seen.len() - 1
            })
        };
        let of_chunk = stripe.placement.iter().map(number).collect();
        Self {
            count: seen.len(),
            of_chunk,
        }
    }
}
