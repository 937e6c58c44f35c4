"""print a shell completion script, made from this command line

examples:
  source <(carico completion bash)      in ~/.bashrc
  source <(carico completion zsh)       in ~/.zshrc
"""

import argparse

BASH = """\
# carico completion; made by `carico completion`
_carico() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    if [ "$COMP_CWORD" -eq 1 ]; then
        words="{commands}"
    else
        case "$before" in
            {files}) COMPREPLY=($(compgen -f -- "$word")); return ;;
        esac
        case "${{COMP_WORDS[1]}}" in
{cases}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _carico carico
"""
ZSH = "autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n"
FILES = ("FILE", "PATH", "SOCKET", "FOLDER")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash", "zsh"))


def run(given: argparse.Namespace) -> int:
    from carico_agent.cli import parser

    print((ZSH if given.shell == "zsh" else "") + script(parser()), end="")
    return 0


def script(top: argparse.ArgumentParser) -> str:
    """The bash completion of a parser with subcommands."""
    commands = subcommands(top)
    cases = [f'            {name}) words="{" ".join(words(sub))}" ;;' for name, sub in commands.items()]
    takes_file = {
        option
        for sub in commands.values()
        for action in sub._actions
        if action.metavar in FILES
        for option in action.option_strings
    }
    first = [*commands, *(option for action in top._actions for option in action.option_strings)]
    return BASH.format(commands=" ".join(first), files="|".join(sorted(takes_file)), cases="\n".join(cases))


def subcommands(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    return next(dict(action.choices) for action in top._actions if isinstance(action, argparse._SubParsersAction))


def words(sub: argparse.ArgumentParser) -> list[str]:
    """Options and fixed choices of one command."""
    found = [option for action in sub._actions for option in action.option_strings if option.startswith("--")]
    return found + [str(choice) for action in sub._actions for choice in action.choices or ()]
