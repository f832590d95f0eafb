//! The modules of a crate, with the file, the declarations and the named paths of each.
//!
//! Files are read as tokens, so paths in bodies and in macro calls count as well as `use` items.
//! Code compiled only for tests is ignored.

use std::collections::{BTreeMap, BTreeSet};

use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Ident, Token, UseTree, Visibility, braced, bracketed, token};

/// A path, segment by segment.
pub(super) type Path = Vec<String>;

/// A module, which is inline or has a file.
#[derive(Default)]
pub(super) struct Module {
    /// The index of the module's file in [`Modules::files`].
    pub(super) file: usize,
    /// The index of the parent module. The root is its own parent.
    pub(super) parent: usize,
    /// The indices of the submodules, by name.
    pub(super) children: BTreeMap<String, usize>,
    /// The names that `use` items bring into scope, each with its path.
    pub(super) imports: BTreeMap<String, Path>,
    /// The paths of glob imports.
    pub(super) globs: Vec<Path>,
    /// The names of the items that the module defines.
    pub(super) items: BTreeSet<String>,
    /// The paths in the module's private `use` items, and the paths that its other code names.
    pub(super) named: Vec<Path>,
}

/// The modules of a crate; the first is its root.
pub(super) struct Modules<'a> {
    /// Returns the text of a file, if it exists.
    read: &'a dyn Fn(&str) -> Option<String>,
    /// The names of the files.
    pub(super) files: Vec<String>,
    pub(super) modules: Vec<Module>,
}

impl<'a> Modules<'a> {
    /// Reads a crate, starting from the file of its root.
    pub(super) fn read(root: &str, read: &'a dyn Fn(&str) -> Option<String>) -> Self {
        let mut all = Self {
            read,
            files: Vec::new(),
            modules: Vec::new(),
        };
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let text = read(root).unwrap_or_else(|| panic!("no file {root}"));
        all.file(root, &text, folder, 0);
        all
    }

    /// Adds the module of a file. The files of its submodules are in `folder`.
    fn file(&mut self, path: &str, text: &str, folder: &str, parent: usize) -> usize {
        self.files.push(path.to_owned());
        let number = self.add(self.files.len() - 1, parent);
        let mut walk = Walk {
            all: self,
            module: number,
            folder: folder.to_owned(),
        };
        let parse = |input: ParseStream| walk.tokens(input, true);
        if let Err(error) = parse.parse_str(text) {
            panic!("{path}: {error}");
        }
        number
    }

    fn add(&mut self, file: usize, parent: usize) -> usize {
        self.modules.push(Module {
            file,
            parent,
            ..Module::default()
        });
        self.modules.len() - 1
    }

    /// Adds the module `name`, declared in a file whose submodules are in `folder`.
    fn declared(&mut self, name: &str, path: Option<&str>, folder: &str, parent: usize) -> usize {
        let own = format!("{folder}/{name}");
        // An explicit path is relative to the folder of the file that declares the module.
        let declaring = &self.files[self.modules[parent].file];
        let beside = declaring.rsplit_once('/').map_or("", |(folder, _)| folder);
        let candidates = match path {
            Some(path) => vec![format!("{beside}/{path}")],
            None => vec![format!("{own}.rs"), format!("{own}/mod.rs")],
        };
        for candidate in &candidates {
            if let Some(text) = (self.read)(candidate) {
                return self.file(candidate, &text, &own, parent);
            }
        }
        panic!("module {name}: no file of {candidates:?}");
    }
}

/// Reads the tokens of one module.
struct Walk<'w, 'a> {
    all: &'w mut Modules<'a>,
    module: usize,
    /// The folder with the files of the module's submodules.
    folder: String,
}

impl Walk<'_, '_> {
    fn module(&mut self) -> &mut Module {
        &mut self.all.modules[self.module]
    }

    /// Reads all tokens of a file, a module or a group. `items` must be set for a file or a module,
    /// and only for these.
    fn tokens(&mut self, input: ParseStream, items: bool) -> syn::Result<()> {
        let mut public = false;
        let mut path = None;
        while !input.is_empty() {
            if input.peek(Token![#]) && input.peek2(token::Bracket) {
                let attribute = attribute(input)?;
                if is_of_tests(&attribute) {
                    skip_item(input, items)?;
                } else if attribute.starts_with("path") {
                    path = attribute.split('"').nth(1).map(str::to_owned);
                }
            } else if input.peek(Token![pub]) {
                // Fields have a visibility too. The path in `pub(in path)` is not an import.
                input.parse::<Visibility>()?;
                public = items && input.peek(Token![use]);
            } else if input.peek(Token![use]) {
                input.parse::<Token![use]>()?;
                // This condition excludes `impl Trait + use<'a>` and the output of macros.
                if input.fork().parse::<UseTree>().is_ok() {
                    self.import(&Path::new(), &input.parse()?, !public);
                }
                public = false;
            } else if items && input.peek(Token![mod]) && input.peek2(Ident) {
                input.parse::<Token![mod]>()?;
                let name = input.parse::<Ident>()?.unraw().to_string();
                self.child(&name, path.take().as_deref(), input)?;
            } else if input.peek(Ident::peek_any) {
                self.words(input, items)?;
            } else if input.peek(token::Brace) {
                let inner;
                braced!(inner in input);
                self.tokens(&inner, false)?;
            } else {
                self.other(input)?;
            }
        }
        Ok(())
    }

    /// Reads a group in brackets or parentheses, or a single token.
    fn other(&mut self, input: ParseStream) -> syn::Result<()> {
        let inner;
        if input.peek(token::Paren) {
            syn::parenthesized!(inner in input);
        } else if input.peek(token::Bracket) {
            bracketed!(inner in input);
        } else {
            return skip(input);
        }
        self.tokens(&inner, false)
    }

    /// Reads a path, or a keyword and the name that it defines.
    fn words(&mut self, input: ParseStream, items: bool) -> syn::Result<()> {
        const DEFINES: [&str; 8] = [
            "fn", "struct", "enum", "union", "trait", "type", "const", "static",
        ];
        let first = input.call(Ident::parse_any)?.unraw().to_string();
        if DEFINES.contains(&first.as_str()) && input.peek(Ident) {
            if items {
                let name = input.parse::<Ident>()?.unraw().to_string();
                self.module().items.insert(name);
            }
            return Ok(());
        }
        let mut path = vec![first];
        while input.peek(Token![::]) && input.peek3(Ident::peek_any) {
            input.parse::<Token![::]>()?;
            path.push(input.call(Ident::parse_any)?.unraw().to_string());
        }
        // A single word with a small first letter is assumed to be a variable or a keyword.
        if path.len() > 1 || path[0].starts_with(char::is_uppercase) {
            self.module().named.push(path);
        }
        Ok(())
    }

    /// Reads what follows `mod name`.
    fn child(&mut self, name: &str, path: Option<&str>, input: ParseStream) -> syn::Result<()> {
        let number = if input.peek(token::Brace) {
            let inner;
            braced!(inner in input);
            let file = self.all.modules[self.module].file;
            let number = self.all.add(file, self.module);
            let mut walk = Walk {
                all: self.all,
                module: number,
                folder: format!("{}/{name}", self.folder),
            };
            walk.tokens(&inner, true)?;
            number
        } else {
            self.all.declared(name, path, &self.folder, self.module)
        };
        self.module().children.insert(name.to_owned(), number);
        Ok(())
    }

    /// Adds the names that a `use` item brings into scope. A public item is a re-export, which
    /// counts where its names are used.
    fn import(&mut self, before: &Path, tree: &UseTree, private: bool) {
        let with = |ident: &Ident| {
            let mut path = before.clone();
            let ident = ident.unraw().to_string();
            if ident != "self" || path.is_empty() {
                path.push(ident);
            }
            path
        };
        let (path, name) = match tree {
            UseTree::Path(tree) => return self.import(&with(&tree.ident), &tree.tree, private),
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.import(before, tree, private);
                }
                return;
            }
            UseTree::Glob(_) => {
                self.module().globs.push(before.clone());
                (before.clone(), None)
            }
            UseTree::Name(tree) => (with(&tree.ident), with(&tree.ident).pop()),
            UseTree::Rename(tree) => (with(&tree.ident), Some(tree.rename.unraw().to_string())),
        };
        if let Some(name) = name {
            self.module().imports.insert(name, path.clone());
        }
        if private {
            self.module().named.push(path);
        }
    }
}

/// Reads an attribute and returns its content without blanks outside strings.
fn attribute(input: ParseStream) -> syn::Result<String> {
    let text = {
        let fork = input.fork();
        fork.parse::<Token![#]>()?;
        let inner;
        bracketed!(inner in fork);
        inner.to_string()
    };
    skip(input)?;
    skip(input)?;
    Ok(text.split_whitespace().collect())
}

/// Returns whether the attribute restricts an item to tests.
fn is_of_tests(attribute: &str) -> bool {
    attribute == "cfg(test)" || attribute.starts_with("cfg(all(test,")
}

/// Skips an item, or a part of one that ends with a comma.
fn skip_item(input: ParseStream, items: bool) -> syn::Result<()> {
    while !input.is_empty() {
        let last =
            input.peek(Token![;]) || input.peek(token::Brace) || (!items && input.peek(Token![,]));
        skip(input)?;
        if last {
            break;
        }
    }
    Ok(())
}

fn skip(input: ParseStream) -> syn::Result<()> {
    input.step(|cursor| match cursor.token_tree() {
        Some((_, rest)) => Ok(((), rest)),
        None => Err(cursor.error("a token")),
    })
}
