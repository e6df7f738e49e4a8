//! `gabion ln`: hard links, and symbolic links.

use super::attributes::new_symlink;
use super::connect;
use crate::arguments::{LinkOptions, Place};
use crate::failure::Failure;
use crate::output::{Format, print_json};
use gabion_meta::Inode;
use serde_json::json;

pub(crate) async fn ln(options: LinkOptions, place: &Place, format: Format) -> Result<(), Failure> {
    let LinkOptions {
        target,
        name,
        symbolic,
        pool,
    } = options;
    let client = connect(place).await?;
    if symbolic {
        let made = client.make_symlink(&name, &target, pool.as_deref(), new_symlink());
        made.await?;
    } else {
        let Inode::File(file) = client.inode(&target).await?.inode else {
            return Err(Failure::failed(format!(
                "'{target}' is a directory and cannot have hard links; create a symbolic link with -s"
            )));
        };
        client.link(file, &name).await?;
    }
    if format == Format::Json {
        let key = if symbolic { "symlink_to" } else { "name_of" };
        return print_json(&json!({ "name": name, key: target }));
    }
    if symbolic {
        println!("made {name}, a symbolic link to {target}");
    } else {
        println!("{name} is a name of {target}");
    }
    Ok(())
}
