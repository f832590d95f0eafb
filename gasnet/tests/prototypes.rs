//! Compares the headers' prototypes with the library's functions. Each function must have a
//! prototype and each prototype a function, and the calling convention must pass their parameters
//! and results in the same way.
//!
//! C checks a call against the prototype only, and Rust against the function only. Integers are
//! compared by width and, where it matters, by sign. Pointers are compared by their target, except
//! that `void *` matches every pointer.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use syn::{FnArg, GenericArgument, PathArguments, ReturnType, Signature, Type};

/// A function: the types of its parameters and its result, and the file that contains it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Function {
    parameters: Vec<String>,
    result: String,
    file: PathBuf,
}

fn files(folder: &Path, end: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, end, found);
        } else if path.extension().is_some_and(|extension| extension == end) {
            found.push(path);
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

// ---- C ----

/// Returns a header without comments, directives and parts that only C++ sees.
fn plain(text: &str) -> String {
    let mut rest = text;
    let mut without_comments = String::new();
    while let Some((before, after)) = rest.split_once("/*") {
        without_comments.push_str(before);
        without_comments.push(' ');
        rest = after.split_once("*/").map_or("", |(_, after)| after);
    }
    without_comments.push_str(rest);
    let joined = without_comments.replace("\\\n", " ");
    let mut out = String::new();
    // For each enclosing conditional, whether it tests for C++.
    let mut conditionals = Vec::new();
    for line in joined.lines() {
        let line = line.trim();
        let Some(directive) = line.strip_prefix('#') else {
            if !conditionals.contains(&true) {
                out.push_str(line);
                out.push('\n');
            }
            continue;
        };
        let directive = directive.trim();
        if directive.starts_with("if") {
            conditionals.push(directive == "ifdef __cplusplus");
        } else if directive.starts_with("else") {
            if let Some(cxx) = conditionals.last_mut() {
                *cxx = false;
            }
        } else if directive.starts_with("endif") {
            conditionals.pop();
        }
    }
    out
}

/// Returns the statements outside braces.
fn statements(text: &str) -> Vec<String> {
    let (mut all, mut statement, mut depth) = (Vec::new(), String::new(), 0);
    for c in text.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                // This brace ends a function or a structure's members, so the text before it is not
                // a prototype.
                statement.clear();
            }
            ';' if depth == 0 => all.push(std::mem::take(&mut statement)),
            _ if depth == 0 => statement.push(c),
            _ => {}
        }
    }
    all
}

/// C words that do not affect how a value is passed.
const QUALIFIERS: [&str; 8] = [
    "const",
    "volatile",
    "extern",
    "struct",
    "GASNETT_RESTRICT",
    "CONDUIT_GEX_NORETURN",
    "GASNETT_NORETURN",
    "GASNETT_BEGIN_EXTERNC",
];

/// Returns a C type in the form in which types are compared. `words` are the words of its
/// declaration without the declared name, and `stars` is its pointer depth.
fn c_type(words: &[&str], stars: usize) -> String {
    let base = match words.join(" ").as_str() {
        "void" if stars == 0 => "()",
        "void" => "void",
        "int" | "gex_AM_Arg_t" | "int32_t" => "i32",
        "unsigned int"
        | "unsigned"
        | "uint32_t"
        | "gex_Rank_t"
        | "gasnet_node_t"
        | "gex_Flags_t"
        | "gex_EP_Capabilities_t"
        | "gex_EC_t"
        | "gex_TI_t"
        | "gex_DT_t"
        | "gex_OP_t"
        | "gex_MK_Class_t" => "u32",
        "gex_AM_Index_t" | "gasnet_handler_t" => "u8",
        "gex_EP_Index_t" => "u16",
        "int64_t" => "i64",
        "uint64_t" | "gasnet_register_value_t" | "gex_RMA_Value_t" => "u64",
        "size_t" | "uintptr_t" | "gex_Event_t" | "gasnett_sighandlerfn_t" => "usize",
        "ptrdiff_t" => "isize",
        "double" => "f64",
        "float" => "f32",
        "char" => "char",
        "gex_AD_t" | "gex_Client_t" | "gex_EP_t" | "gex_TM_t" | "gex_Segment_t" | "gex_Token_t"
        | "gasnet_token_t" | "gex_AM_SrcDesc_t" | "gex_Addr_t" | "gex_MK_t" => "*void",
        "gex_Coll_ReduceFn_t" => "ReduceFn",
        "gex_AM_Entry_t" => "Entry",
        "gasnet_handlerentry_t" => "LegacyEntry",
        "gex_Token_Info_t" => "TokenInfo",
        "gex_RankInfo_t" => "RankInfo",
        "gex_EP_Location_t" => "Location",
        "gex_Memvec_t" => "Memvec",
        "gex_MK_Create_args_t" => "KindArguments",
        "gex_ProgressThreadInfo_t" => "ProgressThread",
        "gasnet_seginfo_t" => "SegmentInfo",
        "gasnet_nodeinfo_t" => "NodeInfo",
        "gasnet_valget_handle_t" => "ValueHandle",
        "conduit_gex_valget_s" => "PendingValue",
        "conduit_gex_config_t" => "Config",
        "conduit_gex_segment_t" => "Mapped",
        "conduit_gex_ranges_t" => "Ranges",
        "gasnett_heapstats_t" => "Statistics",
        other => panic!("unknown C type: {other:?}"),
    };
    "*".repeat(stars) + base
}

/// Returns a declaration's type, and the name that it ends with, if any.
fn declared(text: &str, named: bool) -> (String, String) {
    let spaced = text.replace('*', " * ");
    let stars = text.matches('*').count();
    let mut words: Vec<&str> = spaced
        .split_whitespace()
        .filter(|word| *word != "*" && !QUALIFIERS.contains(word))
        .collect();
    let name = if named && words != ["void"] {
        words.pop().unwrap_or_default().to_owned()
    } else {
        String::new()
    };
    (c_type(&words, stars), name)
}

/// Returns a prototype, if the statement is one.
fn prototype(statement: &str, file: &Path) -> Option<(String, Function)> {
    let (before, after) = statement.split_once('(')?;
    let before = before.trim();
    if before.is_empty()
        || ["typedef", "static", "CONDUIT_GEX_INLINE", "__attribute__"]
            .iter()
            .any(|word| before.contains(word))
        || after.trim_start().starts_with('*')
    {
        return None;
    }
    let name = before.rsplit([' ', '*', '\n']).next()?;
    // A macro invocation has no type before it.
    let before = before.strip_suffix(name)?.trim();
    if before.is_empty()
        || !["gex_", "gasnet", "conduit_"]
            .iter()
            .any(|start| name.starts_with(start))
    {
        return None;
    }
    let (result, _) = declared(before, false);
    let parameters = after.split_once(')')?.0.trim();
    let parameters = match parameters {
        "void" | "" => Vec::new(),
        list => list
            .split(',')
            .map(|parameter| declared(parameter, true).0)
            .collect(),
    };
    let function = Function {
        parameters,
        result,
        file: file.to_owned(),
    };
    Some((name.to_owned(), function))
}

fn prototypes() -> BTreeMap<String, Function> {
    let mut headers = Vec::new();
    files(&root().join("include"), "h", &mut headers);
    let mut all = BTreeMap::new();
    for header in headers {
        let text = plain(&fs::read_to_string(&header).unwrap());
        for statement in statements(&text) {
            if let Some((name, function)) = prototype(&statement, &header) {
                let before = all.insert(name.clone(), function);
                assert!(before.is_none(), "{name} is declared twice");
            }
        }
    }
    all
}

// ---- Rust ----

/// Returns a Rust type in the same form as [`c_type`].
fn rust_type(ty: &Type) -> String {
    match ty {
        Type::Ptr(pointer) => format!("*{}", rust_type(&pointer.elem)),
        Type::Never(_) => "()".to_owned(),
        Type::Path(path) => {
            let segment = path.path.segments.last().unwrap();
            let name = segment.ident.to_string();
            match name.as_str() {
                "c_int" | "i32" => "i32",
                "c_uint" | "u32" | "Rank" | "Flags" | "TeamFlags" | "TokenFields"
                | "Categories" => "u32",
                "c_char" => "char",
                "c_void" => "void",
                "sighandler_t" => "usize",
                "Option" => {
                    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
                        panic!("an option of nothing");
                    };
                    let Some(GenericArgument::Type(inner)) = arguments.args.first() else {
                        panic!("an option of no type");
                    };
                    return rust_type(inner);
                }
                other => other,
            }
            .to_owned()
        }
        _ => panic!("unknown Rust type"),
    }
}

fn function(signature: &Signature, file: &Path) -> Function {
    let parameters = signature
        .inputs
        .iter()
        .map(|input| match input {
            FnArg::Typed(typed) => rust_type(&typed.ty),
            FnArg::Receiver(_) => panic!("a method"),
        })
        .collect();
    let result = match &signature.output {
        ReturnType::Default => "()".to_owned(),
        ReturnType::Type(_, ty) => rust_type(ty),
    };
    Function {
        parameters,
        result,
        file: file.to_owned(),
    }
}

const EXPORTED: &str = "#[unsafe(no_mangle)]";

/// Returns the exported functions in a piece of source, each with its name as written there. In a
/// macro, that is `$name`.
fn exported(text: &str, file: &Path) -> Vec<(String, Function)> {
    let mut all = Vec::new();
    for piece in text.split(EXPORTED).skip(1) {
        let Some((signature, _)) = piece.split_once('{') else {
            continue;
        };
        // Other attributes may come in between.
        let lines: Vec<&str> = signature
            .lines()
            .filter(|line| !line.trim().starts_with('#'))
            .collect();
        let signature = lines.join("\n");
        let signature = signature.trim();
        let Some((before, after)) = signature.split_once("fn ") else {
            continue;
        };
        if before != "extern \"C\" " && before != "unsafe extern \"C\" " {
            // A static.
            continue;
        }
        let name = after
            .split('(')
            .next()
            .unwrap_or_default()
            .trim()
            .to_owned();
        let as_function = format!("{before}fn {}", after.replacen(&name, "it", 1));
        let parsed: Signature = syn::parse_str(as_function.trim())
            .unwrap_or_else(|error| panic!("{}: {name}: {error}", file.display()));
        all.push((name, function(&parsed, file)));
    }
    all
}

/// Returns the text between the line `start` and the next brace at the start of a line, and the
/// text after that brace.
fn block<'a>(text: &'a str, start: &str) -> Option<(&'a str, &'a str)> {
    let (_, after) = text.split_once(start)?;
    after.split_once("\n}")
}

fn names_in(entry: &str) -> impl Iterator<Item = &str> {
    entry
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| {
            ["gex_", "gasnet"]
                .iter()
                .any(|start| word.starts_with(start))
        })
}

fn functions() -> BTreeMap<String, Function> {
    let mut sources = Vec::new();
    files(&root().join("src"), "rs", &mut sources);
    files(&root().join("tools/src"), "rs", &mut sources);
    let mut all = BTreeMap::new();
    for source in sources {
        let text = fs::read_to_string(&source).unwrap();
        for (name, function) in exported(&text, &source) {
            if !name.starts_with('$') {
                let before = all.insert(name.clone(), function);
                assert!(before.is_none(), "{name} is defined twice");
            }
        }
        let mut rest = text.as_str();
        while let Some((_, after)) = rest.split_once("macro_rules! ") {
            rest = after;
            let makro = after.split_whitespace().next().unwrap_or_default();
            let (body, after) = after.split_once("\n}").unwrap();
            let templates = exported(body, &source);
            if templates.is_empty() {
                continue;
            }
            // Each entry names one function per template, in the order of the templates.
            let (entries, _) = block(after, &format!("\n{makro}! {{")).unwrap();
            for entry in entries.split(';') {
                for (name, (_, function)) in names_in(entry).zip(&templates) {
                    all.insert(name.to_owned(), function.clone());
                }
            }
        }
    }
    all
}

/// Returns whether values of the two types are passed in the same way.
fn same(c: &str, rust: &str) -> bool {
    c == rust
        || (c.starts_with('*') && rust.starts_with('*') && (c == "*void" || rust == "*void"))
        // Message arguments are signed in C and unsigned in Rust.
        || (c == "*i32" && rust == "*u32")
}

#[test]
fn prototypes_are_those_of_the_functions() {
    let (prototypes, functions) = (prototypes(), functions());
    // The interface has more functions than this, so fewer prototypes mean that the headers were
    // not read correctly.
    assert!(prototypes.len() > 150, "{}", prototypes.len());
    let mut wrong = Vec::new();
    for (name, prototype) in &prototypes {
        let Some(function) = functions.get(name) else {
            wrong.push(format!(
                "{name} is declared in {} but not defined",
                prototype.file.display()
            ));
            continue;
        };
        let alike = prototype.parameters.len() == function.parameters.len()
            && prototype
                .parameters
                .iter()
                .zip(&function.parameters)
                .all(|(c, rust)| same(c, rust))
            && same(&prototype.result, &function.result);
        if !alike {
            wrong.push(format!(
                "{name}:\n  C    {prototype:?}\n  Rust {function:?}"
            ));
        }
    }
    for (name, function) in &functions {
        if !prototypes.contains_key(name) {
            wrong.push(format!(
                "{name} in {} has no prototype",
                function.file.display()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
