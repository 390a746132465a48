//! The completions of bash. `clap_complete` has them too, but for a program with hyphens in its name they end after the verb, and they
//! know no names of the host.

use clap::{Arg, Command};

/// The script, where each `NAME` is the program, `FUNCTION` its function, and `VERBS` and `VALUES` are the rows of its parser.
const SCRIPT: &str = r#"# Completions of bash for NAME, made from its parser.

# Sets what may stand after a verb: `verbs` and `flags` to offer, `known` with aliases, `valued`: flags with a value.
FUNCTION_verb() {
    verbs='' known='' flags='' valued=''
    case $1 in
VERBS    esac
}

# Sets the values of a verb's flag, or of its argument at a position: `words`, and the `kind` of those that the host knows.
FUNCTION_values() {
    case "$1 $2" in
VALUES    esac
}

FUNCTION() {
    local cur=${2-${COMP_WORDS[COMP_CWORD]}} verb='' flag='' ended='' rest='' head='' words='' kind='' word
    local verbs known flags valued
    local -i i at=0
    local -a found=()
    COMPREPLY=()
    # Readline breaks words there: `--output=json` are three.
    local glue='^[=:@]+$'
    [[ $cur =~ $glue ]] && cur=''
    FUNCTION_verb ''
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if [[ $word =~ $glue ]]; then
            flag=${flag:-$word}
        elif [[ -n $flag ]]; then
            flag=''
        elif [[ -z $ended && $word == -- ]]; then
            ended=1
        elif [[ -z $ended && $word == -* ]]; then
            [[ " $valued " == *" $word "* ]] && flag=$word
        elif [[ -z $ended$rest && " $known " == *" $word "* ]]; then
            verb="${verb:+$verb }$word"
            FUNCTION_verb "$verb"
        else
            rest="${rest:+$rest }$word"
            at+=1
        fi
    done
    if [[ ${COMP_WORDS[COMP_CWORD]} =~ $glue && -z $flag ]]; then
        return 0
    elif [[ -n $flag ]]; then
        FUNCTION_values "$verb" "$flag"
    elif [[ -z $ended && $cur == -* ]]; then
        words=$flags
    elif [[ -n $verbs ]]; then
        words=$verbs
    else
        FUNCTION_values "$verb" "$at"
        [[ -z $words$kind$cur ]] && words=$flags
    fi
    case $kind in
        files | directories)
            compopt -o filenames 2>/dev/null
            local what=-f
            [[ $kind == directories ]] && what=-d
            mapfile -t COMPREPLY < <(compgen "$what" -- "$cur" | sort)
            ;;
        list)
            [[ $cur == *,* ]] && head=${cur%,*},
            compopt -o nospace 2>/dev/null
            ;;
        stateroots) words=$(cd /ostree/deploy 2>/dev/null && printf '%s ' *) ;;
        kernel-arguments)
            read -ra found 2>/dev/null </proc/cmdline
            words=${found[*]%%=*}
            ;;
        verbs)
            FUNCTION_verb "$rest"
            words=$verbs
            ;;
    esac
    read -ra found <<<"$words"
    for word in "${found[@]}"; do
        [[ $head$word == "$cur"* ]] && COMPREPLY+=("$head$word")
    done
    return 0
}

complete -o nosort -F FUNCTION NAME
"#;

/// Returns the script of a program.
pub(crate) fn script(mut command: Command) -> String {
    command.build();
    let (mut verbs, mut values) = (String::new(), String::new());
    add(&command, &[String::new()], &mut verbs, &mut values);
    let function = format!("_{}", command.get_name().replace('-', "_"));
    let script = SCRIPT.replace("VERBS", &verbs).replace("VALUES", &values);
    script.replace("FUNCTION", &function).replace("NAME", command.get_name())
}

/// Adds the rows of a verb, which may be written in several ways, and of those below it.
fn add(command: &Command, paths: &[String], verbs: &mut String, values: &mut String) {
    let below: Vec<&Command> = command.get_subcommands().filter(|verb| !verb.is_hide_set()).collect();
    let offered: Vec<&str> = below.iter().map(|verb| verb.get_name()).collect();
    let known: Vec<&str> = below.iter().flat_map(|verb| names(verb)).collect();
    let shown = || command.get_arguments().filter(|argument| !argument.is_hide_set());
    let flags: Vec<String> = shown().flat_map(spellings).collect();
    let valued: Vec<String> =
        shown().filter(|flag| flag.get_action().takes_values()).flat_map(spellings).collect();
    *verbs += &format!(
        "        {}) verbs='{}' known='{}' flags='{}' valued='{}' ;;\n",
        paths.iter().map(|path| format!("'{path}'")).collect::<Vec<_>>().join(" | "),
        offered.join(" "),
        known.join(" "),
        flags.join(" "),
        valued.join(" ")
    );
    let positions = shown().filter(|argument| argument.is_positional()).enumerate().map(|(at, argument)| {
        let is_last = argument.get_num_args().is_some_and(|count| count.max_values() > 1);
        (argument, vec![if is_last { "[0-9]*".to_owned() } else { at.to_string() }])
    });
    for (argument, places) in shown().map(|flag| (flag, spellings(flag))).chain(positions) {
        let Values { words, kind } = Values::of(argument);
        if places.is_empty() || words.is_empty() && kind.is_empty() {
            continue;
        }
        let patterns =
            paths.iter().flat_map(|path| places.iter().map(move |place| format!("'{path} '{place}")));
        let patterns = patterns.collect::<Vec<_>>().join(" | ");
        *values += &format!("        {patterns}) words='{}' kind='{kind}' ;;\n", words.join(" "));
    }
    for verb in below {
        let paths = paths.iter().flat_map(|path| {
            names(verb).into_iter().map(move |name| format!("{path} {name}").trim_start().to_owned())
        });
        add(verb, &paths.collect::<Vec<_>>(), verbs, values);
    }
}

/// Returns the names of a verb that the parser takes.
fn names(verb: &Command) -> Vec<&str> {
    std::iter::once(verb.get_name()).chain(verb.get_all_aliases()).collect()
}

/// Returns the ways to write a flag; none for an argument of a position.
fn spellings(argument: &Arg) -> Vec<String> {
    let short = argument.get_short_and_visible_aliases().unwrap_or_default();
    let long = argument.get_long_and_visible_aliases().unwrap_or_default();
    let short = short.into_iter().map(|letter| format!("-{letter}"));
    short.chain(long.into_iter().map(|word| format!("--{word}"))).collect()
}

/// The candidates for a value.
struct Values {
    words: Vec<String>,
    /// Those that the host knows, by the script's name of them; empty for none.
    kind: &'static str,
}

impl Values {
    /// The name of a value in the help tells: words to be written so are in small letters there.
    fn of(argument: &Arg) -> Self {
        let possible = argument.get_possible_values();
        if !possible.is_empty() {
            let shown = possible.iter().filter(|value| !value.is_hide_set());
            let kind = if argument.get_value_delimiter().is_some() { "list" } else { "" };
            return Self { words: shown.map(|value| value.get_name().to_owned()).collect(), kind };
        }
        let mut values = Self { words: Vec::new(), kind: "" };
        let names = argument.get_value_names().unwrap_or_default();
        for name in names.iter().flat_map(|names| names.split('|')) {
            match name {
                "FILE" | "PATH" => values.kind = "files",
                "DIR" => values.kind = "directories",
                "STATEROOT" => values.kind = "stateroots",
                "KARG" => values.kind = "kernel-arguments",
                "VERB" => values.kind = "verbs",
                word if word.chars().all(|letter| letter.is_ascii_lowercase()) => {
                    values.words.push(word.to_owned());
                }
                _ => {}
            }
        }
        values
    }
}
