//! Inode numbers: directories have the odd ones, files the even ones, and the mounted directory has 1.
//!
//! Both follow from the cluster's ids, so no table is needed, and all mounts of a directory agree.

use fuser::INodeNo;
use gabion_meta::{DirectoryId, Inode, PutId};

/// The numbers of a mount of one directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbers {
    /// The mounted directory.
    pub(crate) root: DirectoryId,
}

impl Numbers {
    /// The number of an inode.
    pub(crate) fn number(self, inode: Inode) -> INodeNo {
        let number = match inode {
            Inode::Directory(directory) if directory == self.root => INodeNo::ROOT.0,
            Inode::Directory(DirectoryId(id)) => id.wrapping_mul(2).wrapping_add(1),
            Inode::File(PutId(id)) => id.wrapping_mul(2).wrapping_add(2),
        };
        INodeNo(number)
    }

    /// The inode with a number.
    pub(crate) fn inode(self, number: INodeNo) -> Inode {
        match number {
            INodeNo::ROOT => Inode::Directory(self.root),
            INodeNo(odd) if odd % 2 == 1 => Inode::Directory(DirectoryId(odd / 2)),
            INodeNo(even) => Inode::File(PutId((even / 2).wrapping_sub(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_inode_has_its_own_number_and_the_mounted_directory_has_one() {
        for root in [DirectoryId::ROOT, DirectoryId(7)] {
            let numbers = Numbers { root };
            assert_eq!(numbers.number(Inode::Directory(root)), INodeNo::ROOT);
            let directories = (1..20).map(|id| Inode::Directory(DirectoryId(id)));
            let files = (0..20).map(|id| Inode::File(PutId(id)));
            let mut seen = Vec::new();
            for inode in directories.chain(files) {
                let number = numbers.number(inode);
                assert_eq!(numbers.inode(number), inode);
                assert!(!seen.contains(&number), "{inode:?}");
                seen.push(number);
            }
        }
    }
}
