"""The completion script for bash: one table, and the functions that look things up in it.

A key of the table is `COMMAND:` for the names of its flags, `COMMAND:FLAG` for what that flag takes,
`COMMAND:0`, `COMMAND:1`... for the arguments by their place, and `COMMAND:more` for those after. What all
commands have is under no command. What something takes is "file", "directory", "snapshot", "text", or "=" and
the words among which one is chosen; with "?" before it, it may be left out.

Bash cuts its COMP_WORDS at : and = and leaves the quotes in, and readline replaces only what is behind such a
cut or an open quote. So the line is taken apart anew, up to the cursor and up to where readline will replace
(the function's $2), and each candidate is handed over without what stands before that.
"""

import shlex
from collections.abc import Iterator, Sequence

from kvtool.cli.surface import Argument, Command, common

_GLUE = r"""
# The words of the line $1 without quotes: in words, the last in word; redirected if that is behind > or <.
# When it ends in an open quote, quote is that, and opened what of the word stands before it.
_kvtool_split() {
    local line=$1 char some= i
    words=() word= redirected= quote=
    for ((i = 0; i < ${#line}; i++)); do
        char=${line:i:1}
        case $quote$char in
            \' | \") quote=$char opened=$word some=1 ;;
            \'\' | \"\") quote= ;;
            \\ | \"\\)
                char=${line:i+1:1} some=1 i=$((i + 1))
                [[ $quote && $char != [\"\\\$\`] ]] && word+=\\
                word+=$char ;;
            [[:space:]\<\>])
                [[ $char == [\<\>] && $word == [0-9] ]] && some=
                [[ $some && ! $redirected ]] && words+=("$word")
                [[ $some ]] && redirected=
                [[ $char == [\<\>] ]] && redirected=1
                word= some= ;;
            *) word+=$char some=1 ;;
        esac
    done
}

# Ends each file that begins with $2 with a NUL; directories only if $1 says so.
_kvtool_files() {
    local begun=$2 home= each
    [[ $begun == \~/* ]] && home=$HOME begun=$HOME${begun:1}
    set +f
    shopt -u failglob
    for each in "$begun"*; do
        [[ -d $each || ( $1 == file && ( -e $each || -L $each ) ) ]] || continue
        [[ $home ]] && each=\~${each:${#home}}
        printf '%s\0' "$each"
    done
}

# Offers what is taken according to $1; $2 is what stands before it in the same word.
_kvtool_offer() {
    local found=() each
    case $1 in
        =*) read -ra found <<<"${1:1}" ;;
        snapshot) mapfile -t found < <(kvtool completion names -- "${words[@]:1}" 2>/dev/null) ;;
        file | directory) mapfile -d '' -t found < <(_kvtool_files "$1" "${word:${#2}}") ;;
    esac
    for each in "${found[@]}"; do
        each=$2$each
        [[ $each == "$word"* ]] && COMPREPLY+=("${each#"$head"}")
    done
    if [[ $1 == snapshot && ${#COMPREPLY[@]} == 1 ]]; then
        _kvtool_quote
    elif [[ $1 == snapshot || $1 == file || $1 == directory ]]; then
        compopt -o filenames 2>/dev/null  # readline quotes what needs it
    fi
}

# Quotes the one candidate. Readline does so for files only: it leaves a $ in a name that it does not find,
# and adds a slash to one that a directory has.
_kvtool_quote() {
    local name=${COMPREPLY[0]} char
    case $quote in
        \') name=${name//\'/\'\\\'\'} ;;
        \")
            for char in \\ \" \$ \`; do
                name=${name//"$char"/"\\$char"}
            done
            name=${name//!/\"\'!\'\"} ;;
        *) printf -v name %q "$name" ;;
    esac
    COMPREPLY=("$name")
}

_kvtool() {
    local IFS=$' \t\n' line=${COMP_LINE:0:COMP_POINT} words word redirected quote opened head
    local command takes= end= place=0 each
    COMPREPLY=()
    _kvtool_split "${line%"$2"}"
    head=$word
    _kvtool_split "$line"
    [[ $quote ]] && head=$opened
    command=${words[1]-}
    for each in "${words[@]:2}"; do
        if [[ $takes == [^?]* || ( $takes && " ${takes#\?=} " == *" $each "* ) ]]; then
            takes=
        elif [[ $each == -- && ! $end ]]; then
            takes= end=1
        elif [[ $each == -?* && ! $end ]]; then
            takes=${_kvtool_table[$command:$each]-${_kvtool_table[:$each]-}}
        else
            takes= place=$((place + 1))
        fi
    done
    if [[ $redirected ]]; then
        [[ $2 == *[\<\>]* ]] || _kvtool_offer file ''  # else COMP_WORDBREAKS lacks them: it would be replaced
    elif [[ ! $command ]]; then
        _kvtool_offer "${_kvtool_table[commands]}" ''
    elif [[ $takes == [^?]* ]]; then
        _kvtool_offer "$takes" ''
    elif [[ $word == --*=* && ! $end ]]; then
        each=${word%%=*}
        takes=${_kvtool_table[$command:$each]-${_kvtool_table[:$each]-}}
        _kvtool_offer "${takes#\?}" "$each="
    elif [[ $word == -* && ! $end ]]; then
        _kvtool_offer "=${_kvtool_table[$command:]-} ${_kvtool_table[:]}" ''
    else
        _kvtool_offer "${takes#\?}" ''
        _kvtool_offer "${_kvtool_table[$command:$place]-${_kvtool_table[$command:more]-}}" ''
    fi
}
complete -F _kvtool kvtool
"""


def script(all_: Sequence[Command]) -> str:
    """The script for these commands."""
    names = " ".join([*(each.name for each in all_), "--help", "--version"])
    rows = dict([("commands", f"={names}"), *_rows("", common(all_))])
    for command in all_:
        rows |= _rows(command.name, [each for each in command.flags if each not in common(all_)])
        for place, argument in enumerate(command.positionals):
            rows[f"{command.name}:{'more' if argument.repeated else place}"] = _takes(argument)
    table = "\n".join(f"    [{key}]={shlex.quote(value)}" for key, value in rows.items())
    return f"declare -gA _kvtool_table=(\n{table}\n)\n{_GLUE}"


def _rows(command: str, arguments: Sequence[Argument]) -> Iterator[tuple[str, str]]:
    yield f"{command}:", " ".join(flag for argument in arguments for flag in argument.flags)
    for argument in arguments:
        if argument.value:
            for flag in argument.flags:
                yield f"{command}:{flag}", ("?" if argument.optional else "") + _takes(argument)


def _takes(argument: Argument) -> str:
    return f"={' '.join(argument.choices)}" if argument.choices else argument.kind
