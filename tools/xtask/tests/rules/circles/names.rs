//! Resolves paths to the files that define the items, through re-exports.

use std::collections::BTreeSet;

use super::modules::Modules;

/// The target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A module, by number.
    Module(usize),
    /// An item of the file of this number.
    Item(usize),
    /// Another crate.
    Elsewhere,
}

impl Modules<'_> {
    /// Returns the files that each file imports from.
    pub(super) fn edges(&self) -> Vec<BTreeSet<usize>> {
        let mut edges = vec![BTreeSet::new(); self.files.len()];
        for (number, module) in self.modules.iter().enumerate() {
            for path in &module.named {
                let file = match self.resolve(number, path, &mut Vec::new()) {
                    Place::Module(to) => self.modules[to].file,
                    Place::Item(file) => file,
                    Place::Elsewhere => continue,
                };
                if file != module.file {
                    edges[module.file].insert(file);
                }
            }
        }
        edges
    }

    /// Resolves a path that module `from` names. `passed` contains the names that have been
    /// followed already.
    fn resolve(&self, from: usize, path: &[String], passed: &mut Vec<(usize, String)>) -> Place {
        let mut at = from;
        for (position, name) in path.iter().enumerate() {
            let found = match name.as_str() {
                "crate" => Some(Place::Module(0)),
                "self" => Some(Place::Module(at)),
                "super" => Some(Place::Module(self.modules[at].parent)),
                name => self.lookup(at, name, passed),
            };
            match found {
                Some(Place::Module(module)) => at = module,
                Some(place) => return place,
                None if position == 0 => return Place::Elsewhere,
                // The name is defined by a macro, or belongs to a part of an item.
                None => return Place::Item(self.modules[at].file),
            }
        }
        Place::Module(at)
    }

    /// Returns the meaning of a name in a module.
    fn lookup(&self, at: usize, name: &str, passed: &mut Vec<(usize, String)>) -> Option<Place> {
        let step = (at, name.to_owned());
        if passed.contains(&step) {
            return None;
        }
        passed.push(step);
        let module = &self.modules[at];
        if let Some(&child) = module.children.get(name) {
            return Some(Place::Module(child));
        }
        if module.items.contains(name) {
            return Some(Place::Item(module.file));
        }
        if let Some(path) = module.imports.get(name) {
            return Some(self.resolve(at, path, passed));
        }
        module.globs.iter().find_map(|glob| {
            // Another name may need to pass through the glob's module again.
            match self.resolve(at, glob, &mut passed.clone()) {
                Place::Module(of) => self.lookup(of, name, passed),
                _ => None,
            }
        })
    }
}
